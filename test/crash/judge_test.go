//go:build linux

package crash

import (
	"cmp"
	"fmt"
	"strings"

	"mcpbridge/messages"
	"mcpbridge/test/witness"
)

// findings collects what does not agree.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// compare holds the accounts of a life against each other: its callers, the witness h
// after everything, and what the next daemon says.
func compare(l *life, a *account, h *witness.History) (f findings) {
	refused := 0 // the wave from which on the journal refuses
	for _, c := range l.calls {
		f.call(l, c, a, h)
		switch {
		case !c.effectful() || !c.answered || c.out.FirstID != "":
		case c.unavailable():
			refused = cmp.Or(refused, c.wave)
		case refused > 0 && c.wave > refused && !l.passes:
			f.add("%s: it was sent after the journal had refused another, and the disk had not come back", c.id)
		}
	}
	f.fences(l, a)
	f.again(l, a, h)
	for _, c := range a.fresh {
		held := c.server == "web" && len(a.fenced) > 0
		switch {
		case held && (c.out.Kind != messages.NotSent || h.Begins(c.nonce) != 0):
			f.add("%s: its lane is fenced, and it is %s/%s with %d begins", c.nonce, c.out.Kind, c.out.Code, h.Begins(c.nonce))
		case !held && (c.out.Kind != messages.OK || h.Begins(c.nonce) != 1):
			f.add("%s: a fresh call after everything is %s/%s with %d begins: %s", c.nonce, c.out.Kind, c.out.Code, h.Begins(c.nonce), c.out.ErrorText())
		}
	}
	if a.cli.Exit != 0 {
		f.add("calls --journal: %s", a.cli)
	}
	// A crash is no damage: a person who is told otherwise every time believes it never.
	if !a.journal.Complete {
		f.add("the journal calls itself incomplete: %q", a.journal.Doubts)
	}
	for _, i := range a.issues {
		if i.Severity == messages.SeverityError {
			f.add("status: %s: %s", i.File, i.Message)
		}
	}
	for _, s := range h.Twice() {
		if strings.HasPrefix(s, l.prefix) {
			f.add("%s", s)
		}
	}
	return f
}

// call judges one call of the life.
func (f *findings) call(l *life, c *said, a *account, h *witness.History) {
	name := fmt.Sprintf("%s (%s/%s)", c.id, c.server, c.tool)
	begins, ends := a.before[c.nonce], h.Ends(c.nonce)
	if !c.effectful() {
		if c.answered && c.out.Kind != messages.OK {
			f.add("%s: a read is %s/%s: %s", name, c.out.Kind, c.out.Code, c.out.ErrorText())
		}
		return
	}
	if c.answered {
		switch {
		case c.out.Kind == messages.OK && ends == 0:
			f.add("%s: its caller was told ok, and no server finished it", name)
		case c.out.Kind == messages.OK:
		case c.unavailable() && c.out.Kind == messages.Rejected && c.out.SafeToRetry():
			if begins > 0 {
				f.add("%s: refused as %s, and it began", name, c.out.Code)
			}
		default:
			f.add("%s: its caller was told %s/%s: %s", name, c.out.Kind, c.out.Code, c.out.ErrorText())
		}
	} else if !l.died {
		f.add("%s: no answer, and the daemon lived", name)
	}
	if c.answered && c.out.FirstID != "" { // the outcome of another call
		if len(a.entries[c.id]) > 0 {
			f.add("%s: it was given the outcome of %s and has an entry of its own", name, c.out.FirstID)
		}
		return
	}
	entries := a.entries[c.id]
	switch {
	case len(entries) > 1:
		f.add("%s: %d entries", name, len(entries))
		return
	case len(entries) == 1:
		f.entry(l, c, name, entries[0], begins, ends)
	case begins > 0 && l.first(c):
		// Retention may have taken what was settled, and says up to when.
		if s := a.journal.Since; !c.answered || s == nil || s.Before(c.sent) {
			f.add("%s: it began, and the journal does not know it", name)
		}
	}
}

func (f *findings) entry(l *life, c *said, name string, e messages.JournalEntry, begins, ends int) {
	bad := func(text string, args ...any) {
		f.add("%s: the journal says %s/%s, and "+text, append([]any{name, e.Outcome, e.Code}, args...)...)
	}
	switch kind := e.Outcome; {
	case kind == messages.OK.String() && ends == 0:
		bad("no server finished it")
	case kind == messages.NotSent.String() && begins > 0, kind == messages.Rejected.String() && begins > 0:
		bad("it began")
	case kind == messages.OutcomeOpen:
		bad("its life is over")
	case kind == messages.OutcomeUnknown.String():
		// The outcome itself may have died with the daemon, or with the disk.
		if c.answered && l.exit == 0 && !l.struck {
			bad("its caller was told %s, and nothing had happened", c.out.Kind)
		}
	case c.answered && kind != c.out.Kind.String():
		bad("its caller was told %s/%s", c.out.Kind, c.out.Code)
	}
}

// fences: what may still run at a remote server is held, and nothing else.
func (f *findings) fences(l *life, a *account) {
	want := map[string]bool{}
	for _, c := range l.calls {
		for _, e := range a.entries[c.id] {
			if c.server == "web" && e.Outcome == messages.OutcomeUnknown.String() {
				want[c.id] = true
			}
		}
	}
	for _, c := range a.fenced {
		if !want[c.CallID] {
			f.add("call %s of %s is fenced at start, and its outcome is known, or its server is proven dead", c.CallID, c.Server)
		}
		delete(want, c.CallID)
	}
	for id := range want {
		f.add("%s: it may still run at its remote server, and does not hold its lane", id)
	}
}

// again: a key that is used again gives what it gave, or what is true of it, and does
// not run a second time what began.
func (f *findings) again(l *life, a *account, h *witness.History) {
	for _, c := range l.calls {
		out, tried := a.told[c.key]
		if c.key == "" || !tried || !l.first(c) {
			continue
		}
		begins := h.Begins(c.nonce)
		name := fmt.Sprintf("%s (%s/%s) by its key again", c.id, c.server, c.tool)
		known := len(a.entries[c.id]) == 1
		switch {
		case begins > max(a.before[c.nonce], 1):
			f.add("%s: it began %d times", name, begins)
		case known && begins != a.before[c.nonce]:
			f.add("%s: the journal had an entry, and it was sent", name)
		case known && a.entries[c.id][0].Outcome != out.Kind.String():
			f.add("%s: the journal says %s, and the answer is %s/%s", name, a.entries[c.id][0].Outcome, out.Kind, out.Code)
		case !known && out.Kind != messages.OK:
			f.add("%s: it never ran, and the answer is %s/%s: %s", name, out.Kind, out.Code, out.ErrorText())
		}
	}
}
