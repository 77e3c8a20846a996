package dispatch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
)

func key(k string) func(*messages.Submit) {
	return func(m *messages.Submit) { m.Call.IdempotencyKey = k }
}

func args(raw string) func(*messages.Submit) {
	return func(m *messages.Submit) { m.Call.Args = json.RawMessage(raw) }
}

func from(client string) func(*messages.Submit) {
	return func(m *messages.Submit) { m.Call.Client = client }
}

func (h *harness) wantShared(id, first string, kind messages.OutcomeKind, code messages.Code) messages.Outcome {
	h.t.Helper()
	o := h.want(id, kind, code)
	if o.CallID != id || o.FirstID != first || !strings.Contains(o.Message+o.Hint, fmt.Sprintf("%q", first)) {
		h.t.Fatalf("%+v does not name %s", o, first)
	}
	return o
}

func TestKeyJoins(t *testing.T) {
	for _, tool := range []string{"write", "read"} {
		t.Run(tool, func(t *testing.T) {
			h := ready(t, nil)
			h.call("a", tool, key("k"))
			h.call("b", tool, key("k"))
			h.wantStarted("a#1@1")
			if c := h.calls()["b"]; c.State != messages.CallJoined || c.BlockedBy[0] != "a" {
				t.Errorf("%+v", c)
			}
			h.done("a", okReply)
			h.want("a", messages.OK, "")
			if o := h.wantShared("b", "a", messages.OK, ""); string(o.Result) != string(okReply.Raw) || o.Attempt != 1 || o.Generation != 1 {
				t.Errorf("%+v", o)
			}
			h.call("c", tool, key("k")) // and again, from memory
			h.wantShared("c", "a", messages.OK, "")
			h.wantStarted("a#1@1")
			if h.saw(messages.EventCallJoined, "") != 2 || h.saw(messages.EventCallSettled, "") != 3 {
				t.Errorf("%v", h.events)
			}
			h.wantIdle()
			h.pass(24 * time.Hour)
			h.call("d", tool, key("k"))
			h.wantStarted("a#1@1", "d#1@1")
		})
	}
}

func TestKeyScope(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "read", key("k"))
	h.call("b", "read", key("k"), from("other"))
	h.call("c", "hint", key("k"))
	h.call("d", "read", key("k2"))
	h.call("e", "read")
	h.done("a", okReply)
	h.done("b", okReply)
	h.done("c", okReply)
	h.done("d", okReply)
	h.done("e", okReply)
	h.wantStarted("a#1@1", "b#1@1", "c#1@1", "d#1@1", "e#1@1")
}

func TestKeyConflict(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "write", key("k"), args(`{"n":1}`))
	conflicts := func(id string) {
		t.Helper()
		h.call(id, "write", key("k"), args(`{"n":2}`))
		o := h.want(id, messages.Rejected, messages.CodeIdempotencyConflict)
		if !strings.Contains(o.Message, `"a"`) || o.Hint == "" || o.Sent() {
			t.Errorf("%+v", o)
		}
	}
	conflicts("b")
	h.done("a", okReply)
	conflicts("c")
	h.wantStarted("a#1@1")
}

func TestKeyOutcomes(t *testing.T) {
	rpc := messages.Reply{Kind: messages.ReplyError, Raw: json.RawMessage(`{"code":-1,"message":"no"}`)}
	for _, tc := range []struct {
		name string
		end  func(*harness)
		kind messages.OutcomeKind
		code messages.Code
		anew bool
	}{
		{"tool_error", func(h *harness) { h.done("a", rpc) }, messages.ToolError, messages.CodeToolError, false},
		{"unknown", func(h *harness) { h.done("a", messages.Reply{Kind: messages.ReplyLost, Err: "eof", Proven: true}) },
			messages.OutcomeUnknown, messages.CodeConnectionLost, false},
		{"not_sent", func(h *harness) { h.step(messages.Cancel{CallID: "a"}); h.done("a", messages.Reply{}) }, messages.NotSent, messages.CodeCancelled, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := ready(t, remote)
			h.call("a", "write", key("k"))
			h.call("joined", "write", key("k"))
			tc.end(h)
			h.want("a", tc.kind, tc.code)
			if tc.anew { // the first caller left before it was sent: the next one's turn
				h.wantStarted("a#1@1", "joined#1@1")
				h.wantOpen("joined")
				return
			}
			h.wantShared("joined", "a", tc.kind, tc.code)
			h.call("b", "write", key("k"))
			o := h.wantShared("b", "a", tc.kind, tc.code)
			if string(o.RPCError) != string(h.settled["a"].RPCError) {
				t.Errorf("%+v", o)
			}
			if tc.kind == messages.ToolError && o.ErrorText() != "no" {
				t.Errorf("the server's words are hidden: %q", o.ErrorText())
			}
			h.wantStarted("a#1@1")
		})
	}
}

