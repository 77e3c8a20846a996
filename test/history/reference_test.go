package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/witness"
)

// The reference is a tiny bridge in virtual time that keeps every promise. pick(n)
// chooses from [0,n), so that rapid or a plain source of numbers can drive it.
type reference struct {
	pick    func(n int) int
	in      *Input
	now     int64
	seq     uint64
	gen     uint64
	pid     int
	calls   int
	servers []*refServer
}

type refServer struct {
	*Server
	up      bool
	stopped bool
	gen     uint64
	pid     int
	queue   []*refCall
	active  []*refCall // running and fenced
	ghosts  []*refCall // passed by others, and still at work
	fresh   bool
	backoff int
	readyAt int64
	dueAt   int64
}

type refCall struct {
	Call
	deadline int64
	fencedAt int64
	held     bool
	repeated bool
	seq      int
	accepted int64
	sentAt   int64 // 0: it waits
	waited   int64
	ran      int64
}

const ms = int64(time.Millisecond)

func newReference(pick func(int) int) *reference {
	r := &reference{pick: pick, in: &Input{Offset: 1_700_000_000_000_000_000, Journal: &Journal{}}, now: int64(time.Hour), pid: 100}
	restart := Restart{Initial: 50 * time.Millisecond, Multiplier: 2, Max: 400 * time.Millisecond, Jitter: 0.2, ResetAfter: time.Second, Cooldown: time.Minute}
	for _, s := range []Server{{Name: "ex"}, {Name: "se", Serial: true}, {Name: "web", Remote: true}} {
		s.MaxReads, s.MaxSideEffects, s.AbandonAfter, s.Restart, s.Drain = 3, 1, 300*time.Millisecond, restart, time.Second
		r.in.Servers = append(r.in.Servers, s)
	}
	for i := range r.in.Servers {
		r.servers = append(r.servers, &refServer{Server: &r.in.Servers[i]})
	}
	r.boot()
	r.in.Samples = append(r.in.Samples, Sample{Name: Baseline, Goroutines: 50, FDs: 20, RSS: 30 << 20})
	return r
}

func (r *reference) run() *Run { return &r.in.Runs[len(r.in.Runs)-1] }

func (r *reference) tick() int64 { r.now += 1000; return r.now }

func (r *reference) wall(at int64) time.Time { return time.Unix(0, at+r.in.Offset).UTC() }

func (r *reference) emit(e messages.Event) {
	r.seq++
	e.Seq, e.Time = r.seq, r.wall(r.tick())
	r.run().Events = append(r.run().Events, e)
}

func (r *reference) witness(ev witness.Event, s *refServer, c *refCall) {
	rec := witness.Record{Event: ev, Server: s.Name, PID: s.pid, MonoNS: r.tick()}
	if c != nil {
		rec.Nonce, rec.Tool, rec.Class = c.Nonce, c.Tool, witness.SideEffect
		if c.Effect == messages.ReadOnly {
			rec.Class = witness.Read
		}
	}
	r.in.Witness = append(r.in.Witness, rec)
}

// boot is the begin of a life of the daemon.
func (r *reference) boot() {
	r.seq, r.gen = 0, 0
	r.in.Runs = append(r.in.Runs, Run{ID: fmt.Sprintf("run%d", len(r.in.Runs)+1)})
	for _, s := range r.servers {
		*s = refServer{Server: s.Server, fresh: true, pid: s.pid}
		r.start(s)
	}
}

func (r *reference) state(s *refServer, state messages.State) {
	r.emit(messages.Event{Type: messages.EventServerState, Server: s.Name, State: state.String(), Generation: s.gen})
}

func (r *reference) start(s *refServer) {
	r.gen++
	s.gen = r.gen
	r.state(s, messages.StateStarting)
	if !s.Remote || s.pid == 0 {
		r.pid++
		s.pid = r.pid
		r.witness(witness.Start, s, nil)
	}
	r.emit(messages.Event{Type: messages.EventServerSpawned, Server: s.Name, Generation: s.gen, PID: s.pid})
	r.state(s, messages.StateReady)
	r.emit(messages.Event{Type: messages.EventServerReady, Server: s.Name, Generation: s.gen, PID: s.pid})
	s.up, s.readyAt, s.dueAt = true, r.now, 0
	r.pump(s)
}

