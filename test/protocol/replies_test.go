package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

func init() {
	modes["replies"] = mode{call: func(r *rogue, c call) {
		id, _ := strconv.ParseInt(c.id, 10, 64)
		good, wrong := textResult("done "+c.nonce), textResult("WRONG")
		switch c.nonce {
		case "twice":
			r.result(c.id, good)
			r.result(c.id, wrong)
		case "wrong id first":
			r.result(fmt.Sprint(id+1000), wrong)
			r.result(`"nobody"`, wrong)
			r.result("-1", wrong)
			r.result("1", wrong) // one of the handshake
			r.result(c.id, good)
		case "guessed ids": // of calls that are still to come
			for n := range int64(50) {
				r.result(fmt.Sprint(id+1+n), wrong)
			}
			r.result(c.id, good)
		case "id as text":
			r.result(strconv.Quote(c.id), good)
		case "id with a fraction":
			r.result(c.id+".0", good)
		case "result and error null":
			r.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":null,"result":` + good + `}`)
		case "late":
			time.Sleep(time.Second)
			r.result(c.id, wrong)
		case "late progress":
			r.result(c.id, good)
			for range 100 {
				r.line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + c.id + `,"progress":1}}`)
			}
		case "progress before":
			for n := range 100 {
				r.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, c.id, n))
			}
			r.result(c.id, good)
		case "neither":
			r.line(`{"jsonrpc":"2.0","id":` + c.id + `}`)
		case "both":
			r.line(`{"jsonrpc":"2.0","id":` + c.id + `,"result":` + good + `,"error":{"code":1,"message":"m"}}`)
		case "a bare result":
			r.result(c.id, `"done"`)
		default:
			r.result(c.id, good)
		}
	}}
}

// R06, R07: an answer that nobody waits for is dropped, whichever way it is wrong, and the
// calls beside it and after it get their own.
func TestR06OddReplies(t *testing.T) {
	c := found(t, "replies")
	gen := c.row().Generation
	for _, name := range []string{"twice", "wrong id first", "guessed ids", "id as text", "id with a fraction", "result and error null", "late progress", "progress before"} {
		for i := range 3 {
			if o := c.mustCall("rogue/write", nonce("%s", name)); o.Text() != "done "+name {
				t.Errorf("%s, call %d: %q", name, i, o.Text())
			}
		}
		if n := c.begun(name); n != 3 {
			t.Errorf("%s: begun %d times of 3", name, n)
		}
	}
	for name, want := range map[string]messages.OutcomeKind{"neither": messages.OutcomeUnknown, "a bare result": messages.OutcomeUnknown, "both": messages.ToolError} {
		if o := c.try("rogue/write", nonce("%s", name)); o.Kind != want {
			t.Errorf("%s: %s %s", name, o.Kind, o.Code)
		}
		if o := c.mustCall("rogue/write", nonce("after")); o.Text() != "done after" {
			t.Errorf("after %s: %q", name, o.Text())
		}
	}
	c.sameProcess(gen)
}

// R07: what comes after the outcome changes nothing but the lane.
func TestR07LateMessages(t *testing.T) {
	c := found(t, "replies")
	gen := c.row().Generation
	late := make(chan string, 10)
	stop := c.b.Subscribe(func(e messages.Event) {
		if e.Type == messages.EventReplyLate {
			late <- e.CallID
		}
	})
	defer stop()
	for _, tool := range []string{"rogue/write", "rogue/read"} {
		o := c.want(messages.OutcomeUnknown, messages.CodeTimeout, tool, nonce("late"), within(100*time.Millisecond))
		// The lane of a side effect opens with the late answer, and only then.
		if next := c.mustCall(tool, nonce("next")); next.Text() != "done next" {
			t.Errorf("%s: %q", tool, next.Text())
		}
		select {
		case id := <-late:
			if id != o.CallID {
				t.Errorf("late: %s, want %s", id, o.CallID)
			}
		case <-time.After(harness.Patience):
			t.Errorf("%s: the late answer was not counted", tool)
		}
	}
	c.sameProcess(gen)
}

// B32: a call that was cancelled costs the server nothing, and its late answer nobody.
func TestB32CancelKeepsTheServer(t *testing.T) {
	c := found(t, "replies")
	gen, pid := c.row().Generation, c.row().PID
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(200*time.Millisecond, cancel)
	o := c.b.Call(ctx, messages.CallTool{Tool: "rogue/read", Args: json.RawMessage(nonce("late"))})
	if o.Kind != messages.OutcomeUnknown || o.Code != messages.CodeCancelled {
		t.Errorf("%s %s", o.Kind, o.Code)
	}
	for i := range 10 {
		if o := c.mustCall("rogue/read", nonce("n%d", i)); o.Text() != fmt.Sprintf("done n%d", i) {
			t.Errorf("%q", o.Text())
		}
		time.Sleep(100 * time.Millisecond) // the late answer comes in between
	}
	if c.sameProcess(gen); c.row().PID != pid {
		t.Error("another process")
	}
}

