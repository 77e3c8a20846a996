package actors

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// paperJournal answers by the test's hand.
type paperJournal struct {
	records  chan messages.DispatchRecord
	answers  chan error
	mu       sync.Mutex
	outcomes []messages.OutcomeRecord
	found    *messages.JournalEntry
}

func newPaperJournal() *paperJournal {
	return &paperJournal{records: make(chan messages.DispatchRecord, 64), answers: make(chan error, 64)}
}

func (j *paperJournal) Dispatch(r messages.DispatchRecord, done func(error)) {
	if r.ArgsDigest == "bug" {
		panic("planted")
	}
	j.records <- r
	go func() { done(<-j.answers) }()
}

func (j *paperJournal) Outcome(r messages.OutcomeRecord) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.outcomes = append(j.outcomes, r)
}

func (j *paperJournal) Find(_, _, _, _ string) (messages.JournalEntry, bool) {
	if j.found == nil {
		return messages.JournalEntry{}, false
	}
	return *j.found, true
}

func TestRouterJournal(t *testing.T) {
	j := newPaperJournal()
	r := newRouterTestWith(t, nil, func(c *RouterConfig) { c.Journal, c.RunID, c.Digest = j, "run", NewDigest([]byte("secret")) })
	r.up()

	reply := r.call(messages.CallTool{ID: "a", Tool: "fs/write", Args: json.RawMessage(`{"n":1}`)})
	rec := receive(t, j.records, "record")
	if rec.CallID != "a" || rec.RunID != "run" || rec.ArgsDigest != NewDigest([]byte("secret"))([]byte(`{ "n": 1 }`)) {
		t.Errorf("%+v", rec)
	}
	select {
	case e := <-r.execs:
		t.Fatalf("%+v before its record is durable", e)
	default:
	}
	j.answers <- nil
	r.answer(receive(t, r.execs, "execute"))
	if o := receive(t, reply, "outcome"); o.Kind != messages.OK {
		t.Errorf("%+v", o)
	}

	reply = r.call(messages.CallTool{ID: "b", Tool: "fs/write"})
	receive(t, j.records, "record")
	j.answers <- errors.New("no space left on device")
	if o := receive(t, reply, "outcome"); o.Code != messages.CodeJournalUnavailable {
		t.Errorf("%+v", o)
	}

	bug := make(chan messages.Outcome, 1)
	r.send(messages.Submit{Call: messages.CallTool{ID: "c", Tool: "fs/write"}, ArgsDigest: "bug", Reply: bug})
	if o := receive(t, bug, "outcome"); o.Code != messages.CodeJournalUnavailable {
		t.Errorf("%+v", o)
	}

	reply = r.call(messages.CallTool{ID: "d", Tool: "fs/read"})
	r.answer(receive(t, r.execs, "execute"))
	receive(t, reply, "outcome")

	j.found = &messages.JournalEntry{CallID: "old", RunID: "before", Outcome: messages.OutcomeOpen, DispatchedAt: rec.At,
		ArgsDigest: NewDigest([]byte("secret"))([]byte("{}"))}
	reply = r.call(messages.CallTool{ID: "e", Tool: "fs/write", IdempotencyKey: "k"}) // the caller did not ask
	if o := receive(t, reply, "outcome"); o.Kind != messages.OutcomeUnknown || o.FirstID != "old" {
		t.Errorf("%+v", o)
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	var got []string
	for _, o := range j.outcomes {
		got = append(got, o.CallID+" "+o.Outcome.String())
	}
	if want := []string{"a ok", "b not_sent", "c not_sent"}; !slices.Equal(got, want) {
		t.Errorf("the journal heard %q, want %q", got, want)
	}
}

func TestDigest(t *testing.T) {
	d := NewDigest([]byte("k"))
	same := d([]byte(`{"a":1,"b":[true,"x"]}`))
	for _, s := range []string{`{ "b" : [true, "x"], "a":1}`, `{"b":[true,"\u0078"],"a":1}`} {
		if d([]byte(s)) != same {
			t.Errorf("%s differs", s)
		}
	}
	for _, s := range []string{`{"a":1.0,"b":[true,"x"]}`, `{"a":1}`, `{`, ``} {
		if d([]byte(s)) == same {
			t.Errorf("%s is the same", s)
		}
	}
	if NewDigest([]byte("other"))([]byte(`{"a":1,"b":[true,"x"]}`)) == same {
		t.Error("the key does not matter")
	}
}

func TestLaneKeysOfTools(t *testing.T) {
	g := NewGate(&config.Config{Servers: []config.Server{{Name: "fs", LaneKey: map[string]string{
		"*": "args.id", "write_*": "args.path", "write_b": "args.to.path"}, Abandon: map[string]string{"job": "never"}}}})
	for tool, want := range map[string]string{"write_a": "path", "write_b": "to.path", "other": "id"} {
		if got := g.limits("fs", tool).LaneKey; got != want {
			t.Errorf("%s: %q, want %q", tool, got, want)
		}
	}
	if g.limits("db", "write_a").LaneKey != "" || !g.AbandonNever("fs", "job") || g.AbandonNever("fs", "other") {
		t.Error("limits of another server or tool")
	}
	tool := messages.Tool{Server: "fs", RemoteName: "write_b", Limits: g.limits("fs", "write_b")}
	if got := g.LaneKey(tool, []byte(`{"to":{"path":"x"}}`)); got != `"x"` {
		t.Errorf("%q", got)
	}
	tool.Effect = messages.ReadOnly
	if got := g.LaneKey(tool, []byte(`{"to":{"path":"x"}}`)); got != "" {
		t.Errorf("a read has the lane of %q", got)
	}
}
