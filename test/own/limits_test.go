//go:build linux

package own

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestChildGetsNothingElse: three descriptors whatever the bridge has open or inherited,
// the limits that were asked for from the first instruction on, and no way to gain rights.
func TestChildGetsNothingElse(t *testing.T) {
	perRung(t, func(t *testing.T, rung string) {
		lab := harness.NewLab(t)
		e := lab.Server(t, "s", "-report", lab.Path("report"))
		line := "ls -l /proc/self/fd > '" + lab.Path("fds") + "'; ulimit -n > '" + lab.Path("nofile") + "'; exec '" + harness.Fixture(t) + "'"
		for _, a := range e["args"].([]string) {
			line += " '" + a + "'"
		}
		e["command"], e["args"], e["limits"] = "sh", []string{"-c", line}, harness.M{"nofile": 123, "memory": "3GiB"}
		d := start(t, rung, harness.Options{Config: harness.Config(harness.M{"s": e, "unlimited": lab.Server(t, "u", "-report", lab.Path("free"))}),
			Wrap: []string{"sh", "-c", `exec 7</etc/passwd 9>/dev/null; exec "$@"`, "sh"}})
		d.Await(t, "ready", "s", "unlimited")

		fds := regexp.MustCompile(`(\d+) -> (.*)`).FindAllStringSubmatch(read(t, lab.Path("fds")), -1)
		var open []string
		for _, f := range fds {
			if f[1] != "0" && f[1] != "1" && f[1] != "2" && !strings.HasPrefix(f[2], "/proc/") { // ls looks at itself
				open = append(open, f[0])
			}
		}
		if len(fds) < 3 || len(open) > 0 {
			t.Errorf("descriptors of a child: %v beyond the three", open)
		}
		if got := strings.TrimSpace(read(t, lab.Path("nofile"))); got != "123" {
			t.Errorf("limits.nofile 123 is %s in the first program", got)
		}
		var report, free struct{ Limits, Status, Cgroup string }
		unmarshal(t, lab.Path("report"), &report)
		unmarshal(t, lab.Path("free"), &free)
		if !regexp.MustCompile(`Max open files +123 +123 `).MatchString(report.Limits) {
			t.Errorf("limits:\n%s", report.Limits)
		}
		if d.Status(t).Bridge.Ownership.Memory == "process" && !regexp.MustCompile(`Max data size +3221225472 +3221225472 `).MatchString(report.Limits) {
			t.Errorf("limits:\n%s", report.Limits)
		}
		if regexp.MustCompile(`Max open files +123 `).MatchString(free.Limits) {
			t.Error("the neighbour has the limits of the other")
		}
		for name, status := range map[string]string{"with limits": report.Status, "without": free.Status} {
			if !regexp.MustCompile(`NoNewPrivs:\s1`).MatchString(status) || !regexp.MustCompile(`TracerPid:\s0\n`).MatchString(status) {
				t.Errorf("%s: %s", name, status)
			}
		}
		if in := strings.Contains(free.Cgroup, "mcpbridge."+d.RunID); in != (rung == "cgroup") {
			t.Errorf("control groups: %s", free.Cgroup)
		}
	})
}

// TestMemoryLimit (S08): a greedy child dies of its limit; the bridge and the neighbour do
// not notice.
func TestMemoryLimit(t *testing.T) {
	lab := harness.NewLab(t)
	greedy := with(lab.Server(t, "greedy", "-hog", "2048"), "limits", harness.M{"memory": "700MiB"})
	modest := with(lab.Server(t, "modest", "-hog", "100"), "limits", harness.M{"memory": "700MiB"})
	for _, e := range []harness.M{greedy, modest} {
		e["restart"] = harness.M{"mode": "never"}
	}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"greedy": greedy, "modest": modest, "neighbour": lab.Server(t, "neighbour")})})
	d.Await(t, "ready", "modest", "neighbour")
	var row messages.ServerStatus
	harness.Eventually(t, "the greedy one is dead", func() bool { row = d.Server(t, "greedy"); return row.LastExit != nil })
	t.Logf("memory is limited by: %s; the end: %s, %v", d.Status(t).Bridge.Ownership.Memory, row.LastExit.Reason, row.LastExit.StderrTail)
	if slices.ContainsFunc(row.LastExit.StderrTail, func(l string) bool { return strings.HasPrefix(l, "hog:") }) {
		t.Error("it got 2 GiB within a limit of 700 MiB")
	}
	neighbourAnswers(t, d)
}

