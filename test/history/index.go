package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/witness"
)

// ClockSlack is what two clocks, or a clock and the line in a log, may disagree.
const ClockSlack = 250 * time.Millisecond

// eventCallJoined is the event of a call that got the outcome of another.
const eventCallJoined messages.EventType = "call_joined"

// index is the join of the accounts.
type index struct {
	*Input
	servers map[string]*Server
	runs    []*runView
	calls   map[string]*callView // by call id
	nonces  map[string]*callView
	spans   []*span // in order of their begins
	procs   []*proc
	order   []*callView // what sorted returns
}

// runView is a life of the daemon with its events by call.
type runView struct {
	*Run
	last int64 // time of the last event that was seen, monotonic
}

// callView is a call with everything that anybody says about it.
type callView struct {
	Call
	made      bool     // it is in the callers' log
	run       *runView // whose events know it; nil when none do
	elsewhere []string // other runs whose events know it too

	accepted   []messages.Event
	dispatches []messages.Event
	requeues   []messages.Event
	cancels    []messages.Event
	settled    []messages.Event
	late       []messages.Event
	joined     bool
	overlapped []messages.Event // possible_overlap, of any run
	spans      []*span
	entries    []messages.JournalEntry
}

// proc is one incarnation of a server in the witness log. A process id alone names
// nobody: ids are used again.
type proc struct {
	server string
	pid    int
	start  int64
	sign   int64 // the last sign of life that is known
}

// span is one execution at the witness.
type span struct {
	witness.Record
	proc  *proc
	end   int64 // of an execution without an end: the last sign of life of its process
	ended bool
	call  *callView
}

// newIndex joins; what cannot be joined is reported as a fault of the history.
func newIndex(in *Input, r *Report) *index {
	x := &index{Input: in, servers: map[string]*Server{}, calls: map[string]*callView{}, nonces: map[string]*callView{}}
	for i := range in.Servers {
		x.servers[in.Servers[i].Name] = &in.Servers[i]
	}
	for i := range in.Calls {
		x.addCall(&in.Calls[i], r)
	}
	for i := range in.Runs {
		x.addRun(&in.Runs[i], r)
	}
	x.addWitness(r)
	if in.Journal != nil {
		for _, e := range in.Journal.Entries {
			if v := x.calls[e.CallID]; v != nil {
				v.entries = append(v.entries, e)
			}
		}
	}
	return x
}

func (x *index) addCall(c *Call, r *Report) {
	r.did("history")
	if old := x.calls[c.ID]; old != nil {
		r.add("P3", "call %s (nonce %s) came back twice: as %s and as %s", c.ID, c.Nonce, old.Outcome, c.Outcome)
		return
	}
	v := &callView{Call: *c, made: true}
	x.calls[c.ID] = v
	if c.Nonce == "" || x.nonces[c.Nonce] != nil {
		r.add("history", "call %s has the nonce %q, which is empty or another call's", c.ID, c.Nonce)
		return
	}
	x.nonces[c.Nonce] = v
}

// addRun sorts the events of one life under their calls.
func (x *index) addRun(run *Run, r *Report) {
	v := &runView{Run: run}
	x.runs = append(x.runs, v)
	var seq uint64
	for _, e := range run.Events {
		r.did("history")
		if e.Type == messages.EventGap {
			r.add("history", "run %s: %d events are missing before %d: what depends on them was not checked", run.ID, e.Count, e.Seq)
		} else if e.Seq != seq+1 {
			r.add("history", "run %s: event %d follows %d", run.ID, e.Seq, seq)
		}
		seq = e.Seq
		v.last = max(v.last, x.mono(e.Time))
		if e.CallID != "" {
			x.addCallEvent(v, e, r)
		}
	}
}

func (x *index) addCallEvent(run *runView, e messages.Event, r *Report) {
	c := x.calls[e.CallID]
	if c == nil {
		r.add("history", "run %s: %s is about call %s of %s, which nobody made", run.ID, e.Type, e.CallID, e.Server)
		c = &callView{Call: Call{ID: e.CallID, Server: e.Server}}
		x.calls[e.CallID] = c
	}
	switch e.Type { // these may tell of a call of an earlier life
	case messages.EventPossibleOverlap:
		c.overlapped = append(c.overlapped, e)
		return
	case messages.EventLaneHeld, messages.EventLaneReleased, messages.EventReplyLate:
		if e.Type == messages.EventReplyLate {
			c.late = append(c.late, e)
		}
		return
	default:
	}
	switch {
	case c.run == nil:
		c.run = run
	case c.run != run:
		if !slices.Contains(c.elsewhere, run.ID) {
			c.elsewhere = append(c.elsewhere, run.ID)
		}
	}
	switch e.Type {
	case messages.EventCallAccepted:
		c.accepted = append(c.accepted, e)
	case messages.EventCallDispatched:
		c.dispatches = append(c.dispatches, e)
	case messages.EventCallRequeued:
		c.requeues = append(c.requeues, e)
	case messages.EventCallCancel:
		c.cancels = append(c.cancels, e)
	case messages.EventCallSettled:
		c.settled = append(c.settled, e)
	case eventCallJoined:
		c.joined = true
	default:
	}
}

