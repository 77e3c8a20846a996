package history

import (
	"slices"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/witness"
)

// callMutations break what is promised of single calls.
var callMutations = []mutation{
	{"P1", "a side effect is sent again after EOF", func(m *mutant) bool {
		c := m.call(is(messages.SideEffect, messages.OutcomeUnknown))
		return c != nil && m.record(c.Nonce, witness.Begin) >= 0 && m.begins(c, c.Returned+ms)
	}},
	{"P1", "a side effect is put in line again after EOF, and its first attempt never began", func(m *mutant) bool {
		c := m.call(is(messages.SideEffect, messages.OK))
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallDispatched)
		d := run.Events[i]
		run.after(i, messages.Event{Type: messages.EventCallRequeued, Server: c.Server, CallID: c.ID, Attempt: 1, Reason: "connection lost: EOF"})
		d.Attempt = 2
		run.after(i+1, d)
		_, s := m.event(c.ID, messages.EventCallSettled)
		run.Events[s].Attempt, c.Attempt = 2, 2
		return true
	}},
	{"P1", "a read is repeated for ever", func(m *mutant) bool {
		c := m.call(is(messages.ReadOnly, messages.OK))
		return c != nil && m.begins(c, c.Returned-1) && m.begins(c, c.Returned-1)
	}},
	{"P1", "a call is dispatched twice side by side", func(m *mutant) bool {
		c := m.call(is(messages.ReadOnly, messages.OK))
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallDispatched)
		run.after(i, run.Events[i])
		return true
	}},

	{"P2", "ok, and no server finished it", func(m *mutant) bool {
		c := m.call(is(messages.SideEffect, messages.OK))
		if c != nil {
			m.unwitness(c.Nonce, witness.End)
		}
		return c != nil
	}},
	{"P2", "ok, and no server began it", func(m *mutant) bool {
		c := m.call(outcome(messages.OK))
		if c != nil {
			m.unwitness(c.Nonce, witness.Begin)
			m.unwitness(c.Nonce, witness.End)
		}
		return c != nil
	}},
	{"P2", "not_sent, and the worker wrote it", func(m *mutant) bool {
		c := m.call(outcome(messages.NotSent))
		return c != nil && m.begins(c, c.Returned+1)
	}},
	{"P2", "rejected, and it began", func(m *mutant) bool {
		c := m.call(outcome(messages.Rejected))
		return c != nil && m.begins(c, c.Returned+1)
	}},
	{"P2", "no daemon, and it began", func(m *mutant) bool {
		c := m.call(outcome(messages.Rejected))
		if c == nil {
			return false
		}
		c.Outcome, c.Code = NoDaemon, ""
		return m.drop(c.ID, messages.EventCallSettled) && m.begins(c, c.Returned+1)
	}},
	{"P2", "unknown, and it was never dispatched", func(m *mutant) bool {
		c := m.call(is(messages.SideEffect, messages.OutcomeUnknown))
		return c != nil && m.drop(c.ID, messages.EventCallDispatched)
	}},
	{"P2", "unknown, attempt 0", func(m *mutant) bool {
		c := m.call(outcome(messages.OutcomeUnknown))
		if c != nil {
			c.Attempt = 0
		}
		return c != nil
	}},
	{"P2", "timed out long before its deadline", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Code == messages.CodeTimeout })
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallAccepted)
		later := run.Events[i].Deadline.Add(3 * time.Second)
		run.Events[i].Deadline = &later
		return true
	}},
	{"P2", "cancelled after it was sent, and nobody had asked", func(m *mutant) bool {
		c := m.call(func(c *Call) bool {
			return c.Code == messages.CodeCancelled && c.Outcome == messages.OutcomeUnknown.String()
		})
		return c != nil && m.drop(c.ID, messages.EventCallCancel)
	}},
	{"P2", "connection lost, and the server lived on", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Code == messages.CodeConnectionLost && c.Server != "web" && m.lastRun(c) })
		if c == nil {
			return false
		}
		run := &m.Runs[len(m.Runs)-1]
		run.Events = slices.DeleteFunc(run.Events, func(e messages.Event) bool {
			return e.Type == messages.EventServerExited && e.Server == c.Server && e.Generation == c.Generation
		})
		run.number()
		return true
	}},
	{"P2", "tool_error that no server gave", func(m *mutant) bool {
		c := m.call(outcome(messages.ToolError))
		if c != nil {
			m.unwitness(c.Nonce, witness.Begin)
			m.unwitness(c.Nonce, witness.End)
		}
		return c != nil
	}},
	{"P2", "an error is taken for ok", func(m *mutant) bool {
		c := m.call(outcome(messages.OK))
		if c != nil {
			c.Errs = true
		}
		return c != nil
	}},
	{"P2", "an answer is taken for an error", func(m *mutant) bool {
		c := m.call(outcome(messages.ToolError))
		if c != nil {
			c.Errs = false
		}
		return c != nil
	}},
	{"P2", "the caller is told that it was not sent", func(m *mutant) bool {
		c := m.call(outcome(messages.OutcomeUnknown))
		if c != nil {
			c.Sent = false
		}
		return c != nil
	}},
	{"P2", "an answer before its work", func(m *mutant) bool {
		c := m.call(is(messages.SideEffect, messages.OK))
		if c == nil {
			return false
		}
		m.Witness[m.record(c.Nonce, witness.End)].MonoNS = c.Returned + 1
		return true
	}},
	{"P2", "a late reply that was an answer", func(m *mutant) bool {
		c := m.call(outcome(messages.OK))
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallSettled)
		run.after(i, messages.Event{Type: messages.EventReplyLate, Server: c.Server, CallID: c.ID})
		return true
	}},

	{"P3", "a call is lost", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Outcome == messages.OK.String() && m.lastRun(c) })
		if c == nil || !m.drop(c.ID, messages.EventCallSettled) {
			return false
		}
		c.Outcome, c.Returned, c.Attempt = "", 0, 0
		return true
	}},
	{"P3", "an outcome that the history does not know", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Outcome == messages.OK.String() && m.lastRun(c) })
		return c != nil && m.drop(c.ID, messages.EventCallSettled)
	}},
	{"P3", "two outcomes in the history", func(m *mutant) bool {
		c := m.call(outcome(messages.OutcomeUnknown))
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallSettled)
		e := run.Events[i]
		e.Outcome, e.Code = messages.OK.String(), ""
		run.after(i, e)
		return true
	}},
	{"P3", "two answers to the caller", func(m *mutant) bool {
		c := m.call(outcome(messages.OK))
		if c != nil {
			m.Calls = append(m.Calls, *c)
		}
		return c != nil
	}},
	{"P3", "an answer long after the deadline", func(m *mutant) bool {
		c := m.call(outcome(messages.OutcomeUnknown))
		if c != nil {
			c.Returned = c.Invoked + int64(c.Timeout+3*time.Second)
		}
		return c != nil
	}},
	{"P3", "settled long after the deadline", func(m *mutant) bool {
		c := m.call(func(c *Call) bool { return c.Code == messages.CodeTimeout })
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallAccepted)
		sooner := run.Events[i].Deadline.Add(-3 * time.Second)
		run.Events[i].Deadline = &sooner
		return true
	}},
	{"P3", "caller and history disagree", func(m *mutant) bool {
		c := m.call(outcome(messages.OutcomeUnknown))
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallSettled)
		run.Events[i].Outcome = messages.NotSent.String()
		return true
	}},
	{"P3", "accepted twice", func(m *mutant) bool {
		c := m.call(outcome(messages.OK))
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallAccepted)
		run.after(i, run.Events[i])
		return true
	}},
	{"P3", "dispatched after its outcome", func(m *mutant) bool {
		c := m.call(outcome(messages.NotSent))
		if c == nil {
			return false
		}
		run, i := m.event(c.ID, messages.EventCallSettled)
		run.after(i, messages.Event{Type: messages.EventCallDispatched, Server: c.Server, CallID: c.ID, Attempt: 1, Generation: 99})
		return true
	}},
	{"P3", "no answer, and no daemon had died", func(m *mutant) bool {
		c := m.call(func(c *Call) bool {
			return m.lastRun(c) && c.Outcome == messages.OK.String() && c.Invoked > m.Runs[len(m.Runs)-1].Events[0].Time.UnixNano()-m.Offset+int64(5*time.Second/2)
		})
		if c != nil {
			c.Outcome, c.Attempt = NoAnswer, 0
		}
		return c != nil
	}},

	{"P4", "a lane is released on timeout", func(m *mutant) bool {
		// A fenced side effect ends only after the next one of its server began.
		x := newIndex(m.Input, newReport())
		for i, s := range x.spans {
			if !s.effectful() || !s.ended || s.Server == "web" {
				continue
			}
			for _, next := range x.spans[i+1:] {
				if next.Server == s.Server && next.effectful() && next.proc == s.proc {
					m.Witness[m.record(s.Nonce, witness.End)].MonoNS = next.MonoNS + 1
					return true
				}
			}
		}
		return false
	}},
	{"P4", "the next one starts before the tree is dead", func(m *mutant) bool {
		x := newIndex(m.Input, newReport())
		for i, s := range x.spans {
			if !s.effectful() || s.ended || s.Server == "web" {
				continue
			}
			for _, next := range x.spans[i+1:] {
				if next.Server == s.Server && next.effectful() && next.proc != s.proc {
					m.Lives = append(m.Lives, Life{PID: s.PID, First: s.proc.start + 1, Last: next.MonoNS + 1})
					return true
				}
			}
		}
		return false
	}},
	{"P4", "a remote lane is released without a word", func(m *mutant) bool {
		x := newIndex(m.Input, newReport())
		for _, c := range x.sorted() {
			if len(c.overlapped) == 0 || len(c.spans) == 0 || !c.spans[0].ended {
				continue
			}
			for _, next := range x.spans {
				if s := c.spans[0]; next.Server == s.Server && next.effectful() && m.lastRun(&next.call.Call) && next.MonoNS > s.MonoNS && next.MonoNS < s.end {
					return m.drop(c.ID, messages.EventPossibleOverlap)
				}
			}
		}
		return false
	}},
	{"P4", "a fence is opened without proof", func(m *mutant) bool {
		x := newIndex(m.Input, newReport())
		for _, c := range x.sorted() {
			if len(c.late) > 0 && c.effectful() && m.lastRun(&c.Call) && m.alive(c.Server, c.Generation) {
				return m.drop(c.ID, messages.EventReplyLate)
			}
		}
		return false
	}},
	{"P4", "a call without an answer is not fenced", func(m *mutant) bool {
		x := newIndex(m.Input, newReport())
		for _, c := range x.sorted() {
			run, i := m.event(c.ID, messages.EventLaneHeld)
			if run == nil || !c.effectful() {
				continue
			}
			for _, e := range run.Events[i:] { // the next one comes in the same incarnation
				if o := x.calls[e.CallID]; e.Type == messages.EventCallDispatched && e.Server == c.Server && o.effectful() {
					if e.Generation != c.Generation {
						break
					}
					_, j := m.event(c.ID, messages.EventLaneReleased)
					run.Events = slices.Delete(run.Events, j, j+1)
					run.Events = slices.Delete(run.Events, i, i+1)
					run.number()
					return true
				}
			}
		}
		return false
	}},
	{"P4", "a side effect is dispatched beside another", func(m *mutant) bool {
		x := newIndex(m.Input, newReport())
		for _, c := range x.sorted() { // that the fenced one was never released
			run, i := m.event(c.ID, messages.EventLaneReleased)
			if run == nil || !c.effectful() {
				continue
			}
			if slices.ContainsFunc(run.Events[i:], func(e messages.Event) bool {
				return e.Type == messages.EventCallDispatched && e.Server == c.Server && x.calls[e.CallID].effectful()
			}) {
				return m.drop(c.ID, messages.EventLaneReleased)
			}
		}
		return false
	}},
	{"P4", "a read beside a side effect of an exclusive server", func(m *mutant) bool {
		x := newIndex(m.Input, newReport())
		for i, s := range x.spans {
			if s.Server != "ex" || !s.effectful() || !s.ended {
				continue
			}
			for _, next := range x.spans[i+1:] {
				if next.Server == "ex" && !next.effectful() && next.proc == s.proc {
					m.Witness[m.record(s.Nonce, witness.End)].MonoNS = next.MonoNS + 1
					return true
				}
			}
		}
		return false
	}},
}
