package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// bodies are what clients send, well and badly.
var bodies = []string{
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read","arguments":{"n":9007199254740993},"_meta":{"progressToken":"p","mcpbridge/timeout_ms":5}}}`,
	`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":"YWZ0ZXI6ZnNfX3JlYWQ"}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read",` + meta26 + `}}`,
	`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
	`[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`,
	`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"mcpbridge://results/abc"}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read","arguments":[]}}`, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"1.0"}`, `[[]]`, `[]`, `null`, `{`, "\xff", `"x"`,
	`{"jsonrpc":"2.0","id":{"a":1},"method":"tools/call","params":{"name":"x"}}`, `{"jsonrpc":"2.0","id":1e999,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta26 + `}}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, strings.Repeat(`[`, 3000) + strings.Repeat(`]`, 3000),
}

// fuzzGateway has two tools, and looks at what reaches the backend.
func fuzzGateway(f *testing.F) (*Gateway, *fakeBackend) {
	b := newBackend(simple("fs", "read"), simple("web", "get"))
	b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
		if !json.Valid(c.Args) && len(c.Args) > 0 || len(c.Meta) > 0 && !json.Valid(c.Meta) {
			f.Errorf("passed on: %q %q", c.Args, c.Meta)
		}
		return ok(c, `{"content":[]}`)
	}
	g := New(b, Options{MaxBody: 1 << 16})
	f.Cleanup(func() { _ = g.Close(context.Background()) })
	return g, b
}

// FuzzEndpoint: whatever a client sends, over HTTP in either era and on a stream, it gets
// an answer that is JSON (or none where none is due), never an internal error, and what
// reaches the backend is well formed.
func FuzzEndpoint(f *testing.F) {
	for i, body := range bodies {
		f.Add(uint8(i), []byte(body))
	}
	g, _ := fuzzGateway(f)
	srv := httptest.NewServer(g.Handler())
	f.Cleanup(srv.Close)
	session := open(f, srv.URL+"/mcp")
	old := openAs(f, srv.URL+"/mcp", lastBatches)
	f.Fuzz(func(t *testing.T, way uint8, body []byte) {
		if strings.Contains(string(body), "subscriptions/listen") {
			return // an answer without an end is what it asks for
		}
		if way%4 == 3 {
			fuzzStream(t, g, body)
			return
		}
		headers := [][]string{{headerSession, session}, {headerSession, old}, headers26(methodOf(body), "fs__read")}[way%4]
		req := newRequest(t, http.MethodPost, srv.URL+"/mcp", string(body), headers...)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 500 || strings.Contains(string(out), "internal error of the bridge") {
			t.Fatalf("%q: %d %s %v", body, resp.StatusCode, out, err)
		}
		if len(out) > 64<<10+8*len(body) {
			t.Fatalf("%d bytes for %d", len(out), len(body))
		}
		if resp.Header.Get("Content-Type") == "application/json" && !json.Valid(out) {
			t.Fatalf("%q: %s", body, out)
		}
	})
}

func methodOf(body []byte) string {
	var m struct{ Method string }
	_ = json.Unmarshal(body, &m)
	if strings.ContainsFunc(m.Method, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "x"
	}
	return m.Method
}

// fuzzStream sends the bytes as lines and reads every answer.
func fuzzStream(t *testing.T, g *Gateway, body []byte) {
	var out strings.Builder
	rw := &halfClosed{Reader: strings.NewReader(strings.ReplaceAll(hello, "VERSION", lastBatches) + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + string(body)), out: &out}
	_ = g.ServeStream(context.Background(), rw, "local", "") // how it ends is the client's matter
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) || strings.Contains(line, "internal error of the bridge") {
			t.Fatalf("%q: %s", body, line)
		}
	}
}

// halfClosed is a client that sends everything at once, says EOF, and reads the answers.
type halfClosed struct {
	io.Reader
	out *strings.Builder // written by the one writer, read when it is over
}

func (h *halfClosed) Write(p []byte) (int, error) { return h.out.Write(p) }
func (h *halfClosed) Close() error                { return nil }
