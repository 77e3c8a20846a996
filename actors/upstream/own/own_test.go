//go:build linux

package own

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens an owner that this test closes.
func open(t *testing.T, o Options) *Owner {
	t.Helper()
	w, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func runName(t *testing.T, part string) string {
	return "test-" + part + "-" + strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, filepath.Base(t.TempDir())+time.Now().Format("150405.000000")))
}

// sleep starts a tree of a shell and its sleeping child.
func sleep(t *testing.T, w *Owner, run string, l Limits) (*Tree, *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread() // as the spawner does; the thread ends with the test
	cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 100 & wait"}, Env: []string{"PATH=/usr/bin:/bin", RunVar + "=" + run}}
	tree, err := w.Start(cmd, 1, runMark(run), l)
	if err != nil {
		t.Fatal(err)
	}
	return tree, cmd
}

func end(t *testing.T, tree *Tree, cmd *exec.Cmd) {
	t.Helper()
	tree.Kill()
	_ = cmd.Wait()
	tree.Reaped()
	for n := 0; tree.Sweep() != 0; n++ {
		if n > 1000 {
			t.Fatal("it does not die")
		}
		time.Sleep(time.Millisecond)
	}
	tree.Done(true)
}

func TestKin(t *testing.T) {
	all := []proc{
		{pid: 1, ppid: 0, pgid: 1, sid: 1}, {pid: 10, ppid: 1, pgid: 10, sid: 10}, // the bridge
		{pid: 20, ppid: 10, pgid: 20, sid: 10},                                         // a leader
		{pid: 21, ppid: 20, pgid: 20, sid: 10}, {pid: 22, ppid: 21, pgid: 22, sid: 22}, // a child, and one that left
		{pid: 23, ppid: 1, pgid: 22, sid: 22}, {pid: 24, ppid: 1, pgid: 24, sid: 22}, // orphans of the one that left
		{pid: 30, ppid: 10, pgid: 30, sid: 10}, {pid: 31, ppid: 30, pgid: 30, sid: 10}, // a neighbour
		{pid: 40, ppid: 20, pgid: 10, sid: 10}, // one in the bridge's own group
	}
	pids := func(list []proc) (out []int) {
		for _, p := range list {
			out = append(out, p.pid)
		}
		slices.Sort(out)
		return out
	}
	spare := map[int]bool{10: true, 30: true}
	got := pids(kin(all, func(p proc) bool { return p.pid == 20 }, spare))
	if want := []int{20, 21, 22, 23, 24, 40}; !slices.Equal(got, want) {
		t.Errorf("kin of 20: %v, want %v", got, want)
	}
	if got := kin(all, func(p proc) bool { return p.pid == 10 || p.pid == 1 }, spare); len(got) != 0 {
		t.Errorf("kin of those that are spared: %v", got)
	}
}

// TestNumberOfAnother: once the leader is reaped, a process that was born later is not
// ours because of its group.
func TestNumberOfAnother(t *testing.T) {
	tree := &Tree{w: Plain(), pid: 500, started: 100, reaped: 200, known: map[int]proc{}}
	alive := tree.members([]proc{{pid: 500, pgid: 500, started: 300, state: 'S'}, {pid: 501, ppid: 500, pgid: 500, started: 301, state: 'S'}})
	if len(alive) != 0 {
		t.Errorf("taken for ours: %v", alive)
	}
	alive = tree.members([]proc{{pid: 501, ppid: 1, pgid: 500, started: 150, state: 'S'}})
	if len(alive) != 1 {
		t.Error("a member of the group that is left is not found")
	}
}

func TestLookAndMarks(t *testing.T) {
	p, err := look(os.Getpid())
	if err != nil || p.ppid != os.Getppid() || p.started == 0 || p.started > ticks() || p.dead() {
		t.Errorf("%+v, %v, now %d", p, err, ticks())
	}
	if _, err := look(1 << 30); !gone(err) {
		t.Errorf("no such process: %v", err)
	}
	run := runName(t, "marks")
	tree, cmd := sleep(t, Plain(), run, Limits{})
	if !carries(tree.pid, runMark(run)) || carries(tree.pid, runMark(run[:len(run)-1])) || carries(tree.pid, runMark("x"+run)) || carries(tree.pid, nil) {
		t.Error("marks are told apart badly")
	}
	end(t, tree, cmd)
}

// TestKillOfALaterProcess: a number that has passed to another process is left alone.
func TestKillOfALaterProcess(t *testing.T) {
	tree, cmd := sleep(t, Plain(), runName(t, "later"), Limits{})
	p, err := look(tree.pid)
	if err != nil {
		t.Fatal(err)
	}
	p.started--
	p.kill()
	killAll([]proc{{pid: p.pid, pgid: p.pid, started: p.started}})
	time.Sleep(20 * time.Millisecond)
	if now, err := look(tree.pid); err != nil || now.dead() {
		t.Error("it was killed in the name of another")
	}
	end(t, tree, cmd)
}

