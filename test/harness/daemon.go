package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpbridge/messages"
)

// Options say how a daemon is started.
type Options struct {
	World  *World   // nil = a new one
	Config any      // M or YAML text, given with -c; nil = no -c
	Args   []string // more arguments of supervise
	Env    []string // more environment
	Listen string   // default 127.0.0.1:0
	Wrap   []string // a command that changes its own process and then becomes what follows it
}

// Daemon is a running `bridgectl supervise`.
type Daemon struct {
	*World
	URL       string // of the aggregated endpoint
	Token     string
	TokenFile string
	Control   string
	PID       int
	RunID     string

	cmd    *exec.Cmd
	stderr *buffer
	gone   chan struct{}
	ready  string
}

// buffer is a bytes.Buffer that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Start runs supervise and returns when its endpoint serves.
func Start(t testing.TB, o Options) *Daemon {
	t.Helper()
	d := Launch(t, o)
	d.AwaitReady(t)
	return d
}

// Launch runs supervise and does not wait.
func Launch(t testing.TB, o Options) *Daemon {
	t.Helper()
	if o.World == nil {
		o.World = NewWorld(t)
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	d := &Daemon{World: o.World, stderr: &buffer{}, gone: make(chan struct{})}
	d.ready = d.Path(fmt.Sprintf("ready-%d.json", time.Now().UnixNano()))
	args := []string{"supervise", "--listen", o.Listen, "--state-dir", d.State, "--ready-file", d.ready, "--workspace", d.Work}
	if o.Config != nil {
		args = append(args, "-c", d.WriteConfig(t, "bridge.yaml", o.Config))
	}
	line := slices.Concat(o.Wrap, []string{d.binary(t)}, args, o.Args)
	d.cmd = exec.Command(line[0], line[1:]...)
	d.cmd.Dir, d.cmd.Env, d.cmd.Stderr = d.Work, d.Env(o.Env...), d.stderr
	d.cmd.WaitDelay = 2 * time.Second // a grandchild may hold stderr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.PID = d.cmd.Process.Pid
	go func() { _ = d.cmd.Wait(); close(d.gone) }()
	t.Cleanup(func() { d.cleanup(t) })
	return d
}

// AwaitReady blocks until the ready file says that the endpoint serves.
func (d *Daemon) AwaitReady(t testing.TB) {
	t.Helper()
	if !d.Rises(t) {
		t.Fatalf("supervise ended with %d before it was ready\n%s", d.ExitCode(), d.Stderr())
	}
	d.RunID = d.Status(t).Bridge.RunID
}

// Rises is AwaitReady for a daemon that may end before, which it reports. It asks the
// daemon nothing, so RunID stays empty.
func (d *Daemon) Rises(t testing.TB) bool {
	t.Helper()
	var ready struct {
		URL       string `json:"url"`
		Control   string `json:"control"`
		TokenFile string `json:"token_file"`
	}
	Eventually(t, "the ready file", func() bool {
		b, err := os.ReadFile(d.ready)
		return err == nil && json.Unmarshal(b, &ready) == nil || !d.Alive()
	})
	if ready.Control == "" {
		return false
	}
	d.URL, d.Control, d.TokenFile = ready.URL, ready.Control, ready.TokenFile
	if ready.TokenFile != "" {
		b, err := os.ReadFile(ready.TokenFile)
		if err != nil {
			t.Fatal(err)
		}
		d.Token = strings.TrimSpace(string(b))
	}
	return true
}

// Eventually polls a condition every 5 ms until it holds. It is for conditions
// that come without an event of their own (files, processes).
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	EventuallyWithin(t, Patience, what, cond)
}

// EventuallyWithin is Eventually where the time is a promise.
func EventuallyWithin(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	if !poll(d, cond) {
		t.Fatalf("%s: not within %s", what, d)
	}
}

// poll asks every 5 ms until the condition holds, at most for d.
func poll(d time.Duration, cond func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); !cond(); <-tick.C {
		if time.Now().After(end) {
			return cond()
		}
	}
	return true
}

// Alive reports whether the daemon's process still runs.
func (d *Daemon) Alive() bool {
	select {
	case <-d.gone:
		return false
	default:
		return true
	}
}

// Gone is closed when the daemon has ended.
func (d *Daemon) Gone() <-chan struct{} { return d.gone }

