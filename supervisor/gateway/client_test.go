package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

// dialer connects an SDK client of one era by one of the ways in.
type dialer struct {
	name     string
	modern   bool
	stream   bool
	endpoint func(t *testing.T, g *Gateway, url string) mcp.Transport
}

func dialers() []dialer {
	http := func(_ *testing.T, _ *Gateway, url string) mcp.Transport {
		return &mcp.StreamableClientTransport{Endpoint: url + "/mcp", MaxRetries: -1}
	}
	return []dialer{
		{"http legacy", false, false, http}, {"http 2026", true, false, http},
		{"stream legacy", false, true, pipeTransport}, {"stream 2026", true, true, pipeTransport},
	}
}

// connect makes a session; changed and progress hear of notifications.
func (d dialer) connect(t *testing.T, g *Gateway, url string) (cs *mcp.ClientSession, changed chan struct{}, progress chan *mcp.ProgressNotificationParams) {
	t.Helper()
	changed = make(chan struct{}, 100)
	progress = make(chan *mcp.ProgressNotificationParams, 1000)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress <- r.Params
		},
	})
	o := &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}
	if d.modern {
		o = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cs, err := c.Connect(ctx, d.endpoint(t, g, url), o)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs, changed, progress
}

func eachWay(t *testing.T, f func(t *testing.T, d dialer)) {
	for _, d := range dialers() {
		t.Run(d.name, func(t *testing.T) { f(t, d) })
	}
}

func names(t *testing.T, cs *mcp.ClientSession) (out []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for tool, err := range cs.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tool.Name)
	}
	return out
}

func TestClientListAndCall(t *testing.T) {
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend(simple("web", "get"), simple("fs", "read"), simple("fs", "write"))
		g, srv := start(t, b, Options{Name: "bridge", Version: "7"})
		cs, _, _ := d.connect(t, g, srv.URL)
		if got := cs.InitializeResult(); (got.ProtocolVersion >= firstModern) != d.modern || got.Capabilities.Tools == nil || !got.Capabilities.Tools.ListChanged || got.Capabilities.Resources == nil || got.Capabilities.Resources.ListChanged || got.Capabilities.Logging != nil {
			t.Errorf("handshake %+v %+v", got, got.Capabilities)
		}
		if diff := cmp.Diff([]string{"fs__read", "fs__write", "web__get"}, names(t, cs)); diff != "" {
			t.Error(diff)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "fs__read", Arguments: json.RawMessage(`{"n":9007199254740993}`)})
		if err != nil || res.IsError || res.NeedsInput() || res.Content[0].(*mcp.TextContent).Text != "hi" {
			t.Fatalf("%v %+v", err, res)
		}
		if got := string(b.last(t).Args); got != `{"n":9007199254740993}` {
			t.Errorf("arguments %s", got)
		}
		if got := b.last(t).Meta; got != nil {
			t.Errorf("meta %s", got)
		}
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			return messages.Outcome{CallID: c.ID, Kind: messages.ToolError, Code: messages.CodeToolError, RPCError: []byte(`{"code":-32602,"message":"bad","data":[1]}`)}
		}
		_, err = cs.CallTool(ctx, &mcp.CallToolParams{Name: "fs__read"})
		var we *jsonrpc.Error
		if !errors.As(err, &we) || we.Code != -32602 || string(we.Data) != "[1]" || !strings.Contains(we.Message, "bad") {
			t.Errorf("the server's error came as %v", err)
		}
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			return messages.Outcome{CallID: c.ID, Kind: messages.NotSent, Code: messages.CodeUnavailable, Message: "stopped"}
		}
		res, err = cs.CallTool(ctx, &mcp.CallToolParams{Name: "fs__read"})
		if err != nil || !res.IsError || res.Meta["mcpbridge/outcome"] != "not_sent" || res.Meta["mcpbridge/safe_to_retry"] != true {
			t.Errorf("%v %+v", err, res)
		}
		if !d.modern {
			if err := cs.Ping(ctx, nil); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestClientProgress(t *testing.T) {
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend(simple("fs", "read"))
		seen := make(chan struct{})
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			c.OnProgress(json.RawMessage(`{"progressToken":"upstream","progress":1,"total":2,"message":"half"}`))
			<-seen // it arrives before the result exists
			c.OnProgress(json.RawMessage(`{"progress":2}`))
			return ok(c, `{"content":[]}`)
		}
		g, srv := start(t, b, Options{})
		cs, _, progress := d.connect(t, g, srv.URL)
		done := make(chan error, 1)
		go func() {
			p := &mcp.CallToolParams{Name: "fs__read", Meta: mcp.Meta{}}
			p.SetProgressToken("mine")
			_, err := cs.CallTool(context.Background(), p)
			done <- err
		}()
		p := await(t, "progress", progress)
		if p.ProgressToken != "mine" || p.Progress != 1 || p.Total != 2 || p.Message != "half" {
			t.Errorf("got %+v", p)
		}
		close(seen)
		if p := await(t, "the last progress", progress); p.ProgressToken != "mine" || p.Progress != 2 {
			t.Errorf("got %+v", p)
		}
		if err := await(t, "the result", done); err != nil {
			t.Error(err)
		}
	})
}

