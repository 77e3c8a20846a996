package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestCrashLoopIsQuarantined: a server that answers the handshake and ends must not
// spin, and comes back when the operator says so.
func TestCrashLoopIsQuarantined(t *testing.T) {
	for _, when := range []string{"initialized", "listed"} {
		t.Run(when, func(t *testing.T) {
			lab := harness.NewLab(t)
			mended := lab.Path("mended")
			d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
				"spin": lab.Server(t, "spin", "-exit-on", when, "-exit-code", "7", "-stderr", "no licence found", "-off", mended)})})
			d.Await(t, "quarantined", "spin")
			if n := len(lab.History(t).PIDs()); n != 6 {
				t.Errorf("started %d times before the quarantine, want 6", n)
			}
			row := d.Server(t, "spin")
			if e := row.LastExit; e == nil || !strings.Contains(e.Reason, "exit status 7") || !strings.Contains(strings.Join(e.StderrTail, "\n"), "no licence found") {
				t.Errorf("last exit: %+v", e)
			}
			if row.NextRetry == nil {
				t.Error("a quarantined server has no next try")
			}
			if o, r := d.Call(t, "spin/read", `{}`); r.Exit != 7 || o.Sent() {
				t.Errorf("a call of a quarantined server: %s", r)
			}
			if err := os.WriteFile(mended, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d.OK(t, "reset", "spin")
			d.Await(t, "ready", "spin")
			if o, r := d.Call(t, "spin/read", `{"nonce":"n"}`); o.Kind != messages.OK {
				t.Errorf("after the reset: %s", r)
			}
		})
	}
}

// TestSessionOutlivesItsStartBudget: the budget covers the start and nothing else.
func TestSessionOutlivesItsStartBudget(t *testing.T) {
	lab := harness.NewLab(t)
	entry := lab.Server(t, "s")
	entry["timeouts"] = harness.M{"start": "1s", "first_start": "1s"}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": entry})})
	d.Await(t, "ready", "s")
	pid := func() string {
		o, r := d.Call(t, "s/pid", `{}`)
		if o.Kind != messages.OK {
			t.Fatal(r)
		}
		return o.Text()
	}
	before := pid()
	if o, r := d.Call(t, "s/slow", `{"ms":3000}`); o.Kind != messages.OK {
		t.Fatal(r)
	}
	if after := pid(); after != before {
		t.Errorf("pid %s became %s", before, after)
	}
}

// TestHungServersDelayNobody: eight that never answer and one that is not there,
// among twenty.
func TestHungServersDelayNobody(t *testing.T) {
	lab := harness.NewLab(t)
	servers := harness.M{"missing": harness.M{"command": "/no/such/mcp-server"}}
	var good, hung []string
	for i := range 11 {
		name := fmt.Sprintf("good%02d", i)
		good = append(good, name)
		servers[name] = lab.Server(t, name)
	}
	for i := range 8 {
		name := fmt.Sprintf("hung%d", i)
		hung = append(hung, name)
		e := lab.Server(t, name, "-silent", "all")
		// Long enough to be hung while the others are asked, whatever the machine does.
		e["timeouts"] = harness.M{"start": "12s", "first_start": "12s"}
		servers[name] = e
	}
	cfg := harness.Config(servers)
	cfg["list_wait"] = "0s"
	cfg["discovery"] = harness.M{"meta_tools": "never"} // each server's tools are counted
	start := time.Now()
	d := harness.Start(t, harness.Options{Config: cfg})
	t.Logf("the endpoint served after %s", time.Since(start))
	cs := d.Session(t, "", nil)
	harness.Eventually(t, "the eleven are listed", func() bool {
		res, err := cs.ListTools(harness.Context(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, tool := range res.Tools {
			name, _, _ := strings.Cut(tool.Name, "__")
			seen[name] = true
		}
		return len(seen) == len(good)
	})
	t.Logf("the eleven were listed after %s", time.Since(start))
	status := d.Status(t)
	for _, name := range hung {
		if row, _ := status.Server(name); row.State != messages.StateStarting {
			t.Errorf("%s is %s while it hangs, want starting", name, row.State)
		}
	}
	for _, name := range good {
		if o, r := d.Call(t, name+"/read", `{}`); o.Kind != messages.OK {
			t.Fatal(r)
		}
	}
	d.Await(t, "quarantined", "missing") // its turn to spawn may come last
	missing := d.Server(t, "missing")
	if e := missing.LastExit; missing.State != messages.StateQuarantined || e == nil || e.Stage != messages.StageSpawn || !strings.Contains(e.Reason, "/no/such/mcp-server") {
		t.Errorf("missing: %s %q, last exit %+v", missing.State, missing.Reason, missing.LastExit)
	}
	for _, name := range hung {
		harness.Eventually(t, name+" has failed with its stage and reason", func() bool {
			e := d.Server(t, name).LastExit
			return e != nil && e.Stage == messages.StageHandshake && e.Reason != ""
		})
	}
	if !strings.Contains(d.Stderr(), "missing") || !strings.Contains(d.Stderr(), "/no/such/mcp-server") {
		t.Errorf("stderr names no issue of the missing server:\n%s", d.Stderr())
	}
}

// TestLateServerJoinsThroughListChanged: a client that listed early hears of it.
func TestLateServerJoinsThroughListChanged(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := harness.Config(harness.M{"early": lab.Server(t, "early"), "late": lab.Server(t, "late", "-start-delay", "2s")})
	cfg["list_wait"] = "0s"
	for _, version := range []string{"2025-11-25", ""} {
		t.Run("protocol "+version, func(t *testing.T) {
			d := harness.Start(t, harness.Options{Config: cfg})
			changed := make(chan struct{}, 100)
			cs := d.Session(t, version, onListChanged(changed))
			for {
				res, err := cs.ListTools(harness.Context(t), nil)
				if err != nil {
					t.Fatal(err)
				}
				b, _ := json.Marshal(res)
				if strings.Contains(string(b), "late__read") {
					return
				}
				select {
				case <-changed:
				case <-time.After(harness.Patience):
					t.Fatal("no list_changed came")
				}
			}
		})
	}
}
