// Package bench measures the bridge against the plain SDK, interleaved in one run
// on the same fixture, how long a caller waits when its server is killed, and how much
// longer a server's callers wait while the one beside it misbehaves.
//
// `make bench` prints a table; without MCPBRIDGE_BENCH=1 the tests only make a few
// rounds, to see that the benchmark itself works, and judge nothing.
package bench
