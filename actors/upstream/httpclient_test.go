//go:build linux

package upstream

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"testing"
	"time"
)

// TestConnectionsOfANameAreRenewed: connections to a name are not kept for ever, however
// steadily they are used, because the name may lead elsewhere by now; those to an
// address are.
func TestConnectionsOfANameAreRenewed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for host, renewed := range map[string]bool{"localhost": true, "127.0.0.1": false} {
		base := &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}
		c := newHTTPClient(t.Context(), base, nil, 4, 200*time.Millisecond)
		fresh := 0
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if !i.Reused {
				fresh++
			}
		}})
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		c.CloseIdleConnections()
		if (fresh > 1) != renewed {
			t.Errorf("%s: %d connections", host, fresh)
		}
	}
}
