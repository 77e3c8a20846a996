package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

// journaled is ready with a journal.
func journaled(t testing.TB, edit func(*messages.ServerLimits)) *harness {
	h := newHarness(t, func(c *Config) { c.Journal, c.RunID = true, "run2" })
	l := limits()
	if edit != nil {
		edit(&l)
	}
	h.ready(l)
	return h
}

// recorded answers the newest record of a call; err "" means that it is durable.
func (h *harness) recorded(id, err string) {
	h.t.Helper()
	for i := len(h.records) - 1; i >= 0; i-- {
		if r := h.records[i]; r.Record.CallID == id {
			h.step(messages.Recorded{CallID: id, Attempt: r.Record.Attempt, Token: r.Token, Err: err})
			return
		}
	}
	h.t.Fatalf("no record of %s was asked for", id)
}

// wantRecords compares the outcomes that the journal heard: "call outcome/code".
func (h *harness) wantRecords(want ...string) {
	h.t.Helper()
	var got []string
	for _, o := range h.outcomes {
		got = append(got, strings.TrimSuffix(o.CallID+" "+o.Outcome.String()+"/"+string(o.Code), "/"))
	}
	if d := cmp.Diff(want, got); d != "" {
		h.t.Fatalf("outcomes in the journal (-want +got):\n%s", d)
	}
}

func TestDispatchIsRecordedFirst(t *testing.T) {
	h := journaled(t, nil)
	h.call("a", "write", func(m *messages.Submit) {
		m.ArgsDigest, m.Call.IdempotencyKey, m.PriorServer, m.PriorTool = "digest", "k", "fs", "write"
	})
	h.call("b", "write")
	h.wantStarted()
	want := messages.DispatchRecord{CallID: "a", RunID: "run2", Generation: 1, Attempt: 1, Client: "c", Server: "fs", Tool: "write",
		ArgsDigest: "digest", IdempotencyKey: "k", At: start}
	if len(h.records) != 1 {
		t.Fatalf("records %+v", h.records)
	}
	if d := cmp.Diff(want, h.records[0].Record); d != "" {
		t.Fatal(d)
	}
	if c := h.calls(); c["a"].State != messages.CallRecording || c["a"].Lane != "side_effect" || c["b"].BlockedBy[0] != "a" {
		t.Errorf("calls %+v", c)
	}
	h.pass(time.Second)
	h.recorded("a", "")
	h.wantStarted("a#1@1")
	h.pass(time.Second)
	h.done("a", okReply)
	o := h.want("a", messages.OK, "")
	if o.Queued != time.Second || o.Ran != time.Second || o.Attempt != 1 {
		t.Errorf("%+v", o)
	}
	h.wantRecords("a ok")
	if d := cmp.Diff(okReply.Raw, h.outcomes[0].Result); d != "" { // kept for the key
		t.Error(d)
	}
	h.recorded("b", "")
	h.done("b", okReply)
	if h.outcomes[1].Result != nil {
		t.Error("a result is kept that nobody can ask for")
	}
	h.wantIdle()
}

func TestReadsPassTheJournal(t *testing.T) {
	h := journaled(t, nil)
	h.call("a", "read")
	h.done("a", okReply)
	h.want("a", messages.OK, "")
	if len(h.records)+len(h.outcomes) != 0 {
		t.Error("the journal heard of a read")
	}
	h.call("p", "put") // idempotent is not read_only
	if len(h.records) != 1 {
		t.Error("an idempotent call is not recorded")
	}
}

func TestJournalFails(t *testing.T) {
	h := journaled(t, nil)
	h.call("a", "write")
	h.call("b", "write")
	h.recorded("a", "write /state/journal: no space left on device")
	o := h.want("a", messages.Rejected, messages.CodeJournalUnavailable)
	if !strings.Contains(o.Message, "no space left") || !strings.Contains(o.Hint, "free disk space") || o.Sent() || o.Attempt != 0 {
		t.Errorf("%+v", o)
	}
	h.wantRecords("a not_sent/journal_unavailable") // what may be on the disk all the same
	h.recorded("b", "")
	h.wantStarted("b#1@1")
	h.done("b", okReply)
	h.wantIdle()
}

