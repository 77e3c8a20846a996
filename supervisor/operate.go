package supervisor

import (
	"errors"
	"fmt"
	"time"

	"mcpbridge/config"
	"mcpbridge/internal/planted"
	"mcpbridge/messages"
)

// errClosing answers a verb once the bridge ends.
var errClosing = errors.New("the bridge is closing: nothing is started any more")

// serverLimits are the scheduling facts of a server for the router.
func serverLimits(s config.Server) messages.ServerLimits {
	return messages.ServerLimits{
		Remote: s.Remote(), MaxReads: s.Limits.MaxReads, MaxSideEffects: s.Limits.MaxSideEffects, Serial: s.Serial,
		Queue: s.Limits.Queue, QueueBytes: s.Limits.QueueBytes, CallTimeout: s.Timeouts.Call,
		AbandonAfter: s.Timeouts.AbandonAfter, ResultBytes: s.Limits.ResultBytes,
		LaneGroup: s.LaneGroup,
	}
}

// operate carries out a person's wish, or says why it cannot be and what to do.
func (m *machine) operate(now time.Time, verb messages.Verb) error {
	if m.closing {
		return errClosing
	}
	if m.leaving && (verb == messages.VerbStart || verb == messages.VerbRestart || verb == messages.VerbReset && !m.treeAlive) {
		return fmt.Errorf("%s was removed from the configuration, and goes once its calls are over", m.cfg.Name)
	}
	switch verb {
	case messages.VerbStop:
		m.stop(now, "stopped by the operator")
		return nil
	case messages.VerbDrain:
		m.drain(now)
		return nil
	case messages.VerbStart, messages.VerbRestart, messages.VerbReset:
		if err := m.unstartable(verb); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown verb %q: one of start, stop, restart, reset, drain", verb)
	}
	switch verb {
	case messages.VerbReset:
		return m.reset(now)
	case messages.VerbRestart:
		m.restart(now)
	default:
		m.start(now, "started by the operator")
	}
	return nil
}

// unstartable explains why a server cannot be brought up by this verb; nil if it can.
func (m *machine) unstartable(verb messages.Verb) error {
	name := m.cfg.Name
	switch {
	case m.state == messages.StateConfigError:
		return fmt.Errorf("%s cannot be started: its configuration is broken: %s; correct it (see `bridgectl config check`), then `bridgectl reload`", name, m.reason)
	case m.state == messages.StateDisabled:
		return fmt.Errorf("%s is disabled (%s%s); change that in the configuration, then `bridgectl reload`", name, m.reason, in(m.cfg.Source))
	case m.state == messages.StateBlocked && m.reason != reasonAuth:
		return fmt.Errorf("%s waits for %s: it comes from the workspace%s, which is not trusted; `bridgectl approvals` shows the entry and its id, `bridgectl approve ID` lets it run (or start the bridge with --trust-project)", name, m.reason, in(m.cfg.Source))
	case verb == messages.VerbReset:
		return nil
	case m.state == messages.StateBlocked:
		return fmt.Errorf("%s refused the bridge's credentials (%s); correct them, then `bridgectl reset %s`", name, lastReason(m.row.LastExit), name)
	case m.treeAlive:
		return fmt.Errorf("%s: processes of generation %d could not be proven dead; end them, then `bridgectl reset %s`", name, m.gen, name)
	case m.state == messages.StateQuarantined:
		return fmt.Errorf("%s is quarantined (%s); `bridgectl reset %s` forgets its failures and starts it", name, m.reason, name)
	}
	return nil
}

func in(source string) string {
	if source == "" {
		return ""
	}
	return " in " + source
}

func lastReason(e *messages.Exit) string {
	if e == nil {
		return reasonAuth
	}
	return e.Reason
}

// start brings a server up that is down. One that is up, or coming up, is left alone.
func (m *machine) start(now time.Time, why string) {
	switch m.state {
	case messages.StateStopped:
		m.pol.forget() // a person's new beginning
		m.begin(now, why)
	case messages.StateIdle, messages.StateBackoff:
		m.begin(now, why)
	case messages.StateDraining, messages.StateStopping:
		m.goal, m.goalWhy = goalStart, why // once the old tree is dead
	}
}