// TestForkBomb (F14): 200 children, with and without a limit. The bridge and the neighbour
// answer, and a stop leaves none.
func TestForkBomb(t *testing.T) {
	for _, limit := range []int{0, 80} {
		perRung(t, func(t *testing.T, rung string) {
			lab, mark := harness.NewLab(t), tag(t, "/")
			bomb := server(t, lab, mark, "-bomb", "200")
			if limit > 0 {
				bomb["limits"] = harness.M{"pids": limit}
				bomb["restart"] = harness.M{"mode": "never"}
			}
			d := start(t, rung, harness.Options{Config: harness.Config(harness.M{"bomb": bomb, "neighbour": lab.Server(t, "neighbour")})})
			d.Await(t, "ready", "neighbour")
			if limit > 0 && d.Status(t).Bridge.Ownership.PIDs == "none" {
				t.Skip("nothing here limits the number of processes")
			}
			var said string
			harness.Eventually(t, "the bomb has burst", func() bool {
				said = regexp.MustCompile(`bomb: .*|.*[Ff]ailed to create new OS thread.*|.*pthread_create failed.*`).FindString(d.OK(t, "logs", "-n", "100000", "bomb").Stdout)
				return said != ""
			})
			n := len(harness.Named(mark))
			t.Logf("limits.pids %d: %d processes; it says: %s", limit, n, said)
			if limit == 0 && n < 200 || limit > 0 && n > limit {
				t.Errorf("limits.pids %d: %d processes", limit, n)
			}
			neighbourAnswers(t, d)
			d.OK(t, "stop", "bomb")
			d.Await(t, "stopped", "bomb")
			if left := harness.Named(mark); len(left) > 0 {
				t.Errorf("stopped, and left %d, such as %s", len(left), left[0])
			}
		})
	}
}

