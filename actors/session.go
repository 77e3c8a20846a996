package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors/upstream"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// How a session lists again after list_changed: at most one listing a second, and a
// failed one is tried again later and later.
const (
	relistEvery     = time.Second
	relistRetry     = 5 * time.Second
	relistRetryMost = 5 * time.Minute
)

// workersWait is how long the calls of a dead peer may take to return.
const workersWait = 2 * time.Second

// session is one incarnation of one server.
//
//	dialing ──dialed──► up ──Gone──► gone ──Done──► over (panic or stop)
//	   └─── dial failed ─────────────────────────► over
//
// All fields belong to the actor's goroutine, but for what the probing counts. The
// workers talk to the peer, which is safe for that, and come back as messages.
type session struct {
	cfg    SessionConfig
	ctx    context.Context // ends the dial and the listings
	cancel context.CancelFunc
	peer   upstream.Peer // nil while dialing

	asked  bool // StopSession came
	ladder messages.Ladder
	gone   bool // nothing more may be dispatched
	over   bool // the end was told
	bug    string
	hang   string // not "": probes found that the server hangs, and it is ended for that
	// workers counts the calls that are with the peer. The end is told only when
	// each has brought its reply, so that an answer that was read before the death
	// still counts.
	workers sync.WaitGroup

	last    messages.Listing // the last good one
	listing bool             // a listing is on its way
	dirty   bool             // it changed again meanwhile
	listed  time.Time        // when the last listing began
	wait    *time.Timer      // the next listing's
	retry   time.Duration    // after a failed listing

	probe probing
}

// What a session says to itself.
type (
	dialed struct {
		peer    upstream.Peer
		listing messages.Listing
		err     error
	}
	listChanged struct{}
	relistDue   struct{}
	relisted    struct {
		listing messages.Listing
		err     error
	}
	peerGone struct{}
	peerDone struct{}
)

// Receive implements actor.Actor. A bug in a handler ends the incarnation in the
// ordinary way, so that no process outlives its actor; only the *SessionFailure of
// the end passes.
func (s *session) Receive(c actor.Context) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if f, ok := r.(*SessionFailure); ok {
			panic(f)
		}
		s.cfg.Logger.Error("bug in a session", "server", s.cfg.Key.String(), "generation", s.cfg.Gen, "panic", r, "stack", string(debug.Stack()))
		if s.bug == "" {
			s.bug = fmt.Sprintf("bug in the bridge: %v", r)
			if d, ok := c.Message().(dialed); ok && d.peer != nil && s.peer == nil {
				s.take(c, d.peer) // else nobody would end it
			}
			s.endPeer(messages.Ladder{Kill: time.Second})
			if s.peer != nil { // the message that was lost may be the word of its end
				s.awaitEnd(c)
			}
		}
	}()
	planted.Meet("session", c.Message())
	switch m := c.Message().(type) {
	case *actor.Started:
		s.started(c)
	case dialed:
		s.dialed(c, m)
	case messages.Execute:
		s.execute(c, m.Exec)
	case messages.CancelExec:
		if m.Gen == s.cfg.Gen && s.peer != nil {
			s.peer.Cancel(m.CallID, m.Attempt, m.Reason)
		}
	case listChanged:
		s.listChanged(c)
	case relistDue:
		s.wait = nil
		s.relist(c)
	case relisted:
		s.relisted(c, m)
	case probeDue:
		s.probeDue(c)
	case probed:
		s.probed(c, m)
	case peerGone:
		s.lost(c)
		s.awaitEnd(c)
	case peerDone:
		s.end(c, s.peer.Exit())
	case messages.StopSession:
		s.stop(c, m)
	case *actor.Stopping:
		s.release()
	}
}

// started begins the dial. The hooks come from the peer's goroutines and may come
// before the dial has returned.
func (s *session) started(c actor.Context) {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	root, self, parent := c.ActorSystem().Root, c.Self(), c.Parent()
	key, gen, o := s.cfg.Key, s.cfg.Gen, s.cfg.Options
	o.Gen = gen
	o.OnSpawned = func(pid int) { root.Send(parent, messages.SessionSpawned{Key: key, Gen: gen, PID: pid}) }
	o.OnListChanged = func() { root.Send(self, listChanged{}) }
	o.OnNoise = func(lines uint64, degraded bool) {
		root.Send(parent, messages.SessionNoise{Key: key, Gen: gen, Lines: lines, Degraded: degraded})
	}
	if o.OnStderr == nil {
		o.OnStderr = func(string) {}
	}
	dial, ctx := s.cfg.Dial, s.ctx
	go func() {
		var m dialed
		defer func() {
			if r := recover(); r != nil {
				m = dialed{err: fmt.Errorf("bug in the bridge: %v", r)}
			}
			root.Send(self, m)
		}()
		m.peer, m.listing, m.err = dial(ctx, o)
	}()
}

