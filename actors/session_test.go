package actors

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/actors/upstream"
	"mcpbridge/messages"
)

func TestSessionComesUpAndDies(t *testing.T) {
	play(t, nil, func(s *stage) {
		got := s.wants(&s.heard, "messages.SessionSpawned messages.SessionReady")
		if m := got[1].(messages.SessionReady); m.Gen != 7 || m.Info.PID != 42 || m.Listing.Discovered != 100 {
			t.Errorf("%+v", m)
		}
		s.execute("echo")
		s.wants(&s.routed, "messages.CallDone")
		s.peer.die(messages.Exit{Reason: "signal: killed", Stage: messages.StageRunning})
		s.wants(&s.routed, "messages.SessionLost")
		f := s.failure()
		if f.Exit.Reason != "signal: killed" || f.Gen != 7 || f.Error() != "fs generation 7: running: signal: killed" {
			t.Errorf("%+v", f)
		}
	})
}

func TestSessionStops(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.take(&s.heard)
		s.send(messages.StopSession{Gen: 6}) // of another incarnation
		if len(s.peer.stopped()) != 0 {
			t.Fatal("stopped for another")
		}
		l := messages.Ladder{StdinClose: time.Second}
		s.send(messages.StopSession{Gen: 7, Ladder: l})
		if got := s.peer.stopped(); len(got) != 1 || got[0] != l {
			t.Errorf("%+v", got)
		}
		s.wants(&s.routed, "messages.SessionLost")
		got := s.take(&s.heard) // Terminated is a system message and may overtake
		if len(got) != 2 {
			t.Fatalf("heard %s", kinds(got))
		}
		for _, m := range got {
			if e, ok := m.(messages.SessionEnded); ok && e.Exit.Reason != "stopped" {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A second StopSession is passed on: only the peer knows what is left to shorten.
func TestSessionStopIsShortened(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.peer.stubborn = true
		s.send(messages.StopSession{Gen: 7, Ladder: messages.Ladder{StdinClose: time.Minute}})
		s.send(messages.StopSession{Gen: 7})
		if n := len(s.peer.stopped()); n != 2 {
			t.Errorf("stopped %d times", n)
		}
		e := s.execute("echo") // on its way out nothing is dispatched
		if e.Boundary.Entered() {
			t.Error("entered")
		}
		if m := s.wants(&s.routed, "messages.SessionLost messages.CallDone")[1].(messages.CallDone); m.Reply.Kind != messages.ReplyNotEntered {
			t.Errorf("%+v", m)
		}
	})
}

func TestSessionDialFails(t *testing.T) {
	exit := messages.Exit{Reason: "npx not found", Stage: messages.StageSpawn, Permanent: true}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"failure": {&upstream.Failure{Exit: exit}, "spawn: npx not found"},
		"error":   {errors.New("odd"), "connect: odd"},
		"nothing": {nil, "connect: the dial brought no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			dial := func(context.Context, upstream.Options) (upstream.Peer, messages.Listing, error) {
				return nil, messages.Listing{}, tc.err
			}
			play(t, dial, func(s *stage) {
				f := s.failure()
				if got := string(f.Exit.Stage) + ": " + f.Exit.Reason; got != tc.want || f.Exit.At.IsZero() {
					t.Errorf("%q at %s, want %q", got, f.Exit.At, tc.want)
				}
			})
		})
	}
}

func TestSessionDialPanics(t *testing.T) {
	dial := func(context.Context, upstream.Options) (upstream.Peer, messages.Listing, error) { panic("oh") }
	play(t, dial, func(s *stage) {
		f := s.failure()
		if !strings.Contains(f.Exit.Reason, "oh") {
			t.Errorf("%+v", f)
		}
	})
}

// A stop while the dial is under way cancels it; a peer that comes up all the same
// is ended, and nobody hears that it was ready.
func TestSessionStopDuringDial(t *testing.T) {
	for name, late := range map[string]bool{"cancelled": false, "up all the same": true} {
		t.Run(name, func(t *testing.T) {
			var s0 *stage
			var peer *scriptedPeer
			dial := func(ctx context.Context, _ upstream.Options) (upstream.Peer, messages.Listing, error) {
				<-ctx.Done()
				if late {
					return peer, messages.Listing{}, nil
				}
				return nil, messages.Listing{}, ctx.Err()
			}
			peer = nil
			play(t, dial, func(s *stage) {
				s0, peer = s, s.peer
				e := s.execute("echo")
				if e.Boundary.Entered() {
					t.Error("entered before it was ready")
				}
				s.wants(&s.routed, "messages.CallDone")
				s.send(messages.StopSession{Gen: 7, Ladder: messages.Ladder{SigTerm: time.Second}})
				for _, m := range s.take(&s.heard) {
					if _, ok := m.(messages.SessionReady); ok {
						t.Error("it said that it was ready")
					}
				}
				if got := len(s0.peer.stopped()) > 0; got != late {
					t.Errorf("stopped: %v", got)
				}
			})
		})
	}
}

