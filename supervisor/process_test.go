//go:build unix

package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/demo"
)

// patience is for a machine with other things to do.
const patience = 60 * time.Second

// openDemos opens a bridge over real processes: the demo server, several times.
func openDemos(t *testing.T, change func(*config.Server), names ...string) *Bridge {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := demo.Config(self)
	one := cfg.Servers[0]
	cfg.Servers = nil
	for _, n := range names {
		s := one
		s.Name = n
		s.Env = map[string]string{demoSwitch: "1"}
		if change != nil {
			change(&s)
		}
		cfg.Servers = append(cfg.Servers, s)
	}
	cfg.Permissions = []config.Rule{{Action: messages.Allow}}
	b, err := Open(t.Context(), cfg, WithStartupWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// until waits for a status.
func until(t *testing.T, b *Bridge, name string, ok func(messages.ServerStatus) bool) messages.ServerStatus {
	t.Helper()
	deadline := time.After(patience)
	for {
		next := b.changed.after()
		s, _ := b.Status().Server(name)
		if ok(s) {
			return s
		}
		select {
		case <-next:
		case <-deadline:
			t.Fatalf("%s is %s (%s), generation %d", name, s.State, s.Reason, s.Generation)
		}
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// A killed server comes back by itself, its caller hears at once, and Close leaves
// no process behind.
func TestKilledServerComesBack(t *testing.T) {
	b := openDemos(t, nil, "a", "b")
	first := until(t, b, "a", func(s messages.ServerStatus) bool { return s.State == messages.StateReady })
	slow := make(chan messages.Outcome, 1)
	go func() {
		slow <- b.Call(background, messages.CallTool{Tool: "a/slow_read", Args: json.RawMessage(`{"steps":100,"delay_ms":1000}`)})
	}()
	for {
		if s, _ := b.Status().Server("a"); s.InFlight == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := until(t, b, "a", func(s messages.ServerStatus) bool {
		return s.State == messages.StateReady && s.Generation > first.Generation
	})
	if second.PID == first.PID || alive(first.PID) || second.Restarts != 1 || second.LastExit == nil || !strings.Contains(second.LastExit.Reason, "killed") {
		t.Errorf("%+v, %+v", second, second.LastExit)
	}
	if out := b.Call(background, messages.CallTool{Tool: "b/echo", Args: json.RawMessage(`{"text":"x"}`)}); out.Kind != messages.OK {
		t.Errorf("%+v", out)
	}
	// The operator declared the read harmless, so it runs again in the new process; a
	// cancel ends it there.
	for {
		calls, err := b.Calls(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(calls) == 1 && calls[0].Generation == second.Generation {
			b.CancelCall(calls[0].CallID)
			break
		}
		if len(calls) == 0 {
			break // settled
		}
		time.Sleep(time.Millisecond)
	}
	if out := <-slow; out.Kind == messages.OK {
		t.Errorf("%+v", out)
	}
	pids := []int{second.PID}
	if s, _ := b.Status().Server("b"); s.PID > 0 {
		pids = append(pids, s.PID)
	}
	if err := b.Close(background); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d lives on", pid)
		}
	}
}

// A process that stands still is found by the probes, killed although it never sees
// the end of its stdin, and replaced.
func TestStoppedProcessIsReplaced(t *testing.T) {
	b := openDemos(t, func(s *config.Server) {
		s.Health = config.Health{ProbeEvery: 300 * time.Millisecond, Failures: 2}
		s.Timeouts.StdinClose, s.Timeouts.SigTerm = patience, 100*time.Millisecond
		s.Timeouts.Start = 15 * time.Second // what the list may take, too
	}, "a")
	first := until(t, b, "a", func(s messages.ServerStatus) bool { return s.State == messages.StateReady })
	if err := syscall.Kill(first.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second := until(t, b, "a", func(s messages.ServerStatus) bool {
		return s.State == messages.StateReady && s.Generation > first.Generation
	})
	if alive(first.PID) || second.PID == first.PID {
		t.Errorf("process %d lives on: %+v", first.PID, second)
	}
	for _, e := range b.Events(0) { // a busy machine may fail the start that follows
		if e.Type == messages.EventServerExited {
			if e.Generation != first.Generation || e.Reason != "no answer to 2 pings and a list" {
				t.Errorf("%+v", e)
			}
			break
		}
	}
	if out := b.Call(background, messages.CallTool{Tool: "a/echo", Args: json.RawMessage(`{"text":"x"}`)}); out.Kind != messages.OK {
		t.Errorf("%+v", out)
	}
	if err := b.Close(background); err != nil {
		t.Error(err)
	}
}

// A server that ends as soon as it is up does not spin.
func TestExitingServerIsQuarantined(t *testing.T) {
	b := openDemos(t, func(s *config.Server) {
		s.Restart.Initial, s.Restart.Max = 10*time.Millisecond, 50*time.Millisecond
		s.Command, s.Args = "/bin/sh", []string{"-c", "exit 3"}
	}, "a")
	defer b.Close(background)
	s := until(t, b, "a", func(s messages.ServerStatus) bool { return s.State == messages.StateQuarantined })
	if s.Restarts != 5 || !strings.Contains(s.LastExit.Reason, "3") {
		t.Errorf("%+v, %+v", s, s.LastExit)
	}
}

// Kills and callers at once: every call has one outcome, nobody waits for ever, and
// the bridge comes down clean.
func TestKillsUnderLoad(t *testing.T) {
	b := openDemos(t, func(s *config.Server) {
		s.Restart.Initial, s.Restart.Max, s.Restart.Burst = 10*time.Millisecond, 50*time.Millisecond, 0
	}, "a")
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var counts [5]atomic.Int64
	for i := range 8 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprintf("%d-%d", i, n)
				out := b.Call(background, messages.CallTool{Tool: "a/echo", Args: json.RawMessage(`{"text":"` + text + `"}`), Timeout: patience})
				counts[out.Kind].Add(1)
				if out.Kind == messages.OK && out.Text() != text {
					t.Errorf("asked %q, got %q", text, out.Text())
				}
			}
		})
	}
	gen := uint64(0)
	for range 10 {
		s := until(t, b, "a", func(s messages.ServerStatus) bool { return s.State == messages.StateReady && s.Generation > gen })
		gen = s.Generation
		_ = syscall.Kill(s.PID, syscall.SIGKILL)
	}
	until(t, b, "a", func(s messages.ServerStatus) bool { return s.State == messages.StateReady && s.Generation > gen })
	close(stop)
	callers.Wait()
	t.Logf("ok %d, not_sent %d, unknown %d, tool_error %d, rejected %d", counts[messages.OK].Load(), counts[messages.NotSent].Load(),
		counts[messages.OutcomeUnknown].Load(), counts[messages.ToolError].Load(), counts[messages.Rejected].Load())
	if counts[messages.OK].Load() == 0 || counts[messages.Rejected].Load() > 0 {
		t.Error("the calls did not go through")
	}
	if err := b.Close(background); err != nil {
		t.Error(err)
	}
}

// BenchmarkCall is the cost of the bridge alone: gate, router, session, events.
func BenchmarkCall(b *testing.B) {
	f := newFakes(nil)
	br, err := Open(b.Context(), fakeConfig("fs"), WithDialer(f.dial), WithStartupWait(patience))
	if err != nil {
		b.Fatal(err)
	}
	defer br.Close(background)
	call := echo("fs")
	b.ReportAllocs()
	for b.Loop() {
		if out := br.Call(background, call); out.Kind != messages.OK {
			b.Fatal(out)
		}
	}
}
