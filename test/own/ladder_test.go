//go:build linux

package own

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/freeze"
	"mcpbridge/test/harness"
)

// TestEndOfInputFirst (B04): a server that saves its work at the end of its input sees no
// signal within the grace, and its exit is a clean one.
func TestEndOfInputFirst(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"slow": lab.Server(t, "slow", "-endings", lab.Path("slow"), "-end-work", "300ms"),
		"last": lab.Server(t, "last", "-endings", lab.Path("last"), "-end-work", "300ms"),
		"deaf": with(lab.Server(t, "deaf", "-endings", lab.Path("deaf"), "-ignore-eof", "-ignore-term"), "timeouts", harness.M{"stdin_close": "400ms", "sigterm": "400ms"}),
	})})
	d.Await(t, "ready", "slow", "last", "deaf")
	d.OK(t, "stop", "slow", "--wait")
	if got := read(t, lab.Path("slow")); got != "eof\nsaved\n" {
		t.Errorf("a stop: %q", got)
	}
	if x := d.Server(t, "slow").LastExit; x == nil || !strings.Contains(x.Reason, "exit status 0") {
		t.Errorf("last exit %+v", x)
	}
	began := time.Now()
	d.OK(t, "stop", "deaf", "--wait")
	t.Logf("deaf to both, with 400 ms and 400 ms of patience: %s", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took < 800*time.Millisecond {
		t.Errorf("killed after %s: its time was not up", took)
	}
	if got := read(t, lab.Path("deaf")); got != "eof\nsaved\nterm\n" {
		t.Errorf("a stop of the deaf one: %q", got)
	}
	d.Stop(t)
	if got := read(t, lab.Path("last")); got != "eof\nsaved\n" {
		t.Errorf("the end of the daemon: %q", got)
	}
}

// TestResultBeforeTheEnd (B02): an answer that is there is delivered before anything is
// shut down, and the server that will not go delays it by nothing.
func TestResultBeforeTheEnd(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s", "-ignore-eof", "-ignore-term"), "crash": lab.Server(t, "crash", "-crash-after-end")})})
	d.Await(t, "ready", "s", "crash")
	answer := async(t, d, "s/write", `{"nonce":"n","sleep_ms":700}`)
	harness.Eventually(t, "it has begun", func() bool { return lab.History(t).Begins("n") == 1 })
	d.Signal(t, syscall.SIGTERM)
	select {
	case o := <-answer:
		if o.Kind != messages.OK {
			t.Errorf("the answer: %s/%s", o.Kind, o.Code)
		}
		if !d.Alive() {
			t.Error("it came with the end only")
		}
	case <-d.Gone():
		t.Error("the daemon ended first")
	}
	took := d.Wait(t)
	t.Logf("the daemon ended %s after the answer", took.Round(time.Millisecond))
	if d.ExitCode() != 0 {
		t.Errorf("exit %d", d.ExitCode())
	}
}

// TestSignals (B06): TERM and INT end everything, a second one skips the grace, HUP ends
// nothing, and there is exit code 0.
func TestSignals(t *testing.T) {
	for _, tt := range []struct {
		name    string
		signals []syscall.Signal
	}{
		{"TERM", []syscall.Signal{syscall.SIGTERM}},
		{"INT", []syscall.Signal{syscall.SIGINT}},
		{"HUP TERM", []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}},
		{"INT INT", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}},
		{"TERM INT", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab, mark := harness.NewLab(t), tag(t, "/")
			d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
				"a": server(t, lab, mark, "-wrap"), "b": server(t, lab, mark, "-escape", "setsid,double"), "c": server(t, lab, mark, "-ignore-eof", "-ignore-term")})})
			d.Await(t, "ready", "a", "b", "c")
			began := time.Now()
			for i, s := range tt.signals {
				if i > 0 && s != syscall.SIGHUP && tt.signals[0] != syscall.SIGHUP {
					harness.Eventually(t, "it ends", func() bool { return strings.Contains(d.Stderr(), "draining") })
				}
				d.Signal(t, s)
				if s == syscall.SIGHUP {
					d.OK(t, "call", "a/read")
				}
			}
			d.Wait(t)
			took := time.Since(began)
			t.Logf("%s: %s", tt.name, took.Round(time.Millisecond))
			if d.ExitCode() != 0 {
				t.Errorf("exit %d", d.ExitCode())
			}
			if hurried := len(tt.signals) == 2 && tt.signals[0] != syscall.SIGHUP; !hurried && took < 3*time.Second {
				t.Errorf("the one that is deaf has 3 s, and the end came after %s", took)
			} else if hurried && !strings.Contains(d.Stderr(), "ending at once") {
				t.Error("the second signal was not heard")
			}
			if left := slices.Concat(harness.Named(mark), d.Guardians()); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestBoundedEnds (F06, F07, F09, F10): what hangs is over in time, and the descriptors of
