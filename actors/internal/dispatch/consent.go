package dispatch

import (
	"strconv"
	"time"

	"mcpbridge/actors/internal/approval"
	"mcpbridge/messages"
)

// Calls that need a person's yes, and calls whose tool is not what it was.
//
//	check: ask ──┬─ a grant waits for it ──► admitted, and the grant is used up
//	             ├─ nobody to ask ─────────► rejected/approval_required, with an id
//	             └─ asker ──► waiting ──Answered──┬─ yes ──► check, with a grant
//	                             ▲                ├─ no ───► rejected/denied
//	                             └ approve ID, deny ID      cannot ► approval_required
//
// Whatever was admitted is judged once more before it is handed out, if policy or
// catalogue have changed since: see rejudge.

// callOf is what a grant for the call is for.
func (cl *call) callOf(t messages.Tool) approval.Call {
	return approval.Call{Client: cl.req.Client, Server: t.Server, Tool: t.RemoteName, Definition: t.Digest, Args: cl.digest}
}

// consented reports whether a person's yes waits for a call that needs one. If not,
// the call has been ended, or waits for the answer.
func (c *Core) consented(cl *call, t messages.Tool, rule string) bool {
	cl.consent = cl.callOf(t)
	if c.approvals.Granted(c.now, cl.consent) {
		return true
	}
	q, ok := c.approvals.Ask(c.now, cl.consent, messages.Approval{Server: t.Server, Tool: t.Name, Args: cl.args, Client: cl.req.Client,
		RemoteTool: t.RemoteName, Effect: t.Effect.String(), Rule: rule})
	if !ok {
		v := refused(t, messages.Ask, rule)
		v.message += ", and its arguments are too many for a person to look at (" + strconv.Itoa(approval.MaxArgs>>10) + " KiB)"
		c.end(cl, v)
		return false
	}
	if cl.req.Ask == nil && !c.cfg.Approver {
		c.end(cl, c.needsApproval(t, rule, q.ID))
		return false
	}
	if cl.state != waiting {
		var hope []*server
		if s := c.servers[cl.key]; s != nil {
			hope = append(hope, s)
		}
		if c.await(cl, hope); cl.settled {
			return false
		}
	}
	cl.listUntil = time.Time{}
	c.timers.set(&cl.alarm, cl.deadline)
	c.tokens++
	cl.asking, cl.question = c.tokens, q.ID
	c.asked(cl, q)
	ask := cl.req.Ask
	if c.cfg.Approver {
		ask = nil
	}
	c.do(Ask{Token: cl.asking, CallID: cl.id, Approval: q, Deadline: cl.deadline, Of: ask})
	return false
}

// needsApproval is the answer where somebody has to say yes first.
func (c *Core) needsApproval(t messages.Tool, rule, id string) verdict {
	v := refused(t, messages.Ask, rule)
	v.approval = id
	v.hint = "`bridgectl approve " + id + "` lets this client make this call once, within " + minutes(approval.Life) + "; " + v.hint
	return v
}

func minutes(d time.Duration) string { return strconv.Itoa(int(d.Minutes())) + " minutes" }

// asked puts the question into the history.
func (c *Core) asked(cl *call, q messages.Approval) {
	e := c.event(messages.EventApprovalAsked, cl)
	e.Reason, e.Tool, e.Effect, e.Client = q.ID, cl.tool, effectName(cl), cl.req.Client
	c.do(Emit{e})
}

// answeredBy takes what an asker said.
func (c *Core) answeredBy(m messages.Answered) {
	cl := c.calls[m.CallID]
	if cl == nil || cl.state != waiting || cl.asking != m.Token || cl.settled {
		return // it has ended, or was answered by somebody else
	}
	cl.asking = 0
	c.current = cl
	defer func() { c.current = nil }()
	switch {
	case m.Cannot:
		if t, ok := c.lookup(cl); ok {
			c.end(cl, c.needsApproval(t, cl.rule, cl.question))
			return
		}
		c.unknown(cl)
	case m.Yes:
		c.decided(cl.question, true)
		c.check(cl, messages.CheckedArgs{})
	default:
		c.decided(cl.question, false)
		c.end(cl, c.personsNo(cl, m.Err))
	}
}

func (c *Core) personsNo(cl *call, why string) verdict {
	name := toolName(cl.key.Server, cl.remote)
	if why != "" {
		return rejected(messages.CodeDenied, name+" was not approved: the approver failed: "+short(why), "what cannot be asked about is denied")
	}
	return rejected(messages.CodeDenied, name+" was not approved: whoever was asked said no", "")
}

