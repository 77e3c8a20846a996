package dispatch

import (
	"container/list"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// Idempotency keys. The scope of a key is client, server and tool; it lives for 24
// hours from the outcome of its call.
//
//	             ┌─ other arguments ──────────► rejected/idempotency_conflict
//	key known ───┼─ in flight ────────────────► joined: gets the outcome of the first
//	             ├─ ok, tool_error, unknown ──► the same outcome again
//	             └─ not_sent, rejected ───────► runs anew
//
// Who is joined gets what became of the work, and not of the first caller. Whoever
// leaves, is cancelled, or has less time than the others gets an outcome of its own, and
// the others are not disturbed by it:
//
//	a joined one leaves ───────────────► outcome_unknown: the first may be sent, or was
//	the first leaves, and was not sent ► the next one runs anew, in its own time
//	the first leaves, and was sent ────► it is carried: its caller gets outcome_unknown,
//	                                     the server is told nothing, its answer goes to
//	                                     the joined ones, the key and the journal
//	the last one leaves ───────────────► the server is told, and the key has what the
//	                                     first caller was told
//
// The index here knows this run, for tools of every effect. What an earlier run did
// comes from the journal with the Submit, and so only of tools that are not
// read_only.

// What the index keeps at most; the oldest outcomes go first.
const (
	keyLife     = 24 * time.Hour
	keysMost    = 10_000
	keyBytes    = 64 << 20
	keyRunesMax = 256
)

type keyScope struct{ client, server, tool, key string }

// keyEntry is what is known of one key.
type keyEntry struct {
	scope   keyScope
	digest  string
	call    *call // in flight
	outcome messages.Outcome
	dropped bool // its result was too large to be kept
	until   time.Time
	at      *list.Element
}

func (k *keyEntry) bytes() int64 {
	o := &k.outcome
	return int64(len(o.Result) + len(o.RPCError) + len(o.Message) + len(o.Hint) + len(k.scope.key) + len(k.scope.client))
}

// keyIndex is the memory of this run.
type keyIndex struct {
	known   map[keyScope]*keyEntry
	settled list.List // *keyEntry, the oldest in front
	bytes   int64
}

func (x *keyIndex) drop(k *keyEntry) {
	if x.known[k.scope] == k {
		delete(x.known, k.scope)
	}
	if k.at != nil {
		x.settled.Remove(k.at)
		k.at = nil
		x.bytes -= k.bytes()
	}
}

// tidy forgets what is too old or too much.
func (x *keyIndex) tidy(now time.Time) {
	for e := x.settled.Front(); e != nil; e = x.settled.Front() {
		k, _ := e.Value.(*keyEntry)
		if k.until.After(now) && x.settled.Len() <= keysMost && x.bytes <= keyBytes {
			return
		}
		x.drop(k)
	}
}

// badKey says what is wrong with an idempotency key; "" for nothing.
func badKey(key string) string {
	switch {
	case !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "the idempotency key has characters that cannot be printed"
	case utf8.RuneCountInString(key) > keyRunesMax:
		return "the idempotency key has more than 256 characters"
	}
	return ""
}

func (cl *call) scope() keyScope {
	return keyScope{cl.req.Client, cl.key.Server, cl.remote, cl.req.IdempotencyKey}
}

// known ends or joins a call whose key is in use; false lets it go on.
func (c *Core) known(cl *call) bool {
	if cl.req.IdempotencyKey == "" || cl.req.DryRun || c.closed {
		return false
	}
	c.keys.tidy(c.now)
	k := c.keys.known[cl.scope()]
	if k == nil {
		return c.prior(cl)
	}
	switch {
	case k.call == nil && !k.outcome.Sent(): // it is known that nothing was sent
		c.keys.drop(k)
		return false
	case k.digest != cl.digest:
		c.end(cl, conflict(cl, k.outcome.CallID))
	case k.call != nil && planted.Is(planted.KeyNotJoined):
		return false
	case k.call != nil:
		c.join(cl, k.call)
	default:
		c.again(cl, k.outcome, k.dropped)
	}
	return true
}

// find asks the journal about a call that nobody asked it about: its tool was not
// known when it came. It waits for the answer where calls wait for first lists.
func (c *Core) find(cl *call) {
	if cl.state != waiting {
		var hope []*server
		if s := c.servers[cl.key]; s != nil {
			hope = append(hope, s)
		}
		c.await(cl, hope)
		if cl.settled {
			return
		}
	}
	cl.listUntil = time.Time{}
	c.timers.set(&cl.alarm, cl.deadline)
	c.tokens++
	cl.finding = c.tokens
	c.do(FindPrior{Token: cl.finding, CallID: cl.id, Client: cl.req.Client, Server: cl.key.Server, Tool: cl.remote, Key: cl.req.IdempotencyKey})
}

func (c *Core) priorFound(m messages.PriorFound) {
	cl := c.calls[m.CallID]
	if cl == nil || cl.state != waiting || cl.finding != m.Token {
		return
	}
	c.current = cl
	cl.finding, cl.prior, cl.priorOf = 0, m.Entry, toolName(cl.key.Server, cl.remote)
	c.check(cl, messages.CheckedArgs{})
	c.current = nil
}

// prior is known for what the journal brought.
func (c *Core) prior(cl *call) bool {
	if !c.cfg.Journal || cl.effect == messages.ReadOnly {
		return false
	}
	if cl.priorOf != toolName(cl.key.Server, cl.remote) {
		c.find(cl)
		return true
	}
	p := cl.prior
	if p == nil {
		return false
	}
	age := p.DispatchedAt
	if p.SettledAt != nil {
		age = *p.SettledAt
	}
	if !age.Add(keyLife).After(c.now) {
		return false
	}
	o := messages.Outcome{CallID: p.CallID, Kind: messages.OutcomeUnknown, Code: p.Code, Generation: p.Generation, Attempt: 1,
		Result: p.Result, RPCError: p.RPCError}
	open := o.Kind.UnmarshalText([]byte(p.Outcome)) != nil
	switch {
	case !open && !o.Sent():
		return false
	case p.ArgsDigest != cl.digest:
		c.end(cl, conflict(cl, p.CallID))
	case open && p.RunID == c.cfg.RunID:
		// It was in flight when the journal was asked, and has ended since.
		c.end(cl, overloaded("call "+quote(p.CallID)+" with the same idempotency key has just ended", keyAgain))
	default:
		if open {
			o.Kind, o.Code = messages.OutcomeUnknown, messages.CodeConnectionLost
			o.Message = toolName(cl.key.Server, cl.remote) + ": an earlier run of the bridge ended while the call was in flight"
		}
		if o.Kind == messages.OutcomeUnknown {
			if o.Message == "" {
				o.Message = toolName(cl.key.Server, cl.remote) + ": the call was sent once, by an earlier run of the bridge, and its answer was not read"
			}
			o.Hint = unknownOutcome(cl, o.Code, "").hint
		}
		c.again(cl, o, p.Dropped)
	}
	return true
}

// keyAgain is when the answer of a call that has just ended can be had.
const keyAgain = 100 * time.Millisecond

// claim makes an admitted call the owner of its key.
func (c *Core) claim(cl *call) {
	cl.prior = nil
	if cl.req.IdempotencyKey == "" {
		return
	}
	cl.keyed = &keyEntry{scope: cl.scope(), digest: cl.digest, call: cl, outcome: messages.Outcome{CallID: cl.id}}
	c.keys.known[cl.keyed.scope] = cl.keyed
}

// join makes a call wait for the outcome of the first.
func (c *Core) join(cl, first *call) {
	cl.server = first.server
	cl.deadline, cl.source = deadline(cl, first.server.limits)
	if c.clientFull(cl) {
		c.end(cl, c.clientOverload(cl, keyAgain))
		return
	}
	if cl.state == waiting {
		c.unwait(cl)
	}
	c.enter(cl, joined)
	cl.first = first
	first.joiners = append(first.joiners, cl)
	c.calls[cl.id] = cl
	c.countIn(cl)
	c.timers.set(&cl.alarm, cl.deadline)
	c.announce(cl)
	c.noteJoined(cl, first.id)
	if !cl.deadline.After(c.now) {
		c.parted(cl, messages.CodeTimeout, "its deadline had passed")
	}
}

func (c *Core) noteJoined(cl *call, first string) {
	e := c.event(messages.EventCallJoined, cl)
	e.Reason = first
	c.do(Emit{e})
}

// parted ends a joined call that does not wait for the first any longer.
func (c *Core) parted(cl *call, code messages.Code, why string) {
	c.end(cl, unknownOutcome(cl, code, why+" while it waited for the outcome of call "+quote(cl.first.id)+
		", which has the same idempotency key and goes on: the same key finds it"))
}

// unjoin takes a call off the list of the first.
func (c *Core) unjoin(cl *call) {
	first := cl.first
	list := first.joiners
	for i, j := range list {
		if j == cl {
			first.joiners = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if first.carried && len(first.joiners) == 0 {
		c.tell(first, "nobody waits for it any more")
		c.deliver(first, first.outcome)
		c.timers.set(&first.alarm, c.abandonAt(first))
	}
}

// depart ends a running call for its own caller. Where others joined it, the work goes
// on for them; false says that there are none.
func (c *Core) depart(cl *call, v verdict) bool {
	if len(cl.joiners) == 0 {
		return false
	}
	cl.carried = true
	c.settle(cl, v)
	c.fence(cl)
	return true
}

// deliver ends the work of a carried call.
func (c *Core) deliver(cl *call, o messages.Outcome) {
	cl.carried = false
	c.closeRecord(cl, o)
	c.conclude(cl, o)
}

// rerun has calls run whose first was not sent, because its own caller left it or gave
// it too little time.
func (c *Core) rerun() {
	for len(c.anew) > 0 {
		list := c.anew
		c.anew = nil
		for _, cl := range list {
			if cl.settled {
				continue
			}
			c.current = cl
			c.countOut(cl)
			delete(c.calls, cl.id)
			c.enter(cl, checking)
			cl.first = nil
			c.check(cl, messages.CheckedArgs{})
		}
	}
	c.current = nil
}

// conclude remembers the outcome of a call for its key and gives it to all who
// joined.
func (c *Core) conclude(cl *call, o messages.Outcome) {
	k := cl.keyed
	if k == nil {
		return
	}
	cl.keyed, k.call = nil, nil
	joiners := cl.joiners
	cl.joiners = nil
	if len(joiners) > 0 && !o.Sent() && !c.closed && (o.Code == messages.CodeCancelled || o.Code == messages.CodeExpired) {
		for _, j := range joiners {
			c.timers.remove(&j.alarm) // it waits for nobody any more
		}
		c.anew = append(c.anew, joiners...) // once the first has left its place
		joiners = nil
	}
	for _, j := range joiners {
		c.current = j
		c.again(j, o, false)
	}
	k.outcome = o
	k.outcome.Result, k.outcome.RPCError, k.dropped = kept(o)
	k.until = c.now.Add(keyLife)
	if c.keys.known[k.scope] == k {
		k.at = c.keys.settled.PushBack(k)
		c.keys.bytes += k.bytes()
		c.keys.tidy(c.now)
	}
}

// again settles a call with the outcome of another one that has its key.
func (c *Core) again(cl *call, o messages.Outcome, dropped bool) {
	if cl.state != joined {
		c.noteJoined(cl, o.CallID)
	}
	note := "this is the outcome of call " + quote(o.CallID) + ", which has the same idempotency key"
	v := verdict{kind: o.Kind, code: o.Code, message: o.Message, hint: o.Hint, result: o.Result, rpcError: o.RPCError,
		retryAfter: o.RetryAfter, of: &o}
	own := len(o.Result)+len(o.RPCError) > 0 // the server's words; a message would hide them
	switch {
	case dropped && o.Kind == messages.OK:
		v.message = note + "; its result is over 64 KiB and was not kept"
		v.result, v.truncated = stub(v.message), true
	case dropped:
		v.message = joinWords(o.Message, "the tool reported an error; its text is over 64 KiB and was not kept")
		v.hint = joinWords(o.Hint, note)
	case o.Kind == messages.OK:
		v.message = note
	case own || o.Message == "":
		v.hint = joinWords(o.Hint, note)
	default:
		v.message = joinWords(o.Message, note)
	}
	c.end(cl, v)
}

func joinWords(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