func TestKeyLargeResults(t *testing.T) {
	big := func(isError bool) messages.Reply {
		return messages.Reply{Kind: messages.ReplyResult, Raw: json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":"%s"}],"isError":%t}`,
			strings.Repeat("x", messages.StoredResultMax), isError))}
	}
	h := ready(t, nil)
	h.call("a", "write", key("k"))
	h.call("joined", "write", key("k"))
	h.done("a", big(false))
	if o := h.wantShared("joined", "a", messages.OK, ""); len(o.Result) < messages.StoredResultMax {
		t.Error("who waits gets all of it")
	}
	h.call("b", "write", key("k"))
	o := h.wantShared("b", "a", messages.OK, "")
	if !strings.Contains(o.Text(), "not kept") || !o.Truncated || o.Failed() {
		t.Errorf("%+v: %s", o, o.Text())
	}
	h.call("c", "write", key("e"))
	h.done("c", big(true))
	h.call("d", "write", key("e"))
	if o := h.wantShared("d", "c", messages.ToolError, messages.CodeToolError); !strings.Contains(o.ErrorText(), "not kept") || len(o.Result) > 0 {
		t.Errorf("%+v", o)
	}
}

// Who leaves must not say that nothing was sent.
func TestJoinedCallLeaves(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "write", key("k"))
	h.call("b", "write", key("k"))
	h.call("c", "write", key("k"), timeout(time.Second))
	h.call("late", "write", key("k"), func(m *messages.Submit) { m.Call.Deadline = start.Add(-time.Second) })
	h.want("late", messages.OutcomeUnknown, messages.CodeTimeout)
	h.step(messages.Cancel{CallID: "b"})
	h.want("b", messages.OutcomeUnknown, messages.CodeCancelled)
	h.pass(time.Second)
	h.want("c", messages.OutcomeUnknown, messages.CodeTimeout)
	h.wantOpen("a")
	if len(h.cancels) != 0 {
		t.Error("the first was disturbed")
	}
	h.done("a", okReply)
	h.want("a", messages.OK, "")
	h.wantIdle()
}

func TestJoinedCallsAreBounded(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.ClientQueue = 2 })
	h.ready(limits())
	for i := range 4 {
		h.call(fmt.Sprint("c", i), "write", key("k"))
	}
	h.want("c3", messages.Rejected, messages.CodeOverloaded)
	h.done("c0", okReply)
	h.want("c2", messages.OK, "")
	h.wantIdle()
}

func TestBadKeys(t *testing.T) {
	for _, k := range []string{"a\nb", "\x00", "a\u200bb", "\xff", strings.Repeat("é", 257)} {
		h := ready(t, nil)
		h.call("a", "write", key(k))
		h.want("a", messages.Rejected, messages.CodeInvalidArguments)
	}
	h := ready(t, nil)
	h.call("a", "write", key(strings.Repeat("é", 256)))
	h.wantStarted("a#1@1")
}

func TestKeyIndexIsBounded(t *testing.T) {
	h := ready(t, nil)
	for i := range keysMost + 10 {
		id := fmt.Sprint("c", i)
		h.call(id, "read", key(id))
		h.done(id, okReply)
	}
	if n := len(h.core.keys.known); n != keysMost {
		t.Errorf("%d keys are remembered", n)
	}
	h.pass(24 * time.Hour)
	h.call("x", "read", key("x"))
	h.done("x", okReply)
	if n := len(h.core.keys.known); n != 1 || h.core.keys.settled.Len() != 1 {
		t.Errorf("%d keys are remembered a day later", n)
	}
	h.core.keys.tidy(h.now.Add(keyLife))
	if h.core.keys.bytes != 0 {
		t.Errorf("%d bytes of nothing", h.core.keys.bytes)
	}
}

