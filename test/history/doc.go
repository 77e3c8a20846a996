// Package history is the checker of the bridge's promises. It joins four accounts of
// the same time, none of which it believes alone:
//
//	callers   what was asked, when, and what the answer was
//	bridge    its event history, one for each life of the daemon
//	witness   what the test servers say that they did, and when
//	journal   what `calls --journal` says after everything
//
// and the facts of the surroundings: who was killed when, which process was seen
// alive until when, what was left over, and how much the daemon used.
//
//	Input ──► Check ──► Report: violations, figures per property, histograms
//
// # What is checked
//
//	history  the input itself: no event is missing in between, nobody did what nobody asked for
//	P1       no side effect begins twice, nor is it ever sent again once it may have left
//	P2       outcomes are true at the witness
//	P3       exactly one outcome for each call, no later than its deadline + 2 s
//	P4       a side-effect lane of one place never has two at work; exclusive means exclusive
//	P5       under serial, a read with a free slot goes out in the step in which it arrives
//	P6       the order of a lane respects real time, and within a client that of arrival
//	P9       no process outlives its daemon by more than 2 s, nor lives when its successor starts
//	P10      goroutines, descriptors and memory come back to where they were
//	P11      restarts keep to their schedule; what is stopped stays so; generations only grow
//	P12      a drain accepts nothing more, gives what was in flight its time, and delivers it
//	P13      after kill -9 the journal knows every side effect that began, and nothing is sent again
//	P15      once the faults stop, everything settles
//	P17      no call ended in a mistake of the bridge
//	P18      waiting and running are told apart, and are what the events say
//
// A check claims a violation only where the accounts leave no other reading: the tail
// of a killed daemon's events may be missing, clocks of different kinds are compared
// with ClockSlack, a process counts as alive only until somebody last saw it alive.
// Report tells for each property how much there was to check: a property that met
// nothing was not checked.
//
// # Who checks the checker
//
// Mutations of good histories break each promise in the accounts; package test/planted
// breaks them in the bridge's own code and demands that a squall over the daemon is
// reported. What a planted bug showed to be missing here stands in foundMutations.
package history