func (r *reference) submit() {
	s := r.servers[r.pick(len(r.servers))]
	r.calls++
	c := &refCall{seq: r.calls, Call: Call{ID: fmt.Sprintf("c%d", r.calls), Nonce: fmt.Sprintf("n%d", r.calls), Server: s.Name, Tool: "write", Client: fmt.Sprintf("client%d", r.pick(2)),
		Run: r.run().ID, Invoked: r.tick(), Timeout: time.Duration(50+r.pick(400)) * time.Millisecond}}
	if r.pick(2) == 0 {
		c.Effect, c.Tool = messages.ReadOnly, "read"
	}
	c.Errs = r.pick(4) == 0
	c.deadline = c.Invoked + int64(c.Timeout)
	if s.stopped {
		r.settle(s, c, messages.Rejected, messages.CodeUnavailable)
		return
	}
	deadline := r.wall(c.deadline)
	r.emit(messages.Event{Type: messages.EventCallAccepted, Server: s.Name, CallID: c.ID, Tool: c.Tool, Effect: c.Effect.String(), Client: c.Client, Deadline: &deadline})
	c.accepted = r.now
	s.queue = append(s.queue, c)
	r.pump(s)
}

// pump starts what may start, in order of arrival.
func (r *reference) pump(s *refServer) {
	for s.up {
		reads, effects := 0, 0
		for _, c := range s.active {
			if c.effectful() {
				effects++
			} else {
				reads++
			}
		}
		fits := func(c *refCall) bool {
			if c.effectful() {
				return effects == 0 && (s.Serial || reads == 0)
			}
			return reads < s.MaxReads && (s.Serial || effects == 0)
		}
		i := 0
		if s.Serial { // the first of each class
			i = slices.IndexFunc(s.queue, fits)
		}
		if i < 0 || i >= len(s.queue) || !fits(s.queue[i]) {
			return
		}
		c := s.queue[i]
		s.queue = slices.Delete(s.queue, i, i+1)
		s.active = append(s.active, c)
		c.Attempt++
		c.Generation = s.gen
		if c.effectful() {
			r.in.Journal.Entries = append(r.in.Journal.Entries, messages.JournalEntry{CallID: c.ID, RunID: r.run().ID, Generation: s.gen, Server: s.Name, Tool: c.Tool,
				Outcome: messages.OutcomeOpen, DispatchedAt: r.wall(r.tick())})
		}
		r.emit(messages.Event{Type: messages.EventCallDispatched, Server: s.Name, CallID: c.ID, Attempt: c.Attempt, Generation: s.gen})
		c.book(r.now, r.now)
		r.witness(witness.Begin, s, c)
	}
}

func (c *refCall) effectful() bool { return c.Effect != messages.ReadOnly }

// book counts the time since the call was accepted or booked last as running or waiting;
// sentAt is 0 when it waits from now on.
func (c *refCall) book(now, sentAt int64) {
	if c.accepted == 0 {
		return
	}
	if d := now - c.accepted - c.waited - c.ran; c.sentAt > 0 {
		c.ran += d
	} else {
		c.waited += d
	}
	c.sentAt = sentAt
}

// settle gives the outcome to everybody.
func (r *reference) settle(s *refServer, c *refCall, kind messages.OutcomeKind, code messages.Code) {
	c.book(r.now, 0)
	r.emit(messages.Event{QueuedMS: float64(c.waited) / float64(ms), RanMS: float64(c.ran) / float64(ms), Type: messages.EventCallSettled, Server: s.Name, CallID: c.ID, Tool: c.Tool, Effect: c.Effect.String(), Client: c.Client,
		Outcome: kind.String(), Code: code, Attempt: c.Attempt, Generation: c.Generation})
	c.Outcome, c.Code, c.Returned = kind.String(), code, r.tick()
	c.Sent = kind != messages.NotSent && kind != messages.Rejected
	if kind == messages.OK {
		c.Answer = c.Nonce
	}
	for i := range r.in.Journal.Entries {
		if e := &r.in.Journal.Entries[i]; e.CallID == c.ID {
			at := r.wall(r.now)
			e.Outcome, e.Code, e.SettledAt = kind.String(), code, &at
		}
	}
	r.in.Calls = append(r.in.Calls, c.Call)
}

func drop(list []*refCall, c *refCall) []*refCall {
	return slices.DeleteFunc(list, func(o *refCall) bool { return o == c })
}

