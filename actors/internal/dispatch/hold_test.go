package dispatch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// bigReply is a result of n MiB.
func bigReply(n int) messages.Reply {
	return messages.Reply{Kind: messages.ReplyResult, Raw: json.RawMessage(`{"content":[],"x":"` + strings.Repeat("x", n<<20) + `"}`)}
}

// A server whose results nobody takes gets no more work than its share; one result is
// not too much, and what is taken makes room again.
func TestResultsThatWait(t *testing.T) {
	h := ready(t, func(l *messages.ServerLimits) { l.MaxReads, l.Queue, l.ResultBytes = 8, 100, 4<<20 }) // a share of 16 MiB
	for i := range 8 {
		h.call(fmt.Sprint("first", i), "read")
	}
	if n := len(h.started()); n != 8 {
		t.Fatalf("%d calls run", n)
	}
	for i := range 8 {
		h.done(fmt.Sprint("first", i), bigReply(4))
		if o := h.want(fmt.Sprint("first", i), messages.OK, ""); !o.Held {
			t.Fatal("the result is not counted")
		}
	}
	h.call("late", "read")
	if o := h.want("late", messages.Rejected, messages.CodeOverloaded); o.RetryAfter <= 0 || !strings.Contains(o.Message, "32 MiB") {
		t.Errorf("%+v", o)
	}
	for i := range 6 {
		h.step(messages.Delivered{CallID: fmt.Sprint("first", i)})
		h.step(messages.Delivered{CallID: fmt.Sprint("first", i)}) // said twice
	}
	// A little more than 8 MiB wait: there is room for one more of the usual size.
	h.call("one", "read")
	h.call("two", "read")
	h.wantOpen("one", "two")
	if calls := h.calls(); calls["one"].State != messages.CallRunning || calls["two"].State != messages.CallQueued {
		t.Fatalf("%+v", calls)
	}
	h.step(messages.Delivered{CallID: "first6"})
	if calls := h.calls(); calls["two"].State != messages.CallRunning {
		t.Fatalf("%+v", calls)
	}
	h.done("one", okReply)
	if o := h.want("one", messages.OK, ""); o.Held {
		t.Error("a small result is counted")
	}
	h.done("two", okReply)
	h.want("two", messages.OK, "")
	h.step(messages.Delivered{CallID: "first7"})
	if h.core.heldBytes != 0 || len(h.core.held) != 0 {
		t.Errorf("%d bytes are counted for ever", h.core.heldBytes)
	}
	h.wantIdle()
}

// A call for whose result there would be no room does not stand in line until its
// deadline where only the callers of others can make room: it is refused, as behind a
// server that is over its share.
func TestNoLineForRoom(t *testing.T) {
	h := ready(t, func(l *messages.ServerLimits) { l.MaxReads, l.Queue, l.ResultBytes = 8, 100, 4<<20 }) // a share of 16 MiB
	for i := range 3 {
		h.call(fmt.Sprint("first", i), "read")
		h.done(fmt.Sprint("first", i), bigReply(4)) // a little more than 4 MiB
		h.want(fmt.Sprint("first", i), messages.OK, "")
	}
	h.call("late", "read")
	if o := h.want("late", messages.Rejected, messages.CodeOverloaded); o.RetryAfter <= 0 || !strings.Contains(o.Message, "12 MiB") {
		t.Errorf("%+v", o)
	}
	h.step(messages.Delivered{CallID: "first0"})
	h.call("next", "read")
	h.done("next", okReply)
	h.want("next", messages.OK, "")
	h.wantIdle()
}

// Whatever its size has been, one call may always run.
func TestOneLargeResultAtATime(t *testing.T) {
	h := ready(t, func(l *messages.ServerLimits) { l.ResultBytes = 1 << 20 })
	h.call("a", "read")
	h.done("a", bigReply(40))
	h.want("a", messages.OK, "")
	h.step(messages.Delivered{CallID: "a"})
	h.call("b", "read")
	h.call("c", "read")
	h.wantStarted("a#1@1", "b#1@1")
	h.done("b", bigReply(40))
	h.want("b", messages.OK, "")
	h.wantStarted("a#1@1", "b#1@1") // 40 MiB wait
	h.step(messages.Delivered{CallID: "b"})
	h.wantStarted("a#1@1", "b#1@1", "c#1@1")
	h.done("c", okReply)
	h.wantIdle()
}

// A server that was removed and came back is another one.
func TestDeliveredAfterRemoval(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "read")
	h.done("a", bigReply(1))
	h.step(messages.ServerRemoved{Key: fs})
	h.ready(limits())
	h.step(messages.Delivered{CallID: "a"})
	h.step(messages.SessionUp{Key: fs, Gen: 2})
	h.call("b", "read")
	h.wantOpen("b")
	h.done("b", okReply)
}
