package dispatch

import (
	"maps"
	"slices"
	"time"

	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// drainServer settles one server's queue and owes ServerDrained when nothing is in
// flight; a fenced call has its outcome and delays nobody.
func (c *Core) drainServer(m messages.DrainServer) {
	s := c.servers[m.Key]
	if s == nil { // nothing of it is in flight
		c.do(ToServers{messages.ServerDrained{Key: m.Key}})
		return
	}
	s.draining, s.answer = true, true
	c.flush(s)
	c.retryWaiting()
	c.touch(s)
}

// drainAll closes the door, once.
func (c *Core) drainAll(m messages.DrainAll) {
	if m.Done != nil {
		c.drained = append(c.drained, m.Done)
	}
	if c.closed {
		return
	}
	c.closed = true
	c.do(Emit{messages.Event{Time: c.now, Type: messages.EventDraining}})
	for _, s := range c.order {
		if planted.Is(planted.DrainKeepsQueue) {
			break
		}
		c.settleQueue(s, notSent(messages.CodeUnavailable, "the bridge is draining", "try again when it has been restarted"))
	}
	for _, cl := range slices.Clone(c.waiting) {
		c.current = cl
		c.end(cl, c.closedDoor(cl))
	}
	c.current = nil
}

// Close settles every call that is open, because nobody will step the Core again:
// what may have left is unknown, the rest was not sent.
func (c *Core) Close(now time.Time) []Command {
	c.begin(now)
	c.closed = true
	const why, hint = "the bridge was stopped", "start it again: nothing of the call was sent"
	for _, id := range slices.Sorted(maps.Keys(c.calls)) { // the same order each time
		switch cl := c.calls[id]; {
		case cl == nil: // it had joined one before it
		case cl.carried:
			c.deliver(cl, c.outcome(cl, unknownOutcome(cl, messages.CodeConnectionLost, why+" before an answer came")))
		case cl.settled || cl.state == joined: // who joined is settled with the first
		case cl.state == running && !cl.boundary.Void():
			c.settle(cl, unknownOutcome(cl, messages.CodeConnectionLost, why+" before an answer came"))
		default:
			c.settle(cl, notSent(messages.CodeUnavailable, why, hint))
		}
	}
	for _, done := range c.drained {
		c.do(AnswerDrained{done})
	}
	c.calls, c.timers, c.waiting, c.drained, c.inFlight = map[string]*call{}, nil, nil, nil, 0
	clear(c.servers)
	clear(c.groups)
	c.order, c.dirty = nil, nil
	return c.out
}

// report describes every call that is not forgotten.
func (c *Core) report() messages.CallsReport {
	r := messages.CallsReport{InFlight: map[messages.Key]int{}, Queued: map[messages.Key]int{}}
	for i, cl := range c.waiting {
		info := c.info(cl)
		info.Position = i + 1
		if cl.asking != 0 {
			info.BlockedBy = append(info.BlockedBy, "approval "+cl.question)
		}
		r.Calls = append(r.Calls, info)
	}
	for _, id := range slices.Sorted(maps.Keys(c.calls)) {
		if cl := c.calls[id]; cl.state == joined {
			info := c.info(cl)
			info.BlockedBy = append(info.BlockedBy, cl.first.id)
			r.Calls = append(r.Calls, info)
		}
	}
	for _, s := range c.order {
		if s.removed && s.lane.Empty() {
			continue
		}
		r.InFlight[s.key], r.Queued[s.key] = s.inFlight, s.lane.Queued()
		c.scratch = s.lane.AppendActive(c.scratch[:0])
		for _, id := range c.scratch {
			r.Calls = append(r.Calls, c.info(c.calls[id]))
		}
		for _, w := range s.lane.Explain() {
			info := c.info(c.calls[w.ID])
			info.Position, info.BlockedBy = w.Position, append(info.BlockedBy, w.BlockedBy...)
			r.Calls = append(r.Calls, info)
		}
	}
	return r
}

func (c *Core) info(cl *call) messages.CallInfo {
	info := messages.CallInfo{
		CallID: cl.id, Tool: cl.tool, Server: cl.key.Server, State: cl.state.shown(), AgeMS: ms(c.now.Sub(cl.accepted)),
		BlockedBy: []string{}, Client: cl.req.Client, Generation: cl.gen, Attempt: cl.attempt,
	}
	if cl.tool == "" {
		info.Tool = cl.req.Tool
	}
	if cl.remote != "" {
		info.Lane = laneOf(cl.effect).String()
	}
	if laneIsEffect(cl) && cl.server != nil {
		info.LaneKey, info.LaneGroup = short(cl.laneKey), cl.server.limits.LaneGroup
	}
	return info
}
