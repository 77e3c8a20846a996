package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

func TestStateSettlesTheQueue(t *testing.T) {
	for _, s := range []messages.State{messages.StateQuarantined, messages.StateStopping, messages.StateStopped, messages.StateDraining, messages.StateDisabled, messages.StateConfigError, messages.StateBlocked} {
		t.Run(s.String(), func(t *testing.T) {
			h := ready(t, nil)
			h.call("run", "write")
			h.call("q", "write")
			h.state(s, "because")
			if o := h.want("q", messages.NotSent, messages.CodeUnavailable); !strings.Contains(o.Message, "because") || o.Hint == "" {
				t.Errorf("%q %q", o.Message, o.Hint)
			}
			h.wantOpen("run")
			h.done("run", okReply)
			h.want("run", messages.OK, "")
			h.wantIdle()
		})
	}
	for _, s := range []messages.State{messages.StateStarting, messages.StateBackoff} {
		h := ready(t, nil)
		h.call("run", "write")
		h.call("q", "write")
		h.state(s, "")
		h.wantOpen("run", "q")
	}
}

func TestIdleServerIsWoken(t *testing.T) {
	h := newHarness(t, nil)
	h.step(messages.ServerConfigured{Key: fs, Limits: limits()})
	h.step(messages.CatalogueChanged{Catalogue: catalogue(1, map[string]bool{"fs": true}, standard()...)})
	h.call("a", "read")
	h.call("b", "read")
	wake := messages.Message(messages.WakeServer{Key: fs})
	if d := cmp.Diff([]messages.Message{wake}, h.servers); d != "" {
		t.Fatalf("woken:\n%s", d)
	}
	// A server that ends before it takes a call is called back three times, not for ever.
	for i := range 3 {
		h.state(messages.StateStarting, "")
		h.state(messages.StateIdle, "exit status 0")
		if len(h.servers) != i+2 {
			t.Fatalf("round %d: %v", i, h.servers)
		}
	}
	h.wantOpen("a", "b")
	h.state(messages.StateStarting, "")
	h.state(messages.StateIdle, "exit status 0")
	if o := h.want("a", messages.NotSent, messages.CodeUnavailable); !strings.Contains(o.Message, "exit status 0") {
		t.Error(o.Message)
	}
	h.wantIdle()
}

func TestDrainServer(t *testing.T) {
	h := ready(t, nil)
	h.call("fenced", "write", timeout(time.Second))
	h.enter("fenced")
	h.pass(time.Second)
	h.call("q", "write")
	h.step(messages.DrainServer{Key: fs})
	h.want("q", messages.NotSent, messages.CodeUnavailable)
	drained := []messages.Message{messages.ServerDrained{Key: fs}}
	if d := cmp.Diff(drained, h.servers); d != "" { // a fence delays nobody
		t.Fatal(d)
	}

	h = ready(t, nil)
	h.call("run", "write")
	h.step(messages.DrainServer{Key: fs})
	h.state(messages.StateDraining, "")
	if len(h.servers) != 0 {
		t.Fatal("drained with a call in flight")
	}
	h.done("run", okReply)
	if d := cmp.Diff(drained, h.servers); d != "" {
		t.Fatal(d)
	}
	h.state(messages.StateStopped, "")
	h.state(messages.StateStarting, "")
	h.call("a", "read")
	h.wantOpen("a")

	h.servers = nil
	h.step(messages.DrainServer{Key: messages.Key{Server: "nobody"}})
	if len(h.servers) != 1 {
		t.Error("an unknown server has nothing in flight, and that is the answer")
	}
}

