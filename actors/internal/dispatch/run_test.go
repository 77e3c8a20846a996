package dispatch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

func TestReplies(t *testing.T) {
	result := func(s string) messages.Reply {
		return messages.Reply{Kind: messages.ReplyResult, Raw: json.RawMessage(s)}
	}
	for _, tc := range []struct {
		name  string
		reply messages.Reply
		kind  messages.OutcomeKind
		code  messages.Code
	}{
		{"result", result(`{"content":[],"isError":false}`), messages.OK, ""},
		{"tool says error", result(`{"content":[],"isError":true}`), messages.ToolError, messages.CodeToolError},
		{"rpc error", messages.Reply{Kind: messages.ReplyError, Raw: json.RawMessage(`{"code":-32602,"message":"no"}`)}, messages.ToolError, messages.CodeToolError},
		{"too large", messages.Reply{Kind: messages.ReplyTooLarge, Err: "33 MB"}, messages.ToolError, messages.CodeResultTooLarge},
		{"no answer at all", messages.Reply{Kind: messages.ReplyProtocol, Err: "neither"}, messages.OutcomeUnknown, messages.CodeProtocolError},
		{"lost", messages.Reply{Kind: messages.ReplyLost, Err: "eof", Proven: true}, messages.OutcomeUnknown, messages.CodeConnectionLost},
		{"unheard of", messages.Reply{Kind: 99}, messages.OutcomeUnknown, messages.CodeInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := ready(t, nil)
			h.pass(time.Second)
			h.call("a", "write")
			h.pass(2 * time.Second)
			h.done("a", tc.reply)
			o := h.want("a", tc.kind, tc.code)
			if o.Attempt != 1 || o.Generation != 1 || o.Ran != 2*time.Second || o.Queued != 0 {
				t.Errorf("%+v", o)
			}
			if got := string(o.Result) + string(o.RPCError); got != string(tc.reply.Raw) {
				t.Errorf("bytes changed: %s", got)
			}
			if tc.kind == messages.OutcomeUnknown && (o.SafeToRetry() || o.Hint == "") {
				t.Errorf("a lost side effect: %+v", o)
			}
			h.down(1, true)
			h.wantIdle()
		})
	}
}

var lostReply = messages.Reply{Kind: messages.ReplyLost, Err: "eof", Proven: true}

// Only what the operator declared harmless is repeated, once.
func TestRetry(t *testing.T) {
	for _, tc := range []struct {
		tool  string
		retry bool
	}{{"read", true}, {"put", true}, {"hint", false}, {"write", false}} {
		for _, reply := range []messages.Reply{lostReply, {Kind: messages.ReplyProtocol, Err: "odd"}} {
			t.Run(fmt.Sprint(tc.tool, " ", reply.Kind), func(t *testing.T) {
				h := ready(t, nil)
				h.call("a", tc.tool)
				h.done("a", reply)
				code := messages.CodeProtocolError
				if reply.Kind == messages.ReplyLost {
					code = messages.CodeConnectionLost
					h.down(1, true)
					h.up(2)
				}
				if !tc.retry {
					h.want("a", messages.OutcomeUnknown, code)
					h.wantStarted("a#1@1")
					h.wantIdle()
					return
				}
				h.wantOpen("a")
				if h.last("a").Attempt != 2 || h.saw(messages.EventCallRequeued, "a") != 1 {
					t.Fatalf("handed out %v", h.started())
				}
				if h.execs[0].Boundary == h.execs[1].Boundary {
					t.Error("two attempts share a boundary")
				}
				h.done("a", reply)
				h.down(2, true)
				o := h.want("a", messages.OutcomeUnknown, code)
				if o.Attempt != 2 || !o.SafeToRetry() {
					t.Errorf("%+v", o)
				}
				h.wantIdle()
			})
		}
	}
}

