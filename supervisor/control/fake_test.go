package control

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for something that certainly comes.
const patience = 20 * time.Second

// fake is a bridge whose state the test sets.
type fake struct {
	call    func(ctx context.Context, c messages.CallTool) messages.Outcome
	since   time.Time
	damaged bool
	journal func(idOrKey string, limit int) ([]messages.JournalEntry, error)

	mu       sync.Mutex
	status   messages.Status
	tools    []messages.Tool
	events   []messages.Event
	logs     []messages.LogLine
	subs     map[int]func(messages.Event)
	logSubs  map[int]func(messages.LogLine)
	next     int
	operated []string
	waited   []string
	refuse   error
	cfg      config.Config

	approvals []messages.Approval
	changes   []messages.DefinitionChange
}

func newFake(servers ...string) *fake {
	f := &fake{subs: map[int]func(messages.Event){}, logSubs: map[int]func(messages.LogLine){}}
	for _, s := range servers {
		f.cfg.Servers = append(f.cfg.Servers, config.Server{Name: s})
		f.status.Servers = append(f.status.Servers, messages.ServerStatus{Name: s, State: messages.StateStarting})
	}
	return f
}

func (f *fake) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fake) Call(ctx context.Context, c messages.CallTool) messages.Outcome { return f.call(ctx, c) }
func (f *fake) CancelCall(id string) bool                                      { return id == "known" }
func (f *fake) Logger() *slog.Logger                                           { return slog.New(slog.DiscardHandler) }
func (f *fake) Config() *config.Config                                         { return &f.cfg }

func (f *fake) Catalogue() *messages.Catalogue {
	f.mu.Lock()
	defer f.mu.Unlock()
	return messages.NewCatalogue(7, f.tools, map[string]func(messages.Tool) bool{"plan": func(t messages.Tool) bool { return t.Effect == messages.ReadOnly }}, nil)
}

func (f *fake) Delivered(string) {}

func (f *fake) Result(client, view, server, id string) (json.RawMessage, bool) {
	if client+view+server+id != LocalClient+"plan"+"abc" {
		return nil, false
	}
	return json.RawMessage(`{"content":[ ]}`), true
}

func (f *fake) WaitListed(_ context.Context, server string) {
	f.locked(func() { f.waited = append(f.waited, server) })
}

func (f *fake) Status() messages.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.status
	s.Servers = slices.Clone(s.Servers)
	return s
}

func (f *fake) Operate(_ context.Context, verb messages.Verb, name string) error {
	f.locked(func() { f.operated = append(f.operated, string(verb)+" "+name) })
	return f.refuse
}

func (f *fake) Calls(context.Context) ([]messages.CallInfo, error) {
	return []messages.CallInfo{{CallID: "1", State: messages.CallQueued}}, nil
}

func (f *fake) JournalReach() (time.Time, bool) { return f.since, f.damaged }

func (f *fake) JournalEntries(idOrKey string, limit int) ([]messages.JournalEntry, error) {
	return f.journal(idOrKey, limit)
}

func (f *fake) Subscribe(fn func(messages.Event)) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	id := f.next
	f.subs[id] = fn
	return func() { f.locked(func() { delete(f.subs, id) }) }
}

func (f *fake) SubscribeLogs(fn func(messages.LogLine)) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	id := f.next
	f.logSubs[id] = fn
	return func() { f.locked(func() { delete(f.logSubs, id) }) }
}

func (f *fake) Events(since uint64) []messages.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []messages.Event
	for _, e := range f.events {
		if e.Seq > since {
			out = append(out, e)
		}
	}
	return out
}

func (f *fake) Logs(server string, n int) []messages.LogLine {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []messages.LogLine
	for _, l := range f.logs {
		if server == "" || l.Server == server {
			out = append(out, l)
		}
	}
	return out[max(0, len(out)-n):]
}

// emit records an event and tells every subscriber.
func (f *fake) emit(e messages.Event) {
	f.mu.Lock()
	e.Seq, e.Time = uint64(len(f.events)+1), time.Now()
	f.events = append(f.events, e)
	var subs []func(messages.Event)
	for _, s := range f.subs {
		subs = append(subs, s)
	}
	f.mu.Unlock()
	for _, s := range subs {
		s(e)
	}
}

func (f *fake) say(server, text string) {
	f.mu.Lock()
	l := messages.LogLine{Seq: uint64(len(f.logs) + 1), Time: time.Now(), Server: server, Source: "stderr", Text: text}
	f.logs = append(f.logs, l)
	var subs []func(messages.LogLine)
	for _, s := range f.logSubs {
		subs = append(subs, s)
	}
	f.mu.Unlock()
	for _, s := range subs {
		s(l)
	}
}

func (f *fake) set(name string, s messages.State, gen uint64) {
	f.locked(func() {
		for i := range f.status.Servers {
			if f.status.Servers[i].Name == name {
				f.status.Servers[i].State, f.status.Servers[i].Generation = s, gen
			}
		}
	})
	f.emit(messages.Event{Type: messages.EventServerState, Server: name, State: s.String()})
}

// serve starts a control server over the bridge and returns a client for it.
func serve(t *testing.T, f *fake, change ...func(*Options)) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "c.sock")
	l, err := Listen(path, f.Logger())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Bridge: f, Logger: f.Logger(), Version: func() Version { return Version{Version: "1.2", PID: 42} }}
	for _, c := range change {
		c(&o)
	}
	s := Serve(l, o)
	c := NewClient(path)
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.Shutdown(ctx)
	})
	return c
}

func (f *fake) Approvals(context.Context) ([]messages.Approval, error) { return f.approvals, nil }
func (f *fake) Approve(_ context.Context, id string) (messages.Approval, error) {
	return f.decide(id)
}
func (f *fake) Deny(_ context.Context, id string) (messages.Approval, error) { return f.decide(id) }

func (f *fake) decide(id string) (messages.Approval, error) {
	for _, a := range f.approvals {
		if a.ID == id {
			return a, nil
		}
	}
	return messages.Approval{}, fmt.Errorf("%w: %q", supervisor.ErrUnknownApproval, id)
}
func (f *fake) DefinitionChanges() []messages.DefinitionChange { return f.changes }

func (f *fake) Permission(t messages.Tool, _, _ string) (messages.Permission, string) {
	return t.Permission, t.Rule
}
