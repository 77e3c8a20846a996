//go:build linux

package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// web is an HTTP server that records what it was asked.
type web struct {
	*httptest.Server
	handler http.Handler
	mu      sync.Mutex
	seen    []*http.Request
}

func newWeb(t *testing.T, h http.Handler) *web {
	w := &web{handler: h}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen = append(w.seen, r.Clone(context.WithoutCancel(r.Context())))
		w.mu.Unlock()
		w.handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

func (w *web) requests() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*http.Request(nil), w.seen...)
}

func newWebRig(t *testing.T, url string, typ config.Transport) *rig {
	t.Helper()
	r := newRig(t, "")
	r.o.Server.Type, r.o.Server.URL, r.o.Server.Command = typ, url, ""
	r.o.Server.Headers = map[string]string{"Authorization": "Bearer s3cret", "X-Tenant": "a"}
	return r
}

func sdkHandler(t *testing.T, stateless bool) http.Handler {
	quit := make(chan struct{})
	t.Cleanup(func() { close(quit) })
	s := newSDKServer(quit)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: stateless})
}

func TestHTTPSession(t *testing.T) {
	w := newWeb(t, nil)
	w.handler = sdkHandler(t, false)
	r := newWebRig(t, w.URL, config.Auto).dial()
	if got := r.peer.Info(); got.Transport != "http" || got.Protocol != legacy || got.ServerName != "sdk" || !got.HasTools || got.SkipProbe {
		t.Fatalf("info %+v", got)
	}
	if len(r.listing.Tools) != 6 {
		t.Errorf("listed %d tools over several pages", len(r.listing.Tools))
	}
	if got := text(t, r.call("echo", "{\n\"n\": 9007199254740993}")); got != "{\n\"n\": 9007199254740993}" && got != `{"n":9007199254740993}` {
		t.Errorf("got %s", got)
	}
	n := 0
	e := r.exec("progress", `{}`)
	e.Progress = func(json.RawMessage) { n++ }
	if r.kind(r.do(e), messages.ReplyResult); n != 1 {
		t.Errorf("%d progress notifications", n)
	}
	e = r.exec("wait", `{}`)
	ch := r.start(e)
	r.entered(e)
	r.eventually("request seen", func() bool { return strings.Contains(fmt.Sprint(len(w.requests())), "") })
	r.peer.Cancel(e.CallID, 1, "x")
	if rep := r.await(ch); rep.Kind != messages.ReplyResult && rep.Kind != messages.ReplyError {
		t.Errorf("cancelled call got %v %s %s", rep.Kind, rep.Raw, rep.Err)
	}
	r.growsAndTells()
	r.peer.Stop(messages.Ladder{StdinClose: patience, SigTerm: patience})
	r.wait(r.peer.Done(), "done")
	if x := r.peer.Exit(); x.Reason != "stopped" || x.Clean {
		t.Errorf("exit %+v", x)
	}
	deleted := false
	for i, q := range w.requests() {
		if q.Header.Get("Authorization") != "Bearer s3cret" || q.Header.Get("X-Tenant") != "a" {
			t.Errorf("%s without the configured headers", q.Method)
		}
		if i > 1 && q.Header.Get("Mcp-Protocol-Version") != legacy {
			t.Errorf("request %d (%s) has protocol version %q", i, q.Method, q.Header.Get("Mcp-Protocol-Version"))
		}
		deleted = deleted || q.Method == http.MethodDelete
	}
	if !deleted {
		t.Error("the session was not ended at the server")
	}
}

func TestHTTPNewestRevision(t *testing.T) {
	w := newWeb(t, nil)
	w.handler = sdkHandler(t, true)
	r := newWebRig(t, w.URL, config.HTTP).dial()
	if got := r.peer.Info(); got.Protocol != stateless {
		t.Fatalf("info %+v", got)
	}
	if got := text(t, r.call("header", `{"region":"Zürich","o":{"n":42}}`)); got != "=?base64?WsO8cmljaA==?=|42|header" {
		t.Errorf("headers %q", got)
	}
	e := r.exec("never", `{}`)
	ch := r.start(e)
	r.entered(e)
	r.peer.Cancel(e.CallID, 1, "x")
	r.kind(r.await(ch), messages.ReplyLost)
	r.growsAndTells()
}