func TestClientCancel(t *testing.T) {
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend(simple("fs", "read"))
		running, how := make(chan struct{}), make(chan string, 1)
		b.answer = func(ctx context.Context, c messages.CallTool, cancelled <-chan struct{}) messages.Outcome {
			close(running)
			select {
			case <-cancelled:
				how <- "cancelled"
			case <-ctx.Done():
				how <- "left"
			}
			return messages.Outcome{CallID: c.ID, Kind: messages.OutcomeUnknown, Code: messages.CodeCancelled, Message: "cancelled"}
		}
		g, srv := start(t, b, Options{})
		cs, _, _ := d.connect(t, g, srv.URL)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "fs__read"})
			done <- err
		}()
		await(t, "the call", running)
		cancel()
		want := "cancelled"
		if d.modern && !d.stream {
			want = "left" // the response stream was closed
		}
		if got := await(t, "the cancel", how); got != want {
			t.Errorf("the backend saw %q", got)
		}
		if err := await(t, "the caller", done); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestClientListChanged(t *testing.T) {
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend(simple("fs", "read"))
		g, srv := start(t, b, Options{})
		cs, changed, _ := d.connect(t, g, srv.URL)
		if diff := cmp.Diff([]string{"fs__read"}, names(t, cs)); diff != "" {
			t.Fatal(diff)
		}
		// Changes that nobody can see are not told; a burst is told once or twice.
		b.set(simple("fs", "read"))
		for i := range 50 {
			b.set(simple("fs", "read"), simple("web", fmt.Sprint("get", i)))
		}
		await(t, "list_changed", changed)
		deadline := time.After(patience)
		for {
			if got := names(t, cs); cmp.Equal(got, []string{"fs__read", "web__get49"}) {
				break
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatal("the new tools never appeared")
			}
		}
		if n := len(changed); n > 5 {
			t.Errorf("%d notifications for one burst", n)
		}
	})
}

func TestClientPages(t *testing.T) {
	var tools []messages.Tool
	var want []string
	for i := range 2*pageSize + 1 {
		name := fmt.Sprintf("t%05d", i)
		tools = append(tools, simple("fs", name))
		want = append(want, "fs__"+name)
	}
	eachWay(t, func(t *testing.T, d dialer) {
		g, srv := start(t, newBackend(tools...), Options{})
		cs, _, _ := d.connect(t, g, srv.URL)
		if diff := cmp.Diff(want, names(t, cs)); diff != "" {
			t.Error(diff)
		}
		res, err := cs.ListTools(context.Background(), nil)
		if err != nil || len(res.Tools) != pageSize || res.NextCursor == "" {
			t.Errorf("%v: %d tools, cursor %q", err, len(res.Tools), res.NextCursor)
		}
	})
}

// One client's burst of calls in every way at once: answers find their callers.
func TestClientConcurrent(t *testing.T) {
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend(simple("fs", "echo"))
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			return ok(c, `{"content":[{"type":"text","text":`+string(rawjson.AppendString(nil, string(c.Args)))+`}]}`)
		}
		g, srv := start(t, b, Options{})
		cs, _, _ := d.connect(t, g, srv.URL)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				args := fmt.Sprintf(`{"i":%d}`, i)
				res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "fs__echo", Arguments: json.RawMessage(args)})
				if err != nil || res.Content[0].(*mcp.TextContent).Text != args {
					t.Errorf("%d: %v %+v", i, err, res)
				}
			})
		}
		wg.Wait()
	})
}

func TestPerServerEndpointAndView(t *testing.T) {
	b := newBackend(simple("fs", "read"), simple("web", "get"))
	g, srv := start(t, b, Options{})
	for path, want := range map[string][]string{
		"/servers/web/mcp": {"get"}, "/servers/fs/mcp": {"read"}, "/mcp?view=plan": {"fs__read"}, "/servers/web/mcp?view=plan": nil,
	} {
		for _, modern := range []bool{false, true} {
			d := dialer{modern: modern, endpoint: func(_ *testing.T, _ *Gateway, url string) mcp.Transport {
				return &mcp.StreamableClientTransport{Endpoint: url + path}
			}}
			cs, changed, _ := d.connect(t, g, srv.URL)
			if diff := cmp.Diff(want, names(t, cs)); diff != "" {
				t.Errorf("%s: %s", path, diff)
			}
			if path == "/servers/web/mcp" {
				if _, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "get"}); err != nil || b.last(t).Server != "web" {
					t.Errorf("%v %+v", err, b.last(t))
				}
				b.set(simple("fs", "read"), simple("web", "get"), simple("web", "put"))
				await(t, "list_changed", changed)
				b.set(simple("fs", "read"), simple("web", "get"))
				await(t, "list_changed", changed)
			} else if len(changed) != 0 {
				t.Errorf("%s was told of a change that it cannot see", path)
			}
		}
	}
}

func TestEmptyBridgeGivesAHint(t *testing.T) {
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend()
		b.servers = nil
		g, srv := start(t, b, Options{})
		cs, _, _ := d.connect(t, g, srv.URL)
		if got := cs.InitializeResult().Instructions; !strings.Contains(got, "mcp_servers") {
			t.Errorf("instructions %q", got)
		}
		if got := names(t, cs); got != nil {
			t.Errorf("tools %v", got)
		}
	})
}
