package network

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// proxy is a forward proxy that leads every host to one place.
type proxy struct {
	*httptest.Server
	to string // address of the real server

	mu     sync.Mutex
	asked  []string // "CONNECT host:port", "POST http://host/path"
	auth   []string
	refuse int  // status of its refusals; 0 = none
	broken bool // it hangs up on CONNECT
}

func newProxy(t *testing.T, to string) *proxy {
	p := &proxy{to: to}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() { p.CloseClientConnections(); go p.Close() })
	return p
}

func (p *proxy) set(refuse int, broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.broken = refuse, broken
}

// requests are what it was asked for.
func (p *proxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	what := r.Method + " " + r.URL.String()
	if r.Method == http.MethodConnect {
		what = "CONNECT " + r.Host
	}
	p.asked = append(p.asked, what)
	p.auth = append(p.auth, r.Header.Get("Proxy-Authorization"))
	refuse, broken := p.refuse, p.broken
	p.mu.Unlock()
	switch {
	case broken:
		panic(http.ErrAbortHandler)
	case refuse != 0:
		w.Header().Set("Proxy-Authenticate", `Basic realm="the proxy"`)
		w.WriteHeader(refuse)
	case r.Method == http.MethodConnect:
		p.tunnel(w)
	default:
		out := r.Clone(r.Context())
		out.URL.Host, out.RequestURI = p.to, ""
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, resp.Body)
	}
}

func (p *proxy) tunnel(w http.ResponseWriter) {
	up, err := net.Dial("tcp", p.to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	down, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { _, _ = io.Copy(up, down); _ = up.Close() }()
	_, _ = io.Copy(down, up)
	_ = down.Close()
}

// TestB73Proxy: the proxy of the environment is used for what is not excepted, in
// either spelling, and passed on to children; localhost is direct.
func TestB73Proxy(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  func(p string) []string
		tls  bool
		via  bool // web goes through the proxy
	}{
		{"HTTP_PROXY", func(p string) []string { return []string{"HTTP_PROXY=" + p} }, false, true},
		{"http_proxy", func(p string) []string { return []string{"http_proxy=" + p} }, false, true},
		{"HTTPS_PROXY", func(p string) []string { return []string{"HTTPS_PROXY=" + p} }, true, true},
		{"https_proxy", func(p string) []string { return []string{"https_proxy=" + p} }, true, true},
		{"with credentials", func(p string) []string {
			return []string{"HTTPS_PROXY=" + strings.Replace(p, "http://", "http://me:s3cret-proxy@", 1)}
		}, true, true},
		{"the other one", func(p string) []string { return []string{"HTTP_PROXY=" + p} }, true, false},
		{"NO_PROXY", func(p string) []string { return []string{"HTTPS_PROXY=" + p, "NO_PROXY=other.test,example.com"} }, true, false},
		{"no_proxy, suffix", func(p string) []string { return []string{"https_proxy=" + p, "no_proxy=.com"} }, true, false},
		{"NO_PROXY for all", func(p string) []string { return []string{"HTTPS_PROXY=" + p, "NO_PROXY=*"} }, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lab := harness.NewLab(t)
			o := plainOrigin(t, lab, "web")
			env := []string{}
			url := "http://example.com/mcp"
			if tc.tls {
				o.Server = httptest.NewTLSServer(o) // its certificate is for example.com
				env = append(env, "SSL_CERT_FILE="+trust(t, lab, o))
				url = "https://example.com/mcp"
			} else {
				o.Server = httptest.NewServer(o)
			}
			o.closeAtTheEnd(t)
			p := newProxy(t, o.Listener.Addr().String())
			here := newOrigin(t, lab, "here")
			d := harness.Start(t, harness.Options{Env: append(env, tc.env(p.URL)...), Config: harness.Config(harness.M{
				"web":  harness.M{"url": url, "type": "http", "restart": quickly, "timeouts": harness.M{"start": "2s", "first_start": "2s"}},
				"here": harness.M{"url": strings.Replace(here.URL, "127.0.0.1", "localhost", 1) + "/mcp", "type": "http"},
				"near": lab.Server(t, "near")})})
			d.Await(t, "ready", "here", "near")
			if out, r := d.Call(t, "here/write", `{"nonce":"h"}`); out.Kind != messages.OK {
				t.Errorf("localhost: %s", r)
			}
			out, _ := d.Call(t, "near/env", `{}`)
			for _, kv := range tc.env(p.URL) {
				if !strings.Contains(out.Text(), strings.SplitN(kv, "=", 2)[0]) {
					t.Errorf("the child has no %s", kv)
				}
			}
			if !tc.via {
				// Nobody can reach example.com here; that it was tried without the proxy counts.
				harness.Eventually(t, "a direct connection was tried", func() bool { return d.Server(t, "web").LastExit != nil })
				if got := p.requests(); len(got) > 0 {
					t.Errorf("the proxy was asked for %q", got)
				}
				return
			}
			d.Await(t, "ready", "web")
			if out, r := d.Call(t, "web/write", `{"nonce":"w"}`); out.Kind != messages.OK {
				t.Error(r)
			}
			for _, got := range p.requests() {
				want := "http://example.com/mcp"
				if tc.tls {
					want = "CONNECT example.com:443"
				}
				if !strings.HasSuffix(got, want) {
					t.Errorf("the proxy was asked for %q", got)
				}
			}
			if strings.Contains(d.Stderr(), "s3cret-proxy") {
				t.Error("the log holds the proxy's password")
			}
		})
	}
}

