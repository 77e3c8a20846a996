package actors

import (
	"context"
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

	// The probes.
	heard    time.Time
	mute     bool // pings and lists get no answer
	noPong   bool // pings get none
	pings    []time.Time
	confirms []time.Time
	onceDone sync.Once
}

func newScriptedPeer() *scriptedPeer {
	return &scriptedPeer{gone: make(chan struct{}), done: make(chan struct{}), release: make(chan messages.Reply), heard: time.Now()}
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

func (p *scriptedPeer) Ping(ctx context.Context) error { return p.sign(ctx, &p.pings, true) }

func (p *scriptedPeer) Confirm(ctx context.Context) error { return p.sign(ctx, &p.confirms, false) }

func (p *scriptedPeer) sign(ctx context.Context, asked *[]time.Time, ping bool) error {
	p.mu.Lock()
	*asked = append(*asked, time.Now())
	mute := p.mute || p.noPong && ping
	p.mu.Unlock()
	if mute {
		<-ctx.Done()
		return ctx.Err()
	}
	p.hear()
	return nil
}

func (p *scriptedPeer) LastHeard() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard
}

// hear is a message of the server.
func (p *scriptedPeer) hear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
}

// set changes the script.
func (p *scriptedPeer) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// asked counts pings and confirming lists so far.
func (p *scriptedPeer) asked() (pings, confirms int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pings), len(p.confirms)
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
			if r.Kind != messages.ReplyLost {
				p.hear()
			}
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
	playWith(t, config.DefaultServer(), dial, f)
}

// playWith is play with a server's settings.
func playWith(t *testing.T, srv config.Server, dial upstream.DialFunc, f func(s *stage)) {
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
		cfg := SessionConfig{Key: testKey, Gen: 7, Router: s.router, Options: upstream.Options{Server: srv},
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
