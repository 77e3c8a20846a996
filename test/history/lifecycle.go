package history

import (
	"math"
	"slices"
	"time"

	"mcpbridge/messages"
)

// earliness is what a delay may seem too short by: the event of its begin is dated
// after the timer was planned.
const earliness = 20 * time.Millisecond

// earlyAfter is the least pause before a call may bring a connection over HTTP forward.
const earlyAfter = 2 * time.Second

// life is the life cycle of one server in one life of the daemon, as its events tell it.
type life struct {
	x   *index
	r   *Report
	run *runView
	srv *Server

	state   string
	since   int64
	gen     uint64 // the last one that was spawned
	spawns  int    // of its processes
	served  uint64 // the last one that a call was dispatched to
	ready   int64  // of the present incarnation; 0 = not
	fresh   bool   // the next restart may be immediate
	backoff int    // delays since that was so
	early   int64  // begin of the backoff that a call cut short; 0 = none
	asked   bool   // somebody wanted the end of the present incarnation
	ended   bool   // an incarnation has ended, and the next has not begun
	downAt  int64
	reason  string
}

// checkRestarts is P11. The schedule is that of the semantics: the first failure
// after the start, after reset_after of readiness or an operator's wish restarts at
// once; then initial × multiplier^n up to max, less the jitter. Where the events
// leave open whether a server had earned its reset, it has.
func checkRestarts(x *index, r *Report) {
	for _, run := range x.runs {
		lives := map[string]*life{}
		spawned := map[uint64]string{}
		for _, e := range run.Events {
			srv := x.servers[e.Server]
			if srv == nil {
				continue
			}
			l := lives[e.Server]
			if l == nil {
				l = &life{x: x, r: r, run: run, srv: srv, fresh: true}
				lives[e.Server] = l
			}
			if e.Type == messages.EventServerSpawned {
				r.did("P11")
				if who, ok := spawned[e.Generation]; ok && !l.again(e) {
					r.add("P11", "run %s: generation %d of %s was spawned (event %d), and had been of %s", run.ID, e.Generation, e.Server, e.Seq, who)
				}
				spawned[e.Generation] = e.Server
			}
			l.take(e)
		}
	}
}

func (l *life) bad(e messages.Event, format string, args ...any) {
	l.r.add("P11", "run %s, %s, event %d: "+format, append([]any{l.run.ID, l.srv.Name, e.Seq}, args...)...)
}

func (l *life) take(e messages.Event) {
	at := l.x.mono(e.Time)
	switch e.Type {
	case messages.EventServerSpawned:
		if e.Generation < l.gen || e.Generation == l.gen && !l.again(e) {
			l.bad(e, "generation %d was spawned after %d", e.Generation, l.gen)
		}
		l.spawns++
		if e.Generation != l.gen {
			l.spawns = 1
		}
		if l.down() {
			l.bad(e, "generation %d was spawned while the server was %s", e.Generation, l.state)
		}
		l.gen, l.asked, l.ended, l.ready = e.Generation, false, false, 0
	case messages.EventServerReady:
		if e.Generation != l.gen {
			l.bad(e, "generation %d is ready, and the last one that was spawned is %d", e.Generation, l.gen)
		}
		l.ready = at
		if l.downAt != 0 {
			l.r.Recoveries = append(l.r.Recoveries, time.Duration(at-l.downAt))
			l.downAt = 0
		}
	case messages.EventServerRecycled:
		l.asked = true
	case messages.EventServerExited:
		if l.ready != 0 {
			l.downAt = at
		}
		if l.ready != 0 && at-l.ready >= int64(l.srv.Restart.ResetAfter-earliness) {
			l.forget()
		}
		l.asked = l.asked || l.operated(l.since, at, messages.VerbStop, messages.VerbDrain, messages.VerbRestart)
		l.ready, l.ended, l.reason = 0, true, e.Reason
	case messages.EventServerState:
		l.enter(e, at)
	case messages.EventCallDispatched:
		// The router learns of a new incarnation a moment after its server's own events
		// tell of it: only its own order counts.
		if e.Generation < l.served {
			l.bad(e, "call %s was dispatched to generation %d after others to %d", e.CallID, e.Generation, l.served)
		}
		l.served = max(l.served, e.Generation)
	default:
	}
}

