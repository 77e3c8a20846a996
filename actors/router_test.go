package actors

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// routerTest is a router with a session and a server supervisor made of paper.
type routerTest struct {
	t       *testing.T
	sys     *actor.ActorSystem
	router  *actor.PID
	session *actor.PID
	execs   chan messages.Exec
	cancels chan messages.CancelExec
	servers chan messages.Message
	logs    *syncBuffer
	mu      sync.Mutex
	events  []messages.Event
}

// syncBuffer collects what is logged.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

const patience = 30 * time.Second

func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

func newRouterTest(t *testing.T, emit Emit) *routerTest {
	return newRouterTestWith(t, emit, func(*RouterConfig) {})
}

func newRouterTestWith(t *testing.T, emit Emit, edit func(*RouterConfig)) *routerTest {
	r := &routerTest{t: t, execs: make(chan messages.Exec, 64), cancels: make(chan messages.CancelExec, 64), servers: make(chan messages.Message, 64), logs: &syncBuffer{}}
	logger := slog.New(slog.NewTextHandler(r.logs, nil))
	r.sys = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	servers := r.sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(messages.Message); ok {
			r.servers <- m
		}
	}))
	if emit == nil {
		emit = func(e messages.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		}
	}
	cfg := &config.Config{HasPermissions: true, Permissions: []config.Rule{{Action: messages.Allow}}}
	rc := RouterConfig{Gate: NewGate(cfg), Emit: emit, Logger: logger, ListWait: time.Second,
		Servers: func() *actor.PID { return servers }}
	edit(&rc)
	r.router = r.sys.Root.Spawn(NewRouter(rc))
	ready := make(chan struct{})
	r.session = r.sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			close(ready)
		case string: // come up, as the session itself
			c.Request(r.router, messages.SessionUp{Key: messages.Key{Server: m}, Gen: 1})
		case messages.Execute:
			r.execs <- m.Exec
		case messages.CancelExec:
			r.cancels <- m
		}
	}))
	<-ready
	t.Cleanup(func() {
		for _, pid := range []*actor.PID{r.router, r.session, servers} {
			_ = r.sys.Root.StopFuture(pid).Wait()
		}
		r.sys.Shutdown()
	})
	r.send(messages.ServerConfigured{Key: messages.Key{Server: "fs"}, Limits: messages.ServerLimits{MaxReads: 4, MaxSideEffects: 1, Queue: 64, CallTimeout: patience, AbandonAfter: patience}})
	tools := []messages.Tool{
		{Name: "mcp__fs__read", EndpointName: "fs__read", Server: "fs", RemoteName: "read", Effect: messages.ReadOnly, Listed: true},
		{Name: "mcp__fs__write", EndpointName: "fs__write", Server: "fs", RemoteName: "write", Listed: true},
	}
	r.send(messages.CatalogueChanged{Catalogue: messages.NewCatalogue(1, tools, nil, map[string]bool{"fs": true})})
	return r
}

func (r *routerTest) send(m any) { r.sys.Root.Send(r.router, m) }

func (r *routerTest) up() {
	r.sys.Root.Send(r.session, "fs")
	r.send(messages.ServerStateChanged{Key: messages.Key{Server: "fs"}, State: messages.StateReady})
}

func (r *routerTest) call(c messages.CallTool) <-chan messages.Outcome {
	reply := make(chan messages.Outcome, 1)
	r.send(messages.Submit{Call: c, Accepted: time.Now(), Reply: reply})
	return reply
}

func (r *routerTest) answer(e messages.Exec) {
	e.Boundary.Enter()
	r.send(messages.CallDone{Key: e.Key, Gen: e.Gen, CallID: e.CallID, Attempt: e.Attempt, Reply: messages.Reply{Kind: messages.ReplyResult, Raw: json.RawMessage(`{"content":[]}`)}})
}

func TestRouterCall(t *testing.T) {
	r := newRouterTest(t, nil)
	r.up()
	told := make(chan string, 8)
	reply := r.call(messages.CallTool{ID: "a", Tool: "fs/write", Args: json.RawMessage(`{"n":1}`), OnProgress: func(p json.RawMessage) {
		told <- string(p)
		if string(p) == `{"progress":2}` {
			panic("a hook with a bug")
		}
	}})
	e := receive(t, r.execs, "execute")
	if e.Remote != "write" || string(e.Args) != `{"n":1}` || e.Gen != 1 || e.Progress == nil {
		t.Fatalf("%+v", e)
	}
	e.Progress(json.RawMessage(`{"progress":1}`))
	e.Progress(json.RawMessage(`{"progress":2}`))
	if a, b := receive(t, told, "progress"), receive(t, told, "progress"); a != `{"progress":1}` || b != `{"progress":2}` {
		t.Errorf("progress %s, %s", a, b)
	}
	r.answer(e)
	if o := receive(t, reply, "outcome"); o.Kind != messages.OK || string(o.Result) != `{"content":[]}` {
		t.Errorf("%+v", o)
	}
	if !strings.Contains(r.logs.String(), "progress hook") {
		t.Error("the bug of the hook is not in the log")
	}
}

