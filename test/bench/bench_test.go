package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// full says that this is `make bench`.
var full = os.Getenv("MCPBRIDGE_BENCH") == "1"

// pick chooses between the real thing and a look whether it works.
func pick(real, smoke int) int {
	if full {
		return real
	}
	return smoke
}

const (
	smallArgs = `{"text":"fifty bytes or so, as most tool calls are, really"}`
	bigArgs   = `{"bytes":1000000}`
)

// contender is one way to call the echo or the big tool.
type contender struct {
	name string
	call func(tool, args string) error
}

// round runs n calls over c callers and returns each call's time and the whole.
func (k contender) round(t *testing.T, tool, args string, n, c int) (each []time.Duration, whole time.Duration) {
	t.Helper()
	each = make([]time.Duration, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	start := time.Now()
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			for i := range next {
				at := time.Now()
				if err := k.call(tool, args); err != nil {
					t.Errorf("%s: %v", k.name, err)
					return
				}
				each[i] = time.Since(at)
			}
		})
	}
	wg.Wait()
	return each, time.Since(start)
}

// duel interleaves rounds of two contenders and prints one line: the median latency
// of single calls, or calls per second.
func duel(t *testing.T, title string, ours, theirs contender, tool, args string, callers, perRound int, goal string) {
	t.Helper()
	rounds := pick(12, 1)
	if !full {
		perRound = min(perRound, 10)
	}
	var times [2][]time.Duration
	var whole [2]time.Duration
	for r := range rounds + 1 {
		order := []int{0, 1}
		if r%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			each, all := []contender{ours, theirs}[i].round(t, tool, args, perRound, callers)
			if r > 0 || rounds == 1 { // the first round warms up
				times[i], whole[i] = append(times[i], each...), whole[i]+all
			}
		}
	}
	if callers == 1 {
		a, b := quantile(times[0], 0.5), quantile(times[1], 0.5)
		report("%-34s %9.0f µs %9.0f µs   ×%.2f  %s", title, us(a), us(b), us(a)/us(b), goal)
		return
	}
	a, b := float64(len(times[0]))/whole[0].Seconds(), float64(len(times[1]))/whole[1].Seconds()
	report("%-34s %9.0f /s %9.0f /s   ×%.2f  %s", title, a, b, a/b, goal)
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// quantile sorts in place.
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[int(q*float64(len(d)-1))]
}

// report prints a line of the table; without MCPBRIDGE_BENCH nobody wants to see it.
func report(format string, args ...any) {
	if full {
		fmt.Printf(format+"\n", args...)
	}
}

// bridge is one in this process with one fixture, lanes as wide as the callers.
func bridge(t *testing.T, entry harness.M) *supervisor.Bridge {
	t.Helper()
	entry["limits"] = harness.M{"max_reads": 64}
	return harness.Library(t, harness.Config(harness.M{"s": entry}))
}

// plain is the fixture without a witness, which would measure the disk.
func plain(t *testing.T, more ...string) harness.M {
	return harness.M{"command": harness.Fixture(t), "args": more, "effects": harness.Effects()}
}

