package history

import (
	"slices"
	"time"

	"mcpbridge/messages"
)

// foundMutations are broken promises that the checker had no eye for until a planted bug
// showed it.
var foundMutations = []mutation{
	{"P2", "a caller gets the answer of another call", func(m *mutant) bool {
		a, b := m.call(outcome(messages.OK)), m.call(outcome(messages.OK))
		if a == nil || a == b {
			return false
		}
		a.Answer = b.Nonce
		return true
	}},
	{"P3", "a call is refused as draining by a daemon that does not drain", func(m *mutant) bool {
		run := &m.Runs[len(m.Runs)-1]
		at := run.Events[len(run.Events)/2].Time.UnixNano() - m.Offset
		m.Calls = append(m.Calls, Call{ID: "door", Nonce: "door", Server: "ex", Tool: "read", Effect: messages.ReadOnly, Client: "c", Run: run.ID, Invoked: at, Returned: at + ms,
			Timeout: time.Second, Outcome: messages.Rejected.String(), Code: messages.CodeDraining})
		return true
	}},
	{"P4", "a lane of stdio is given up with a word of possible overlap, and its process lives on", func(m *mutant) bool {
		return m.releasedLate(func(run *Run, i int, gen uint64) {
			e := run.Events[i]
			run.Events[i].Reason = "abandoned"
			j := slices.IndexFunc(run.Events, func(o messages.Event) bool {
				return o.Type == messages.EventReplyLate && o.CallID == e.CallID
			})
			run.Events[j].Type = messages.EventPossibleOverlap
		})
	}},
	{"P4", "a late reply frees the lane, and nobody counts it", func(m *mutant) bool {
		return m.releasedLate(func(run *Run, i int, gen uint64) {
			id := run.Events[i].CallID
			run.Events = slices.DeleteFunc(run.Events, func(o messages.Event) bool {
				return o.Type == messages.EventReplyLate && o.CallID == id
			})
			run.number()
		})
	}},
	{"P4", "a lane is given up long before its process ends", func(m *mutant) bool {
		return m.releasedLate(func(run *Run, i int, gen uint64) {
			e := run.Events[i]
			run.Events[i].Reason = "proven dead"
			run.Events = slices.DeleteFunc(run.Events, func(o messages.Event) bool {
				return o.Type == messages.EventReplyLate && o.CallID == e.CallID
			})
			run.number()
		})
	}},
	{"P9", "the next process starts beside the old one", func(m *mutant) bool {
		x := newIndex(m.Input, newReport())
		for i, p := range x.procs {
			for _, next := range x.procs[i+1:] {
				if srv := x.servers[p.server]; next.server == p.server && !srv.Remote && x.sameRun(p.start, next.start) {
					m.Lives = append(m.Lives, Life{PID: p.pid, First: p.start, Last: next.start + ms})
					return true
				}
			}
		}
		return false
	}},
	{"P11", "an operator's start explains nothing once its answer was there", func(m *mutant) bool {
		for i, o := range m.Operations {
			if o.Verb == messages.VerbStart && i > 0 && m.Operations[i-1].Server == o.Server && o.At-m.Operations[i-1].At > int64(4*earliness) {
				m.Operations[i].At, m.Operations[i].Done = m.Operations[i-1].At-int64(3*earliness), m.Operations[i-1].At-int64(2*earliness)
				return true
			}
		}
		return false
	}},
	{"P12", "a drain cuts off a call in flight", func(m *mutant) bool {
		return m.cutShort(messages.Event{Type: messages.EventDraining})
	}},
	{"P12", "the drain of one server cuts off a call in flight", func(m *mutant) bool {
		return m.cutShort(messages.Event{Type: messages.EventServerState, State: messages.StateDraining.String()})
	}},
	{"P18", "the time that a call ran is counted as waiting, too", func(m *mutant) bool {
		return m.timed(func(e *messages.Event) { e.QueuedMS += e.RanMS })
	}},
	{"P18", "waiting and running are swapped", func(m *mutant) bool {
		return m.timed(func(e *messages.Event) { e.QueuedMS, e.RanMS = e.RanMS, e.QueuedMS })
	}},
	{"P18", "nobody counts the time", func(m *mutant) bool {
		return m.timed(func(e *messages.Event) { e.QueuedMS, e.RanMS = 0, 0 })
	}},
}

// releasedLate applies change to the release of a stdio lane by a late reply whose
// incarnation lived on for long, with room after it.
func (m *mutant) releasedLate(change func(run *Run, i int, gen uint64)) bool {
	for r := range m.Runs {
		run := &m.Runs[r]
		last := run.Events[len(run.Events)-1].Time
		for i, e := range run.Events {
			if e.Type != messages.EventLaneReleased || e.Reason != answeredLate || e.Server == "web" || last.Sub(e.Time) < 4*time.Second {
				continue
			}
			c := m.call(func(c *Call) bool { return c.ID == e.CallID })
			if c == nil || c.Effect == messages.ReadOnly || c.Attempt != 1 {
				continue
			}
			gen := c.Generation
			if slices.ContainsFunc(run.Events, func(o messages.Event) bool {
				return o.Type == messages.EventServerExited && o.Server == e.Server && o.Generation == gen && o.Time.Sub(e.Time) < 3*time.Second
			}) {
				continue
			}
			change(run, i, gen)
			return true
		}
	}
	return false
}

// cutShort lets a drain begin and its server be told to end while a call is in flight.
func (m *mutant) cutShort(begin messages.Event) bool {
	c := m.call(func(c *Call) bool { return outcome(messages.OK)(c) && m.lastRun(c) })
	if c == nil {
		return false
	}
	run, i := m.event(c.ID, messages.EventCallDispatched)
	begin.Server = c.Server
	if begin.Type == messages.EventDraining {
		begin.Server = ""
	}
	run.after(i, begin)
	run.after(i+1, messages.Event{Type: messages.EventServerState, Server: c.Server, State: messages.StateStopping.String()})
	return true
}

// timed changes the figures of a call that ran and waited for long enough to tell.
func (m *mutant) timed(change func(e *messages.Event)) bool {
	x := newIndex(m.Input, newReport())
	c := m.call(func(c *Call) bool {
		v := x.calls[c.ID]
		if len(v.settled) != 1 || len(v.accepted) != 1 || len(v.dispatches) != 1 || len(v.requeues) > 0 {
			return false
		}
		return v.settled[0].RanMS > float64((rounding+10*time.Millisecond)/time.Millisecond) && v.settled[0].QueuedMS < 5
	})
	if c == nil {
		return false
	}
	run, i := m.event(c.ID, messages.EventCallSettled)
	change(&run.Events[i])
	return true
}
