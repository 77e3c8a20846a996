package dispatch

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

func TestChecks(t *testing.T) {
	deny := func(h *harness) {
		h.decide = func(messages.Tool, string, string) (messages.Permission, string) {
			return messages.Deny, "permissions[2]"
		}
	}
	type row struct {
		name  string
		setup func(*harness)
		tool  string
		edit  func(*messages.Submit)
		kind  messages.OutcomeKind
		code  messages.Code
		says  []string // in message or hint
	}
	for _, tc := range []row{
		{name: "unknown tool", tool: "reed", kind: messages.Rejected, code: messages.CodeUnknownTool, says: []string{`"fs/reed"`, "did you mean fs__read"}},
		{name: "unknown server", tool: "x", edit: func(m *messages.Submit) { m.Call.Server, m.Call.Tool = "sf", "zzzzzz" },
			kind: messages.Rejected, code: messages.CodeUnknownTool, says: []string{`no server is called "sf"`, "fs"}},
		{name: "server's own name", edit: func(m *messages.Submit) { m.Call.Server, m.Call.Tool = "fs", "raed" },
			kind: messages.Rejected, code: messages.CodeUnknownTool, says: []string{"did you mean read"}},
		{name: "out of view", tool: "write", edit: func(m *messages.Submit) { m.Call.View = "plan" },
			kind: messages.Rejected, code: messages.CodeUnknownTool},
		{name: "unknown view", tool: "read", edit: func(m *messages.Submit) { m.Call.View = "plane" },
			kind: messages.Rejected, code: messages.CodeUnknownTool, says: []string{`no view is called "plane"`}},
		{name: "denied", tool: "write", setup: deny, kind: messages.Rejected, code: messages.CodeDenied,
			says: []string{"rule permissions[2]", `permissions: [{server: fs, tool: "write", action: allow}]`}},
		{name: "ask", tool: "write", setup: func(h *harness) {
			h.decide = func(messages.Tool, string, string) (messages.Permission, string) { return messages.Ask, "default" }
		}, kind: messages.Rejected, code: messages.CodeApprovalRequired, says: []string{"the default rule", "action: allow"}},
		{name: "denied comes before arguments", tool: "write", setup: deny, edit: func(m *messages.Submit) { m.Call.Args = json.RawMessage("[]") },
			kind: messages.Rejected, code: messages.CodeDenied},
		{name: "unknown comes before denied", tool: "nothing", setup: deny, kind: messages.Rejected, code: messages.CodeUnknownTool},
		{name: "arguments", tool: "write", edit: func(m *messages.Submit) { m.Call.Args = json.RawMessage("[]") },
			kind: messages.Rejected, code: messages.CodeInvalidArguments, says: []string{"fs/write", "not an object"}},
		{name: "arguments come before admission", tool: "write", setup: func(h *harness) { h.state(messages.StateQuarantined, "x") },
			edit: func(m *messages.Submit) { m.Call.Args = json.RawMessage("[]") }, kind: messages.Rejected, code: messages.CodeInvalidArguments},
		{name: "negative timeout", tool: "read", edit: timeout(-time.Second), kind: messages.Rejected, code: messages.CodeInvalidArguments},
		{name: "deadline past", tool: "read", edit: func(m *messages.Submit) { m.Call.Deadline = start.Add(-time.Second) },
			kind: messages.NotSent, code: messages.CodeExpired},
		{name: "quarantined", tool: "read", setup: func(h *harness) { h.state(messages.StateQuarantined, "exit status 2") },
			kind: messages.NotSent, code: messages.CodeUnavailable, says: []string{"exit status 2", "bridgectl reset fs"}},
		{name: "stopped", tool: "read", setup: func(h *harness) { h.state(messages.StateStopped, "") },
			kind: messages.NotSent, code: messages.CodeUnavailable, says: []string{"bridgectl start fs"}},
		{name: "disabled", tool: "read", setup: func(h *harness) { h.state(messages.StateDisabled, "") },
			kind: messages.NotSent, code: messages.CodeUnavailable, says: []string{"enabled: true"}},
		{name: "config error", tool: "read", setup: func(h *harness) { h.state(messages.StateConfigError, "env.TOKEN: T is not set") },
			kind: messages.NotSent, code: messages.CodeUnavailable, says: []string{"T is not set", "config check"}},
		{name: "blocked", tool: "read", setup: func(h *harness) { h.state(messages.StateBlocked, "approval") },
			kind: messages.NotSent, code: messages.CodeUnavailable, says: []string{"--trust-project"}},
		{name: "blocked for auth", tool: "read", setup: func(h *harness) { h.state(messages.StateBlocked, "auth") },
			kind: messages.NotSent, code: messages.CodeUnavailable, says: []string{"headers"}},
		{name: "draining server", tool: "read", setup: func(h *harness) { h.state(messages.StateDraining, "") },
			kind: messages.Rejected, code: messages.CodeDraining},
		{name: "draining server, told by DrainServer", tool: "read", setup: func(h *harness) { h.step(messages.DrainServer{Key: fs}) },
			kind: messages.Rejected, code: messages.CodeDraining},
		{name: "stopping", tool: "read", setup: func(h *harness) { h.state(messages.StateStopping, "") },
			kind: messages.NotSent, code: messages.CodeUnavailable},
		{name: "removed", tool: "read", setup: func(h *harness) { h.step(messages.ServerRemoved{Key: fs}) },
			kind: messages.NotSent, code: messages.CodeUnavailable, says: []string{"no longer configured"}},
		{name: "draining bridge", tool: "read", setup: func(h *harness) { h.step(messages.DrainAll{}) },
			kind: messages.Rejected, code: messages.CodeDraining},
		{name: "draining bridge still says what is wrong", tool: "nothing", setup: func(h *harness) { h.step(messages.DrainAll{}) },
			kind: messages.Rejected, code: messages.CodeUnknownTool},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := ready(t, nil)
			if tc.setup != nil {
				tc.setup(h)
			}
			h.events = nil
			edit := tc.edit
			if edit == nil {
				edit = func(*messages.Submit) {}
			}
			h.call("a", tc.tool, edit)
			o := h.want("a", tc.kind, tc.code)
			for _, s := range tc.says {
				if !strings.Contains(o.Message+" | "+o.Hint, s) {
					t.Errorf("%q | %q does not say %q", o.Message, o.Hint, s)
				}
			}
			if o.Message == "" || o.Sent() || !o.SafeToRetry() {
				t.Errorf("outcome %+v", o)
			}
			if len(h.execs) != 0 || h.saw(messages.EventCallAccepted, "") != 0 || h.saw(messages.EventCallSettled, "a") != 1 {
				t.Errorf("execs %v, events %v", h.started(), h.events)
			}
			h.wantIdle()
		})
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"mcp__fs__read", "fs__read", "fs/read"} {
		h := ready(t, nil)
		h.call("a", "", func(m *messages.Submit) { m.Call.Tool = name })
		h.done("a", okReply)
		o := h.want("a", messages.OK, "")
		if o.Tool != "mcp__fs__read" || o.Server != "fs" || o.RemoteTool != "read" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	h := ready(t, nil)
	h.call("a", "", func(m *messages.Submit) { m.Call.Server, m.Call.Tool = "fs", "read" })
	h.done("a", okReply)
	h.want("a", messages.OK, "")
}

