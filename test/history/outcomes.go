package history

import (
	"fmt"
	"time"

	"mcpbridge/messages"
)

// lateness is how long after its deadline an outcome may come.
const lateness = 2 * time.Second

// checkOutcomes is P3: one outcome for each call, the same for everybody, in time.
func checkOutcomes(x *index, r *Report) {
	for _, c := range x.sorted() {
		r.did("P3")
		if c.made {
			x.callerSide(c, r)
		}
		x.bridgeSide(c, r)
	}
}

func (x *index) callerSide(c *callView, r *Report) {
	if c.Returned == 0 {
		r.add("P3", "%s never came back", c.name())
		return
	}
	if took := time.Duration(c.Returned - c.Invoked); c.Timeout > 0 && took > c.Timeout+lateness {
		r.add("P3", "%s came back as %s after %s, with a timeout of %s", c.name(), word(c.Outcome, c.Code), took.Round(time.Millisecond), c.Timeout)
	}
	if c.Outcome == NoAnswer && !x.died(c) {
		r.add("P3", "%s got no answer, and no daemon was killed or ended while it waited", c.name())
	}
}

// died reports whether a daemon ended while the caller waited. A connection breaks a
// moment before the process is seen to be gone, or after.
func (x *index) died(c *callView) bool {
	const around = int64(2 * time.Second)
	for _, run := range x.runs {
		if run.End == StillUp {
			continue
		}
		from := run.StopAsked
		if from == 0 {
			from = run.EndedAt
		}
		if c.Returned >= from-around && c.Invoked <= run.EndedAt+around {
			return true
		}
	}
	return false
}

func (x *index) bridgeSide(c *callView, r *Report) {
	for _, id := range c.elsewhere {
		r.add("P3", "%s is in the history of two lives of the daemon: %s and %s", c.name(), c.run.ID, id)
	}
	if len(c.accepted) > 1 {
		r.add("P3", "%s was accepted %d times", c.name(), len(c.accepted))
	}
	if len(c.settled) > 1 {
		r.add("P3", "%s was settled %d times: %s", c.name(), len(c.settled), settlements(c.settled))
	}
	if len(c.settled) == 0 {
		x.unsettled(c, r)
		return
	}
	s := c.settled[0]
	for _, d := range c.dispatches {
		if d.Seq > s.Seq {
			r.add("P3", "%s was dispatched (event %d) after its outcome (event %d)", c.name(), d.Seq, s.Seq)
		}
	}
	if len(c.accepted) > 0 {
		a := c.accepted[0]
		if a.Seq > s.Seq {
			r.add("P3", "%s was accepted (event %d) after its outcome (event %d)", c.name(), a.Seq, s.Seq)
		}
		if a.Deadline != nil && s.Time.After(a.Deadline.Add(lateness)) {
			r.add("P3", "%s was settled as %s %s after its deadline", c.name(), word(s.Outcome, s.Code), s.Time.Sub(*a.Deadline).Round(time.Millisecond))
		}
	}
	if !c.answered() {
		return
	}
	if c.Outcome != s.Outcome || c.Code != s.Code || c.Attempt != s.Attempt {
		r.add("P3", "%s was told %s in attempt %d, and the history says %s in attempt %d (event %d)",
			c.name(), word(c.Outcome, c.Code), c.Attempt, word(s.Outcome, s.Code), s.Attempt, s.Seq)
	}
	sent := 0 // attempts that were never handed out are not dispatched, and count
	if n := len(c.dispatches); n > 0 {
		sent = c.dispatches[n-1].Attempt
	}
	if !c.joined && sent != s.Attempt {
		r.add("P3", "%s was settled in attempt %d, and the last one that was dispatched is %d", c.name(), s.Attempt, sent)
	}
}

// unsettled handles a call without an outcome in the events, whose last moments may
// have died with the daemon.
func (x *index) unsettled(c *callView, r *Report) {
	if c.run == nil {
		if run := x.runOf(c); run != nil && c.answered() && run.last > c.Returned+int64(time.Second) && !x.atTheDoor(run, c) {
			r.add("P3", "%s was told %s, and the history of run %s knows nothing of it", c.name(), word(c.Outcome, c.Code), run.ID)
		}
		return
	}
	switch {
	case c.answered() && c.complete(c.Returned):
		r.add("P3", "%s was told %s, and the history of run %s, which goes on, never settles it", c.name(), word(c.Outcome, c.Code), c.run.ID)
	case len(c.accepted) > 0 && c.accepted[0].Deadline != nil && c.complete(x.mono(c.accepted[0].Deadline.Add(lateness))):
		r.add("P3", "%s was accepted (event %d of run %s) and is lost: no outcome by its deadline + 2 s", c.name(), c.accepted[0].Seq, c.run.ID)
	}
}

// atTheDoor reports whether a call was refused by a daemon that was draining already: its
// door is shut before the calls come to whoever writes the history.
func (x *index) atTheDoor(run *runView, c *callView) bool {
	if c.Code != messages.CodeDraining || c.Outcome != messages.Rejected.String() || c.Sent || c.Attempt > 0 {
		return false
	}
	for _, e := range run.Events {
		if e.Type == messages.EventDraining {
			return x.mono(e.Time) <= c.Returned+int64(ClockSlack)
		}
	}
	return false
}

// runOf is the run that the caller believed to ask.
func (x *index) runOf(c *callView) *runView {
	for _, run := range x.runs {
		if run.ID == c.Run {
			return run
		}
	}
	return nil
}

func settlements(events []messages.Event) string {
	out := ""
	for i, e := range events {
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprintf("%s (event %d)", word(e.Outcome, e.Code), e.Seq)
	}
	return out
}
