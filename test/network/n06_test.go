package network

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// stranger is another origin. Nothing may ever reach it.
func stranger(t *testing.T, tls bool) *httptest.Server {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s reached another origin with %v", r.Method, r.URL, r.Header)
	})
	s := httptest.NewUnstartedServer(h)
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// redirect answers with a redirect as it is written.
func (x *exchange) redirect(status int, to string) {
	if to != "" {
		x.w.Header()["Location"] = []string{to}
	}
	x.w.WriteHeader(status)
}

// TestN06RedirectedCall: the server has carried the call out and then redirects it, to
// whatever place. It is never sent again, and nobody else hears of it.
func TestN06RedirectedCall(t *testing.T) {
	other := stranger(t, false)
	host := strings.TrimPrefix(other.URL, "http://")
	for _, status := range []int{301, 302, 303, 307, 308} {
		for name, to := range map[string]string{
			"same place": "/mcp", "same origin": "/elsewhere", "relative": "x?y=z", "other origin": other.URL + "/mcp", "scheme only": "//" + host + "/mcp",
			"https": "https://" + host + "/mcp", "with credentials": "http://user:s3cret-there@" + host + "/", "no address": "", "a script": "javascript:alert(1)",
			"broken": "http://[::1/%zz", "a file": "file:///etc/passwd",
		} {
			t.Run(fmt.Sprintf("%d %s", status, name), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.o.on("tools/call", func(x *exchange) bool {
					if !contains(x.msg.Params.Arguments, `"redirect"`) {
						return false
					}
					x.act()
					x.redirect(status, to)
					return true
				})
				r.open(nil)
				out := r.callWith("write", 10*time.Second, harness.M{"redirect": true})
				r.want(out, messages.OutcomeUnknown, messages.CodeConnectionLost)
				if strings.Contains(out.ErrorText(), "s3cret") {
					t.Errorf("the message holds the credentials: %s", out.ErrorText())
				}
				if n := r.begins(); n != 1 {
					t.Errorf("the side effect began %d times", n)
				}
				// A read that the operator declared is tried once more, and no more often.
				if out := r.callWith("read", 10*time.Second, harness.M{"redirect": true}); out.Kind != messages.OutcomeUnknown || r.begins() != 2 {
					t.Errorf("read: %s, began %d times", out.Kind, r.begins())
				}
				r.ok(r.call("write", harness.Patience))
			})
		}
	}
}

// TestN06RedirectedHandshake: where a redirect leads within the origin and keeps the
// request as it is, it is followed, once: later requests go there at once.
func TestN06RedirectedHandshake(t *testing.T) {
	for _, status := range []int{307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r := newRig(t)
			r.o.on("", func(x *exchange) bool {
				if x.r.URL.Path == "/mcp/" {
					return false
				}
				x.redirect(status, "/mcp/")
				return true
			})
			r.open(nil)
			r.ok(r.call("write", harness.Patience))
			r.ok(r.call("read", harness.Patience))
			for _, s := range r.o.requests("tools/call") {
				if s.URI != "/mcp/" {
					t.Errorf("a call went to %s first", s.URI)
				}
			}
			for _, s := range r.o.requests("") {
				if s.Header.Get("Authorization") != "Bearer s3cret-token" {
					t.Errorf("%s %s without its header", s.RPC, s.URI)
				}
			}
		})
	}
}

// TestN06RefusedRedirect: what is not followed says so, with the place, and is no
// reason to ask for ever.
func TestN06RefusedRedirect(t *testing.T) {
	other := stranger(t, false)
	for _, tc := range []struct {
		name, to string
		status   int
		say      string
	}{
		{"other origin", other.URL + "/mcp", 307, "another origin"},
		{"other origin, 308", other.URL + "/mcp", 308, "another origin"},
		{"other origin, 301", other.URL + "/mcp", 301, "another origin"},
		{"drops the request", "/there", 302, "drops the request"},
		{"303", "/there", 303, "drops the request"},
		{"loop", "/mcp", 307, "loop"},
		{"no address", "", 307, "HTTP 307"},
		{"nonsense", "http://[::1/%zz", 307, "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.o.on("", func(x *exchange) bool { x.redirect(tc.status, tc.to); return true })
			r.openOnly(harness.M{"restart": harness.M{"backoff": harness.M{"initial": "20ms", "max": "50ms"}, "burst": 3, "within": "10m"}})
			row := r.await(messages.StateQuarantined)
			if !strings.Contains(row.LastExit.Reason, tc.say) {
				t.Errorf("%q does not say %q", row.LastExit.Reason, tc.say)
			}
			if n := len(r.o.requests("")); n > 4*2*6 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestN06Downgrade: a server that was reached over TLS redirects to plain text, on the
// same host. The credentials stay where they are.
func TestN06Downgrade(t *testing.T) {
	lab := harness.NewLab(t)
	o := plainOrigin(t, lab, "web")
	o.Server = httptest.NewTLSServer(o)
	o.closeAtTheEnd(t)
	var plainSeen atomic.Int64
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { plainSeen.Add(1) }))
	t.Cleanup(plain.Close)
	u, err := url.Parse(plain.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.on("", func(x *exchange) bool { x.redirect(307, "http://127.0.0.1:"+u.Port()+"/mcp"); return true })
	ca := trust(t, lab, o)
	d := harness.Start(t, harness.Options{Env: []string{"SSL_CERT_FILE=" + ca}, Config: harness.Config(harness.M{
		"web": harness.M{"url": o.URL + "/mcp", "type": "http", "headers": harness.M{"Authorization": "Bearer s3cret-token"}, "restart": quickly},
	})})
	harness.Eventually(t, "the start has failed", func() bool { return d.Server(t, "web").LastExit != nil })
	if why := d.Server(t, "web").LastExit.Reason; !strings.Contains(why, "not encrypted") {
		t.Errorf("%q", why)
	}
	if plainSeen.Load() > 0 {
		t.Error("it was followed")
	}
	o.calm()
	d.Await(t, "ready", "web")
}
