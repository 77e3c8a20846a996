package history

import (
	"slices"
	"time"

	"mcpbridge/messages"
)

// Check examines an experiment and never fails: what is wrong with the input itself
// is a violation of the property "history".
func Check(in *Input) *Report {
	r := newReport()
	x := newIndex(in, r)
	checkOnce(x, r)
	checkTruth(x, r)
	checkOutcomes(x, r)
	checkTimes(x, r)
	checkLanes(x, r)
	checkFences(x, r)
	checkReads(x, r)
	checkOrder(x, r)
	checkLeftovers(x, r)
	checkResources(x, r)
	checkRestarts(x, r)
	checkDrains(x, r)
	checkJournal(x, r)
	checkQuiet(x, r)
	checkMistakes(x, r)
	x.count(r)
	return r
}

// count fills in the figures.
func (x *index) count(r *Report) {
	r.Counts["calls"] = len(x.Calls)
	r.Counts["lives of the daemon"] = len(x.Runs)
	r.Counts["witness records"] = len(x.Witness)
	r.Counts["server processes"] = len(x.procs)
	for _, run := range x.Runs {
		r.Counts["events"] += len(run.Events)
		if run.End == Killed {
			r.Counts["fault: kill -9 of the daemon"]++
		}
		for _, e := range run.Events {
			switch e.Type {
			case messages.EventDraining:
				r.Counts["drains told"]++
			case messages.EventReplyLate:
				r.Counts["late replies dropped"]++
			case messages.EventLaneHeld:
				r.Counts["lanes held"]++
			case messages.EventPossibleOverlap:
				r.Counts["possible overlaps told"]++
			case messages.EventServerReady:
				r.Counts["servers ready"]++
			case messages.EventServerRecycled:
				r.Counts["servers recycled"]++
			default:
			}
		}
	}
	r.Counts["operations"] = len(x.Operations)
	for _, k := range x.Kills {
		r.Counts["fault: "+k.What]++
	}
	var first, last int64
	for _, c := range x.Calls {
		if first == 0 || c.Invoked < first {
			first = c.Invoked
		}
		last = max(last, c.Returned)
		w := word(c.Outcome, c.Code)
		if c.Attempt > 1 {
			w += " after a repetition"
		}
		r.Outcomes[w]++
	}
	r.Length = time.Duration(last - first)
	slices.Sort(r.Recoveries)
}
