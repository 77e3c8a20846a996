package dispatch

import (
	"testing"
	"time"

	"mcpbridge/messages"
)

// leavings are the ways in which a first caller goes while its call runs.
var leavings = []struct {
	name string
	goes func(*harness)
	code messages.Code
}{
	{"cancelled", func(h *harness) { h.step(messages.Cancel{CallID: "a"}) }, messages.CodeCancelled},
	{"hung up", func(h *harness) { h.step(messages.Cancel{CallID: "a", Left: true}) }, messages.CodeCancelled},
	{"deadline", func(h *harness) { h.pass(2 * time.Second) }, messages.CodeTimeout},
}

// fresh is a key of which the journal knows nothing.
func fresh(m *messages.Submit) {
	m.Call.IdempotencyKey, m.PriorServer, m.PriorTool = "k", "fs", "write"
}

// carried is a call that was sent and whose caller has gone, with two that joined it.
func carried(t *testing.T, leave func(*harness), code messages.Code) *harness {
	t.Helper()
	h := journaled(t, nil)
	h.call("a", "write", fresh, timeout(2*time.Second))
	h.recorded("a", "")
	h.enter("a")
	h.call("b", "write", fresh)
	h.call("c", "write", fresh, timeout(10*time.Second))
	leave(h)
	h.want("a", messages.OutcomeUnknown, code)
	h.wantOpen("b", "c")
	if len(h.cancels) != 0 {
		t.Fatal("the server was told to stop what others wait for")
	}
	h.wantRecords() // in flight, and the journal says so
	return h
}

// Who joined gets what became of the work, whatever became of the first caller.
func TestFirstCallerLeaves(t *testing.T) {
	for _, l := range leavings {
		t.Run(l.name, func(t *testing.T) {
			t.Run("answered", func(t *testing.T) {
				h := carried(t, l.goes, l.code)
				h.call("d", "write", fresh) // joins like the others
				h.call("next", "write")
				h.pass(3 * time.Second)
				h.done("a", okReply)
				for _, id := range []string{"b", "c", "d"} {
					if o := h.wantShared(id, "a", messages.OK, ""); string(o.Result) != string(okReply.Raw) {
						t.Errorf("%s: %+v", id, o)
					}
				}
				h.wantRecords("a ok")
				h.call("e", "write", fresh) // the key gives the real outcome too
				h.wantShared("e", "a", messages.OK, "")
				h.recorded("next", "")
				h.wantStarted("a#1@1", "next#1@1")
				h.done("next", okReply)
				h.wantIdle()
			})
			t.Run("its server dies", func(t *testing.T) {
				h := carried(t, l.goes, l.code)
				h.down(1, true)
				h.wantShared("b", "a", messages.OutcomeUnknown, messages.CodeConnectionLost)
				h.wantShared("c", "a", messages.OutcomeUnknown, messages.CodeConnectionLost)
				h.wantRecords("a outcome_unknown/connection_lost")
				h.wantIdle()
			})
			t.Run("the others leave too", func(t *testing.T) {
				h := carried(t, l.goes, l.code)
				h.step(messages.Cancel{CallID: "b"})
				h.want("b", messages.OutcomeUnknown, messages.CodeCancelled)
				h.wantRecords()
				h.pass(10 * time.Second)
				h.want("c", messages.OutcomeUnknown, messages.CodeTimeout)
				if len(h.cancels) != 1 || h.cancels[0].CallID != "a" {
					t.Errorf("nobody waits any more, and the server was told %v", h.cancels)
				}
				h.wantRecords("a outcome_unknown/" + string(l.code))
				h.call("d", "write", fresh)
				h.wantShared("d", "a", messages.OutcomeUnknown, l.code)
				if h.calls()["a"].State != messages.CallFenced {
					t.Error("it gave up its place")
				}
				h.pass(30 * time.Second) // abandon_after counts from there
				if _, ok := h.servers[len(h.servers)-1].(messages.RecycleServer); !ok {
					t.Errorf("it was not abandoned: %v", h.servers)
				}
			})
			t.Run("the bridge is closed", func(t *testing.T) {
				h := carried(t, l.goes, l.code)
				h.take(h.core.Close(h.now))
				h.wantShared("b", "a", messages.OutcomeUnknown, messages.CodeConnectionLost)
				h.wantShared("c", "a", messages.OutcomeUnknown, messages.CodeConnectionLost)
			})
		})
	}
}

// Where the first caller leaves before its call was sent, the next one runs in its place,
// in its own time.
func TestFirstCallerLeavesBeforeItWasSent(t *testing.T) {
	for _, where := range []string{"queued", "recording"} {
		for _, l := range leavings {
			t.Run(where+"/"+l.name, func(t *testing.T) {
				h := journaled(t, nil)
				if where == "queued" {
					h.call("busy", "write")
					h.recorded("busy", "")
				}
				h.call("a", "write", fresh, timeout(2*time.Second))
				h.call("b", "write", fresh)
				h.call("c", "write", fresh)
				l.goes(h)
				code := messages.CodeCancelled
				if l.code == messages.CodeTimeout {
					code = messages.CodeExpired
				}
				h.want("a", messages.NotSent, code)
				h.wantOpen("b", "c")
				if where == "queued" {
					h.done("busy", okReply)
				}
				h.recorded("b", "")
				h.done("b", okReply)
				h.want("b", messages.OK, "")
				h.wantShared("c", "b", messages.OK, "")
				h.wantIdle()
			})
		}
	}
}

// The end of the bridge finds calls and those that joined them.
func TestCloseWithJoinedCalls(t *testing.T) {
	h := journaled(t, nil)
	h.call("a", "write", fresh)
	h.recorded("a", "")
	h.enter("a")
	h.call("b", "write", fresh)
	h.take(h.core.Close(h.now))
	h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
	h.wantShared("b", "a", messages.OutcomeUnknown, messages.CodeConnectionLost)
}
