package dispatch

import (
	"time"

	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// start begins one attempt: the lane has given the call its place.
func (c *Core) start(s *server, cl *call) {
	c.current = cl
	c.countOut(cl)
	if cl.judged != c.judgement && !c.rejudge(cl) {
		c.current = nil
		return
	}
	cl.attempt++
	cl.gen, cl.session, cl.held = s.gen, s.session, false
	if c.cfg.Journal && laneIsEffect(cl) {
		c.record(cl)
	} else {
		c.send(s, cl)
	}
	c.current = nil
}

// send hands the attempt to the server's session.
func (c *Core) send(s *server, cl *call) {
	c.enter(cl, running)
	cl.out, cl.sent, cl.sentGen = true, cl.attempt, cl.gen
	cl.boundary = &cl.inline
	if cl.attempt > 1 {
		cl.boundary = new(messages.Boundary)
	}
	c.inFlight++
	s.inFlight++
	c.do(Execute{Session: s.session, OnProgress: cl.req.OnProgress, Exec: messages.Exec{
		Key: cl.key, Gen: cl.gen, CallID: cl.id, Attempt: cl.attempt, Remote: cl.remote,
		Args: cl.args, Meta: cl.req.Meta, Boundary: cl.boundary, Deadline: cl.deadline,
	}})
	e := c.event(messages.EventCallDispatched, cl)
	e.Attempt, e.Generation = cl.attempt, cl.gen
	c.do(Emit{e})
}

// callDone takes the reply of an attempt, once. One that is not the present attempt
// of a call is nobody's any more: an answer that it brings is counted as late.
func (c *Core) callDone(m messages.CallDone) {
	cl := c.calls[m.CallID]
	stale := cl == nil || cl.key != m.Key || cl.gen != m.Gen || cl.attempt != m.Attempt || !cl.out
	if planted.Is(planted.StaleReply) && cl != nil {
		stale = cl.key != m.Key || !cl.out
	}
	if stale {
		if isAnswer(m.Reply) {
			c.do(Emit{messages.Event{Time: c.now, Type: messages.EventReplyLate, Server: m.Key.Server, Instance: m.Key.Instance,
				CallID: m.CallID, Generation: m.Gen}})
		}
		return
	}
	cl.out = false
	c.current = cl
	if m.Reply.Kind == messages.ReplyLost {
		c.suspect(cl)
	}
	switch cl.state {
	case running:
		c.answered(cl, m.Reply)
	case fenced:
		if planted.Is(planted.SettledTwice) && isAnswer(m.Reply) {
			cl.settled = false
			c.answered(cl, m.Reply)
			break
		}
		c.late(cl, m.Reply)
	case checking, waiting, queued, joined, recording: // its incarnation was declared over before
		if isAnswer(m.Reply) {
			e := c.event(messages.EventReplyLate, cl)
			e.Generation = m.Gen
			c.do(Emit{e})
		}
	}
	c.current = nil
}

// isAnswer reports whether a server's answer is dropped with the reply.
func isAnswer(r messages.Reply) bool {
	switch r.Kind {
	case messages.ReplyResult, messages.ReplyError, messages.ReplyTooLarge, messages.ReplyProtocol:
		return true
	default:
		return false
	}
}

// answered decides what the reply to a running attempt means.
func (c *Core) answered(cl *call, r messages.Reply) {
	if v, ok := answerOf(cl, r); ok {
		if r.Kind != messages.ReplyTooLarge {
			cl.server.idleEnds = 0
		}
		c.retain(cl, int64(len(r.Raw)))
		c.end(cl, v)
		return
	}
	switch r.Kind {
	case messages.ReplyProtocol:
		if c.mayRetry(cl) {
			cl.retried, cl.lostAs = true, messages.CodeProtocolError
			if cl.server.limits.Remote {
				c.conjure(cl)
			}
			c.requeue(cl, "the answer was no answer"+because(r.Err), false)
			return
		}
		c.settle(cl, unknownOutcome(cl, messages.CodeProtocolError, "the server's answer is neither a result nor an error"+because(r.Err)))
		if cl.server.limits.Remote && laneIsEffect(cl) { // a response without an answer ends no work
			c.fence(cl)
			return
		}
		c.leave(cl)
	case messages.ReplyNotEntered, messages.ReplyUnsent:
		c.notSent(cl, r)
	case messages.ReplyLost:
		c.lost(cl, r.Proven, r.Err, r.After)
	default:
		c.end(cl, unknownOutcome(cl, messages.CodeInternal, "bug: reply "+r.Kind.String()))
	}
}

// answerOf is the verdict of a reply that is the server's answer.
func answerOf(cl *call, r messages.Reply) (verdict, bool) {
	switch r.Kind {
	case messages.ReplyResult:
		if isError(r.Raw) {
			return verdict{kind: messages.ToolError, code: messages.CodeToolError, result: r.Raw}, true
		}
		return verdict{kind: messages.OK, result: r.Raw}, true
	case messages.ReplyError:
		return verdict{kind: messages.ToolError, code: messages.CodeToolError, rpcError: r.Raw}, true
	case messages.ReplyTooLarge:
		return verdict{kind: messages.ToolError, code: messages.CodeResultTooLarge,
			message: toolName(cl.key.Server, cl.remote) + ": the answer is too large" + because(r.Err),
			hint:    "ask for less, or raise limits.frame_bytes of mcp_servers." + cl.key.Server}, true
	default:
		return verdict{}, false
	}
}

// notSent handles an attempt of which not one byte left.
func (c *Core) notSent(cl *call, r messages.Reply) {
	s, why, after := cl.server, r.Err, r.After
	// The worker is back, and says that it has not entered; nobody may enter any more.
	if r.Kind != messages.ReplyUnsent && !cl.boundary.Void() && cl.boundary.Entered() {
		c.lost(cl, false, why, after)
		return
	}
	if cl.cancel {
		c.end(cl, cancelled)
		return
	}
	if v, ok := c.comeback(cl); !ok {
		c.end(cl, v)
		return
	}
	if s.gen != cl.gen || !s.up {
		cl.refused, cl.why = 0, ""
		c.requeue(cl, "not sent"+because(why), false)
		return
	}
	// The session lives and still did not take it (a refused connection): once more
	// at once, then ever less eagerly.
	cl.why = why
	cl.refused++
	wait := after
	if cl.refused > 1 {
		const first, most = 100 * time.Millisecond, 2 * time.Second
		pause := most
		if n := cl.refused - 2; n < 5 {
			pause = min(first<<n, most)
		}
		wait = max(wait, pause)
	}
	c.requeue(cl, "not sent"+because(why), wait > 0)
	c.postpone(cl, wait)
}

// postpone notes when a call that was requeued as held may be handed out.
func (c *Core) postpone(cl *call, wait time.Duration) {
	if wait <= 0 {
		return
	}
	cl.held = true
	c.timers.set(&cl.alarm, earlier(c.now.Add(wait), cl.deadline))
}

// comeback says whether a running call may stand in line again, or why not.
func (c *Core) comeback(cl *call) (verdict, bool) {
	switch s := cl.server; {
	case !cl.deadline.After(c.now):
		return c.expired(cl), false
	case c.closed:
		return c.closedDoor(cl), false
	case !s.accepts():
		return s.refusal(true), false
	}
	return verdict{}, true
}

// lost handles an attempt that was entered and can get no answer any more.
func (c *Core) lost(cl *call, proven bool, why string, after time.Duration) {
	if c.mayRetry(cl) {
		cl.retried, cl.lostAs = true, messages.CodeConnectionLost
		if !proven {
			c.conjure(cl)
		}
		c.requeue(cl, "connection lost"+because(why), after > 0)
		c.postpone(cl, after)
		return
	}
	v := unknownOutcome(cl, messages.CodeConnectionLost, "the connection was lost before an answer came"+because(why))
	if planted.Is(planted.LostAsNotSent) {
		v = notSent(messages.CodeUnavailable, v.message, "")
	}
	c.settle(cl, v)
	if planted.Is(planted.FreedOnRemoteLoss) {
		proven = true
	}
	if laneIsEffect(cl) && !proven {
		c.fence(cl)
		return
	}
	c.leave(cl)
}

// mayRetry is the one repetition that the bridge allows itself after a byte may
// have left: the operator said that the tool is harmless, the call is in time and
// still wanted, and its server is one that comes back.
func (c *Core) mayRetry(cl *call) bool {
	declared := cl.effect != messages.SideEffect && cl.effectSource == messages.FromConfig
	if planted.Is(planted.RetryOnEOF) {
		declared = true
	}
	if cl.retried || cl.cancel || !declared {
		return false
	}
	_, ok := c.comeback(cl)
	return ok
}

// requeue puts a call that was started back into line.
func (c *Core) requeue(cl *call, why string, held bool) {
	if cl.state == running {
		c.landed(cl)
	}
	c.touch(cl.server)
	c.takeBack(cl)
	c.enter(cl, queued)
	cl.server.lane.Requeue(cl.id, held)
	if cl.ghost {
		cl.server.lane.Haunt(cl.id, true)
	}
	c.countIn(cl)
	c.wake(cl.server)
	e := c.event(messages.EventCallRequeued, cl)
	e.Attempt, e.Reason = cl.attempt, why
	c.do(Emit{e})
}

var cancelled = notSent(messages.CodeCancelled, "cancelled before it was sent", "")

// cancel ends a call that somebody no longer wants.
func (c *Core) cancel(m messages.Cancel) {
	cl := c.calls[m.CallID]
	if m.Found != nil {
		c.do(AnswerFound{m.Found, cl != nil})
	}
	if cl == nil || cl.settled {
		return
	}
	c.current = cl
	defer func() { c.current = nil }()
	if !cl.cancel {
		c.do(Emit{c.event(messages.EventCallCancel, cl)})
	}
	switch cl.state {
	case checking, waiting, queued, recording:
		c.end(cl, cancelled)
	case joined:
		c.parted(cl, messages.CodeCancelled, "cancelled")
	case running:
		asked := cl.cancel
		cl.cancel = true
		if cl.boundary.Void() {
			c.settle(cl, cancelled)
			cl.void = true
			c.fence(cl)
			return
		}
		if c.depart(cl, goesOn(cl, messages.CodeCancelled, "cancelled")) {
			return
		}
		if !asked {
			c.tell(cl, "cancelled by the caller")
		}
		if m.Left {
			c.settle(cl, cancelUnanswered(cl))
			if planted.Is(planted.FreedOnCancel) {
				c.leave(cl)
				return
			}
			c.fence(cl)
		}
	case fenced:
	}
}

func cancelUnanswered(cl *call) verdict {
	return unknownOutcome(cl, messages.CodeCancelled, "cancelled after it was sent; the server may still be working on it")
}

func goesOn(cl *call, code messages.Code, why string) verdict {
	return unknownOutcome(cl, code, why+" after it was sent; it goes on for other callers that gave the same idempotency key: the same key finds its outcome")
}

// tell asks the session to tell its server that the call is no longer wanted.
func (c *Core) tell(cl *call, why string) {
	if s := cl.server; s.gen == cl.gen && s.up {
		c.do(ToSession{cl.session, messages.CancelExec{Key: cl.key, Gen: cl.gen, CallID: cl.id, Attempt: cl.attempt, Reason: why}})
	}
}

// expire handles everything that is due.
func (c *Core) expire() {
	for len(c.timers) > 0 && !c.timers[0].due.After(c.now) {
		a := c.timers[0]
		c.timers.remove(a)
		if a.server != nil {
			c.alive(a.server)
			continue
		}
		c.current = a.call
		c.due(a.call)
	}
	c.current = nil
}

func (c *Core) due(cl *call) {
	over := !cl.deadline.After(c.now)
	switch cl.state {
	case waiting:
		if over {
			c.end(cl, c.expired(cl))
		} else {
			c.end(cl, c.unknownTool(cl))
		}
	case queued:
		if over {
			c.end(cl, c.expired(cl))
			return
		}
		cl.held = false
		cl.server.lane.Release(cl.id)
		c.timers.set(&cl.alarm, cl.deadline)
		c.touch(cl.server)
	case recording:
		c.end(cl, c.expired(cl))
	case joined:
		c.parted(cl, messages.CodeTimeout, "its deadline passed")
	case running:
		c.timeout(cl)
	case fenced:
		c.abandon(cl)
	case checking:
	}
}

// timeout is the deadline of a running call.
func (c *Core) timeout(cl *call) {
	if planted.Is(planted.DeadlineIgnored) {
		return
	}
	switch {
	case planted.Is(planted.NotSentWhileWriting) && !cl.boundary.Entered(), cl.boundary.Void():
		cl.void = true
		c.settle(cl, c.expired(cl))
	case cl.cancel:
		if c.depart(cl, cancelUnanswered(cl)) {
			return
		}
		c.settle(cl, cancelUnanswered(cl))
	case c.depart(cl, goesOn(cl, messages.CodeTimeout, "its deadline passed")):
		return
	default:
		c.tell(cl, "deadline exceeded")
		c.settle(cl, timedOut(cl))
		if planted.Is(planted.FreedOnTimeout) {
			c.leave(cl)
			return
		}
	}
	c.fence(cl)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
