package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

func onListChanged(c chan<- struct{}) *mcp.ClientOptions {
	return &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		select {
		case c <- struct{}{}:
		default:
		}
	}}
}

// TestSigtermDrains: queued calls are given back at once, running ones get their
// grace, and after at most nine seconds nothing is left, whatever the servers do.
func TestSigtermDrains(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"plain":    lab.Server(t, "plain"),
		"stubborn": lab.Server(t, "stubborn", "-ignore-term", "-ignore-eof"),
		"wrapped":  lab.Server(t, "wrapped", "-wrap", "-ignore-eof"),
		"parent":   lab.Server(t, "parent", "-grandchild"),
		"hung":     lab.Server(t, "hung", "-silent", "all"),
	})})
	d.Await(t, "ready", "plain", "stubborn", "wrapped", "parent")
	var procs []harness.Proc
	for _, row := range d.Status(t).Servers {
		procs = append(procs, harness.Tree(row.PID)...)
	}
	short := async(t, d, "plain/write", `{"nonce":"short","sleep_ms":1000}`)
	long := async(t, d, "stubborn/write", `{"nonce":"long","sleep_ms":60000}`)
	harness.Eventually(t, "both have begun", func() bool {
		h := lab.History(t)
		return h.Begins("short") == 1 && h.Begins("long") == 1
	})
	queued := async(t, d, "stubborn/write", `{"nonce":"queued"}`)
	harness.Eventually(t, "the third waits", func() bool { return d.Server(t, "stubborn").Queued == 1 })

	took := d.Stop(t)
	if d.ExitCode() != 0 {
		t.Errorf("exit %d", d.ExitCode())
	}
	if took > 10*time.Second {
		t.Errorf("took %s; a container waits ten seconds", took)
	}
	if o := <-short; o.Kind != messages.OK {
		t.Errorf("the call that could end in its grace: %s/%s", o.Kind, o.Code)
	}
	if o := <-long; o.Kind != messages.OutcomeUnknown {
		t.Errorf("the call that could not: %s/%s", o.Kind, o.Code)
	}
	if o := <-queued; o.Kind != messages.NotSent {
		t.Errorf("the queued call: %s/%s", o.Kind, o.Code)
	}
	if left := harness.AliveOf(procs); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if n := lab.History(t).Begins("queued"); n != 0 {
		t.Errorf("the queued call began %d times", n)
	}
}

// TestSecondSignalSkipsTheGrace.
func TestSecondSignalSkipsTheGrace(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s", "-ignore-term", "-ignore-eof")})})
	d.Await(t, "ready", "s")
	call := async(t, d, "s/write", `{"nonce":"n","sleep_ms":60000}`)
	harness.Eventually(t, "the call has begun", func() bool { return lab.History(t).Begins("n") == 1 })
	d.Signal(t, syscall.SIGTERM)
	harness.Eventually(t, "the drain has begun", func() bool {
		if !d.Alive() {
			return true
		}
		r := d.CLI(t, "call", "s/read", "-o", "json")
		return r.Exit != 0
	})
	if d.Alive() {
		d.Signal(t, syscall.SIGTERM)
	}
	d.Wait(t)
	if o, ok := <-call; ok && o.Kind != messages.OutcomeUnknown {
		t.Errorf("the call in flight: %s", o.Kind)
	}
}

// TestSigkillLeavesNoChild: nobody is left to clean up but what was put in place
// before.
func TestSigkillLeavesNoChild(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"plain": lab.Server(t, "plain"), "wrapped": lab.Server(t, "wrapped", "-wrap"), "no-eof": lab.Server(t, "no-eof", "-ignore-eof"),
	})})
	d.Await(t, "ready", "plain", "wrapped", "no-eof")
	var procs []harness.Proc
	for _, row := range d.Status(t).Servers {
		procs = append(procs, harness.Tree(row.PID)...)
	}
	if len(procs) != 4 {
		t.Fatalf("processes: %v", procs)
	}
	d.Signal(t, syscall.SIGKILL)
	d.Wait(t)
	start := time.Now()
	harness.EventuallyWithin(t, 5*time.Second, "every child is gone", func() bool { return len(harness.AliveOf(procs)) == 0 })
	t.Logf("gone after %s", time.Since(start))

	// The next daemon takes over the state directory without a word about the dead one.
	again := harness.Start(t, harness.Options{World: d.World, Config: harness.Config(harness.M{"plain": lab.Server(t, "plain")})})
	again.Await(t, "ready", "plain")
}