// A write that failed with nothing written proves as much as a boundary that was not
// passed: a side effect is handed out again, and otherwise it was not sent.
func TestUnsent(t *testing.T) {
	unsent := messages.Reply{Kind: messages.ReplyUnsent, Err: "the server closed its stdin"}
	t.Run("goes to the next incarnation", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.enter("a")
		h.done("a", unsent)
		h.down(1, true)
		h.up(2)
		h.wantOpen("a")
		h.done("a", okReply)
		if o := h.want("a", messages.OK, ""); o.Generation != 2 {
			t.Errorf("%+v", o)
		}
		h.wantIdle()
	})
	t.Run("is not sent where there is none", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.enter("a")
		h.state(messages.StateStopping, "stopped by the operator")
		h.done("a", unsent)
		h.want("a", messages.NotSent, messages.CodeUnavailable)
		h.down(1, true)
		h.wantIdle()
	})
	t.Run("opens the lane after the deadline", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.enter("a")
		h.pass(time.Hour)
		h.want("a", messages.OutcomeUnknown, messages.CodeTimeout)
		h.done("a", unsent)
		h.wantIdle()
	})
}

func TestNoRetry(t *testing.T) {
	t.Run("after the deadline", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "read", timeout(time.Second))
		h.enter("a")
		h.now = h.now.Add(time.Second) // the reply is here before the tick
		h.done("a", lostReply)
		h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
	})
	t.Run("of a cancelled call", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "read")
		h.enter("a")
		h.step(messages.Cancel{CallID: "a"})
		h.done("a", lostReply)
		h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
	})
	t.Run("of a server that does not come back", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "read")
		h.enter("a")
		h.state(messages.StateStopping, "")
		h.done("a", lostReply)
		h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
	})
}

// Once an attempt may have left, no later one makes the call not_sent again.
func TestRetryThatIsNotSent(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*harness)
		code messages.Code
	}{
		"expired":     {func(h *harness) { h.pass(time.Minute) }, messages.CodeTimeout},
		"cancelled":   {func(h *harness) { h.step(messages.Cancel{CallID: "a"}) }, messages.CodeCancelled},
		"quarantined": {func(h *harness) { h.state(messages.StateQuarantined, "exit status 2") }, messages.CodeConnectionLost},
		"drained":     {func(h *harness) { h.step(messages.DrainAll{}) }, messages.CodeConnectionLost},
		"voided":      {func(h *harness) { h.up(2); h.step(messages.Cancel{CallID: "a"}) }, messages.CodeCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			h := ready(t, nil)
			h.call("a", "read")
			h.done("a", lostReply)
			h.down(1, true)
			tc.end(h)
			if o := h.want("a", messages.OutcomeUnknown, tc.code); !o.SafeToRetry() || !o.Sent() || strings.HasSuffix(o.Hint, "; ") {
				t.Errorf("%+v", o)
			}
		})
	}
}

// An answer that is here counts, even when the step comes after the deadline.
func TestAnswerBeforeTheTick(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "write", timeout(time.Second))
	h.enter("a")
	h.now = h.now.Add(2 * time.Second)
	h.done("a", okReply)
	h.want("a", messages.OK, "")
	h.wantIdle()
}