// B31: the server hears of a call that is not wanted any more once, by the id that it
// knows; and never of initialize.
func TestB31CancelledIsToldOnce(t *testing.T) {
	c := found(t, "never")
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(200*time.Millisecond, cancel)
	_ = c.b.Call(ctx, messages.CallTool{Tool: "rogue/read", Args: json.RawMessage(nonce("left"))})
	c.want(messages.OutcomeUnknown, messages.CodeTimeout, "rogue/read", nonce("deadline"), within(200*time.Millisecond))
	c.eventually("two cancellations", func() bool { return len(c.asked("notifications/cancelled")) >= 2 })
	c.mustCall("neighbour/read", `{}`)
	told := map[string]int{}
	for _, a := range c.asked("notifications/cancelled") {
		var m struct {
			Params struct {
				RequestID json.Number `json:"requestId"`
			} `json:"params"`
		}
		_ = json.Unmarshal([]byte(a.line), &m)
		told[m.Params.RequestID.String()]++
	}
	for _, a := range c.asked("tools/call") {
		var m struct{ ID json.Number }
		_ = json.Unmarshal([]byte(a.line), &m)
		if told[m.ID.String()] != 1 {
			t.Errorf("request %s was cancelled %d times", m.ID, told[m.ID.String()])
		}
		delete(told, m.ID.String())
	}
	if len(told) > 0 {
		t.Errorf("cancelled and never asked: %v", told)
	}
}

func init() {
	modes["never"] = mode{call: func(*rogue, call) {}}
	modes["mute"] = mode{begin: func(*rogue, string) {}, other: func(_ *rogue, method, _ string) bool { return true }}
	modes["mute in the middle"] = mode{other: func(r *rogue, method, id string) bool { r.raw(`{"jsonrpc":"2.0","id":` + id + `,"res`); return true }}
	modes["once"] = mode{call: func(r *rogue, c call) { os.Exit(7) }}
	modes["shuffled"] = mode{call: func(r *rogue, c call) {
		time.Sleep(time.Duration(50-10*c.N) * time.Millisecond)
		r.text(c.id, fmt.Sprint("done ", c.N))
	}}
	modes["resends"] = mode{call: func(r *rogue, c call) {
		switch c.nonce {
		case "input required":
			r.result(c.id, `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"x"}`)
		case "retry, please":
			r.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":{"code":-32603,"message":"try again","data":{"retryable":true,"retryAfter":0}}}`)
		case "version":
			r.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":{"code":-32022,"message":"unsupported version","data":{"supported":["2024-11-05"]}}}`)
		case "not initialized":
			r.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":{"code":-32002,"message":"server not initialized"}}`)
		case "broken":
			r.line(`{"jsonrpc":"2.0","id":` + c.id + `,"result":{"content":[}`)
		case "isError":
			r.result(c.id, `{"content":[{"type":"text","text":"transient failure, retry"}],"isError":true}`)
		case "task":
			r.result(c.id, `{"task":{"taskId":"t","status":"working","pollInterval":1}}`)
		case "list changed":
			r.line(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			r.text(c.id, "done")
		case "death":
			os.Exit(1)
		default:
			r.text(c.id, "done")
		}
	}}
}

// R16: whatever a server says that might make a client ask again, a side effect is begun
// once.
func TestR16Resends(t *testing.T) {
	for name, more := range map[string]harness.M{"plain": {}, "trusted": {"trust": "annotations"}} {
		t.Run(name, func(t *testing.T) {
			more["restart"] = harness.M{"burst": 0, "backoff": harness.M{"initial": "10ms", "max": "50ms"}}
			c := found(t, "resends", more)
			for _, n := range []string{"input required", "retry, please", "version", "not initialized", "broken", "isError", "task", "list changed", "death"} {
				o := c.try("rogue/write", nonce("%s", n))
				if o.Kind == messages.NotSent || o.Kind == messages.Rejected {
					t.Errorf("%s: %s %s", n, o.Kind, o.Code)
				}
				c.mustCall("rogue/write", nonce("after")) // the lane is free
				if got := c.begun(n); got != 1 {
					t.Errorf("%s: begun %d times", n, got)
				}
			}
		})
	}
}

// B36: a call that dies with its server is not repeated, whatever the server says of it.
func TestB36NoReplay(t *testing.T) {
	c := found(t, "once", harness.M{"trust": "annotations", "restart": harness.M{"burst": 0, "backoff": harness.M{"initial": "10ms", "max": "50ms"}}})
	for i := range 3 {
		name := fmt.Sprint("order", i)
		o := c.want(messages.OutcomeUnknown, messages.CodeConnectionLost, "rogue/write", nonce("%s", name))
		if o.SafeToRetry() || c.begun(name) != 1 {
			t.Errorf("begun %d times, safe %v", c.begun(name), o.SafeToRetry())
		}
	}
	c.eventually("the server is back", func() bool { return c.row().State == messages.StateReady })
}

// B35: answers in any order reach their own callers; where the operator says so the server
// sees one call at a time, and waiting does not count as running.
func TestB35ParallelCalls(t *testing.T) {
	for name, more := range map[string]harness.M{"side by side": {}, "one by one": {"limits": harness.M{"max_reads": 1}}} {
		t.Run(name, func(t *testing.T) {
			c := found(t, "shuffled", more)
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() {
					o := c.try("rogue/read", fmt.Sprintf(`{"n":%d}`, i))
					if o.Kind != messages.OK || o.Text() != fmt.Sprint("done ", i) {
						t.Errorf("%d: %s %q", i, o.Kind, o.Text())
					}
				})
			}
			wg.Wait()
		})
	}
}