// direct is the official client on a fixture of its own.
func direct(t *testing.T) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "direct", Version: "1"}, nil)
	cs, err := c.Connect(t.Context(), &mcp.CommandTransport{Command: exec.Command(harness.Fixture(t))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

func TestBenchLibrary(t *testing.T) {
	b, cs := bridge(t, plain(t)), direct(t)
	ours := contender{"Bridge.Call", func(tool, args string) error {
		out := b.Call(context.Background(), messages.CallTool{Tool: "s/" + tool, Args: json.RawMessage(args)})
		if out.Kind != messages.OK {
			return fmt.Errorf("%s: %s", out.Kind, out.ErrorText())
		}
		return nil
	}}
	theirs := contender{"direct session", func(tool, args string) error {
		_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
		return err
	}}
	report("\n%-34s %12s %12s   ratio  goal", "in process", "Bridge.Call", "SDK direct")
	duel(t, "small call, 1 caller", ours, theirs, "echo", smallArgs, 1, 300, "at most 1.15")
	duel(t, "small calls, 16 callers", ours, theirs, "echo", smallArgs, 16, 1500, "")
	duel(t, "small calls, 64 callers", ours, theirs, "echo", smallArgs, 64, 1500, "")
	duel(t, "1 MB result, 1 caller", ours, theirs, "big", bigArgs, 1, 10, "")
}

func TestBenchEndpoint(t *testing.T) {
	b, cs := bridge(t, plain(t)), direct(t)
	endpoint := httptest.NewServer(b.Handler())
	defer endpoint.Close()
	h, err := Proxy(t.Context(), cs)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(h)
	defer proxy.Close()
	ours := poster(t, "endpoint", endpoint.URL+"/mcp", "s__")
	theirs := poster(t, "proxy", proxy.URL, "")
	report("\n%-34s %12s %12s   ratio  goal", "over HTTP", "endpoint", "SDK proxy")
	duel(t, "small call, 1 caller", ours, theirs, "echo", smallArgs, 1, 200, "at most 0.80")
	duel(t, "small calls, 16 callers", ours, theirs, "echo", smallArgs, 16, 800, "")
	duel(t, "small calls, 64 callers", ours, theirs, "echo", smallArgs, 64, 800, "")
	duel(t, "1 MB result, 1 caller", ours, theirs, "big", bigArgs, 1, 8, "")
}

// poster calls over HTTP without an SDK: what is measured is the server.
func poster(t *testing.T, name, url, prefix string) contender {
	t.Helper()
	raw := harness.OpenRaw(t, url, nil)
	return contender{name, func(tool, args string) error {
		reply, err := raw.Try(context.Background(), "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, prefix+tool, args))
		if err == nil && (reply.Error != nil || strings.Contains(string(reply.Result[:min(len(reply.Result), 200)]), `"isError":true`)) {
			err = fmt.Errorf("%s%s", reply.Error, reply.Result)
		}
		return err
	}}
}

// TestBenchDeath measures from kill -9 to the outcome of the call in flight, and to
// ready again.
func TestBenchDeath(t *testing.T) {
	report("\n%-34s %12s %12s %12s  goal", "from kill -9 of the leader to", "p50", "p99", "max")
	for _, tt := range []struct {
		title string
		args  []string
	}{{"the server", nil}, {"its wrapper", []string{"-wrap"}}} {
		lab := harness.NewLab(t)
		e := lab.Server(t, "s", tt.args...)
		e["restart"] = harness.M{"backoff": harness.M{"initial": "10ms", "max": "50ms"}, "reset_after": "1ms", "burst": 0}
		b := harness.Library(t, harness.Config(harness.M{"s": e}))
		var outcome, ready []time.Duration
		for i := range pick(100, 3) {
			nonce := fmt.Sprintf("n%d", i)
			done := make(chan messages.Outcome, 1)
			go func() {
				done <- b.Call(context.Background(), messages.CallTool{Tool: "s/write", Args: json.RawMessage(`{"nonce":"` + nonce + `","sleep_ms":60000}`)})
			}()
			harness.Eventually(t, "the call has begun", func() bool { return begun(lab.Path("witness"), nonce) })
			row, _ := b.Status().Server("s")
			proc, _ := harness.Process(row.PID)
			at := time.Now()
			proc.Kill()
			out := <-done
			outcome = append(outcome, time.Since(at))
			if out.Kind != messages.OutcomeUnknown {
				t.Errorf("%s/%s", out.Kind, out.Code)
			}
			harness.Eventually(t, "ready again", func() bool {
				now, _ := b.Status().Server("s")
				return now.State == messages.StateReady && now.Generation > row.Generation
			})
			ready = append(ready, time.Since(at))
		}
		for _, line := range []struct {
			title string
			d     []time.Duration
			goal  string
		}{{"the outcome, killed: " + tt.title, outcome, "p99 at most 50 ms"}, {"ready again, killed: " + tt.title, ready, ""}} {
			report("%-34s %9.1f ms %9.1f ms %9.1f ms  %s", line.title, us(quantile(line.d, 0.5))/1000, us(quantile(line.d, 0.99))/1000, us(line.d[len(line.d)-1])/1000, line.goal)
		}
	}
}

// begun looks for the nonce in the log's text: parsing it a thousand times would be
// the benchmark.
func begun(path, nonce string) bool {
	b, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(b), `"nonce":"`+nonce+`"`)
}