// dialed takes the peer over, or tells why there is none.
func (s *session) dialed(c actor.Context, m dialed) {
	if m.err != nil || m.peer == nil {
		s.end(c, dialExit(m.err))
		return
	}
	s.take(c, m.peer)
	if s.asked || s.bug != "" {
		m.peer.Stop(s.ladder) // it came up just when it was to end
		return
	}
	s.last, s.listed = m.listing, time.Now()
	c.Send(c.Parent(), messages.SessionReady{Key: s.cfg.Key, Gen: s.cfg.Gen, Info: m.peer.Info(), Listing: m.listing})
	if s.dirty {
		s.dirty = false
		s.listChanged(c)
	}
	s.probeIn(c, s.cfg.Options.Server.Health.ProbeEvery)
}

// take makes the peer the session's own, to be ended by it.
func (s *session) take(c actor.Context, p upstream.Peer) {
	s.peer = p
	root, self := c.ActorSystem().Root, c.Self()
	go func() {
		<-p.Gone()
		root.Send(self, peerGone{})
	}()
}

// dialExit makes an exit of a failed dial.
func dialExit(err error) messages.Exit {
	var f *upstream.Failure
	if errors.As(err, &f) {
		e := f.Exit
		if e.At.IsZero() {
			e.At = time.Now()
		}
		return e
	}
	reason := "the dial brought no connection"
	if err != nil {
		reason = err.Error()
	}
	return messages.Exit{Reason: reason, Stage: messages.StageConnect, At: time.Now()}
}

// execute starts one worker, or says at once that not one byte will leave.
func (s *session) execute(c actor.Context, e messages.Exec) {
	var why string
	switch {
	case e.Gen != s.cfg.Gen:
		why = "asked of another incarnation"
	case s.peer == nil:
		why = "the server is not ready yet"
	case s.gone || s.asked || s.over || s.bug != "":
		why = "the server is going away"
	}
	root, router := c.ActorSystem().Root, s.cfg.Router
	done := messages.CallDone{Key: e.Key, Gen: e.Gen, CallID: e.CallID, Attempt: e.Attempt}
	if why != "" {
		done.Reply = messages.Reply{Kind: messages.ReplyNotEntered, Err: why}
		root.Send(router, done)
		return
	}
	peer := s.peer
	s.workers.Add(1)
	s.probe.begun.Add(1)
	go func() {
		defer s.workers.Done()
		defer func() {
			if r := recover(); r != nil {
				done.Reply = panicked(e, r)
				s.cfg.Logger.Error("bug in a worker", "server", e.Key.String(), "call", e.CallID, "panic", r, "stack", string(debug.Stack()))
			}
			s.returned(done.Reply, peer.Gone())
			root.Send(router, done)
		}()
		done.Reply = peer.Call(e)
	}()
}

// panicked is the reply of a worker that died: what it may claim depends on the boundary.
func panicked(e messages.Exec, r any) messages.Reply {
	kind := messages.ReplyNotEntered
	if e.Boundary != nil && e.Boundary.Entered() {
		kind = messages.ReplyLost
	}
	return messages.Reply{Kind: kind, Err: fmt.Sprintf("bug in the bridge: %v", r)}
}

// listChanged lists again, soon: bursts come together.
func (s *session) listChanged(c actor.Context) {
	switch {
	case s.peer == nil || s.listing:
		s.dirty = true
	case s.wait != nil, s.gone, s.asked:
	default:
		s.relistIn(c, relistEvery-time.Since(s.listed))
	}
}

func (s *session) relistIn(c actor.Context, d time.Duration) {
	if d <= 0 {
		s.relist(c)
		return
	}
	root, self := c.ActorSystem().Root, c.Self()
	s.wait = time.AfterFunc(d, func() { root.Send(self, relistDue{}) })
}

