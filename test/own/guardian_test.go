//go:build linux

package own

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/freeze"
	"mcpbridge/test/harness"
)

// guardianOf waits for a running guardian other than that one.
func guardianOf(t *testing.T, d *harness.Daemon, other int) harness.Proc {
	t.Helper()
	var o messages.Ownership
	harness.Eventually(t, "a guardian runs", func() bool {
		o = d.Status(t).Bridge.Ownership
		return o.Guardian == "running" && o.GuardianPID != other
	})
	p, ok := harness.Process(o.GuardianPID)
	if !ok {
		t.Fatalf("status shows guardian %d, and there is none", o.GuardianPID)
	}
	return p
}

// TestGuardianStandsApart: it is in a session of its own, holds nothing of the bridge's,
// carries no mark, and no signal that ends everything in sight ends it before the bridge.
func TestGuardianStandsApart(t *testing.T) {
	lab, mark := harness.NewLab(t), tag(t, "/")
	d := harness.Start(t, harness.Options{Wrap: []string{"setsid"}, // a group of its own, so that it can be killed as a group
		Config: harness.Config(harness.M{"s": server(t, lab, mark, "-escape", "setsid,double,nohup", "-wrap", "-ignore-eof")})})
	d.Await(t, "ready", "s")
	g := guardianOf(t, d, 0)
	dir := filepath.Join("/proc", strconv.Itoa(g.PID))
	if sid, err := syscall.Getpgid(g.PID); err != nil || sid != g.PID {
		t.Errorf("its group is %d, its own is %d", sid, g.PID)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, "fd", e.Name()))
		if strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, d.Home) || strings.HasPrefix(target, "/sys/fs/cgroup/unified/mcpbridge") {
			t.Errorf("it holds %s", target)
		}
		if n, _ := strconv.Atoi(e.Name()); n <= 2 && target != os.DevNull {
			t.Errorf("its descriptor %d is %s", n, target)
		}
	}
	if cwd, _ := os.Readlink(filepath.Join(dir, "cwd")); cwd != "/" {
		t.Errorf("it stands in %s", cwd)
	}
	for _, p := range harness.Marked(d.RunID) {
		if p.PID == g.PID {
			t.Error("it carries the mark of the run and would kill itself")
		}
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if err := syscall.Kill(g.PID, s); err != nil {
			t.Error(err)
		}
	}
	before := harness.Named(mark)
	if len(before) < 5 {
		t.Fatalf("processes: %v", before)
	}
	if err := syscall.Kill(-d.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	goneWithin(t, 2*time.Second, "kill -9 of the bridge's group", func() []harness.Proc { return harness.AliveOf(before) })
	harness.Eventually(t, "the guardian ends", func() bool { return !g.Alive() })
}

// TestGuardianIsReplaced: its death is noticed, told, and made good; the next one knows
// what runs.
func TestGuardianIsReplaced(t *testing.T) {
	lab, mark := harness.NewLab(t), tag(t, "/")
	d := harness.Start(t, harness.Options{Env: []string{"MCPBRIDGE_OWNERSHIP=subreaper"},
		Config: harness.Config(harness.M{"s": server(t, lab, mark, "-escape", "setsid,double,bare")})})
	d.Await(t, "ready", "s")
	g := guardianOf(t, d, 0)
	time.Sleep(censusTick) // the one without a mark is known by then
	stopped := guardianOf(t, d, 0)
	for range 3 {
		g.Kill()
		g = guardianOf(t, d, g.PID)
	}
	if g.PID == stopped.PID {
		t.Fatal("it was not replaced")
	}
	if r := d.OK(t, "events", "-o", "json"); !strings.Contains(r.Stdout, `"guardian down"`) || strings.Count(r.Stdout, `"guardian running"`) != 4 {
		t.Errorf("events: %s", r.Stdout)
	}
	if r := d.OK(t, "doctor", "-c", d.Path("bridge.yaml")); !strings.Contains(r.Stdout, "guardian running (pid "+strconv.Itoa(g.PID)) {
		t.Errorf("doctor: %s", r.Stdout)
	}
	before := harness.Named(mark)
	d.Signal(t, syscall.SIGKILL)
	goneWithin(t, 2*time.Second, "kill -9 after three guardians", func() []harness.Proc { return harness.AliveOf(before) })
}

// TestPausedGuardian: one that does not read holds nobody up, at the end of the bridge either.
func TestPausedGuardian(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s")})})
	d.Await(t, "ready", "s")
	g := guardianOf(t, d, 0)
	freeze.Process(t, g.PID)
	if o, r := d.Call(t, "s/read", `{}`); o.Kind != messages.OK {
		t.Errorf("%s", r)
	}
	d.OK(t, "restart", "s", "--wait")
	if took := d.Stop(t); took > 9*time.Second || d.ExitCode() != 0 {
		t.Errorf("the end took %s, exit %d", took, d.ExitCode())
	}
	harness.Eventually(t, "the guardian is gone", func() bool { return !g.Alive() })
}

// TestGuardianOfALibrary: a host gives the path of bridgectl, and hears what is not covered
// without it, or that the path is wrong.
func TestGuardianOfALibrary(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := harness.Config(harness.M{"s": lab.Server(t, "s")})
	for _, tt := range []struct{ name, path, state, reason string }{
		{"with", harness.Bridgectl(t), "running", ""},
		{"without", "", "none", "no path of bridgectl"},
		{"no such file", "/nonexistent/bridgectl", "down", "no such file"},
		{"another program", "/bin/cat", "down", "/bin/cat"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := harness.Library(t, cfg, supervisor.WithGuardian(tt.path))
			var o messages.Ownership
			harness.Eventually(t, tt.state, func() bool { o = b.Status().Bridge.Ownership; return o.Guardian == tt.state })
			if !strings.Contains(o.GuardianReason, tt.reason) || o.Adopts {
				t.Errorf("%+v", o)
			}
			if out := b.Call(harness.Context(t), messages.CallTool{Tool: "s/read"}); out.Kind != messages.OK {
				t.Errorf("a call: %s", out.ErrorText())
			}
			if err := b.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if p, ok := harness.Process(o.GuardianPID); ok && o.GuardianPID != 0 && p.Alive() {
				t.Errorf("the guardian outlives the bridge: %s", p)
			}
		})
	}
}

// TestGuardVerbIsNotForPeople.
func TestGuardVerbIsNotForPeople(t *testing.T) {
	if r := harness.NewWorld(t).Run(t, "guard-processes"); r.Exit != 1 || !strings.Contains(r.Stderr, "for the bridge itself") {
		t.Errorf("%s", r)
	}
}
