package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"mcpbridge/messages"
)

// orphanTime is how long a process may outlive its daemon.
const orphanTime = 2 * time.Second

// checkLeftovers is P9.
func checkLeftovers(x *index, r *Report) {
	checkSuccessors(x, r)
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

// checkSuccessors is the other half of P9: within one life of the daemon, the next process
// of a server starts only when the one before is dead. Both moments are the machine's
// monotonic clock, and neither is the bridge's word.
func checkSuccessors(x *index, r *Report) {
	last := map[string]*proc{}
	for _, p := range slices.SortedFunc(slices.Values(x.procs), func(a, b *proc) int { return cmp.Compare(a.start, b.start) }) {
		srv := x.servers[p.server]
		if srv == nil || srv.Remote {
			continue
		}
		old := last[p.server]
		last[p.server] = p
		if old == nil || !x.sameRun(old.start, p.start) {
			continue
		}
		r.did("P9")
		if old.sign > p.start {
			r.add("P9", "server %s: pid %d started at %d, and pid %d of the incarnation before it was alive %s later",
				p.server, p.pid, p.start, old.pid, time.Duration(old.sign-p.start).Round(time.Microsecond))
			if old.sign > p.sign { // the one that lasts is compared with the next
				last[p.server] = old
			}
		}
	}
}

// sameRun reports whether both moments certainly lie within one life of the daemon.
func (x *index) sameRun(a, b int64) bool {
	for _, run := range x.runs {
		if len(run.Events) == 0 {
			continue
		}
		from := x.mono(run.Events[0].Time)
		if a >= from && b >= from {
			if run.End == StillUp || b <= run.EndedAt && a <= run.EndedAt {
				return true
			}
		}
	}
	return false
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
		x.grace(run, r)
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

// grace looks at who is told to end while it drains: calls that were in flight when the
// drain began have their time, and nothing but its end, their own, or an operator who
// does not want to wait cuts it short.
func (x *index) grace(run *runView, r *Report) {
	whole := int64(0)           // since when the daemon drains
	since := map[string]int64{} // or one server
	flying := map[string]map[string]messages.Event{}
	for _, e := range run.Events {
		if e.Type == messages.EventDraining {
			whole = x.mono(e.Time)
			continue
		}
		srv := x.servers[e.Server]
		if srv == nil || srv.Drain <= 0 {
			continue
		}
		calls := flying[e.Server]
		switch e.Type {
		case messages.EventCallDispatched:
			if calls == nil {
				calls = map[string]messages.Event{}
				flying[e.Server] = calls
			}
			calls[e.CallID] = e
		case messages.EventCallRequeued, messages.EventCallSettled:
			delete(calls, e.CallID)
		case messages.EventServerExited:
			maps.DeleteFunc(calls, func(_ string, d messages.Event) bool { return d.Generation <= e.Generation })
		case messages.EventServerState:
			at := x.mono(e.Time)
			from := cmp.Or(since[e.Server], whole)
			delete(since, e.Server)
			switch {
			case e.State == messages.StateDraining.String():
				since[e.Server] = at
			case e.State != messages.StateStopping.String() || from == 0:
			case at-from >= int64(srv.Drain-earliness) || x.operated(e.Server, from, at, messages.VerbStop):
			default:
				r.did("P12")
				for _, id := range slices.Sorted(maps.Keys(calls)) {
					r.add("P12", "run %s: %s was told to end (event %d) %s after its drain had begun, with call %s in flight (event %d), which has %s",
						run.ID, e.Server, e.Seq, time.Duration(at-from).Round(time.Millisecond), id, calls[id].Seq, srv.Drain)
				}
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