// TestB73ProxyFails: through a proxy nothing is sent before the tunnel stands, and the
// outcome knows it.
func TestB73ProxyFails(t *testing.T) {
	lab := harness.NewLab(t)
	o := plainOrigin(t, lab, "web")
	o.Server = httptest.NewTLSServer(o)
	o.closeAtTheEnd(t)
	p := newProxy(t, o.Listener.Addr().String())
	d := harness.Start(t, harness.Options{Env: []string{"SSL_CERT_FILE=" + trust(t, lab, o), "HTTPS_PROXY=" + strings.Replace(p.URL, "http://", "http://me:s3cret-proxy@", 1)},
		Config: harness.Config(harness.M{"web": harness.M{"url": "https://example.com/mcp", "type": "http", "restart": quickly}})})
	d.Await(t, "ready", "web")
	for _, tc := range []struct {
		name   string
		status int
		broken bool
	}{{"407", 407, false}, {"502", 502, false}, {"403", 403, false}, {"hangs up", 0, true}} {
		p.set(tc.status, tc.broken)
		time.Sleep(4500 * time.Millisecond) // idle connections through it are closed
		out, r := d.Call(t, "web/write", `{"nonce":"`+tc.name+`"}`, "--timeout", "1s")
		if out.Kind != messages.NotSent || out.SafeToRetry() == false {
			t.Errorf("%s: %s", tc.name, r)
		}
		if strings.Contains(r.Stdout+r.Stderr, "s3cret") {
			t.Errorf("%s: the password is shown: %s", tc.name, r)
		}
		p.set(0, false)
		if out, r := d.Call(t, "web/write", `{"nonce":"`+tc.name+` again"}`); out.Kind != messages.OK {
			t.Errorf("after %s: %s", tc.name, r)
		}
	}
	h := lab.History(t)
	for _, n := range []string{"407", "502", "403", "hangs up"} {
		if h.Begins(n) != 0 || h.Begins(n+" again") != 1 {
			t.Errorf("%s: began %d times, then %d", n, h.Begins(n), h.Begins(n+" again"))
		}
	}
	if strings.Contains(d.Stderr(), "s3cret-proxy") {
		t.Error("the log holds the proxy's password")
	}
}
