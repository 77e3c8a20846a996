//go:build linux

package e2e

import (
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
	"mcpbridge/test/witness"
)

// lifeline remembers when a process was last seen alive, on the witness's clock.
type lifeline struct {
	mu   sync.Mutex
	last int64
	stop chan struct{}
}

func follow(t *testing.T, pid int) *lifeline {
	l := &lifeline{stop: make(chan struct{})}
	proc, ok := harness.Process(pid)
	if !ok {
		t.Fatalf("no process %d", pid)
	}
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			at := witness.Now() // before the look: it lived then
			if proc.Alive() {
				l.mu.Lock()
				l.last = at
				l.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-l.stop:
				return
			}
		}
	}()
	t.Cleanup(func() { l.end() })
	return l
}

// end stops looking and returns the last sign.
func (l *lifeline) end() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	return l.last
}

// TestNoSuccessorBeforeTheEnd: a side effect that timed out holds its lane until its
// server has answered or its whole tree is dead, whatever its caller was told.
func TestNoSuccessorBeforeTheEnd(t *testing.T) {
	const hangs = `{"nonce":"first","sleep_ms":120000}`
	for _, tt := range []struct {
		name    string
		args    []string
		abandon string
		first   string
		same    bool // the second call runs in the process of the first
		// then is what happens while the second one waits.
		then func(t *testing.T, d *harness.Daemon, worker int)
	}{
		{name: "answers late", abandon: "30s", first: `{"nonce":"first","sleep_ms":2500}`, same: true},
		{name: "never answers", abandon: "700ms", first: `{"nonce":"first","fault":"never"}`},
		{name: "works on", abandon: "700ms", first: hangs},
		{name: "works on and ignores every plea", args: []string{"-ignore-eof", "-ignore-term"}, abandon: "700ms", first: hangs},
		{name: "works on below a wrapper", args: []string{"-wrap", "-ignore-eof", "-ignore-term"}, abandon: "700ms", first: hangs},
		{name: "is never abandoned", abandon: "never", first: hangs, then: func(t *testing.T, d *harness.Daemon, worker int) {
			stillBlocked(t, d, 2*time.Second)
			p, _ := harness.Process(worker)
			p.Kill()
		}},
		{name: "leader dead, grandchild alive", args: []string{"-wrap", "-ignore-eof", "-ignore-term"}, abandon: "never", first: hangs,
			then: func(t *testing.T, d *harness.Daemon, worker int) {
				leader := d.Server(t, "s").PID
				if leader == worker {
					t.Fatal("there is no wrapper")
				}
				p, _ := harness.Process(leader)
				p.Kill()
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab := harness.NewLab(t)
			e := lab.Server(t, "s", tt.args...)
			e["timeouts"] = harness.M{"abandon_after": tt.abandon, "stdin_close": "200ms", "sigterm": "300ms"}
			e["restart"] = harness.M{"backoff": harness.M{"initial": "10ms", "max": "50ms"}}
			d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": e})})
			d.Await(t, "ready", "s")

			o, r := d.Call(t, "s/write", tt.first, "--timeout", "1s")
			if o.Kind != messages.OutcomeUnknown || o.Code != messages.CodeTimeout {
				t.Fatalf("the first call: %s", r)
			}
			h := lab.History(t)
			if len(h.Spans) != 1 {
				t.Fatalf("%d executions, want the first call's", len(h.Spans))
			}
			worker := h.Spans[0].PID
			line := follow(t, worker)
			second := async(t, d, "s/write", `{"nonce":"second"}`)
			if tt.then != nil {
				tt.then(t, d, worker)
			}
			if o := <-second; o.Kind != messages.OK {
				t.Errorf("the second call: %s/%s: %s", o.Kind, o.Code, o.ErrorText())
			}
			lastAlive := line.end()
			h = lab.History(t)
			if len(h.Spans) != 2 || h.Begins("first") != 1 || h.Begins("second") != 1 {
				t.Fatalf("%d executions, the first call began %d times, the second %d", len(h.Spans), h.Begins("first"), h.Begins("second"))
			}
			a, b := h.Spans[0], h.Spans[1]
			switch {
			case tt.same && (a.PID != b.PID || !a.Ended || a.EndNS > b.MonoNS):
				t.Errorf("the second began in pid %d before the first had answered in pid %d (ended %t)", b.PID, a.PID, a.Ended)
			case !tt.same && a.PID == b.PID:
				t.Errorf("both ran in pid %d, and the first never answered", a.PID)
			case !tt.same && lastAlive > b.MonoNS:
				t.Errorf("pid %d, which worked on the first, was alive %s after the second began", a.PID, time.Duration(lastAlive-b.MonoNS))
			case lastAlive == 0:
				t.Error("nobody looked at the process")
			}
			for _, bad := range [][]string{h.Twice(), h.Overlaps(), h.Survivors()} {
				for _, s := range bad {
					t.Error(s)
				}
			}
		})
	}
}

// stillBlocked looks for a while whether the second call waits, and for whom.
func stillBlocked(t *testing.T, d *harness.Daemon, during time.Duration) {
	t.Helper()
	harness.Eventually(t, "the second call waits", func() bool { return d.Server(t, "s").Queued == 1 })
	for end := time.Now().Add(during); time.Now().Before(end); {
		var list struct{ Calls []messages.CallInfo }
		d.OK(t, "calls", "-o", "json").JSON(t, &list)
		fenced, waits := "", messages.CallInfo{}
		for _, c := range list.Calls {
			switch c.State {
			case messages.CallFenced:
				fenced = c.CallID
			case messages.CallQueued:
				waits = c
			}
		}
		if fenced == "" || len(waits.BlockedBy) != 1 || waits.BlockedBy[0] != fenced {
			t.Fatalf("the second call must wait for the first, for ever: %+v", list.Calls)
		}
	}
}
