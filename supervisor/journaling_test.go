package supervisor

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/actors"
	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/journal"
)

// Only what may still be worked on, and cannot be proven over, is held at start.
func TestFencesAtStart(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cfg := &config.Config{Servers: []config.Server{
		{Name: "web", Type: config.HTTP, URL: "http://x", Timeouts: config.Timeouts{AbandonAfter: 30 * time.Second}, Abandon: map[string]string{"job": "never"}},
		{Name: "fs", Type: config.Stdio, Command: "x", Timeouts: config.Timeouts{AbandonAfter: 30 * time.Second}},
	}}
	settled := now.Add(-10 * time.Second)
	entry := func(id, server, tool, outcome string, remote bool) messages.JournalEntry {
		e := messages.JournalEntry{CallID: id, Server: server, Tool: tool, Client: "c", Outcome: outcome, Remote: remote, DispatchedAt: now.Add(-time.Hour)}
		if outcome != messages.OutcomeOpen {
			e.SettledAt = &settled
		}
		return e
	}
	j := journaling{open: []messages.JournalEntry{
		entry("a", "web", "write", messages.OutcomeOpen, true),
		entry("b", "web", "job", messages.OutcomeOpen, true),
		entry("c", "fs", "write", messages.OutcomeOpen, false),
		entry("d", "gone", "write", messages.OutcomeOpen, true),
		entry("e", "web", "write", "ok", true),
		entry("f", "web", "write", "outcome_unknown", true),
		entry("g", "web", "job", "outcome_unknown", true),
	}}
	fence := func(id, tool string, until time.Time) messages.FenceAtStart {
		return messages.FenceAtStart{Key: messages.Key{Server: "web"}, CallID: id, Tool: tool, Client: "c", At: now.Add(-time.Hour), Until: until}
	}
	want := []messages.FenceAtStart{
		fence("a", "write", now.Add(30*time.Second)), fence("b", "job", time.Time{}), fence("f", "write", now.Add(20*time.Second)),
	}
	if d := cmp.Diff(want, j.fences(cfg, actors.NewGate(cfg), now)); d != "" {
		t.Error(d)
	}
}

// memoryJournal is a journal that forgets with the process.
type memoryJournal struct {
	mu      sync.Mutex
	entries []messages.JournalEntry
}

func (j *memoryJournal) Dispatch(r messages.DispatchRecord, done func(error)) {
	j.mu.Lock()
	j.entries = append(j.entries, messages.JournalEntry{CallID: r.CallID, RunID: r.RunID, Generation: r.Generation, Client: r.Client, Server: r.Server,
		Tool: r.Tool, IdempotencyKey: r.IdempotencyKey, Outcome: messages.OutcomeOpen, DispatchedAt: r.At, ArgsDigest: r.ArgsDigest, Remote: r.Remote})
	j.mu.Unlock()
	done(nil)
}

func (j *memoryJournal) Outcome(r messages.OutcomeRecord) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.entries {
		if e := &j.entries[i]; e.CallID == r.CallID {
			at := r.At
			e.Outcome, e.Code, e.SettledAt, e.Result, e.RPCError, e.Dropped = r.Outcome.String(), r.Code, &at, r.Result, r.RPCError, r.Dropped
		}
	}
}

func (j *memoryJournal) Find(client, server, tool, key string) (messages.JournalEntry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range slices.Backward(j.entries) {
		if e.Client == client && e.Server == server && e.Tool == tool && e.IdempotencyKey == key {
			return e, true
		}
	}
	return messages.JournalEntry{}, false
}

