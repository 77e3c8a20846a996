package network

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"mcpbridge/test/harness"
	"mcpbridge/test/witness"
)

const modern = "2026-07-28"

// origin is an MCP server over Streamable HTTP. By itself it is honest; a hook may
// take any of its exchanges over. Its tools are read, put and write, and what they do
// stands in the witness log.
type origin struct {
	*httptest.Server
	log *witness.Log

	sse      bool   // answers come as event streams
	modern   bool   // the revision without sessions
	protocol string // what initialize answers

	mu       sync.Mutex
	hooks    []func(*exchange) bool
	sessions map[string]bool
	next     int
	seen     []seen
	streams  []chan struct{} // open standalone streams; closing one ends it
}

// seen is one request as it came.
type seen struct {
	Method, RPC, URI, Session string
	Header                    http.Header
	Body                      []byte
	At                        time.Time
}

// exchange is one request and the way to answer it.
type exchange struct {
	o   *origin
	w   http.ResponseWriter
	r   *http.Request
	rpc string
	id  json.RawMessage
	msg struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			ProtocolVersion string          `json:"protocolVersion"`
			Name            string          `json:"name"`
			Arguments       json.RawMessage `json:"arguments"`
		} `json:"params"`
	}
}

func newOrigin(t testing.TB, lab *harness.Lab, name string) *origin {
	o := plainOrigin(t, lab, name)
	o.Server = httptest.NewServer(o)
	o.closeAtTheEnd(t)
	return o
}

// plainOrigin has no listener yet.
func plainOrigin(t testing.TB, lab *harness.Lab, name string) *origin {
	t.Helper()
	log, err := witness.Open(lab.Path("witness"), name)
	if err != nil {
		t.Fatal(err)
	}
	return &origin{log: log, sessions: map[string]bool{}, protocol: "2025-11-25"}
}

func (o *origin) closeAtTheEnd(t testing.TB) {
	t.Cleanup(func() {
		o.CloseClientConnections()
		go o.Close() // a hook may hang for ever
	})
}

// on adds a hook for a JSON-RPC method, or for "GET", "DELETE", and "" for all. It
// returns false to leave the exchange to the others.
func (o *origin) on(method string, hook func(*exchange) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hooks = append(o.hooks, func(x *exchange) bool { return (method == "" || method == x.rpc) && hook(x) })
}

// calm takes all hooks away.
func (o *origin) calm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hooks = nil
}

// forget makes the server lose its sessions, as a restart does.
func (o *origin) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions = map[string]bool{}
}

// requests are those of one kind so far; "" for all.
func (o *origin) requests(rpc string) (out []seen) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.seen {
		if rpc == "" || rpc == s.RPC {
			out = append(out, s)
		}
	}
	return out
}

// ServeHTTP implements http.Handler.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // half a request is none
	}
	x := &exchange{o: o, w: w, r: r, rpc: r.Method}
	if r.Method == http.MethodPost {
		_ = json.Unmarshal(body, &x.msg)
		x.rpc, x.id = x.msg.Method, x.msg.ID
	}
	o.mu.Lock()
	o.seen = append(o.seen, seen{r.Method, x.rpc, r.URL.RequestURI(), r.Header.Get("Mcp-Session-Id"), r.Header.Clone(), bytes.Clone(body), time.Now()})
	hooks := append([]func(*exchange) bool(nil), o.hooks...)
	known := o.sessions[r.Header.Get("Mcp-Session-Id")]
	o.mu.Unlock()
	for _, h := range hooks {
		if h(x) {
			return
		}
	}
	if !o.modern && !known && x.rpc != "initialize" && x.rpc != "server/discover" {
		http.Error(w, "session not found", http.StatusNotFound)
		return
	}
	x.honest()
}