// B18: a server that never answers initialize is ended with its budget, and the error says
// in which phase that was; half of a message is no answer.
func TestB18NeverInitialized(t *testing.T) {
	for _, name := range []string{"mute", "mute in the middle"} {
		t.Run(name, func(t *testing.T) {
			c := found(t, name, harness.M{"timeouts": harness.M{"start": "1s", "first_start": "1s"}})
			c.eventually("the start fails", func() bool { return c.row().LastExit != nil })
			x := c.row().LastExit
			if x.Stage != messages.StageHandshake || !strings.Contains(x.Reason, "budget 1s") {
				t.Errorf("%+v", x)
			}
			if n := len(c.asked("notifications/cancelled")); n > 0 {
				t.Errorf("%d cancellations of a handshake", n)
			}
		})
	}
}

func init() {
	modes["slow with progress"] = mode{call: func(r *rogue, c call) {
		for n := range 20 {
			if c.token != nil {
				r.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":20}}`, c.token, n))
			}
			time.Sleep(20 * time.Millisecond)
		}
		r.text(c.id, "done")
	}}
	modes["busy"] = mode{call: func(r *rogue, c call) {
		r.mu.Lock() // one message at a time: a ping waits behind it
		time.Sleep(1500 * time.Millisecond)
		r.mu.Unlock()
		r.text(c.id, "done")
	}}
}

// B29: the bridge asks for progress with a token of its own and passes it on; it is a sign
// of life and does not move the deadline.
func TestB29Progress(t *testing.T) {
	c := found(t, "slow with progress")
	var mu sync.Mutex
	var heard []string
	o := c.want(messages.OK, "", "rogue/read", `{}`, func(m *messages.CallTool) {
		m.OnProgress = func(p json.RawMessage) { mu.Lock(); heard = append(heard, string(p)); mu.Unlock() }
	})
	if len(heard) != 20 || !strings.Contains(heard[7], `"progress":7`) {
		t.Errorf("%d reports: %v", len(heard), heard)
	}
	if o.Ran <= 0 {
		t.Error("no time passed")
	}
	c.want(messages.OutcomeUnknown, messages.CodeTimeout, "rogue/write", `{}`, within(100*time.Millisecond))
}

// B34: a server that is busy with a call and cannot answer a ping is not dead.
func TestB34BusyIsNotDead(t *testing.T) {
	c := found(t, "busy", harness.M{"health": harness.M{"probe_every": "100ms", "failures": 2}})
	gen := c.row().Generation
	for range 2 {
		c.mustCall("rogue/write", `{}`)
	}
	c.sameProcess(gen)
}

func init() {
	modes["closes stdin"] = mode{inline: true, call: func(r *rogue, c call) {
		if c.nonce == "last" {
			r.stay.Store(true)
			_ = os.Stdin.Close()
		}
		r.text(c.id, "done")
	}}
}

// F07: a server that closed its stdin while it was idle has not taken a byte of the next
// call, which is not sent to it, and goes to its successor.
func TestF07ClosedStdin(t *testing.T) {
	c := found(t, "closes stdin", harness.M{"restart": harness.M{"backoff": harness.M{"initial": "10ms"}}})
	gen := c.row().Generation
	c.mustCall("rogue/write", nonce("last"))
	o := c.mustCall("rogue/write", nonce("next"))
	if o.Generation <= gen || c.begun("next") != 1 {
		t.Errorf("generation %d, begun %d times", o.Generation, c.begun("next"))
	}
}