func TestDeadlines(t *testing.T) {
	for _, tc := range []struct {
		name   string
		edit   func(*messages.CallTool)
		want   time.Duration
		source messages.DeadlineSource
	}{
		{"none", func(*messages.CallTool) {}, time.Minute, messages.DeadlineConfig},
		{"timeout", func(c *messages.CallTool) { c.Timeout = time.Second }, time.Second, messages.DeadlineCaller},
		{"longer timeout", func(c *messages.CallTool) { c.Timeout = time.Hour }, time.Minute, messages.DeadlineConfig},
		{"deadline", func(c *messages.CallTool) { c.Deadline = start.Add(2 * time.Second) }, 2 * time.Second, messages.DeadlineCaller},
		{"both", func(c *messages.CallTool) { c.Deadline, c.Timeout = start.Add(2*time.Second), time.Second }, time.Second, messages.DeadlineCaller},
		{"later deadline", func(c *messages.CallTool) { c.Deadline = start.Add(time.Hour) }, time.Minute, messages.DeadlineConfig},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := ready(t, nil)
			h.call("a", "read", func(m *messages.Submit) { tc.edit(&m.Call) })
			h.pass(tc.want - 1)
			h.wantOpen("a")
			h.pass(1)
			o := h.want("a", messages.NotSent, messages.CodeExpired) // never entered
			if !o.Deadline.Equal(start.Add(tc.want)) || o.DeadlineSource != tc.source {
				t.Errorf("deadline %v by %s", o.Deadline.Sub(start), o.DeadlineSource)
			}
		})
	}
}

