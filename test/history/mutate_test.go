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

var mutations = slices.Concat(callMutations, lifeMutations, foundMutations)
