package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/actors/upstream"
	"mcpbridge/config"
	"mcpbridge/messages"
)

// fakes brings up peers without processes. script says what the n-th dial of a server
// (from 1) does; nil is a peer that lives for ever.
type fakes struct {
	script func(server string, n int) behaviour

	mu    sync.Mutex
	dials map[string]int
	live  map[string]*fakePeer
	most  map[string]int // peers of a server that lived at once, at most
	now   map[string]int
	calls map[string]int // how often each tool was entered
}

// behaviour of one incarnation.
type behaviour struct {
	fail     *messages.Exit // the dial fails
	hang     bool           // the dial hangs until it is cancelled
	takes    time.Duration  // of the dial
	livesFor time.Duration  // after the dial; 0 = for ever
	exit     messages.Exit  // when it dies by itself
	slowStop time.Duration  // how long the ladder takes
	stuck    bool           // Stop brings nothing
	silent   bool           // it answers calls, but neither pings nor lists
	tools    []string
}

func newFakes(script func(server string, n int) behaviour) *fakes {
	return &fakes{script: script, dials: map[string]int{}, live: map[string]*fakePeer{}, most: map[string]int{}, now: map[string]int{}, calls: map[string]int{}}
}

func (f *fakes) dial(ctx context.Context, o upstream.Options) (upstream.Peer, messages.Listing, error) {
	name := o.Server.Name
	f.mu.Lock()
	f.dials[name]++
	n := f.dials[name]
	f.mu.Unlock()
	var b behaviour
	if f.script != nil {
		b = f.script(name, n)
	}
	o.OnSpawned(1000 + n)
	o.OnStderr(fmt.Sprintf("hello from %s, start %d", name, n))
	if b.hang {
		<-ctx.Done()
		return nil, messages.Listing{}, &upstream.Failure{Exit: messages.Exit{Reason: "cancelled", Stage: messages.StageHandshake, At: time.Now()}}
	}
	if b.takes > 0 {
		select {
		case <-time.After(b.takes):
		case <-ctx.Done():
			return nil, messages.Listing{}, &upstream.Failure{Exit: messages.Exit{Reason: "cancelled", Stage: messages.StageHandshake, At: time.Now()}}
		}
	}
	if b.fail != nil {
		return nil, messages.Listing{}, &upstream.Failure{Exit: *b.fail}
	}
	p := &fakePeer{f: f, o: o, b: b, gone: make(chan struct{}), done: make(chan struct{}), stop: make(chan struct{}), up: time.Now(), cancelled: map[string]chan struct{}{}}
	f.mu.Lock()
	f.live[name] = p
	f.now[name]++
	f.most[name] = max(f.most[name], f.now[name])
	f.mu.Unlock()
	go p.live()
	l, _ := p.List(ctx)
	return p, l, nil
}

func (f *fakes) count(server string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials[server]
}

// atOnce is how many peers of a server lived at once, at most.
func (f *fakes) atOnce(server string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most[server]
}

// alive is how many peers of a server live.
func (f *fakes) alive(server string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now[server]
}

// peer is the newest peer of a server.
func (f *fakes) peer(server string) *fakePeer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[server]
}

// fakePeer is one incarnation.
type fakePeer struct {
	f    *fakes
	o    upstream.Options
	b    behaviour
	gone chan struct{}
	done chan struct{}
	stop chan struct{}
	up   time.Time

	mu        sync.Mutex
	exit      messages.Exit
	dead      bool
	stopping  bool
	cancelled map[string]chan struct{}
}

// live is the life of the peer: it ends by itself, by Stop, or by die.
func (p *fakePeer) live() {
	var end <-chan time.Time
	if p.b.livesFor > 0 {
		end = time.After(p.b.livesFor)
	}
	select {
	case <-end:
		exit := p.b.exit
		if exit.Reason == "" {
			exit.Reason = "exit status 1"
		}
		p.die(exit)
	case <-p.stop:
		if p.b.stuck {
			<-p.gone
			return
		}
		if p.b.slowStop > 0 {
			select {
			case <-time.After(p.b.slowStop):
			case <-p.gone:
				return
			}
		}
		p.die(messages.Exit{Reason: "stopped"})
	case <-p.gone:
	}
}

// die ends the peer at once.
func (p *fakePeer) die(exit messages.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return
	}
	p.dead = true
	exit.Stage, exit.At = messages.StageRunning, time.Now()
	p.exit = exit
	close(p.gone)
	p.f.mu.Lock()
	p.f.now[p.o.Server.Name]--
	p.f.mu.Unlock()
	close(p.done)
}

func (p *fakePeer) Info() messages.PeerInfo {
	return messages.PeerInfo{Transport: "stdio", Protocol: "2025-11-25", PID: 1000, ServerName: p.o.Server.Name, HasTools: true}
}

