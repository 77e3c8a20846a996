package dispatch

import (
	"slices"
	"strings"

	"mcpbridge/messages"
)

// lookup finds the call's tool, where its view admits it. A tool that is out of
// view is as unknown as one that does not exist.
func (c *Core) lookup(cl *call) (messages.Tool, bool) {
	if c.catalogue == nil {
		return messages.Tool{}, false
	}
	var t messages.Tool
	var ok bool
	if cl.req.Server != "" {
		t, ok = c.catalogue.LookupRemote(cl.req.Server, cl.req.Tool)
	} else {
		t, ok = c.catalogue.Lookup(cl.req.Tool)
	}
	return t, ok && c.catalogue.InView(cl.req.View, t)
}

// unknown handles a call whose tool is not known: it waits while a server that may
// have it has not listed its tools yet.
func (c *Core) unknown(cl *call) {
	if cl.req.Timeout < 0 {
		c.end(cl, negativeTimeout)
		return
	}
	if len(c.meanings(cl)) > 0 { // more lists could only add to them
		c.end(cl, c.unknownTool(cl))
		return
	}
	hope, down := c.candidates(cl)
	if cl.state == waiting {
		switch {
		case len(hope) > 0 || c.catalogue == nil:
			c.wakeAll(hope)
		case down != nil:
			cl.key = down.key
			c.end(cl, down.refusal(true))
		default:
			c.end(cl, c.unknownTool(cl))
		}
		return
	}
	if c.catalogue != nil && (len(hope) == 0 || !c.catalogue.HasView(cl.req.View)) {
		c.end(cl, c.unknownTool(cl))
		return
	}
	if c.closed {
		c.end(cl, c.closedDoor(cl))
		return
	}
	c.wakeAll(hope)
	if c.cfg.ListWait <= 0 {
		c.end(cl, c.unknownTool(cl))
		return
	}
	c.await(cl, hope)
}

// await puts the call on the list of those that wait for their tool.
func (c *Core) await(cl *call, hope []*server) {
	var limits messages.ServerLimits // the patience of the first that may have it
	if len(hope) > 0 {
		limits = hope[0].limits
	}
	cl.deadline, cl.source = deadline(cl, limits)
	switch {
	case !cl.deadline.After(c.now):
		c.end(cl, verdict{kind: messages.NotSent, code: messages.CodeExpired,
			message: "the call's deadline had passed before it could be sent", hint: hintDeadline(cl)})
		return
	case c.clientFull(cl):
		c.end(cl, c.clientOverload(cl, c.cfg.ListWait))
		return
	case len(c.waiting) >= maxAwaiting || c.waitBytes+cl.size > maxAwaitingBytes:
		c.end(cl, overloaded("too many calls wait for servers to list their tools", c.cfg.ListWait))
		return
	}
	c.enter(cl, waiting)
	c.calls[cl.id] = cl
	c.waiting = append(c.waiting, cl)
	c.waitBytes += cl.size
	c.countIn(cl)
	if !cl.req.DryRun {
		c.announce(cl)
	}
	cl.listUntil = c.now.Add(c.cfg.ListWait)
	c.timers.set(&cl.alarm, earlier(cl.listUntil, cl.deadline))
}

// What may wait for first lists at once, over all clients.
const (
	maxAwaiting      = 1024
	maxAwaitingBytes = 64 << 20
)

// unwait takes the call off that list; its state is the caller's to change.
func (c *Core) unwait(cl *call) {
	if i := slices.Index(c.waiting, cl); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.waitBytes -= cl.size
	}
}

// retryWaiting looks again for the tools that were not known.
func (c *Core) retryWaiting() {
	for _, cl := range slices.Clone(c.waiting) {
		if cl.settled || cl.state != waiting || cl.finding != 0 || cl.asking != 0 {
			continue
		}
		c.current = cl
		c.check(cl, messages.CheckedArgs{})
	}
	c.current = nil
}

// candidates are the servers that may turn out to have the call's tool: their
// definitions were never seen and they are about to come. down is one that would
// be a candidate if it were not out of service.
func (c *Core) candidates(cl *call) (hope []*server, down *server) {
	for _, s := range c.order {
		if s.removed || c.catalogue != nil && c.catalogue.Knows(s.key.Server) || !mayHave(s.key.Server, cl.req) {
			continue
		}
		if s.accepts() {
			hope = append(hope, s)
		} else if down == nil {
			down = s
		}
	}
	return hope, down
}

// mayHave reports whether a call could mean a tool of the server. Local names are
// made of cleaned and perhaps shortened parts, so that only the beginning is
// compared: a wrong guess costs a wait, not a call.
func mayHave(server string, req messages.CallTool) bool {
	if req.Server != "" {
		return req.Server == server
	}
	if strings.HasPrefix(req.Tool, server+"/") {
		return true
	}
	const telling = 16
	name := strings.TrimPrefix(req.Tool, "mcp__")
	prefix := clean(server)
	if len(prefix) <= telling {
		prefix += "__"
	} else {
		prefix = prefix[:telling]
	}
	return strings.HasPrefix(name, prefix) || strings.HasPrefix(req.Tool, prefix)
}

// clean replaces what may not stand in a local name.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
}
