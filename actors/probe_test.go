package actors

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// probes is a stage whose server is probed every 30 s and may miss 3.
func probes(t *testing.T, change func(*config.Server), f func(s *stage)) {
	t.Helper()
	srv := config.DefaultServer()
	srv.Health = config.Health{ProbeEvery: 30 * time.Second, Failures: 3}
	if change != nil {
		change(&srv)
	}
	playWith(t, srv, nil, func(s *stage) {
		s.take(&s.heard)
		f(s)
	})
}

// asked waits for d and says how often the server was asked by then.
func (s *stage) asked(d time.Duration, pings, confirms int) {
	s.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if p, c := s.peer.asked(); p != pings || c != confirms {
		s.t.Fatalf("%d pings and %d lists, want %d and %d", p, c, pings, confirms)
	}
}

// A server that answers nothing is asked as often as the settings say, then for its
// tools, and then ended without grace for its stdin.
func TestProbeFindsHungServer(t *testing.T) {
	probes(t, nil, func(s *stage) {
		s.peer.set(func() { s.peer.mute = true })
		s.asked(29*time.Second, 0, 0)
		s.asked(2*time.Second, 1, 0)
		s.asked(30*time.Second, 2, 0)
		s.asked(30*time.Second, 3, 0)
		s.asked(10*time.Second, 3, 1)
		s.wants(&s.routed, "")
		s.asked(28*time.Second, 3, 1)
		if len(s.peer.stopped()) != 0 {
			t.Fatal("ended before the list had its time")
		}
		s.asked(2*time.Second, 3, 1)
		s.wants(&s.routed, "messages.SessionLost")
		f := s.failure()
		if f.Exit.Reason != "no answer to 3 pings and a list" || f.Exit.Stage != messages.StageRunning || f.Exit.Clean || !strings.Contains(f.Exit.Hint, "probe_every") {
			t.Errorf("%+v", f.Exit)
		}
		if got := s.peer.stopped(); len(got) != 1 || got[0] != (messages.Ladder{SigTerm: 5 * time.Second, Kill: probeKill}) {
			t.Errorf("%+v", got)
		}
	})
}

// While the server is being ended, nothing is dispatched any more, and a stop is an
// end that was asked for.
func TestProbeFailureThenStop(t *testing.T) {
	probes(t, func(s *config.Server) { s.Health.Failures, s.Timeouts.Start = 1, time.Second }, func(s *stage) {
		s.peer.set(func() { s.peer.mute, s.peer.stubborn = true, true })
		s.asked(51*time.Second, 1, 1) // the list has 10 s at least
		s.wants(&s.routed, "messages.SessionLost")
		if e := s.execute("echo"); e.Boundary.Entered() {
			t.Error("entered")
		}
		s.send(messages.StopSession{Gen: 7})
		s.peer.die(messages.Exit{Reason: "signal: killed"})
		for _, m := range s.take(&s.heard) {
			if e, ok := m.(messages.SessionEnded); ok && e.Exit.Reason != "no answer to a ping and a list" {
				t.Errorf("%+v", e)
			}
		}
	})
}

// The list is the last word: a server that only ignores pings lives.
func TestProbeConfirms(t *testing.T) {
	probes(t, nil, func(s *stage) {
		s.peer.set(func() { s.peer.noPong = true })
		s.asked(101*time.Second, 3, 1)
		s.asked(time.Hour, 3+3*36, 1+36)
		if len(s.peer.stopped()) != 0 {
			t.Error("ended")
		}
		s.wants(&s.heard, "")
	})
}

// An answer in between begins the count again.
func TestProbeCountsMissesInARow(t *testing.T) {
	probes(t, nil, func(s *stage) {
		for range 50 {
			s.peer.set(func() { s.peer.mute = true })
			time.Sleep(75 * time.Second) // two misses
			s.peer.set(func() { s.peer.mute = false })
			time.Sleep(15*time.Second + time.Millisecond) // the third is answered
		}
		if p, c := s.peer.asked(); p != 150 || c != 0 {
			t.Errorf("%d pings and %d lists", p, c)
		}
		s.wants(&s.heard, "")
	})
}