// Every way out of recording but the record itself takes it back, at once.
func TestLeavingTheRecord(t *testing.T) {
	for _, tc := range []struct {
		name    string
		do      func(*harness)
		kind    messages.OutcomeKind
		code    messages.Code
		records string
	}{
		{"cancelled", func(h *harness) { h.step(messages.Cancel{CallID: "a"}) }, messages.NotSent, messages.CodeCancelled, "a not_sent/cancelled"},
		{"expired", func(h *harness) { h.pass(time.Minute) }, messages.NotSent, messages.CodeExpired, "a not_sent/expired"},
		{"quarantined", func(h *harness) { h.state(messages.StateQuarantined, "x") }, messages.NotSent, messages.CodeUnavailable, "a not_sent/unavailable"},
		{"drained", func(h *harness) { h.step(messages.DrainServer{Key: fs}) }, messages.NotSent, messages.CodeUnavailable, "a not_sent/unavailable"},
		{"bridge drains", func(h *harness) { h.step(messages.DrainAll{Done: make(chan struct{}, 1)}) }, messages.NotSent, messages.CodeUnavailable, "a not_sent/unavailable"},
		{"removed", func(h *harness) { h.step(messages.ServerRemoved{Key: fs}) }, messages.NotSent, messages.CodeUnavailable, "a not_sent/unavailable"},
		{"bridge stops", func(h *harness) { h.take(h.core.Close(h.now)) }, messages.NotSent, messages.CodeUnavailable, "a not_sent/unavailable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := journaled(t, nil)
			h.call("a", "write")
			tc.do(h)
			o := h.want("a", tc.kind, tc.code)
			h.wantRecords(tc.records)
			if o.Attempt != 0 || o.Generation != 0 {
				t.Errorf("%+v was never dispatched", o)
			}
			h.recorded("a", "")
			h.wantStarted()
			h.wantIdle()
			if tc.name == "bridge drains" && h.drained != 1 {
				t.Error("the drain waits for a record")
			}
		})
	}
}

// The record names the generation that is asked; another one gets another record.
func TestServerGoesWhileRecording(t *testing.T) {
	for name, again := range map[string]bool{"a new one is up": true, "nobody is up": false} {
		t.Run(name, func(t *testing.T) {
			h := journaled(t, nil)
			h.call("a", "write")
			h.down(1, true)
			if again {
				h.up(2)
			}
			h.recorded("a", "")
			h.wantStarted()
			h.wantRecords("a not_sent/unavailable")
			if !again {
				h.up(2)
			}
			h.recorded("a", "")
			h.wantStarted("a#2@2")
			if g := h.records[1].Record; g.Generation != 2 || g.Attempt != 2 {
				t.Errorf("%+v", g)
			}
			h.done("a", okReply)
			h.wantRecords("a not_sent/unavailable", "a ok")
			h.wantIdle()
		})
	}
}

func TestNotEnteredIsRecordedAgain(t *testing.T) {
	h := journaled(t, remote)
	h.call("a", "write")
	h.recorded("a", "")
	h.done("a", messages.Reply{Kind: messages.ReplyNotEntered, Err: "refused"})
	h.wantRecords("a not_sent/unavailable")
	h.recorded("a", "")
	h.wantStarted("a#1@1", "a#2@1")
	h.done("a", okReply)
	h.wantRecords("a not_sent/unavailable", "a ok")
}

// A repetition that is not sent leaves the entry open: the first attempt may have
// been.
func TestRepetitionIsNotTakenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*harness)
		code messages.Code
	}{
		"cancelled":     {func(h *harness) { h.step(messages.Cancel{CallID: "a"}) }, messages.CodeCancelled},
		"journal fails": {func(h *harness) { h.recorded("a", "EIO") }, messages.CodeConnectionLost},
		"expired":       {func(h *harness) { h.pass(time.Minute) }, messages.CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			h := journaled(t, nil)
			h.call("a", "put")
			h.recorded("a", "")
			h.done("a", messages.Reply{Kind: messages.ReplyLost, Err: "eof"})
			h.down(1, true)
			h.up(2)
			h.wantRecords()
			tc.do(h)
			if o := h.want("a", messages.OutcomeUnknown, tc.code); o.Attempt != 1 || o.Generation != 1 {
				t.Errorf("%+v", o)
			}
			h.wantRecords(strings.TrimSuffix("a outcome_unknown/"+string(tc.code), "/"))
			h.wantIdle()
		})
	}
}