func TestRouterKeepsTime(t *testing.T) {
	r := newRouterTest(t, nil)
	r.up()
	queued := make([]<-chan messages.Outcome, 3)
	first := r.call(messages.CallTool{ID: "first", Tool: "fs/write"})
	e := receive(t, r.execs, "execute")
	for i := range queued {
		queued[i] = r.call(messages.CallTool{Tool: "fs/write", Timeout: time.Duration(3-i) * 20 * time.Millisecond})
	}
	for i := range queued {
		if o := receive(t, queued[i], "outcome"); o.Kind != messages.NotSent || o.Code != messages.CodeExpired {
			t.Errorf("%+v", o)
		}
	}
	r.answer(e)
	receive(t, first, "outcome")
}

func TestRouterTellsSessionsAndServers(t *testing.T) {
	r := newRouterTest(t, nil)
	reply := r.call(messages.CallTool{ID: "a", Tool: "fs/read"})
	if m, ok := receive(t, r.servers, "wake-up").(messages.WakeServer); !ok || m.Key.Server != "fs" {
		t.Fatalf("%+v", m)
	}
	r.up()
	e := receive(t, r.execs, "execute")
	e.Boundary.Enter()
	found := make(chan bool, 1)
	r.send(messages.Cancel{CallID: "a", Found: found})
	if !receive(t, found, "found") || receive(t, r.cancels, "cancel").CallID != "a" {
		t.Error("the cancel went astray")
	}
	report := make(chan messages.CallsReport, 1)
	r.send(messages.QueryCalls{Reply: report})
	if got := receive(t, report, "report"); len(got.Calls) != 1 || got.InFlight[e.Key] != 1 {
		t.Errorf("%+v", got)
	}
	done := make(chan struct{}, 1)
	r.send(messages.DrainAll{Done: done})
	r.answer(e)
	receive(t, done, "end of the drain")
	receive(t, reply, "outcome")
}

func TestRouterWithoutASessionAddress(t *testing.T) {
	r := newRouterTest(t, nil)
	r.send(messages.SessionUp{Key: messages.Key{Server: "fs"}, Gen: 1}) // nobody is the sender
	reply := r.call(messages.CallTool{Tool: "fs/read", Timeout: 50 * time.Millisecond})
	if o := receive(t, reply, "outcome"); o.Code != messages.CodeExpired {
		t.Errorf("%+v", o)
	}
}

// Whatever a hook or a bug does, every call gets its one outcome.
func TestRouterSurvivesBugs(t *testing.T) {
	r := newRouterTest(t, func(e messages.Event) {
		if e.Type == messages.EventCallSettled {
			panic("an event hook with a bug")
		}
	})
	r.up()
	reply := r.call(messages.CallTool{ID: "a", Tool: "fs/read"})
	r.answer(receive(t, r.execs, "execute"))
	if o := receive(t, reply, "outcome"); o.Kind != messages.OK {
		t.Errorf("%+v", o)
	}
	full := make(chan messages.Outcome) // without room: the router must not wait for it
	r.send(messages.Submit{Call: messages.CallTool{Tool: "fs/nothing"}, Reply: full})
	reply = r.call(messages.CallTool{Tool: "fs/nothing"})
	if o := receive(t, reply, "outcome"); o.Code != messages.CodeUnknownTool {
		t.Errorf("%+v", o)
	}
	for _, s := range []string{"event hook", "nobody can take the outcome"} {
		if !strings.Contains(r.logs.String(), s) {
			t.Errorf("%q is not in the log:\n%s", s, r.logs)
		}
	}
}

func TestRouterStopSettlesEverything(t *testing.T) {
	r := newRouterTest(t, nil)
	r.up()
	sent := r.call(messages.CallTool{ID: "sent", Tool: "fs/write"})
	receive(t, r.execs, "execute").Boundary.Enter()
	queued := r.call(messages.CallTool{ID: "queued", Tool: "fs/write"})
	if err := r.sys.Root.PoisonFuture(r.router).Wait(); err != nil { // after what is in its mailbox
		t.Fatal(err)
	}
	if o := receive(t, sent, "outcome"); o.Kind != messages.OutcomeUnknown {
		t.Errorf("%+v", o)
	}
	if o := receive(t, queued, "outcome"); o.Kind != messages.NotSent {
		t.Errorf("%+v", o)
	}
}

// Many callers, a session that answers from many goroutines, cancels in between:
// for the race detector, and for exactly one outcome each.
func TestRouterUnderLoad(t *testing.T) {
	r := newRouterTest(t, nil)
	r.up()
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				select {
				case e := <-r.execs:
					e.Progress(json.RawMessage(`{}`))
					if e.Boundary.Enter() {
						r.answer(e)
					} else {
						r.send(messages.CallDone{Key: e.Key, Gen: e.Gen, CallID: e.CallID, Attempt: e.Attempt})
					}
				case <-stop:
					return
				}
			}
		})
	}
	var callers sync.WaitGroup
	for c := range 16 {
		callers.Go(func() {
			for i := range 50 {
				id, tool := fmt.Sprintf("%d-%d", c, i), "fs/read"
				if i%5 == 0 {
					tool = "fs/write"
				}
				reply := r.call(messages.CallTool{ID: id, Tool: tool, Client: fmt.Sprint("client", c%3)})
				if i%7 == 0 {
					r.send(messages.Cancel{CallID: id, Left: i%2 == 0})
				}
				select {
				case o := <-reply:
					if o.Kind != messages.OK && o.Code != messages.CodeCancelled {
						t.Errorf("%s: %s/%s %s", id, o.Kind, o.Code, o.Message)
					}
				case <-time.After(patience):
					t.Errorf("%s has no outcome", id)
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	workers.Wait()
}
