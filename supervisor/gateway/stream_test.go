package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
)

// pipeTransport serves a fresh stream of the gateway.
func pipeTransport(t *testing.T, g *Gateway, _ string) mcp.Transport {
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- g.ServeStream(context.Background(), there, "local", "") }()
	t.Cleanup(func() {
		here.Close()
		if err := await(t, "the end of the stream", done); err != nil {
			t.Errorf("stream: %v", err)
		}
	})
	return &mcp.IOTransport{Reader: here, Writer: here}
}

// socket is a connection whose sending side can be closed alone, like the one that
// `bridgectl stdio` uses.
func socket(t *testing.T) (here, there *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn), s.(*net.UnixConn)
}

// serveLines starts a stream over a socket.
func serveLines(ctx context.Context, t *testing.T, g *Gateway) (conn *net.UnixConn, lines *bufio.Reader, done chan error) {
	here, there := socket(t)
	done = make(chan error, 1)
	go func() { done <- g.ServeStream(ctx, there, "local", "") }()
	_ = here.SetDeadline(time.Now().Add(patience))
	return here, bufio.NewReader(here), done
}

func say(t *testing.T, w io.Writer, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(w, l+"\n"); err != nil {
			t.Fatal(err)
		}
	}
}

func hear(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	l, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %q", err, l)
	}
	return strings.TrimSuffix(l, "\n")
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"VERSION","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// greet does the handshake of a session.
func greet(t *testing.T, conn io.Writer, r *bufio.Reader, version string) {
	t.Helper()
	say(t, conn, strings.ReplaceAll(hello, "VERSION", version))
	if got := hear(t, r); !strings.Contains(got, `"serverInfo"`) {
		t.Fatalf("handshake: %s", got)
	}
	say(t, conn, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func TestStreamKeepsBytes(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome { return ok(c, odd) }
	g, _ := start(t, b, Options{})
	conn, r, done := serveLines(context.Background(), t, g)
	greet(t, conn, r, "2025-11-25")
	line := strings.NewReplacer("\n", " ", "\r", " ").Replace(odd)
	say(t, conn, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"fs__read","arguments":{"n":1.0}}}`)
	if got := hear(t, r); got != `{"jsonrpc":"2.0","id":5,"result":`+line+`}` {
		t.Errorf("got %s", got)
	}
	say(t, conn, `{"jsonrpc":"2.0","id":"m","method":"tools/call","params":{"name":"fs__read",`+meta26+`}}`)
	if got := hear(t, r); got != `{"jsonrpc":"2.0","id":"m","result":{"resultType":"complete",`+line[1:]+`}` {
		t.Errorf("got %s", got)
	}
	if got := b.last(t); got.Client != "local" {
		t.Errorf("client %q", got.Client)
	}
	conn.CloseWrite()
	if err := await(t, "the end", done); err != nil {
		t.Error(err)
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("more: %s", rest)
	}
}

func TestStreamMalformed(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	g, _ := start(t, b, Options{MaxBody: 1000})
	conn, r, done := serveLines(context.Background(), t, g)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}}`
	for _, tt := range []struct{ send, want string }{
		{`{`, `-32700`}, {`nonsense`, `-32700`}, {`5`, `-32600`}, {"\xff", `-32700`},
		{call, `invalid during session initialization`},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, `occurs twice`},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":"` + strings.Repeat("x", 200_000) + `"}`, `limit of 1000 bytes`},
		{`[` + call + `]`, `batches are not part`},
		{"  \r\n\n" + ping, `"result":{}`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, `clientCapabilities`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":[],` + meta26 + `}}`, `-32602`},
	} {
		say(t, conn, tt.send)
		if got := hear(t, r); !strings.Contains(got, tt.want) {
			t.Errorf("%.80s: got %s", tt.send, got)
		}
	}
	if b.count() != 0 {
		t.Error("one of these reached the backend")
	}
	greet(t, conn, r, "2025-06-18")
	say(t, conn, call)
	if got := hear(t, r); !strings.Contains(got, `"hi"`) {
		t.Errorf("the stream did not recover: %s", got)
	}
	conn.Close()
	await(t, "the end", done)
}

func TestStreamBatch(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	g, _ := start(t, b, Options{})
	conn, r, done := serveLines(context.Background(), t, g)
	greet(t, conn, r, "2025-03-26")
	say(t, conn, `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}},{"jsonrpc":"2.0","id":"p","method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},7,{"jsonrpc":"2.0","id":3,"method":"tools/list"}]`)
	var parts []struct {
		ID     any
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal([]byte(hear(t, r)), &parts); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range parts {
		seen[fmt.Sprintf("%v%v", p.ID, p.Error != nil)] = true
	}
	if len(parts) != 4 || !seen["1false"] || !seen["pfalse"] || !seen["3false"] || !seen["<nil>true"] {
		t.Errorf("got %v", parts)
	}
	say(t, conn, `[]`)
	if got := hear(t, r); !strings.Contains(got, "empty batch") {
		t.Errorf("got %s", got)
	}
	conn.CloseWrite()
	if err := await(t, "the end", done); err != nil {
		t.Error(err)
	}
}

// A client that says everything at once and closes its side still gets the answers
// of calls that need a while.
func TestStreamAnswersAfterEOF(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	running, finish := make(chan struct{}), make(chan struct{})
	b.answer = func(ctx context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
		close(running)
		select {
		case <-finish:
			return messages.Outcome{CallID: c.ID, Kind: messages.OK, Attempt: 1, Result: json.RawMessage(`{"content":[]}`)}
		case <-ctx.Done():
			return messages.Outcome{CallID: c.ID, Kind: messages.OutcomeUnknown, Code: messages.CodeCancelled, Message: "left"}
		}
	}
	g, _ := start(t, b, Options{})
	conn, r, done := serveLines(context.Background(), t, g)
	greet(t, conn, r, "2025-11-25")
	say(t, conn, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fs__read"}}`)
	await(t, "the call", running)
	conn.CloseWrite()
	time.AfterFunc(50*time.Millisecond, func() { close(finish) }) // long after EOF was read
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the end", done); err != nil {
		t.Error(err)
	}
	if want := `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`; !strings.Contains(string(rest), want) {
		t.Errorf("got %s, want %s", rest, want)
	}
}

// Calls that do not end after EOF are left, and their outcomes are written.
func TestStreamEOF(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	running := make(chan struct{}, 8)
	b.answer = func(ctx context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
		running <- struct{}{}
		<-ctx.Done()
		return messages.Outcome{CallID: c.ID, Kind: messages.OutcomeUnknown, Code: messages.CodeCancelled, Message: "left"}
	}
	g, _ := start(t, b, Options{})
	g.eofGrace = 10 * time.Millisecond
	conn, r, done := serveLines(context.Background(), t, g)
	greet(t, conn, r, "2025-11-25")
	for i := range 5 {
		say(t, conn, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"fs__read"}}`, i))
	}
	for range 5 {
		await(t, "a call", running)
	}
	say(t, conn, `{"jsonrpc":"2.0","id":"p","method":"ping"}`, `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`, `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+meta26+`}}`)
	conn.CloseWrite()
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the end", done); err != nil {
		t.Error(err)
	}
	if got := strings.Count(string(rest), `"mcpbridge/code":"cancelled"`); got != 5 || !strings.Contains(string(rest), `"id":"p","result"`) || !strings.Contains(string(rest), `"id":"l","result"`) {
		t.Errorf("%d outcomes in %s", got, rest)
	}
}

func TestStreamCancelAndDuplicate(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	running := make(chan struct{})
	b.answer = func(ctx context.Context, c messages.CallTool, cancelled <-chan struct{}) messages.Outcome {
		close(running)
		<-cancelled
		return messages.Outcome{CallID: c.ID, Kind: messages.OutcomeUnknown, Code: messages.CodeCancelled, Message: "cancelled"}
	}
	g, _ := start(t, b, Options{})
	conn, r, done := serveLines(context.Background(), t, g)
	greet(t, conn, r, "2025-11-25")
	call := `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"fs__read"}}`
	say(t, conn, call)
	await(t, "the call", running)
	say(t, conn, call)
	if got := hear(t, r); !strings.Contains(got, "still in flight") {
		t.Errorf("got %s", got)
	}
	say(t, conn, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"zz"}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0063"}}`)
	if got := hear(t, r); !strings.Contains(got, `"id":"c","result"`) || !strings.Contains(got, "cancelled") {
		t.Errorf("got %s", got)
	}
	conn.Close()
	await(t, "the end", done)
}

// A peer that asks and never reads must not hold up other streams' notifications,
// nor the end of its own.
func TestStreamPeerThatDoesNotRead(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	g, srv := start(t, b, Options{})
	here, there := net.Pipe() // no buffer at all
	defer here.Close()
	done := make(chan error, 1)
	go func() { done <- g.ServeStream(context.Background(), there, "local", "") }()
	say(t, here, strings.ReplaceAll(hello, "VERSION", "2025-11-25")) // the answer is never read
	cs, changed, _ := dialers()[2].connect(t, g, srv.URL)
	_ = names(t, cs)
	b.set(simple("fs", "read"), simple("fs", "write"))
	await(t, "list_changed beside a stuck peer", changed)
	go func() {
		for { // until the stream gives up
			if _, err := io.WriteString(here, `{"jsonrpc":"2.0","id":1,"method":"nope"}`+"\n"); err != nil {
				return
			}
		}
	}()
	if err := await(t, "the end of the stuck stream", done); err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Errorf("got %v", err)
	}
}

