package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"mcpbridge/messages"
)

// aliveWithin is how long the bridge's heart may take to answer /healthz. A loaded
// machine is no reason to be killed by whoever asks.
const aliveWithin = 5 * time.Second

// health is what the probes need of the bridge.
type health interface {
	Calls(ctx context.Context) ([]messages.CallInfo, error)
	Ready() (bool, []string)
	Status() messages.Status
}

// front is everything that the TCP listener serves beside the MCP endpoints.
type front struct {
	bridge       health
	hosts        []string
	origins      []string
	loopback     bool                               // the listener is
	authenticate func(*http.Request) (string, bool) // nil = no token is needed
	draining     atomic.Bool
}

// handler routes. The gateway checks Host, Origin and token for its own paths; the
// rest is checked here.
func (f *front) handler(mcp, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp)
	mux.Handle("/servers/", mcp)
	mux.Handle("GET /healthz", f.guard(http.HandlerFunc(f.healthz)))
	mux.Handle("GET /readyz", f.guard(http.HandlerFunc(f.readyz)))
	mux.Handle("GET /metrics", f.guard(metrics))
	mux.Handle("/", f.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "nothing is here: the MCP endpoint is /mcp, one server is /servers/NAME/mcp; /healthz, /readyz and /metrics tell about the bridge", http.StatusNotFound)
	})))
	return mux
}

// guard refuses a Host that is not this listener's, against pages whose name was
// bound to this address, and foreign origins, then asks for the token where one is needed.
func (f *front) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.hostOK(r.Host) {
			http.Error(w, fmt.Sprintf("host %q is not one of this bridge's names; add it to allowed_hosts if it is", r.Host), http.StatusForbidden)
			return
		}
		if o := r.Header.Values("Origin"); len(o) > 0 && !(len(o) == 1 && f.originOK(o[0])) {
			http.Error(w, fmt.Sprintf("origin %q is not allowed; add it to allowed_origins if it is", o[0]), http.StatusForbidden)
			return
		}
		if f.authenticate != nil {
			if _, ok := f.authenticate(r); !ok {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// hostOK takes the configured names with or without a port. On other than a loopback
// listener an address is fine too: no page can make a browser send one of its own.
func (f *front) hostOK(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if !f.loopback && net.ParseIP(strings.Trim(name, "[]")) != nil {
		return true
	}
	return slices.ContainsFunc(f.hosts, func(h string) bool { return strings.EqualFold(h, host) || strings.EqualFold(h, name) })
}

func (f *front) originOK(origin string) bool {
	if slices.ContainsFunc(f.origins, func(o string) bool { return strings.EqualFold(strings.TrimSuffix(o, "/"), origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && isLoopback(u.Hostname())
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text)
}

// healthz says that the bridge's actors answer.
func (f *front) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), aliveWithin)
	defer cancel()
	if _, err := f.bridge.Calls(ctx); err != nil && !f.draining.Load() {
		plain(w, http.StatusServiceUnavailable, "not alive: "+err.Error())
		return
	}
	plain(w, http.StatusOK, "ok")
}

// readyz says whether every required server is ready; ?verbose lists all of them.
func (f *front) readyz(w http.ResponseWriter, r *http.Request) {
	ok, missing := f.bridge.Ready()
	status, text := http.StatusOK, "ok"
	switch {
	case f.draining.Load():
		status, text = http.StatusServiceUnavailable, "not ready: draining"
	case !ok:
		status, text = http.StatusServiceUnavailable, "not ready: "+strings.Join(missing, ", ")
	}
	if r.URL.Query().Has("verbose") {
		var b strings.Builder
		b.WriteString(text)
		for _, s := range f.bridge.Status().Servers {
			sign := " "
			if s.Required {
				sign = "*"
			}
			fmt.Fprintf(&b, "\n%s %s %s", sign, s.Name, s.State)
			if s.Reason != "" {
				fmt.Fprintf(&b, " (%q)", s.Reason)
			}
		}
		text = b.String()
	}
	plain(w, status, text)
}

// newHTTPServer bounds what a peer may cost before it is known. There is no write
// timeout: event streams stay open for as long as their clients do.
func newHTTPServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