// relist fetches the tools in a goroutine, within the time that a start may take.
func (s *session) relist(c actor.Context) {
	if s.peer == nil || s.listing || s.gone || s.asked {
		return
	}
	s.listing, s.dirty, s.listed = true, false, time.Now()
	budget := s.cfg.Options.Server.Timeouts.Start
	if budget <= 0 {
		budget = 30 * time.Second
	}
	root, self, peer, parent := c.ActorSystem().Root, c.Self(), s.peer, s.ctx
	go func() {
		var m relisted
		defer func() {
			if r := recover(); r != nil {
				m.err = fmt.Errorf("bug in the bridge: %v", r)
			}
			root.Send(self, m)
		}()
		ctx, cancel := context.WithTimeout(parent, budget)
		defer cancel()
		m.listing, m.err = peer.List(ctx)
	}()
}

// relisted passes a listing on. A failed one costs nothing but an issue: what was
// listed before stays.
func (s *session) relisted(c actor.Context, m relisted) {
	s.listing = false
	if s.gone || s.asked {
		return
	}
	l := m.listing
	if m.err != nil {
		l = s.last
		l.Issues = append(append([]messages.Issue(nil), l.Issues...), messages.Issue{
			Stage: messages.StageListTools, Severity: messages.SeverityError, Server: s.cfg.Key.Server,
			Message: "the tools changed and could not be listed again (" + m.err.Error() + "); the previous list stays",
		})
		s.retry = min(max(2*s.retry, relistRetry), relistRetryMost)
	} else {
		s.last, s.retry = l, 0
	}
	c.Send(c.Parent(), messages.ToolsListed{Key: s.cfg.Key, Gen: s.cfg.Gen, Listing: l, Failed: m.err != nil})
	switch {
	case s.dirty:
		s.dirty = false
		s.listChanged(c)
	case s.retry > 0 && s.wait == nil:
		s.relistIn(c, s.retry)
	}
}

// lost tells the router at once that nothing more may be dispatched.
func (s *session) lost(c actor.Context) {
	s.stopProbing()
	if !s.gone {
		s.gone = true
		lost := messages.SessionLost{Key: s.cfg.Key, Gen: s.cfg.Gen}
		c.Send(s.cfg.Router, lost)
		if !s.asked && s.peer != nil { // else the parent knows, or is about to hear the end
			c.Send(c.Parent(), lost)
		}
	}
}

// awaitEnd comes back with peerDone when the tree is dead and every worker has
// brought its reply. Nothing is dispatched any more, so the count only falls; a
// worker that a broken peer never lets go is not waited for for ever.
func (s *session) awaitEnd(c actor.Context) {
	root, self, peer := c.ActorSystem().Root, c.Self(), s.peer
	go func() {
		<-peer.Done()
		returned := make(chan struct{})
		go func() {
			s.workers.Wait()
			close(returned)
		}()
		select {
		case <-returned:
		case <-time.After(workersWait):
		}
		root.Send(self, peerDone{})
	}()
}

// stop begins the ladder; a second one is passed on, and can only shorten it.
func (s *session) stop(c actor.Context, m messages.StopSession) {
	if m.Gen != s.cfg.Gen || s.over {
		return
	}
	s.asked = true
	s.lost(c)
	s.endPeer(m.Ladder)
}

// endPeer ends whatever there is of a peer.
func (s *session) endPeer(l messages.Ladder) {
	s.ladder = l
	if s.cancel != nil {
		s.cancel()
	}
	if s.peer != nil {
		s.peer.Stop(l)
	}
}

// end is told once, when nothing of the incarnation is left.
func (s *session) end(c actor.Context, exit messages.Exit) {
	if s.over {
		return
	}
	s.lost(c)
	s.over = true
	switch {
	case s.bug != "":
		exit.Reason, exit.Clean = s.bug, false
	case s.hang != "":
		exit.Reason, exit.Stage, exit.Clean = s.hang, messages.StageRunning, false
		exit.Hint = "a server that cannot answer while it has nothing to do for the bridge needs health.probe_every: 0"
	}
	if s.cfg.Report != nil {
		s.cfg.Report.Store(&exit)
	}
	if s.asked {
		c.Send(c.Parent(), messages.SessionEnded{Key: s.cfg.Key, Gen: s.cfg.Gen, Exit: exit})
		c.Stop(c.Self())
		return
	}
	panic(&SessionFailure{Key: s.cfg.Key, Gen: s.cfg.Gen, Exit: exit})
}

// release is the last chance: a session that is stopped from above, without the
// ladder, leaves no process behind. It neither blocks nor panics.
func (s *session) release() {
	defer func() { _ = recover() }()
	if s.wait != nil {
		s.wait.Stop()
	}
	s.stopProbing()
	if !s.over {
		s.endPeer(messages.Ladder{Kill: time.Second})
	} else if s.cancel != nil {
		s.cancel()
	}
}
