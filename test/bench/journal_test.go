package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
)

// TestBenchJournal measures what the record of a side effect costs its caller.
func TestBenchJournal(t *testing.T) {
	with := func(fsync string) *supervisor.Bridge {
		cfg := harness.Config(harness.M{"s": plain(t)})
		cfg["journal"] = harness.M{"fsync": fsync}
		return harness.Library(t, cfg)
	}
	always, off := with("always"), with("off")
	caller := func(b *supervisor.Bridge, tool string) contender {
		return contender{tool, func(_, args string) error {
			out := b.Call(context.Background(), messages.CallTool{Tool: "s/" + tool, Args: json.RawMessage(args)})
			if out.Kind != messages.OK {
				return fmt.Errorf("%s: %s", out.Kind, out.ErrorText())
			}
			return nil
		}}
	}
	report("\n%-34s %12s %12s   ratio  goal", "the journal, 1 caller", "with", "without")
	duel(t, "side effect, fsync always and off", caller(always, "write"), caller(off, "write"), "", smallArgs, 1, 100, "")
	duel(t, "side effect, fsync always, and read", caller(always, "write"), caller(always, "read"), "", smallArgs, 1, 100, "")
	duel(t, "side effect, fsync off, and read", caller(off, "write"), caller(off, "read"), "", smallArgs, 1, 100, "")
}

// TestBenchSyncs counts how often the disk is waited for, in a daemon that writes down
// what its journal does.
func TestBenchSyncs(t *testing.T) {
	const most = 16
	w := harness.NewWorld(t)
	w.Binary = harness.Stricken(t)
	servers := harness.M{}
	for i := range most {
		servers[fmt.Sprintf("s%d", i)] = plain(t)
	}
	ops := w.Path("ops")
	d := harness.Launch(t, harness.Options{World: w, Config: harness.Config(servers), Env: []string{"MCPBRIDGE_JOURNAL_FAULT=log:" + ops}})
	d.AwaitReady(t)
	cl := control.NewClient(d.Control)
	defer cl.Close()
	call := func(server int, tool string) {
		out, err := cl.Call(context.Background(), control.CallRequest{Tool: fmt.Sprintf("s%d/%s", server, tool), Args: "{}"}, nil)
		if err != nil || out.Kind != messages.OK {
			t.Errorf("%v, %s: %s", err, out.Kind, out.ErrorText())
		}
	}
	syncs := func() int {
		b, err := os.ReadFile(ops)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "sync 0") + strings.Count(string(b), "syncdir ")
	}
	for i := range most {
		call(i, "read")
	}
	call(0, "write") // begins the segment
	harness.Eventually(t, "its outcome is on the disk", func() bool {
		b, err := os.ReadFile(ops)
		return err == nil && strings.HasSuffix(strings.TrimSpace(string(b)), "journal") && strings.Count(string(b), "write 0") == 3 && strings.Count(string(b), "sync 0") == 3
	})
	report("\n%-34s %12s %12s   ratio  goal", "syncs of the journal", "syncs", "calls")
	line := func(title string, n, calls int, goal string) {
		report("%-34s %12d %12d   ×%.2f  %s", title, n, calls, float64(n)/float64(calls), goal)
	}

	n := pick(200, 20)
	before := syncs()
	for range n {
		call(0, "read")
	}
	reads := syncs() - before
	line("reads, 1 caller", reads, n, "0")
	if reads != 0 {
		t.Errorf("%d syncs for reads", reads)
	}

	before = syncs()
	for range n {
		call(0, "write")
	}
	one := syncs() - before
	line("side effects, 1 caller", one, n, "1")
	// Where the machine is slow, the outcome's own sync comes between two calls.
	if one < n {
		t.Errorf("%d syncs for %d side effects, one after the other", one, n)
	}

	before = syncs()
	var wg sync.WaitGroup
	for i := range most {
		wg.Go(func() {
			for range n {
				call(i, "write")
			}
		})
	}
	wg.Wait()
	many := syncs() - before
	line("side effects, 16 callers, 16 servers", many, most*n, "clearly under 1")
	if many >= most*n {
		t.Errorf("%d syncs for %d side effects at once: no two of them shared one", many, most*n)
	}
}
