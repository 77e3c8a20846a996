// Package protocol shows that one bad frame costs its own call at most, and one bad server
// its own lane: servers that break every rule of the protocol run beside an honest
// neighbour, which must not notice, and the bridge must not grow.
package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(rogueEnv); name != "" {
		runRogue(name)
		os.Exit(0)
	}
	os.Exit(harness.Main(m))
}

// town is a bridge with a rogue and its neighbour.
type town struct {
	t      *testing.T
	b      *supervisor.Bridge
	record string

	leave func() // ends the visits to the neighbour
	stop  chan struct{}
	wg    sync.WaitGroup
	peak  uint64
	calm  uint64
}

// mostGrowth is how much the bridge may grow while a server misbehaves.
const mostGrowth = 64 << 20

// rogueEntry is the configuration of a rogue. Reads are declared by the operator.
func rogueEntry(t testing.TB, name, record string, more ...harness.M) harness.M {
	t.Helper()
	if _, ok := modes[name]; !ok {
		t.Fatalf("no mode %q", name)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := harness.M{"command": self, "env": harness.M{rogueEnv: name, recordEnv: record, "GOCOVERDIR": t.TempDir()},
		"effects": harness.M{"read*": "read_only"}}
	for _, m := range more {
		for k, v := range m {
			e[k] = v
		}
	}
	return e
}

// found opens a bridge with a rogue of that mode. At the end of the test the neighbour must
// have been served all the time, and the memory be back.
func found(t *testing.T, name string, more ...harness.M) *town {
	t.Helper()
	lab := harness.NewLab(t)
	c := &town{t: t, record: filepath.Join(t.TempDir(), "record"), stop: make(chan struct{})}
	cfg := harness.Config(harness.M{"rogue": rogueEntry(t, name, c.record, more...), "neighbour": lab.Server(t, "neighbour")})
	cfg["discovery"] = harness.M{"meta_tools": "never"} // what the rogue lists is looked at whole
	c.b = harness.Library(t, cfg)
	for range 20 {
		c.mustCall("neighbour/read", `{}`)
	}
	c.calm = liveHeap()
	c.leave = harness.Neighbour(t, c.b, "neighbour/read")
	c.wg.Add(1)
	go c.watch()
	t.Cleanup(c.close) // before the bridge is closed
	return c
}

// watch notes the highest live heap.
func (c *town) watch() {
	defer c.wg.Done()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(20 * time.Millisecond):
			metrics.Read(s)
			c.peak = max(c.peak, s[0].Value.Uint64())
		}
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what has a finalizer, and what pools hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (c *town) close() {
	c.leave()
	close(c.stop)
	c.wg.Wait()
	if c.peak > c.calm+mostGrowth {
		c.t.Errorf("the bridge grew from %d to %d MiB", c.calm>>20, c.peak>>20)
	}
	const slack = 4 << 20 // of the tests themselves, and of what events remember
	var now uint64
	ok := func() bool { now = liveHeap(); return now <= c.calm+c.calm/10+slack }
	for end := time.Now().Add(10 * time.Second); !ok() && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	if !ok() {
		c.t.Errorf("%d KiB before, %d KiB after", c.calm>>10, now>>10)
	}
}

// try is one call.
func (c *town) try(tool, args string, edit ...func(*messages.CallTool)) messages.Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	m := messages.CallTool{Tool: tool, Args: json.RawMessage(args)}
	for _, f := range edit {
		f(&m)
	}
	return c.b.Call(ctx, m)
}

func within(d time.Duration) func(*messages.CallTool) {
	return func(m *messages.CallTool) { m.Timeout = d }
}

// want is a call that must end so.
func (c *town) want(kind messages.OutcomeKind, code messages.Code, tool, args string, edit ...func(*messages.CallTool)) messages.Outcome {
	c.t.Helper()
	o := c.try(tool, args, edit...)
	if o.Kind != kind || o.Code != code {
		c.t.Errorf("%s %.200s: %s %s (%s), want %s %s", tool, args, o.Kind, o.Code, o.Message, kind, code)
	}
	return o
}

func (c *town) mustCall(tool, args string) messages.Outcome {
	c.t.Helper()
	return c.want(messages.OK, "", tool, args)
}

func (c *town) row() messages.ServerStatus {
	c.t.Helper()
	row, ok := c.b.Status().Server("rogue")
	if !ok {
		c.t.Fatal("no rogue in the status")
	}
	return row
}

func (c *town) eventually(what string, cond func() bool) {
	c.t.Helper()
	harness.Eventually(c.t, what, cond)
}

// tell gives the rogue a word.
func (c *town) tell(what string) {
	c.t.Helper()
	if err := os.WriteFile(c.record+"-"+what, nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// asked are the requests of a method that the rogue wrote down, in order.
type asked struct {
	at   time.Time
	line string
}

func (c *town) asked(method string) (out []asked) {
	c.t.Helper()
	b, err := os.ReadFile(c.record)
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		at, msg, _ := strings.Cut(string(line), " ")
		var m struct{ Method string }
		if json.Unmarshal([]byte(msg), &m) == nil && m.Method == method {
			ns, _ := strconv.ParseInt(at, 10, 64)
			out = append(out, asked{time.Unix(0, ns), strings.TrimSpace(msg)})
		}
	}
	return out
}

// begun counts how often the rogue was asked for a nonce.
func (c *town) begun(nonce string) (n int) {
	for _, a := range c.asked("tools/call") {
		if strings.Contains(a.line, `"nonce":"`+nonce+`"`) {
			n++
		}
	}
	return n
}

// sameProcess fails unless the rogue is still in its first incarnation.
func (c *town) sameProcess(gen uint64) {
	c.t.Helper()
	if row := c.row(); row.Generation != gen || row.State != messages.StateReady {
		c.t.Errorf("generation %d in state %s, it was %d (%s)", row.Generation, row.State, gen, row.Reason)
	}
}

func nonce(format string, a ...any) string { return fmt.Sprintf(`{"nonce":"`+format+`"}`, a...) }
