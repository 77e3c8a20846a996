//go:build linux

package own

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// corpses are the dead children of a process that nobody has waited for.
func corpses(parent int) (dead []harness.Proc) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := harness.Process(pid); ok && p.PPID == parent && p.State == "Z" {
				dead = append(dead, p)
			}
		}
	}
	return dead
}

// TestOrphansAreReaped: orphans that became children of the bridge leave no corpse behind,
// and the servers' own ends are still seen.
func TestOrphansAreReaped(t *testing.T) {
	for _, rung := range []string{"cgroup", "subreaper"} {
		t.Run(rung, func(t *testing.T) {
			lab, mark := harness.NewLab(t), tag(t, "/")
			d := start(t, rung, harness.Options{Config: harness.Config(harness.M{"s": server(t, lab, mark, "-escape", "double,double,lost")})})
			d.Await(t, "ready", "s")
			orphans := append(harness.Named(mark+"/double/setsid"), harness.Named(mark+"/lost/bare")...)
			if len(orphans) != 3 || !d.Status(t).Bridge.Ownership.Adopts {
				t.Fatalf("orphans: %v", orphans)
			}
			for _, p := range orphans {
				if p.PPID != d.PID {
					t.Errorf("%s is no child of the bridge", p)
				}
				p.Kill()
			}
			harness.Eventually(t, "the orphans are dead and reaped", func() bool {
				return len(harness.AliveOf(orphans)) == 0 && len(corpses(d.PID)) == 0
			})
			before := d.Server(t, "s")
			if before.State != messages.StateReady || before.Generation != 1 {
				t.Errorf("the server: %s, generation %d", before.State, before.Generation)
			}
			leader, _ := harness.Process(before.PID)
			leader.Kill()
			after := d.AwaitGeneration(t, "s", before.Generation)
			if after.LastExit == nil || after.LastExit.Reason != "signal: killed" {
				t.Errorf("the end of a server was not seen: %+v", after.LastExit)
			}
			harness.Eventually(t, "no corpse", func() bool { return len(corpses(d.PID)) == 0 })
		})
	}
}

// TestAsProcessOne: in a container of its own the bridge reaps whatever is orphaned there,
// kills nothing that is not its own, and ends in order.
func TestAsProcessOne(t *testing.T) {
	wrap := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if out, err := exec.Command(wrap[0], append(wrap[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no process namespace to be had: %v: %s", err, out)
	}
	lab, mark := harness.NewLab(t), tag(t, "/")
	d := harness.Start(t, harness.Options{Wrap: wrap, Config: harness.Config(harness.M{"s": server(t, lab, mark, "-escape", "double,setsid")})})
	d.Await(t, "ready", "s")
	st := d.Status(t).Bridge
	if st.PID != 1 || st.Ownership.Guardian != "none" || !st.Ownership.Adopts {
		t.Fatalf("%+v", st)
	}
	bridge := harness.Tree(d.PID)[1] // seen from outside
	foreign := exec.Command("nsenter", "-t", strconv.Itoa(bridge.PID), "-p", "-m", "sh", "-c", "(sleep 0.3 & sleep 1000.25 &) >/dev/null 2>&1 </dev/null")
	if out, err := foreign.CombinedOutput(); err != nil { // what it leaves running holds none of our pipes
		t.Skipf("nsenter: %v: %s", err, out)
	}
	var sleepers []harness.Proc
	harness.Eventually(t, "a stranger's orphan, and no shell that is about to become it", func() bool {
		sleepers = harness.Named("sleep 1000.25")
		return len(sleepers) == 1
	})
	for _, p := range harness.Named(mark + "/double/setsid") {
		p.Kill()
	}
	time.Sleep(400 * time.Millisecond) // the short stranger has ended by now
	harness.Eventually(t, "every corpse is buried", func() bool { return len(corpses(bridge.PID)) == 0 })
	d.OK(t, "restart", "s", "--wait")
	if len(harness.AliveOf(sleepers)) != 1 {
		t.Error("a stranger's process was killed")
	}
	if err := syscall.Kill(bridge.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.Wait(t)
	if d.ExitCode() != 0 {
		t.Errorf("exit %d", d.ExitCode())
	}
	if left := harness.Named(mark); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
