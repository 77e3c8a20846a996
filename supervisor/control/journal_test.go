package control

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

func TestJournal(t *testing.T) {
	f := newFake("fs")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	entry := messages.JournalEntry{CallID: "cli-1", RunID: "r", Generation: 7, Client: "local", Server: "fs", Tool: "write", IdempotencyKey: `k "ü/&`,
		Outcome: messages.OutcomeOpen, DispatchedAt: at}
	type asked struct {
		id    string
		limit int
	}
	var last asked
	var broken error
	f.journal = func(id string, limit int) ([]messages.JournalEntry, error) {
		if last = (asked{id, limit}); id == "unknown" {
			return nil, broken
		}
		return []messages.JournalEntry{entry}, broken
	}
	c := serve(t, f)

	got, err := c.Journal(t.Context(), "", 0)
	if err != nil || !got.Complete || len(got.Doubts) != 0 || last != (asked{"", 0}) {
		t.Errorf("%+v, %v, asked %+v", got, err, last)
	}
	if d := cmp.Diff([]messages.JournalEntry{entry}, got.Entries); d != "" {
		t.Error(d)
	}
	if _, err := c.Journal(t.Context(), entry.IdempotencyKey, JournalMost); err != nil || last != (asked{entry.IdempotencyKey, JournalMost}) {
		t.Errorf("%v, asked %+v", err, last)
	}
	if got, err := c.Journal(t.Context(), "unknown", 1); err != nil || got.Entries == nil || len(got.Entries) != 0 || !got.Complete {
		t.Errorf("unknown: %+v, %v", got, err)
	}
	for _, q := range []url.Values{{"n": {"0"}}, {"n": {"1001"}}, {"n": {"all"}}, {"id": {""}}} {
		apiError(t, c.get(t.Context(), "GET", "/v1/journal", q, nil, &got), CodeBadRequest)
	}

	// How far back it reaches is told, and that it is damaged, whatever else is known.
	f.locked(func() { f.since, f.damaged = at, true })
	if got, err := c.Journal(t.Context(), "", 0); err != nil || got.Since == nil || !got.Since.Equal(at) || got.Complete {
		t.Errorf("%+v, %v", got, err)
	}
	f.locked(func() { f.since, f.damaged = time.Time{}, false })

	// What makes "no entry" prove less is told; a warning that proves as much is not.
	f.locked(func() {
		f.cfg.Journal.Fsync = "interval"
		f.status.Issues = []messages.Issue{
			{Path: "journal", File: "j/1", Severity: messages.SeverityError, Message: "bytes 1 to 2 are unreadable"},
			{Path: "journal", Severity: messages.SeverityWarning, Message: "was not closed"},
			{Path: "listen", Severity: messages.SeverityError, Message: "elsewhere"},
		}
	})
	got, err = c.Journal(t.Context(), "unknown", 0)
	want := []string{"j/1: bytes 1 to 2 are unreadable", "journal.fsync is interval: records may be missing if the machine itself went down"}
	if d := cmp.Diff(want, got.Doubts); err != nil || got.Complete || d != "" {
		t.Errorf("%v\n%s", err, d)
	}

	broken = errors.New("disk on fire")
	_, err = c.Journal(t.Context(), "", 0)
	if e := apiError(t, err, CodeNoJournal); !strings.Contains(e.Message, "disk on fire") || e.Hint == "" {
		t.Errorf("%+v", e)
	}
}

func TestIdempotencyKeyReachesTheBridge(t *testing.T) {
	f := newFake("fs")
	var got string
	f.call = func(_ context.Context, c messages.CallTool) messages.Outcome {
		got = c.IdempotencyKey
		return messages.Outcome{CallID: c.ID, FirstID: "cli-0", Kind: messages.OK, Message: "this is the outcome of call cli-0"}
	}
	c := serve(t, f)
	out, err := c.Call(t.Context(), CallRequest{ID: "cli-1", Tool: "fs/write", IdempotencyKey: "k"}, nil)
	if err != nil || got != "k" || out.FirstID != "cli-0" || out.Message == "" {
		t.Errorf("%+v, %v, key %q", out, err, got)
	}
	_, err = c.Call(t.Context(), CallRequest{Tool: "fs/write", IdempotencyKey: "a\nb"}, nil)
	apiError(t, err, CodeBadRequest)
}

func TestCheckKey(t *testing.T) {
	tests := map[string]bool{
		"k": true, "order 17/ü": true, strings.Repeat("ü", 256): true,
		"": false, strings.Repeat("k", 257): false, "a\tb": false, "a\x1b": false, "a\u202eb": false, "a\xff": false,
	}
	for key, ok := range tests {
		if err := CheckKey(key); (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
	}
}