// the bridge are back where they were.
func TestBoundedEnds(t *testing.T) {
	lab, mark := harness.NewLab(t), tag(t, "")
	once := harness.M{"mode": "never"}
	mute := with(with(server(t, lab, mark+"/mute/", "-silent", "all", "-ignore-term", "-ignore-eof"), "timeouts", harness.M{"start": "1s", "first_start": "1s"}), "restart", once)
	mute["connect"] = "lazy"
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"mute":      mute,
		"full":      with(with(server(t, lab, mark+"/full/", "-stop-reading", "4", "-ignore-term"), "timeouts", harness.M{"abandon_after": "300ms"}), "restart", once),
		"holder":    with(server(t, lab, mark+"/holder/", "-escape", "child,setsid"), "restart", once),
		"neighbour": lab.Server(t, "neighbour"),
	})})
	d.Await(t, "ready", "full", "holder", "neighbour")
	fds := func() int { e, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID)); return len(e) }
	before := fds()

	began := time.Now()
	d.CLI(t, "start", "mute")
	harness.Eventually(t, "the start is given up", func() bool { return d.Server(t, "mute").LastExit != nil })
	t.Logf("never answers initialize, budget 1 s, deaf to EOF and TERM: over after %s: %s", time.Since(began).Round(time.Millisecond), d.Server(t, "mute").LastExit.Reason)
	if left := harness.Named(mark + "/mute/"); len(left) > 0 {
		t.Errorf("mute left %v", left)
	}
	if n := fds(); n > before+2 {
		t.Errorf("descriptors: %d, and %d after the failed start", before, n)
	}

	full := harness.Named(mark + "/full/") // of this generation; the next one comes at once
	path := d.WriteConfig(t, "args.json", `{"text":"`+strings.Repeat("x", 1<<20)+`"}`)
	for range 8 { // initialize, list and the like are requests, too
		began = time.Now()
		r := d.CLI(t, "call", "full/write", "--args-file", path, "--timeout", "5s", "-o", "json")
		if r.Exit != 0 {
			break
		}
	}
	took := time.Since(began)
	t.Logf("1 MiB to one that does not read, deadline 5 s: the caller heard after %s", took.Round(time.Millisecond))
	if took > 15*time.Second {
		t.Errorf("the call took %s", took)
	}
	harness.Eventually(t, "its tree is killed", func() bool { return len(full) > 0 && len(harness.AliveOf(full)) == 0 })
	t.Logf("... and its tree was gone after %s", time.Since(began).Round(time.Millisecond))

	call := async(t, d, "holder/write", `{"nonce":"h","sleep_ms":60000}`)
	harness.Eventually(t, "it has begun", func() bool { return lab.History(t).Begins("h") == 1 })
	leader, _ := harness.Process(d.Server(t, "holder").PID)
	began = time.Now()
	leader.Kill()
	if o := <-call; o.Kind != messages.OutcomeUnknown || o.Code != messages.CodeConnectionLost {
		t.Errorf("the call of the killed leader: %s/%s", o.Kind, o.Code)
	}
	t.Logf("leader dead, two grandchildren hold stdout: the caller heard after %s", time.Since(began).Round(time.Millisecond))
	harness.Eventually(t, "its tree is killed", func() bool { return len(harness.Named(mark+"/holder/")) == 0 })
	t.Logf("... and its tree was gone after %s", time.Since(began).Round(time.Millisecond))
	neighbourAnswers(t, d)
	harness.Eventually(t, "descriptors are back", func() bool { return fds() <= before })
}

