package dispatch

import (
	"encoding/json"
	"strings"
	"time"

	"mcpbridge/actors/internal/approval"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

type state uint8

const (
	checking state = iota // within the step that brought it
	waiting               // for its server's first list
	queued
	joined    // waits for the outcome of another call with its idempotency key
	recording // has its place, and is handed out when its record is durable
	running
	fenced // settled, but it holds its place
)

func (s state) shown() messages.CallState {
	switch s {
	case queued:
		return messages.CallQueued
	case joined:
		return messages.CallJoined
	case recording:
		return messages.CallRecording
	case running:
		return messages.CallRunning
	case fenced:
		return messages.CallFenced
	case checking, waiting:
	}
	return messages.CallWaiting
}

// call is one row of the table.
type call struct {
	id       string
	req      messages.CallTool
	reply    chan<- messages.Outcome
	accepted time.Time
	state    state
	settled  bool
	announce bool  // call_accepted was emitted
	size     int64 // of what waits
	client   *client
	waits    bool // counted as waiting for its client

	// Known once the tool is.
	server       *server
	key          messages.Key
	tool         string // the full local name, or what was asked for
	remote       string
	effect       messages.Effect
	effectSource messages.EffectSource
	abandonNever bool
	rule         string
	judged       uint64 // the judgement that counts for it, see rejudge
	definition   string // the digest of the tool's definition when it was first looked at
	args         json.RawMessage
	laneKey      string // see lane.KeyOf

	// The question to a person.
	consent  approval.Call // what a yes is for
	asking   uint64        // waiting: an asker was asked; the token
	question string        // … about this approval

	// The idempotency key and the journal.
	digest   string // of the arguments, where somebody asks for it
	prior    *messages.JournalEntry
	priorOf  string           // the tool that the journal was asked about
	finding  uint64           // waiting: the journal is being asked; the token
	keyed    *keyEntry        // of the owner of a key, while it has no outcome
	joiners  []*call          // who waits for its outcome
	carried  bool             // fenced: its caller has gone, and the work goes on for the joiners
	first    *call            // joined: whose outcome it waits for
	outcome  messages.Outcome // carried: what its caller was told
	recorded bool             // its entry in the journal is open
	token    uint64           // recording: of the record

	deadline  time.Time
	source    messages.DeadlineSource
	listUntil time.Time // waiting: when to give up on the first list

	// The attempt.
	attempt  int
	gen      uint64
	sent     int    // the last attempt that was handed out
	sentGen  uint64 // and to whom
	session  SessionRef
	out      bool // its worker is not back
	boundary *messages.Boundary
	inline   messages.Boundary // of the first attempt, to save an allocation
	retried  bool              // the one repetition after a byte may have left is spent
	lostAs   messages.Code     // what the outcome would have been without it
	refused  int               // times in a row that a live session did not enter
	why      string            // of the last of them
	held     bool              // in line, but not before its alarm
	cancel   bool              // somebody asked, and waits for the answer

	// The fence.
	void    bool // settled as not sent: it holds its place only until its worker is back
	orphan  bool // its incarnation is over without proof
	earlier bool // it is of an earlier life of the bridge, and of no incarnation of this one
	overdue bool // abandon_after is over

	// The ghost: an earlier attempt that may still be worked on.
	ghost      bool
	ghostGen   uint64
	ghostUntil time.Time

	since     time.Time // of the present state
	queuedFor time.Duration
	ranFor    time.Duration

	alarm alarm
}

func newCall(m messages.Submit) *call {
	cl := &call{id: m.Call.ID, req: m.Call, reply: m.Reply, accepted: m.Accepted, digest: m.ArgsDigest, prior: m.Prior, priorOf: toolName(m.PriorServer, m.PriorTool),
		size: int64(len(m.Call.Args) + len(m.Call.Meta))}
	cl.alarm = alarm{index: -1, call: cl}
	return cl
}

// enter moves the call to another state and books the time that it spent.
func (c *Core) enter(cl *call, s state) {
	d := c.now.Sub(cl.since)
	if cl.state == running {
		cl.ranFor += d
	}
	if cl.state != fenced && (cl.state != running || planted.Is(planted.QueueWaitWrong)) {
		cl.queuedFor += d
	}
	cl.state, cl.since = s, c.now
}

// client counts what one client has waiting over all servers.
type client struct {
	waits int
	bytes int64
}

// countIn books a call that waits on its client.
func (c *Core) countIn(cl *call) {
	if !cl.waits {
		cl.waits = true
		cl.client.waits++
		cl.client.bytes += cl.size
	}
}

func (c *Core) countOut(cl *call) {
	if cl.waits {
		cl.waits = false
		cl.client.waits--
		cl.client.bytes -= cl.size
	}
}

// clientFull reports whether one more may not wait for the call's client.
func (c *Core) clientFull(cl *call) bool {
	return !cl.waits && (cl.client.waits >= c.cfg.ClientQueue || cl.client.bytes+cl.size > c.cfg.ClientQueueBytes)
}

func (c *Core) clientOverload(cl *call, after time.Duration) verdict {
	what := "calls"
	if cl.client.waits < c.cfg.ClientQueue {
		what = "bytes"
	}
	return overloaded("client "+quote(cl.req.Client)+" has as many "+what+" waiting as it may", after)
}

func (c *Core) clientOf(name string) *client {
	if cl := c.clients[name]; cl != nil {
		return cl
	}
	const many = 1024
	if len(c.clients) >= many { // names come from outside: keep those that matter
		for n, cl := range c.clients {
			if cl.waits == 0 {
				delete(c.clients, n)
			}
		}
	}
	cl := &client{}
	c.clients[name] = cl
	return cl
}

// verdict is what becomes of a call.
type verdict struct {
	kind       messages.OutcomeKind
	code       messages.Code
	message    string
	hint       string
	result     json.RawMessage
	rpcError   json.RawMessage
	retryAfter time.Duration
	truncated  bool
	of         *messages.Outcome // whose outcome it is, where a key says so
	quiet      bool              // a dry run: nothing happened that the history should know
	approval   string            // the id under which a person can approve the call
}

// settle gives the call its one outcome. It does not free what the call holds.
func (c *Core) settle(cl *call, v verdict) {
	if cl.settled {
		panic("dispatch: call " + cl.id + " settled twice")
	}
	cl.settled = true
	c.stopAsking(cl)
	v = cl.truth(v)
	c.countOut(cl)
	c.enter(cl, cl.state)
	if cl.tool == "" {
		cl.tool = cl.req.Tool
	}
	o := c.outcome(cl, v)
	if cl.carried {
		cl.outcome = o
	} else {
		c.closeRecord(cl, o)
		defer c.conclude(cl, o)
	}
	c.do(Settle{cl.reply, o})
	if v.quiet {
		return
	}
	e := c.event(messages.EventCallSettled, cl)
	e.Tool, e.Effect, e.Client = short(cl.tool), effectName(cl), cl.req.Client
	e.Outcome, e.Code, e.Attempt, e.Generation = v.kind.String(), v.code, o.Attempt, o.Generation
	e.QueuedMS, e.RanMS = ms(cl.queuedFor), ms(cl.ranFor)
	c.do(Emit{e})
}

// outcome is the verdict with everything that is known of the call.
func (c *Core) outcome(cl *call, v verdict) messages.Outcome {
	o := messages.Outcome{
		CallID: cl.id, Tool: cl.tool, Server: cl.key.Server, RemoteTool: cl.remote, Effect: cl.effect,
		Kind: v.kind, Code: v.code, Message: v.message, Hint: v.hint, Result: v.result, RPCError: v.rpcError,
		Attempt: cl.sent, Generation: cl.sentGen, Queued: cl.queuedFor, Ran: cl.ranFor, Truncated: v.truncated,
		Deadline: cl.deadline, DeadlineSource: cl.source, RetryAfter: v.retryAfter, ApprovalID: v.approval,
	}
	_, o.Held = c.held[cl.id]
	if f := v.of; f != nil {
		o.FirstID, o.Attempt, o.Generation, o.Truncated = f.CallID, f.Attempt, f.Generation, o.Truncated || f.Truncated
		if f.FirstID != "" {
			o.FirstID = f.FirstID
		}
	}
	return o
}

// truth takes back a not_sent that is true of the last attempt only: when an
// earlier one may have left, nobody knows.
func (cl *call) truth(v verdict) verdict {
	if !cl.retried || v.kind != messages.NotSent && v.kind != messages.Rejected {
		return v
	}
	code := cl.lostAs
	switch v.code {
	case messages.CodeExpired:
		code = messages.CodeTimeout
	case messages.CodeCancelled, messages.CodeInternal:
		code = v.code
	default:
	}
	u := unknownOutcome(cl, code, "an earlier attempt got no answer, and the repetition was not sent: "+v.message)
	u.hint += "; " + v.hint
	if v.hint == "" {
		u.hint = strings.TrimSuffix(u.hint, "; ")
	}
	return u
}

// forget drops the call from every structure, whatever state it is in.
func (c *Core) forget(cl *call) {
	if cl.carried { // whatever freed its place, no answer can come
		c.deliver(cl, c.outcome(cl, unknownOutcome(cl, messages.CodeConnectionLost, "no answer can come any more")))
	}
	c.timers.remove(&cl.alarm)
	c.countOut(cl)
	if c.calls[cl.id] == cl {
		delete(c.calls, cl.id)
	}
	switch cl.state {
	case waiting:
		c.unwait(cl)
	case queued:
		cl.server.lane.Remove(cl.id)
		c.touch(cl.server)
	case joined:
		c.unjoin(cl)
	case recording:
		c.free(cl)
	case running:
		c.landed(cl)
		c.free(cl)
	case fenced:
		c.free(cl)
	case checking:
	}
}

// free gives up the place in the lane.
func (c *Core) free(cl *call) {
	if cl.overdue {
		cl.overdue = false
		cl.server.overdue--
	}
	cl.server.lane.Done(cl.id, cl.ranFor)
	c.touch(cl.server)
}

// landed takes a running call out of the count of those in flight.
func (c *Core) landed(cl *call) {
	c.inFlight--
	cl.server.inFlight--
	c.touch(cl.server)
}

// end settles a call that holds nothing afterwards, but for its ghost.
func (c *Core) end(cl *call, v verdict) {
	c.settle(cl, v)
	c.leave(cl)
}

func (c *Core) event(t messages.EventType, cl *call) messages.Event {
	return messages.Event{Time: c.now, Type: t, Server: cl.key.Server, Instance: cl.key.Instance, CallID: cl.id}
}

// effectName is empty while the tool is not known.
func effectName(cl *call) string {
	if cl.remote == "" {
		return ""
	}
	return cl.effect.String()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
