package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// http connects to a URL. A server that takes a request for the newest revision
// badly is asked again for the older handshake; one that does not know Streamable
// HTTP at all is tried with HTTP+SSE where the configuration leaves it open.
func (d *dialer) http(ctx context.Context) (*peer, messages.Listing, *Failure) {
	defer d.close()
	base, err := url.Parse(d.o.Server.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, messages.Listing{}, &Failure{messages.Exit{Stage: messages.StageConfig, Permanent: true,
			Reason: fmt.Sprintf("%q is no http or https URL", d.o.Server.URL), Hint: "correct url"}}
	}
	d.spawned(ctx, 0)
	if d.o.Server.Type == config.SSE {
		p, l, f, _ := d.remote(base, true)
		return p, l, f
	}
	p, l, f, r := d.remote(base, false)
	if f != nil && d.ctx.Err() == nil && len(r.offers()) > 0 {
		// It does not negotiate, and says what it would take.
		d.pinned, d.skipProbe, d.version = true, true, r.offers()[0]
		p, l, f, r = d.remote(base, false)
	}
	if f == nil || d.ctx.Err() != nil || f.Exit.Blocked {
		return p, l, f
	}
	if r.fallsBack() {
		if d.o.Server.Type == config.Auto {
			p, l, f2, _ := d.remote(base, true)
			if f2 == nil {
				return p, l, nil
			}
			f.Exit.Reason += "; HTTP+SSE: " + f2.Exit.Reason
		}
		return nil, messages.Listing{}, f
	}
	if !d.pinned && f.Exit.Stage == messages.StageHandshake && !f.Exit.Permanent && f.Exit.RetryAfter == 0 && !r.unreachable() {
		d.pinned, d.skipProbe = true, true
		if p, l, f2, _ := d.remote(base, false); f2 == nil {
			return p, l, nil
		}
	}
	return nil, messages.Listing{}, f
}

// remote makes one attempt.
func (d *dialer) remote(base *url.URL, sse bool) (*peer, messages.Listing, *Failure, *remote) {
	m := newMux(d.o.OnListChanged, newNoise(d.o.OnNoise))
	r := newRemote(d.o, m, d.red, base, d.frameBytes())
	r.asked = d.revision()
	info := messages.PeerInfo{Transport: "http"}
	if sse {
		info.Transport = "sse"
		if err := r.openSSE(d.ctx); err != nil {
			f := d.failed(m, r, messages.StageConnect, err)
			r.explain(f)
			return nil, messages.Listing{}, f, r
		}
	}
	p, l, f := d.establish(m, r, info, d.o.tuning().probeHTTP)
	if f != nil {
		r.explain(f)
	}
	return p, l, f, r
}

// fallsBack reports whether the server refused initialize in the way of one that
// only knows HTTP+SSE.
func (r *remote) fallsBack() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.status["initialize"] {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	default:
		return false
	}
}

// offers are the protocol revisions that the server named when it refused ours.
func (r *remote) offers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offered
}

func (r *remote) unreachable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault != nil && r.fault.status == 0
}

// explain makes a failed handshake say what happened on the way: the SDK sees only
// that its request failed.
func (r *remote) explain(f *Failure) {
	r.mu.Lock()
	fault, host := r.fault, r.host
	r.mu.Unlock()
	x := &f.Exit
	if fault != nil {
		x.RetryAfter = fault.after
	}
	if x.Stage == messages.StageListTools || fault == nil || x.Permanent {
		return
	}
	if fault.status != 0 {
		x.Stage = messages.StageHandshake
		x.Reason = fault.method + ": " + fault.err.Error()
		switch fault.status {
		case http.StatusUnauthorized, http.StatusForbidden:
			x.Blocked = true
			x.Hint = "set headers.Authorization (or what the server asks for) and restart the bridge, which reads its configuration at start"
		case http.StatusNotFound, http.StatusMethodNotAllowed:
			x.Hint = "check the path of url: it must be the server's MCP endpoint, often ending in /mcp or /sse"
		}
		return
	}
	x.Stage = messages.StageConnect
	x.Reason = r.red.String(fault.err.Error())
	x.Hint = connectHint(fault.err, host)
	var redirect *errRedirect
	if errors.As(fault.err, &redirect) {
		x.Hint = "set url to the address that the server redirects to, if you trust it"
	}
}

// connectHint says what to look at when there is no HTTP response at all.
func connectHint(err error, host string) string {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return "check the host name in url, and the network"
	case errors.As(err, &unknown):
		return "the certificate's issuer is not known here: set SSL_CERT_FILE for the bridge if it is your own"
	case errors.As(err, &name):
		return "the certificate is for another host: check url"
	case errors.As(err, &record):
		return "the server does not speak TLS: is it http instead of https?"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens on " + host + ": is the server running?"
	case errors.As(err, &op) && op.Timeout():
		return host + " does not answer: check url, network and proxy"
	default:
		return ""
	}
}
