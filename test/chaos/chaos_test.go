package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// plan is how hard and how long.
type plan struct {
	last     time.Duration
	every    time.Duration
	callers  int
	restarts int // the storm goes on until there were that many
}

// told is one call with what its caller was told.
type told struct {
	nonce string
	write bool
	took  time.Duration
	out   messages.Outcome
}

const timeout = 10 * time.Second

// TestChaos is the storm: every call has exactly one outcome and it is true, no
// side effect happens twice or beside another, reads run side by side, and at the
// end nothing is left: no process, no goroutine.
func TestChaos(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("storm", storm)
	goleak.VerifyNone(t, before)
}

func storm(t *testing.T) {
	p := plan{30 * time.Second, 200 * time.Millisecond, 32, 100}
	if testing.Short() {
		p = plan{5 * time.Second, 200 * time.Millisecond, 32, 10}
	}
	lab := harness.NewLab(t)
	servers := []string{"alpha", "beta"}
	entries := harness.M{}
	for i, name := range servers {
		// One of them is a wrapper: its leader dies and its child holds stdout.
		e := lab.Server(t, name, [][]string{nil, {"-wrap"}}[i]...)
		e["restart"] = harness.M{"backoff": harness.M{"initial": "10ms", "max": "100ms"}, "reset_after": "200ms", "burst": 0}
		entries[name] = e
	}
	settled := &counter{n: map[string]int{}}
	b := harness.Library(t, harness.Config(entries), supervisor.WithEventHook(settled.hear))

	stop := make(chan struct{})
	var results sync.Map
	var total atomic.Int64
	var wg sync.WaitGroup
	for i := range p.callers {
		wg.Go(func() { results.Store(i, caller(t, b, servers, i, stop, &total)) })
	}
	kills := nemesis(t, b, servers, p)
	close(stop)
	wg.Wait()

	var calls []told
	results.Range(func(_, v any) bool { calls = append(calls, v.([]told)...); return true })
	restarts := restartsOf(b)
	judge(t, lab, calls)
	if lost := settled.wrong(calls); len(lost) > 0 && settled.gaps.Load() == 0 {
		t.Errorf("%d calls were not settled exactly once in the event history, the first: %s", len(lost), lost[0])
	}
	t.Logf("%d kills, %d restarts, %d calls: %s", kills, restarts, len(calls), tally(calls))
}

// caller calls until stop is closed: four reads for each side effect.
func caller(t *testing.T, b *supervisor.Bridge, servers []string, id int, stop <-chan struct{}, total *atomic.Int64) []told {
	rng := rand.New(rand.NewPCG(uint64(id), 7))
	var out []told
	for {
		select {
		case <-stop:
			return out
		default:
		}
		c := told{nonce: fmt.Sprintf("c%d-%d", id, total.Add(1)), write: rng.IntN(5) == 0}
		tool := servers[rng.IntN(len(servers))] + "/read"
		if c.write {
			tool = strings.Replace(tool, "/read", "/write", 1)
		}
		args := fmt.Sprintf(`{"nonce":%q,"sleep_ms":%d}`, c.nonce, rng.IntN(15))
		start := time.Now()
		c.out = b.Call(t.Context(), messages.CallTool{Tool: tool, Args: json.RawMessage(args), Timeout: timeout, Client: fmt.Sprint("client", id%4)})
		c.took = time.Since(start)
		out = append(out, c)
	}
}

// nemesis kills a random server's leader at each tick for as long as the plan says.
func nemesis(t *testing.T, b *supervisor.Bridge, servers []string, p plan) (kills int) {
	rng := rand.New(rand.NewPCG(42, 42))
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	start := time.Now()
	for time.Since(start) < p.last || restartsOf(b) < p.restarts {
		<-tick.C
		if time.Since(start) > p.last+2*harness.Patience {
			t.Errorf("only %d restarts in %s", restartsOf(b), time.Since(start))
			return kills
		}
		row, _ := b.Status().Server(servers[rng.IntN(len(servers))])
		if proc, ok := harness.Process(row.PID); row.PID != 0 && ok && proc.PPID == os.Getpid() {
			proc.Kill()
			kills++
		}
	}
	return kills
}

func restartsOf(b *supervisor.Bridge) int {
	n := 0
	for _, row := range b.Status().Servers {
		n += row.Restarts
	}
	return n
}

// judge compares what the callers were told with what the servers did.
func judge(t *testing.T, lab *harness.Lab, calls []told) {
	t.Helper()
	h := lab.History(t)
	begins, ends := h.Counts()
	for _, c := range calls {
		n, done := begins[c.nonce], ends[c.nonce]
		var lie string
		switch c.out.Kind {
		case messages.OK:
			if done == 0 {
				lie = "ok, and the server never finished it"
			}
		case messages.NotSent, messages.Rejected:
			if n != 0 {
				lie = "not sent, and the server began it"
			}
		case messages.OutcomeUnknown:
			if c.out.Attempt == 0 {
				lie = "outcome unknown, and it was never dispatched"
			}
		case messages.ToolError:
			lie = "a tool error that the server never gave: " + c.out.ErrorText()
		}
		// Attempts that never left do not count: a side effect may need several
		// before the first byte of one is out, and then it is the last.
		if c.write && n > 1 || n > 2 {
			lie = fmt.Sprintf("began %d times in %d attempts", n, c.out.Attempt)
		}
		if c.took > timeout+2*time.Second {
			lie = fmt.Sprintf("answered after %s", c.took)
		}
		if lie != "" {
			t.Errorf("%s (%s/%s): %s", c.nonce, c.out.Kind, c.out.Code, lie)
		}
	}
	for what, bad := range map[string][]string{"side effect twice": h.Twice(), "side effects beside each other": h.Overlaps(),
		"a read beside a side effect": h.Intrusions(), "an old process alive": h.Survivors()} {
		for _, s := range bad[:min(len(bad), 5)] {
			t.Errorf("%s (%d in all): %s", what, len(bad), s)
		}
	}
	if n := h.MaxParallel("read"); n < 2 {
		t.Errorf("at most %d read ran at a time; reads are to run in parallel", n)
	}
}

func tally(calls []told) string {
	n := map[string]int{}
	for _, c := range calls {
		k := c.out.Kind.String()
		if c.out.Code != "" {
			k += "/" + string(c.out.Code)
		}
		if c.out.Attempt > 1 {
			k += " in the second attempt"
		}
		n[k]++
	}
	b, _ := json.Marshal(n)
	return string(b)
}

// counter counts the settlements of each call in the bridge's event history.
type counter struct {
	mu   sync.Mutex
	n    map[string]int
	gaps atomic.Int64 // events that this subscriber was too slow for
}

func (c *counter) hear(e messages.Event) {
	switch e.Type {
	case messages.EventCallSettled:
		c.mu.Lock()
		c.n[e.CallID]++
		c.mu.Unlock()
	case messages.EventGap:
		c.gaps.Add(int64(e.Count))
	}
}

// wrong lists the calls that were not settled exactly once.
func (c *counter) wrong(calls []told) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, call := range calls {
		if n := c.n[call.out.CallID]; n != 1 {
			out = append(out, fmt.Sprintf("%s (%s): %d times", call.nonce, call.out.Kind, n))
		}
	}
	return out
}
