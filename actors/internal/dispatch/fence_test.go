package dispatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

// fencedWrite has one side effect that timed out after it was sent, one second in.
func fencedWrite(t *testing.T, edit func(*messages.ServerLimits)) *harness {
	h := ready(t, edit)
	h.call("a", "write", timeout(time.Second))
	h.enter("a")
	h.pass(time.Second)
	h.want("a", messages.OutcomeUnknown, messages.CodeTimeout)
	return h
}

func remote(l *messages.ServerLimits) { l.Remote = true }
func serial(l *messages.ServerLimits) { l.Serial = true }

// recycled lists the generations whose end was asked for.
func (h *harness) recycled() (gens []uint64) {
	for _, m := range h.servers {
		if r, ok := m.(messages.RecycleServer); ok {
			gens = append(gens, r.Gen)
		}
	}
	return gens
}

func TestAbandonRecycles(t *testing.T) {
	h := fencedWrite(t, nil)
	h.call("b", "write")
	h.pass(30*time.Second - 1)
	if h.recycled() != nil {
		t.Fatal("recycled too early")
	}
	h.pass(1)
	if d := cmp.Diff([]messages.Message{messages.RecycleServer{Key: fs, Gen: 1, Reason: "call a of write got no answer and was abandoned"}}, h.servers); d != "" {
		t.Fatal(d)
	}
	h.pass(10 * time.Second)
	h.wantStarted("a#1@1")
	h.down(1, true)
	h.up(2)
	h.wantStarted("a#1@1", "b#1@2")
	if h.saw(messages.EventLaneReleased, "a") != 1 || len(h.recycled()) != 1 {
		t.Errorf("released %d times, recycled %v", h.saw(messages.EventLaneReleased, "a"), h.recycled())
	}
}

func TestRecycleLetsOthersFinish(t *testing.T) {
	h := fencedWrite(t, serial)
	h.pass(20 * time.Second)
	h.call("r1", "read")
	h.enter("r1")
	h.pass(10 * time.Second) // a is abandoned
	h.call("r2", "read")
	h.wantStarted("a#1@1", "r1#1@1") // nothing new is handed out
	if h.recycled() != nil {
		t.Fatal("a call in flight was cut short")
	}
	h.done("r1", okReply)
	h.want("r1", messages.OK, "")
	if len(h.recycled()) != 1 {
		t.Fatal("not recycled")
	}
	h.wantOpen("r2")
}

func TestAnswerBeforeTheRecycle(t *testing.T) {
	h := fencedWrite(t, serial)
	h.call("r1", "read")
	h.enter("r1")
	h.pass(30 * time.Second)
	h.call("r2", "read")
	h.done("a", okReply)
	h.wantStarted("a#1@1", "r1#1@1", "r2#1@1") // the reason is gone, and so is the recycling
	h.done("r1", okReply)
	h.done("r2", okReply)
	if h.recycled() != nil {
		t.Error("recycled for nothing")
	}
	h.wantIdle()
}

func TestProgressRestartsAbandon(t *testing.T) {
	alive := messages.CallProgress{Key: fs, Gen: 1, CallID: "a"}
	h := fencedWrite(t, nil)
	h.pass(20 * time.Second)
	h.step(alive)
	h.step(messages.CallProgress{Key: fs, Gen: 9, CallID: "a"})
	h.pass(29 * time.Second)
	if h.recycled() != nil {
		t.Fatal("recycled although it makes progress")
	}
	h.pass(time.Second)
	if h.recycled() == nil {
		t.Fatal("not recycled when the progress ended")
	}
}

func TestAbandonNever(t *testing.T) {
	for name, edit := range map[string]func(*messages.ServerLimits){"tool": nil, "server": func(l *messages.ServerLimits) { l.AbandonAfter = 0 }} {
		t.Run(name, func(t *testing.T) {
			h := ready(t, edit)
			tool := "write"
			if name == "tool" {
				tool = "long"
			}
			h.call("a", tool, timeout(time.Second))
			h.enter("a")
			h.pass(24 * time.Hour)
			if h.recycled() != nil {
				t.Fatal("abandoned all the same")
			}
			h.call("b", "write")
			h.wantStarted("a#1@1")
			h.done("a", okReply)
			h.wantStarted("a#1@1", "b#1@1")
		})
	}
}

