//go:build !race

package dispatch

// defaultSeeds takes some ten seconds on a small machine.
const defaultSeeds = 2000