func TestNotEntered(t *testing.T) {
	refusal := messages.Reply{Kind: messages.ReplyNotEntered, Err: "connection refused"}
	t.Run("backs off while the session lives", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write", timeout(5*time.Second))
		h.call("b", "write")
		h.done("a", refusal)
		h.wantStarted("a#1@1", "a#2@1") // once more at once
		var gaps []time.Duration
		for h.settled["a"].CallID == "" {
			n, before := len(h.execs), h.now
			h.done("a", refusal)
			for len(h.execs) == n && h.settled["a"].CallID == "" {
				h.pass(10 * time.Millisecond)
			}
			gaps = append(gaps, h.now.Sub(before))
		}
		want := []time.Duration{100, 200, 400, 800, 1600, 1900} // the last one ends with the deadline
		for i := range want {
			want[i] *= time.Millisecond
		}
		if d := cmp.Diff(want, gaps); d != "" {
			t.Errorf("gaps:\n%s", d)
		}
		o := h.want("a", messages.NotSent, messages.CodeUnavailable)
		if !strings.Contains(o.Message, "connection refused") {
			t.Error(o.Message)
		}
		h.wantOpen("b")
		if h.last("b").Attempt != 1 {
			t.Error("the next in line did not start")
		}
	})
	t.Run("a new session ends the wait", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.done("a", refusal)
		h.done("a", refusal)
		h.down(1, true)
		h.up(2)
		h.wantStarted("a#1@1", "a#2@1", "a#3@2")
		h.pass(time.Minute - 1)
		h.done("a", okReply)
		h.want("a", messages.OK, "")
		h.wantIdle()
	})
	t.Run("waits for the next session when this one is lost", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.call("b", "write")
		h.step(messages.SessionLost{Key: fs, Gen: 1})
		h.done("a", refusal)
		h.wantStarted("a#1@1")
		h.down(1, true)
		h.up(2)
		h.wantStarted("a#1@1", "a#2@2") // ahead of b
		if n := h.calls()["b"].Position; n != 1 {
			t.Error(n)
		}
	})
	t.Run("cancelled meanwhile", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.step(messages.Cancel{CallID: "a"})
		h.want("a", messages.NotSent, messages.CodeCancelled)
		if h.last("a").Boundary.Enter() {
			t.Fatal("a call that was not sent can be sent")
		}
		if h.calls()["a"].State != messages.CallFenced {
			t.Error("the place is kept until the worker is back")
		}
		h.done("a", refusal)
		h.wantIdle()
	})
	t.Run("but it was entered", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.enter("a")
		h.done("a", refusal) // a worker that lies is not believed
		h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
	})
	t.Run("of a stopped server", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.state(messages.StateStopped, "")
		h.done("a", refusal)
		h.want("a", messages.NotSent, messages.CodeUnavailable)
		h.wantIdle()
	})
}

func TestDeadlineHits(t *testing.T) {
	t.Run("in the queue", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.call("b", "write", timeout(time.Second))
		h.pass(time.Second)
		if o := h.want("b", messages.NotSent, messages.CodeExpired); o.Queued != time.Second || o.Attempt != 0 {
			t.Errorf("%+v", o)
		}
	})
	t.Run("before a byte left", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write", timeout(time.Second))
		h.pass(time.Second)
		h.want("a", messages.NotSent, messages.CodeExpired)
		if h.last("a").Boundary.Enter() {
			t.Fatal("a call that was not sent can be sent")
		}
		h.call("b", "write")
		h.wantStarted("a#1@1") // the place is not free yet
		h.done("a", messages.Reply{Kind: messages.ReplyNotEntered})
		h.wantStarted("a#1@1", "b#1@1")
		if h.saw(messages.EventLaneHeld, "") != 0 {
			t.Error("nothing holds the lane for the server's sake")
		}
	})
	t.Run("after a byte may have left", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write", timeout(time.Second))
		h.enter("a")
		h.pass(time.Second)
		o := h.want("a", messages.OutcomeUnknown, messages.CodeTimeout)
		if !strings.Contains(o.Message, "1s") || o.SafeToRetry() {
			t.Errorf("%+v", o)
		}
		want := []messages.CancelExec{{Key: fs, Gen: 1, CallID: "a", Attempt: 1, Reason: "deadline exceeded"}}
		if d := cmp.Diff(want, h.cancels); d != "" {
			t.Error(d)
		}
		h.call("b", "write")
		h.wantStarted("a#1@1")
		h.done("a", okReply)
		h.wantStarted("a#1@1", "b#1@1")
		if h.saw(messages.EventLaneHeld, "a") != 1 || h.saw(messages.EventReplyLate, "a") != 1 || h.saw(messages.EventLaneReleased, "a") != 1 {
			t.Errorf("events: %v", h.events)
		}
	})
}