// decided gives the table an answer and the history the news.
func (c *Core) decided(id string, yes bool) *messages.Approval {
	a, known := c.approvals.Decide(c.now, id, yes)
	if !known {
		return nil
	}
	e := messages.Event{Time: c.now, Type: messages.EventApprovalDecided, Server: a.Server, Tool: a.Tool, Client: a.Client, Reason: id, Outcome: "denied"}
	if yes {
		e.Outcome = "approved"
	}
	c.do(Emit{e})
	return &a
}

// decide is a person's answer through the queue. A call that waits for another
// asker's answer hears it too.
func (c *Core) decide(m messages.DecideApproval) {
	a := c.decided(m.ID, m.Approve)
	if m.Reply != nil {
		c.do(AnswerDecided{m.Reply, a})
	}
	if a == nil {
		return
	}
	for _, cl := range append([]*call(nil), c.waiting...) {
		if cl.settled || cl.asking == 0 || cl.question != m.ID {
			continue
		}
		c.current = cl
		c.stopAsking(cl)
		if m.Approve {
			c.check(cl, messages.CheckedArgs{})
		} else {
			c.end(cl, c.personsNo(cl, ""))
		}
	}
	c.current = nil
}

// stopAsking tells the asker that nobody waits for its answer.
func (c *Core) stopAsking(cl *call) {
	if cl.asking != 0 {
		c.do(StopAsking{cl.asking})
		cl.asking = 0
	}
}

// sameDefinition reports whether the tool is what the caller, and this call when it
// was first looked at, took it for; otherwise it says why it is not called (P8).
func (c *Core) sameDefinition(cl *call, t messages.Tool) (verdict, bool) {
	if t.Held {
		return heldBack(t), false
	}
	if t.Limits.AnyDefinition {
		cl.definition = t.Digest
		return verdict{}, true
	}
	if cl.definition == "" {
		cl.definition = t.Digest
	}
	switch {
	case cl.req.Digest != "" && cl.req.Digest != t.Digest:
		return toolChanged(t, "its definition has changed since this client listed it"), false
	case cl.definition != t.Digest:
		return toolChanged(t, "its definition changed while the call waited"), false
	}
	return verdict{}, true
}

// rejudge looks again at a call that has its place and was judged under other rules,
// or on another catalogue. Without a yes to all of it nothing is sent.
func (c *Core) rejudge(cl *call) bool {
	v, ok := c.judgeAgain(cl)
	if !ok {
		c.enter(cl, recording) // it holds its place: ending it there gives the place back
		c.end(cl, v)
	}
	return ok
}

func (c *Core) judgeAgain(cl *call) (verdict, bool) {
	t, known := c.lookup(cl)
	if !known || t.Server != cl.key.Server || t.RemoteName != cl.remote {
		return rejected(messages.CodeToolChanged, toolName(cl.key.Server, cl.remote)+" is no longer offered by its server: the call waited and was not sent",
			"list the tools again"), false
	}
	permission, rule := c.cfg.Decide(t, cl.req.Client, cl.req.View)
	if permission == messages.Ask && cl.consent == cl.callOf(t) && cl.consent != (approval.Call{}) {
		permission = messages.Allow // a person said yes to exactly this
	}
	cl.rule = rule
	if permission != messages.Allow {
		return refused(t, permission, rule), false
	}
	if v, ok := c.sameDefinition(cl, t); !ok {
		return v, false
	}
	if laneOf(t.Effect) != laneOf(cl.effect) {
		return toolChanged(t, "it was "+cl.effect.String()+" when the call came and is "+t.Effect.String()+" now"), false
	}
	cl.effect, cl.effectSource, cl.abandonNever, cl.judged = t.Effect, t.EffectSource, t.Limits.AbandonNever, c.judgement
	return verdict{}, true
}

// heldBack is the answer for a tool that waits for a person.
func heldBack(t messages.Tool) verdict {
	why := "its definition is not the one that was seen first"
	switch t.Change {
	case messages.Renamed:
		why = "it is a tool that was seen before under another name"
	case messages.Unverified:
		why = "the record of its first definition is damaged, so that nobody can say whether it has changed"
	case messages.Changed, messages.Unchanged:
	}
	return rejected(messages.CodeToolChanged, toolName(t.Server, t.RemoteName)+" is held back: "+why,
		"`bridgectl tools diff "+t.EndpointName+"` shows the change, `bridgectl tools approve "+t.EndpointName+"` takes it over")
}

func toolChanged(t messages.Tool, why string) verdict {
	return rejected(messages.CodeToolChanged, toolName(t.Server, t.RemoteName)+" was not called: "+why,
		"list the tools again and look at the new definition before the next call")
}