// Whatever the server says is a sign of life: it is not asked for one, and a miss is
// forgotten.
func TestProbeHearsEveryMessage(t *testing.T) {
	probes(t, nil, func(s *stage) {
		s.peer.set(func() { s.peer.mute = true })
		for range 100 {
			time.Sleep(20 * time.Second)
			s.peer.hear()
		}
		s.asked(0, 0, 0)
		for range 100 { // each ping is missed, and something else comes after its time
			time.Sleep(45 * time.Second)
			s.peer.hear()
		}
		s.asked(0, 100, 0)
		time.Sleep(35 * time.Second) // a ping waits
		s.peer.hear()                // and this is no answer to it
		s.asked(29*time.Second, 101, 0)
		s.wants(&s.heard, "")
	})
}

// A server that handles a message at a time answers no ping during a call: it is not
// asked, however long that takes.
func TestProbeSparesBusyServer(t *testing.T) {
	probes(t, nil, func(s *stage) {
		s.peer.set(func() { s.peer.mute = true })
		s.execute("held")
		s.asked(24*time.Hour, 0, 0)
		s.peer.release <- messages.Reply{Kind: messages.ReplyResult}
		s.asked(29*time.Second, 0, 0)
		s.asked(time.Hour, 3, 1)
		s.failure()
	})
}

// A call that begins while a probe waits takes its evidence away; what was missed
// before still counts when the call has brought no message.
func TestProbeMeetsCall(t *testing.T) {
	for name, tc := range map[string]struct {
		at              time.Duration
		pings, confirms int
	}{
		"ping":    {95 * time.Second, 3, 0},
		"confirm": {110 * time.Second, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			probes(t, func(s *config.Server) { s.Timeouts.AbandonAfter = time.Minute }, func(s *stage) {
				s.peer.set(func() { s.peer.mute = true })
				s.asked(tc.at, tc.pings, tc.confirms)
				s.execute("held")
				s.asked(24*time.Hour, tc.pings, tc.confirms)
				// Over HTTP a cancelled call comes back, and its server may still be busy
				// with it.
				s.peer.release <- messages.Reply{Kind: messages.ReplyLost}
				s.asked(59*time.Second, tc.pings, tc.confirms)
				if len(s.peer.stopped()) != 0 {
					t.Fatal("ended while busy")
				}
				time.Sleep(5 * time.Minute)
				s.failure()
			})
		})
	}
}

// A call that came back without an answer and is never to be abandoned holds the
// probes until the server is heard.
func TestProbeHeldByFence(t *testing.T) {
	probes(t, func(s *config.Server) { s.Timeouts.AbandonAfter = 0 }, func(s *stage) {
		s.peer.set(func() { s.peer.mute = true })
		s.execute("held")
		time.Sleep(time.Second)
		s.peer.release <- messages.Reply{Kind: messages.ReplyLost}
		s.asked(24*time.Hour, 0, 0)
		s.peer.hear()
		s.asked(time.Hour, 3, 1)
		s.failure()
	})
}

// Nor is a server asked that is listing its tools.
func TestProbeSparesListing(t *testing.T) {
	probes(t, nil, func(s *stage) {
		s.peer.set(func() { s.peer.mute, s.peer.slowList = true, time.Hour })
		s.opts.OnListChanged()
		s.asked(time.Hour-time.Minute, 0, 0)
		s.peer.set(func() { s.peer.mute = false })
		time.Sleep(5 * time.Minute)
		s.wants(&s.heard, "messages.ToolsListed")
	})
}

func TestProbeOff(t *testing.T) {
	probes(t, func(s *config.Server) { s.Health.ProbeEvery = 0 }, func(s *stage) {
		s.peer.set(func() { s.peer.mute = true })
		s.asked(24*time.Hour, 0, 0)
		s.wants(&s.heard, "")
	})
}

// A stop while a probe waits does not wait for it.
func TestProbeMeetsStop(t *testing.T) {
	probes(t, nil, func(s *stage) {
		s.peer.set(func() { s.peer.mute = true })
		s.asked(35*time.Second, 1, 0)
		s.send(messages.StopSession{Gen: 7})
		got := s.take(&s.heard)
		if len(got) != 2 { // the end, and that the actor is gone
			t.Errorf("heard %s", kinds(got))
		}
		s.asked(time.Hour, 1, 0)
	})
}
