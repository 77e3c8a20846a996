package supervisor

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/messages"
)

// What a bug costs (failure model: a panic in the handler of one message loses that
// message). Nobody is brought back by guessing what it said:
//
//   - router and registry keep their state and let the servers tell them again all that
//     they know (messages.Retell);
//   - a session ends its incarnation, with the proof of death that belongs to it;
//   - a server that lost the end of its session looks at the session's report again;
//   - what is asked and not answered is asked again: spawn slots, the end of the bridge.

const (
	// retellAfter brings the wishes of several together, and keeps a bug that meets every
	// telling from turning in a circle as fast as it can.
	retellAfter = time.Second
	// slotAgain is when a slot is asked for again. Thousands of servers may stand in line
	// for longer: asking twice changes nothing.
	slotAgain = 10 * time.Second
	// goneAgain is how often the end of one session is looked at.
	goneAgain = 3
)

// evRetell says that somebody may have lost what the server has said.
type evRetell struct{}

func (evRetell) event() {}

// retellDue is retellAfter later.
type retellDue struct{}

// retell passes the wish on to every server, soon.
func (s *servers) retell(c actor.Context) {
	now := time.Now()
	if now.Sub(s.retellAsked) < retellAfter {
		return
	}
	s.retellAsked = now
	root, self := c.ActorSystem().Root, c.Self()
	s.retellTimer = time.AfterFunc(retellAfter, func() { root.Send(self, retellDue{}) })
}

func (s *servers) retellNow(c actor.Context) {
	s.log.Warn("every server tells again what it knows")
	for _, pid := range s.children {
		c.Send(pid, messages.Retell{})
	}
}

// retell says again what router and registry know of the server. What they have heard
// before changes nothing.
func (m *machine) retell() {
	m.configure()
	m.do(cmdRouter{messages.ServerStateChanged{Key: m.key(), State: m.state, Reason: m.reason, NextRetry: m.retry}})
	if m.listing != nil {
		m.do(cmdRegistry{messages.ListingChanged{Key: m.key(), Listing: *m.listing}})
	}
	m.show()
	switch {
	case m.phase == phaseLive && m.lost:
		m.do(cmdRouter{messages.SessionLost{Key: m.key(), Gen: m.gen}})
	case m.phase == phaseLive && m.wasReady && !m.stopping:
		m.do(cmdSessionUp{m.gen})
		if m.state == messages.StateDraining {
			m.do(cmdRouter{messages.DrainServer{Key: m.key()}})
		}
	case m.phase == phaseNone && m.row.LastExit != nil:
		m.do(cmdRouter{m.downOf(*m.row.LastExit)})
	}
}

// downOf is what the router hears of the end of the generation.
func (m *machine) downOf(exit messages.Exit) messages.SessionDown {
	return messages.SessionDown{Key: m.key(), Gen: m.gen, Proven: !exit.TreeAlive && !m.cfg.Remote(), Reason: exit.Reason}
}

// lookAgain is for a bug that may have cost the end of the session: it is looked for in
// the session's report.
func (s *server) lookAgain(c actor.Context) {
	if s.child == nil || s.report.Load() == nil || s.looked >= goneAgain {
		return
	}
	s.looked++
	c.Send(c.Self(), sessionGone{s.childGen})
}