// A key holds over the end of a bridge, and so does what it says about an open call.
func TestKeysOutliveTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, digest := &memoryJournal{}, actors.NewDigest([]byte("k"))
		cfg := fakeConfig("fs")
		cfg.Servers[0].Effects = map[string]messages.Effect{"echo": messages.SideEffect}
		call := echo("fs")
		call.IdempotencyKey = "k1"
		var first messages.Outcome
		for run := range 3 {
			b := openFakes(t, newFakes(nil), cfg, WithStartupWait(10*time.Second), WithJournal(j, digest, nil))
			out := b.Call(background, call)
			switch run {
			case 0:
				first = out
				if out.Kind != messages.OK || out.FirstID != "" {
					t.Errorf("%+v", out)
				}
			case 1:
				if out.Kind != messages.OK || out.FirstID != first.CallID || out.Text() != first.Text() {
					t.Errorf("%+v", out)
				}
				j.entries[0].Outcome, j.entries[0].SettledAt = messages.OutcomeOpen, nil // as after a kill
			case 2:
				if out.Kind != messages.OutcomeUnknown || out.FirstID != first.CallID {
					t.Errorf("%+v", out)
				}
				other := call
				other.Args = []byte(`{"a":2}`)
				if out := b.Call(background, other); out.Code != messages.CodeIdempotencyConflict {
					t.Errorf("%+v", out)
				}
			}
			closeBridge(t, b)
		}
		if len(j.entries) != 1 {
			t.Errorf("%d dispatches under one key", len(j.entries))
		}
	})
}

// What an earlier run left open is never shown as in flight, however long the disk takes
// to write that it is over.
func TestEarlierRunsAreOver(t *testing.T) {
	dir := t.TempDir()
	var stores []*journal.Journal
	open := func(run string) *journal.Journal {
		s, err := journal.Open(journal.Options{Dir: dir, RunID: run, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
		done := make(chan error, 1)
		s.Dispatch(messages.DispatchRecord{CallID: "call-" + run, Client: "c", Server: "s", Tool: "t", IdempotencyKey: "k-" + run, At: time.Now()}, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := open("a").Close(); err != nil {
		t.Fatal(err)
	}
	b := &Bridge{runID: "b", journaling: journaling{store: open("b")}}
	for _, ask := range []string{"", "call-a", "k-a", "call-b", "k-b"} {
		list, err := b.JournalEntries(ask, 0)
		if err != nil || len(list) == 0 {
			t.Fatalf("%q: %v, %v", ask, list, err)
		}
		for _, e := range list {
			want := messages.OutcomeOpen
			if e.RunID == "a" {
				want = messages.OutcomeUnknown.String()
			}
			if e.Outcome != want || e.RunID == "a" && e.Code != messages.CodeConnectionLost {
				t.Errorf("%q: %s of run %s is %s/%s", ask, e.CallID, e.RunID, e.Outcome, e.Code)
			}
		}
	}
	if since, damaged := b.JournalReach(); !since.IsZero() || damaged {
		t.Errorf("since %s, damaged %t", since, damaged)
	}
	if err := stores[1].Close(); err != nil {
		t.Error(err)
	}
}

// S09: a clock that was set back between two lives holds no lane for longer than
// abandon_after, and one that was set forward none that is open for less.
func TestClockJumps(t *testing.T) {
	const after = 30 * time.Second
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cfg := &config.Config{Servers: []config.Server{{Name: "web", Type: config.HTTP, URL: "http://x", Timeouts: config.Timeouts{AbandonAfter: after}}}}
	for _, jump := range []time.Duration{-time.Hour, -time.Second, 0, time.Second, time.Hour} {
		settled := now.Add(-jump)
		entry := messages.JournalEntry{Server: "web", Tool: "write", Remote: true, DispatchedAt: settled, SettledAt: &settled}
		given, open := entry, entry
		given.CallID, given.Outcome = "given up", messages.OutcomeUnknown.String()
		open.CallID, open.Outcome, open.SettledAt = "open", messages.OutcomeOpen, nil
		j := journaling{open: []messages.JournalEntry{given, open}}
		until := map[string]time.Duration{}
		for _, f := range j.fences(cfg, actors.NewGate(cfg), now) {
			until[f.CallID] = f.Until.Sub(now)
		}
		want := map[string]time.Duration{"open": after}
		if left := after - max(jump, 0); left > 0 {
			want["given up"] = left
		}
		if d := cmp.Diff(want, until); d != "" {
			t.Errorf("the clock jumped by %s: %s", jump, d)
		}
	}
}
