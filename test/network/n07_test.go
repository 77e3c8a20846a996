package network

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// hostile is a challenge that nobody should see as it is.
const hostile = "Bearer realm=\"mcp\u009b2J\", error=\"invalid_token\", resource_metadata=\"https://auth.example/\u202e\""

// TestN07Unauthorized: the server wants other credentials. It is blocked until a
// person changes something, says what it was asked for, and is asked no more.
func TestN07Unauthorized(t *testing.T) {
	for _, tc := range []struct {
		name, at string
		status   int
	}{
		{"401 at once", "", 401}, {"403 at once", "", 403}, {"401 to initialize", "initialize", 401}, {"403 to initialize", "initialize", 403},
		{"401 to a list", "tools/list", 401}, {"401 to a call", "tools/call", 401}, {"403 to a call", "tools/call", 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.o.on("", func(x *exchange) bool {
				if tc.at != "" && x.rpc != tc.at {
					return false
				}
				x.w.Header()["Www-Authenticate"] = []string{hostile}
				x.w.WriteHeader(tc.status)
				return true
			})
			r.openOnly(nil)
			if tc.at == "tools/call" {
				r.await(messages.StateReady)
				for _, out := range r.many(10, "read", 10*time.Second) {
					if out.Kind == messages.OK {
						t.Error("it answered")
					}
				}
			}
			row := r.await(messages.StateBlocked)
			if row.Reason != "auth" || row.LastExit == nil {
				t.Fatalf("%+v", row)
			}
			why := row.LastExit.Reason
			if !strings.Contains(why, http.StatusText(tc.status)) || !strings.Contains(why, "invalid_token") {
				t.Errorf("the reason does not show the challenge: %q", why)
			}
			if strings.ContainsAny(why, "\u009b\u202e") {
				t.Errorf("the challenge is shown as it came: %q", why)
			}
			n := len(r.o.requests(""))
			time.Sleep(700 * time.Millisecond) // longer than any backoff here
			if more := len(r.o.requests("")) - n; more > 0 {
				t.Errorf("%d more requests while it was blocked", more)
			}
			if n > 40 {
				t.Errorf("%d requests until it was blocked", n)
			}
			if out := r.call("write", 5*time.Second); out.Kind != messages.NotSent && out.Kind != messages.Rejected {
				t.Errorf("%s %s: %s", out.Kind, out.Code, out.ErrorText())
			}
		})
	}
}

// TestN07ForbiddenTool: one tool is forbidden, the others are not. That costs the call.
func TestN07ForbiddenTool(t *testing.T) {
	for name, header := range map[string]string{"bare": "", "scope": `Bearer error="insufficient_scope", scope="admin"`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.o.on("tools/call", func(x *exchange) bool {
				if x.msg.Params.Name != "write" {
					return false
				}
				if header != "" {
					x.w.Header().Set("WWW-Authenticate", header)
				}
				x.w.WriteHeader(403)
				return true
			})
			r.open(nil)
			for range 3 {
				r.want(r.call("write", 10*time.Second), messages.OutcomeUnknown, messages.CodeConnectionLost, "HTTP 403")
			}
			r.ok(r.call("read", harness.Patience))
			if s := r.status(); s.State != messages.StateReady {
				t.Errorf("%s %s", s.State, s.Reason)
			}
		})
	}
}

