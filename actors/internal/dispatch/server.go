package dispatch

import (
	"cmp"
	"slices"
	"time"

	"mcpbridge/actors/internal/lane"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// server is what the router knows of one server instance.
type server struct {
	key       messages.Key
	limits    messages.ServerLimits
	lane      *lane.Lane
	group     *group // nil for none
	state     messages.State
	reason    string
	nextRetry time.Time
	removed   bool // gone from the configuration; kept until its lane is empty
	draining  bool // DrainServer came, and no newer state yet
	answer    bool // ServerDrained is owed

	gen     uint64 // the newest incarnation heard of
	up      bool   // it takes calls
	session SessionRef

	held        int64 // bytes of results that their callers have not taken yet
	usual       int64 // the size of its results lately, the largest ones foremost
	inFlight    int   // running calls
	overdue     int   // fenced calls whose abandon_after is over
	recycling   bool
	recycleSent bool
	woken       bool // WakeServer was sent in this state
	idleEnds    int  // times in a row that it went idle while calls waited
	dirty       bool
	alarm       alarm // armed while up is doubted
}

// open reports whether calls may be handed out.
func (s *server) open() bool { return s.up && !s.recycling }

// accepts reports whether calls may stand in line.
func (s *server) accepts() bool { return s.state.Accepts() && !s.draining && !s.removed }

// patience is a retry-after that knows when the server is due.
func (s *server) patience(now time.Time, estimate time.Duration) time.Duration {
	if !s.up && s.nextRetry.After(now) {
		return max(estimate, s.nextRetry.Sub(now))
	}
	return estimate
}

func laneLimits(l messages.ServerLimits) lane.Limits {
	return lane.Limits{MaxReads: l.MaxReads, MaxSideEffects: l.MaxSideEffects, Serial: l.Serial, Queue: l.Queue, QueueBytes: l.QueueBytes}
}

func (c *Core) configured(m messages.ServerConfigured) {
	s := c.servers[m.Key]
	if s != nil { // it may be another program from now on
		c.approvals.Forget(m.Key.Server)
	}
	if s == nil {
		s = &server{key: m.Key, lane: lane.New(laneLimits(m.Limits))}
		s.alarm = alarm{index: -1, server: s}
		c.servers[m.Key] = s
		i, _ := slices.BinarySearchFunc(c.order, s, compareServers)
		c.order = slices.Insert(c.order, i, s)
	}
	if s.removed {
		s.removed, s.draining, s.state, s.reason = false, false, messages.StateIdle, ""
	}
	s.limits = m.Limits
	s.lane.SetLimits(laneLimits(m.Limits))
	c.shut(s)
	c.regroup(s, m.Limits.LaneGroup)
	c.touch(s)
	c.holdEarlier(s)
	c.retryWaiting()
}

func compareServers(a, b *server) int {
	return cmp.Or(cmp.Compare(a.key.Server, b.key.Server), cmp.Compare(a.key.Instance, b.key.Instance))
}

// removed takes a server out. What is in flight may still be answered; the row
// goes when its lane is empty.
func (c *Core) removed(m messages.ServerRemoved) {
	s := c.servers[m.Key]
	if s == nil || s.removed {
		return
	}
	s.removed = true
	c.approvals.Forget(m.Key.Server)
	c.flush(s)
	c.releaseForever(s)
	c.retryWaiting()
	c.touch(s)
}

func (c *Core) stateChanged(m messages.ServerStateChanged) {
	s := c.servers[m.Key]
	if s == nil || s.removed {
		return
	}
	changed := s.state != m.State
	s.state, s.reason, s.nextRetry = m.State, m.Reason, m.NextRetry
	if m.State != messages.StateDraining {
		s.draining = false
	}
	if changed {
		s.woken = false
	}
	switch {
	case !s.accepts():
		c.flush(s)
	case changed && m.State == messages.StateIdle && s.lane.Queued() > 0:
		c.idleAgain(s)
	}
	if m.State == messages.StateStopped {
		c.releaseForever(s)
	}
	c.retryWaiting()
	c.touch(s)
}

// idleAgain handles a server that ended by itself while calls wait for it. It is
// called back, but not for ever: a server that ends before it takes a call would
// otherwise be started as fast as it ends.
func (c *Core) idleAgain(s *server) {
	const enough = 3
	if s.idleEnds++; s.idleEnds <= enough {
		c.wake(s)
		return
	}
	s.idleEnds = 0
	c.settleQueue(s, notSent(messages.CodeUnavailable, "server "+quote(s.key.String())+" ended by itself each time before it took the call"+because(s.reason),
		"`bridgectl logs "+s.key.Server+"` may tell why"))
}

// wake asks for an idle server to be started, or for one over HTTP to be tried before
// its backoff is over, once.
func (c *Core) wake(s *server) {
	down := s.state == messages.StateIdle || s.state == messages.StateBackoff && s.limits.Remote
	if down && !s.up && !s.woken {
		s.woken = true
		c.do(ToServers{messages.WakeServer{Key: s.key}})
	}
}

func (c *Core) wakeAll(list []*server) {
	for _, s := range list {
		c.wake(s)
	}
}

// flush settles the queue of a server that takes no calls.
func (c *Core) flush(s *server) { c.settleQueue(s, s.refusal(true)) }

// settleQueue ends whoever was not handed out.
func (c *Core) settleQueue(s *server, v verdict) {
	for _, id := range s.lane.AppendWaiting(c.recordings(s)) {
		cl := c.calls[id]
		c.current = cl
		c.end(cl, v)
	}
	c.current = nil
}

// sessionUp opens the lane to a new incarnation.
func (c *Core) sessionUp(m messages.SessionUp, from SessionRef) {
	s := c.servers[m.Key]
	if s == nil || m.Gen <= s.gen {
		return
	}
	if s.gen != 0 { // whatever the old one still holds, it will not bring it back
		c.over(s, s.gen, false, "replaced by a newer incarnation")
	}
	s.gen, s.session, s.up = m.Gen, from, true
	c.timers.remove(&s.alarm)
	s.recycling, s.recycleSent, s.woken = false, false, false
	for _, id := range s.lane.AppendWaiting(nil) {
		if cl := c.calls[id]; cl.held || cl.refused > 0 {
			cl.held, cl.refused, cl.why = false, 0, ""
			s.lane.Release(id)
			c.timers.set(&cl.alarm, cl.deadline)
		}
	}
	c.touch(s)
}

// sessionLost stops handing out; the workers bring their own replies.
func (c *Core) sessionLost(m messages.SessionLost) {
	if s := c.servers[m.Key]; s != nil && s.gen == m.Gen {
		c.close(s)
	}
}

// suspect stops handing out when a reply got lost on a pipe: that is the end of its
// session, whose own word is on its way. An HTTP exchange can get lost alone.
func (c *Core) suspect(cl *call) {
	const patience = 5 * time.Second
	if s := cl.server; s.up && s.gen == cl.gen && !s.limits.Remote {
		c.close(s)
		c.timers.set(&s.alarm, c.now.Add(patience))
	}
}

// alive takes the suspicion back: the session's end was not told, so that it was
// the one worker that failed.
func (c *Core) alive(s *server) {
	s.up = true
	c.touch(s)
}

func (c *Core) close(s *server) {
	s.up = false
	c.timers.remove(&s.alarm)
	c.touch(s)
}

// sessionDown is the end of an incarnation: whatever of it is left is settled.
func (c *Core) sessionDown(m messages.SessionDown) {
	s := c.servers[m.Key]
	if s == nil {
		return
	}
	if m.Gen >= s.gen { // also one that never came up: its late SessionUp must not count
		s.gen, s.session = m.Gen, nil
		s.recycling, s.recycleSent = false, false
		c.close(s)
	}
	c.over(s, m.Gen, m.Proven, m.Reason)
	c.touch(s)
}

// over settles or requeues what one incarnation had in flight, and opens its
// fences as far as its death is proven.
func (c *Core) over(s *server, gen uint64, proven bool, why string) {
	if proven {
		c.exorcise(s, gen)
	}
	for _, id := range s.lane.AppendActive(nil) {
		cl := c.calls[id]
		if cl.gen != gen || cl.earlier {
			continue
		}
		c.current = cl
		switch cl.state {
		case running:
			c.answerless(cl, proven, why)
		case fenced:
			c.orphaned(cl, proven)
		case checking, waiting, queued, joined, recording: // what was not handed out is asked of the next one
		}
	}
	c.current = nil
	if s.removed || s.state == messages.StateStopped {
		c.releaseForever(s)
	}
}

// answerless ends a running attempt whose worker never came back.
func (c *Core) answerless(cl *call, proven bool, why string) {
	if cl.boundary.Void() {
		switch v, ok := c.comeback(cl); {
		case cl.cancel:
			c.end(cl, cancelled)
		case !ok:
			c.end(cl, v)
		default:
			c.requeue(cl, "not sent"+because(why), false)
		}
		return
	}
	c.lost(cl, proven, why, 0)
	if cl.state == fenced {
		cl.orphan = true
	}
}

// orphaned is a fenced call whose incarnation is over.
func (c *Core) orphaned(cl *call, proven bool) {
	switch {
	case proven || !holds(cl):
		c.unfence(cl, "proven dead")
	case cl.overdue:
		c.overlap(cl, "its incarnation ended without proof that it is over")
	default:
		cl.orphan = true
	}
}

// releaseForever frees what would be held for ever: calls of dead incarnations
// without proof, which the operator said are never to be abandoned. Stopping or
// removing the server is the operator's newer word.
func (c *Core) releaseForever(s *server) {
	for _, id := range s.lane.AppendActive(nil) {
		if cl := c.calls[id]; cl.state == fenced && cl.orphan && cl.alarm.index < 0 {
			c.overlap(cl, "the server was stopped")
		}
	}
}

// wrapUp says what follows from what a server has left.
func (c *Core) wrapUp(s *server) {
	if s.answer && (s.inFlight == 0 || planted.Is(planted.ServerDrainCutsShort)) {
		s.answer = false
		c.do(ToServers{messages.ServerDrained{Key: s.key}})
	}
	if s.removed && s.lane.Empty() {
		c.timers.remove(&s.alarm)
		c.regroup(s, "")
		delete(c.servers, s.key)
		if i := slices.Index(c.order, s); i >= 0 {
			c.order = slices.Delete(c.order, i, i+1)
		}
	}
}

func (c *Core) catalogueChanged(m messages.CatalogueChanged) {
	if m.Catalogue == nil || c.catalogue != nil && m.Catalogue.Version < c.catalogue.Version {
		return
	}
	c.catalogue = m.Catalogue
	c.judgement++
	c.retryWaiting()
}

// group is a lane_group: servers whose side effects exclude each other.
type group struct {
	name    string
	lanes   *lane.Group
	servers []*server
}

// regroup makes a server a member of a group; "" for none.
func (c *Core) regroup(s *server, name string) {
	if old := s.group; old != nil {
		if old.name == name {
			return
		}
		c.touch(s) // who is left may start now
		old.servers = slices.DeleteFunc(old.servers, func(m *server) bool { return m == s })
		if len(old.servers) == 0 {
			delete(c.groups, old.name)
		}
	}
	if name == "" {
		s.group = nil
		s.lane.Join(nil)
		return
	}
	g := c.groups[name]
	if g == nil {
		g = &group{name: name, lanes: lane.NewGroup()}
		c.groups[name] = g
	}
	g.servers = append(g.servers, s)
	s.group = g
	s.lane.Join(g.lanes)
}
