//go:build linux

package own

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"mcpbridge/test/harness"
)

// zoo is one server of each kind that is hard to end.
var zoo = []struct {
	name string
	args []string
}{
	{"plain", nil},
	{"chain", []string{"-wrap"}},
	{"deaf", []string{"-ignore-eof", "-ignore-term"}},
	{"deaf-chain", []string{"-wrap", "-ignore-eof", "-ignore-term"}},
	{"child", []string{"-escape", "child"}},
	{"nohup", []string{"-escape", "nohup", "-ignore-eof"}},
	{"setsid", []string{"-escape", "setsid"}},
	{"double", []string{"-escape", "double", "-wrap"}},
	{"many", []string{"-escape", "child,nohup,setsid,double"}},
	{"bare", []string{"-escape", "bare"}},
}

// TestKilledDaemonLeavesNothing (F12, F11, F16, B06): kill -9 of the daemon in the midst of
// calls of 50 servers.
func TestKilledDaemonLeavesNothing(t *testing.T) {
	perRung(t, func(t *testing.T, rung string) {
		n := 50
		if testing.Short() {
			n = len(zoo)
		}
		lab, mark := harness.NewLab(t), tag(t, "")
		servers, names := harness.M{}, []string{}
		for i := range n {
			kind := zoo[i%len(zoo)]
			name := fmt.Sprintf("%s%d", kind.name, i)
			servers[name] = server(t, lab, mark+name, kind.args...)
			names = append(names, name)
		}
		d := start(t, rung, harness.Options{Config: harness.Config(servers)})
		d.Await(t, "ready", names...)
		cs := d.Raw(t, d.URL)
		for i, name := range names {
			nonce := fmt.Sprintf("n%d", i)
			go func() {
				_, _ = cs.Try(t.Context(), "tools/call", fmt.Sprintf(`{"name":"%s__write","arguments":{"nonce":%q,"sleep_ms":120000}}`, name, nonce))
			}()
		}
		harness.Eventually(t, "all are busy", func() bool {
			h := lab.History(t)
			for i := range n {
				if h.Begins(fmt.Sprintf("n%d", i)) == 0 {
					return false
				}
			}
			return true
		})
		if rung != "cgroup" {
			time.Sleep(censusTick) // those without a mark are told to the guardian by then
		}
		before := harness.Named(mark)
		guardian := d.Guardians()
		if len(before) < n || len(guardian) != 1 {
			t.Fatalf("%d processes, guardians %v", len(before), guardian)
		}
		d.Signal(t, syscall.SIGKILL)
		goneWithin(t, 2*time.Second, fmt.Sprintf("%d processes of %d servers after kill -9", len(before), n), func() []harness.Proc {
			return slices.Concat(harness.Named(mark), harness.Marked(d.RunID))
		})
		harness.Eventually(t, "the guardian ends", func() bool { return len(d.Guardians()) == 0 })
		d.Wait(t)
		// The next life finds none, and says so by saying nothing.
		again := start(t, rung, harness.Options{World: d.World, Config: harness.Config(harness.M{"plain": server(t, lab, mark+"again")})})
		again.Await(t, "ready", "plain")
		again.Stop(t)
	})
}

// TestKilledDaemonAndGuardian: with both killed at one time nobody is left to clean up but
// the system (parent-death) and the next start, which finds the rest by mark or group.
func TestKilledDaemonAndGuardian(t *testing.T) {
	perRung(t, func(t *testing.T, rung string) {
		lab, mark := harness.NewLab(t), tag(t, "")
		d := start(t, rung, harness.Options{Config: harness.Config(harness.M{
			"double": server(t, lab, mark+"double", "-escape", "double"), "setsid": server(t, lab, mark+"setsid", "-escape", "setsid", "-wrap", "-ignore-eof"),
		})})
		d.Await(t, "ready", "double", "setsid")
		for _, g := range d.Guardians() {
			g.Kill()
		}
		d.Signal(t, syscall.SIGKILL)
		d.Wait(t)
		if left := harness.Marked(d.RunID); len(left) == 0 {
			t.Fatal("nothing was left for the next start to find: this test shows nothing")
		}
		again := start(t, rung, harness.Options{World: d.World, Config: harness.Config(harness.M{"plain": server(t, lab, "again-"+mark)})})
		if left := harness.Marked(d.RunID); len(left) != 0 {
			t.Errorf("the next start left %v", left)
		}
		again.Await(t, "ready", "plain")
	})
}

