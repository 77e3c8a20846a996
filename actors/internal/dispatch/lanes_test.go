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

// A read with a free place is handed out in the step in which it comes, whatever
// the side effects do.
func TestSerialReadsDoNotWait(t *testing.T) {
	for _, journal := range []bool{false, true} {
		h := newHarness(t, func(c *Config) { c.Journal = journal })
		l := limits()
		l.Serial = true
		h.ready(l)
		h.call("w1", "write")
		if journal {
			h.recorded("w1", "")
		}
		h.enter("w1")
		h.call("w2", "write")
		out := h.core.Step(h.now, h.makeCall("r", "read"), nil)
		found := false
		for _, cmd := range out {
			e, ok := cmd.(Execute)
			found = found || ok && e.Exec.CallID == "r"
		}
		if !found {
			t.Errorf("journal %v: the read waits: %+v", journal, out)
		}
	}
}

func TestSideEffectsSideBySide(t *testing.T) {
	h := ready(t, func(l *messages.ServerLimits) { l.MaxSideEffects = 2 })
	for _, id := range []string{"a", "b", "c"} {
		h.call(id, "write")
	}
	h.wantStarted("a#1@1", "b#1@1")
	h.enter("a")
	h.step(messages.Cancel{CallID: "a", Left: true}) // fenced: one place is left
	h.done("b", okReply)
	h.wantStarted("a#1@1", "b#1@1", "c#1@1")
	h.call("d", "write")
	h.done("a", okReply)
	h.wantStarted("a#1@1", "b#1@1", "c#1@1", "d#1@1")
}

func TestClientsTakeTurns(t *testing.T) {
	h := ready(t, nil)
	for i := range 3 {
		h.call(fmt.Sprint("a", i), "write", from("a"))
	}
	h.call("b0", "write", from("b"))
	for _, id := range []string{"a0", "a1", "b0", "a2"} {
		h.done(id, okReply)
	}
	h.wantStarted("a0#1@1", "a1#1@1", "b0#1@1", "a2#1@1")
}

// keyed has a tool whose lane is split by args.path.
func keyed(t *testing.T) *harness {
	h := ready(t, nil)
	file := tool("fs", "file", messages.SideEffect, messages.FromConfig)
	file.Limits.LaneKey = "path"
	h.step(messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true}, append(standard(), file)...)})
	return h
}

func TestLaneKeys(t *testing.T) {
	h := keyed(t)
	h.call("a1", "file", args(`{"path":"a"}`))
	h.call("a2", "file", args(`{"path":"\u0061"}`))
	h.call("b", "file", args(`{"path":"b"}`))
	h.call("x", "file", func(m *messages.Submit) { // checked by the caller
		m.Checked = messages.CheckedArgs{Version: 2, Args: json.RawMessage(`{"path":"x"}`), LaneKey: `"x"`}
	})
	h.wantStarted("a1#1@1", "b#1@1", "x#1@1")
	h.call("all", "file")
	c := h.calls()
	if d := cmp.Diff([]string{"a1"}, c["a2"].BlockedBy); d != "" || c["a2"].LaneKey != `"a"` || c["a2"].Lane != "side_effect" {
		t.Errorf("%+v %s", c["a2"], d)
	}
	if d := cmp.Diff([]string{"a1", "b", "x", "a2"}, c["all"].BlockedBy); d != "" || c["all"].Position != 2 {
		t.Errorf("%+v %s", c["all"], d)
	}
	// A fence holds the lane of its own key.
	h.enter("b")
	h.step(messages.Cancel{CallID: "b", Left: true})
	h.done("a1", okReply)
	h.wantStarted("a1#1@1", "b#1@1", "x#1@1", "a2#1@1")
}

func TestDryRunTellsTheLane(t *testing.T) {
	h := keyed(t)
	h.step(messages.ServerConfigured{Key: fs, Limits: func() messages.ServerLimits { l := limits(); l.LaneGroup = "disk"; return l }()})
	h.call("a", "file", args(`{"path":"p"}`), func(m *messages.Submit) { m.Call.DryRun = true; m.Call.IdempotencyKey = "k" })
	o := h.want("a", messages.OK, "")
	if s := o.Text(); !strings.Contains(s, `(for key "p")`) || !strings.Contains(s, "(shared with group disk)") {
		t.Error(s)
	}
	h.wantIdle()
}

func TestLaneGroups(t *testing.T) {
	db := messages.Key{Server: "db"}
	grouped := func(l *messages.ServerLimits) { l.LaneGroup = "disk" }
	h := ready(t, grouped)
	l := limits()
	grouped(&l)
	h.step(messages.ServerConfigured{Key: db, Limits: l})
	h.step(messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true, "db": true},
		append(standard(), tool("db", "put", messages.SideEffect, messages.FromConfig), tool("db", "get", messages.ReadOnly, messages.FromConfig))...)})
	h.step(messages.SessionUp{Key: db, Gen: 1})
	h.step(messages.ServerStateChanged{Key: db, State: messages.StateReady})
	on := func(tool string) func(*messages.Submit) {
		return func(m *messages.Submit) { m.Call.Tool = "db/" + tool }
	}
	h.call("a", "write", timeout(time.Second))
	h.call("b", "", on("put"))
	h.call("r", "", on("get"))
	h.wantStarted("a#1@1")
	if c := h.calls(); c["b"].LaneGroup != "disk" || c["b"].BlockedBy[0] != "a" {
		t.Errorf("%+v", c["b"])
	}
	h.enter("a")
	h.pass(time.Second)
	h.want("a", messages.OutcomeUnknown, messages.CodeTimeout)
	h.wantStarted("a#1@1") // a fence counts for the group
	h.down(1, true)        // and ends with its process: the dead server stands in nobody's way
	h.wantStarted("a#1@1", "b#1@1")
	h.call("w", "write")
	h.up(2)
	h.done("b", okReply)
	h.wantStarted("a#1@1", "b#1@1", "r#1@1", "w#1@2")
	h.step(messages.ServerConfigured{Key: db, Limits: limits()}) // it leaves the group
	h.done("r", okReply)
	h.call("b2", "", on("put"))
	h.wantStarted("a#1@1", "b#1@1", "r#1@1", "w#1@2", "b2#1@1")
	if len(h.core.groups["disk"].servers) != 1 {
		t.Error("the group keeps who left")
	}
	h.step(messages.ServerRemoved{Key: fs})
	h.done("w", okReply)
	h.done("b2", okReply)
	if len(h.core.groups) != 0 {
		t.Error("an empty group is kept")
	}
	h.wantIdle()
}

func TestClientBytesAreBounded(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.ClientQueueBytes = 100 })
	h.ready(limits())
	big := args(`{"x":"` + strings.Repeat("x", 60) + `"}`)
	h.call("a", "write", big)
	h.call("b", "write", big)
	h.call("c", "write", big)
	if o := h.want("c", messages.Rejected, messages.CodeOverloaded); !strings.Contains(o.Message, "bytes") || o.RetryAfter <= 0 {
		t.Errorf("%+v", o)
	}
	h.call("d", "write", big, from("d"))
	h.wantOpen("d")
}
