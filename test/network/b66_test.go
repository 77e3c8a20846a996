package network

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestB66StandaloneStreamLost: the stream on which a server says that its tools changed
// flaps, is refused, or is reset. Calls do not notice, and the session stays.
func TestB66StandaloneStreamLost(t *testing.T) {
	for _, tc := range []struct {
		name string
		get  func(x *exchange, n int)
		ends bool // it is not tried for ever
	}{
		{"ends at once, events without id", func(x *exchange, _ int) {
			x.w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(x.w, "event: ping\ndata: x\n\n")
		}, false},
		{"reset at once", func(*exchange, int) { cut() }, false}, // net/http asks twice for what only reads
		{"405 after a while", func(x *exchange, n int) {
			if n < 3 {
				x.w.Header().Set("Content-Type", "text/event-stream")
				x.flush()
				return
			}
			x.w.WriteHeader(405)
		}, true},
		{"405", func(x *exchange, _ int) { x.w.WriteHeader(405) }, true},
		{"404", func(x *exchange, _ int) { x.w.WriteHeader(404) }, true},
		{"400", func(x *exchange, _ int) { http.Error(x.w, "invalid session", 400) }, true},
		{"401", func(x *exchange, _ int) { x.w.WriteHeader(401) }, true},
		{"503", func(x *exchange, _ int) { x.w.WriteHeader(503) }, false},
		{"200 with a page", func(x *exchange, _ int) { _, _ = io.WriteString(x.w, "<html>") }, true},
		{"redirect to itself", func(x *exchange, _ int) { x.redirect(302, "/mcp") }, true},
		{"headers without end", func(x *exchange, _ int) { x.raw("HTTP/1.1 200 OK\r\n"+strings.Repeat("X: y\r\n", 60000), true) }, false},
		{"never answered", func(x *exchange, _ int) { <-x.r.Context().Done() }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.o.on("GET", func(x *exchange) bool { tc.get(x, len(r.o.requests("GET"))); return true })
			r.open(nil)
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				r.ok(r.call("write", harness.Patience))
			}
			if n := len(r.o.requests("initialize")); n != 1 {
				t.Errorf("%d sessions", n)
			}
			n := len(r.o.requests("GET"))
			if most := map[bool]int{false: 8, true: 4}[tc.ends]; n == 0 || n > most {
				t.Errorf("the stream was tried %d times in 4 s", n)
			}
			if s := r.status(); s.State != messages.StateReady || s.Restarts != 0 {
				t.Errorf("%s, %d restarts", s.State, s.Restarts)
			}
		})
	}
}

// grow adds a tool to a server from the n-th list on.
func grow(o *origin, grown func() bool) {
	o.on("tools/list", func(x *exchange) bool {
		if grown() {
			x.result(toolList("read", "put", "write", "later"))
			return true
		}
		return false
	})
}

func (r *rig) has(tool string) bool {
	_, ok := r.b.Catalogue().Lookup("web/" + tool)
	return ok
}

// TestB66MissedChange: the tools change while the stream is down. Nobody says so when
// it is back, and they are listed again all the same; in both eras.
func TestB66MissedChange(t *testing.T) {
	for _, era := range []string{"GET", "subscriptions/listen"} {
		t.Run(strings.ReplaceAll(era, "/", " "), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.o.modern = era != "GET"
			grown := make(chan struct{})
			grow(r.o, func() bool {
				select {
				case <-grown:
					return true
				default:
					return false
				}
			})
			r.open(nil)
			harness.Eventually(t, "the stream is open", func() bool { r.o.mu.Lock(); defer r.o.mu.Unlock(); return len(r.o.streams) == 1 })
			if r.has("later") {
				t.Fatal("it has grown already")
			}
			close(grown)
			if n := r.o.breakStreams(); n != 1 {
				t.Fatalf("%d streams", n)
			}
			harness.Eventually(t, "the new tool is listed", func() bool { return r.has("later") })
			if n := len(r.o.requests(era)); n != 2 {
				t.Errorf("the stream was opened %d times", n)
			}
			r.ok(r.call("write", harness.Patience))
		})
	}
}

