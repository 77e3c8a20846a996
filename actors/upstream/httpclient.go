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
	"time"
)

const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 30 * time.Second // of GET and DELETE: an event stream answers at once
	maxRedirects  = 3
)

// errRedirect is a redirect that is not followed.
type errRedirect struct{ reason string }

func (e *errRedirect) Error() string { return e.reason }

// newHTTPClient makes the client of one upstream. It speaks HTTP/1.1 only: there a
// request that has a connection is written at once and whole, which is what the
// boundary of a call needs, and the transport never sends a request with a body twice.
func newHTTPClient(ctx context.Context, base *url.URL, headers map[string]string, conns int) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	tr := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		MaxConnsPerHost:     conns,
		MaxIdleConnsPerHost: conns,
		IdleConnTimeout:     30 * time.Second,
		Protocols:           &protocols,
	}
	return &http.Client{
		Transport: &guard{ctx: ctx, base: tr, origin: originOf(base), headers: headers},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case originOf(req.URL) != originOf(base):
				return &errRedirect{fmt.Sprintf("redirected to another origin, %s: not followed", originOf(req.URL))}
			case req.Method != via[0].Method:
				return &errRedirect{fmt.Sprintf("redirected to %s in a way that drops the request: use that as url", req.URL.Path)}
			case len(via) > maxRedirects:
				return &errRedirect{"too many redirects"}
			}
			return nil
		},
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
	base    *http.Transport
	origin  string
	headers map[string]string
}

var errHeaders = errors.New("the server sent no response headers in time")

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if o := originOf(req.URL); o != g.origin {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("%s is another origin than the configured %s: not contacted", o, g.origin)
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
	resp, err := g.base.RoundTrip(r)
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
		return nil, err
	}
	resp.Body = &guardedBody{ReadCloser: resp.Body, end: func() { stop(); cancel(nil) }}
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (g *guard) CloseIdleConnections() { g.base.CloseIdleConnections() }

// guardedBody frees what the guard holds for a request when its body is closed.
type guardedBody struct {
	io.ReadCloser
	end func()
}

func (b *guardedBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