func TestHTTPLegacySSE(t *testing.T) {
	for _, typ := range []config.Transport{config.SSE, config.Auto} {
		t.Run(string(typ), func(t *testing.T) {
			w := newWeb(t, nil)
			quit := make(chan struct{})
			t.Cleanup(func() { close(quit) })
			s := newSDKServer(quit)
			w.handler = mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)
			r := newWebRig(t, w.URL, typ).dial()
			if got := r.peer.Info(); got.Transport != "sse" || len(r.listing.Tools) < 6 {
				t.Fatalf("info %+v", got)
			}
			if got := text(t, r.call("echo", `{"a":1.0}`)); got != `{"a":1.0}` {
				t.Errorf("got %s", got)
			}
			e := r.exec("never", `{}`)
			ch := r.start(e)
			r.entered(e)
			w.CloseClientConnections()
			r.kind(r.await(ch), messages.ReplyLost)
			r.wait(r.peer.Done(), "done")
			if x := r.peer.Exit(); x.Reason != "the event stream ended" {
				t.Errorf("exit %+v", x)
			}
		})
	}
}

// scripted is a minimal Streamable HTTP server whose tools/call is given.
func scripted(call func(rw http.ResponseWriter, r *http.Request, id json.RawMessage)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			rw.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m fakeMsg
		b, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(b, &m)
		answer := func(result string) {
			rw.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}
		switch m.Method {
		case "server/discover":
			rw.Header().Set("Content-Type", "application/json") // an empty answer
		case "initialize":
			rw.Header().Set("Mcp-Session-Id", "sess")
			answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)
		case "tools/list":
			answer(`{"tools":[{"name":"x","description":"d","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			call(rw, r, m.ID)
		default:
			rw.WriteHeader(http.StatusAccepted)
		}
	}
}

func TestHTTPAnswersOfAllKinds(t *testing.T) {
	var mode atomic.Value
	h := scripted(func(rw http.ResponseWriter, r *http.Request, id json.RawMessage) {
		sse := func(s string) {
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(rw, ": hello\nevent: message\ndata: %s\n\n", s)
		}
		switch mode.Load() {
		case "json":
			rw.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = fmt.Fprintf(rw, "{\"jsonrpc\":\"2.0\",\n\"id\":\"%s\",\n\"result\":%s}", id, exactResult)
		case "sse":
			sse(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + exactResult + `}`)
		case "bigjson":
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, strings.Repeat("x", 9<<20))
		case "bigsse":
			sse(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":"` + strings.Repeat("x", 9<<20) + `"}`)
		case "empty":
			rw.WriteHeader(http.StatusAccepted)
		case "html":
			rw.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(rw, "<html>")
		case "otherid":
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, `{"jsonrpc":"2.0","id":5,"result":{}}`)
		case "cutsse":
			sse(`{"jsonrpc":"2.0","method":"notifications/message"}`)
		case "abort":
			panic(http.ErrAbortHandler)
		case "503":
			rw.WriteHeader(http.StatusServiceUnavailable)
		case "400":
			rw.WriteHeader(http.StatusBadRequest)
		case "rpc400":
			rw.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(rw, `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"m"}}`)
		}
	})
	w := newWeb(t, h)
	r := newWebRig(t, w.URL, config.HTTP).dial()
	tests := []struct {
		mode   string
		kind   messages.ReplyKind
		proven bool
	}{
		{"json", messages.ReplyResult, false}, {"sse", messages.ReplyResult, false}, {"bigjson", messages.ReplyTooLarge, false},
		{"bigsse", messages.ReplyTooLarge, false}, {"empty", messages.ReplyProtocol, false}, {"html", messages.ReplyProtocol, false},
		{"otherid", messages.ReplyProtocol, false}, {"cutsse", messages.ReplyLost, false}, {"abort", messages.ReplyLost, false},
		{"503", messages.ReplyLost, false}, {"400", messages.ReplyLost, true}, {"rpc400", messages.ReplyError, false},
		{"json", messages.ReplyResult, false},
	}
	for _, tt := range tests {
		mode.Store(tt.mode)
		got := r.call("x", `{}`)
		if got.Kind != tt.kind || got.Proven != tt.proven {
			t.Errorf("%s: %v proven=%v %s %s", tt.mode, got.Kind, got.Proven, got.Raw, got.Err)
		}
		if tt.kind == messages.ReplyResult && string(got.Raw) != exactResult {
			t.Errorf("%s: result changed: %s", tt.mode, got.Raw)
		}
	}
	n := 0
	for _, q := range w.requests() {
		if q.Method == http.MethodPost && q.Header.Get("Mcp-Session-Id") == "sess" {
			n++
		}
	}
	if want := len(tests) + 2; n != want { // initialized, tools/list and each call once
		t.Errorf("%d requests of the session, want %d: something was sent twice", n, want)
	}
}