// TestStoppedChild (F08): a server that is stopped (SIGSTOP), not dead, costs its caller
// the deadline; the fence is proven off by a recycle, and the next generation serves.
func TestStoppedChild(t *testing.T) {
	lab, mark := harness.NewLab(t), tag(t, "/")
	e := with(server(t, lab, mark, "-wrap"), "timeouts", harness.M{"abandon_after": "500ms", "stdin_close": "300ms", "sigterm": "300ms"})
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": e, "neighbour": lab.Server(t, "neighbour")})})
	d.Await(t, "ready", "s", "neighbour")
	row := d.Server(t, "s")
	for _, p := range harness.Tree(row.PID) {
		freeze.Process(t, p.PID)
	}
	began := time.Now()
	o, r := d.Call(t, "s/write", `{"nonce":"n"}`, "--timeout", "1s")
	if o.Kind != messages.OutcomeUnknown || o.Code != messages.CodeTimeout {
		t.Errorf("%s", r)
	}
	neighbourAnswers(t, d)
	next := d.AwaitGeneration(t, "s", row.Generation)
	t.Logf("stopped child: serves again %s after the call", time.Since(began).Round(time.Millisecond))
	if o, r := d.Call(t, "s/write", `{"nonce":"m"}`); o.Kind != messages.OK {
		t.Errorf("the next generation: %s", r)
	}
	if n := lab.History(t).Begins("n"); n != 0 {
		t.Errorf("the call of the stopped one began %d times", n)
	}
	for _, p := range harness.Tree(next.PID) { // a stop of one that is stopped
		_ = syscall.Kill(p.PID, syscall.SIGSTOP)
	}
	d.OK(t, "stop", "s", "--wait")
	if left := harness.Named(mark); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestPausedBridge (F13): a bridge that stands still for a while kills nothing, is killed
// by nobody, and afterwards tells the truth about what came and what did not.
func TestPausedBridge(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": with(lab.Server(t, "s"), "isolation", "serial"), "neighbour": lab.Server(t, "neighbour")})})
	d.Await(t, "ready", "s", "neighbour")
	before := d.Status(t)
	done := async(t, d, "s/write", `{"nonce":"done","sleep_ms":800}`)
	late := async(t, d, "neighbour/write", `{"nonce":"late","sleep_ms":60000}`)
	harness.Eventually(t, "both have begun", func() bool { h := lab.History(t); return h.Begins("done") == 1 && h.Begins("late") == 1 })
	d.Signal(t, syscall.SIGSTOP)
	harness.Eventually(t, "the server is done meanwhile", func() bool { return lab.History(t).Ends("done") == 1 })
	time.Sleep(3 * time.Second) // the pause itself
	d.Signal(t, syscall.SIGCONT)
	if o := <-done; o.Kind != messages.OK {
		t.Errorf("answered during the pause: %s/%s", o.Kind, o.Code)
	}
	after := d.Status(t)
	for i, row := range after.Servers {
		if row.PID != before.Servers[i].PID || row.State != messages.StateReady {
			t.Errorf("%s: pid %d became %d, %s", row.Name, before.Servers[i].PID, row.PID, row.State)
		}
	}
	if a, b := before.Bridge.Ownership.GuardianPID, after.Bridge.Ownership.GuardianPID; b == 0 || a != 0 && a != b {
		t.Errorf("guardian %d became %d", a, b)
	}
	d.Signal(t, syscall.SIGTERM)
	if o := <-late; o.Kind != messages.OutcomeUnknown {
		t.Errorf("the one in flight: %s", o.Kind)
	}
	d.Wait(t)
	if twice := lab.History(t).Twice(); len(twice) > 0 {
		t.Error(twice)
	}
}
