package history

import (
	"slices"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/witness"
)

// lifeMutations break what is promised of lanes, life cycle, drain and journal.
var lifeMutations = []mutation{
	{"P5", "a read waits for its turn although a slot is free", func(m *mutant) bool {
		for r := range m.Runs {
			run := &m.Runs[r]
			l := &serialLane{map[string]uint64{}, map[string]uint64{}, map[string]bool{}, map[string]bool{}, false}
			for i, e := range run.Events {
				if e.Server != "se" {
					continue
				}
				if e.Type == messages.EventCallAccepted && l.free(e, &m.Servers[1]) && run.Events[i+1].CallID == e.CallID {
					gen := l.generation()
					for j := i + 2; j < len(run.Events); j++ {
						o := run.Events[j]
						if o.Server != "se" {
							continue
						}
						if o.Type == messages.EventCallDispatched && o.Generation == gen { // behind the next one
							d := run.Events[i+1]
							run.after(j, d)
							run.Events = slices.Delete(run.Events, i+1, i+2)
							run.number()
							return true
						}
						if o.Type == messages.EventCallRequeued || o.Type == messages.EventServerExited || o.Type == messages.EventServerState || o.Code == messages.CodeConnectionLost || o.CallID == e.CallID {
							break
						}
					}
				}
				l.take(e)
			}
		}
		return false
	}},

	{"P6", "two calls of one client overtake each other", func(m *mutant) bool {
		x := newIndex(m.Input, newReport())
		for r := range m.Runs {
			run := &m.Runs[r]
			for i, e := range run.Events {
				c := x.calls[e.CallID]
				if e.Type != messages.EventCallDispatched || c == nil || !c.effectful() || len(c.requeues) > 0 {
					continue
				}
				for j := i - 1; j >= 0; j-- { // one of the same client that was accepted after it and is dispatched later
					o := x.calls[run.Events[j].CallID]
					if run.Events[j].Type == messages.EventCallAccepted && o != nil && o.effectful() && o.Client == c.Client && o.Server == c.Server && len(o.dispatches) == 1 &&
						o.accepted[0].Seq > c.accepted[0].Seq && o.dispatches[0].Seq > e.Seq {
						k := int(o.dispatches[0].Seq - 1)
						run.Events[i], run.Events[k] = run.Events[k], run.Events[i]
						run.number()
						return true
					}
				}
			}
		}
		return false
	}},
	{"P6", "an entry stands behind one that was asked for later", func(m *mutant) bool {
		// The answer of a call comes before another was asked for, and its entry after.
		a := m.call(is(messages.SideEffect, messages.OK))
		if a == nil {
			return false
		}
		b := m.call(func(c *Call) bool {
			return c.Server == a.Server && c.Invoked > a.Returned && c.Effect == messages.SideEffect && m.record(c.Nonce, witness.End) >= 0
		})
		if b == nil {
			return false
		}
		end := m.Witness[m.record(b.Nonce, witness.End)].MonoNS
		m.Witness[m.record(a.Nonce, witness.Begin)].MonoNS = end + 1
		m.Witness[m.record(a.Nonce, witness.Begin)].PID = m.Witness[m.record(b.Nonce, witness.Begin)].PID
		m.unwitness(a.Nonce, witness.End)
		return true
	}},

	{"P9", "a process that nobody ended", func(m *mutant) bool {
		m.Leftovers = append(m.Leftovers, Leftover{Run: "run1", What: "pid 7: mcpserver", After: 5 * time.Second})
		return true
	}},
	{"P10", "goroutines leak", func(m *mutant) bool { m.Samples[len(m.Samples)-1].Goroutines += 100; return true }},
	{"P10", "descriptors leak", func(m *mutant) bool { m.Samples[len(m.Samples)-1].FDs += 40; return true }},
	{"P10", "memory leaks", func(m *mutant) bool { m.Samples[len(m.Samples)-1].RSS += 1 << 30; return true }},

	{"P11", "the backoff is cut short", func(m *mutant) bool {
		for r := range m.Runs {
			for i, e := range m.Runs[r].Events {
				if e.State == messages.StateBackoff.String() && !m.operated(e.Server) {
					for j := i + 1; j < len(m.Runs[r].Events); j++ {
						if o := &m.Runs[r].Events[j]; o.Server == e.Server && o.State == messages.StateStarting.String() {
							o.Time = e.Time.Add(time.Millisecond)
							return true
						}
					}
				}
			}
		}
		return false
	}},
	{"P11", "a crash loop without any backoff", func(m *mutant) bool {
		for r := range m.Runs {
			run := &m.Runs[r]
			backoffs := map[string]int{}
			for i, e := range run.Events {
				if e.State != messages.StateBackoff.String() || m.operated(e.Server) {
					continue
				}
				// The second in a row was not earned by readiness, whatever the clock says.
				up := slices.ContainsFunc(run.Events[i+1:], func(o messages.Event) bool {
					return o.Server == e.Server && o.State == messages.StateStarting.String()
				})
				if backoffs[e.Server]++; backoffs[e.Server] > 1 && up && m.soonDown(run, i) {
					run.Events = slices.Delete(run.Events, i, i+1)
					run.number()
					return true
				}
			}
		}
		return false
	}},
	{"P11", "a stopped server is revived by a late timer", func(m *mutant) bool {
		i := slices.IndexFunc(m.Operations, func(o Operation) bool { return o.Verb == messages.VerbStart })
		if i < 0 {
			return false
		}
		stop := m.Operations[i-1]
		if stop.Server != m.Operations[i].Server || m.Operations[i].At-stop.At < int64(3*earliness) {
			return false
		}
		m.Operations = slices.Delete(m.Operations, i, i+1)
		return true
	}},
	{"P11", "a generation is used twice", func(m *mutant) bool {
		var first *messages.Event
		for i := range m.Runs[0].Events {
			if e := &m.Runs[0].Events[i]; e.Type == messages.EventServerSpawned {
				if first != nil {
					e.Generation = first.Generation
					return true
				}
				first = e
			}
		}
		return false
	}},
	{"P11", "a call goes to an incarnation that is over", func(m *mutant) bool {
		for r := range m.Runs {
			before := map[string]bool{}
			for i := range m.Runs[r].Events {
				e := &m.Runs[r].Events[i]
				if e.Type == messages.EventCallDispatched && before[e.Server] {
					e.Generation = 0
					return true
				}
				before[e.Server] = before[e.Server] || e.Type == messages.EventCallDispatched
			}
		}
		return false
	}},

	{"P12", "a call is accepted after the drain", func(m *mutant) bool {
		for r := range m.Runs {
			run := &m.Runs[r]
			i := slices.IndexFunc(run.Events, func(e messages.Event) bool { return e.Type == messages.EventDraining })
			j := slices.IndexFunc(run.Events, func(e messages.Event) bool { return e.Type == messages.EventCallAccepted })
			if i > 0 && j >= 0 && j < i {
				e := run.Events[i]
				run.Events = slices.Delete(run.Events, i, i+1)
				run.Events = slices.Insert(run.Events, j, e)
				run.number()
				return true
			}
		}
		return false
	}},
	{"P12", "an outcome is not delivered", func(m *mutant) bool {
		for _, run := range m.Runs {
			if run.End != Drained {
				continue
			}
			if c := m.call(func(c *Call) bool { return c.Run == run.ID && c.Outcome == messages.OK.String() }); c != nil {
				c.Outcome, c.Attempt = NoAnswer, 0
				return true
			}
		}
		return false
	}},
	{"P12", "a drain without end", func(m *mutant) bool {
		for i := range m.Runs {
			if run := &m.Runs[i]; run.End == Drained {
				run.EndedAt = run.StopAsked + int64(30*time.Second)
				return true
			}
		}
		return false
	}},
	{"P12", "a drain that fails", func(m *mutant) bool {
		for i := range m.Runs {
			if run := &m.Runs[i]; run.End == Drained {
				run.Exit = 1
				return true
			}
		}
		return false
	}},

	{"P13", "the journal is written after the dispatch", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Outcome == NoAnswer && m.entry(c.ID) != nil })
		if c == nil {
			return false
		}
		m.Journal.Entries = slices.DeleteFunc(m.Journal.Entries, func(e messages.JournalEntry) bool { return e.CallID == c.ID })
		return true
	}},
	{"P13", "an open entry is taken for not sent", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Outcome == NoAnswer && m.entry(c.ID) != nil })
		if c != nil {
			m.entry(c.ID).Outcome = messages.NotSent.String()
		}
		return c != nil
	}},
	{"P13", "the journal says something else than the caller heard", func(m *mutant) bool {
		c := m.call(is(messages.SideEffect, messages.OutcomeUnknown))
		if c == nil || m.entry(c.ID) == nil {
			return false
		}
		m.entry(c.ID).Outcome = messages.ToolError.String()
		return true
	}},
	{"P13", "an outcome never reaches the journal", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return is(messages.SideEffect, messages.OK)(c) && m.lastRun(c) })
		if c != nil {
			m.entry(c.ID).Outcome = messages.OutcomeOpen
		}
		return c != nil
	}},
	{"P13", "the next daemon sends it again, and it begins there", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Outcome == NoAnswer && c.Server != "web" && m.entry(c.ID) != nil })
		return c != nil && m.begins(c, m.Runs[len(m.Runs)-1].Events[0].Time.UnixNano()-m.Offset+int64(10*time.Minute))
	}},
	{"P13", "the next daemon takes it up again", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Outcome == NoAnswer && m.entry(c.ID) != nil })
		if c == nil {
			return false
		}
		run := &m.Runs[len(m.Runs)-1]
		run.after(len(run.Events)-2, messages.Event{Type: messages.EventCallDispatched, Server: c.Server, CallID: c.ID, Attempt: 1, Generation: 99})
		return true
	}},
	{"P13", "a journal that doubts itself", func(m *mutant) bool {
		m.Journal.Doubts = []string{"journal/3: bytes 17 to 99 are unreadable"}
		return true
	}},
	{"P13", "a read in the journal", func(m *mutant) bool {
		c := m.call(is(messages.ReadOnly, messages.OK))
		if c != nil {
			m.Journal.Entries = append(m.Journal.Entries, messages.JournalEntry{CallID: c.ID, RunID: c.Run, Outcome: messages.OK.String()})
		}
		return c != nil
	}},

	{"P15", "a server that never comes back", func(m *mutant) bool { m.Quiet.NotReady = []string{"ex is in backoff"}; return true }},
	{"P15", "a call that never ends", func(m *mutant) bool { m.Quiet.Open = []string{"c1 is queued"}; return true }},
	{"P17", "a panic in the router", func(m *mutant) bool {
		c := m.call(outcome(messages.OutcomeUnknown))
		if c != nil {
			c.Code = messages.CodeInternal
		}
		return c != nil
	}},

	{"history", "events are missing", func(m *mutant) bool {
		m.Runs[0].Events = slices.Delete(m.Runs[0].Events, 2, 3)
		return true
	}},
	{"history", "events were dropped", func(m *mutant) bool {
		m.Runs[0].Events = slices.Insert(m.Runs[0].Events, 2, messages.Event{Seq: 2, Type: messages.EventGap, Count: 7, Time: m.Runs[0].Events[2].Time})
		return true
	}},
	{"history", "a server does what nobody asked for", func(m *mutant) bool {
		return m.begins(&Call{Nonce: "nobody", Server: "ex", Tool: "write"}, m.Witness[len(m.Witness)-1].MonoNS+1)
	}},
	{"history", "a call that nobody made", func(m *mutant) bool {
		run := &m.Runs[len(m.Runs)-1]
		run.after(len(run.Events)-1, messages.Event{Type: messages.EventCallAccepted, Server: "ex", CallID: "nobody"})
		return true
	}},
}
