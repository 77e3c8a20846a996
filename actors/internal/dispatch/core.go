// Package dispatch is the router without its actor: the gate, the lanes, the table
// of calls and the one place where a call ends, as a pure step machine.
//
//	message, now ──► Step ──► commands
//
// A Core holds no clock, no goroutine and does no I/O. Its shell gives it one
// message at a time with the time of that moment, and carries out the commands in
// order. Time never runs backwards between two steps.
//
// # Promises
//
// Every Submit is settled by exactly one Settle, no later than the step that is
// given its deadline. WakeAt says when the next step is due if no message comes.
// A call that is settled as not_sent has a void Boundary, or was never handed out.
// A side effect is never handed out again once its Boundary may have been entered.
//
// # A call
//
//	Submit ──► checked ──► waiting (its server has not listed its tools yet)
//	              │           │
//	              ▼           ▼
//	           queued ◄───────┘
//	            │  ▲ NotEntered, or one retry of what the operator declared harmless
//	            ▼  │
//	      (recording) side effects, where there is a journal: see record.go
//	            │
//	           running ──► settled, forgotten
//	            └────────► settled, fenced ──► forgotten
//
// The checks come in the order known, in view, allowed, arguments, admitted, sent;
// what an idempotency key says (key.go) comes before admission.
// Every arrow into settled goes through settle.
package dispatch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"mcpbridge/actors/internal/approval"
	"mcpbridge/actors/internal/lane"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// SessionRef is the shell's handle for a session: comparable, and opaque here.
type SessionRef any

// Config is what a Core needs from outside. Decide and CheckArgs must be pure and
// quick: they run within a step.
type Config struct {
	// Decide is the permission of a tool for a client in a view, and the rule that said so.
	Decide func(t messages.Tool, client, view string) (messages.Permission, string)
	// CheckArgs returns the arguments as a JSON object, or what is wrong with them.
	CheckArgs func(t messages.Tool, args json.RawMessage) (json.RawMessage, error)
	// ListWait is how long a call waits for the tools of a server that has listed
	// none yet; 0 = not at all.
	ListWait time.Duration
	// ClientQueue bounds what one client has waiting over all servers; 0 = 1024.
	ClientQueue int
	// ClientQueueBytes is the same in bytes of arguments; 0 = 64 MiB.
	ClientQueueBytes int64
	// Journal says that there is a journal: a side effect is handed out only after its
	// Record was answered.
	Journal bool
	// RunID names this life of the bridge in the journal.
	RunID string
	// Approver says that there is somebody to ask about every call that needs approval.
	Approver bool
	// Digest is the keyed digest of arguments; nil for one without a key, which serves
	// where nothing outlives the run.
	Digest func(args json.RawMessage) string
}

// defaultClientQueue is the contract's `clients.queue`.
const (
	defaultClientQueue      = 1024
	defaultClientQueueBytes = 64 << 20
)

// Core is the router's state. Make one with New; it is not safe for concurrent use.
type Core struct {
	cfg       Config
	now       time.Time
	out       []Command
	current   *call // whom a panic would concern
	catalogue *messages.Catalogue
	calls     map[string]*call // everything that is not forgotten
	servers   map[messages.Key]*server
	order     []*server               // by name, for everything that must be repeatable
	groups    map[string]*group       // by lane_group
	early     []messages.FenceAtStart // of servers that are not configured yet
	clients   map[string]*client
	keys      keyIndex
	tokens    uint64  // of records
	waiting   []*call // for a server's first list, in order of arrival
	waitBytes int64
	timers    timers
	armed     time.Time       // what the shell's timer was last set to; zero = not set
	held      map[string]held // results on their way to their callers, by call
	heldBytes int64
	dirty     []*server // whose lanes may have something to start
	inFlight  int       // running calls
	closed    bool      // DrainAll came
	approvals *approval.Table
	judgement uint64 // counts changes of policy and catalogue
	drained   []chan<- struct{}
	seq       uint64 // for calls that come without an id
	scratch   []string
	anew      []*call // joined calls that are to run themselves
}