// blocks holds what a bridge must not touch: B58 numbers, B59 unknown fields, B62 blocks.
const blocks = `{"_meta":{"example.org/z":1.0,"a":[9007199254740993,18446744073709551615,1e400,0.1000,-0]},"content":[{"type":"text","text":"one & <two> é é"},` +
	`{"type":"image","data":"aGVsbG8=","mimeType":"image/png"},{"type":"audio","data":"aGVsbG8gd29ybGQ=","mimeType":"audio/wav"},{"type":"resource_link","uri":"file:///a","name":"a"},` +
	`{"type":"resource","resource":{"uri":"file:///b","mimeType":"text/plain","text":"b"}},{"type":"resource","resource":{"uri":"file:///c","blob":"aGk="}},{"type":"future","depth":1e400,"z":{"y":1,"x":2}}],` +
	`"structuredContent":{"zebra":9007199254740993, "ant":1.50,"list":[18446744073709551615,-0,0.1000]},"isError":false,"vendor":{"b":[true],"a":null}}`

func init() {
	modes["blocks"] = mode{
		list: func(r *rogue, id, _ string) {
			r.result(id, `{"tools":[{"name":"read","title":"T","description":"d","inputSchema":{"type":"object","properties":{"n":{"default":9007199254740993}}},"outputSchema":{"type":"object","properties":{"x":{"default":1.50}}},`+
				`"icons":[{"src":"https://example.com/i.png"}],"execution":{"taskSupport":"forbidden"},"vendor":{"b":1.0,"a":2}},{"name":"strict","description":"d","inputSchema":{"type":"object"}}]}`)
		},
		call: func(r *rogue, c call) {
			switch {
			case c.name == "strict" && (len(c.args) == 0 || c.args[0] != '{'):
				r.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":{"code":-32602,"message":"arguments must be an object"}}`)
			case c.name == "strict":
				r.result(c.id, `{"content":[],"structuredContent":`+string(c.args)+`}`)
			default:
				r.result(c.id, blocks)
			}
		},
	}
}

// B57, B58, B59, B62: what a server and a client say to each other keeps its bytes.
func TestB57Arguments(t *testing.T) {
	c := found(t, "blocks")
	for _, args := range []string{``, `null`, `{}`, ` { } `} {
		o := c.mustCall("rogue/strict", args)
		if s := string(o.Result); !strings.Contains(s, `"structuredContent":{`) {
			t.Errorf("%q arrived as %s", args, s)
		}
	}
	for _, args := range []string{`[]`, `"x"`, `7`, `{`, `{} {}`} {
		before := len(c.asked("tools/call"))
		o := c.want(messages.Rejected, messages.CodeInvalidArguments, "rogue/strict", args)
		if o.Sent() || len(c.asked("tools/call")) != before {
			t.Errorf("%q was sent", args)
		}
	}
}

func TestB58Numbers(t *testing.T) {
	c := found(t, "blocks")
	args := `{"a":9007199254740993,"b":18446744073709551615,"c":1e400,"d":0.1000,"e":-0,"f":{"z":1.0,"a":[1E+2]}}`
	if o := c.mustCall("rogue/strict", args); !strings.Contains(string(o.Result), `"structuredContent":`+args) {
		t.Errorf("%s", o.Result)
	}
	if o := c.mustCall("rogue/read", `{}`); string(o.Result) != blocks {
		t.Errorf("%s", o.Result)
	}
}

func TestB59FieldsSurvive(t *testing.T) { fieldsTest(t) }
func TestB62BlocksSurvive(t *testing.T) { fieldsTest(t) }

func fieldsTest(t *testing.T) {
	c := found(t, "blocks")
	o := c.mustCall("rogue/read", `{}`)
	if string(o.Result) != blocks {
		t.Errorf("%s", o.Result)
	}
	for _, part := range []string{"one & <two>", "[image image/png", "[audio audio/wav", "[resource file:///a]", "[resource file:///b]", "[future]"} {
		if !strings.Contains(o.Text(), part) {
			t.Errorf("no %q in %q", part, o.Text())
		}
	}
	tool, ok := c.b.Catalogue().Lookup("rogue/read")
	for _, part := range []string{`"title":"T"`, `"default":9007199254740993`, `"default":1.50`, `"icons":[{"src":"https://example.com/i.png"}]`, `"taskSupport":"forbidden"`, `"vendor":{"b":1.0,"a":2}`} {
		if !ok || !strings.Contains(string(tool.Def.Raw), part) {
			t.Errorf("no %s in %s", part, tool.Def.Raw)
		}
	}
}