func TestCancel(t *testing.T) {
	t.Run("unknown", func(t *testing.T) {
		h := ready(t, nil)
		found := make(chan bool, 1)
		h.step(messages.Cancel{CallID: "x", Found: found})
		if <-found {
			t.Error("found a call that is not there")
		}
	})
	t.Run("queued", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.call("b", "write")
		found := make(chan bool, 1)
		h.step(messages.Cancel{CallID: "b", Found: found})
		h.want("b", messages.NotSent, messages.CodeCancelled)
		if !<-found || h.saw(messages.EventCallCancel, "b") != 1 {
			t.Error("not found, or not told")
		}
	})
	t.Run("the answer still counts", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.enter("a")
		h.step(messages.Cancel{CallID: "a"})
		h.step(messages.Cancel{CallID: "a"})
		h.wantOpen("a")
		if len(h.cancels) != 1 {
			t.Errorf("the server was told %d times", len(h.cancels))
		}
		h.done("a", okReply)
		h.want("a", messages.OK, "")
		h.wantIdle()
	})
	t.Run("no answer", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.enter("a")
		h.step(messages.Cancel{CallID: "a"})
		h.pass(time.Minute)
		h.want("a", messages.OutcomeUnknown, messages.CodeCancelled)
		if len(h.cancels) != 1 || h.calls()["a"].State != messages.CallFenced {
			t.Errorf("cancels %v, calls %v", h.cancels, h.calls())
		}
	})
	t.Run("the caller left", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.enter("a")
		h.step(messages.Cancel{CallID: "a"})
		h.step(messages.Cancel{CallID: "a", Left: true})
		h.want("a", messages.OutcomeUnknown, messages.CodeCancelled)
		if len(h.cancels) != 1 || h.saw(messages.EventLaneHeld, "a") != 1 {
			t.Error("not fenced, or told twice")
		}
		h.step(messages.Cancel{CallID: "a", Left: true})
		h.done("a", okReply)
		h.wantIdle()
	})
}

func TestStaleRepliesAreNobodys(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "read")
	for _, m := range []messages.CallDone{
		{Key: fs, Gen: 2, CallID: "a", Attempt: 1, Reply: okReply},
		{Key: fs, Gen: 1, CallID: "a", Attempt: 2, Reply: okReply},
		{Key: messages.Key{Server: "docs"}, Gen: 1, CallID: "a", Attempt: 1, Reply: okReply},
		{Key: fs, Gen: 1, CallID: "b", Attempt: 1, Reply: okReply},
	} {
		h.step(m)
	}
	h.wantOpen("a")
	h.done("a", okReply)
	h.done("a", okReply)
	h.want("a", messages.OK, "")
}

func TestTimes(t *testing.T) {
	h := ready(t, nil)
	h.call("run", "write")
	h.call("a", "put")
	h.pass(time.Second)
	h.done("run", okReply)
	h.pass(2 * time.Second)
	h.done("a", lostReply)
	h.pass(3 * time.Second)
	h.down(1, true)
	h.up(2)
	h.pass(4 * time.Second)
	h.done("a", okReply)
	o := h.want("a", messages.OK, "")
	if o.Queued != 4*time.Second || o.Ran != 6*time.Second || o.Generation != 2 || o.Attempt != 2 {
		t.Errorf("queued %v ran %v generation %d attempt %d", o.Queued, o.Ran, o.Generation, o.Attempt)
	}
	e := h.events[len(h.events)-1]
	if e.Type != messages.EventCallSettled || e.QueuedMS != 4000 || e.RanMS != 6000 || e.Tool != "mcp__fs__put" || e.Effect != "idempotent" {
		t.Errorf("%+v", e)
	}
}
