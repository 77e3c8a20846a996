package e2e

import (
	"testing"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestCleanEndFollowsThePolicy: a server that ends with 0 as soon as it is up, its input
// still open, is started as often as its policy says and no more.
func TestCleanEndFollowsThePolicy(t *testing.T) {
	for mode, want := range map[string]struct {
		state  string
		starts int
	}{
		"always":     {"quarantined", 6},
		"on_failure": {"idle", 1},
		"never":      {"idle", 1},
	} {
		t.Run(mode, func(t *testing.T) {
			lab := harness.NewLab(t)
			e := lab.Server(t, "s", "-exit-on", "listed", "-exit-code", "0")
			e["restart"] = harness.M{"mode": mode, "backoff": harness.M{"initial": "20ms", "max": "100ms"}}
			d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": e, "neighbour": lab.Server(t, "neighbour")})})
			harness.Eventually(t, "it is "+want.state, func() bool { return d.Server(t, "s").State.String() == want.state })
			row := d.Server(t, "s")
			if row.LastExit == nil || row.LastExit.Reason != "exit status 0" {
				t.Errorf("last exit: %+v", row.LastExit)
			}
			for range 20 { // time in which one that spins would start again
				if o, r := d.Call(t, "neighbour/read", `{}`); o.Kind != messages.OK {
					t.Errorf("the neighbour: %s", r)
				}
			}
			if now := d.Server(t, "s"); now.State.String() != want.state || now.Generation != row.Generation {
				t.Errorf("%s in generation %d became %s in %d", want.state, row.Generation, now.State, now.Generation)
			}
			if n := len(lab.History(t).PIDs()) - 1; n != want.starts {
				t.Errorf("started %d times, want %d", n, want.starts)
			}
		})
	}
}