func TestRemoteFenceIsReleasedWithoutProof(t *testing.T) {
	t.Run("after a time-out", func(t *testing.T) {
		h := fencedWrite(t, remote)
		h.call("b", "write")
		h.pass(30*time.Second - 1)
		h.wantStarted("a#1@1")
		h.pass(1)
		h.wantStarted("a#1@1", "b#1@1")
		if h.saw(messages.EventPossibleOverlap, "a") != 1 || h.recycled() != nil {
			t.Errorf("events %v, recycled %v", h.events, h.recycled())
		}
	})
	t.Run("after a lost exchange", func(t *testing.T) {
		h := ready(t, remote)
		h.call("a", "write")
		h.call("b", "write")
		h.done("a", messages.Reply{Kind: messages.ReplyLost, Err: "reset"})
		h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
		h.pass(29 * time.Second)
		h.wantStarted("a#1@1")
		h.pass(time.Second)
		h.wantStarted("a#1@1", "b#1@1")
		if h.saw(messages.EventPossibleOverlap, "a") != 1 {
			t.Error("no possible_overlap")
		}
	})
	t.Run("after a response without an answer", func(t *testing.T) {
		h := ready(t, remote)
		h.call("a", "write")
		h.call("b", "write")
		h.done("a", messages.Reply{Kind: messages.ReplyProtocol, Err: "HTTP 202"})
		h.want("a", messages.OutcomeUnknown, messages.CodeProtocolError)
		h.pass(29 * time.Second)
		h.wantStarted("a#1@1")
		h.pass(time.Second)
		h.wantStarted("a#1@1", "b#1@1")
		if h.saw(messages.EventPossibleOverlap, "a") != 1 {
			t.Error("no possible_overlap")
		}
	})
	t.Run("proven lost", func(t *testing.T) {
		h := ready(t, remote)
		h.call("a", "write")
		h.call("b", "write")
		h.done("a", messages.Reply{Kind: messages.ReplyLost, Err: "refused", Proven: true})
		h.wantStarted("a#1@1", "b#1@1")
	})
	t.Run("its session ends", func(t *testing.T) {
		h := fencedWrite(t, remote)
		h.call("b", "write")
		h.down(1, false)
		h.up(2)
		h.pass(29 * time.Second)
		h.wantStarted("a#1@1")
		h.step(messages.CallDone{Key: fs, Gen: 1, CallID: "a", Attempt: 1, Reply: messages.Reply{Kind: messages.ReplyLost}})
		h.wantStarted("a#1@1")
		h.pass(time.Second)
		h.wantStarted("a#1@1", "b#1@2")
	})
	t.Run("a read retries on the living session", func(t *testing.T) {
		h := ready(t, remote)
		h.call("a", "read")
		h.done("a", messages.Reply{Kind: messages.ReplyLost, Err: "reset"})
		h.wantStarted("a#1@1", "a#2@1")
	})
}

// The first attempt of a repeated write may still be worked on when the second is
// long done: what comes next waits, or its effect could be undone.
func TestGhostHoldsTheLane(t *testing.T) {
	lost := messages.Reply{Kind: messages.ReplyLost, Err: "reset"}
	haunted := func(t *testing.T) *harness {
		h := ready(t, remote)
		h.call("a", "put")
		h.call("b", "write")
		h.done("a", lost)
		h.wantStarted("a#1@1", "a#2@1")
		return h
	}
	released := func(t *testing.T, h *harness) {
		t.Helper()
		h.pass(20*time.Second - 1)
		h.wantStarted("a#1@1", "a#2@1")
		h.pass(1)
		h.wantStarted("a#1@1", "a#2@1", "b#1@1")
		if h.saw(messages.EventPossibleOverlap, "a") != 1 || h.saw(messages.EventLaneHeld, "a") != 1 {
			t.Errorf("events %v", h.events)
		}
		h.done("b", okReply)
		h.wantIdle()
	}
	t.Run("answered", func(t *testing.T) {
		h := haunted(t)
		h.pass(10 * time.Second)
		h.done("a", okReply)
		h.want("a", messages.OK, "")
		released(t, h)
	})
	t.Run("cancelled", func(t *testing.T) {
		h := haunted(t)
		h.pass(10 * time.Second)
		h.step(messages.Cancel{CallID: "a"})
		h.want("a", messages.OutcomeUnknown, messages.CodeCancelled)
		h.done("a", messages.Reply{Kind: messages.ReplyNotEntered})
		released(t, h)
	})
	t.Run("cancelled in the queue", func(t *testing.T) {
		h := ready(t, remote)
		h.call("a", "put")
		h.call("b", "write")
		h.step(messages.SessionLost{Key: fs, Gen: 1})
		h.done("a", lost)
		h.step(messages.Cancel{CallID: "a"})
		h.want("a", messages.OutcomeUnknown, messages.CodeCancelled)
		h.up(2)
		h.pass(30*time.Second - 1)
		h.wantStarted("a#1@1")
		h.pass(1)
		h.wantStarted("a#1@1", "b#1@2")
	})
	t.Run("never reached the second time", func(t *testing.T) {
		h := haunted(t)
		h.pass(10 * time.Second)
		h.done("a", messages.Reply{Kind: messages.ReplyLost, Err: "refused", Proven: true})
		h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
		released(t, h)
	})
	t.Run("outlived", func(t *testing.T) {
		h := haunted(t)
		h.pass(31 * time.Second)
		h.done("a", okReply)
		h.wantStarted("a#1@1", "a#2@1", "b#1@1")
		if h.saw(messages.EventPossibleOverlap, "a") != 1 {
			t.Error("no possible_overlap")
		}
	})
	t.Run("proven dead", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "put")
		h.call("b", "write")
		h.done("a", lost)
		h.down(1, true)
		h.up(2)
		h.done("a", okReply)
		h.wantStarted("a#1@1", "a#2@2", "b#1@2")
	})
}