// TestB66ListenStreamLost: the stream of the newest revision is only a request, and its
// loss in whatever way only that.
func TestB66ListenStreamLost(t *testing.T) {
	for name, listen := range map[string]func(x *exchange){
		"ends at once": func(x *exchange) { x.w.Header().Set("Content-Type", "text/event-stream"); x.flush() },
		"reset":        func(*exchange) { cut() },
		"503":          func(x *exchange) { x.w.WriteHeader(503) },
		"404":          func(x *exchange) { x.w.WriteHeader(404) },
		"403":          func(x *exchange) { x.w.WriteHeader(403) },
		"JSON-RPC":     func(x *exchange) { x.errorAnswer(200, -32601, "no such method") },
		"JSON":         func(x *exchange) { x.result(`{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.o.modern = true
			r.o.on("subscriptions/listen", func(x *exchange) bool { listen(x); return true })
			r.open(nil)
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				r.ok(r.call("write", harness.Patience))
			}
			if n := len(r.o.requests("subscriptions/listen")); n == 0 || n > 4 {
				t.Errorf("it was tried %d times in 4 s", n)
			}
			if s := r.status(); s.State != messages.StateReady || s.Restarts != 0 || s.Protocol != modern {
				t.Errorf("%s, %d restarts, %s", s.State, s.Restarts, s.Protocol)
			}
		})
	}
}

// TestB70ProtocolVersion: what servers do with a revision that they do not know.
func TestB70ProtocolVersion(t *testing.T) {
	lists := func(versions string) func(x *exchange) bool {
		return func(x *exchange) bool {
			if x.msg.Params.ProtocolVersion == "2025-06-18" {
				return false
			}
			http.Error(x.w, "Bad Request: Unsupported protocol version "+x.msg.Params.ProtocolVersion+" (supported versions: "+versions+")", 400)
			return true
		}
	}
	for _, tc := range []struct {
		name, answers string
		hook          func(x *exchange) bool
		want          string // the revision that is agreed on; "" = none
		say           string
	}{
		{"older", "2024-11-05", nil, "2024-11-05", ""},
		{"same", "2025-11-25", nil, "2025-11-25", ""},
		{"400 with a list", "2025-06-18", lists("2025-06-18, 2025-03-26"), "2025-06-18", ""},
		{"400 with a list, oldest first", "2025-06-18", lists("2024-11-05 2025-06-18"), "2025-06-18", ""},
		{"400 with a list, nothing we know", "2025-06-18", lists("1999-01-01"), "", "HTTP 400"},
		{"JSON-RPC error with a list", "2025-06-18", func(x *exchange) bool {
			if x.msg.Params.ProtocolVersion == "2025-06-18" {
				return false
			}
			x.w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(x.w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2025-06-18"],"requested":%q}}}`, x.id, x.msg.Params.ProtocolVersion)
			return true
		}, "2025-06-18", ""},
		{"1999", "1999-01-01", nil, "", "1999-01-01"},
		{"nonsense", "latest", nil, "", "latest"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.o.protocol = tc.answers
			if tc.hook != nil {
				r.o.on("initialize", tc.hook)
			}
			// Another sort of server knows the header only of what was agreed on.
			r.o.on("", func(x *exchange) bool {
				if v := x.r.Header.Get("Mcp-Protocol-Version"); v != "" && v != tc.answers {
					http.Error(x.w, "unknown MCP-Protocol-Version", 400)
					return true
				}
				return false
			})
			if tc.want == "" {
				r.openOnly(harness.M{"restart": harness.M{"backoff": harness.M{"initial": "20ms", "max": "50ms"}, "burst": 2, "within": "10m"}})
				row := r.await(messages.StateQuarantined)
				if !strings.Contains(row.LastExit.Reason, tc.say) {
					t.Errorf("%+v", row.LastExit)
				}
				return
			}
			r.open(nil)
			r.ok(r.call("write", harness.Patience))
			if got := r.status().Protocol; got != tc.want {
				t.Errorf("agreed on %s", got)
			}
			for _, s := range r.o.requests("tools/call") {
				if v := s.Header.Get("Mcp-Protocol-Version"); v != tc.want {
					t.Errorf("a call says %q", v)
				}
			}
		})
	}
}
