package actors

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/actors/upstream"
	"mcpbridge/config"
	"mcpbridge/messages"
)

// stage is a bubble with a session in it, and everybody who hears from it.
type stage struct {
	t       *testing.T
	sys     *actor.ActorSystem
	parent  *actor.PID
	router  *actor.PID
	session *actor.PID
	peer    *scriptedPeer
	opts    upstream.Options // as the dial got them

	mu     sync.Mutex
	heard  []any // by the parent, failures and the end among them
	routed []any
}

// boss is the parent of the session; it treats failures as server/<name> does.
type boss struct {
	s   *stage
	cfg SessionConfig
}

func (b *boss) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		b.s.session = c.Spawn(NewSession(b.cfg))
	case *actor.Terminated:
		b.s.note(&b.s.heard, "terminated")
	case messages.Message:
		b.s.note(&b.s.heard, m)
	}
}

func (b *boss) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	b.s.note(&b.s.heard, reason)
	sup.StopChildren(child)
}

func (s *stage) note(list *[]any, m any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, m)
}

// take returns what was heard since the last take, with the bubble at rest.
func (s *stage) take(list *[]any) []any {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := *list
	*list = nil
	return out
}

func kinds(list []any) string {
	var out []string
	for _, m := range list {
		if w, ok := m.(string); ok {
			out = append(out, w)
			continue
		}
		out = append(out, reflect.TypeOf(m).String())
	}
	return strings.Join(out, " ")
}

func (s *stage) wants(list *[]any, want string) []any {
	s.t.Helper()
	got := s.take(list)
	if kinds(got) != want {
		s.t.Fatalf("heard %s, want %s", kinds(got), want)
	}
	return got
}

// failure waits for the end of a session that nobody asked for. Failures and ends are
// system messages, which overtake what was said before.
func (s *stage) failure() *SessionFailure {
	s.t.Helper()
	var failed *SessionFailure
	got := s.take(&s.heard)
	for _, m := range got {
		switch m := m.(type) {
		case *SessionFailure:
			failed = m
		case string:
			if failed != nil {
				return failed
			}
		}
	}
	s.t.Fatalf("heard %s, want a failure and then the end", kinds(got))
	return nil
}

func (s *stage) send(m any) {
	synctest.Wait()
	s.sys.Root.Send(s.session, m)
	synctest.Wait()
}

func (s *stage) execute(tool string) messages.Exec {
	e := messages.Exec{Key: testKey, Gen: 7, CallID: tool, Attempt: 1, Remote: tool, Boundary: &messages.Boundary{}}
	s.send(messages.Execute{Exec: e})
	return e
}

var testKey = messages.Key{Server: "fs"}

// scriptedPeer is a peer under the test's hand.
type scriptedPeer struct {
	mu       sync.Mutex
	listErr  error
	lists    int
	slowList time.Duration
	stops    []messages.Ladder
	cancels  []string
	gone     chan struct{}
	done     chan struct{}
	release  chan messages.Reply // of a held call
	exit     messages.Exit
	stubborn bool
	onceGone sync.Once
	onceDone sync.Once
}

func newScriptedPeer() *scriptedPeer {
	return &scriptedPeer{gone: make(chan struct{}), done: make(chan struct{}), release: make(chan messages.Reply)}
}

func (p *scriptedPeer) Info() messages.PeerInfo { return messages.PeerInfo{PID: 42} }

func (p *scriptedPeer) List(context.Context) (messages.Listing, error) {
	p.mu.Lock()
	p.lists++
	n, err, slow := p.lists, p.listErr, p.slowList
	p.mu.Unlock()
	time.Sleep(slow)
	return messages.Listing{Discovered: n}, err
}

func (p *scriptedPeer) Call(e messages.Exec) messages.Reply {
	switch e.Remote {
	case "panic early":
		panic("early")
	case "panic late":
		e.Boundary.Enter()
		panic("late")
	case "held":
		e.Boundary.Enter()
		select {
		case r := <-p.release:
			return r
		case <-p.gone:
			time.Sleep(100 * time.Millisecond) // it was read already, and takes its time
			return messages.Reply{Kind: messages.ReplyResult, Raw: []byte(`{}`)}
		}
	}
	e.Boundary.Enter()
	return messages.Reply{Kind: messages.ReplyResult, Raw: []byte(`{}`)}
}

func (p *scriptedPeer) Cancel(id string, _ int, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancels = append(p.cancels, id)
}
func (p *scriptedPeer) Gone() <-chan struct{} { return p.gone }
func (p *scriptedPeer) Done() <-chan struct{} { return p.done }
func (p *scriptedPeer) Exit() messages.Exit   { return p.exit }

func (p *scriptedPeer) Stop(l messages.Ladder) {
	p.mu.Lock()
	p.stops = append(p.stops, l)
	stubborn := p.stubborn
	p.mu.Unlock()
	if !stubborn {
		p.die(messages.Exit{Reason: "stopped"})
	}
}

func (p *scriptedPeer) stopped() []messages.Ladder {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stops
}

func (p *scriptedPeer) listed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
}

func (p *scriptedPeer) die(exit messages.Exit) {
	p.onceDone.Do(func() {
		p.exit = exit
		p.onceGone.Do(func() { close(p.gone) })
		close(p.done)
	})
}

// play runs a session in a bubble. dial nil brings the peer up at once.
func play(t *testing.T, dial upstream.DialFunc, f func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, peer: newScriptedPeer()}
		s.sys = actor.NewActorSystem(
			actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
			actor.WithDeadLetterThrottleInterval(time.Microsecond))
		s.router = s.sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
			if m, ok := c.Message().(messages.Message); ok {
				s.note(&s.routed, m)
			}
		}))
		own := dial
		if own == nil {
			own = func(context.Context, upstream.Options) (upstream.Peer, messages.Listing, error) {
				return s.peer, messages.Listing{Discovered: 100}, nil
			}
		}
		cfg := SessionConfig{Key: testKey, Gen: 7, Router: s.router, Options: upstream.Options{Server: config.DefaultServer()},
			Dial: func(ctx context.Context, o upstream.Options) (upstream.Peer, messages.Listing, error) {
				s.opts = o
				o.OnSpawned(42)
				return own(ctx, o)
			}}
		b := &boss{s, cfg}
		s.parent = s.sys.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return b }))
		synctest.Wait()
		f(s)
		synctest.Wait()
		s.sys.Root.Stop(s.parent)
		synctest.Wait()
		s.peer.die(messages.Exit{})
		s.sys.Root.Stop(s.router)
		s.sys.Shutdown()
		time.Sleep(time.Minute)
	})
}

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
		f := s.wants(&s.heard, "*actors.SessionFailure terminated")[0].(*SessionFailure)
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
		s.wants(&s.heard, "")
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