// A stdio answer that got lost is fenced until the death of the process is proven.
func TestLostStdioSideEffectWaitsForProof(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "write")
	h.call("b", "write")
	h.done("a", messages.Reply{Kind: messages.ReplyLost, Err: "eof"})
	h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
	h.wantStarted("a#1@1")
	h.down(1, true)
	h.up(2)
	h.wantStarted("a#1@1", "b#1@2")
}

// A worker that fails alone must not close its server for ever.
func TestSuspicionPasses(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "read")
	h.call("b", "read")
	h.call("c", "read")
	h.done("a", messages.Reply{Kind: messages.ReplyLost, Err: "bug in the bridge"})
	h.pass(5*time.Second - 1)
	h.wantStarted("a#1@1", "b#1@1")
	h.pass(1)
	h.wantStarted("a#1@1", "b#1@1", "a#2@1")
	h.done("b", messages.Reply{Kind: messages.ReplyLost, Err: "eof"})
	h.step(messages.SessionLost{Key: fs, Gen: 1})
	h.pass(30 * time.Second)
	h.wantStarted("a#1@1", "b#1@1", "a#2@1")
}

func TestUnprovenDeathHoldsTheLane(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "write")
	h.enter("a")
	h.call("b", "write")
	h.down(1, false)
	h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
	h.up(2)
	h.pass(29 * time.Second)
	h.wantStarted("a#1@1")
	h.pass(time.Second)
	h.wantStarted("a#1@1", "b#1@2")
	if h.saw(messages.EventPossibleOverlap, "a") != 1 {
		t.Error("no possible_overlap")
	}
}

func TestForeverFenceEndsWhenTheServerIsStopped(t *testing.T) {
	for name, end := range map[string]func(*harness){
		"stopped": func(h *harness) { h.down(1, false); h.state(messages.StateStopped, "") },
		"stopped before down": func(h *harness) {
			h.state(messages.StateStopped, "")
			h.down(1, false)
		},
		"removed": func(h *harness) { h.step(messages.ServerRemoved{Key: fs}); h.down(1, false) },
	} {
		t.Run(name, func(t *testing.T) {
			h := ready(t, remote)
			h.call("a", "long", timeout(time.Second))
			h.enter("a")
			h.pass(time.Hour)
			if h.calls()["a"].State != messages.CallFenced {
				t.Fatal("not held")
			}
			end(h)
			h.wantIdle()
			if h.saw(messages.EventPossibleOverlap, "a") != 1 {
				t.Error("no possible_overlap")
			}
		})
	}
}

func TestZombieReads(t *testing.T) {
	zombie := func(h *harness, id string) {
		h.call(id, "read", timeout(time.Second))
		h.enter(id)
		h.pass(time.Second)
		h.want(id, messages.OutcomeUnknown, messages.CodeTimeout)
	}
	t.Run("keep their places", func(t *testing.T) {
		h := ready(t, nil)
		zombie(h, "r1")
		h.call("r2", "read")
		h.call("r3", "read")
		h.wantStarted("r1#1@1", "r2#1@1")
		h.done("r1", okReply)
		h.wantStarted("r1#1@1", "r2#1@1", "r3#1@1")
		if h.saw(messages.EventLaneHeld, "") != 0 {
			t.Error("a read holds nothing that others must know of")
		}
	})
	t.Run("let side effects pass in the end", func(t *testing.T) {
		h := ready(t, nil)
		zombie(h, "r1")
		h.call("e", "write")
		h.pass(29 * time.Second)
		h.wantStarted("r1#1@1")
		h.pass(time.Second)
		h.wantStarted("r1#1@1", "e#1@1")
		if h.recycled() != nil {
			t.Error("recycled for one read")
		}
	})
	t.Run("recycle when they hold every place", func(t *testing.T) {
		h := ready(t, nil)
		zombie(h, "r1")
		zombie(h, "r2")
		h.call("r3", "read")
		h.pass(30 * time.Second)
		if len(h.recycled()) != 1 {
			t.Fatal("not recycled")
		}
		h.down(1, true)
		h.up(2)
		h.done("r3", okReply)
		h.want("r3", messages.OK, "")
		h.wantIdle()
	})
	t.Run("but not while a call is held that is never to be abandoned", func(t *testing.T) {
		h := ready(t, serial)
		h.call("long", "long", timeout(time.Second))
		h.enter("long")
		h.pass(time.Second)
		zombie(h, "r1")
		zombie(h, "r2")
		h.pass(time.Hour)
		if h.recycled() != nil {
			t.Fatal("recycled over it")
		}
		h.done("long", okReply)
		if len(h.recycled()) != 1 {
			t.Error("not recycled afterwards")
		}
	})
}