func TestDrainAll(t *testing.T) {
	h := ready(t, nil)
	h.call("run", "write")
	h.call("q", "read")
	done := make(chan struct{}, 1)
	h.step(messages.DrainAll{Done: done})
	h.want("q", messages.NotSent, messages.CodeUnavailable)
	h.call("late", "read")
	h.want("late", messages.Rejected, messages.CodeDraining)
	if h.drained != 0 || h.saw(messages.EventDraining, "") != 1 {
		t.Fatal("done before the last call, or not told")
	}
	h.done("run", okReply)
	if h.drained != 1 {
		t.Fatal("not done")
	}
	h.step(messages.DrainAll{Done: done})
	if h.drained != 2 || h.saw(messages.EventDraining, "") != 1 {
		t.Error("the second asker hears too, the history not")
	}
	h.wantIdle()
}

func TestServerRemovedAndBack(t *testing.T) {
	h := ready(t, nil)
	h.call("run", "write")
	h.call("q", "write")
	h.step(messages.ServerRemoved{Key: fs})
	h.want("q", messages.NotSent, messages.CodeUnavailable)
	h.wantOpen("run")
	if h.core.servers[fs] == nil {
		t.Fatal("forgotten with a call in flight")
	}
	h.step(messages.ServerConfigured{Key: fs, Limits: limits()})
	h.call("a", "write")
	h.wantOpen("a")
	h.step(messages.ServerRemoved{Key: fs})
	h.done("run", okReply)
	if h.core.servers[fs] != nil || len(h.core.order) != 0 {
		t.Error("not forgotten")
	}
	h.step(messages.SessionDown{Key: fs, Gen: 1})
	h.step(messages.ServerStateChanged{Key: fs, State: messages.StateStopped})
	h.wantIdle()
}

func TestLimitsChange(t *testing.T) {
	h := ready(t, nil)
	for i := range 4 {
		h.call(fmt.Sprint("r", i), "read")
	}
	if len(h.execs) != 2 {
		t.Fatal(h.started())
	}
	l := limits()
	l.MaxReads = 3
	h.step(messages.ServerConfigured{Key: fs, Limits: l})
	if len(h.execs) != 3 {
		t.Error(h.started())
	}
}

func TestQueryCalls(t *testing.T) {
	h := ready(t, nil)
	h.call("w1", "write", timeout(2*time.Second))
	h.enter("w1")
	h.call("r1", "read")
	h.call("w2", "write")
	h.pass(2 * time.Second)
	ch := make(chan messages.CallsReport, 1)
	h.step(messages.QueryCalls{Reply: ch})
	r := <-ch
	want := []messages.CallInfo{
		{CallID: "w1", Tool: "mcp__fs__write", Server: "fs", State: messages.CallFenced, Lane: "side_effect", AgeMS: 2000, BlockedBy: []string{}, Client: "c", Generation: 1, Attempt: 1},
		{CallID: "r1", Tool: "mcp__fs__read", Server: "fs", State: messages.CallQueued, Lane: "read", Position: 1, AgeMS: 2000, BlockedBy: []string{"w1"}, Client: "c"},
		{CallID: "w2", Tool: "mcp__fs__write", Server: "fs", State: messages.CallQueued, Lane: "side_effect", Position: 2, AgeMS: 2000, BlockedBy: []string{"w1", "r1"}, Client: "c"},
	}
	if d := cmp.Diff(want, r.Calls); d != "" {
		t.Error(d)
	}
	if r.Queued[fs] != 2 || r.InFlight[fs] != 0 {
		t.Errorf("%+v", r)
	}
	// A free read shows as nothing but a server that is away.
	h = ready(t, nil)
	h.down(1, true)
	h.call("r", "read")
	if got := h.calls()["r"]; got.State != messages.CallQueued || got.BlockedBy == nil {
		t.Errorf("%+v", got)
	}
}

