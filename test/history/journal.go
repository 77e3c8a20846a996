package history

import (
	"time"

	"mcpbridge/messages"
)

// journalLag is how long the outcome of an answered call may take to reach the
// journal: nobody waits for it.
const journalLag = 2 * time.Second

// checkJournal is P13. The first half needs no journal: whatever a killed daemon had
// taken, no later one sends.
func checkJournal(x *index, r *Report) {
	x.notAgain(r)
	if x.Journal == nil {
		r.Skipped["P13"] = "there was no journal to read (only that nothing was sent again)"
		return
	}
	for _, d := range x.Journal.Doubts {
		r.add("P13", "the journal may lack entries, and nothing had happened to its disk: %s", d)
	}
	for _, e := range x.Journal.Entries {
		r.did("P13")
		x.entry(e, r)
	}
	for _, c := range x.sorted() {
		if !c.made || !c.effectful() || c.joined || c.Joined != "" {
			continue
		}
		r.did("P13")
		switch n := len(c.entries); {
		case n > 1:
			r.add("P13", "%s has %d entries in the journal", c.name(), n)
		case n == 0 && c.begins() > 0:
			r.add("P13", "%s began (%s), and the journal has no entry of it: it was sent before its record was durable", c.name(), where(c.spans))
		case n == 0 && c.Sent:
			r.add("P13", "%s was told %s, sent, and the journal has no entry of it", c.name(), word(c.Outcome, c.Code))
		}
	}
}

// notAgain looks for work of one life of the daemon in a later one.
func (x *index) notAgain(r *Report) {
	for _, run := range x.runs {
		if run.End == StillUp {
			continue
		}
		for _, c := range x.calls {
			if c.run != run || !c.made {
				continue
			}
			if x.Journal != nil {
				r.did("P13")
			}
			for _, id := range c.elsewhere {
				r.add("P13", "%s belongs to run %s, which ended, and run %s took it up again", c.name(), run.ID, id)
			}
			srv := x.servers[c.Server]
			for _, s := range c.spans {
				if srv != nil && !srv.Remote && s.proc.start > run.EndedAt {
					r.add("P13", "%s belongs to run %s, and a process that started %s after that run's end began it (%s)",
						c.name(), run.ID, time.Duration(s.proc.start-run.EndedAt).Round(time.Millisecond), s.place())
				}
			}
		}
	}
}

// entry holds one entry against what the caller heard and the witness saw.
func (x *index) entry(e messages.JournalEntry, r *Report) {
	c := x.calls[e.CallID]
	if c == nil || !c.made {
		r.add("P13", "the journal has an entry of call %s, which nobody made", e.CallID)
		return
	}
	bad := func(format string, args ...any) {
		r.add("P13", "%s: the journal says %s (run %s), "+format, append([]any{c.name(), word(e.Outcome, e.Code), e.RunID}, args...)...)
	}
	if !c.effectful() {
		bad("and it is a read")
	}
	if c.run != nil && e.RunID != c.run.ID {
		bad("and it was run %s that took it", c.run.ID)
	}
	switch e.Outcome {
	case messages.OutcomeOpen:
		x.open(e, c, bad)
		return
	case messages.OK.String():
		if c.ends() == 0 {
			bad("and no server finished it")
		}
	case messages.NotSent.String(), messages.Rejected.String():
		if c.begins() > 0 {
			bad("and it began (%s)", where(c.spans))
		}
	}
	if !c.answered() {
		return
	}
	if e.Outcome == messages.OutcomeUnknown.String() && c.Outcome != e.Outcome && x.killedSoonAfter(e, c) {
		return // the outcome itself died with the daemon
	}
	told := c.Outcome
	if told == messages.Rejected.String() { // of the bytes, both words say the same
		told = messages.NotSent.String()
	}
	if said := e.Outcome; said != told && !(said == messages.Rejected.String() && told == messages.NotSent.String()) {
		bad("and its caller was told %s", word(c.Outcome, c.Code))
	}
}

// killedSoonAfter reports whether the daemon of the entry was killed before the answered
// call's outcome had the time to reach the journal.
func (x *index) killedSoonAfter(e messages.JournalEntry, c *callView) bool {
	for _, run := range x.runs {
		if run.ID == e.RunID {
			return run.End == Killed && c.Returned+int64(journalLag) >= run.EndedAt
		}
	}
	return false
}

// open judges an entry without an outcome: it is the truth of a call that was in
// flight when its daemon died, and of one that is in flight now. A person reads it as
// outcome_unknown, which must not contradict what was told long before.
func (x *index) open(e messages.JournalEntry, c *callView, bad func(string, ...any)) {
	for _, run := range x.runs {
		if run.ID != e.RunID {
			continue
		}
		switch {
		case run.End == StillUp && c.Returned > 0 && c.answered():
			bad("and the daemon that settled it as %s is alive", word(c.Outcome, c.Code))
		case run.End == Drained && c.answered():
			bad("and the daemon that settled it as %s ended in peace", word(c.Outcome, c.Code))
		case run.End == Killed && c.answered() && c.Returned+int64(journalLag) < run.EndedAt:
			bad("and its caller was told %s, %s before the daemon was killed", word(c.Outcome, c.Code), time.Duration(run.EndedAt-c.Returned).Round(time.Millisecond))
		}
		return
	}
	bad("and there was no such run")
}