func TestCheckedArgs(t *testing.T) {
	for _, tc := range []struct {
		name    string
		checked messages.CheckedArgs
		checks  int
		args    string
	}{
		{"current", messages.CheckedArgs{Version: 1, Args: json.RawMessage(`{"n":1}`)}, 0, `{"n":1}`},
		{"stale", messages.CheckedArgs{Version: 7, Args: json.RawMessage(`{"n":1}`)}, 1, `{}`},
		{"not checked", messages.CheckedArgs{}, 1, `{}`},
	} {
		h := ready(t, nil)
		h.call("a", "read", func(m *messages.Submit) { m.Checked = tc.checked })
		if got := string(h.last("a").Args); got != tc.args || h.checks != tc.checks {
			t.Errorf("%s: args %s after %d checks", tc.name, got, h.checks)
		}
	}
	h := ready(t, nil)
	h.call("a", "read", func(m *messages.Submit) { m.Checked = messages.CheckedArgs{Version: 1, Err: "path: missing"} })
	if o := h.want("a", messages.Rejected, messages.CodeInvalidArguments); !strings.Contains(o.Message, "path: missing") {
		t.Error(o.Message)
	}
}

func TestIDs(t *testing.T) {
	h := ready(t, nil)
	h.call("", "read")
	if len(h.execs) != 1 || h.execs[0].CallID == "" {
		t.Fatalf("no id was given: %+v", h.execs)
	}
	h.call("a", "read")
	twin := h.makeCall("b", "read")
	twin.Call.ID = "a"
	h.step(twin)
	h.want("b", messages.Rejected, messages.CodeInvalidArguments)
	h.wantOpen("a")
}

func TestBounds(t *testing.T) {
	h := ready(t, nil) // four may wait
	for _, id := range []string{"run", "q1", "q2", "q3", "q4"} {
		h.call(id, "write")
	}
	h.call("over", "write")
	if o := h.want("over", messages.Rejected, messages.CodeOverloaded); o.RetryAfter <= 0 || !strings.Contains(o.Message, `"fs"`) {
		t.Errorf("%+v", o)
	}
	h.wantOpen("run", "q1", "q4")

	h = newHarness(t, func(c *Config) { c.ClientQueue = 1 })
	docs := messages.Key{Server: "docs"}
	for i, k := range []messages.Key{fs, docs} {
		h.step(messages.ServerConfigured{Key: k, Limits: limits()})
		h.step(messages.SessionUp{Key: k, Gen: uint64(i + 1)})
	}
	h.step(messages.CatalogueChanged{Catalogue: catalogue(1, nil, tool("fs", "write", messages.SideEffect, 0), tool("docs", "write", messages.SideEffect, 0))})
	h.call("run", "write")
	h.call("wait", "write")
	h.call("over", "write")
	h.want("over", messages.Rejected, messages.CodeOverloaded)
	other := func(m *messages.Submit) { m.Call.Tool = "docs/write" }
	h.call("free", "", other) // starts at once: it does not wait
	h.wantStarted("run#1@1", "free#1@2")
	h.call("over2", "", other)
	h.want("over2", messages.Rejected, messages.CodeOverloaded)
	h.call("else", "", other, func(m *messages.Submit) { m.Call.Client = "d" })
	h.wantOpen("else")
}

func TestDryRun(t *testing.T) {
	dry := func(m *messages.Submit) { m.Call.DryRun = true }
	h := ready(t, nil)
	h.events = nil
	h.call("a", "put", dry)
	o := h.want("a", messages.OK, "")
	var r struct {
		Content           []struct{ Type, Text string }
		StructuredContent map[string]string
	}
	if err := json.Unmarshal(o.Result, &r); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"decision": "allow", "rule": "permissions[0]", "effect": "idempotent", "lane": "side_effect", "server": "fs", "tool": "put", "state": "ready"}
	if d := cmp.Diff(want, r.StructuredContent); d != "" {
		t.Error(d)
	}
	if len(r.Content) != 1 || r.Content[0].Type != "text" || !strings.Contains(r.Content[0].Text, "fs/put") {
		t.Errorf("content %+v", r.Content)
	}
	if len(h.execs) != 0 || len(h.events) != 0 {
		t.Errorf("a dry run left traces: %v %v", h.started(), h.events)
	}
	h.call("b", "put", dry, func(m *messages.Submit) { m.Call.Args = json.RawMessage("1") })
	h.want("b", messages.Rejected, messages.CodeInvalidArguments)
	h.wantIdle()
}

