package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

func tool(server, remote string, e messages.Effect) messages.Tool {
	return messages.Tool{Name: "mcp__" + server + "__" + remote, EndpointName: server + "__" + remote, Server: server, RemoteName: remote,
		Effect: e, Listed: true, Def: messages.ToolDef{InputSchema: json.RawMessage(`{"type":"object"}`)}}
}

func apiError(t *testing.T, err error, code string) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v (%T), want code %s", err, err, code)
	}
	return e
}

func TestCallKeepsBytesAndOrder(t *testing.T) {
	f := newFake("fs")
	const result = `{"content":[{"type":"text","text":"<a> & 9007199254740993"}],"structuredContent":{"n":1.0,"z":1,"a":2}}`
	f.call = func(ctx context.Context, c messages.CallTool) messages.Outcome {
		if c.Client != LocalClient || string(c.Args) != `{"b" : 1}` || c.Timeout != 2*time.Second || c.View != "plan" || !c.DryRun {
			t.Errorf("call %+v", c)
		}
		for range 3 {
			c.OnProgress(json.RawMessage(`{"progress":1.0}`))
		}
		return messages.Outcome{CallID: c.ID, Tool: c.Tool, Kind: messages.OK, Result: json.RawMessage(result)}
	}
	c := serve(t, f)
	var progress []string
	out, err := c.Call(t.Context(), CallRequest{ID: "x", Tool: "fs/read", Args: `{"b" : 1}`, Timeout: Duration(2 * time.Second), View: "plan", DryRun: true},
		func(p json.RawMessage) { progress = append(progress, string(p)) })
	if err != nil {
		t.Fatal(err)
	}
	if string(out.Result) != result || out.CallID != "x" {
		t.Errorf("outcome %+v\nresult %s", out, out.Result)
	}
	if diff := cmp.Diff([]string{`{"progress":1.0}`, `{"progress":1.0}`, `{"progress":1.0}`}, progress); diff != "" {
		t.Error(diff)
	}
}

func TestBrokenArgumentsReachTheBridge(t *testing.T) {
	f := newFake("fs")
	f.call = func(_ context.Context, c messages.CallTool) messages.Outcome {
		return messages.Outcome{Kind: messages.Rejected, Code: messages.CodeInvalidArguments, Message: string(c.Args)}
	}
	out, err := serve(t, f).Call(t.Context(), CallRequest{Tool: "fs/read", Args: `{"a":`}, nil)
	if err != nil || out.Message != `{"a":` {
		t.Fatalf("%+v, %v", out, err)
	}
}

func TestCallerThatLeavesIsNoticed(t *testing.T) {
	f := newFake("fs")
	began, left := make(chan struct{}), make(chan struct{})
	f.call = func(ctx context.Context, _ messages.CallTool) messages.Outcome {
		close(began)
		<-ctx.Done()
		close(left)
		return messages.Outcome{Kind: messages.OutcomeUnknown, Code: messages.CodeCancelled}
	}
	c := serve(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := c.Call(ctx, CallRequest{Tool: "fs/read"}, nil); done <- err }()
	await(t, began)
	cancel()
	await(t, left)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("client: %v", err)
	}
}

func TestShutdownLetsCallsEnd(t *testing.T) {
	f := newFake("fs")
	began, finish := make(chan struct{}), make(chan struct{})
	f.call = func(ctx context.Context, _ messages.CallTool) messages.Outcome {
		close(began)
		select {
		case <-finish:
			return messages.Outcome{Kind: messages.OK}
		case <-ctx.Done():
			return messages.Outcome{Kind: messages.OutcomeUnknown, Code: messages.CodeCancelled}
		}
	}
	path := t.TempDir() + "/c.sock"
	l, err := Listen(path, f.Logger())
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(l, Options{Bridge: f, Logger: f.Logger()})
	c := NewClient(path)
	defer c.Close()
	got := make(chan messages.Outcome, 1)
	go func() { out, _ := c.Call(context.Background(), CallRequest{Tool: "fs/read"}, nil); got <- out }()
	await(t, began)
	over := make(chan struct{})
	go func() { s.Shutdown(context.Background()); close(over) }()
	<-s.ctx.Done()
	close(finish)
	if out := <-got; out.Kind != messages.OK {
		t.Errorf("outcome %v", out.Kind)
	}
	await(t, over)
}

func await(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatal("timeout")
	}
}