// finish lets the server end a call.
func (r *reference) finish(s *refServer, c *refCall) {
	r.witness(witness.End, s, c)
	switch {
	case slices.Contains(s.ghosts, c):
		s.ghosts = drop(s.ghosts, c)
		return
	case c.held:
		r.emit(messages.Event{Type: messages.EventReplyLate, Server: s.Name, CallID: c.ID, Generation: s.gen})
		r.emit(messages.Event{Type: messages.EventLaneReleased, Server: s.Name, CallID: c.ID, Reason: "the server answered"})
	case c.Errs:
		r.settle(s, c, messages.ToolError, messages.CodeToolError)
	default:
		r.settle(s, c, messages.OK, "")
	}
	s.active = drop(s.active, c)
	r.pump(s)
}

func (r *reference) fence(s *refServer, c *refCall) {
	c.held, c.fencedAt = true, r.now
	r.emit(messages.Event{Type: messages.EventLaneHeld, Server: s.Name, CallID: c.ID, Generation: s.gen})
}

func (r *reference) cancel(s *refServer, c *refCall) {
	if c.held || slices.Contains(s.ghosts, c) {
		return
	}
	r.emit(messages.Event{Type: messages.EventCallCancel, Server: s.Name, CallID: c.ID})
	if slices.Contains(s.queue, c) {
		s.queue = drop(s.queue, c)
		if c.Attempt > 0 {
			r.settle(s, c, messages.OutcomeUnknown, messages.CodeCancelled)
		} else {
			r.settle(s, c, messages.NotSent, messages.CodeCancelled)
		}
		return
	}
	r.settle(s, c, messages.OutcomeUnknown, messages.CodeCancelled)
	r.fence(s, c)
}

// advance lets time pass: deadlines, fences and restarts fall due.
func (r *reference) advance(d int64) {
	r.now += d
	for _, s := range r.servers {
		for _, c := range slices.Clone(s.queue) {
			if r.now >= c.deadline {
				s.queue = drop(s.queue, c)
				if c.Attempt > 0 { // its first attempt may have left
					r.settle(s, c, messages.OutcomeUnknown, messages.CodeTimeout)
				} else {
					r.settle(s, c, messages.NotSent, messages.CodeExpired)
				}
			}
		}
		for _, c := range slices.Clone(s.active) {
			switch {
			case !c.held && r.now >= c.deadline:
				r.settle(s, c, messages.OutcomeUnknown, messages.CodeTimeout)
				r.fence(s, c)
			case c.held && s.Remote && r.now >= c.fencedAt+int64(s.AbandonAfter):
				if c.effectful() {
					r.emit(messages.Event{Type: messages.EventPossibleOverlap, Server: s.Name, CallID: c.ID, Generation: s.gen})
				}
				r.emit(messages.Event{Type: messages.EventLaneReleased, Server: s.Name, CallID: c.ID, Reason: "abandoned"})
				s.active = drop(s.active, c)
				s.ghosts = append(s.ghosts, c)
				r.pump(s)
			}
		}
		if s.dueAt != 0 && r.now >= s.dueAt {
			r.start(s)
		}
		r.pump(s)
	}
}

// kill ends a process of a server that is up.
func (r *reference) kill(s *refServer) {
	if !s.up || s.Remote {
		return
	}
	s.up = false
	r.emit(messages.Event{Type: messages.EventServerExited, Server: s.Name, Generation: s.gen, Reason: "signal: killed"})
	if r.now-s.readyAt >= int64(s.Restart.ResetAfter) {
		s.fresh, s.backoff = true, 0
	}
	for _, c := range slices.Clone(s.active) {
		s.active = drop(s.active, c)
		switch {
		case c.held:
			r.emit(messages.Event{Type: messages.EventLaneReleased, Server: s.Name, CallID: c.ID, Reason: "proven dead"})
		case c.Effect == messages.ReadOnly && !c.repeated:
			c.repeated = true
			c.book(r.now, 0)
			r.emit(messages.Event{Type: messages.EventCallRequeued, Server: s.Name, CallID: c.ID, Attempt: c.Attempt, Reason: "connection lost: signal: killed"})
			s.queue = append(s.queue, c)
			slices.SortFunc(s.queue, func(a, b *refCall) int { return a.seq - b.seq })
		default:
			r.settle(s, c, messages.OutcomeUnknown, messages.CodeConnectionLost)
		}
	}
	if s.fresh {
		s.fresh = false
		r.start(s)
		return
	}
	r.state(s, messages.StateBackoff)
	d := min(float64(s.Restart.Initial)*math.Pow(2, float64(s.backoff)), float64(s.Restart.Max))
	s.backoff++
	s.dueAt = r.now + int64(d)
}

