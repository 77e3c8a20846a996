package history

import (
	"time"

	"mcpbridge/messages"
)

// orphanTime is how long a process may outlive its daemon.
const orphanTime = 2 * time.Second

// checkLeftovers is P9.
func checkLeftovers(x *index, r *Report) {
	for _, run := range x.runs {
		if run.End != StillUp {
			r.did("P9")
		}
	}
	for _, l := range x.Leftovers {
		if l.After > orphanTime {
			r.add("P9", "run %s: %s lived on %s after its daemon had ended", l.Run, l.What, l.After.Round(time.Millisecond))
		}
	}
}

// What rest may cost more than the baseline. The memory has room for the bounded
// history of events and for what a garbage collector keeps.
const (
	moreGoroutines = 25
	moreFDs        = 12
	moreRSS        = 96 << 20
	moreRaceRSS    = 400 << 20
)

// checkResources is P10: at rest after the faults the daemon uses what it used at
// rest before them.
func checkResources(x *index, r *Report) {
	var before, after []Sample
	for _, s := range x.Samples {
		switch s.Name {
		case Baseline:
			before = append(before, s)
		case Rest:
			after = append(after, s)
		}
	}
	if len(before) == 0 || len(after) == 0 {
		r.Skipped["P10"] = "no samples at rest before and after"
		return
	}
	// The best of several: a connection of the experiment itself may be on its way out.
	base, rest := least(before), least(after)
	r.did("P10")
	compare := func(what string, was, is, more int64) {
		if is > was+more {
			r.add("P10", "%s: %d before the faults, %d at rest after them, and at most %d more is accounted for", what, was, is, more)
		}
	}
	compare("goroutines", int64(base.Goroutines), int64(rest.Goroutines), moreGoroutines)
	compare("descriptors", int64(base.FDs), int64(rest.FDs), moreFDs)
	memory := int64(moreRSS)
	if x.Race {
		memory = moreRaceRSS
	}
	compare("resident bytes", base.RSS, rest.RSS, memory)
	r.Counts["goroutines before"], r.Counts["goroutines after"] = base.Goroutines, rest.Goroutines
	r.Counts["descriptors before"], r.Counts["descriptors after"] = base.FDs, rest.FDs
	r.Counts["RSS before, MiB"], r.Counts["RSS after, MiB"] = int(base.RSS>>20), int(rest.RSS>>20)
}

func least(samples []Sample) Sample {
	m := samples[0]
	for _, s := range samples[1:] {
		m.Goroutines, m.FDs, m.RSS = min(m.Goroutines, s.Goroutines), min(m.FDs, s.FDs), min(m.RSS, s.RSS)
	}
	return m
}

// checkDrains is P12.
func checkDrains(x *index, r *Report) {
	for _, run := range x.runs {
		x.door(run, r)
		if run.End != Drained {
			continue
		}
		r.did("P12")
		if run.Exit != 0 {
			r.add("P12", "run %s was asked to drain and ended with status %d", run.ID, run.Exit)
		}
		if took := time.Duration(run.EndedAt - run.StopAsked); run.Budget > 0 && took > run.Budget {
			r.add("P12", "run %s took %s to drain, and has %s", run.ID, took.Round(time.Millisecond), run.Budget)
		}
		for _, c := range x.sorted() {
			if c.run != run || len(c.accepted) == 0 {
				continue
			}
			r.did("P12")
			if c.Outcome == NoAnswer {
				r.add("P12", "%s was accepted by run %s, which drained, and its outcome was never delivered (the history says %s)",
					c.name(), run.ID, settlements(c.settled))
			}
		}
	}
}

// door looks at what comes after the daemon said that it drains.
func (x *index) door(run *runView, r *Report) {
	closed := uint64(0)
	for _, e := range run.Events {
		switch e.Type {
		case messages.EventDraining:
			closed = e.Seq
		case messages.EventCallAccepted, messages.EventCallDispatched:
			if closed > 0 {
				r.add("P12", "run %s: %s of call %s (event %d) after the drain had begun (event %d)", run.ID, e.Type, e.CallID, e.Seq, closed)
			}
		default:
		}
	}
}

// checkQuiet is P15.
func checkQuiet(x *index, r *Report) {
	q := x.Quiet
	if q == nil {
		r.Skipped["P15"] = "there was no quiet phase"
		return
	}
	r.did("P15")
	for _, s := range q.NotReady {
		r.add("P15", "%s after the faults had stopped, server %s", q.After.Round(time.Second), s)
	}
	for _, c := range q.Open {
		r.add("P15", "%s after the faults had stopped, call %s", q.After.Round(time.Second), c)
	}
	for _, c := range q.Failed {
		r.add("P15", "after the faults had stopped, a fresh call: %s", c)
	}
}
