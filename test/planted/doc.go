// Package planted breaks the bridge on purpose and demands that somebody notices. Each
// bug of mcpbridge/internal/planted is switched on in the real code, one at a time, and
// must be caught by those who claim to watch over what it breaks:
//
//	simulation  TestSim of actors/internal/dispatch, in virtual time
//	journal     the journal's crash and fault tests
//	squall      TestSquall of test/chaos: a short storm over the real daemon, killed once
//	            and drained twice, judged by package test/history
//
// Nobody's word counts that also cries without a bug: each catcher first has to find
// nothing in the whole bridge. A squall must report one of the properties that the bug is
// said to break; it has three tries, each twice as long as the one before, because it
// leaves to chance what the simulation does not.
//
// The simulation and the journal's tests take seconds and run with all tests. The squalls
// run by `make planted`, which ends in a table: bug, property, catcher, time.
package planted
