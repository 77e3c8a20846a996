//go:build !race

package harness

// Race tells that the tests run under the race detector, and so do the binaries.
const Race = false