// stop is an operator's wish, and start its counterpart.
func (r *reference) stop(s *refServer) {
	if !s.up || s.Remote || s.stopped || len(s.active)+len(s.queue) > 0 {
		return
	}
	r.in.Operations = append(r.in.Operations, Operation{Verb: messages.VerbStop, Server: s.Name, At: r.tick()})
	s.up, s.stopped = false, true
	r.state(s, messages.StateStopping)
	r.emit(messages.Event{Type: messages.EventServerExited, Server: s.Name, Generation: s.gen, Reason: "exit status 0"})
	r.state(s, messages.StateStopped)
}

func (r *reference) again(s *refServer) {
	if !s.stopped {
		return
	}
	r.in.Operations = append(r.in.Operations, Operation{Verb: messages.VerbStart, Server: s.Name, At: r.tick()})
	s.stopped, s.fresh, s.backoff = false, true, 0
	r.start(s)
}

// crash kills the daemon and starts the next one.
func (r *reference) crash() {
	run := r.run()
	run.End, run.StopAsked = Killed, r.tick()
	for _, s := range r.servers {
		for _, c := range append(slices.Clone(s.queue), s.active...) {
			if s.Remote && c.Attempt > 0 {
				r.witness(witness.End, s, c)
			}
			if !c.held {
				c.Outcome, c.Returned, c.Attempt = NoAnswer, r.tick(), 0
				r.in.Calls = append(r.in.Calls, c.Call)
			}
		}
		for _, c := range s.ghosts {
			r.witness(witness.End, s, c)
		}
	}
	run.EndedAt = r.tick()
	r.now += 50 * ms
	r.boot()
}

// drain ends the daemon in peace and starts the next one.
func (r *reference) drain() {
	run := r.run()
	run.StopAsked, run.End, run.Budget = r.tick(), Drained, 9*time.Second
	r.emit(messages.Event{Type: messages.EventDraining})
	for _, s := range r.servers {
		for _, c := range slices.Clone(s.queue) {
			s.queue = drop(s.queue, c)
			if c.Attempt > 0 {
				r.settle(s, c, messages.OutcomeUnknown, messages.CodeConnectionLost)
			} else {
				r.settle(s, c, messages.NotSent, messages.CodeUnavailable)
			}
		}
		for _, c := range append(slices.Clone(s.active), s.ghosts...) {
			r.finish(s, c)
		}
	}
	for _, s := range r.servers {
		if s.up {
			r.state(s, messages.StateStopping)
			r.emit(messages.Event{Type: messages.EventServerExited, Server: s.Name, Generation: s.gen, Reason: "exit status 0"})
			r.state(s, messages.StateStopped)
		}
	}
	run.EndedAt = r.tick()
	r.now += 50 * ms
	r.boot()
}

// any picks a call that a server has.
func (r *reference) any(lists ...[]*refCall) *refCall {
	all := slices.Concat(lists...)
	if len(all) == 0 {
		return nil
	}
	return all[r.pick(len(all))]
}

// step does one thing.
func (r *reference) step() {
	r.advance(int64(1+r.pick(20)) * ms)
	s := r.servers[r.pick(len(r.servers))]
	switch p := r.pick(100); {
	case p < 45:
		r.submit()
	case p < 78:
		if c := r.any(s.active, s.ghosts); c != nil {
			r.finish(s, c)
		}
	case p < 84:
		if c := r.any(s.queue, s.active); c != nil {
			r.cancel(s, c)
		}
	case p < 92:
		r.kill(s)
	case p < 94:
		r.stop(s)
	case p < 97:
		for _, s := range r.servers {
			r.again(s)
		}
	case p < 98:
		r.crash()
	case p < 99:
		r.drain()
	default:
		r.advance(int64(1500) * ms)
	}
}

// end settles everything and returns the history.
func (r *reference) end() *Input {
	for _, s := range r.servers {
		r.again(s)
	}
	for range 40 {
		r.advance(100 * ms)
		for _, s := range r.servers {
			for _, c := range append(slices.Clone(s.active), s.ghosts...) {
				r.finish(s, c)
			}
		}
	}
	r.in.Quiet = &Quiet{After: time.Second}
	r.in.Samples = append(r.in.Samples, Sample{Name: Rest, Goroutines: 52, FDs: 21, RSS: 40 << 20})
	r.now += int64(time.Minute)
	r.emit(messages.Event{Type: messages.EventCatalogue})
	return r.in
}

// story makes a history of n steps.
func story(pick func(int) int, n int) *Input {
	r := newReference(pick)
	for range n {
		r.step()
	}
	return r.end()
}
