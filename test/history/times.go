package history

import (
	"time"

	"mcpbridge/messages"
)

// rounding is how much later than its moment an event is dated: when it is published,
// which a machine without a free core puts off. 430 ms were seen where fifteen processes
// waited for two cores.
const rounding = 750 * time.Millisecond

// checkTimes is P18: the time that a call waited and the time that it ran are told
// apart. Where it was handed out once, the events say what both must be; what goes before
// them, from the caller to the acceptance, counts as waiting.
func checkTimes(x *index, r *Report) {
	for _, c := range x.sorted() {
		if !c.made || c.joined || c.Joined != "" || len(c.accepted) != 1 || len(c.settled) != 1 {
			continue
		}
		r.did("P18")
		s := c.settled[0]
		queued, ran := millis(s.QueuedMS), millis(s.RanMS)
		before := time.Duration(x.mono(c.accepted[0].Time) - c.Invoked)
		bad := func(what string, is, least, most time.Duration) {
			if is < least-rounding || is > most+rounding {
				r.add("P18", "%s was told to have %s %s, and by the events it is between %s and %s (event %d)", c.name(), what, is, least, most, s.Seq)
			}
		}
		all := s.Time.Sub(c.accepted[0].Time)
		bad("waited and run", queued+ran, all, all+before)
		if len(c.dispatches) != 1 || len(c.requeues) > 0 || s.Outcome == messages.NotSent.String() {
			continue
		}
		wait, run := c.dispatches[0].Time.Sub(c.accepted[0].Time), s.Time.Sub(c.dispatches[0].Time)
		bad("waited", queued, wait, wait+before)
		bad("run", ran, run, run)
	}
}

func millis(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