// ExitCode is valid once the daemon has ended; -1 for a signal.
func (d *Daemon) ExitCode() int { return d.cmd.ProcessState.ExitCode() }

// Stderr is what the daemon has said so far.
func (d *Daemon) Stderr() string { return d.stderr.String() }

// Signal sends one to the daemon's own process, unless it has ended.
func (d *Daemon) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal %v: %v", s, err)
	}
}

// Wait blocks until the daemon has ended and returns how long that took.
func (d *Daemon) Wait(t testing.TB) time.Duration {
	t.Helper()
	start := time.Now()
	select {
	case <-d.gone:
	case <-time.After(Patience):
		t.Fatalf("the daemon did not end within %s\n%s", Patience, d.Stderr())
	}
	return time.Since(start)
}

// Stop ends the daemon with SIGTERM and returns how long that took.
func (d *Daemon) Stop(t testing.TB) time.Duration {
	t.Helper()
	d.Signal(t, syscall.SIGTERM)
	return d.Wait(t)
}

// cleanup ends the daemon, if the test has not, and looks at what is left.
func (d *Daemon) cleanup(t testing.TB) {
	if d.Alive() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.gone:
		case <-time.After(20 * time.Second):
			t.Errorf("the daemon ignored SIGTERM for 20 s")
			_ = d.cmd.Process.Kill()
			<-d.gone
		}
	}
	if d.RunID != "" {
		var left []Proc
		poll(5*time.Second, func() bool { left = Marked(d.RunID); return len(left) == 0 })
		for _, p := range left {
			t.Errorf("left behind: %s", p)
			p.Kill()
		}
	}
	var guardians []Proc
	if !poll(5*time.Second, func() bool { guardians = d.Guardians(); return len(guardians) == 0 }) {
		t.Errorf("guardians of an ended daemon: %v", guardians)
	}
	checkRace(t, d.Stderr())
	if t.Failed() {
		s := d.Stderr()
		t.Logf("stderr of the daemon:\n%s", s[max(0, len(s)-20000):])
	}
}

// CLI runs a client verb against this daemon.
func (d *Daemon) CLI(t testing.TB, args ...string) Result {
	t.Helper()
	return d.RunIn(t, "", []string{"MCPBRIDGE_CONTROL=" + d.Control}, args...)
}

// OK is CLI for a command that must succeed.
func (d *Daemon) OK(t testing.TB, args ...string) Result {
	t.Helper()
	r := d.CLI(t, args...)
	if r.Exit != 0 {
		t.Fatalf("exit %d, want 0\n%s", r.Exit, r)
	}
	return r
}

// Status is `status -o json`.
func (d *Daemon) Status(t testing.TB) messages.Status {
	t.Helper()
	var s messages.Status
	d.OK(t, "status", "-o", "json").JSON(t, &s)
	return s
}

// Server is one row of the status.
func (d *Daemon) Server(t testing.TB, name string) messages.ServerStatus {
	t.Helper()
	row, ok := d.Status(t).Server(name)
	if !ok {
		t.Fatalf("no server %q in status", name)
	}
	return row
}

// Await blocks until the servers are in the state, by the wait verb.
func (d *Daemon) Await(t testing.TB, state string, names ...string) {
	t.Helper()
	args := append([]string{"wait", "--for", state, "--timeout", Patience.String()}, names...)
	if r := d.CLI(t, args...); r.Exit != 0 {
		t.Fatalf("%s\nstatus: %s", r, d.CLI(t, "status", "-o", "json").Stdout)
	}
}

// AwaitGeneration blocks until the server is ready in a later generation than gen,
// and returns its row.
func (d *Daemon) AwaitGeneration(t testing.TB, name string, gen uint64) messages.ServerStatus {
	t.Helper()
	var row messages.ServerStatus
	Eventually(t, name+" is ready again", func() bool {
		row = d.Server(t, name)
		return row.State == messages.StateReady && row.Generation > gen
	})
	return row
}

// Call is one `call -o json`, whatever its outcome.
func (d *Daemon) Call(t testing.TB, tool, args string, more ...string) (messages.Outcome, Result) {
	t.Helper()
	r := d.CLI(t, slices.Concat([]string{"call", tool, "--args", args, "-o", "json"}, more)...)
	var o messages.Outcome
	r.JSON(t, &o)
	return o, r
}
