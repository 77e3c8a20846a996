package actors

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/messages"
)

// Bounds of a probe's waiting.
const (
	probeWait   = 10 * time.Second // for the answer to a ping, at most
	confirmWait = 10 * time.Second // for the confirming list, at least
	probeKill   = 2 * time.Second  // for the proof of death after SIGKILL
)

// probing is how a session finds out that a ready server has hung.
//
//	quiet for probe_every ──► ping ──answer──► quiet …
//	                           └─miss─► again, `failures` times ──► list ──answer──► quiet …
//	                                                                 └─miss─► the incarnation has failed
//
// That the process lives needs no asking: its death is an event of its own. Every
// message of the server is a sign of life. Nothing is asked, and no miss counted,
// while the server has something to do for us: one that handles a message at a time
// answers no ping then. Calls have deadlines and fences of their own.
//
// The fields belong to the session's actor but for the atomic ones, which the
// workers write.
type probing struct {
	timer  *time.Timer // nil while asking, or when there is nothing to wait for
	asking bool        // a ping or the list is on its way
	misses int         // in a row
	began  time.Time   // of the first of them

	begun atomic.Int64 // calls that were given to the peer
	ended atomic.Int64 // calls that came back
	// lost is when a call last came back without its answer from a peer that goes
	// on, which happens over HTTP; its server may still be busy with it.
	lost atomic.Pointer[time.Time]
}

// What a session's probing says to itself.
type (
	probeDue struct{}
	probed   struct {
		sent    time.Time
		begun   int64 // calls begun by then
		confirm bool
		err     error
	}
)

// stopProbing ends the wait for the next probe.
func (s *session) stopProbing() {
	if s.probe.timer != nil {
		s.probe.timer.Stop()
		s.probe.timer = nil
	}
}

// probeIn asks after d whether a probe is due, if probing is on.
func (s *session) probeIn(c actor.Context, d time.Duration) {
	if s.ending() || s.cfg.Options.Server.Health.ProbeEvery <= 0 {
		return
	}
	s.stopProbing()
	root, self := c.ActorSystem().Root, c.Self()
	s.probe.timer = time.AfterFunc(max(d, 0), func() { root.Send(self, probeDue{}) })
}

// probeDue asks the server for a sign of life when it has been quiet for long enough
// with nothing to do.
func (s *session) probeDue(c actor.Context) {
	p := &s.probe
	p.timer = nil
	if s.ending() || p.asking {
		return
	}
	h := s.cfg.Options.Server.Health
	heard := s.peer.LastHeard()
	if heard.After(p.began) {
		p.misses = 0
	}
	switch quiet := time.Since(heard); {
	case s.busy(heard):
		s.probeIn(c, h.ProbeEvery)
	case p.misses >= max(h.Failures, 1):
		s.ask(c, true)
	case quiet < h.ProbeEvery:
		s.probeIn(c, h.ProbeEvery-quiet)
	default:
		s.ask(c, false)
	}
}

// busy reports whether the server has, or may have, something to do for us.
func (s *session) busy(heard time.Time) bool {
	p := &s.probe
	if p.ended.Load() < p.begun.Load() || s.listing {
		return true
	}
	lost := p.lost.Load()
	if lost == nil || heard.After(*lost) {
		return false
	}
	after := s.cfg.Options.Server.Timeouts.AbandonAfter // 0 = never
	return after <= 0 || time.Since(*lost) < after
}

// returned notes that a call came back.
func (s *session) returned(r messages.Reply, gone <-chan struct{}) {
	if r.Kind == messages.ReplyLost && !r.Proven {
		select {
		case <-gone:
		default:
			now := time.Now()
			s.probe.lost.Store(&now)
		}
	}
	s.probe.ended.Add(1)
}

// ask pings, or confirms what missed pings say, in a goroutine.
func (s *session) ask(c actor.Context, confirm bool) {
	srv := s.cfg.Options.Server
	wait := min(srv.Health.ProbeEvery, probeWait)
	if confirm {
		wait = max(srv.Timeouts.Start, confirmWait)
	}
	s.probe.asking = true
	m := probed{sent: time.Now(), begun: s.probe.begun.Load(), confirm: confirm}
	root, self, peer, parent := c.ActorSystem().Root, c.Self(), s.peer, s.ctx
	go func() {
		defer func() {
			if r := recover(); r != nil { // ours, and no evidence against the server
				s.cfg.Logger.Error("bug in a probe", "server", s.cfg.Key.String(), "panic", r, "stack", string(debug.Stack()))
				m.err = nil
			}
			root.Send(self, m)
		}()
		ctx, cancel := context.WithTimeout(parent, wait)
		defer cancel()
		if confirm {
			m.err = peer.Confirm(ctx)
		} else {
			m.err = peer.Ping(ctx)
		}
	}()
}

// probed judges the outcome of a probe.
func (s *session) probed(c actor.Context, m probed) {
	p := &s.probe
	p.asking = false
	if s.ending() {
		return
	}
	h := s.cfg.Options.Server.Health
	heard := s.peer.LastHeard()
	switch {
	case m.err == nil || heard.After(m.sent):
		p.misses = 0
		rest := h.ProbeEvery - time.Since(heard)
		if rest <= 0 { // there was nothing to ask
			rest = h.ProbeEvery
		}
		s.probeIn(c, rest)
	case s.busy(heard) || p.begun.Load() != m.begun:
		s.probeIn(c, h.ProbeEvery) // it got something to do meanwhile: no evidence
	case m.confirm:
		pings := "a ping"
		if p.misses != 1 {
			pings = fmt.Sprintf("%d pings", p.misses)
		}
		s.hung(c, "no answer to "+pings+" and a list", m.err)
	default:
		if p.misses == 0 {
			p.began = m.sent
		}
		p.misses++
		s.cfg.Logger.Warn("no answer to a ping", "server", s.cfg.Key.String(), "generation", s.cfg.Gen, "misses", p.misses, "err", m.err)
		if p.misses >= max(h.Failures, 1) {
			s.ask(c, true)
			return
		}
		s.probeIn(c, h.ProbeEvery-time.Since(m.sent))
	}
}

// hung ends an incarnation that answers nothing. Its stdin is closed without grace:
// whoever reads nothing does not see that either.
func (s *session) hung(c actor.Context, reason string, err error) {
	s.cfg.Logger.Error("the server hangs and is ended", "server", s.cfg.Key.String(), "generation", s.cfg.Gen, "reason", reason, "err", err)
	s.hang = reason
	s.lost(c)
	s.endPeer(messages.Ladder{SigTerm: s.cfg.Options.Server.Timeouts.SigTerm, Kill: probeKill})
}

// ending reports whether nothing is to be asked of the peer any more.
func (s *session) ending() bool {
	return s.peer == nil || s.gone || s.asked || s.over || s.bug != ""
}
