//go:build linux

package crash

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
)

// TestComparisonSees: on a disk that lies, a promise breaks, and the comparison says so.
// Records that are held back stand for a bridge that sends before it has recorded; syncs
// that are none, and then a power failure, for one that does not sync.
func TestComparisonSees(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct{ name, fault, want string }{
		{"dispatch before its record", "lie:write:%d+,kill-before:write:%d", "the journal does not know it"},
		{"no sync", "lie:sync:6+,power-before:write:%[2]d", "the journal does not know it"},
		{"no sync of the directory", "lie:syncdir:2+,power-before:write:%[2]d", "the journal does not know it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var seen findings
			for n := 9; n < 15; n++ {
				w := s.newWorld(t)
				prefix := fmt.Sprintf("lie-%d-%s", n, strings.ReplaceAll(tt.name, " ", "-"))
				l := w.live(t, fmt.Sprintf(tt.fault, n, n+1), prefix, script)
				if !l.died {
					t.Fatalf("exit %d", l.exit)
				}
				l.struck = true
				seen = append(seen, compare(l, w.ask(t, prefix+"-next", l.calls), w.witness(t))...)
				if strings.Contains(strings.Join(seen, "\n"), tt.want) {
					t.Logf("seen, as it must be: %s", strings.Join(seen, "\n"))
					return
				}
			}
			t.Errorf("nothing was seen of it: %q", seen)
		})
	}
}

// TestDiskComesBack: an error that passes costs the calls of a second, and nothing else.
func TestDiskComesBack(t *testing.T) {
	s := newSite(t)
	for _, fault := range []string{"enospc:write:7", "eio:write:9", "eio:sync:5", "enospc:create:4", "eio:syncdir:4", "eio:remove:1"} {
		t.Run(fault, func(t *testing.T) {
			w := s.newWorld(t)
			prefix := "back-" + strings.ReplaceAll(fault, ":", "-")
			d := harness.Launch(t, harness.Options{World: w.World, Args: []string{"-c", w.conf, "--log-level", "error"}, Env: []string{"MCPBRIDGE_JOURNAL_FAULT=" + fault}})
			if !d.Rises(t) {
				t.Fatal("it does not start")
			}
			l := &life{prefix: prefix, struck: true, passes: true}
			first := play(t, d, prefix, script)
			refused := 0
			for _, c := range first {
				if c.unavailable() {
					refused++
				}
			}
			if refused == 0 && !strings.Contains(fault, "remove") { // what could not be removed is removed later
				t.Error("no call was refused")
			}
			cl := control.NewClient(d.Control)
			defer cl.Close()
			n := 0
			harness.Eventually(t, "side effects are taken again", func() bool {
				n++
				c := &said{step: step{server: "s", tool: "write"}, id: fmt.Sprintf("%s-again-%d", prefix, n), nonce: fmt.Sprintf("%s-again-%d", prefix, n)}
				c.make(t, cl)
				l.calls = append(l.calls, c)
				return c.out.Kind == messages.OK
			})
			for _, i := range d.Status(t).Issues {
				t.Errorf("status still has an issue: %s", i.Message)
			}
			d.Stop(t)
			if l.exit = d.ExitCode(); l.exit != 0 {
				t.Errorf("exit %d", l.exit)
			}
			l.calls = append(l.calls, first...)
			for _, f := range compare(l, w.ask(t, prefix+"-next", l.calls), w.witness(t)) {
				t.Error(f)
			}
		})
	}
}

// TestFullDisk looks at what a person sees as long as the disk is full.
func TestFullDisk(t *testing.T) {
	s := newSite(t)
	w := s.newWorld(t)
	d := harness.Launch(t, harness.Options{World: w.World, Args: []string{"-c", w.conf}, Env: []string{"MCPBRIDGE_JOURNAL_FAULT=enospc:write:5+"}})
	d.AwaitReady(t)
	if o, r := d.Call(t, "s/write", `{"nonce":"full-1"}`); o.Kind != messages.OK {
		t.Fatal(r)
	}
	for _, server := range []string{"s", "web"} {
		nonce := "full-2-" + server
		o, r := d.Call(t, server+"/write", `{"nonce":"`+nonce+`"}`)
		if r.Exit != 7 || o.Kind != messages.Rejected || o.Code != messages.CodeJournalUnavailable || o.Sent() || !o.SafeToRetry() || !strings.Contains(r.Stderr+o.ErrorText(), "no space left on device") {
			t.Errorf("%s", r)
		}
		if n := w.witness(t).Begins(nonce); n != 0 {
			t.Errorf("%s began %d times", nonce, n)
		}
		if o, r := d.Call(t, server+"/read", `{}`); o.Kind != messages.OK {
			t.Errorf("a read: %s", r)
		}
	}
	r := d.OK(t, "calls", "--journal")
	if !strings.Contains(r.Stdout, "write") || !strings.Contains(r.Stderr, "no space left on device") {
		t.Errorf("%s", r)
	}
	var j control.Journal
	d.OK(t, "calls", "--journal", "-o", "json").JSON(t, &j)
	if len(j.Entries) != 1 || j.Entries[0].Outcome != messages.OK.String() || j.Complete {
		t.Errorf("%+v", j)
	}
	found := false
	for _, i := range d.Status(t).Issues {
		found = found || i.Path == "journal" && strings.Contains(i.Message, "side effects are refused") && strings.Contains(i.Message, "no space left on device")
	}
	if !found {
		t.Errorf("status says nothing of it: %+v", d.Status(t).Issues)
	}
	d.Stop(t)
}

// TestFaultForms: a fault that is not understood ends the daemon, and nothing of all this
// is in the bridgectl that people run.
func TestFaultForms(t *testing.T) {
	for _, fault := range []string{"nonsense", "kill-before:write", "kill-before:write:0", "kill-before:write:x", "kill-before:write:1x", "kill:write:1",
		"eio:read:1", "kill-within:sync:1", "lie:create:1", "log:", "eio:write:1,,", "eio:write:+"} {
		w := harness.NewWorld(t)
		w.Binary = harness.Stricken(t)
		r := w.RunIn(t, "", []string{"MCPBRIDGE_JOURNAL_FAULT=" + fault}, "supervise", "--listen", "127.0.0.1:0", "--state-dir", w.State)
		if r.Exit != 2 || !strings.Contains(r.Stderr, "ACTION:OP:N") {
			t.Errorf("%q: %s", fault, r)
		}
	}
	for path, want := range map[string]bool{harness.Bridgectl(t): false, harness.Stricken(t): true} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(b, []byte("MCPBRIDGE_JOURNAL_FAULT")); got != want {
			t.Errorf("%s knows of faults: %t", path, got)
		}
	}
}
