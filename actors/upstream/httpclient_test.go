//go:build linux

package upstream

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
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

// TestABrokenConnectionTakesTheIdleOnesAlong: they lead to the same place, and a call
// that leaves on one of them may be lost as well.
func TestABrokenConnectionTakesTheIdleOnesAlong(t *testing.T) {
	both := make(chan struct{}, 2)
	var gate sync.WaitGroup
	gate.Add(2)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/both": // two at once, so that there are two connections
			gate.Done()
			gate.Wait()
		case "/break":
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := newHTTPClient(t.Context(), base, nil, 4, time.Hour)
	reused := false
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	get := func(ctx context.Context, path string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	for range 2 {
		go func() {
			if err := get(context.Background(), "/both"); err != nil {
				t.Error(err)
			}
			both <- struct{}{}
		}()
	}
	<-both
	<-both
	if err := get(ctx, "/"); err != nil || !reused {
		t.Fatalf("reused %t, %v", reused, err)
	}
	if err := get(ctx, "/break"); err == nil || !reused {
		t.Fatalf("reused %t, %v", reused, err)
	}
	if err := get(ctx, "/"); err != nil || reused {
		t.Errorf("reused %t, %v", reused, err)
	}
}
