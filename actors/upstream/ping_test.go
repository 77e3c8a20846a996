//go:build linux

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/test/freeze"
)

// ping asks with a deadline that no live server needs.
func (r *rig) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.peer.Ping(ctx)
}

func (r *rig) pings(n int) {
	r.t.Helper()
	for range n {
		if err := r.ping(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// silent is a question whose answer is not waited for for long.
func silent(ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	return ask(ctx)
}

// What a server is asked depends on what it understands; whatever it answers is an
// answer.
func TestPing(t *testing.T) {
	for _, tc := range []struct{ modes, asked string }{
		{"plain", "3 pings, 1 lists"},
		{"badping", "3 pings, 1 lists"},
		{"noping", "1 pings, 3 lists"},
		{"noping,notools", "1 pings, 0 lists"},
		{"noping,nolist", "1 pings, 3 lists"},
		{"noping,pages", "1 pings, 52 lists"}, // 50 of them of the start: a sign of life takes one page
	} {
		t.Run(tc.modes, func(t *testing.T) {
			r := newRig(t, tc.modes).dial()
			r.pings(3)
			if got := text(t, r.call("asked", `{}`)); got != tc.asked {
				t.Errorf("asked %s, want %s", got, tc.asked)
			}
		})
	}
}

// The revision without sessions has no ping.
func TestPingNewestRevision(t *testing.T) {
	r := newRig(t, "sdk").dial()
	before := r.peer.LastHeard()
	r.pings(2)
	if !r.peer.LastHeard().After(before) {
		t.Error("the answer was not heard")
	}
}

// A server that ignores pings and answers the list is asked for lists from then on.
func TestConfirm(t *testing.T) {
	r := newRig(t, "silentping").dial()
	before := r.peer.LastHeard()
	if err := silent(r.peer.Ping); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ping: %v", err)
	}
	if got := r.peer.LastHeard(); !got.Equal(before) {
		t.Errorf("heard at %s, want %s", got, before)
	}
	if err := r.peer.Confirm(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.pings(1)
	if got := text(t, r.call("asked", `{}`)); got != "1 pings, 3 lists" {
		t.Errorf("asked %s", got)
	}
	if n := r.peer.(*peer).mux.inFlight(); n != 0 {
		t.Errorf("%d requests are still waited for", n)
	}
}

// A server that says that it has no tools is asked for them all the same.
func TestConfirmWithoutTools(t *testing.T) {
	r := newRig(t, "silentping,notools,nolist").dial()
	if err := r.peer.Confirm(context.Background()); err != nil {
		t.Error(err)
	}
	r = newRig(t, "silentping,notools,listhang").dial()
	if err := silent(r.peer.Confirm); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("confirm: %v", err)
	}
}

// A stopped process answers nothing; what it says late is heard.
func TestPingStoppedProcess(t *testing.T) {
	r := newRig(t, "plain").dial()
	r.pings(1)
	pid := r.peer.Info().PID
	freeze.Process(t, pid)
	before := r.peer.LastHeard()
	for _, ask := range []func(context.Context) error{r.peer.Ping, r.peer.Confirm} {
		if err := silent(ask); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
	}
	if !r.peer.LastHeard().Equal(before) {
		t.Error("something was heard")
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.eventually("late answer", func() bool { return r.peer.LastHeard().After(before) })
	r.pings(1)
}

func TestPingDeadProcess(t *testing.T) {
	r := newRig(t, "plain").dial()
	_ = syscall.Kill(r.peer.Info().PID, syscall.SIGKILL)
	r.wait(r.peer.Gone(), "gone")
	if err := r.ping(); err == nil {
		t.Error("a dead server answered")
	}
}

// Messages are signs of life, asked for or not; noise is none.
func TestLastHeard(t *testing.T) {
	n := newNoise(func(uint64, bool) {})
	defer n.stop()
	m := newMux(func() {}, n)
	if !m.lastHeard().Equal(m.born) {
		t.Error("heard before anything was said")
	}
	for line, want := range map[string]bool{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`:                   true,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}`: true,
		`{"jsonrpc":"2.0","id":1000000077,"result":{}}`:                                    true, // nobody waits for it
		`[{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":""}}]`:                       true,
		`server is running`:                   false,
		``:                                    false,
		`{"level":"info","msg":"heartbeat"}`:  false,
		`{"level":"error","error":"no disk"}`: false,
		`{"jsonrpc":`:                         false,
	} {
		m.heard.Store(0)
		time.Sleep(time.Microsecond)
		m.inbound(frame{data: []byte(line)})
		if got := m.lastHeard().After(m.born); got != want {
			t.Errorf("%s: heard %v", line, got)
		}
	}
}

func TestPingHTTP(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		w := newWeb(t, nil)
		w.handler = sdkHandler(t, stateless)
		r := newWebRig(t, w.URL, config.HTTP).dial()
		before := r.peer.LastHeard()
		r.pings(2)
		if !r.peer.LastHeard().After(before) {
			t.Error("the answer was not heard")
		}
		if err := r.peer.Confirm(context.Background()); err != nil {
			t.Error(err)
		}
		r.peer.Stop(messages.Ladder{StdinClose: patience, SigTerm: patience})
		r.wait(r.peer.Done(), "done")
	}
}

// An answer below JSON-RPC that makes no sense is one; a proxy whose server is away,
// a server that does not answer and one that is not there give none.
func TestPingHTTPAnswers(t *testing.T) {
	hang := make(chan struct{})
	status := make(chan int, 1) // of the next answer; 0 = none
	plain := scripted(func(http.ResponseWriter, *http.Request, json.RawMessage) {})
	w := newWeb(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		select {
		case code := <-status:
			if code == 0 {
				select {
				case <-hang:
				case <-r.Context().Done():
				}
				return
			}
			rw.WriteHeader(code)
		default:
			plain(rw, r)
		}
	}))
	t.Cleanup(func() { close(hang) }) // before the server is closed
	r := newWebRig(t, w.URL, config.HTTP).dial()
	r.pings(1) // HTTP 202
	status <- http.StatusBadGateway
	if err := r.ping(); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("HTTP 502: %v", err)
	}
	status <- 0
	if err := silent(r.peer.Ping); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	w.CloseClientConnections()
	w.Listener.Close()
	if err := r.ping(); err == nil {
		t.Error("nobody is there, and it answered")
	}
	r.peer.Stop(messages.Ladder{})
}