// New returns a Core that knows no server and no tool.
func New(cfg Config) *Core {
	if cfg.ClientQueue <= 0 {
		cfg.ClientQueue = defaultClientQueue
	}
	if cfg.ClientQueueBytes <= 0 {
		cfg.ClientQueueBytes = defaultClientQueueBytes
	}
	if cfg.Digest == nil {
		cfg.Digest = plainDigest
	}
	if cfg.Decide == nil { // the gate fails closed
		cfg.Decide = func(messages.Tool, string, string) (messages.Permission, string) {
			return messages.Deny, "default"
		}
	}
	if cfg.CheckArgs == nil {
		cfg.CheckArgs = func(messages.Tool, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New("arguments cannot be checked")
		}
	}
	return &Core{
		cfg: cfg, calls: map[string]*call{}, servers: map[messages.Key]*server{}, clients: map[string]*client{},
		groups: map[string]*group{}, held: map[string]held{}, keys: keyIndex{known: map[keyScope]*keyEntry{}}, approvals: approval.New(cfg.RunID),
	}
}

// plainDigest tells arguments apart within one run.
func plainDigest(args json.RawMessage) string {
	sum := sha256.Sum256(args)
	return hex.EncodeToString(sum[:])
}

// Step takes one message and says what is to be done, in order. from is the sender
// of a SessionUp and means nothing otherwise. The slice is valid until the next call.
func (c *Core) Step(now time.Time, m messages.Message, from SessionRef) []Command {
	c.begin(now)
	// An answer that is here counts, even if the timer of its deadline is late too.
	if done, ok := m.(messages.CallDone); ok {
		c.callDone(done)
	}
	c.expire()
	c.handle(m, from)
	c.finish()
	return c.out
}

// Abort cleans up after a Step that panicked on m: what it had decided already is
// returned, and the call that it was about is settled as internal, so that nobody
// waits for ever. The Core may be used on.
func (c *Core) Abort(now time.Time, m messages.Message) []Command {
	c.now = now
	hit := c.current
	c.current = nil
	c.crash(hit)
	switch m := m.(type) {
	case messages.Submit:
		if hit == nil || hit.reply != m.Reply {
			c.crash(c.submitted(m))
		}
	case messages.CallDone:
		if cl := c.calls[m.CallID]; cl != hit && cl != nil && cl.gen == m.Gen && cl.attempt == m.Attempt && cl.state == running {
			c.crash(cl)
		}
	default:
	}
	c.guard(c.finish)
	return c.out
}

// submitted finds the call of a Submit whose step did not end, or makes one up to
// settle; nil when it was settled already.
func (c *Core) submitted(m messages.Submit) *call {
	for _, cmd := range c.out {
		if s, ok := cmd.(Settle); ok && s.Reply == m.Reply {
			return nil
		}
	}
	for _, cl := range c.calls {
		if cl.reply == m.Reply {
			return cl
		}
	}
	cl := newCall(m)
	cl.since = c.now
	return cl
}

// crash settles a call that a bug has hit, as its boundary says. One that may have
// left keeps its place like any other without an answer.
func (c *Core) crash(cl *call) {
	if cl == nil || cl.settled {
		return
	}
	c.guard(func() {
		v := notSent(messages.CodeInternal, "the bridge made a mistake with this call; its log has the details", hintReport)
		if cl.state == running && !cl.boundary.Void() {
			v.kind = messages.OutcomeUnknown
			c.settle(cl, v)
			c.fence(cl)
			return
		}
		if cl.state == joined {
			v.kind = messages.OutcomeUnknown
		}
		c.end(cl, v)
	})
}

// guard runs f on a state that nobody vouches for: a second panic is swallowed, the
// first one is in the log. The next step tries again what was not reached.
func (c *Core) guard(f func()) {
	defer func() { _ = recover() }()
	f()
}

func (c *Core) begin(now time.Time) {
	c.now = now
	clear(c.out) // let go of replies and results
	c.out = c.out[:0]
	c.current = nil
}

