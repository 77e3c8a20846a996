//go:build linux

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

func TestHTTPFailedStarts(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(code) }
	}
	evil := newWeb(t, status(200))
	closed := httptest.NewServer(nil)
	closed.Close()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	tests := []struct {
		name    string
		url     string
		h       http.Handler
		stage   messages.Stage
		reason  string
		hint    string
		blocked bool
	}{
		{"refused", closed.URL, nil, messages.StageConnect, "connection refused", "is the server running", false},
		{"no host", "http://no-such-host.invalid/mcp", nil, messages.StageConnect, "no-such-host.invalid", "", false},
		{"401", "", status(401), messages.StageHandshake, "HTTP 401", "headers.Authorization", true},
		{"403", "", status(403), messages.StageHandshake, "HTTP 403", "headers.Authorization", true},
		{"404", "", status(404), messages.StageHandshake, "HTTP 404", "path of url", false},
		{"500", "", status(500), messages.StageHandshake, "HTTP 500", "", false},
		{"elsewhere", "", http.RedirectHandler(evil.URL, 307), messages.StageConnect, "another origin", "redirects to", false},
		{"to GET", "", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/x", 302) }), messages.StageConnect, "redirected to /x", "", false},
		{"no url", "ftp://x", nil, messages.StageConfig, "no http or https URL", "", false},
		{"silent", "", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }), messages.StageHandshake, "start budget", "url is the server", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := tt.url
			if url == "" {
				url = newUnwaited(t, tt.h)
			}
			r := newWebRig(t, url, config.HTTP)
			if tt.name == "silent" {
				r.o.Budget = time.Second
			}
			f := r.tryDial()
			if f == nil {
				t.Fatal("no error")
			}
			x := f.Exit
			if x.Stage != tt.stage || !strings.Contains(x.Reason, tt.reason) || !strings.Contains(x.Hint, tt.hint) || x.Blocked != tt.blocked {
				t.Errorf("exit %+v", x)
			}
		})
	}
	if n := len(evil.requests()); n != 0 {
		t.Errorf("%d requests went to another origin", n)
	}
}

// newUnwaited is a server whose end does not wait for hung handlers.
func newUnwaited(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		go s.Close()
	})
	return s.URL
}

func TestHTTPSameOriginRedirectIsFollowed(t *testing.T) {
	h := scripted(func(rw http.ResponseWriter, _ *http.Request, id json.RawMessage) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	})
	w := newWeb(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			http.Redirect(rw, r, "/mcp/", http.StatusTemporaryRedirect)
			return
		}
		h(rw, r)
	}))
	r := newWebRig(t, w.URL+"/mcp", config.HTTP).dial()
	r.kind(r.call("x", `{}`), messages.ReplyResult)
	for _, q := range w.requests() {
		if q.Header.Get("X-Tenant") != "a" {
			t.Errorf("%s %s without the configured header", q.Method, q.URL.Path)
		}
	}
}

func TestHTTPStopIsBounded(t *testing.T) {
	hang := make(chan struct{})
	h := scripted(func(http.ResponseWriter, *http.Request, json.RawMessage) { <-hang })
	url := newUnwaited(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			<-hang
		}
		h(rw, r)
	}))
	defer close(hang)
	r := newWebRig(t, url, config.HTTP).dial()
	e := r.exec("x", `{}`)
	ch := r.start(e)
	r.entered(e)
	r.peer.Stop(messages.Ladder{StdinClose: 50 * time.Millisecond, SigTerm: 50 * time.Millisecond, Kill: patience})
	r.kind(r.await(ch), messages.ReplyLost)
	r.wait(r.peer.Done(), "done")
	if err := errors.New(r.peer.Exit().Reason); err.Error() != "stopped" {
		t.Errorf("exit %v", err)
	}
}