// again reports whether a generation may be spawned a second time: a process that does
// not survive the question for the newest protocol is replaced once, within its start.
func (l *life) again(e messages.Event) bool {
	return e.Generation == l.gen && l.spawns == 1 && l.ready == 0 && !l.ended
}

func (l *life) forget() { l.fresh, l.backoff = true, 0 }

// down reports whether a person alone can bring the server back.
func (l *life) down() bool {
	switch l.state {
	case messages.StateStopped.String(), messages.StateDisabled.String(), messages.StateConfigError.String(), messages.StateBlocked.String():
		return true
	}
	return false
}

// enter judges the arrival in a state.
func (l *life) enter(e messages.Event, at int64) {
	if e.State == messages.StateStarting.String() {
		l.start(e, at)
	}
	if e.State != l.state {
		l.state, l.since = e.State, at
		if l.early != 0 && l.ready == 0 && e.State == messages.StateBackoff.String() {
			l.since = l.early // an early try came to nothing: the schedule goes on
		}
		if e.State != messages.StateStarting.String() {
			l.early = 0
		}
	}
}

// start judges the begin of the next incarnation by where it comes from.
func (l *life) start(e messages.Event, at int64) {
	wanted := l.operated(l.since, at, messages.VerbStart, messages.VerbRestart, messages.VerbReset)
	if wanted {
		l.forget()
	}
	waited := time.Duration(at - l.since)
	switch l.state {
	case messages.StateBackoff.String():
		if wanted {
			return
		}
		l.r.did("P11")
		if l.srv.Remote && e.Reason == "a call waits" { // only the first of a row of early tries is measured
			if l.early = l.since; waited+earliness < earlyAfter {
				l.bad(e, "tried early after %s, and that takes at least %s", waited, earlyAfter)
			}
			return
		}
		if least := l.least(); waited+earliness < least {
			l.bad(e, "restarted after %s, and delay %d is at least %s (last exit: %s)", waited, l.backoff+1, least, l.reason)
		}
		l.backoff++
		l.fresh = false
	case messages.StateQuarantined.String():
		l.r.did("P11")
		if !wanted && waited+earliness < l.srv.Restart.Cooldown {
			l.bad(e, "left quarantine after %s, and the cool-down is %s", waited, l.srv.Restart.Cooldown)
		}
	case messages.StateStopped.String(), messages.StateDisabled.String(), messages.StateConfigError.String(), messages.StateBlocked.String():
		l.r.did("P11")
		if !wanted {
			l.bad(e, "started while it was %s, and nobody had asked for it", l.state)
		}
	case messages.StateReady.String(), messages.StateStarting.String():
		if !l.ended || l.asked || wanted {
			return
		}
		l.r.did("P11")
		if !l.fresh {
			l.bad(e, "restarted at once, and its last restart at once was not followed by %s of readiness (last exit: %s)", l.srv.Restart.ResetAfter, l.reason)
		}
		l.fresh = false
	}
}

// least is the shortest delay that the schedule allows now.
func (l *life) least() time.Duration {
	p := l.srv.Restart
	d := float64(p.Initial) * math.Pow(max(p.Multiplier, 1), float64(l.backoff))
	return time.Duration(min(d, float64(p.Max)) * (1 - p.Jitter))
}

func (l *life) operated(from, to int64, verbs ...messages.Verb) bool {
	return l.x.operated(l.srv.Name, from, to, verbs...)
}

// operated reports whether one of an operator's verbs may have come true between the two
// moments, or shortly before.
func (x *index) operated(server string, from, to int64, verbs ...messages.Verb) bool {
	for _, o := range x.Operations {
		if o.Server == server && slices.Contains(verbs, o.Verb) && max(o.At, o.Done) >= from-int64(earliness) && o.At <= to+int64(earliness) {
			return true
		}
	}
	return false
}