func TestEventsOfOneCall(t *testing.T) {
	h := ready(t, nil)
	h.events = nil
	h.call("a", "put")
	h.done("a", okReply)
	deadline := start.Add(time.Minute)
	base := messages.Event{Time: start, Server: "fs", CallID: "a"}
	accepted, dispatched, settled := base, base, base
	accepted.Type, accepted.Tool, accepted.Effect, accepted.Client, accepted.Deadline = messages.EventCallAccepted, "mcp__fs__put", "idempotent", "c", &deadline
	dispatched.Type, dispatched.Attempt, dispatched.Generation = messages.EventCallDispatched, 1, 1
	settled.Type, settled.Tool, settled.Effect, settled.Client, settled.Outcome, settled.Attempt, settled.Generation = messages.EventCallSettled, "mcp__fs__put", "idempotent", "c", "ok", 1, 1
	if d := cmp.Diff([]messages.Event{accepted, dispatched, settled}, h.events); d != "" {
		t.Error(d)
	}
}

func TestClose(t *testing.T) {
	h := ready(t, serial)
	h.call("sent", "write")
	h.enter("sent")
	h.call("handed", "read")
	h.call("q", "write")
	h.step(messages.DrainAll{Done: make(chan struct{}, 1)})
	h.take(h.core.Close(h.now))
	h.want("sent", messages.OutcomeUnknown, messages.CodeConnectionLost)
	h.want("handed", messages.NotSent, messages.CodeUnavailable)
	h.want("q", messages.NotSent, messages.CodeUnavailable)
	if h.last("handed").Boundary.Enter() || h.drained != 1 {
		t.Error("a call that was not sent can be sent, or the drain never ends")
	}
	h.call("late", "write")
	h.want("late", messages.Rejected, messages.CodeDraining)
	h.wantIdle()
}

// A bug costs the call that it hits and nobody else.
func TestAbort(t *testing.T) {
	crash := func(h *harness, m messages.Message) {
		defer func() {
			if recover() != nil {
				h.take(h.core.Abort(h.now, m))
			}
		}()
		h.step(m)
	}
	bug := func(m *messages.Submit) { m.Call.Args = []byte("bug") }
	t.Run("in a check", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.call("b", "write")
		crash(h, h.makeCall("x", "read", bug))
		h.want("x", messages.NotSent, messages.CodeInternal)
		h.wantOpen("a", "b")
		h.done("a", okReply)
		h.done("b", okReply)
		h.wantIdle()
	})
	t.Run("in a check without an id", func(t *testing.T) {
		h := ready(t, nil)
		crash(h, h.makeCall("x", "read", bug, func(m *messages.Submit) { m.Call.ID = "" }))
		h.want("x", messages.NotSent, messages.CodeInternal)
		h.wantIdle()
	})
	t.Run("in a check of a call that waited", func(t *testing.T) {
		h := newHarness(t, nil)
		h.step(messages.ServerConfigured{Key: fs, Limits: limits()})
		h.call("x", "read", bug)
		h.call("y", "read")
		crash(h, messages.CatalogueChanged{Catalogue: catalogue(1, map[string]bool{"fs": true}, standard()...)})
		h.want("x", messages.NotSent, messages.CodeInternal)
		h.wantOpen("y")
		h.step(messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true}, standard()...)})
		h.up(1)
		h.done("y", okReply)
		h.wantIdle()
	})
	t.Run("with a reply", func(t *testing.T) {
		h := ready(t, nil)
		h.call("a", "write")
		h.enter("a")
		h.call("b", "write")
		h.core.current = nil
		h.take(h.core.Abort(h.now, messages.CallDone{Key: fs, Gen: 1, CallID: "a", Attempt: 1}))
		h.want("a", messages.OutcomeUnknown, messages.CodeInternal)
		h.wantOpen("b")
	})
}

func TestNilConfigFailsClosed(t *testing.T) {
	h := newHarness(t, func(c *Config) { *c = Config{} })
	h.step(messages.ServerConfigured{Key: fs, Limits: limits()})
	h.step(messages.CatalogueChanged{Catalogue: catalogue(1, map[string]bool{"fs": true}, standard()...)})
	h.call("a", "read")
	h.want("a", messages.Rejected, messages.CodeDenied)
}
