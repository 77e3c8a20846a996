package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// listener is a client that has its event stream open, on a connection of its own.
type listener struct {
	conn *net.TCPConn
	in   *bufio.Reader
	ss   *mcp.ServerSession
}

// listen opens the stream of an era and waits until an event has come through it.
func listen(t *testing.T, g *Gateway, b *fakeBackend, url string, modern bool) *listener {
	t.Helper()
	sc := g.scopeFor(scopeKey{})
	l := &listener{}
	req := newRequest(t, http.MethodPost, url, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+meta26+`}}`, headers26("subscriptions/listen", "")...)
	if !modern {
		id := open(t, url)
		req = newRequest(t, http.MethodGet, url, "", headerSession, id)
		l.ss = g.sessions.get(id, Anonymous, sc).ss
	}
	conn, err := net.Dial("tcp", req.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	l.conn = conn.(*net.TCPConn)
	t.Cleanup(func() { _ = conn.Close() })
	_ = l.conn.SetReadBuffer(4096)
	_ = l.conn.SetReadDeadline(time.Now().Add(patience))
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	l.in = bufio.NewReader(conn)
	if modern {
		l.readTo(t, "acknowledged")
		for s := range sc.server.Sessions() {
			if g.sessions.get(s.ID(), Anonymous, sc) == nil {
				l.ss = s
			}
		}
	} else {
		l.readTo(t, "text/event-stream")
	}
	b.set(simple("fs", "read"), simple("fs", fmt.Sprintf("seen%d", b.Catalogue().Version)))
	l.readTo(t, "notifications/tools/list_changed")
	return l
}

// readTo reads until a line with the words has come.
func (l *listener) readTo(t *testing.T, words string) {
	t.Helper()
	for {
		line, err := l.in.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended before %q: %v", words, err)
		}
		if strings.Contains(line, words) {
			return
		}
	}
}

const eventSize = 64 << 10

// event sends the client one large event.
func (l *listener) event(t *testing.T) error {
	return l.ss.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{ProgressToken: "t", Message: strings.Repeat("x", eventSize)})
}

// serving is how many requests the gateway works on.
func serving(t *testing.T) int {
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Fatal(err)
	}
	return strings.Count(stacks.String(), "gateway.(*Gateway).serveHTTP(")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what a finalizer or a pool held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestListenerDisappears: of a client that is gone while its event stream is open, in
// whatever way, nothing is left but the session that it may come back to; its events
// are not kept, and those who are still there hear of every change.
func TestListenerDisappears(t *testing.T) {
	for _, era := range []string{"2025", "2026"} {
		for _, tt := range []struct {
			name string
			gone func(*testing.T, *listener)
		}{
			{"it closes", func(_ *testing.T, l *listener) { _ = l.conn.Close() }},
			{"it is reset", func(_ *testing.T, l *listener) { _ = l.conn.SetLinger(0); _ = l.conn.Close() }},
			{"it does not read", func(t *testing.T, l *listener) {
				sent := 0
				for l.event(t) == nil { // what the kernel takes is not ours
					if sent++; sent*eventSize > 64<<20 {
						t.Fatal("events are taken without end, and nobody reads them")
					}
				}
			}},
		} {
			t.Run(era+"/"+tt.name, func(t *testing.T) {
				modern := era == "2026"
				b := newBackend(simple("fs", "read"))
				g, srv := start(t, b, Options{}, func(g *Gateway) { g.unread = 200 * time.Millisecond })
				sc := g.scopeFor(scopeKey{})
				stays := listen(t, g, b, srv.URL+"/mcp", false)
				sessions, requests := len(collect(sc)), serving(t)
				l := listen(t, g, b, srv.URL+"/mcp", modern)
				if n := serving(t); n != requests+1 {
					t.Fatalf("%d requests are served, want %d", n, requests+1)
				}
				tt.gone(t, l)
				// The session of the older era stays until it is reaped: the client may come back.
				within(t, "the request and the subscription are over", func() bool {
					n := len(collect(sc))
					return serving(t) == requests && (modern && n == sessions || !modern && n == sessions+1)
				})
				before, goroutines := heap(), runtime.NumGoroutine()
				for range 400 { // 25 MiB
					_ = l.event(t)
				}
				for i := range 20 {
					b.set(simple("fs", "read"), simple("fs", fmt.Sprintf("later%d", i)))
					stays.readTo(t, "notifications/tools/list_changed")
				}
				if after := heap(); after > before+(8<<20) {
					t.Errorf("%d KiB more are held", (after-before)>>10)
				}
				within(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
				if !modern {
					within(t, "the session can be reaped", func() bool {
						g.sessions.reap(time.Now().Add(2 * sessionIdle))
						return len(collect(sc)) == 1 // of the client that is there
					})
				}
			})
		}
	}
}

func collect(sc *scope) (all []*mcp.ServerSession) {
	for s := range sc.server.Sessions() {
		all = append(all, s)
	}
	return all
}

// within waits until ok holds.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