// TestLeftoversOfADeadRun: groups of a run whose lock is free are emptied; those of a run
// that lives are not touched.
func TestLeftoversOfADeadRun(t *testing.T) {
	live := open(t, Options{RunID: runName(t, "live")})
	if live.State().Rung != RungCgroup {
		t.Skipf("no control groups here: %s", live.State().Reason)
	}
	mine, mineCmd := sleep(t, live, live.o.RunID, Limits{})
	dead, err := Open(Options{RunID: runName(t, "dead")})
	if err != nil {
		t.Fatal(err)
	}
	left, leftCmd := sleep(t, dead, dead.o.RunID, Limits{})
	// What a kill does: the lock is gone, the group is not.
	_ = os.NewFile(uintptr(dead.sys.v2.lock), "lock").Close()

	open(t, Options{RunID: runName(t, "next")})
	_ = leftCmd.Wait()
	if _, err := os.Stat(dead.sys.v2.run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group of the dead run: %v", err)
	}
	if lives, err := populated(mine.dir); !lives || err != nil {
		t.Errorf("the group of the run that lives: %t, %v", lives, err)
	}
	left.Reaped()
	if n := left.Sweep(); n != 0 {
		t.Errorf("%d left", n)
	}
	end(t, mine, mineCmd)
}

// TestSweepOfTheLastRun: what carries the mark of the run before is killed at the next
// start on the same state directory, unless that run still holds it.
func TestSweepOfTheLastRun(t *testing.T) {
	dir, first := t.TempDir(), runName(t, "first")
	one, err := Open(Options{RunID: first, StateDir: dir, Rung: RungMarkers, plain: true})
	if err != nil {
		t.Fatal(err)
	}
	tree, cmd := sleep(t, one, first, Limits{})
	second := open(t, Options{RunID: runName(t, "second"), StateDir: dir, Rung: RungMarkers})
	if p, err := look(tree.pid); err != nil || p.dead() {
		t.Error("the processes of a run that lives were killed")
	}
	if second.sys.last != nil {
		t.Error("two runs hold one state directory")
	}
	_ = one.sys.last.f.Close() // what a kill does
	third := open(t, Options{RunID: runName(t, "third"), StateDir: dir, Rung: RungMarkers})
	_ = cmd.Wait()
	tree.Reaped()
	if n := tree.Sweep(); n != 0 {
		t.Errorf("%d left", n)
	}
	third.Close()
	if _, err := os.Stat(filepath.Join(dir, "last-run")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a clean end: %v", err)
	}
}

func TestUnknownRung(t *testing.T) {
	if _, err := Open(Options{Rung: "ladder"}); err == nil || !strings.Contains(err.Error(), "cgroup subreaper markers") {
		t.Errorf("%v", err)
	}
}

// TestGuardianTakesOrders: what a guardian believes, and when it goes.
func TestGuardianTakesOrders(t *testing.T) {
	lines := func(orders ...order) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		for _, o := range orders {
			_ = json.NewEncoder(&b).Encode(o)
		}
		_, _ = io.Copy(w, &b)
		_, _ = w.WriteString(`{"op":"add","pi`) // the bridge dies in the midst of a line
		_ = w.Close()
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	run := order{Op: "run", Run: "20260102t150405-abcdefg", Cgroups: []string{"/x/mcpbridge.20260102t150405-abcdefg"}}
	for _, tt := range []struct {
		name   string
		orders []order
		bye    bool
		bad    string
		known  int
	}{
		{"a death", []order{run, {Op: "add", ID: 1, PID: 5}, {Op: "add", ID: 2, PID: 6}, {Op: "drop", ID: 1}}, false, "", 1},
		{"a farewell", []order{run, {Op: "add", ID: 1, PID: 5}, {Op: "bye"}}, true, "", 1},
		{"a run that would match everything", []order{{Op: "run"}}, false, "no run", 0},
		{"a group of somebody else", []order{{Op: "run", Run: run.Run, Cgroups: []string{"/sys/fs/cgroup/system.slice"}}}, false, "no control group", 0},
	} {
		g := &guard{known: map[uint64]order{}}
		bye, err := g.listen(lines(tt.orders...))
		if bye != tt.bye || (err != nil) != (tt.bad != "") || err != nil && !strings.Contains(err.Error(), tt.bad) || len(g.known) != tt.known {
			t.Errorf("%s: bye %t, %v, knows %v", tt.name, bye, err, g.known)
		}
	}
}
