//go:build linux

package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

const patience = 30 * time.Second

// quick is a tuning for tests that wait for a timeout on purpose.
var quick = tuning{probeStdio: 300 * time.Millisecond, probeHTTP: 300 * time.Millisecond, minWrite: 300 * time.Millisecond,
	controlWrite: 5 * time.Second, eofGrace: 300 * time.Millisecond, listenDelay: 20 * time.Millisecond, lastWords: time.Second, connLife: time.Second}

// rig is what a test has of a Dial.
type rig struct {
	t       *testing.T
	o       Options
	peer    Peer
	listing messages.Listing

	mu      sync.Mutex
	pids    []int
	stderr  []string
	noise   uint64
	noisy   bool
	changed chan struct{}
	calls   atomic.Int64
}

var runs atomic.Int64

func newRig(t *testing.T, modes string) *rig {
	t.Helper()
	r := &rig{t: t, changed: make(chan struct{}, 100)}
	sp := NewSpawner()
	run := "test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(runs.Add(1), 10)
	r.o = Options{
		Server: config.Server{Name: "fake", Type: config.Stdio, Command: os.Args[0], Cwd: t.TempDir(),
			Env:     map[string]string{fakeEnv: modes, "GOCOVERDIR": t.TempDir()},
			Limits:  config.Limits{FrameBytes: 8 << 20, Tools: 10000, Pages: 50, MaxReads: 8, MaxSideEffects: 1},
			Secrets: []string{"s3cret"}},
		Gen: 7, RunID: run, Version: "test", Spawner: sp, Logger: slog.New(slog.DiscardHandler), Budget: patience, tune: &quick,
		OnSpawned:     func(pid int) { r.mu.Lock(); r.pids = append(r.pids, pid); r.mu.Unlock() },
		OnListChanged: func() { r.changed <- struct{}{} },
		OnNoise:       func(n uint64, bad bool) { r.mu.Lock(); r.noise, r.noisy = n, bad; r.mu.Unlock() },
		OnStderr:      func(l string) { r.mu.Lock(); r.stderr = append(r.stderr, l); r.mu.Unlock() },
	}
	t.Cleanup(func() {
		if r.peer != nil {
			r.peer.Stop(messages.Ladder{Kill: 10 * time.Second})
			r.wait(r.peer.Done(), "done")
		}
		sp.Close()
		r.noneLeft()
	})
	return r
}

func (r *rig) dial() *rig {
	r.t.Helper()
	if err := r.tryDial(); err != nil {
		r.t.Fatalf("dial: %v (%+v)", err, err)
	}
	return r
}

func (r *rig) tryDial() *Failure {
	p, l, err := Dial(context.Background(), r.o)
	if err == nil {
		r.peer, r.listing = p, l
		return nil
	}
	var f *Failure
	if !errors.As(err, &f) {
		r.t.Fatalf("dial error is no *Failure: %v", err)
	}
	return f
}

func (r *rig) wait(ch <-chan struct{}, what string) {
	r.t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		r.t.Fatalf("%s did not come", what)
	}
}

func (r *rig) exec(tool, args string) messages.Exec {
	n := r.calls.Add(1)
	return messages.Exec{Key: messages.Key{Server: "fake"}, Gen: 7, CallID: "c" + strconv.FormatInt(n, 10), Attempt: 1, Remote: tool,
		Args: json.RawMessage(args), Boundary: new(messages.Boundary), Progress: func(json.RawMessage) {}, Deadline: time.Now().Add(patience)}
}

func (r *rig) call(tool, args string) messages.Reply {
	r.t.Helper()
	return r.do(r.exec(tool, args))
}

func (r *rig) do(e messages.Exec) messages.Reply {
	r.t.Helper()
	return r.await(r.start(e))
}

func (r *rig) start(e messages.Exec) <-chan messages.Reply {
	ch := make(chan messages.Reply, 1)
	go func() { ch <- r.peer.Call(e) }()
	return ch
}

func (r *rig) await(ch <-chan messages.Reply) messages.Reply {
	r.t.Helper()
	select {
	case rep := <-ch:
		return rep
	case <-time.After(patience):
		r.t.Fatal("no reply")
		return messages.Reply{}
	}
}

// text is the first text block of a result.
func text(t *testing.T, r messages.Reply) string {
	t.Helper()
	var v struct{ Content []struct{ Text string } }
	if r.Kind != messages.ReplyResult || json.Unmarshal(r.Raw, &v) != nil || len(v.Content) == 0 {
		t.Fatalf("no text in reply %v %s %q", r.Kind, r.Raw, r.Err)
	}
	return v.Content[0].Text
}

func (r *rig) kind(got messages.Reply, want messages.ReplyKind) {
	r.t.Helper()
	if got.Kind != want {
		r.t.Fatalf("reply is %v (%s %s), want %v", got.Kind, got.Raw, got.Err, want)
	}
}

// eventually polls a condition that has no event to wait for.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s did not come true", what)
		}
	}
}

// entered waits until the call has passed its boundary.
func (r *rig) entered(e messages.Exec) {
	r.t.Helper()
	r.eventually("boundary", e.Boundary.Entered)
}

// marked lists the live processes that carry the run's mark.
func (r *rig) marked() []string {
	var out []string
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		env, err := os.ReadFile("/proc/" + d.Name() + "/environ")
		if err == nil && bytes.Contains(env, []byte(envRun+"="+r.o.RunID+"\x00")) {
			if running(d.Name()) {
				out = append(out, d.Name())
			}
		}
	}
	return out
}

// running reports whether a process is there and no zombie.
func running(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	rest := b[bytes.LastIndexByte(b, ')')+1:]
	return err == nil && len(rest) > 1 && rest[1] != 'Z' && rest[1] != 'X'
}

func (r *rig) noneLeft() {
	if left := r.marked(); len(left) > 0 {
		r.t.Errorf("processes left: %s", strings.Join(left, " "))
	}
}

// inFlight counts the requests without a reply.
func (m *mux) inFlight() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.table)
}
