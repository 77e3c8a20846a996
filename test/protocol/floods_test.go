package protocol

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// floodTime is how long a server floods while its calls, and its neighbour's, go on.
const floodTime = 2 * time.Second

// floods are lines that a server may repeat without end; %s is the id of a call.
var floods = map[string]string{
	"list_changed":     `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
	"log messages":     `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"` + strings.Repeat("x", 200) + `"}}`,
	"progress":         `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":"` + strings.Repeat("x", 200) + `"}}`,
	"foreign progress": `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"nobody","progress":1}}`,
	"resource updates": `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`,
	"unheard of":       `{"jsonrpc":"2.0","method":"notifications/\u0000","params":[1,2,3]}`,
	"cancellations":    `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
	"pings":            `{"jsonrpc":"2.0","id":"p","method":"ping"}`,
	"sampling":         `{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[]}}`,
	"elicitation":      `{"jsonrpc":"2.0","id":8,"method":"elicitation/create","params":{"message":"` + strings.Repeat("x", 200) + `"}}`,
	"answers":          `{"jsonrpc":"2.0","id":999999,"result":{}}`,
	"noise":            "[debug] nothing to see here",
}

func init() {
	modes["flood"] = mode{call: func(r *rogue, c call) {
		line, ok := floods[c.nonce]
		if !ok {
			r.text(c.id, "done")
			return
		}
		if strings.Contains(line, "%s") {
			line = fmt.Sprintf(line, c.id)
		}
		r.flood(line, 10_000, floodTime)
		r.text(c.id, "flooded")
	}}
}

// R13: whatever a server repeats ten thousand times a second, its own calls are answered
// meanwhile, and nothing grows.
func TestR13Floods(t *testing.T) {
	for name := range floods {
		t.Run(name, func(t *testing.T) {
			c := found(t, "flood")
			gen := c.row().Generation
			over := make(chan messages.Outcome, 1)
			var heard atomic.Int64
			go func() {
				over <- c.try("rogue/read", nonce("%s", name), func(m *messages.CallTool) {
					m.OnProgress = func(json.RawMessage) { heard.Add(1) }
				})
			}()
			n := 0
			for done := false; !done; n++ {
				select {
				case o := <-over:
					if done = true; o.Kind != messages.OK || o.Text() != "flooded" {
						t.Errorf("the call that brought it: %s %s", o.Kind, o.Code)
					}
				default:
					c.mustCall("rogue/read", `{}`)
					time.Sleep(10 * time.Millisecond) // else the history of events fills up, which is not what is looked at
				}
			}
			if n < 3 {
				t.Errorf("%d calls were answered meanwhile", n)
			}
			if (name == "progress") != (heard.Load() > 0) {
				t.Errorf("%d reports", heard.Load())
			}
			c.sameProcess(gen)
		})
	}
}

// R09: a storm of list_changed costs at most one listing a second, and the last word
// counts.
func TestR09ListChangedStorm(t *testing.T) {
	c := found(t, "storm")
	c.mustCall("rogue/read", `{"n":1}`)
	c.eventually("the tool that came last", func() bool { _, ok := c.b.Catalogue().Lookup("rogue/last"); return ok })
	c.mustCall("rogue/last", `{}`)
	lists := c.asked("tools/list")
	for i := 1; i < len(lists); i++ {
		// They are written down when they come: two may be closer than they were sent.
		if gap := lists[i].at.Sub(lists[i-1].at); gap < 700*time.Millisecond {
			t.Errorf("%s between listing %d and the next", gap, i)
		}
	}
	if most := int(floodTime/time.Second) + 3; len(lists) > most || len(lists) < 2 {
		t.Errorf("%d listings, want at most %d", len(lists), most)
	}
}

func init() {
	var last atomic.Bool
	modes["storm"] = mode{
		list: func(r *rogue, id, _ string) {
			tools := plainTools
			if last.Load() {
				tools += `,{"name":"last","description":"d","inputSchema":{"type":"object"}}`
			}
			r.result(id, `{"tools":[`+tools+`]}`)
		},
		call: func(r *rogue, c call) {
			if c.N == 1 {
				r.flood(floods["list_changed"], 10_000, floodTime)
				last.Store(true)
				r.line(floods["list_changed"])
			}
			r.text(c.id, "done")
		},
	}
	stderr := func(f func()) mode {
		return mode{call: func(r *rogue, c call) {
			if c.N == 1 {
				f()
			}
			r.text(c.id, "done")
		}}
	}
	block := strings.Repeat("x", 1<<20)
	modes["stderr lines"] = stderr(func() {
		lines := []byte(strings.Repeat(strings.Repeat("stderr ", 20)+"\n", 7500)) // a good MiB
		for range 300 {
			_, _ = os.Stderr.Write(lines)
		}
		_, _ = os.Stderr.WriteString("the last words\n")
	})
	modes["stderr without newline"] = stderr(func() {
		for range 1024 { // 1 GiB in one line
			_, _ = os.Stderr.WriteString(block)
		}
		_, _ = os.Stderr.WriteString("\nthe last words\n")
	})
	modes["stderr first"] = mode{
		start: func(*rogue) { _, _ = os.Stderr.WriteString(strings.Repeat("starting\n", 256<<10/9)) },
		call: func(r *rogue, c call) {
			_, _ = os.Stderr.WriteString(block + "\n")
			r.text(c.id, "done")
		},
	}
}

// S06: a flood on stderr is drained, bounded, and its end is kept.
func TestS06StderrFlood(t *testing.T) {
	for _, name := range []string{"stderr lines", "stderr without newline"} {
		t.Run(name, func(t *testing.T) {
			c := found(t, name)
			gen := c.row().Generation
			over := make(chan messages.Outcome, 1)
			go func() { over <- c.try("rogue/read", `{"n":1}`) }()
			c.mustCall("rogue/read", `{}`) // is answered meanwhile
			if o := <-over; o.Kind != messages.OK {
				t.Errorf("%s %s", o.Kind, o.Code)
			}
			c.sameProcess(gen)
			if err := c.b.Operate(harness.Context(t), messages.VerbRestart, "rogue"); err != nil {
				t.Fatal(err)
			}
			c.eventually("the end of the process", func() bool { return c.row().LastExit != nil && c.row().Generation > gen })
			tail := c.row().LastExit.StderrTail
			if len(tail) == 0 || !strings.Contains(strings.Join(tail, "\n"), "the last words") {
				t.Errorf("%d lines are kept, and not the last", len(tail))
			}
			size := 0
			for _, l := range c.b.Logs("rogue", 0) {
				size += len(l.Text)
			}
			if size > 16<<20 {
				t.Errorf("%d MiB of it are remembered", size>>20)
			}
		})
	}
}

// B21: a server that writes a lot to stderr, before the handshake and before each answer,
// is never blocked by that.
func TestB21StderrIsRead(t *testing.T) {
	c := found(t, "stderr first")
	gen := c.row().Generation
	for range 10 {
		c.mustCall("rogue/read", `{}`)
	}
	c.sameProcess(gen)
}

func init() {
	modes["big"] = mode{call: func(r *rogue, c call) { r.result(c.id, textResult(strings.Repeat("x", c.N))) }}
	modes["slow"] = mode{call: func(r *rogue, c call) {
		for !r.told("go on") {
			time.Sleep(5 * time.Millisecond)
		}
		r.text(c.id, "done")
	}}
}

// S05: a hundred results of 8 MiB do not stand in memory side by side: what their callers
// have not taken counts, new calls are refused, and all is well when they have.
func TestS05ManyLargeResults(t *testing.T) {
	c := found(t, "big", harness.M{"limits": harness.M{"result_bytes": "10MiB", "queue": 256}})
	keep := func(m *messages.CallTool) { m.Keeps = true }
	// Eight callers that do not read: they hold what they got.
	var slow []messages.Outcome
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for range 100 {
		wg.Go(func() {
			o := c.try("rogue/read", fmt.Sprint(`{"n":`, 8<<20, `}`), keep, within(15*time.Second))
			o.Result = nil // the bridge does not know, and counts it until it is delivered
			mu.Lock()
			defer mu.Unlock()
			switch {
			case o.Kind == messages.OK:
				slow = append(slow, o)
			case o.Code == messages.CodeOverloaded || o.Kind == messages.NotSent && o.Code == messages.CodeExpired:
				refused++
			default:
				t.Errorf("%s %s %s", o.Kind, o.Code, o.Message)
			}
		})
	}
	wg.Wait()
	if len(slow) == 0 || len(slow) > 12 {
		t.Errorf("%d results were read while nobody took them", len(slow))
	}
	if refused+len(slow) != 100 {
		t.Errorf("%d refused, %d read", refused, len(slow))
	}
	o := c.want(messages.Rejected, messages.CodeOverloaded, "rogue/read", `{"n":1}`)
	if o.Sent() || !o.SafeToRetry() || o.RetryAfter <= 0 {
		t.Errorf("%+v", o)
	}
	for _, s := range slow {
		c.b.Delivered(s.CallID)
	}
	// Callers that read: all hundred get theirs.
	work := make(chan struct{}, 100)
	for range 100 {
		work <- struct{}{}
	}
	close(work)
	for range 4 {
		wg.Go(func() {
			for range work {
				if o := c.try("rogue/read", fmt.Sprint(`{"n":`, 8<<20, `}`)); o.Kind != messages.OK || len(o.Result) < 8<<20 {
					t.Errorf("%s %s %d", o.Kind, o.Code, len(o.Result))
				}
			}
		})
	}
	wg.Wait()
}

// S07: of ten thousand calls on one lane those that fit its queue are served, and the
// others refused at once.
func TestS07TenThousandCalls(t *testing.T) {
	c := found(t, "slow")
	c.calm += 16 << 20 // the history of events is full now, and stays so
	var wg sync.WaitGroup
	var ok, refused, other atomic.Int64
	for range 10_000 {
		wg.Go(func() {
			switch o := c.try("rogue/write", `{}`, func(m *messages.CallTool) { m.Client = "crowd" }); {
			case o.Kind == messages.OK:
				ok.Add(1)
			case o.Kind == messages.Rejected && o.Code == messages.CodeOverloaded && o.RetryAfter > 0:
				refused.Add(1)
			default:
				other.Add(1)
			}
		})
	}
	c.eventually("the refusals", func() bool { return refused.Load() >= 10_000-257 })
	if ok.Load() != 0 {
		t.Errorf("%d were answered already", ok.Load())
	}
	c.tell("go on")
	wg.Wait()
	if ok.Load() != 257 || refused.Load() != 10_000-257 || other.Load() != 0 {
		t.Errorf("%d ok, %d refused, %d other", ok.Load(), refused.Load(), other.Load())
	}
}
