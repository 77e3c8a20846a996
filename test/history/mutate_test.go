package history

import (
	"slices"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/witness"
)

// mutation is one way in which a bridge could break a promise, applied to a good
// history. It returns false where the history gives no occasion for it.
type mutation struct {
	property, name string
	apply          func(m *mutant) bool
}

func (m mutation) String() string { return m.property + ": " + m.name }

// mutant is a history on its way to be wrong.
type mutant struct {
	*Input
	pick func(int) int
}

// clone copies as deep as mutations reach.
func clone(in *Input) *Input {
	out := *in
	out.Runs = slices.Clone(in.Runs)
	for i := range out.Runs {
		out.Runs[i].Events = slices.Clone(in.Runs[i].Events)
	}
	out.Witness, out.Calls, out.Lives = slices.Clone(in.Witness), slices.Clone(in.Calls), slices.Clone(in.Lives)
	out.Operations, out.Samples = slices.Clone(in.Operations), slices.Clone(in.Samples)
	out.Journal = &Journal{Entries: slices.Clone(in.Journal.Entries)}
	quiet := *in.Quiet
	out.Quiet = &quiet
	return &out
}

// call picks one that fits.
func (m *mutant) call(fits func(c *Call) bool) *Call {
	var all []*Call
	for i := range m.Calls {
		if fits(&m.Calls[i]) {
			all = append(all, &m.Calls[i])
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[m.pick(len(all))]
}

func is(effect messages.Effect, outcome messages.OutcomeKind) func(*Call) bool {
	return func(c *Call) bool { return c.Effect == effect && c.Outcome == outcome.String() && c.Attempt <= 1 }
}

func outcome(outcome messages.OutcomeKind) func(*Call) bool {
	return func(c *Call) bool { return c.Outcome == outcome.String() }
}

// event finds the place of an event of the call.
func (m *mutant) event(id string, t messages.EventType) (run *Run, i int) {
	for r := range m.Runs {
		i := slices.IndexFunc(m.Runs[r].Events, func(e messages.Event) bool { return e.CallID == id && e.Type == t })
		if i >= 0 {
			return &m.Runs[r], i
		}
	}
	return nil, -1
}

// number makes the events' numbers whole again: a bridge that breaks a promise still counts.
func (r *Run) number() {
	for i := range r.Events {
		r.Events[i].Seq = uint64(i + 1)
	}
}

func (m *mutant) drop(id string, t messages.EventType) bool {
	run, i := m.event(id, t)
	if run == nil {
		return false
	}
	run.Events = slices.Delete(run.Events, i, i+1)
	run.number()
	return true
}

// after puts an event behind the i-th.
func (r *Run) after(i int, e messages.Event) {
	e.Time = r.Events[i].Time
	r.Events = slices.Insert(r.Events, i+1, e)
	r.number()
}

// record finds a line of the witness.
func (m *mutant) record(nonce string, ev witness.Event) int {
	return slices.IndexFunc(m.Witness, func(r witness.Record) bool { return r.Nonce == nonce && r.Event == ev })
}

func (m *mutant) unwitness(nonce string, ev witness.Event) {
	m.Witness = slices.DeleteFunc(m.Witness, func(r witness.Record) bool { return r.Nonce == nonce && r.Event == ev })
}

// begins adds an execution to the witness, by the process that is the server's then.
func (m *mutant) begins(c *Call, at int64) bool {
	var who *witness.Record
	for i := range m.Witness {
		if r := &m.Witness[i]; r.Server == c.Server && r.Event == witness.Start && r.MonoNS < at {
			who = r
		}
	}
	if who == nil {
		return false
	}
	class := witness.SideEffect
	if c.Effect == messages.ReadOnly {
		class = witness.Read
	}
	m.Witness = append(m.Witness, witness.Record{Event: witness.Begin, Nonce: c.Nonce, Tool: c.Tool, Class: class, Server: c.Server, PID: who.PID, MonoNS: at})
	return true
}

func (m *mutant) entry(id string) *messages.JournalEntry {
	i := slices.IndexFunc(m.Journal.Entries, func(e messages.JournalEntry) bool { return e.CallID == id })
	if i < 0 {
		return nil
	}
	return &m.Journal.Entries[i]
}

// lastRun reports whether the call belongs to the run that is still up.
func (m *mutant) lastRun(c *Call) bool { return c.Run == m.Runs[len(m.Runs)-1].ID }

// alive reports whether the last run tells of no end of the generation.
func (m *mutant) alive(server string, gen uint64) bool {
	return !slices.ContainsFunc(m.Runs[len(m.Runs)-1].Events, func(e messages.Event) bool {
		return e.Type == messages.EventServerExited && e.Server == server && e.Generation == gen
	})
}

func (m *mutant) operated(server string) bool {
	return slices.ContainsFunc(m.Operations, func(o Operation) bool { return o.Server == server })
}

// soonDown reports whether the incarnation that ended just before the i-th event had
// not been ready for half of what earns a reset.
func (m *mutant) soonDown(run *Run, i int) bool {
	e := run.Events[i]
	for j := i - 1; j >= 0; j-- {
		if o := run.Events[j]; o.Server == e.Server && o.Type == messages.EventServerReady {
			return e.Time.Sub(o.Time) < 500*time.Millisecond
		}
	}
	return false
}

var mutations = []mutation{
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
