package dispatch

import (
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
)

func TestSessionDown(t *testing.T) {
	t.Run("not yet entered", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.call("b", "write")
		h.down(1, true)
		h.up(2)
		h.wantStarted("a#1@1", "a#2@2")
		if h.execs[0].Boundary.Enter() {
			t.Fatal("the old attempt can still be sent")
		}
		h.done("a", okReply)
		h.want("a", messages.OK, "")
	})
	t.Run("entered", func(t *testing.T) {
		h := ready(t, nil)
		h.call("w", "write")
		h.enter("w")
		h.down(1, true)
		h.want("w", messages.OutcomeUnknown, messages.CodeConnectionLost)
		h.wantIdle()
	})
	t.Run("entered read", func(t *testing.T) {
		h := ready(t, nil)
		h.call("r", "read")
		h.enter("r")
		h.down(1, true)
		h.wantOpen("r")
		h.up(2)
		h.enter("r")
		h.down(2, true)
		h.want("r", messages.OutcomeUnknown, messages.CodeConnectionLost)
	})
	t.Run("stale generations", func(t *testing.T) {
		h := ready(t, nil)
		h.down(1, true)
		h.up(3)
		h.call("a", "write")
		h.up(2)
		h.down(2, true)
		h.step(messages.SessionLost{Key: fs, Gen: 2})
		h.done("a", okReply)
		h.call("b", "write")
		h.wantStarted("a#1@3", "b#1@3")
		h.down(5, true) // a start that failed
		h.up(4)
		h.up(5)
		h.call("c", "write")
		h.wantStarted("a#1@3", "b#1@3")
		h.up(6)
	})
	t.Run("a newer session without the end of the old one", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "read")
		h.up(2)
		h.wantStarted("a#1@1", "a#2@2")
		h.done("a", okReply)
		h.wantIdle()
	})
}

func TestExpiredTellsWhatItWaitedFor(t *testing.T) {
	h := ready(t, nil)
	h.down(1, true)
	h.state(messages.StateBackoff, "exit status 2")
	h.call("a", "read", timeout(time.Second))
	h.pass(time.Second)
	if o := h.want("a", messages.NotSent, messages.CodeExpired); !strings.Contains(o.Message, "backoff: exit status 2") {
		t.Error(o.Message)
	}
}
