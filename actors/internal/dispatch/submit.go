package dispatch

import (
	"time"

	"mcpbridge/actors/internal/lane"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// submit takes a new call through the checks.
func (c *Core) submit(m messages.Submit) {
	cl := newCall(m)
	cl.key.Server = m.Call.Server
	if cl.accepted.IsZero() || cl.accepted.After(c.now) {
		cl.accepted = c.now
	}
	cl.since = cl.accepted
	if cl.id == "" {
		cl.id = c.nextID()
	}
	c.current = cl
	if c.calls[cl.id] != nil {
		c.settle(cl, rejected(messages.CodeInvalidArguments, "a call with the id "+quote(cl.id)+" is under way",
			"give each call an id of its own, or none"))
		return
	}
	cl.client = c.clientOf(m.Call.Client)
	c.check(cl, m.Checked)
	c.current = nil
}

// check takes a call whose tool may be known by now through known, in view,
// allowed and arguments, and then to admission. A call that waits for its tool
// comes here again.
func (c *Core) check(cl *call, checked messages.CheckedArgs) {
	t, known := c.lookup(cl)
	if !known {
		c.unknown(cl)
		return
	}
	cl.tool, cl.remote, cl.effect, cl.effectSource = t.Name, t.RemoteName, t.Effect, t.EffectSource
	cl.key, cl.abandonNever, cl.laneKey = messages.Key{Server: t.Server}, t.Limits.AbandonNever, ""

	permission, rule := c.cfg.Decide(t, cl.req.Client, cl.req.View)
	cl.rule, cl.judged = rule, c.judgement
	asks := permission == messages.Ask
	if permission != messages.Allow && !asks {
		c.end(cl, refused(t, permission, rule))
		return
	}
	if v, ok := c.sameDefinition(cl, t); !ok {
		c.end(cl, v)
		return
	}
	if v, ok := c.checkArgs(cl, t, checked); !ok {
		if asks { // nobody is asked about a call that could not be made
			why := v.message
			v = refused(t, permission, rule)
			v.message += "; as it is it could not be made: " + why
		}
		c.end(cl, v)
		return
	}
	if asks && cl.req.DryRun {
		c.end(cl, refused(t, permission, rule))
		return
	}
	if key := cl.req.IdempotencyKey; key != "" {
		if why := badKey(key); why != "" {
			c.end(cl, rejected(messages.CodeInvalidArguments, why, "give 1 to 256 printable characters, or no key"))
			return
		}
	}
	if cl.digest == "" && (asks || cl.req.IdempotencyKey != "" || c.cfg.Journal && laneIsEffect(cl)) {
		cl.digest = c.cfg.Digest(cl.args)
	}
	if c.known(cl) || asks && !c.consented(cl, t, rule) {
		return
	}
	c.admit(cl)
	if asks && !cl.settled {
		c.approvals.Take(c.now, cl.consent) // for one call, and this is it
	}
}

// checkArgs fills in the normalised arguments. The caller's own check counts while
// it was done on the catalogue that is in force.
func (c *Core) checkArgs(cl *call, t messages.Tool, checked messages.CheckedArgs) (verdict, bool) {
	if cl.req.Timeout < 0 {
		return negativeTimeout, false
	}
	if checked.Version != 0 && checked.Version == c.catalogue.Version {
		if checked.Err != "" {
			return invalidArgs(t, checked.Err), false
		}
		cl.args, cl.laneKey = checked.Args, checked.LaneKey
		return verdict{}, true
	}
	args, err := c.cfg.CheckArgs(t, cl.req.Args)
	if err != nil {
		return invalidArgs(t, err.Error()), false
	}
	cl.args = args
	if path := t.Limits.LaneKey; path != "" && laneIsEffect(cl) {
		cl.laneKey = lane.KeyOf(path, args)
	}
	return verdict{}, true
}

// admit gives the call its deadline and its place in the lane.
func (c *Core) admit(cl *call) {
	s := c.servers[cl.key]
	switch {
	case c.closed && !cl.req.DryRun && !planted.Is(planted.DrainAccepts):
		c.end(cl, c.closedDoor(cl))
		return
	case s == nil || s.removed:
		c.end(cl, notConfigured(cl.key))
		return
	}
	cl.server = s
	cl.deadline, cl.source = deadline(cl, s.limits)
	if cl.req.DryRun {
		c.end(cl, c.dryRun(cl))
		return
	}
	switch {
	case !s.accepts():
		c.end(cl, s.refusal(cl.state == waiting))
		return
	case !cl.deadline.After(c.now):
		c.end(cl, verdict{kind: messages.NotSent, code: messages.CodeExpired,
			message: "the call's deadline had passed before it could be sent", hint: hintDeadline(cl)})
		return
	}
	if c.pressed(s) {
		c.end(cl, pressure(s))
		return
	}
	c.shut(s)
	it := lane.Item{ID: cl.id, Class: laneOf(cl.effect), Bytes: cl.size, Client: cl.req.Client, Key: cl.laneKey}
	if c.clientFull(cl) && !s.lane.Free(it) {
		c.end(cl, c.clientOverload(cl, s.patience(c.now, s.lane.RetryAfter(it.Class))))
		return
	}
	if over, ok := s.lane.Admit(it); !ok {
		c.end(cl, overloaded("the queue of server "+quote(s.key.String())+" is full: "+over.Reason, s.patience(c.now, over.RetryAfter)))
		return
	}
	if cl.state == waiting {
		c.unwait(cl)
	}
	c.enter(cl, queued)
	c.calls[cl.id] = cl
	c.countIn(cl)
	c.claim(cl)
	c.timers.set(&cl.alarm, cl.deadline)
	c.announce(cl)
	c.wake(s)
	c.touch(s)
}

// announce tells the history of an accepted call, once.
func (c *Core) announce(cl *call) {
	if cl.announce {
		return
	}
	cl.announce = true
	e := c.event(messages.EventCallAccepted, cl)
	e.Tool, e.Effect, e.Client = cl.tool, effectName(cl), cl.req.Client
	if cl.tool == "" {
		e.Tool = short(cl.req.Tool)
	}
	if !cl.deadline.IsZero() {
		at := cl.deadline // the event is others' from now on, and the call's may still change
		e.Deadline = &at
	}
	c.do(Emit{e})
}

// deadline is the earliest of the caller's wishes and the configured call time-out.
func deadline(cl *call, l messages.ServerLimits) (time.Time, messages.DeadlineSource) {
	timeout := l.CallTimeout
	if timeout <= 0 {
		timeout = defaultCallTimeout
	}
	at, source := cl.accepted.Add(timeout), messages.DeadlineConfig
	if t := cl.req.Timeout; t > 0 && t <= timeout {
		at, source = cl.accepted.Add(t), messages.DeadlineCaller
	}
	if d := cl.req.Deadline; !d.IsZero() && !d.After(at) {
		at, source = d, messages.DeadlineCaller
	}
	return at, source
}

// defaultCallTimeout is the contract's `timeouts.call`.
const defaultCallTimeout = time.Minute