func TestStreamEndsWithContextAndGateway(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	left := make(chan struct{}, 2)
	running := make(chan struct{}, 2)
	b.answer = func(ctx context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
		running <- struct{}{}
		<-ctx.Done()
		left <- struct{}{}
		return messages.Outcome{CallID: c.ID, Kind: messages.NotSent, Code: messages.CodeDraining, Message: "bye"}
	}
	g, _ := start(t, b, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	call := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"fs__read"}}`
	for _, end := range []func(){cancel, func() { _ = g.Close(context.Background()) }} {
		conn, r, done := serveLines(ctx, t, g)
		if ctx.Err() != nil {
			ctx = context.Background()
			conn, r, done = serveLines(ctx, t, g)
		}
		greet(t, conn, r, "2025-11-25")
		say(t, conn, call)
		await(t, "the call", running)
		end()
		await(t, "the call's end", left)
		if got := hear(t, r); !strings.Contains(got, `"bye"`) {
			t.Errorf("the last outcome was not written: %s", got)
		}
		if err := await(t, "the stream's end", done); err == nil {
			t.Error("no reason given")
		}
		conn.Close()
	}
	here, there := net.Pipe()
	defer here.Close()
	if err := g.ServeStream(context.Background(), there, "local", ""); err != ErrClosed {
		t.Errorf("got %v", err)
	}
	if err := g.ServeStream(context.Background(), there, "local", "nope"); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("got %v", err)
	}
}

func TestStreamSurvivesPanics(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	b.answer = func(context.Context, messages.CallTool, <-chan struct{}) messages.Outcome { panic("call") }
	b.listed = func(context.Context, string) { panic("list") }
	g, _ := start(t, b, Options{})
	conn, r, done := serveLines(context.Background(), t, g)
	greet(t, conn, r, "2025-11-25")
	for _, method := range []string{"tools/call", "tools/list"} {
		say(t, conn, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"name":"fs__read"}}`)
		if got := hear(t, r); got != `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error of the bridge"}}` {
			t.Errorf("%s: %s", method, got)
		}
	}
	say(t, conn, ping)
	if got := hear(t, r); !strings.Contains(got, `"result":{}`) {
		t.Errorf("got %s", got)
	}
	conn.Close()
	if err := await(t, "the end", done); err != nil {
		t.Error(err)
	}
}

// A catalogue that changes while a client is still to say hello is nothing that it
// hears of before its answer.
func TestStreamGreetsFirst(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	g, _ := start(t, b, Options{})
	conn, r, _ := serveLines(context.Background(), t, g)
	// A second stream that hears of the change proves that it went round.
	other, heard, _ := serveLines(context.Background(), t, g)
	greet(t, other, heard, "2025-11-25")
	b.set(simple("fs", "read"), simple("fs", "write"))
	if got := hear(t, heard); !strings.Contains(got, "notifications/tools/list_changed") {
		t.Fatalf("the other stream heard %s", got)
	}
	say(t, conn, strings.ReplaceAll(hello, "VERSION", "2025-11-25"))
	if got := hear(t, r); !strings.Contains(got, `"serverInfo"`) {
		t.Errorf("the first line is %s", got)
	}
}
