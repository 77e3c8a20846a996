package network

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// oldServer is a server of HTTP+SSE: one stream that begins with the address for
// requests, and answers come on it.
type oldServer struct {
	endpoint string // what the stream names; "" = /messages?session=1
	answers  chan string
}

// take makes the origin one: POST to its URL is refused with the status.
func (s *oldServer) take(o *origin, status int) {
	s.answers = make(chan string, 100)
	o.on("", func(x *exchange) bool {
		switch {
		case x.r.Method == http.MethodGet && x.r.URL.Path == "/mcp":
			x.w.Header().Set("Content-Type", "text/event-stream")
			to := s.endpoint
			if to == "" {
				to = "/messages?session=1"
			}
			_, _ = io.WriteString(x.w, ": hello\n\nevent: endpoint\ndata: "+to+"\n\n")
			x.flush()
			for {
				select {
				case m := <-s.answers:
					if m == "" {
						return true
					}
					_, _ = io.WriteString(x.w, "event: message\ndata: "+m+"\n\n")
					x.flush()
				case <-x.r.Context().Done():
					return true
				}
			}
		case x.r.URL.Path == "/messages":
			switch x.rpc {
			case "initialize":
				s.answers <- x.message(`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}`)
			case "tools/list":
				s.answers <- x.message(toolList("read", "put", "write"))
			case "tools/call":
				s.answers <- x.message(x.act())
			case "ping":
				s.answers <- x.message(`{}`)
			}
			x.w.WriteHeader(http.StatusAccepted)
		default:
			x.w.WriteHeader(status)
		}
		return true
	})
}

// TestB68Fallback: HTTP+SSE is tried only for what an old server answers, and only
// where the configuration leaves it open.
func TestB68Fallback(t *testing.T) {
	for _, status := range []int{400, 404, 405} {
		for _, pinned := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,pinned=%t", status, pinned), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				new(oldServer).take(r.o, status)
				more := harness.M{"type": nil}
				if pinned {
					more["type"] = "http"
					r.openOnly(more)
					harness.Eventually(t, "the start has failed", func() bool { return r.status().LastExit != nil })
					if e := r.status().LastExit; !strings.Contains(e.Reason, fmt.Sprint("HTTP ", status)) || strings.Contains(e.Reason, "SSE") {
						t.Errorf("%+v", e)
					}
					if n := len(r.o.requests("GET")); n > 0 {
						t.Errorf("%d streams were asked for", n)
					}
					return
				}
				r.open(more)
				if s := r.status(); s.Transport != "sse" || s.Protocol != "2024-11-05" {
					t.Errorf("%s %s", s.Transport, s.Protocol)
				}
				r.ok(r.call("write", harness.Patience))
				for _, out := range r.many(5, "read", harness.Patience) {
					r.ok(out)
				}
				for _, s := range r.o.requests("tools/call") {
					if s.URI != "/messages?session=1" || s.Header.Get("Authorization") != "Bearer s3cret-token" {
						t.Errorf("a call to %s with %v", s.URI, s.Header)
					}
				}
			})
		}
	}
}

// TestB68NoFallback: any other answer is shown as it is, and no stream is asked for.
func TestB68NoFallback(t *testing.T) {
	for _, status := range []int{401, 403, 402, 408, 418, 429, 500, 502, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			new(oldServer).take(r.o, status)
			r.openOnly(harness.M{"type": nil})
			harness.Eventually(t, "the start has failed", func() bool { return r.status().LastExit != nil })
			if e := r.status().LastExit; !strings.Contains(e.Reason, fmt.Sprint("HTTP ", status)) {
				t.Errorf("%+v", e)
			}
			if n := len(r.o.requests("GET")); n > 0 {
				t.Errorf("%d streams were asked for", n)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		r := newRig(t)
		r.w.down()
		r.openOnly(harness.M{"type": nil})
		harness.Eventually(t, "the start has failed", func() bool { return r.status().LastExit != nil })
		if e := r.status().LastExit; !strings.Contains(e.Reason, "connection refused") || strings.Contains(e.Reason, "SSE") {
			t.Errorf("%+v", e)
		}
	})
}

// TestB68BothFail: what the newer transport heard is still told.
func TestB68BothFail(t *testing.T) {
	for name, get := range map[string]func(x *exchange){
		"405": func(x *exchange) { x.w.WriteHeader(405) },
		"no endpoint": func(x *exchange) {
			x.w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(x.w, "data: {}\n\n")
		},
		"a page": func(x *exchange) { _, _ = io.WriteString(x.w, "<html>") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.o.on("", func(x *exchange) bool {
				if x.r.Method == http.MethodGet {
					get(x)
				} else {
					x.w.WriteHeader(404)
				}
				return true
			})
			r.openOnly(harness.M{"type": nil})
			harness.Eventually(t, "the start has failed", func() bool { return r.status().LastExit != nil })
			if e := r.status().LastExit; !strings.Contains(e.Reason, "HTTP 404") || !strings.Contains(e.Reason, "HTTP+SSE: ") {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestB68ForeignEndpoint: the stream names an address for requests somewhere else.
func TestB68ForeignEndpoint(t *testing.T) {
	other := stranger(t, false)
	host := strings.TrimPrefix(other.URL, "http://")
	for name, to := range map[string]string{"absolute": other.URL + "/messages", "scheme only": "//" + host + "/messages", "https": "https://" + host + "/",
		"none": "http://", "a script": "javascript:alert(1)", "broken": "http://[::1/%zz"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			(&oldServer{endpoint: to}).take(r.o, 405)
			r.openOnly(harness.M{"type": "sse"})
			harness.Eventually(t, "the start has failed", func() bool { return r.status().LastExit != nil })
			if e := r.status().LastExit; !strings.Contains(e.Reason, "names another origin") && !strings.Contains(e.Reason, "names no address") {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestB68StreamLost: the one stream is the session. With it go the calls under way, and
// a new one is made.
func TestB68StreamLost(t *testing.T) {
	r := newRig(t)
	s := new(oldServer)
	s.take(r.o, 405)
	r.open(harness.M{"type": "sse"})
	slow := make(chan messages.Outcome, 1)
	go func() { slow <- r.callWith("write", harness.Patience, harness.M{"sleep_ms": 300}) }()
	harness.Eventually(t, "the call has begun", func() bool { return len(r.o.requests("tools/call")) == 1 })
	s.answers <- "" // the end of the stream
	r.want(<-slow, messages.OutcomeUnknown, messages.CodeConnectionLost, "the event stream ended")
	r.ok(r.call("read", harness.Patience))
	if n := len(r.o.requests("initialize")); n != 2 {
		t.Errorf("%d sessions", n)
	}
}