func TestHTTPResumesABrokenStream(t *testing.T) {
	answer := make(chan string, 1)
	h := scripted(func(rw http.ResponseWriter, _ *http.Request, id json.RawMessage) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "id: 17\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
		answer <- string(id)
	})
	w := newWeb(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "17" {
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(rw, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", <-answer)
			return
		}
		h(rw, r)
	}))
	r := newWebRig(t, w.URL, config.HTTP).dial()
	r.kind(r.call("x", `{}`), messages.ReplyResult)
}

func TestHTTPSessionEndsByServer(t *testing.T) {
	for status, want := range map[int]string{404: "session ended by server", 401: "HTTP 401 Unauthorized"} {
		w := newWeb(t, scripted(func(rw http.ResponseWriter, _ *http.Request, _ json.RawMessage) { rw.WriteHeader(status) }))
		r := newWebRig(t, w.URL, config.HTTP).dial()
		if got := r.call("x", `{}`); got.Kind != messages.ReplyLost || !got.Proven {
			t.Errorf("%d: %+v", status, got)
		}
		r.wait(r.peer.Gone(), "gone")
		r.wait(r.peer.Done(), "done")
		if x := r.peer.Exit(); x.Reason != want || x.Blocked != (status == 401) {
			t.Errorf("%d: exit %+v", status, x)
		}
	}
}

func TestHTTPVoidAndUnreachable(t *testing.T) {
	w := newWeb(t, scripted(func(rw http.ResponseWriter, _ *http.Request, id json.RawMessage) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	}))
	r := newWebRig(t, w.URL, config.HTTP).dial()
	posts := func() (n int) { // the event stream's GET may come at any time
		for _, req := range w.requests() {
			if req.Method == http.MethodPost {
				n++
			}
		}
		return n
	}
	before := posts()
	e := r.exec("x", `{}`)
	e.Boundary.Void()
	r.kind(r.do(e), messages.ReplyNotEntered)
	if n := posts(); n != before {
		t.Errorf("%d requests after a void call", n-before)
	}
	r.kind(r.call("x", `{}`), messages.ReplyResult)
	w.Listener.Close()
	// A connection that is being closed may still be picked, or have been accepted
	// just before.
	r.eventually("refusal", func() bool {
		w.CloseClientConnections()
		return r.call("x", `{}`).Kind == messages.ReplyNotEntered
	})
}

// TestHTTPVoidAtTheLastMoment races the router's Void against the connection.
func TestHTTPVoidAtTheLastMoment(t *testing.T) {
	var mu sync.Mutex
	calls := map[string]bool{}
	w := newWeb(t, scripted(func(rw http.ResponseWriter, r *http.Request, id json.RawMessage) {
		mu.Lock()
		calls[string(id)] = true
		mu.Unlock()
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	}))
	r := newWebRig(t, w.URL, config.HTTP).dial()
	voided := 0
	for i := range 200 {
		e := r.exec("x", `{}`)
		ch := r.start(e)
		time.Sleep(time.Duration(i) * 3 * time.Microsecond)
		void := e.Boundary.Void()
		got := r.await(ch)
		if void != (got.Kind == messages.ReplyNotEntered) {
			t.Fatalf("void=%v and reply %v %s", void, got.Kind, got.Err)
		}
		if void {
			voided++
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(calls) != 200-voided {
		t.Errorf("%d calls arrived, %d of 200 were void", len(calls), voided)
	}
}