// restart replaces the incarnation. It is no failure, and the next generation waits
// for the old tree.
func (m *machine) restart(now time.Time) {
	const why = "restarted by the operator"
	if m.phase != phaseLive {
		m.start(now, why)
		return
	}
	m.goal, m.goalWhy = goalStart, why
	switch m.state {
	case messages.StateReady, messages.StateStarting:
		m.replace(now, why)
	case messages.StateDraining: // it goes on draining, and comes back
	}
}

// replace ends the live session for goalStart. The state is `starting` from now on,
// so that queued calls wait for the next generation.
func (m *machine) replace(now time.Time, why string) {
	m.enter(now, messages.StateStarting, why, time.Time{})
	if !m.stopping {
		m.stopSession(m.ladder(), why)
	}
	m.overdue = false
}

// reset forgets the failures of a server that is kept down because of them, and starts it.
func (m *machine) reset(now time.Time) error {
	switch {
	case m.state == messages.StateQuarantined, m.state == messages.StateBackoff,
		m.state == messages.StateBlocked, m.state == messages.StateStopped && m.treeAlive:
		m.pol.forget()
		m.treeAlive = false
		switch {
		case m.leaving:
			m.leave(now)
		case !m.meant():
			m.boot(now)
		default:
			m.begin(now, "reset by the operator")
		}
		return nil
	case m.state == messages.StateStopped, m.state == messages.StateIdle:
		return fmt.Errorf("%s is %s, not quarantined: `bridgectl start %s` starts it", m.cfg.Name, m.state, m.cfg.Name)
	default:
		return fmt.Errorf("%s is %s: there is nothing to reset (reset is for quarantined, backoff and blocked/auth)", m.cfg.Name, m.state)
	}
}

// stop brings a server down without waiting for its calls.
func (m *machine) stop(now time.Time, why string) {
	switch m.state {
	case messages.StateDisabled, messages.StateConfigError, messages.StateBlocked, messages.StateStopped:
		return // down already, and it keeps the reason
	}
	m.goal, m.goalWhy = goalStop, why
	if m.phase != phaseLive {
		if !planted.Is(planted.StoppedRevived) {
			m.cancel(timerRetry, timerCooldown)
		}
		if planted.Is(planted.SlotAfterStop) && m.phase == phaseWaiting {
			m.enter(now, messages.StateStopped, why, time.Time{})
			return
		}
		m.phase = phaseNone
		m.releaseSlot()
		m.say("%s", why)
		m.enter(now, messages.StateStopped, why, time.Time{})
		return
	}
	if m.state != messages.StateStopping {
		m.enter(now, messages.StateStopping, why, time.Time{})
	}
	if !m.stopping {
		m.stopSession(m.ladder(), why)
	}
}

// drain lets calls in flight finish for a while, then stops.
func (m *machine) drain(now time.Time) {
	const why = "drained by the operator"
	switch m.state {
	case messages.StateDraining:
		m.goal, m.goalWhy = goalStop, why
	case messages.StateReady:
		m.goal, m.goalWhy = goalStop, why
		m.enter(now, messages.StateDraining, why, time.Time{})
		m.setTimer(timerDrain, max(m.cfg.Timeouts.Drain, 0))
		m.do(cmdRouter{messages.DrainServer{Key: m.key()}})
	default:
		m.stop(now, why)
	}
}

// endDrain goes from draining to stopping.
func (m *machine) endDrain(now time.Time, why string) {
	m.enter(now, messages.StateStopping, why, time.Time{})
	m.stopSession(m.ladder(), why)
}

// recycle replaces an incarnation for the router, which needs a proof of death.
func (m *machine) recycle(now time.Time, e evRecycle) {
	if !m.current(e.Gen) || m.stopping || m.state != messages.StateReady {
		return // it is on its way out already
	}
	m.do(cmdEmit{m.about(messages.Event{Type: messages.EventServerRecycled, Reason: e.Reason})})
	m.say("recycling generation %d: %s", m.gen, e.Reason)
	m.goal, m.goalWhy = goalStart, "recycled: "+e.Reason
	m.replace(now, m.goalWhy)
}

// stopAll is the end of the bridge. It may come again, with a shorter ladder.
func (m *machine) stopAll(now time.Time, l messages.Ladder) {
	m.closing = true
	m.goal = goalStop
	if m.phase == phaseLive {
		if m.state != messages.StateStopping {
			m.enter(now, messages.StateStopping, "the bridge closes", time.Time{})
		}
		m.stopSession(l, "the bridge closes")
		return
	}
	m.stop(now, "the bridge closes")
	m.do(cmdOver{})
}