func TestTools(t *testing.T) {
	f := newFake("a", "b")
	off := tool("b", "old", messages.SideEffect)
	off.Listed = false
	f.tools = []messages.Tool{tool("a", "read_file", messages.ReadOnly), tool("a", "write_file", messages.SideEffect), tool("b", "find", messages.ReadOnly), off}
	c := serve(t, f)
	tests := []struct {
		q    ToolsQuery
		want string
	}{
		{ToolsQuery{}, "a__read_file a__write_file b__find"},
		{ToolsQuery{All: true}, "a__read_file a__write_file b__find b__old"},
		{ToolsQuery{Pattern: "FILE"}, "a__read_file a__write_file"},
		{ToolsQuery{Pattern: "a/"}, "a__read_file a__write_file"},
		{ToolsQuery{Pattern: "*_file"}, "a__read_file a__write_file"},
		{ToolsQuery{Pattern: "b__*"}, "b__find"},
		{ToolsQuery{Pattern: "mcp__b__f?nd"}, "b__find"},
		{ToolsQuery{Pattern: "["}, ""},
		{ToolsQuery{Server: "b"}, "b__find"},
		{ToolsQuery{Effect: "read_only"}, "a__read_file b__find"},
		{ToolsQuery{View: "plan"}, "a__read_file b__find"},
		{ToolsQuery{Name: "a/write_file"}, "a__write_file"},
		{ToolsQuery{Name: "mcp__b__old"}, "b__old"},
		{ToolsQuery{Name: "b/none"}, ""},
	}
	for _, tt := range tests {
		got, err := c.Tools(t.Context(), tt.q)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range got.Tools {
			names = append(names, v.EndpointName)
		}
		if s := strings.Join(names, " "); s != tt.want || got.Version != 7 {
			t.Errorf("%+v: %q, version %d; want %q", tt.q, s, got.Version, tt.want)
		}
	}
	// One tool waits for nobody's first list but its own server's.
	f.locked(func() { f.waited = nil })
	_, _ = c.Tools(t.Context(), ToolsQuery{Name: "b/none"})
	if diff := cmp.Diff([]string{"b"}, f.waited); diff != "" {
		t.Error(diff)
	}
	_, err := c.Tools(t.Context(), ToolsQuery{View: "none"})
	apiError(t, err, CodeBadRequest)
	_, err = c.Tools(t.Context(), ToolsQuery{Effect: "harmless"})
	apiError(t, err, CodeBadRequest)
	_, err = c.Tools(t.Context(), ToolsQuery{Server: "c"})
	apiError(t, err, CodeUnknownServer)
}