// What an earlier run did comes from the journal.
func TestPrior(t *testing.T) {
	ended := start.Add(-time.Hour)
	entry := func(edit func(*messages.JournalEntry)) func(*messages.Submit) {
		e := &messages.JournalEntry{CallID: "old", RunID: "run1", Generation: 4, Server: "fs", Tool: "write", Outcome: "ok", DispatchedAt: ended,
			SettledAt: &ended, ArgsDigest: plainDigest([]byte("{}")), Result: okReply.Raw}
		edit(e)
		return func(m *messages.Submit) { m.Prior, m.PriorServer, m.PriorTool = e, "fs", "write" }
	}
	for _, tc := range []struct {
		name string
		edit func(*messages.JournalEntry)
		kind messages.OutcomeKind
		code messages.Code
		anew bool
	}{
		{"ok", func(*messages.JournalEntry) {}, messages.OK, "", false},
		{"large", func(e *messages.JournalEntry) { e.Result, e.Dropped = nil, true }, messages.OK, "", false},
		{"tool_error", func(e *messages.JournalEntry) { e.Outcome, e.Code = "tool_error", messages.CodeToolError }, messages.ToolError, messages.CodeToolError, false},
		{"unknown", func(e *messages.JournalEntry) { e.Outcome, e.Code = "outcome_unknown", messages.CodeTimeout }, messages.OutcomeUnknown, messages.CodeTimeout, false},
		{"open", func(e *messages.JournalEntry) { e.Outcome, e.SettledAt = messages.OutcomeOpen, nil }, messages.OutcomeUnknown, messages.CodeConnectionLost, false},
		{"open in this run", func(e *messages.JournalEntry) { e.Outcome, e.SettledAt, e.RunID = messages.OutcomeOpen, nil, "run2" },
			messages.Rejected, messages.CodeOverloaded, false},
		{"conflict", func(e *messages.JournalEntry) { e.ArgsDigest = "other" }, messages.Rejected, messages.CodeIdempotencyConflict, false},
		{"not_sent", func(e *messages.JournalEntry) { e.Outcome = "not_sent" }, 0, "", true},
		{"yesterday", func(e *messages.JournalEntry) { at := start.Add(-24 * time.Hour); e.SettledAt = &at }, 0, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := journaled(t, nil)
			h.call("a", "write", key("k"), entry(tc.edit))
			if tc.anew {
				h.wantOpen("a")
				h.recorded("a", "")
				h.wantStarted("a#1@1")
				return
			}
			o := h.want("a", tc.kind, tc.code)
			if len(h.records) != 0 {
				t.Fatal("it is sent again")
			}
			if tc.kind != messages.Rejected && o.FirstID != "old" {
				t.Errorf("%+v", o)
			}
			if tc.name == "ok" && string(o.Result) != string(okReply.Raw) {
				t.Errorf("%+v", o)
			}
			h.wantIdle()
		})
	}
	t.Run("this run knows better", func(t *testing.T) {
		h := journaled(t, nil)
		h.call("a", "write", key("k"), entry(func(e *messages.JournalEntry) { e.Outcome = "not_sent" }))
		h.step(messages.Cancel{CallID: "a"})
		// Asked while it was in flight, sent after it was void.
		h.call("b", "write", key("k"), entry(func(e *messages.JournalEntry) { e.Outcome, e.RunID, e.SettledAt = messages.OutcomeOpen, "run2", nil }))
		h.recorded("b", "")
		h.wantStarted("b#1@1")
	})
}

// A call that came before its tool was known is looked up when it is.
func TestLateLookUp(t *testing.T) {
	early := func(t *testing.T) *harness {
		h := newHarness(t, func(c *Config) { c.Journal, c.RunID = true, "run2" })
		h.step(messages.ServerConfigured{Key: fs, Limits: limits()})
		h.call("a", "write", key("k"))
		h.step(messages.CatalogueChanged{Catalogue: catalogue(1, map[string]bool{"fs": true}, standard()...)})
		h.up(1)
		h.state(messages.StateReady, "")
		if len(h.finds) != 1 || h.finds[0].Key != "k" || h.finds[0].Tool != "write" || len(h.records) != 0 {
			t.Fatalf("%+v, %+v", h.finds, h.records)
		}
		return h
	}
	t.Run("found", func(t *testing.T) {
		h := early(t)
		h.step(messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true}, standard()...)})
		h.step(messages.PriorFound{CallID: "a", Token: h.finds[0].Token, Entry: &messages.JournalEntry{CallID: "old", RunID: "run1", Outcome: "open",
			DispatchedAt: start, ArgsDigest: plainDigest([]byte("{}"))}})
		h.wantShared("a", "old", messages.OutcomeUnknown, messages.CodeConnectionLost)
		if len(h.finds) != 1 {
			t.Error("asked twice")
		}
		h.wantIdle()
	})
	t.Run("nothing", func(t *testing.T) {
		h := early(t)
		h.step(messages.PriorFound{CallID: "a", Token: h.finds[0].Token})
		h.recorded("a", "")
		h.wantStarted("a#1@1")
	})
	t.Run("never answered", func(t *testing.T) {
		h := early(t)
		h.pass(time.Minute)
		if o := h.want("a", messages.NotSent, messages.CodeExpired); !strings.Contains(o.Message, "journal") {
			t.Errorf("%+v", o)
		}
		h.step(messages.PriorFound{CallID: "a", Token: h.finds[0].Token})
		h.wantIdle()
	})
}