func (c *Core) handle(m messages.Message, from SessionRef) {
	switch m := m.(type) {
	case messages.Submit:
		c.submit(m)
	case messages.Cancel:
		c.cancel(m)
	case messages.CallProgress:
		c.progress(m)
	case messages.ServerConfigured:
		c.configured(m)
	case messages.ServerRemoved:
		c.removed(m)
	case messages.ServerStateChanged:
		c.stateChanged(m)
	case messages.SessionUp:
		c.sessionUp(m, from)
	case messages.SessionLost:
		c.sessionLost(m)
	case messages.SessionDown:
		c.sessionDown(m)
	case messages.Recorded:
		c.onRecord(m)
	case messages.PriorFound:
		c.priorFound(m)
	case messages.Answered:
		c.answeredBy(m)
	case messages.DecideApproval:
		c.decide(m)
	case messages.QueryApprovals:
		c.do(AnswerApprovals{m.Reply, c.approvals.Pending(c.now)})
	case messages.TakeGrants:
		c.do(AnswerGrants{m.Reply, c.approvals.TakeAll(c.now)})
	case messages.RestoreGrants:
		for _, g := range m.Grants {
			c.approvals.Restore(c.now, g)
		}
	case messages.PolicyChanged:
		c.judgement++
		c.retryWaiting()
	case messages.PatienceChanged:
		c.cfg.ListWait, c.cfg.ClientQueue = m.ListWait, m.ClientQueue
		if c.cfg.ClientQueue <= 0 {
			c.cfg.ClientQueue = defaultClientQueue
		}
	case messages.FenceAtStart:
		c.fenceAtStart(m)
	case messages.CatalogueChanged:
		c.catalogueChanged(m)
	case messages.DrainServer:
		c.drainServer(m)
	case messages.DrainAll:
		c.drainAll(m)
	case messages.Delivered:
		c.delivered(m)
	case messages.QueryCalls:
		c.do(AnswerCalls{m.Reply, c.report()})
	default:
		// CallDone was taken ahead, Tick only brings the time; the rest of the
		// message set is for other actors.
	}
}

// finish starts what may start now, and says what follows from who is left.
func (c *Core) finish() {
	c.rerun()
	for len(c.dirty) > 0 {
		s := c.dirty[len(c.dirty)-1]
		c.dirty = c.dirty[:len(c.dirty)-1]
		s.dirty = false
		c.recycle(s)
		c.pump(s)
		c.wrapUp(s)
	}
	if (c.inFlight == 0 || planted.Is(planted.DrainCutsShort)) && len(c.drained) > 0 {
		for _, done := range c.drained {
			c.do(AnswerDrained{done})
		}
		c.drained = nil
	}
	// An armed timer that fires early costs one empty step; arming it for each
	// call costs more.
	if at := c.timers.next(); !at.IsZero() && (c.armed.IsZero() || at.Before(c.armed) || !c.armed.After(c.now)) {
		c.armed = at
		c.do(WakeAt{at})
	}
}

// touch notes that a server's lane, and those of its group, may have something to
// start.
func (c *Core) touch(s *server) {
	if s.group == nil {
		c.mark(s)
		return
	}
	for _, m := range s.group.servers {
		c.mark(m)
	}
}

func (c *Core) mark(s *server) {
	if !s.dirty {
		s.dirty = true
		c.dirty = append(c.dirty, s)
	}
}

func (c *Core) do(cmd Command) { c.out = append(c.out, cmd) }

// pump starts the calls that may start now.
func (c *Core) pump(s *server) {
	if s.lane.Paused() == s.open() { // it has a say in its group, or has none any more
		c.shut(s)
		c.touch(s)
	}
	for c.room(s) {
		it, ok := s.lane.Next()
		if !ok {
			return
		}
		c.start(s, c.calls[it.ID])
	}
}

// shut pauses the lane of a server that is not open.
func (c *Core) shut(s *server) {
	if s.open() {
		s.lane.Resume()
	} else {
		s.lane.Pause()
	}
}

func (c *Core) nextID() string {
	for {
		c.seq++
		id := "call-" + strconv.FormatUint(c.seq, 10)
		if c.calls[id] == nil {
			return id
		}
	}
}

// laneOf is the line that a tool's calls stand in.
func laneOf(e messages.Effect) lane.Class {
	if e == messages.ReadOnly {
		return lane.Read
	}
	return lane.SideEffect
}
