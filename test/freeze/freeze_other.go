//go:build !linux

// Package freeze stops processes. It knows nothing of the bridge, so that the tests of
// every room may use it; on this system it has nothing to offer.
package freeze