// An answer that was read before the death counts: the end is told after it.
func TestSessionEndsAfterItsWorkers(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.take(&s.heard)
		s.execute("held")
		s.peer.die(messages.Exit{Reason: "eof"})
		s.wants(&s.routed, "messages.SessionLost")
		s.wants(&s.heard, "messages.SessionLost")
		time.Sleep(time.Second)
		if m := s.wants(&s.routed, "messages.CallDone")[0].(messages.CallDone); m.Reply.Kind != messages.ReplyResult {
			t.Errorf("%+v", m)
		}
		s.wants(&s.heard, "*actors.SessionFailure terminated")
	})
}

func TestSessionRecoversWorkers(t *testing.T) {
	play(t, nil, func(s *stage) {
		for tool, want := range map[string]messages.ReplyKind{"panic early": messages.ReplyNotEntered, "panic late": messages.ReplyLost} {
			s.execute(tool)
			if m := s.wants(&s.routed, "messages.CallDone")[0].(messages.CallDone); m.Reply.Kind != want || m.CallID != tool {
				t.Errorf("%+v", m)
			}
		}
		s.execute("echo") // the session lives
		s.wants(&s.routed, "messages.CallDone")
	})
}

func TestSessionRefusesOtherGenerations(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.send(messages.Execute{Exec: messages.Exec{Key: testKey, Gen: 6, CallID: "x", Boundary: &messages.Boundary{}}})
		if m := s.wants(&s.routed, "messages.CallDone")[0].(messages.CallDone); m.Reply.Kind != messages.ReplyNotEntered || m.Gen != 6 {
			t.Errorf("%+v", m)
		}
		s.send(messages.CancelExec{Key: testKey, Gen: 6, CallID: "x"})
		s.send(messages.CancelExec{Key: testKey, Gen: 7, CallID: "y"})
		if got := strings.Join(s.peer.cancels, " "); got != "y" {
			t.Errorf("cancelled %q", got)
		}
	})
}

// A storm of list_changed costs one listing a second, and the last change is seen.
func TestSessionListsAgain(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.take(&s.heard)
		s.peer.slowList = 300 * time.Millisecond
		for range 100 {
			s.opts.OnListChanged()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if n := s.peer.listed(); n < 4 || n > 7 {
			t.Errorf("listed %d times in 5 s of changes", n)
		}
		got := s.take(&s.heard)
		if last := got[len(got)-1].(messages.ToolsListed); last.Listing.Discovered != s.peer.listed() || len(got) != s.peer.listed() {
			t.Errorf("%d listings, heard %d, the last is %+v", s.peer.listed(), len(got), last)
		}
	})
}

// A listing that fails keeps what was listed, tells why, and is tried again.
func TestSessionListingFails(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.take(&s.heard)
		s.peer.listErr = errors.New("no")
		s.opts.OnListChanged()
		time.Sleep(2 * time.Second)
		l := s.wants(&s.heard, "messages.ToolsListed")[0].(messages.ToolsListed).Listing
		if l.Discovered != 100 || len(l.Issues) != 1 || l.Issues[0].Stage != messages.StageListTools || !strings.Contains(l.Issues[0].Message, "no") {
			t.Errorf("%+v", l)
		}
		s.peer.mu.Lock()
		s.peer.listErr = nil
		s.peer.mu.Unlock()
		time.Sleep(6 * time.Second)
		l = s.wants(&s.heard, "messages.ToolsListed")[0].(messages.ToolsListed).Listing
		if l.Discovered != 2 || len(l.Issues) != 0 {
			t.Errorf("%+v", l)
		}
		time.Sleep(time.Hour)
		s.wants(&s.heard, "")
	})
}

// A parent that is stopped without a word takes the process with it.
func TestSessionReleasesItsPeer(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.sys.Root.Stop(s.parent)
		synctest.Wait()
		if len(s.peer.stopped()) != 1 {
			t.Error("the peer lives on")
		}
	})
}

func TestSessionNoise(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.take(&s.heard)
		s.opts.OnNoise(5, true)
		if m := s.wants(&s.heard, "messages.SessionNoise")[0].(messages.SessionNoise); m.Lines != 5 || !m.Degraded || m.Gen != 7 {
			t.Errorf("%+v", m)
		}
	})
}
