//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
	"mcpbridge/test/history"
	"mcpbridge/test/witness"
)

// reign is one life of the daemon, with the ear that follows its events.
type reign struct {
	*harness.Daemon
	client *control.Client

	mu     sync.Mutex
	events []messages.Event
	states map[string]string // of the servers, by the last event
	sent   map[string]bool   // calls that were dispatched
	heard  chan struct{}     // closed when the events have ended
	quit   context.CancelFunc
}

// realm is the line of daemons over one state directory.
type realm struct {
	t      *testing.T
	world  *harness.World
	config string
	env    []string // of the daemons

	mu    sync.Mutex
	now   *reign // nil between two lives
	since chan struct{}

	runs      []history.Run
	leftovers []history.Leftover
}

func newRealm(t *testing.T, config any, env []string) *realm {
	w := harness.NewWorld(t)
	return &realm{t: t, env: env, world: w, config: w.WriteConfig(t, "bridge.yaml", config), since: make(chan struct{})}
}

// rise starts the next daemon.
func (r *realm) rise() *reign {
	d := harness.Start(r.t, harness.Options{World: r.world, Env: r.env, Args: []string{"-c", r.config, "--log-level", "error"}})
	ctx, cancel := context.WithCancel(context.Background())
	n := &reign{Daemon: d, client: control.NewClient(d.Control), states: map[string]string{}, sent: map[string]bool{}, heard: make(chan struct{}), quit: cancel}
	go func() {
		defer close(n.heard)
		ear := control.NewClient(d.Control)
		defer ear.Close()
		_ = ear.Events(ctx, control.Window{N: -1, Follow: true}, func(e messages.Event) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, e)
			switch e.Type {
			case messages.EventServerState:
				n.states[e.Server] = e.State
			case messages.EventCallDispatched:
				n.sent[e.CallID] = true
			default:
			}
			return nil
		})
	}()
	r.t.Cleanup(func() { cancel(); n.client.Close() })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = n
	close(r.since)
	return n
}

// state is what a server is, as far as the events have come.
func (n *reign) state(server string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.states[server]
}

// dispatched reports whether the call has been sent, as far as the events have come.
func (n *reign) dispatched(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent[id]
}

// current waits for a daemon; nil when stop is closed first.
func (r *realm) current(stop <-chan struct{}) *reign {
	for {
		r.mu.Lock()
		n, since := r.now, r.since
		r.mu.Unlock()
		if n != nil {
			return n
		}
		select {
		case <-since:
		case <-stop:
			return nil
		}
	}
}

// drainBudget is the semantics' 9 s, and some for a loaded machine.
const drainBudget = 15 * time.Second

// fall ends the daemon and writes down how. The next calls wait for the next one.
func (r *realm) fall(how history.End) {
	n := r.now
	run := history.Run{ID: n.RunID, End: how, StopAsked: witness.Now()}
	if how == history.Killed {
		n.Signal(r.t, syscall.SIGKILL)
	} else {
		n.Signal(r.t, syscall.SIGTERM)
		run.Budget = drainBudget
	}
	n.Wait(r.t)
	run.EndedAt = witness.Now()
	run.Exit = n.ExitCode()
	r.mu.Lock()
	r.now, r.since = nil, make(chan struct{})
	r.mu.Unlock()
	r.orphans(n)
	select {
	case <-n.heard:
	case <-time.After(harness.Patience):
		r.t.Error("the events of a daemon that has ended do not end")
		n.quit()
	}
	n.client.Close()
	n.mu.Lock()
	run.Events = n.events
	n.mu.Unlock()
	r.runs = append(r.runs, run)
}

// orphans looks for processes that outlive their daemon, and ends those that do.
func (r *realm) orphans(n *reign) {
	start := time.Now()
	last := map[string]time.Duration{}
	var left []harness.Proc
	for time.Since(start) < 5*time.Second {
		after := time.Since(start)
		if left = harness.Marked(n.RunID); len(left) == 0 {
			break
		}
		for _, p := range left {
			last[p.String()] = after
		}
		time.Sleep(20 * time.Millisecond)
	}
	for what, after := range last {
		r.leftovers = append(r.leftovers, history.Leftover{Run: n.RunID, What: what, After: after})
	}
	for _, p := range left {
		p.Kill()
	}
}