func TestOperateAndNames(t *testing.T) {
	f := newFake("files", "search", "a b/c")
	c := serve(t, f)
	for _, v := range []messages.Verb{messages.VerbStart, messages.VerbStop, messages.VerbRestart, messages.VerbReset, messages.VerbDrain} {
		if err := c.Operate(t.Context(), v, "a b/c"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"start a b/c", "stop a b/c", "restart a b/c", "reset a b/c", "drain a b/c"}, f.operated); diff != "" {
		t.Error(diff)
	}
	apiError(t, c.Operate(t.Context(), "explode", "files"), CodeBadRequest)
	e := apiError(t, c.Operate(t.Context(), messages.VerbStop, "file"), CodeUnknownServer)
	if e.Hint != `did you mean "files"? known: a b/c, files, search` || e.Server != "file" || len(e.Known) != 3 {
		t.Errorf("%+v", e)
	}
	f.refuse = errors.New("it is disabled")
	if e := apiError(t, c.Operate(t.Context(), messages.VerbStart, "files"), CodeRefused); !strings.Contains(e.Message, "it is disabled") {
		t.Errorf("%+v", e)
	}
	_, err := c.Status(t.Context(), "files", "nope")
	apiError(t, err, CodeUnknownServer)
	if st, err := c.Status(t.Context(), "files"); err != nil || len(st.Servers) != 1 {
		t.Errorf("%+v %v", st, err)
	}
	if err := c.Cancel(t.Context(), "known"); err != nil {
		t.Error(err)
	}
	apiError(t, c.Cancel(t.Context(), "un/known"), CodeUnknownCall)
	if v, err := c.Version(t.Context()); err != nil || v.PID != 42 {
		t.Errorf("%+v %v", v, err)
	}
	if l, err := c.Calls(t.Context()); err != nil || len(l.Calls) != 1 || l.Calls[0].BlockedBy == nil {
		t.Errorf("%+v %v", l, err)
	}
	if cfg, err := c.Config(t.Context(), true); err != nil || !strings.Contains(cfg.YAML, "files") {
		t.Errorf("%+v %v", cfg, err)
	}
	resp, err := c.do(t.Context(), "GET", "/v1/nothing", nil, nil)
	if err == nil {
		resp.Body.Close()
	}
	apiError(t, err, CodeNotFound)
	resp, err = c.do(t.Context(), "GET", "/debug/pprof/goroutine", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestFollowEvents(t *testing.T) {
	f := newFake("a", "b")
	f.emit(messages.Event{Type: messages.EventServerReady, Server: "a"})
	f.emit(messages.Event{Type: messages.EventServerReady, Server: "b"})
	f.emit(messages.Event{Type: messages.EventServerExited, Server: "a"})
	c := serve(t, f)
	stop := errors.New("enough")
	var got []string
	err := c.Events(t.Context(), Window{Servers: []string{"a"}, N: 1, Follow: true}, func(e messages.Event) error {
		got = append(got, string(e.Type)+" "+e.Server)
		switch len(got) {
		case 1: // the history has come: what happens now follows
			go func() {
				f.emit(messages.Event{Type: messages.EventServerState, Server: "b"})
				f.emit(messages.Event{Type: messages.EventGap, Count: 3})
				f.emit(messages.Event{Type: messages.EventServerState, Server: "a"})
			}()
		case 3:
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"server_exited a", "gap ", "server_state a"}, got); diff != "" {
		t.Error(diff)
	}
	var past []string
	err = c.Events(t.Context(), Window{N: -1, Types: []string{"server_ready"}, Since: time.Now().Add(-time.Hour)}, func(e messages.Event) error {
		past = append(past, e.Server)
		return nil
	})
	if diff := cmp.Diff([]string{"a", "b", "" /* a gap is told to everybody */}, past); diff != "" || err != nil {
		t.Error(diff, err)
	}
	err = c.Events(t.Context(), Window{N: -1, Since: time.Now().Add(time.Hour)}, func(messages.Event) error { return stop })
	if err != nil {
		t.Error("events of the future:", err)
	}
}

func TestFollowLogs(t *testing.T) {
	f := newFake("a", "b")
	f.say("a", "1")
	f.say("b", "2")
	f.say("a", "3")
	c := serve(t, f)
	stop := errors.New("enough")
	var got []string
	err := c.Logs(t.Context(), Window{Servers: []string{"a", "a"}, N: -1, Follow: true}, func(l messages.LogLine) error {
		got = append(got, l.Text)
		switch len(got) {
		case 2:
			go func() { f.say("b", "4"); f.say("a", "5") }()
		case 3:
			return stop
		}
		return nil
	})
	if diff := cmp.Diff([]string{"1", "3", "5"}, got); diff != "" || !errors.Is(err, stop) {
		t.Error(diff, err)
	}
	apiError(t, c.Logs(t.Context(), Window{Servers: []string{"c"}, N: -1}, nil), CodeUnknownServer)
}

func TestFollowerHearsTheEnd(t *testing.T) {
	f := newFake("a")
	path := t.TempDir() + "/c.sock"
	l, err := Listen(path, f.Logger())
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(l, Options{Bridge: f, Logger: f.Logger()})
	f.say("a", "1")
	c := NewClient(path)
	defer c.Close()
	err = c.Logs(t.Context(), Window{N: -1, Follow: true}, func(messages.LogLine) error {
		go s.Shutdown(context.Background())
		return nil
	})
	var lost *LostError
	if !errors.As(err, &lost) {
		t.Errorf("%v (%T)", err, err)
	}
	s.Shutdown(context.Background())
	var none *NoDaemonError
	if _, err := c.Version(t.Context()); !errors.As(err, &none) {
		t.Errorf("%v (%T)", err, err)
	}
}

func TestStream(t *testing.T) {
	f := newFake("a")
	c := serve(t, f, func(o *Options) {
		o.ServeStream = func(_ context.Context, conn Conn, client, view string) error {
			if client != LocalClient || view != "plan" {
				t.Errorf("client %q, view %q", client, view)
			}
			b, err := io.ReadAll(conn)
			if err == nil {
				_, err = conn.Write(append(b, '!'))
			}
			return err
		}
	})
	conn, err := c.Stream(t.Context(), "plan")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); string(b) != "hello!" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	_, err = c.Stream(t.Context(), "none")
	apiError(t, err, CodeBadRequest)
}

func TestStreamEndsWithTheServer(t *testing.T) {
	f := newFake("a")
	path := t.TempDir() + "/c.sock"
	l, err := Listen(path, f.Logger())
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(l, Options{Bridge: f, Logger: f.Logger(), ServeStream: func(_ context.Context, conn Conn, _, _ string) error {
		_, err := io.Copy(io.Discard, conn) // looks at no context
		return err
	}})
	conn, err := NewClient(path).Stream(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.Shutdown(context.Background())
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the stream lives")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"github", "gitlab", "files", "search", "a"}
	tests := map[string]string{"githup": "github", "file": "files", "FILES": "files", "sear": "search", "x": "a", "zzzzzz": "", "b": "a"}
	for in, want := range tests {
		if got := strings.Join(nearest(in, names, 2), ","); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// TestEventTypesAreComplete reads the types from where they are declared.
func TestEventTypesAreComplete(t *testing.T) {
	src, err := os.ReadFile("../../messages/event.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []messages.EventType
	for _, m := range regexp.MustCompile(`EventType\s+=\s+"([a-z_]+)"`).FindAllStringSubmatch(string(src), -1) {
		declared = append(declared, messages.EventType(m[1]))
	}
	slices.Sort(declared)
	known := slices.Sorted(slices.Values(eventTypes))
	if len(declared) == 0 || !slices.Equal(declared, known) {
		t.Errorf("declared %v\nknown    %v", declared, known)
	}
}

func TestUnknownEventTypeIsRefused(t *testing.T) {
	c := serve(t, newFake("a"))
	err := c.Events(t.Context(), Window{Types: []string{"server_ready", "server_redy"}, Follow: true}, func(messages.Event) error { return nil })
	var api *Error
	if !errors.As(err, &api) || api.Code != CodeBadRequest || !strings.Contains(api.Hint, `"server_ready"`) {
		t.Errorf("%v", err)
	}
}
