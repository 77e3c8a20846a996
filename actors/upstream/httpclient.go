package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 30 * time.Second // of GET and DELETE: an event stream answers at once
	maxHeaders    = 256 << 10        // bytes of a response's headers
	// idleTimeout is shorter than the five seconds after which many servers hang up
	// on a connection that nobody uses: a call that leaves at that very moment is
	// lost, and nobody can tell whether it arrived.
	idleTimeout = 4 * time.Second
	// connectionLife is how long connections to a named host are used for new
	// requests: after it the name is looked up again.
	connectionLife = 30 * time.Second
)

// newHTTPClient makes the client of one upstream. It speaks HTTP/1.1 only: there a
// request that has a connection is written at once and whole, which is what the
// boundary of a call needs, and the transport never sends a request with a body twice.
// It follows no redirect: remote.do decides about those.
func newHTTPClient(ctx context.Context, base *url.URL, headers map[string]string, conns int, life time.Duration) *http.Client {
	g := &guard{ctx: ctx, origin: originOf(base), headers: headers, conns: conns}
	if net.ParseIP(base.Hostname()) == nil {
		g.life = life
	}
	g.base, g.born = g.newTransport(), time.Now()
	return &http.Client{
		Transport:     g,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// originOf is scheme, host and port.
func originOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// guard is the RoundTripper under everything that goes to one server: configured
// headers for its origin and nobody else, no second sending of a body, and an end
// to every request when the peer ends.
type guard struct {
	ctx     context.Context
	origin  string
	headers map[string]string
	conns   int
	life    time.Duration // 0 = for ever: an address does not change

	mu   sync.Mutex
	base *http.Transport
	born time.Time
}

func (g *guard) newTransport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		// A peer that is gone without a word is found out within half a minute.
		Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxConnsPerHost:        g.conns,
		MaxIdleConnsPerHost:    g.conns,
		MaxResponseHeaderBytes: maxHeaders,
		IdleConnTimeout:        idleTimeout,
		Protocols:              &protocols,
	}
}

// transport is the one for the next request. One that has lived for long enough is
// replaced, because its connections may lead to where the host's name no longer
// points; what is under way on it ends there.
func (g *guard) transport() *http.Transport {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); g.life > 0 && now.Sub(g.born) > g.life {
		old := g.base
		g.base, g.born = g.newTransport(), now
		old.CloseIdleConnections() // and the others as they become idle
	}
	return g.base
}

var errHeaders = errors.New("the server sent no response headers in time")

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if o := originOf(req.URL); o != g.origin {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("%s is another origin than the configured %s: not contacted", shown(o), g.origin)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(g.ctx, func() { cancel(errGone) })
	r := req.Clone(ctx)
	r.GetBody = nil // with it, net/http may send the body again
	for k, v := range g.headers {
		if strings.EqualFold(k, "Host") {
			r.Host = v
			continue
		}
		r.Header.Set(k, v)
	}
	var timer *time.Timer
	if req.Method != http.MethodPost {
		timer = time.AfterFunc(headerTimeout, func() { cancel(errHeaders) })
	}
	tr := g.transport()
	resp, err := tr.RoundTrip(r)
	if timer != nil && !timer.Stop() && err == nil {
		_ = resp.Body.Close()
		err = errHeaders
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		stop()
		cancel(nil)
		// The other connections lead to the same place: whoever comes next makes a new one.
		tr.CloseIdleConnections()
		return nil, err
	}
	if _, err := url.Parse(resp.Header.Get("Location")); err != nil {
		resp.Header.Set("Location", "invalid:") // http.Client would fail with the text of it
	}
	resp.Body = &guardedBody{ReadCloser: resp.Body, end: func() { stop(); cancel(nil) }, broken: tr.CloseIdleConnections}
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (g *guard) CloseIdleConnections() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base.CloseIdleConnections()
}

// guardedBody frees what the guard holds for a request when its body is closed.
type guardedBody struct {
	io.ReadCloser
	end    func()
	broken func()
}

// Read implements io.Reader.
func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.broken()
	}
	return n, err
}

func (b *guardedBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