// sample reads what the daemon uses from its own metrics.
func (n *reign) sample(name string) (history.Sample, error) {
	s := history.Sample{Name: name, At: witness.Now()}
	resp, err := http.Get(n.Base() + "/metrics")
	if err != nil {
		return s, err
	}
	defer func() { _ = resp.Body.Close() }()
	found := 0
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		key, value, _ := strings.Cut(sc.Text(), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch key {
		case "go_goroutines":
			s.Goroutines = int(v)
		case "process_open_fds":
			s.FDs = int(v)
		case "process_resident_memory_bytes":
			s.RSS = int64(v)
		default:
			continue
		}
		found++
	}
	if found != 3 {
		return s, fmt.Errorf("/metrics names %d of 3 figures", found)
	}
	return s, nil
}

// samples takes several at rest.
func (n *reign) samples(t *testing.T, name string) (out []history.Sample) {
	for range 5 {
		s, err := n.sample(name)
		if err != nil {
			t.Errorf("sample: %v", err)
			return out
		}
		out = append(out, s)
		time.Sleep(200 * time.Millisecond)
	}
	return out
}

// ledger is what the journal has said so far.
type ledger struct {
	there   bool // there is a journal
	entries map[string]messages.JournalEntry
	final   map[string]bool // read when the call's life was over
	doubts  []string
}

// read asks for the latest entries, as a person would, at the begin of each life and at
// the end. Once the daemon has a journal, a storm that cannot read it has failed; before
// that, it says aloud what it could not check.
func (l *ledger) read(t *testing.T, n *reign) {
	t.Helper()
	help := n.CLI(t, "calls", "--help")
	if !strings.Contains(help.Stdout+help.Stderr, "--journal") {
		_, err := os.Stat(filepath.Join(harness.Root(), "supervisor", "journal"))
		const what = "`bridgectl calls` has no --journal: P13 (what the journal says after kill -9) was NOT CHECKED"
		if os.Getenv("CI") == "true" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s, and supervisor/journal exists", what)
		}
		t.Logf("\n*** %s ***\n", what)
		return
	}
	l.there = true
	var list history.Journal
	n.OK(t, "calls", "--journal", "-n", "1000", "-o", "json").JSON(t, &list)
	l.take(n, list)
}

// take merges an answer. What is written of an earlier life must not change any more; in
// its own life a call whose dispatch was taken back may still be dispatched again.
func (l *ledger) take(n *reign, list history.Journal) {
	l.doubts = append(l.doubts, list.Doubts...)
	if l.entries == nil {
		l.entries, l.final = map[string]messages.JournalEntry{}, map[string]bool{}
	}
	for _, e := range list.Entries {
		old, ok := l.entries[e.CallID]
		if ok && e.RunID == old.RunID && l.final[e.CallID] && old.Outcome != messages.OutcomeOpen && (e.Outcome != old.Outcome || e.Code != old.Code) {
			l.doubts = append(l.doubts, fmt.Sprintf("call %s of run %s was %s/%s, and now is %s/%s", e.CallID, e.RunID, old.Outcome, old.Code, e.Outcome, e.Code))
		}
		l.entries[e.CallID], l.final[e.CallID] = e, e.RunID != n.RunID
	}
}

// complete looks up, by its id, each side effect that no list has shown, and each that was
// shown only in its own life, when it may still have been under way.
func (l *ledger) complete(t *testing.T, n *reign, calls []history.Call) *history.Journal {
	if !l.there {
		return nil
	}
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.Control)
	}}}
	defer hc.CloseIdleConnections()
	listed, asked := len(l.entries), 0
	for _, c := range calls {
		if l.final[c.ID] || c.Effect == messages.ReadOnly || c.Outcome == history.NoDaemon {
			continue
		}
		one, err := lookUp(hc, c.ID)
		if err != nil {
			t.Errorf("the journal cannot be asked for call %s: %v", c.ID, err)
			break
		}
		asked++
		l.take(n, one)
	}
	t.Logf("the journal: %d entries from its lists, %d more calls looked up, %d entries in all", listed, asked, len(l.entries))
	j := &history.Journal{Doubts: l.doubts}
	for _, e := range l.entries {
		j.Entries = append(j.Entries, e)
	}
	return j
}

func lookUp(hc *http.Client, id string) (j history.Journal, err error) {
	resp, err := hc.Get("http://mcpbridge/v1/journal?id=" + url.QueryEscape(id))
	if err != nil {
		return j, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return j, errors.New(resp.Status)
	}
	return j, json.NewDecoder(resp.Body).Decode(&j)
}