// TestStopOfOneServer (F09, F10, F11, F16, B01): whatever its kind, after a stop nothing of
// it is left, and the neighbour is as it was.
func TestStopOfOneServer(t *testing.T) {
	perRung(t, func(t *testing.T, rung string) {
		lab, mark := harness.NewLab(t), tag(t, "")
		servers, names := harness.M{"neighbour": server(t, lab, mark+"/neighbour/", "-escape", "child,setsid,double")}, []string{}
		for _, kind := range zoo {
			e := server(t, lab, mark+"/"+kind.name+"/", kind.args...)
			e["timeouts"] = harness.M{"stdin_close": "300ms", "sigterm": "300ms"}
			servers[kind.name] = e
			names = append(names, kind.name)
		}
		d := start(t, rung, harness.Options{Config: harness.Config(servers)})
		d.Await(t, "ready", append(names, "neighbour")...)
		neighbours := harness.Named(mark + "/neighbour/")
		if len(neighbours) != 4 {
			t.Fatalf("the neighbour's processes: %v", neighbours)
		}
		for _, name := range names {
			d.OK(t, "stop", name)
		}
		d.Await(t, "stopped", names...)
		for _, name := range names {
			if left := harness.Named(mark + "/" + name + "/"); len(left) != 0 {
				t.Errorf("%s is stopped, and left %v", name, left)
			}
		}
		if left := harness.AliveOf(neighbours); len(left) != len(neighbours) {
			t.Errorf("of the neighbour's %v there are %v", neighbours, left)
		}
		if o, r := d.Call(t, "neighbour/read", `{}`); o.Kind.String() != "ok" {
			t.Errorf("the neighbour does not answer: %s", r)
		}
	})
}

// TestLostOrphans: who left the session, was orphaned, and carries no mark is beyond the
// reach of a lower rung as long as the bridge lives. The control group kills it with its
// server, the subreaper at the end of the bridge, and so does the guardian.
func TestLostOrphans(t *testing.T) {
	for _, rung := range []string{"cgroup", "subreaper"} {
		for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(fmt.Sprintf("%s/%s", rung, end), func(t *testing.T) {
				lab, mark := harness.NewLab(t), tag(t, "lost")
				d := start(t, rung, harness.Options{Config: harness.Config(harness.M{"s": server(t, lab, mark, "-escape", "lost")})})
				d.Await(t, "ready", "s")
				lost := harness.Named(mark + "/lost/bare")
				if len(lost) != 1 {
					t.Fatalf("the lost one: %v", lost)
				}
				if rung == "cgroup" {
					d.OK(t, "stop", "--wait", "s")
					if left := harness.AliveOf(lost); len(left) != 0 {
						t.Errorf("after the stop: %v", left)
					}
				} else if end == syscall.SIGKILL {
					// Living orphans are looked for every few seconds; the guardian is told then.
					time.Sleep(orphanTick)
				}
				d.Signal(t, end)
				goneWithin(t, 5*time.Second, "the lost one", func() []harness.Proc { return harness.AliveOf(lost) })
				d.Wait(t)
			})
		}
	}
}

// censusTick is a little more than the pause in which the bridge looks who descends from
// whom, where no control group remembers that.
const censusTick = 2500 * time.Millisecond

// orphanTick is a little more than the bridge's own.
const orphanTick = 6 * time.Second
