package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// async runs one call beside the test. A call that breaks the test closes the
// channel without an outcome.
func async(t *testing.T, d *harness.Daemon, tool, args string) <-chan messages.Outcome {
	t.Helper()
	out := make(chan messages.Outcome, 1)
	go func() {
		defer close(out)
		o, _ := d.Call(t, tool, args)
		out <- o
	}()
	return out
}

// TestKill kills a server's leader in the midst of calls: they are settled at once
// and truthfully, the server comes back, its old tree is gone, and the neighbour's
// callers never notice.
func TestKill(t *testing.T) {
	for _, tt := range []struct {
		name  string
		entry func(lab *harness.Lab) harness.M
	}{
		{"the server itself", func(lab *harness.Lab) harness.M { return lab.Server(t, "victim") }},
		{"a wrapper whose child holds stdout", func(lab *harness.Lab) harness.M { return lab.Server(t, "victim", "-wrap") }},
		{"a wrapper whose child ignores EOF and SIGTERM", func(lab *harness.Lab) harness.M {
			return lab.Server(t, "victim", "-wrap", "-ignore-eof", "-ignore-term")
		}},
		{"a shell", func(lab *harness.Lab) harness.M {
			e := lab.Server(t, "victim")
			line := "'" + harness.Fixture(t) + "'"
			for _, a := range lab.Args("victim", "-grandchild") {
				line += " '" + a + "'"
			}
			e["command"], e["args"] = "sh", []string{"-c", line + "; true"}
			return e
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab := harness.NewLab(t)
			victim := tt.entry(lab)
			victim["isolation"] = "serial" // a read may run beside the side effect
			d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"victim": victim, "neighbour": lab.Server(t, "neighbour")})})
			d.Await(t, "ready", "victim", "neighbour")
			before := d.Server(t, "victim")
			tree := harness.Tree(before.PID)

			ctx, stop := context.WithCancel(context.Background())
			neighbour := make(chan error, 1)
			cs := d.Session(t, "", nil)
			go func() { neighbour <- keepCalling(ctx, cs, "neighbour__read") }()

			read := async(t, d, "victim/read", `{"nonce":"r","sleep_ms":1500}`)
			write := async(t, d, "victim/write", `{"nonce":"w","sleep_ms":1500}`)
			harness.Eventually(t, "both calls have begun", func() bool {
				h := lab.History(t)
				return h.Begins("r") == 1 && h.Begins("w") == 1
			})
			leader, _ := harness.Process(before.PID)
			leader.Kill()

			w, r := <-write, <-read
			if w.Kind != messages.OutcomeUnknown || w.Code != messages.CodeConnectionLost || w.SafeToRetry() {
				t.Errorf("the side effect: %s/%s, safe to retry: %t", w.Kind, w.Code, w.SafeToRetry())
			}
			if r.Kind != messages.OK || r.Attempt != 2 {
				t.Errorf("the read: %s/%s in attempt %d: %s", r.Kind, r.Code, r.Attempt, r.ErrorText())
			}
			after := d.AwaitGeneration(t, "victim", before.Generation)
			if after.PID == before.PID || after.Restarts != 1 || after.LastExit == nil || after.LastExit.Reason != "signal: killed" || after.LastExit.Stage != messages.StageRunning {
				t.Errorf("status after the kill: %+v, last exit %+v", after, after.LastExit)
			}
			if left := harness.AliveOf(tree); len(left) > 0 {
				t.Errorf("of the old tree: %v", left)
			}
			stop()
			if err := <-neighbour; err != nil {
				t.Errorf("the neighbour noticed: %v", err)
			}
			h := lab.History(t)
			if h.Begins("w") != 1 || h.Begins("r") != 2 {
				t.Errorf("the side effect began %d times, the read %d times; want 1 and 2", h.Begins("w"), h.Begins("r"))
			}
			for _, bad := range [][]string{h.Twice(), h.Overlaps(), h.Survivors()} {
				for _, s := range bad {
					t.Error(s)
				}
			}
		})
	}
}

// keepCalling calls a tool until ctx ends; anything but a good answer is an error.
func keepCalling(ctx context.Context, cs *mcp.ClientSession, tool string) error {
	for n := 1; ctx.Err() == nil; n++ {
		res, err := cs.CallTool(context.WithoutCancel(ctx), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(`{}`)})
		if err != nil {
			return fmt.Errorf("call %d: %w", n, err)
		}
		if res.IsError {
			b, _ := json.Marshal(res)
			return fmt.Errorf("call %d: %s", n, b)
		}
	}
	return nil
}

// TestQueuedCallSurvivesARestart: what had not left is sent to the next incarnation.
func TestQueuedCallSurvivesARestart(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s")})})
	d.Await(t, "ready", "s")
	first := async(t, d, "s/write", `{"nonce":"one","sleep_ms":60000}`)
	harness.Eventually(t, "the first has begun", func() bool { return lab.History(t).Begins("one") == 1 })
	second := async(t, d, "s/write", `{"nonce":"two"}`)
	var blockers []string
	harness.Eventually(t, "the second waits", func() bool {
		var calls struct{ Calls []messages.CallInfo }
		d.OK(t, "calls", "-o", "json").JSON(t, &calls)
		for _, c := range calls.Calls {
			if c.State == messages.CallQueued {
				blockers = c.BlockedBy
				return true
			}
		}
		return false
	})
	if len(blockers) != 1 {
		t.Errorf("the queued call is blocked by %v; want the one that runs", blockers)
	}
	p, _ := harness.Process(d.Server(t, "s").PID)
	p.Kill()
	if o := <-first; o.Kind != messages.OutcomeUnknown {
		t.Errorf("the first: %s", o.Kind)
	}
	if o := <-second; o.Kind != messages.OK || o.Attempt != 1 {
		t.Errorf("the second: %s in attempt %d: %s", o.Kind, o.Attempt, o.ErrorText())
	}
}
