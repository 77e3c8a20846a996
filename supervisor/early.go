package supervisor

import (
	"time"

	"mcpbridge/messages"
)

// earlyAfter is the shortest time after a failed connection before a call may bring
// the next try forward.
const earlyAfter = 2 * time.Second

// A remote server that comes back says nothing, and a backoff that has grown to a
// minute is a long time for a call that waits. So a call brings the next connection
// forward: it starts no process and costs one request. The schedule stays as it was;
// an early try that fails counts for nothing and is followed by the one that was due.
//
//	backoff ──wake──► backoff (due sooner) ──due──► starting ──► ready
//	   ▲                                               │
//	   └───────── failed: the old schedule ────────────┘

// wake takes the word that somebody waits for the server.
func (m *machine) wake(now time.Time) {
	switch {
	case m.closing:
	case m.state == messages.StateIdle:
		m.begin(now, reasonWake)
	case m.state == messages.StateBackoff && m.cfg.Remote():
		m.hasten(now)
	}
}

// reasonWake is why a server is started for a call.
const reasonWake = "a call waits"

// hasten brings the next try forward, as far as the last one is long enough ago.
func (m *machine) hasten(now time.Time) {
	pause := earlyAfter
	if e := m.row.LastExit; e != nil {
		pause = max(pause, e.RetryAfter)
	}
	due := m.since.Add(pause)
	if due.Before(now) {
		due = now
	}
	if due.Add(earlyAfter).After(m.retry) {
		return // it would be as good as the one that is due
	}
	if m.schedule.IsZero() {
		m.schedule = m.retry
	}
	m.enter(now, messages.StateBackoff, m.reason, due)
	m.setTimer(timerRetry, due.Sub(now))
}

// tryAgain is the end of a backoff.
func (m *machine) tryAgain(now time.Time) {
	why, schedule := m.reason, m.schedule
	if !schedule.IsZero() {
		why = reasonWake
	}
	m.begin(now, why)
	m.schedule = schedule
}

// failedEarly leads an early try that came to nothing back to the schedule.
func (m *machine) failedEarly(now time.Time, exit messages.Exit) bool {
	due := m.schedule
	if due.IsZero() || m.wasReady || exit.Permanent || !due.After(now) {
		return false
	}
	m.schedule = time.Time{}
	m.enter(now, messages.StateBackoff, exit.Reason, due)
	m.setTimer(timerRetry, due.Sub(now))
	return true
}
