package dispatch

import (
	"fmt"
	"time"

	"mcpbridge/actors/internal/lane"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// A fence is the place of a call that has its outcome while its server may still
// work on it.
//
//	fenced ──answer, or proof of death──────────────────────► freed
//	   └─abandon_after─► overdue ─ stdio: recycle ─ death ──► freed
//	                          └─── no proof to be had ──────► freed, possible_overlap
//
// Progress starts abandon_after again. A call that is void holds its place only
// until its worker is back. Reads have nothing to protect: when abandon_after is
// over, side effects may pass them, and when all places of reads are taken by such
// calls, the incarnation is recycled.

// readPatience stands for abandon_after where that is never: no work is lost with
// a read.
const readPatience = 30 * time.Second

// fence keeps the place of a settled call.
func (c *Core) fence(cl *call) {
	c.landed(cl)
	c.enter(cl, fenced)
	cl.args, cl.req.Args, cl.req.Meta, cl.req.OnProgress = nil, nil, nil, nil
	cl.server.lane.Fence(cl.id)
	if cl.carried { // abandon_after counts from when the last one has left it
		c.timers.remove(&cl.alarm)
	} else {
		c.timers.set(&cl.alarm, c.abandonAt(cl))
	}
	if holds(cl) {
		e := c.event(messages.EventLaneHeld, cl)
		e.Generation = cl.gen
		c.do(Emit{e})
	}
}

// holds reports whether the fenced call may still change the world.
func holds(cl *call) bool { return laneIsEffect(cl) && !cl.void }

func laneIsEffect(cl *call) bool { return cl.effect != messages.ReadOnly }

// abandonAt is when the fence is abandoned, counted from now; zero = never.
func (c *Core) abandonAt(cl *call) time.Time {
	after := cl.server.limits.AbandonAfter
	switch {
	case !holds(cl):
		if after <= 0 {
			after = readPatience
		}
	case cl.abandonNever || after <= 0:
		return time.Time{}
	}
	return c.now.Add(after)
}

// progress is a sign of life: the fence's time starts again.
func (c *Core) progress(m messages.CallProgress) {
	cl := c.calls[m.CallID]
	if cl == nil || cl.state != fenced || cl.key != m.Key || cl.gen != m.Gen || cl.orphan || cl.carried {
		return
	}
	if cl.overdue {
		if !holds(cl) { // others may have passed it already
			return
		}
		cl.overdue = false
		cl.server.overdue--
		c.touch(cl.server)
	}
	c.timers.set(&cl.alarm, c.abandonAt(cl))
}

// late takes the reply to a fenced call.
func (c *Core) late(cl *call, r messages.Reply) {
	if r.Kind == messages.ReplyProtocol && cl.server.limits.Remote {
		r.Kind = messages.ReplyLost // a response without an answer ends no work
	}
	if cl.carried {
		v, ok := answerOf(cl, r)
		if !ok {
			v = unknownOutcome(cl, messages.CodeConnectionLost, "the connection was lost before an answer came"+because(r.Err))
		}
		c.deliver(cl, c.outcome(cl, v))
		c.timers.set(&cl.alarm, c.abandonAt(cl))
	}
	switch r.Kind {
	case messages.ReplyResult, messages.ReplyError, messages.ReplyTooLarge, messages.ReplyProtocol:
		e := c.event(messages.EventReplyLate, cl)
		e.Generation = cl.gen
		if !planted.Is(planted.LateReplyUncounted) {
			c.do(Emit{e})
		}
		c.unfence(cl, "the server answered")
	case messages.ReplyLost:
		if holds(cl) && !r.Proven {
			return // no answer will come, and nothing says that the work is over
		}
		c.unfence(cl, "proven dead")
	case messages.ReplyNotEntered, messages.ReplyUnsent:
		c.unfence(cl, "not sent")
	}
}

// unfence frees the place.
func (c *Core) unfence(cl *call, why string) {
	if holds(cl) {
		e := c.event(messages.EventLaneReleased, cl)
		e.Reason = why
		c.do(Emit{e})
	}
	c.leave(cl)
}

// overlap frees the place without proof that the work is over.
func (c *Core) overlap(cl *call, why string) {
	if holds(cl) {
		e := c.event(messages.EventPossibleOverlap, cl)
		e.Generation, e.Reason = cl.gen, why
		c.do(Emit{e})
	}
	cl.ghost = false
	c.unfence(cl, why)
}

// conjure notes that the attempt of a side effect that is about to be repeated may
// still be worked on. Were its place given up with the repetition, a write that
// comes later could be undone by the old one.
func (c *Core) conjure(cl *call) {
	if !laneIsEffect(cl) || planted.Is(planted.GhostForgotten) {
		return
	}
	after := cl.server.limits.AbandonAfter
	if after <= 0 || cl.abandonNever { // the repetition's outcome is what never is about
		after = ghostPatience
	}
	cl.ghost, cl.ghostGen, cl.ghostUntil = true, cl.gen, c.now.Add(after)
}

const ghostPatience = 30 * time.Second

// leave forgets a settled call, or lets its ghost keep the place.
func (c *Core) leave(cl *call) {
	switch {
	case !cl.ghost:
		c.forget(cl)
		return
	case !cl.ghostUntil.After(c.now):
		cl.void = false
		c.overlap(cl, "an earlier attempt was abandoned without proof that it is over")
		return
	case cl.state == running:
		c.landed(cl)
		cl.server.lane.Fence(cl.id)
	case cl.state == recording:
		cl.server.lane.Fence(cl.id)
	case cl.state == queued:
		cl.server.lane.Occupy(cl.id)
		c.touch(cl.server)
	}
	c.enter(cl, fenced)
	cl.ghost, cl.void, cl.orphan, cl.gen = false, false, true, cl.ghostGen
	cl.args, cl.req.Args, cl.req.Meta, cl.req.OnProgress = nil, nil, nil, nil
	c.timers.set(&cl.alarm, cl.ghostUntil)
	e := c.event(messages.EventLaneHeld, cl)
	e.Generation = cl.gen
	c.do(Emit{e})
}

// exorcise takes the ghosts of an incarnation that is proven dead.
func (c *Core) exorcise(s *server, gen uint64) {
	for _, id := range s.lane.AppendWaiting(s.lane.AppendActive(nil)) {
		if cl := c.calls[id]; cl.ghost && cl.ghostGen == gen {
			cl.ghost = false
			s.lane.Haunt(id, false)
			c.touch(s)
		}
	}
}

// abandon is the end of abandon_after.
func (c *Core) abandon(cl *call) {
	s := cl.server
	if holds(cl) && (s.limits.Remote || cl.orphan || planted.Is(planted.AbandonedWithoutProof)) {
		c.overlap(cl, "abandoned without proof that it is over")
		return
	}
	cl.overdue = true
	s.overdue++
	s.lane.Abandon(cl.id)
	c.touch(s)
}

// recycle asks for the end of the incarnation when only that can free the lane:
// after the calls in flight, once, and not while a call is held that the operator
// said is never to be abandoned.
func (c *Core) recycle(s *server) {
	why := ""
	if s.overdue > 0 && s.up {
		why = c.recycleReason(s)
	}
	if !s.recycleSent { // until then an answer may still come in time
		s.recycling = why != ""
	}
	if s.recycling && !s.recycleSent && s.inFlight == 0 {
		s.recycleSent = true
		c.do(ToServers{messages.RecycleServer{Key: s.key, Gen: s.gen, Reason: why}})
	}
}

func (c *Core) recycleReason(s *server) string {
	effect, reads := "", 0
	c.scratch = s.lane.AppendActive(c.scratch[:0])
	for _, id := range c.scratch {
		cl := c.calls[id]
		switch {
		case cl.state != fenced || cl.gen != s.gen:
		case holds(cl) && (cl.abandonNever || s.limits.AbandonAfter <= 0):
			return ""
		case !cl.overdue:
		case laneIsEffect(cl):
			effect = fmt.Sprintf("call %s of %s got no answer and was abandoned", cl.id, cl.remote)
		default:
			reads++
		}
	}
	if effect == "" && reads >= s.lane.Limits().MaxReads {
		return fmt.Sprintf("%d reads got no answer and hold every place", reads)
	}
	return effect
}

// fenceAtStart holds the lane for a call of an earlier life of the bridge that its
// server may still work on.
func (c *Core) fenceAtStart(m messages.FenceAtStart) {
	c.early = append(c.early, m)
	if s := c.servers[m.Key]; s != nil && !s.removed {
		c.holdEarlier(s)
	}
}

// holdEarlier takes up what came before the server was configured.
func (c *Core) holdEarlier(s *server) {
	if len(c.early) == 0 {
		return
	}
	rest := c.early[:0]
	for _, m := range c.early {
		switch {
		case m.Key != s.key:
			rest = append(rest, m)
		case !m.Until.IsZero() && !m.Until.After(c.now), c.calls[m.CallID] != nil: // over, or known already
		default:
			c.hold(s, m)
		}
	}
	clear(c.early[len(rest):])
	c.early = rest
}

// hold makes the row of such a call: settled long ago, of no incarnation of this run.
func (c *Core) hold(s *server, m messages.FenceAtStart) {
	cl := &call{id: m.CallID, req: messages.CallTool{Client: m.Client}, accepted: m.At, state: fenced, since: c.now, settled: true, orphan: true, earlier: true,
		server: s, key: s.key, tool: toolName(s.key.Server, m.Tool), remote: m.Tool, effect: messages.SideEffect, client: c.clientOf(m.Client)}
	cl.alarm = alarm{index: -1, call: cl}
	if cl.accepted.IsZero() {
		cl.accepted = c.now
	}
	c.calls[cl.id] = cl
	s.lane.Hold(lane.Item{ID: cl.id, Class: lane.SideEffect, Client: m.Client})
	c.timers.set(&cl.alarm, m.Until)
	c.do(Emit{c.event(messages.EventLaneHeld, cl)})
}