// TestLimitThatCannotBeKept: a server runs within its limits or not at all, and the
// refusal says what would help. Without the control groups of this machine in sight the
// bridge stands on the next rung by itself.
func TestLimitThatCannotBeKept(t *testing.T) {
	lab := harness.NewLab(t)
	hide := []string{"unshare", "-m", "sh", "-c", `for m in $(grep -E ' cgroup2? ' /proc/self/mounts | cut -d' ' -f2 | sort -r); do umount -l "$m" || exit 9; done; exec "$@"`, "sh"}
	if out, err := exec.Command(hide[0], append(hide[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("mounts cannot be hidden here: %v: %s", err, out)
	}
	d := harness.Start(t, harness.Options{Wrap: hide, Config: harness.Config(harness.M{
		"bounded": with(lab.Server(t, "bounded"), "limits", harness.M{"pids": 50}), "neighbour": lab.Server(t, "neighbour")})})
	d.Await(t, "ready", "neighbour")
	st := d.Status(t)
	row, _ := st.Server("bounded")
	if row.State != messages.StateConfigError || len(row.Issues) != 1 || row.Issues[0].Stage != messages.StageConfig || !strings.Contains(row.Issues[0].Message, "limits.pids") {
		t.Errorf("state %s, issues %v", row.State, row.Issues)
	}
	if o := st.Bridge.Ownership; o.Rung != "subreaper" || o.Reason == "" || o.Forced {
		t.Errorf("ownership %+v", o)
	}
	if r := d.CLI(t, "start", "bounded"); r.Exit == 0 {
		t.Error("it could be started all the same")
	}
	neighbourAnswers(t, d)
}

// TestLimitBeyondTheBridge: a limit that the system refuses is a failure that no
// repetition cures.
func TestLimitBeyondTheBridge(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": with(lab.Server(t, "s"), "limits", harness.M{"nofile": 2_000_000_000})})})
	d.Await(t, "quarantined", "s")
	x := d.Server(t, "s").LastExit
	if x == nil || !x.Permanent || !strings.Contains(x.Reason, "limits.nofile") || x.Hint == "" {
		t.Errorf("last exit %+v", x)
	}
}

// TestDescriptorsRunOut (S01): with too few descriptors some servers cannot be started:
// they say so and try again later; the others go on, and when some are stopped there is
// room again.
func TestDescriptorsRunOut(t *testing.T) {
	lab := harness.NewLab(t)
	servers := harness.M{}
	for i := range 40 {
		name := fmt.Sprintf("s%02d", i)
		servers[name] = with(lab.Server(t, name), "restart", harness.M{"backoff": harness.M{"initial": "300ms", "max": "1s"}, "burst": 0})
	}
	d := harness.Start(t, harness.Options{Config: harness.Config(servers), Wrap: []string{"sh", "-c", `ulimit -n 120; exec "$@"`, "sh"}})
	count := func() (ready, waiting []string) {
		for _, row := range d.Status(t).Servers {
			switch {
			case row.State == messages.StateReady:
				ready = append(ready, row.Name)
			case row.LastExit != nil && strings.Contains(row.LastExit.Reason, "too many open files"):
				waiting = append(waiting, row.Name)
				if row.LastExit.Permanent || row.State == messages.StateQuarantined {
					t.Errorf("%s is %s (%s), last exit %+v", row.Name, row.State, row.Reason, row.LastExit)
				}
			}
		}
		return ready, waiting
	}
	var ready, waiting []string
	harness.Eventually(t, "some are ready, the others wait", func() bool {
		ready, waiting = count()
		return len(ready) > 5 && len(waiting) > 0 && len(ready)+len(waiting) > 35
	})
	t.Logf("120 descriptors: %d of 40 servers ready, %d wait", len(ready), len(waiting))
	if !d.Alive() {
		t.Fatal("the daemon is dead")
	}
	for _, name := range ready[:len(ready)/2] {
		d.OK(t, "stop", name)
	}
	d.Await(t, "stopped", ready[:len(ready)/2]...)
	harness.Eventually(t, "one that waited is ready", func() bool {
		now, _ := count()
		return slices.ContainsFunc(now, func(n string) bool { return slices.Contains(waiting, n) })
	})
	if o, r := d.Call(t, ready[len(ready)-1]+"/read", `{}`); o.Kind != messages.OK {
		t.Errorf("one that was ready all the time: %s", r)
	}
	d.Signal(t, syscall.SIGTERM)
	d.Wait(t)
}

// TestForkRefused (S02): where the system refuses new processes the failure has its name
// and is tried again by the schedule; who needs no process goes on. Where it only refuses
// to give birth into a control group, the bridge steps down and starts all the same.
func TestForkRefused(t *testing.T) {
	pure := pureBridgectl(t)
	for _, tt := range []struct{ errno, reason string }{{"EAGAIN", "resource temporarily unavailable"}, {"ENOMEM", "cannot allocate memory"}, {"ENOSYS", ""}} {
		t.Run(tt.errno, func(t *testing.T) {
			lab := harness.NewLab(t)
			url, _ := lab.HTTPFixture(t, "neighbour")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			d := harness.Start(t, harness.Options{Wrap: []string{self}, Env: []string{refuseClone3 + "=" + tt.errno, pureProgram + "=" + pure}, Config: harness.Config(harness.M{
				"s":         with(lab.Server(t, "s", "-escape", "setsid"), "restart", harness.M{"burst": 0, "backoff": harness.M{"initial": "100ms", "max": "400ms"}}),
				"neighbour": harness.M{"url": url, "effects": harness.Effects()}})})
			d.Await(t, "ready", "neighbour")
			o := d.Status(t).Bridge.Ownership
			if tt.reason == "" {
				d.Await(t, "ready", "s")
				if o = d.Status(t).Bridge.Ownership; o.Rung != "subreaper" || !strings.Contains(o.Reason, "control group") {
					t.Errorf("ownership %+v", o)
				}
				return
			}
			if o.Rung != "cgroup" {
				t.Skip("no control group: the system call that is refused here is not used")
			}
			began := time.Now()
			harness.Eventually(t, "several tries", func() bool { return d.Server(t, "s").Generation > 5 })
			row := d.Server(t, "s")
			if row.State != messages.StateBackoff && row.State != messages.StateStarting || row.LastExit == nil || row.LastExit.Permanent ||
				row.LastExit.Stage != messages.StageSpawn || !strings.Contains(row.LastExit.Reason, tt.reason) {
				t.Errorf("%s (%s), last exit %+v", row.State, row.Reason, row.LastExit)
			}
			if took := time.Since(began); took < 500*time.Millisecond {
				t.Errorf("five tries in %s: it spins", took)
			}
			if o := d.Status(t).Bridge.Ownership; o.Rung != "cgroup" {
				t.Errorf("the rung was given up for a passing failure: %+v", o)
			}
			neighbourAnswers(t, d)
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func unmarshal(t *testing.T, path string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, path)), v); err != nil {
		t.Fatal(err)
	}
}
