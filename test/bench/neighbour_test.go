package bench

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
)

// misdeed is what the server beside does while its neighbour is called.
type misdeed struct {
	name  string
	args  []string // of the fixture
	entry harness.M
	tool  string // what is called all the time, "" for nothing
	call  string
	kill  bool
	// burns says that the fault takes the cores for itself: nobody can promise anything
	// about the time that is left.
	burns bool
}

var misdeeds = []misdeed{
	{name: "quiet"},
	{name: "killed every 50 ms", kill: true, entry: harness.M{"restart": harness.M{"burst": 0, "backoff": harness.M{"initial": "10ms", "max": "20ms"}}}},
	{name: "floods its stderr", args: []string{"-stderr-flood", "-1"}, burns: true},
	{name: "floods with progress", args: []string{"-progress", "100us"}, tool: "rogue/read", call: `{"sleep_ms":1000}`},
	{name: "never answers", args: []string{"-never"}, tool: "rogue/read", call: `{}`},
	{name: "answers with 48 MiB", args: []string{"-huge-frame"}, tool: "rogue/read", call: `{}`, burns: true},
	{name: "list_changed every ms", args: []string{"-list-changed", "1ms"}},
}

// TestBenchNeighbour calls one server 50 times a second while the other one misbehaves.
// The rounds of all misdeeds take turns; what counts is the median of each one's p99.
func TestBenchNeighbour(t *testing.T) {
	const perSecond = 50
	p99 := make([][]time.Duration, len(misdeeds))
	for range pick(5, 1) {
		for i, m := range misdeeds {
			each := m.round(t, pick(perSecond, 5), time.Second/perSecond)
			p99[i] = append(p99[i], quantile(each, 0.99))
		}
	}
	report("\n%-34s %12s %12s  goal", "a neighbour, 50 calls/s", "p99", "more")
	quiet := quantile(p99[0], 0.5)
	most := quiet + max(quiet/10, 5*time.Millisecond)
	for i, m := range misdeeds {
		got, goal, verdict := quantile(p99[i], 0.5), "", ""
		switch {
		case i == 0:
		case m.burns:
			goal = "none: the fault itself burns the cores"
		default:
			goal = "at most " + most.Round(10*time.Microsecond).String()
			if got > most {
				verdict = " (missed)"
			}
		}
		report("%-34s %9.2f ms %9.2f ms  %s%s", m.name, us(got)/1000, us(got-quiet)/1000, goal, verdict)
	}
}

// round opens a bridge, lets the misdeed go on, and returns how long each call took from
// the moment at which it was due: who is kept waiting makes no fewer calls.
func (m misdeed) round(t *testing.T, n int, every time.Duration) []time.Duration {
	t.Helper()
	rogue := plain(t, m.args...)
	for k, v := range m.entry {
		rogue[k] = v
	}
	b := harness.Library(t, harness.Config(harness.M{"rogue": rogue, "neighbour": plain(t)}))
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	if m.tool != "" {
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					b.Call(ctx, messages.CallTool{Tool: m.tool, Args: json.RawMessage(m.call), Timeout: 2 * time.Second})
				}
			})
		}
	}
	if m.kill {
		wg.Go(func() { killEvery(ctx, b, 50*time.Millisecond) })
	}
	call := func() {
		if o := b.Call(context.Background(), messages.CallTool{Tool: "neighbour/echo", Args: json.RawMessage(smallArgs)}); o.Kind != messages.OK {
			t.Errorf("%s: %s %s", m.name, o.Kind, o.ErrorText())
		}
	}
	for range 10 {
		call()
	}
	each := make([]time.Duration, n)
	var calls sync.WaitGroup
	tick := time.NewTicker(every)
	for i := range n {
		due := <-tick.C
		calls.Go(func() { call(); each[i] = time.Since(due) })
	}
	tick.Stop()
	calls.Wait()
	stop()
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := b.Close(ctx); err != nil { // the next round must not meet it
		t.Error(err)
	}
	return each
}

// killEvery kills whatever process the rogue has.
func killEvery(ctx context.Context, b *supervisor.Bridge, every time.Duration) {
	for tick := time.NewTicker(every); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			if row, _ := b.Status().Server("rogue"); row.PID > 0 {
				if p, ok := harness.Process(row.PID); ok {
					p.Kill()
				}
			}
		}
	}
}