func TestWaitingForTheFirstList(t *testing.T) {
	idle := func(t *testing.T) *harness {
		h := newHarness(t, nil)
		h.step(messages.ServerConfigured{Key: fs, Limits: limits()})
		h.step(messages.CatalogueChanged{Catalogue: catalogue(1, nil)})
		return h
	}
	listed := messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true}, standard()...)}

	t.Run("listed", func(t *testing.T) {
		h := idle(t)
		h.call("a", "read")
		h.call("b", "nothing")
		h.call("c", "", func(m *messages.Submit) { m.Call.Server, m.Call.Tool = "fs", "write" })
		h.call("d", "", func(m *messages.Submit) { m.Call.Tool = "mcp__fs__write"; m.Call.View = "plan" })
		if d := cmp.Diff([]messages.Message{messages.WakeServer{Key: fs}}, h.servers); d != "" {
			t.Fatalf("woken:\n%s", d)
		}
		if got := h.calls()["a"]; got.State != messages.CallWaiting || got.Position != 1 {
			t.Errorf("%+v", got)
		}
		h.state(messages.StateStarting, "")
		h.pass(time.Second)
		h.up(1)
		h.step(listed)
		h.want("b", messages.Rejected, messages.CodeUnknownTool)
		h.want("d", messages.Rejected, messages.CodeUnknownTool)
		h.wantStarted("a#1@1")
		h.done("a", okReply)
		if o := h.want("a", messages.OK, ""); o.Queued != time.Second {
			t.Errorf("queued %v", o.Queued)
		}
		h.done("c", okReply)
		if h.saw(messages.EventCallAccepted, "a") != 1 {
			t.Error("accepted twice or never")
		}
		h.wantIdle()
	})
	t.Run("list_wait", func(t *testing.T) {
		h := idle(t)
		h.call("a", "read")
		h.pass(5*time.Second - 1)
		h.wantOpen("a")
		h.pass(1)
		if o := h.want("a", messages.Rejected, messages.CodeUnknownTool); !strings.Contains(o.Hint, "not listed its tools") {
			t.Error(o.Hint)
		}
		h.wantIdle()
	})
	t.Run("deadline", func(t *testing.T) {
		h := idle(t)
		h.call("a", "read", timeout(time.Second))
		h.pass(time.Second)
		h.want("a", messages.NotSent, messages.CodeExpired)
		h.wantIdle()
	})
	t.Run("cancelled", func(t *testing.T) {
		h := idle(t)
		h.call("a", "read")
		h.step(messages.Cancel{CallID: "a"})
		h.want("a", messages.NotSent, messages.CodeCancelled)
		h.wantIdle()
	})
	t.Run("quarantined", func(t *testing.T) {
		h := idle(t)
		h.call("a", "read")
		h.state(messages.StateQuarantined, "npx not found")
		if o := h.want("a", messages.NotSent, messages.CodeUnavailable); !strings.Contains(o.Message, "npx not found") {
			t.Error(o.Message)
		}
		h.call("b", "read")
		if o := h.want("b", messages.Rejected, messages.CodeUnknownTool); !strings.Contains(o.Hint, "npx not found") {
			t.Error(o.Hint)
		}
		h.wantIdle()
	})
	t.Run("other server", func(t *testing.T) {
		h := idle(t)
		h.call("a", "", func(m *messages.Submit) { m.Call.Tool = "fsx/read" })
		h.want("a", messages.Rejected, messages.CodeUnknownTool)
	})
	t.Run("before the first catalogue", func(t *testing.T) {
		h := newHarness(t, nil)
		h.call("a", "read")
		h.wantOpen("a")
		h.step(messages.ServerConfigured{Key: fs, Limits: limits()})
		h.up(1)
		h.step(listed)
		h.wantStarted("a#1@1")
	})
	t.Run("drained", func(t *testing.T) {
		h := idle(t)
		h.call("a", "read")
		h.step(messages.DrainAll{})
		h.want("a", messages.NotSent, messages.CodeUnavailable)
		h.call("b", "read")
		h.want("b", messages.Rejected, messages.CodeDraining)
	})
	t.Run("no patience", func(t *testing.T) {
		h := newHarness(t, func(c *Config) { c.ListWait = 0 })
		h.step(messages.ServerConfigured{Key: fs, Limits: limits()})
		h.step(messages.CatalogueChanged{Catalogue: catalogue(1, nil)})
		h.call("a", "read")
		h.want("a", messages.Rejected, messages.CodeUnknownTool)
		if len(h.servers) != 1 {
			t.Error("the server is woken for the next call all the same")
		}
	})
}

func TestMayHave(t *testing.T) {
	for _, tc := range []struct {
		server, tool string
		want         bool
	}{
		{"fs", "mcp__fs__read", true}, {"fs", "fs__read", true}, {"fs", "fs/read", true}, {"fs", "fsx__read", false}, {"fs", "read", false},
		{"my.server", "my_server__read_abcdefghijkl", true}, {"my.server", "my.server/read", true},
		{"a-very-long-name-of-a-server", "a-very-long-name-of-a_abcdefghijkl", true}, {"mcp__x", "mcp__x__y", true},
	} {
		if got := mayHave(tc.server, messages.CallTool{Tool: tc.tool}); got != tc.want {
			t.Errorf("%s: %s: %v", tc.server, tc.tool, got)
		}
	}
}
