package network

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// forgotten are the ways in which servers say that they do not know a session.
var forgotten = []struct {
	name  string
	reply func(x *exchange)
}{
	{"404", func(x *exchange) { http.Error(x.w, "session not found", 404) }},
	{"404 empty", func(x *exchange) { x.w.WriteHeader(404) }},
	{"404 as JSON-RPC", func(x *exchange) { x.errorAnswer(404, -32001, "Session not found") }},
	{"404 as JSON-RPC without id", func(x *exchange) { x.id = nil; x.errorAnswer(404, -32600, "Session not found") }},
	{"410", func(x *exchange) { x.w.WriteHeader(410) }},
	{"400 in words", func(x *exchange) { http.Error(x.w, "Bad Request: No valid session ID provided", 400) }},
	{"400 as JSON-RPC", func(x *exchange) { x.errorAnswer(400, -32000, "Bad Request: Server not initialized") }},
	{"400 invalid", func(x *exchange) { x.errorAnswer(400, -32600, "Invalid session id") }},
}

// TestB64SessionLost: the server has forgotten the session while 20 calls are under
// way. There is one new session, made without the old id, the tools are listed again,
// and calls that may be repeated are, once.
func TestB64SessionLost(t *testing.T) {
	for _, how := range forgotten {
		t.Run(how.name, func(t *testing.T) {
			r := newRig(t)
			r.o.on("tools/call", func(x *exchange) bool {
				if x.o.knows(x) {
					return false
				}
				time.Sleep(50 * time.Millisecond) // let them come together
				how.reply(x)
				return true
			})
			r.open(harness.M{"limits": harness.M{"max_reads": 20}})
			r.ok(r.call("read", harness.Patience))
			before := len(r.o.requests("initialize"))
			lists := len(r.o.requests("tools/list"))
			r.o.forget()
			for _, out := range r.many(20, "read", harness.Patience) {
				r.ok(out)
			}
			inits := r.o.requests("initialize")
			if len(inits) != before+1 {
				t.Errorf("%d new sessions, want one", len(inits)-before)
			}
			if s := inits[len(inits)-1].Session; s != "" {
				t.Errorf("initialize carried the session %q", s)
			}
			if n := len(r.o.requests("tools/list")); n <= lists {
				t.Error("the tools were not listed again")
			}
			if e := r.status().LastExit; e == nil || !strings.Contains(e.Reason, "session ended by server") {
				t.Errorf("last exit: %+v", e)
			}
		})
	}
}

// knows reports whether the session of a request is one of the server's.
func (o *origin) knows(x *exchange) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sessions[x.r.Header.Get("Mcp-Session-Id")]
}

// TestB64SideEffectOfALostSession: it is not sent again, and its lane is free: the
// server said that it did not take it.
func TestB64SideEffectOfALostSession(t *testing.T) {
	for _, how := range forgotten {
		t.Run(how.name, func(t *testing.T) {
			r := newRig(t)
			r.o.on("tools/call", func(x *exchange) bool {
				if x.o.knows(x) {
					return false
				}
				how.reply(x)
				return true
			})
			r.open(harness.M{"timeouts": harness.M{"abandon_after": "10m"}})
			r.o.forget()
			r.want(r.call("write", 10*time.Second), messages.OutcomeUnknown, messages.CodeConnectionLost, "HTTP 4")
			if n := r.arrived(); n != 1 {
				t.Errorf("the request arrived %d times", n)
			}
			r.ok(r.call("write", harness.Patience))
		})
	}
}

// TestB64OthersBringTheirAnswers: one call hears that the session is gone while others
// are being answered. Those are not given up.
func TestB64OthersBringTheirAnswers(t *testing.T) {
	r := newRig(t)
	r.o.on("tools/call", func(x *exchange) bool {
		if x.o.knows(x) || contains(x.msg.Params.Arguments, `"sleep_ms"`) {
			return false
		}
		http.Error(x.w, "session not found", 404)
		return true
	})
	r.open(harness.M{"limits": harness.M{"max_side_effects": 4}, "isolation": "serial"})
	slow := make(chan messages.Outcome, 1)
	go func() { slow <- r.callWith("write", harness.Patience, harness.M{"sleep_ms": 500}) }()
	harness.Eventually(t, "the slow call has begun", func() bool { return r.begun("write") && len(r.o.requests("tools/call")) > 0 })
	r.o.forget()
	r.ok(r.call("read", harness.Patience))
	r.ok(<-slow)
}

// TestB64SessionLostOnTheStream: the stream of the session is the first to hear it.
func TestB64SessionLostOnTheStream(t *testing.T) {
	r := newRig(t).open(nil)
	harness.Eventually(t, "the stream is open", func() bool { return len(r.o.requests("GET")) > 0 })
	r.o.forget()
	harness.Eventually(t, "there is a new session", func() bool {
		r.o.breakStreams()
		return len(r.o.requests("initialize")) > 1
	})
	r.await(messages.StateReady)
	r.ok(r.call("write", harness.Patience))
}

// TestB64NoLoop: a server that never knows its own sessions is not asked for ever.
func TestB64NoLoop(t *testing.T) {
	r := newRig(t)
	r.o.on("tools/call", func(x *exchange) bool { http.Error(x.w, "session not found", 404); return true })
	r.open(harness.M{"restart": harness.M{"backoff": harness.M{"initial": "20ms", "max": "50ms"}, "burst": 3, "within": "10m"}})
	for r.status().State != messages.StateQuarantined {
		if out := r.call("read", 5*time.Second); out.Kind == messages.OK {
			t.Fatal("it answered")
		}
	}
	if n := len(r.o.requests("initialize")); n > 4 {
		t.Errorf("%d sessions before it was given up", n)
	}
}

// TestB64OtherErrorsKeepTheSession: an error of the call costs the call.
func TestB64OtherErrorsKeepTheSession(t *testing.T) {
	for name, reply := range map[string]func(x *exchange){
		"400":           func(x *exchange) { http.Error(x.w, "bad arguments", 400) },
		"400 JSON-RPC":  func(x *exchange) { x.errorAnswer(400, -32602, "bad arguments") },
		"409":           func(x *exchange) { x.w.WriteHeader(409) },
		"500":           func(x *exchange) { http.Error(x.w, "session store is closed", 500) },
		"200 with text": func(x *exchange) { x.errorAnswer(200, -32001, "session not found: browser 7") },
		"empty 200":     func(x *exchange) { x.w.WriteHeader(200) },
		"202":           func(x *exchange) { x.w.WriteHeader(202) },
		"204":           func(x *exchange) { x.w.WriteHeader(204) },
		"html": func(x *exchange) {
			x.w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(x.w, "<h1>session expired</h1>")
		},
		"304": func(x *exchange) { x.w.WriteHeader(304) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.o.on("tools/call", func(x *exchange) bool {
				if x.msg.Params.Name != "put" {
					return false
				}
				reply(x)
				return true
			})
			r.open(nil)
			if out := r.call("put", 10*time.Second); out.Kind == messages.OK || out.Kind == messages.NotSent {
				t.Errorf("%s %s", out.Kind, out.ErrorText())
			}
			r.ok(r.call("read", harness.Patience))
			if n := len(r.o.requests("initialize")); n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}