// honest answers as a good server does.
func (x *exchange) honest() {
	switch x.rpc {
	case "server/discover":
		if x.o.modern {
			x.result(`{"supportedVersions":["` + modern + `"],"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"o","version":"1"},"ttlMs":0,"cacheScope":"private","resultType":"complete"}`)
			return
		}
		x.errorAnswer(200, -32601, "no such method")
	case "initialize":
		x.o.mu.Lock()
		x.o.next++
		session := fmt.Sprintf("session-%d", x.o.next)
		x.o.sessions[session] = true
		x.o.mu.Unlock()
		x.w.Header().Set("Mcp-Session-Id", session)
		x.result(fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"o","version":"1"}}`, x.o.protocol))
	case "tools/list":
		x.result(toolList("read", "put", "write"))
	case "tools/call":
		x.result(x.act())
	case "ping":
		x.result(`{}`)
	case "subscriptions/listen", http.MethodGet:
		x.stream(nil)
	default:
		x.w.WriteHeader(http.StatusAccepted)
	}
}

func toolList(names ...string) string {
	b := []byte(`{"tools":[`)
	for i, n := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"name":%q,"description":"d","inputSchema":{"type":"object"}}`, n)
	}
	return string(b) + `],"ttlMs":0,"cacheScope":"private","resultType":"complete"}`
}

// act does what the tool does, between begin and end, and returns its result.
func (x *exchange) act() string {
	var a struct {
		Nonce   string `json:"nonce"`
		SleepMS int    `json:"sleep_ms"`
		Bytes   int    `json:"bytes"`
	}
	_ = json.Unmarshal(x.msg.Params.Arguments, &a)
	class := witness.SideEffect
	if x.msg.Params.Name == "read" {
		class = witness.Read
	}
	if err := x.o.log.Begin(a.Nonce, x.msg.Params.Name, class); err != nil {
		panic(err)
	}
	time.Sleep(time.Duration(a.SleepMS) * time.Millisecond)
	if err := x.o.log.End(a.Nonce, x.msg.Params.Name, class); err != nil {
		panic(err)
	}
	return `{"content":[{"type":"text","text":"` + x.msg.Params.Name + " " + a.Nonce + string(bytes.Repeat([]byte("x"), a.Bytes)) + `"}],"resultType":"complete"}`
}

// message is the answer as JSON-RPC.
func (x *exchange) message(result string) string {
	return `{"jsonrpc":"2.0","id":` + string(x.id) + `,"result":` + result + `}`
}

// result answers the request.
func (x *exchange) result(result string) {
	if x.o.sse {
		x.w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(x.w, "data: "+x.message(result)+"\n\n")
		return
	}
	x.w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(x.w, x.message(result))
}

// errorAnswer answers with a JSON-RPC error under some status.
func (x *exchange) errorAnswer(status, code int, message string) {
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	id := x.id
	if id == nil {
		id = json.RawMessage("null")
	}
	_, _ = fmt.Fprintf(x.w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
}

// stream opens an event stream and keeps it until it is ended (breakStreams) or left.
// first is written at once.
func (x *exchange) stream(first []string) {
	end := make(chan struct{})
	x.o.mu.Lock()
	x.o.streams = append(x.o.streams, end)
	x.o.mu.Unlock()
	x.w.Header().Set("Content-Type", "text/event-stream")
	x.w.WriteHeader(http.StatusOK)
	for _, s := range first {
		_, _ = io.WriteString(x.w, s)
	}
	_ = http.NewResponseController(x.w).Flush()
	select {
	case <-end:
	case <-x.r.Context().Done():
	}
}

// breakStreams ends all open streams and returns how many there were.
func (o *origin) breakStreams() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.streams {
		close(s)
	}
	n := len(o.streams)
	o.streams = nil
	return n
}

// raw takes the connection over.
func (x *exchange) raw(bytes string, close bool) {
	c, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = rw.WriteString(bytes)
	_ = rw.Flush()
	if close {
		_ = c.Close()
		return
	}
	_, _ = io.Copy(io.Discard, c)
}

// rawConn takes the connection over and leaves it to the caller.
func rawConn(x *exchange) (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(x.w).Hijack()
}

// newOriginOn is newOrigin with a listener that is given.
func newOriginOn(t testing.TB, lab *harness.Lab, name string, ln net.Listener) *origin {
	o := plainOrigin(t, lab, name)
	o.Server = httptest.NewUnstartedServer(o)
	_ = o.Listener.Close()
	o.Listener = ln
	o.Start()
	o.closeAtTheEnd(t)
	return o
}
