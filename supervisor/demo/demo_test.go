package demo

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session connects the official client to a server of this package over two pipes.
func session(t *testing.T, o Options, progress func(*mcp.ProgressNotificationParams)) *mcp.ClientSession {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	o.In, o.Out = toServer, fromServer
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, o) }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if progress != nil {
				progress(r.Params)
			}
		}})
	s, err := client.Connect(ctx, &mcp.IOTransport{Reader: toClient, Writer: fromClient}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		cancel()
	})
	return s
}

func call(t *testing.T, s *mcp.ClientSession, name string, args any) (*mcp.CallToolResult, string) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var b strings.Builder
	for _, c := range r.Content {
		if tc, ok := c.(*mcp.TextContent); ok {
			b.WriteString(tc.Text)
		}
	}
	return r, b.String()
}

func TestTools(t *testing.T) {
	s := session(t, Options{Version: "1"}, nil)
	steps := []struct {
		tool, want string
		args       any
		isError    bool
	}{
		{"echo", "hello", map[string]any{"text": "hello"}, false},
		{"add", "42.5", map[string]any{"a": 40, "b": 2.5}, false},
		{"note_list", "no notes yet", map[string]any{}, false},
		{"note_add", "note 1 added", map[string]any{"text": "milk"}, false},
		{"note_add", "text is blank", map[string]any{"text": " "}, true},
		{"note_add", "note 2 added", map[string]any{"text": "bread"}, false},
		{"note_list", "1. milk\n2. bread", map[string]any{}, false},
		{"slow_read", "read 2 steps", map[string]any{"steps": 2, "delay_ms": 1}, false},
		{"slow_read", "steps is 101", map[string]any{"steps": 101}, true},
		{"slow_read", "delay_ms is -1", map[string]any{"delay_ms": -1}, true},
	}
	for _, st := range steps {
		r, got := call(t, s, st.tool, st.args)
		if r.IsError != st.isError || !strings.Contains(got, st.want) {
			t.Errorf("%s %v: isError %v, text %q; want %v, %q", st.tool, st.args, r.IsError, got, st.isError, st.want)
		}
	}
}

func TestAnnotationsAgreeWithTheConfiguration(t *testing.T) {
	s := session(t, Options{}, nil)
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	effects := Config("/x").Servers[0].Effects
	if len(list.Tools) != len(effects) {
		t.Errorf("%d tools, %d effects declared", len(list.Tools), len(effects))
	}
	for _, tool := range list.Tools {
		e, ok := effects[tool.Name]
		if !ok {
			t.Errorf("%s: no effect declared", tool.Name)
		}
		if hint := tool.Annotations.ReadOnlyHint; hint != (e.String() == "read_only") {
			t.Errorf("%s: readOnlyHint %v, declared %v", tool.Name, hint, e)
		}
	}
}

func TestProgress(t *testing.T) {
	var mu sync.Mutex
	var seen []float64
	all := make(chan struct{})
	s := session(t, Options{}, func(p *mcp.ProgressNotificationParams) {
		mu.Lock()
		defer mu.Unlock()
		if seen = append(seen, p.Progress); len(seen) == 3 {
			close(all)
		}
	})
	p := &mcp.CallToolParams{Name: "slow_read", Arguments: map[string]any{"steps": 3, "delay_ms": 1}}
	p.SetProgressToken("t")
	if _, err := s.CallTool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	select {
	case <-all:
	case <-time.After(20 * time.Second):
		t.Fatalf("progress: %v", seen)
	}
}

func TestCrashExits(t *testing.T) {
	var out bytes.Buffer
	code := -1
	s := session(t, Options{Stderr: &out, Exit: func(c int) { code = c }}, nil)
	if r, _ := call(t, s, "crash", map[string]any{"reason": "a\x1b]0;x\x07"}); !r.IsError {
		t.Error("crash answered")
	}
	if code != CrashStatus || !strings.Contains(out.String(), `("a\x1b]0;x\a")`) {
		t.Errorf("exit %d, stderr %q", code, out.String())
	}
}

func TestInputEndIsTheEnd(t *testing.T) {
	in, w := io.Pipe()
	_, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Serve(context.Background(), Options{In: in, Out: out}) }()
	_ = w.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still serving")
	}
}