// addWitness pairs begins and ends within each incarnation of each server.
func (x *index) addWitness(r *Report) {
	records := slices.Clone(x.Witness)
	slices.SortStableFunc(records, func(a, b witness.Record) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	current := map[int]*proc{}
	type key struct {
		p     *proc
		nonce string
	}
	open := map[key][]*span{}
	for _, rec := range records {
		r.did("history")
		p := current[rec.PID]
		if rec.Event == witness.Start || p == nil || p.server != rec.Server {
			p = &proc{server: rec.Server, pid: rec.PID, start: rec.MonoNS}
			current[rec.PID] = p
			x.procs = append(x.procs, p)
		}
		p.sign = max(p.sign, rec.MonoNS)
		k := key{p, rec.Nonce}
		switch rec.Event {
		case witness.Start:
		case witness.Begin:
			s := &span{Record: rec, proc: p, call: x.nonces[rec.Nonce]}
			if s.call == nil {
				r.add("history", "server %s (pid %d) began %s %q, which nobody asked for", rec.Server, rec.PID, rec.Tool, rec.Nonce)
			} else {
				s.call.spans = append(s.call.spans, s)
				if s.call.Server != rec.Server {
					r.add("P2", "call %s (nonce %s) was for server %s and began at %s", s.call.ID, rec.Nonce, s.call.Server, rec.Server)
				}
			}
			open[k] = append(open[k], s)
			x.spans = append(x.spans, s)
		case witness.End:
			if len(open[k]) == 0 {
				r.add("history", "server %s (pid %d) ended %q without a begin", rec.Server, rec.PID, rec.Nonce)
				continue
			}
			s := open[k][0]
			open[k] = open[k][1:]
			s.end, s.ended = rec.MonoNS, true
		}
	}
	x.watch()
	for _, s := range x.spans {
		if !s.ended {
			s.end = s.proc.sign
		}
	}
}

// watch extends the lives of the processes by what was seen from outside.
func (x *index) watch() {
	byPID := map[int][]*proc{}
	for _, p := range x.procs {
		byPID[p.pid] = append(byPID[p.pid], p)
	}
	for _, l := range x.Lives {
		procs := byPID[l.PID]
		for i, p := range procs {
			next := int64(1<<63 - 1)
			if i+1 < len(procs) {
				next = procs[i+1].start
			}
			// The watcher learns of a process from its first record, so that it has
			// seen it only after that; a life that reaches into the next one is the next one's.
			if l.First >= p.start && l.Last < next {
				p.sign = max(p.sign, l.Last)
			}
		}
	}
}

// begins and ends count the executions at the witness.
func (c *callView) begins() int { return len(c.spans) }

func (c *callView) ends() (n int) {
	for _, s := range c.spans {
		if s.ended {
			n++
		}
	}
	return n
}

// told is the outcome that the call has: what its caller heard, or, where the caller
// heard nothing, what the events say; ok is false when nobody says anything.
func (c *callView) told() (outcome string, code messages.Code, ok bool) {
	switch c.Outcome {
	case NoAnswer, Left, "":
		if len(c.settled) > 0 {
			return c.settled[0].Outcome, c.settled[0].Code, true
		}
		return "", "", false
	case NoDaemon:
		return NoDaemon, "", true
	}
	return c.Outcome, c.Code, true
}

// answered reports whether the caller heard an outcome.
func (c *callView) answered() bool {
	switch c.Outcome {
	case NoAnswer, NoDaemon, Left, "":
		return false
	}
	return true
}

// name says which call is meant.
func (c *callView) name() string {
	var b strings.Builder
	b.WriteString("call " + c.ID)
	if c.Nonce != "" {
		b.WriteString(" (nonce " + c.Nonce + ", " + c.Server + "/" + c.Tool + ", " + c.Effect.String() + ")")
	}
	return b.String()
}

// complete reports whether the events of the call's run certainly reach beyond the
// moment at: then what is missing did not happen.
func (c *callView) complete(at int64) bool {
	return c.run != nil && c.run.last > at+int64(time.Second)
}

// effectful reports whether the call takes the side-effect lane.
func (c *callView) effectful() bool { return c.Effect != messages.ReadOnly }

// sorted lists the calls by the time at which they were made.
func (x *index) sorted() []*callView {
	if len(x.order) == len(x.calls) {
		return x.order
	}
	x.order = slices.SortedFunc(maps.Values(x.calls), func(a, b *callView) int {
		return cmp.Or(cmp.Compare(a.Invoked, b.Invoked), cmp.Compare(a.ID, b.ID))
	})
	return x.order
}

// word shortens an outcome and its code.
func word(outcome string, code messages.Code) string {
	if code == "" {
		return outcome
	}
	return outcome + "/" + string(code)
}