// The answer to the record of a call that is over must not let another one through
// that has its id.
func TestStaleRecord(t *testing.T) {
	h := journaled(t, nil)
	h.call("a", "write")
	old := h.records[0]
	h.step(messages.Cancel{CallID: "a"})
	delete(h.settled, "a")
	h.call("a", "write")
	h.step(messages.Recorded{CallID: "a", Attempt: 1, Token: old.Token})
	h.wantStarted()
	h.recorded("a", "")
	h.wantStarted("a#1@1")
}

func TestOutcomesInTheJournal(t *testing.T) {
	h := journaled(t, nil)
	h.call("a", "write", timeout(time.Second))
	h.recorded("a", "")
	h.enter("a")
	h.pass(time.Second)
	h.wantRecords("a outcome_unknown/timeout")
	h.done("a", okReply) // late: the outcome stands
	h.wantRecords("a outcome_unknown/timeout")
	h.call("b", "write")
	h.recorded("b", "")
	h.step(messages.Cancel{CallID: "b"}) // handed out, and void
	h.wantRecords("a outcome_unknown/timeout", "b not_sent/cancelled")
	h.down(1, true)
	h.wantIdle()
}

func TestLateReplyOfAForgottenCall(t *testing.T) {
	h := ready(t, nil)
	h.call("a", "hint", timeout(time.Second))
	h.enter("a")
	e := h.last("a")
	h.down(1, true)
	h.want("a", messages.OutcomeUnknown, messages.CodeConnectionLost)
	h.step(messages.CallDone{Key: e.Key, Gen: e.Gen, CallID: "a", Attempt: 1, Reply: okReply})
	if h.saw(messages.EventReplyLate, "a") != 1 {
		t.Error("the late reply is not counted")
	}
}

func TestFenceAtStart(t *testing.T) {
	fence := func(until time.Duration) messages.FenceAtStart {
		m := messages.FenceAtStart{Key: fs, CallID: "old", Tool: "write", Client: "c", At: start.Add(-time.Minute)}
		if until != 0 {
			m.Until = start.Add(until)
		}
		return m
	}
	t.Run("before the server is known", func(t *testing.T) {
		h := newHarness(t, nil)
		h.step(fence(30 * time.Second))
		l := limits()
		l.Remote = true
		h.ready(l)
		h.call("r", "read")
		h.call("a", "write")
		h.wantStarted() // exclusive: the read waits as well
		if c := h.calls(); c["old"].State != messages.CallFenced || c["old"].Client != "c" || c["r"].BlockedBy[0] != "old" {
			t.Errorf("%+v", c)
		}
		h.pass(30 * time.Second)
		h.wantStarted("r#1@1")
		if h.saw(messages.EventPossibleOverlap, "old") != 1 || h.saw(messages.EventLaneHeld, "old") != 1 {
			t.Errorf("%v", h.events)
		}
		h.done("r", okReply)
		h.done("a", okReply)
		h.wantIdle()
	})
	t.Run("no incarnation of this run is its own", func(t *testing.T) {
		h := ready(t, remote)
		h.step(fence(30 * time.Second))
		h.call("a", "write")
		h.down(1, true)
		h.up(2)
		h.wantStarted()
	})
	t.Run("for ever ends when the server is stopped", func(t *testing.T) {
		h := ready(t, remote)
		h.step(fence(0))
		h.call("a", "write", timeout(50*time.Second))
		h.pass(time.Hour)
		h.want("a", messages.NotSent, messages.CodeExpired)
		h.state(messages.StateStopped, "")
		h.wantIdle()
	})
	t.Run("over before it came", func(t *testing.T) {
		h := ready(t, remote)
		h.pass(time.Minute)
		h.step(fence(30 * time.Second))
		h.wantIdle()
	})
}
