package history

import (
	"strings"
	"time"

	"mcpbridge/messages"
)

// mayHaveLeft reports whether a call was put back in line although its first
// attempt may have left.
func mayHaveLeft(reason string) bool {
	return strings.HasPrefix(reason, "connection lost") || strings.HasPrefix(reason, "the answer was no answer")
}

// checkOnce is P1.
func checkOnce(x *index, r *Report) {
	for _, c := range x.sorted() {
		if !c.made {
			continue
		}
		r.did("P1")
		repeated := 0
		for _, e := range c.requeues {
			if mayHaveLeft(e.Reason) {
				repeated++
			}
		}
		n := c.begins()
		switch {
		case c.Effect == messages.SideEffect && n > 1:
			r.add("P1", "%s began %d times: %s", c.name(), n, where(c.spans))
		case c.Effect == messages.SideEffect && repeated > 0:
			r.add("P1", "%s was put in line again after it may have left (%q)", c.name(), c.requeues[0].Reason)
		case n > 2:
			r.add("P1", "%s began %d times, and one repetition is allowed: %s", c.name(), n, where(c.spans))
		case repeated > 1:
			r.add("P1", "%s was repeated %d times, and once is allowed", c.name(), repeated)
		}
		if len(c.dispatches) > len(c.requeues)+1 {
			r.add("P1", "%s was dispatched %d times and put back in line %d times", c.name(), len(c.dispatches), len(c.requeues))
		}
	}
}

// checkTruth is P2: what callers were told against what the servers did.
func checkTruth(x *index, r *Report) {
	for _, c := range x.sorted() {
		outcome, code, ok := c.told()
		if !c.made || !ok || c.joined || c.Joined != "" {
			continue
		}
		r.did("P2")
		begins, ends := c.begins(), c.ends()
		lie := func(format string, args ...any) {
			r.add("P2", "%s was told %s, "+format, append([]any{c.name(), word(outcome, code)}, args...)...)
		}
		sent := false
		switch outcome {
		case messages.OK.String():
			sent = true
			switch {
			case c.Errs:
				lie("and its server answers with an error")
			case ends == 0:
				lie("and no server finished it (%d begins)", begins)
			case c.Effect == messages.SideEffect && (begins != 1 || ends != 1):
				lie("and it began %d times and ended %d times", begins, ends)
			}
		case messages.ToolError.String():
			sent = true
			switch {
			case begins == 0:
				lie("and no server began it")
			case !c.Errs && code != messages.CodeResultTooLarge:
				lie("and its server answers without one")
			}
		case messages.NotSent.String(), messages.Rejected.String(), NoDaemon:
			if begins > 0 {
				lie("and it began: %s", where(c.spans))
			}
		case messages.OutcomeUnknown.String():
			sent = true
			x.justify(c, code, lie)
		default:
			lie("which is no outcome")
		}
		if c.Answer != "" && c.Answer != c.Nonce {
			lie("and its answer is that of nonce %s", c.Answer)
		}
		if c.answered() && c.Sent != sent {
			lie("with sent: %t", c.Sent)
		}
		for _, e := range c.late {
			if outcome == messages.OK.String() || outcome == messages.ToolError.String() {
				lie("and event %d calls its reply late", e.Seq)
			}
		}
		x.timely(c, lie)
	}
}

// justify looks for the reason of an unknown outcome: a dispatch, and what its code
// claims.
func (x *index) justify(c *callView, code messages.Code, lie func(string, ...any)) {
	if c.answered() && c.Attempt == 0 {
		lie("and was never dispatched (attempt 0)")
		return
	}
	if len(c.settled) == 0 { // the events end before
		return
	}
	s := c.settled[0]
	if len(c.dispatches) == 0 {
		lie("and the history has no dispatch of it")
		return
	}
	switch code {
	case messages.CodeTimeout:
		if d := c.accepted; len(d) > 0 && d[0].Deadline != nil && s.Time.Before(d[0].Deadline.Add(-ClockSlack)) {
			lie("%s before its deadline", d[0].Deadline.Sub(s.Time))
		}
	case messages.CodeCancelled:
		if len(c.cancels) == 0 {
			lie("and nobody had cancelled it")
		}
	case messages.CodeConnectionLost:
		if srv := x.servers[c.Server]; srv != nil && !srv.Remote && !x.lost(c, s) {
			lie("and generation %d of %s neither ended nor was the daemon ending", s.Generation, c.Server)
		}
	}
}

// lost reports whether the incarnation that had the call ended, as far as the events
// reach.
func (x *index) lost(c *callView, s messages.Event) bool {
	const patience = 20 * time.Second // a ladder, on a loaded machine
	if !c.complete(x.mono(s.Time) + int64(patience)) {
		return true
	}
	for _, e := range c.run.Events {
		switch {
		case e.Type == messages.EventDraining:
			return true
		case e.Server != c.Server:
		case e.Type == messages.EventServerExited && e.Generation == s.Generation:
			return true
		}
	}
	return false
}

// timely compares moments of one clock: nothing begins before it was asked for, and
// an answer is not there before its work.
func (x *index) timely(c *callView, lie func(string, ...any)) {
	for _, s := range c.spans {
		if s.MonoNS < c.Invoked {
			lie("and began %s before it was asked for", time.Duration(c.Invoked-s.MonoNS))
		}
	}
	if c.Outcome == messages.OK.String() && c.Returned > 0 {
		for _, s := range c.spans {
			if s.ended && s.end <= c.Returned {
				return
			}
		}
		if c.ends() > 0 {
			lie("before any server had finished it")
		}
	}
}

// checkMistakes is P17, as far as outcomes show it.
func checkMistakes(x *index, r *Report) {
	for _, c := range x.sorted() {
		r.did("P17")
		if _, code, ok := c.told(); ok && code == messages.CodeInternal {
			r.add("P17", "%s ended in a mistake of the bridge", c.name())
		}
	}
}

// where lists executions for people.
func where(spans []*span) string {
	var b strings.Builder
	for i, s := range spans {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.place())
	}
	return b.String()
}
