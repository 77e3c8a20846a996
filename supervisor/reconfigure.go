package supervisor

import (
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// A reload as one server sees it. Its entry is replaced in place where the process can go
// on; otherwise the process is ended first, and the new entry counts once it is down: no
// incarnation ever runs on two entries, and no new one beside an old one.

// evReload brings another entry of a server, or another word on the whole bridge.
type evReload struct {
	cfg     config.Server
	off     bool    // enabled: false of the whole bridge
	process bool    // what is started or connected to is another one
	stored  *stored // what the server of this entry listed in an earlier run
	issue   *messages.Issue
}

// evRemove says that the server is gone from the configuration. removal is given back by
// cmdGone.
type evRemove struct{ removal uint64 }

func (evReload) event() {}
func (evRemove) event() {}

// cmdGone says that nothing of a removed server is left.
type cmdGone struct{ removal uint64 }

func (cmdGone) command() {}

const (
	reasonReload  = "its configuration has changed"
	reasonRemoved = "removed from the configuration"
)

// meant reports whether the entry that counts lets the server run.
func (m *machine) meant() bool { return !m.bridgeOff && m.cfg.Startable() }

// reload takes another entry.
func (m *machine) reload(now time.Time, e evReload) {
	if m.closing {
		return
	}
	back := m.leaving
	m.leaving = false
	if m.next != nil && !e.process { // the process has been found wanting before
		e.process, e.stored, e.issue = true, m.next.stored, m.next.issue
	}
	starts := !e.off && e.cfg.Startable()
	switch {
	case !e.process && !back && starts && m.meant():
		m.inPlace(now, e)
	case m.phase == phaseLive:
		m.next = &e
		if m.goal != goalStop || back { // otherwise it stays down: an operator said so
			m.goal, m.goalWhy = goalReload, reasonReload
		}
		m.windDown(now, reasonReload, !starts)
	default:
		m.phase = phaseNone
		m.releaseSlot()
		m.cancel(timerRetry, timerCooldown)
		m.adopt(e)
		if back { // the registry has dropped its row, or will
			m.show()
		}
		switch {
		case m.treeAlive || m.state == messages.StateStopped && m.meant() && !back: // only a person brings it up
			m.configure()
			m.show()
		default:
			m.boot(now)
		}
	}
}

// inPlace changes what needs no other process.
func (m *machine) inPlace(now time.Time, e evReload) {
	before := m.cfg
	m.cfg = e.cfg
	m.pol.cfg = newPolicy(e.cfg.Restart).cfg
	m.row.Required, m.row.Source = e.cfg.Required, e.cfg.Source
	if serverLimits(before) != serverLimits(e.cfg) {
		m.configure()
	}
	if m.state == messages.StateIdle && before.Connect == config.ConnectLazy && e.cfg.Connect == config.ConnectStartup {
		m.begin(now, reasonReload)
		return
	}
	m.show()
}

// adopt makes an entry the one that counts. Nothing of the one before runs any more, and
// its failures are no concern of the new one.
func (m *machine) adopt(e evReload) {
	m.cfg, m.bridgeOff, m.pol = e.cfg, e.off, newPolicy(e.cfg.Restart)
	m.row.Required, m.row.Source, m.row.Transport = e.cfg.Required, e.cfg.Source, shownTransport(e.cfg.Type)
	m.row.LastExit, m.row.Issues = nil, nil
	if e.issue != nil {
		m.row.Issues = []messages.Issue{*e.issue}
	}
	if !e.process {
		return
	}
	m.stored = e.stored
	m.row.Protocol, m.row.Instructions = "", ""
	if !m.meant() && m.listing != nil { // what another program offered is not kept for whoever comes
		m.listing, m.row.Tools = nil, 0
		m.do(cmdRegistry{messages.ServerGone{Key: m.key()}})
	}
}

// adoptNext makes the entry that waited for the end of the process the one that counts.
func (m *machine) adoptNext() {
	if m.next != nil {
		e := *m.next
		m.next = nil
		m.adopt(e)
	}
}

// configure tells the router how the server is scheduled.
func (m *machine) configure() {
	m.do(cmdRouter{messages.ServerConfigured{Key: m.key(), Limits: serverLimits(m.cfg)}})
}

// windDown ends the live session: after its calls where it takes any, at once where it is
// only coming up. Unless it is for good, what is queued for one that is coming up waits
// for its successor.
func (m *machine) windDown(now time.Time, why string, forGood bool) {
	switch m.state {
	case messages.StateReady:
		m.say("draining: %s", why)
		m.enter(now, messages.StateDraining, why, time.Time{})
		m.setTimer(timerDrain, max(m.cfg.Timeouts.Drain, 0))
		m.do(cmdRouter{messages.DrainServer{Key: m.key()}})
	case messages.StateStarting:
		if forGood {
			m.enter(now, messages.StateStopping, why, time.Time{})
		}
		if !m.stopping && (forGood || !m.lost) {
			m.stopSession(m.ladder(), why)
		}
	}
}

// remove takes the server out, after its calls.
func (m *machine) remove(now time.Time, removal uint64) {
	if m.closing {
		return
	}
	m.leaving, m.removal, m.next = true, removal, nil
	switch {
	case m.phase == phaseLive:
		m.goal, m.goalWhy = goalStop, reasonRemoved
		m.windDown(now, reasonRemoved, true)
	case m.treeAlive:
		m.warn("%s, but processes of generation %d could not be proven dead: it is shown until `bridgectl reset %s`", reasonRemoved, m.gen, m.cfg.Name)
	default:
		m.leave(now)
	}
}

// leave is the end of a removed server.
func (m *machine) leave(now time.Time) {
	m.phase = phaseNone
	m.releaseSlot()
	m.cancel(timerRetry, timerCooldown)
	m.say("%s", reasonRemoved)
	m.enter(now, messages.StateStopped, reasonRemoved, time.Time{})
	m.listing, m.stored, m.row.Tools = nil, nil, 0
	m.do(cmdRouter{messages.ServerRemoved{Key: m.key()}})
	m.do(cmdRegistry{messages.ServerGone{Key: m.key()}})
	m.do(cmdGone{m.removal})
}
