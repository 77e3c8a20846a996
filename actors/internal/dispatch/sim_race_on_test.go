//go:build race

package dispatch

// defaultSeeds is small here: the Core has no goroutine that could race.
const defaultSeeds = 200