func (p *fakePeer) List(context.Context) (messages.Listing, error) {
	names := p.b.tools
	if names == nil {
		names = []string{"echo", "hang", "pid", "sleep"}
	}
	l := messages.Listing{Discovered: len(names)}
	for _, n := range names {
		l.Tools = append(l.Tools, messages.ToolDef{Name: n, Description: n, InputSchema: json.RawMessage(`{"type":"object"}`),
			Raw: json.RawMessage(`{"name":"` + n + `"}`)})
	}
	return l, nil
}

func (p *fakePeer) Ping(ctx context.Context) error {
	if p.b.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (p *fakePeer) Confirm(ctx context.Context) error { return p.Ping(ctx) }

func (p *fakePeer) LastHeard() time.Time { return p.up }

func (p *fakePeer) Call(e messages.Exec) messages.Reply {
	if !e.Boundary.Enter() {
		return messages.Reply{Kind: messages.ReplyNotEntered, Err: "void"}
	}
	p.f.mu.Lock()
	p.f.calls[e.Remote]++
	p.f.mu.Unlock()
	cancelled := make(chan struct{})
	p.mu.Lock()
	p.cancelled[e.CallID] = cancelled
	p.mu.Unlock()
	lost := messages.Reply{Kind: messages.ReplyLost, Err: "the server is gone"}
	var after <-chan time.Time
	switch e.Remote {
	case "hang":
	case "sleep":
		var a struct{ Seconds float64 }
		_ = json.Unmarshal(e.Args, &a)
		after = time.After(time.Duration(a.Seconds * float64(time.Second)))
	default:
		c := make(chan time.Time)
		close(c)
		after = c
	}
	select {
	case <-after:
		text, _ := json.Marshal(fmt.Sprintf("%s generation %d %s", e.Remote, p.o.Gen, e.Args))
		return messages.Reply{Kind: messages.ReplyResult, Raw: json.RawMessage(`{"content":[{"type":"text","text":` + string(text) + `}]}`)}
	case <-cancelled:
		return messages.Reply{Kind: messages.ReplyError, Raw: json.RawMessage(`{"code":-32800,"message":"cancelled"}`)}
	case <-p.gone:
		return lost
	}
}

func (p *fakePeer) Cancel(id string, _ int, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.cancelled[id]; c != nil {
		close(c)
		delete(p.cancelled, id)
	}
}

func (p *fakePeer) Gone() <-chan struct{} { return p.gone }

func (p *fakePeer) Stop(l messages.Ladder) {
	p.mu.Lock()
	first := !p.stopping
	p.stopping = true
	p.mu.Unlock()
	if first {
		close(p.stop)
	} else if l.StdinClose == 0 && l.SigTerm == 0 && !p.b.stuck {
		p.die(messages.Exit{Reason: "signal: killed"})
	}
}

func (p *fakePeer) Done() <-chan struct{} { return p.done }

func (p *fakePeer) Exit() messages.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// fakeConfig is a configuration of fake stdio servers that allows everything.
func fakeConfig(names ...string) *config.Config {
	c := config.Default()
	c.Workspace = "/"
	for _, n := range names {
		s := config.DefaultServer()
		s.Name, s.Type, s.Command, s.Cwd = n, config.Stdio, "fake-"+n, "/"
		s.Effects = map[string]messages.Effect{"echo": messages.ReadOnly, "pid": messages.ReadOnly, "sleep": messages.ReadOnly}
		c.Servers = append(c.Servers, s)
	}
	c.HasPermissions = true
	c.Permissions = []config.Rule{{Action: messages.Allow}}
	return c
}

// openFakes opens a bridge over fakes.
func openFakes(t *testing.T, f *fakes, cfg *config.Config, opts ...Option) *Bridge {
	t.Helper()
	b, err := Open(t.Context(), cfg, append([]Option{WithDialer(f.dial)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// closeBridge closes a bridge within a bubble, and lets what is left of the engine end.
func closeBridge(t *testing.T, b *Bridge) {
	t.Helper()
	if err := b.Close(context.Background()); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Second)
}

func state(b *Bridge, name string) messages.State {
	s, _ := b.Status().Server(name)
	return s.State
}

// await waits until a server is in a state; in a bubble that costs no time.
func await(t *testing.T, b *Bridge, name string, want messages.State) messages.ServerStatus {
	t.Helper()
	deadline := time.Now().Add(24 * time.Hour)
	for {
		synctest.Wait() // what is on its way has arrived
		next := b.changed.after()
		s, _ := b.Status().Server(name)
		if s.State == want {
			return s
		}
		select {
		case <-next:
		case <-time.After(time.Until(deadline)):
			t.Fatalf("%s is %s (%s), want %s", name, s.State, s.Reason, want)
		}
	}
}