// TestN07RetryAfter: a server that has too many requests is left alone for as long as
// it asks, by everybody. A side effect that it refused is not sent again.
func TestN07RetryAfter(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		after  func() string
	}{
		{"429 seconds", 429, func() string { return "1" }},
		{"429 date", 429, func() string { return time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat) }},
		{"429 says nothing", 429, func() string { return "" }},
		{"429 nonsense", 429, func() string { return "soon" }},
		{"503 seconds", 503, func() string { return "1" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			var until time.Time
			r.o.on("tools/call", func(x *exchange) bool {
				x.o.mu.Lock()
				defer x.o.mu.Unlock()
				switch {
				case until.IsZero():
					until = time.Now().Add(900 * time.Millisecond)
				case time.Now().Before(until):
					r.t.Errorf("a request %s before the time", time.Until(until))
				default:
					return false
				}
				if a := tc.after(); a != "" {
					x.w.Header().Set("Retry-After", a)
				}
				x.w.WriteHeader(tc.status)
				return true
			})
			r.open(nil)
			refused := r.call("write", 10*time.Second)
			r.want(refused, messages.OutcomeUnknown, messages.CodeConnectionLost, "HTTP ")
			if n := r.arrived(); n != 1 {
				t.Errorf("the side effect arrived %d times", n)
			}
			for _, out := range r.many(10, "read", harness.Patience) {
				r.ok(out)
				if out.Attempt < 1 {
					t.Errorf("%d attempts", out.Attempt)
				}
			}
			r.ok(r.call("write", harness.Patience))
			if s := r.status(); s.State != messages.StateReady || s.Generation != 1 && s.Restarts != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestN07RetryAfterBeyondTheDeadline: who cannot wait that long is told so, and not
// sent.
func TestN07RetryAfterBeyondTheDeadline(t *testing.T) {
	r := newRig(t)
	r.o.on("tools/call", func(x *exchange) bool {
		x.w.Header().Set("Retry-After", "86400")
		x.w.WriteHeader(429)
		return true
	})
	r.open(nil)
	r.want(r.call("write", 10*time.Second), messages.OutcomeUnknown, messages.CodeConnectionLost, "HTTP 429", "wait 1m0s") // the cap
	out := r.call("write", time.Second)
	r.want(out, messages.NotSent, messages.CodeUnavailable, "too many requests")
	if n := r.arrived(); n != 0 {
		t.Errorf("it arrived %d times", n)
	}
}

// TestN07RetryAfterAtTheStart: a server that is not ready yet says when it will be.
func TestN07RetryAfterAtTheStart(t *testing.T) {
	r := newRig(t)
	var first time.Time
	r.o.on("initialize", func(x *exchange) bool {
		x.o.mu.Lock()
		defer x.o.mu.Unlock()
		if first.IsZero() {
			first = time.Now()
		}
		if time.Since(first) > 1500*time.Millisecond {
			return false
		}
		if time.Since(first) > 100*time.Millisecond {
			r.t.Errorf("asked again after %s", time.Since(first))
		}
		x.w.Header().Set("Retry-After", "2")
		x.w.WriteHeader(503)
		return true
	})
	r.open(nil)
	r.ok(r.call("write", harness.Patience))
}

// TestN07Unavailable: a server that answers 503 to everything is given up by the
// policy, is not hammered meanwhile, and comes back.
func TestN07Unavailable(t *testing.T) {
	for _, status := range []int{500, 502, 503, 504} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			r := newRig(t)
			r.open(harness.M{"health": harness.M{"probe_every": "100ms", "failures": 2},
				"restart": harness.M{"backoff": harness.M{"initial": "50ms", "max": "200ms"}, "burst": 4, "within": "10m", "quarantine": harness.M{"cooldown": "1s"}}})
			n := len(r.o.requests(""))
			r.o.on("", func(x *exchange) bool { x.w.WriteHeader(status); return true })
			r.want(r.call("write", 5*time.Second), messages.OutcomeUnknown, messages.CodeConnectionLost, "HTTP 5")
			if got := r.arrived(); got != 1 {
				t.Errorf("the side effect arrived %d times", got)
			}
			r.await(messages.StateQuarantined)
			if n = len(r.o.requests("")) - n; n > 60 {
				t.Errorf("%d requests until it was given up", n)
			}
			r.o.calm()
			r.await(messages.StateReady)
			r.ok(r.call("write", harness.Patience))
		})
	}
}
