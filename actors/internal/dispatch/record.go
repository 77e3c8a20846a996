package dispatch

import (
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// The journal of side effects. Where there is one, the dispatch of everything that
// is not read_only has two phases: the lane gives the call its place, and it is
// handed out when its record is durable.
//
//	queued ──► recording ──Recorded──► running
//	  ▲            ├─ failed ────────► rejected/journal_unavailable
//	  │            ├─ cancelled, expired, flushed ──► not_sent
//	  └────────────┘ its server went away meanwhile
//
// Every way out of recording but the first takes the record back, at once and
// unasked: records become durable in the order in which they were given.

// record asks for the record of the attempt that was just begun.
func (c *Core) record(cl *call) {
	c.enter(cl, recording)
	c.tokens++
	cl.token, cl.recorded = c.tokens, true
	c.do(Record{Token: cl.token, Record: messages.DispatchRecord{
		CallID: cl.id, RunID: c.cfg.RunID, Generation: cl.gen, Attempt: cl.attempt, Client: cl.req.Client,
		Server: cl.key.Server, Tool: cl.remote, ArgsDigest: cl.digest, IdempotencyKey: cl.req.IdempotencyKey,
		Remote: cl.server.limits.Remote, At: c.now,
	}})
	if planted.Is(planted.SentBeforeRecorded) {
		c.send(cl.server, cl)
	}
}

// onRecord is the journal's answer.
func (c *Core) onRecord(m messages.Recorded) {
	cl := c.calls[m.CallID]
	if cl == nil || cl.state != recording || cl.token != m.Token {
		return // it was taken back
	}
	c.current = cl
	s := cl.server
	v, ok := c.comeback(cl)
	switch {
	case m.Err != "":
		c.end(cl, journalUnavailable(cl, m.Err))
	case !ok:
		c.end(cl, v)
	case !s.open() || s.gen != cl.gen:
		c.requeue(cl, "its server went away before it was sent", false)
	default:
		c.send(s, cl)
		if planted.Is(planted.OutcomeRecordedEarly) {
			c.closeRecord(cl, messages.Outcome{Kind: messages.OK})
		}
	}
	c.current = nil
}

// takeBack tells the journal that nothing of the recorded attempt was sent. The
// entry of a call that was repeated stays open: its first attempt may have left.
func (c *Core) takeBack(cl *call) {
	if cl.recorded && !cl.retried {
		c.closeRecord(cl, messages.Outcome{Kind: messages.NotSent, Code: messages.CodeUnavailable})
	}
}

// closeRecord gives the journal's entry of a call its outcome.
func (c *Core) closeRecord(cl *call, o messages.Outcome) {
	if !cl.recorded {
		return
	}
	cl.recorded = false
	r := messages.OutcomeRecord{CallID: cl.id, RunID: c.cfg.RunID, Attempt: cl.attempt, Outcome: o.Kind, Code: o.Code, At: c.now}
	if r.Outcome == messages.Rejected { // after it was accepted; the entry says what is true of the bytes
		r.Outcome = messages.NotSent
	}
	if cl.req.IdempotencyKey != "" {
		r.Result, r.RPCError, r.Dropped = kept(o)
	}
	c.do(RecordOutcome{r})
}

// kept is what is remembered of a server's answer for a repeated key.
func kept(o messages.Outcome) (result, rpcError []byte, dropped bool) {
	if len(o.Result)+len(o.RPCError) > messages.StoredResultMax {
		return nil, nil, true
	}
	return o.Result, o.RPCError, false
}

// recordings lists the calls of a server that wait for the journal.
func (c *Core) recordings(s *server) (ids []string) {
	if !c.cfg.Journal {
		return nil
	}
	for _, id := range s.lane.AppendActive(nil) {
		if c.calls[id].state == recording {
			ids = append(ids, id)
		}
	}
	return ids
}
