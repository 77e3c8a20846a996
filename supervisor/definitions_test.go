package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpbridge/actors/upstream"
	"mcpbridge/config"
	"mcpbridge/messages"
)

func listingOf(raws ...string) messages.Listing {
	var list []json.RawMessage
	for _, r := range raws {
		list = append(list, json.RawMessage(r))
	}
	return messages.Listing{Tools: upstream.Adapt("s", list), Discovered: len(raws) + 1,
		Issues: []messages.Issue{{Stage: messages.StageAdaptTool, Server: "s", Message: "one was dropped"}}, Truncated: true}
}

const oddEntry = `{"vendor":9007199254740993,"name":"a","description":"<&> é","inputSchema":{"type":"object","x":1.0},"annotations":{"readOnlyHint":true}}`

func TestDefinitionsAreKept(t *testing.T) {
	dir := t.TempDir()
	s := config.Server{Name: "s", Command: "x", Env: map[string]string{"TOKEN": "secret"}}
	d := openDefinitions(dir, slog.New(slog.DiscardHandler))
	if got, issue := d.load(s); got != nil || issue != nil {
		t.Fatalf("of nothing: %v %v", got, issue)
	}
	want := listingOf(oddEntry, `{"name":"b"}`)
	d.save(s, want, "words")
	d.flush()
	got, issue := openDefinitions(dir, slog.New(slog.DiscardHandler)).load(s)
	if issue != nil || got == nil {
		t.Fatal(issue)
	}
	l := got.listing
	if got.instructions != "words" || l.Discovered != 3 || !l.Truncated || len(l.Issues) != 1 || len(l.Tools) != 2 || l.StoredAt.IsZero() || time.Since(l.StoredAt) > time.Hour {
		t.Errorf("%+v", got)
	}
	for i := range want.Tools {
		if string(l.Tools[i].Raw) != string(want.Tools[i].Raw) || l.Tools[i].Description != want.Tools[i].Description || string(l.Tools[i].InputSchema) != string(want.Tools[i].InputSchema) {
			t.Errorf("%+v\nwant %+v", l.Tools[i], want.Tools[i])
		}
	}
	if l.Tools[0].Hints.ReadOnly == nil {
		t.Error("the hints are lost")
	}
	for name, other := range map[string]config.Server{
		"name": {Name: "t", Command: "x", Env: s.Env}, "command": {Name: "s", Command: "y", Env: s.Env}, "env": {Name: "s", Command: "x"},
		"url": {Name: "s", URL: "x", Env: s.Env}, "args": {Name: "s", Command: "x", Args: []string{""}, Env: s.Env},
	} {
		if got, _ := d.load(other); got != nil {
			t.Errorf("an entry with another %s is taken for the same", name)
		}
	}
}

// TestDefinitionsAreWrittenOnce: the same list again costs no write.
func TestDefinitionsAreWrittenOnce(t *testing.T) {
	dir, s := t.TempDir(), config.Server{Name: "s"}
	d := openDefinitions(dir, slog.New(slog.DiscardHandler))
	d.save(s, listingOf(oddEntry), "")
	d.flush()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.path(s), old, old); err != nil {
		t.Fatal(err)
	}
	changed := func() bool {
		fi, err := os.Stat(d.path(s))
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(fi.ModTime()) < 30*time.Minute
	}
	d.save(s, listingOf(oddEntry), "")
	d.flush()
	if changed() {
		t.Error("the same list was written again")
	}
	again := openDefinitions(dir, slog.New(slog.DiscardHandler))
	again.load(s)
	again.save(s, listingOf(oddEntry), "")
	again.flush()
	if changed() {
		t.Error("the same list was written again by the next run")
	}
	for i := range 50 { // the newest wins
		again.save(s, listingOf(fmt.Sprintf(`{"name":"n%d"}`, i)), "")
	}
	again.flush()
	if got, _ := d.load(s); got == nil || got.listing.Tools[0].Name != "n49" {
		t.Errorf("%+v", got)
	}
}

func TestDefinitionsAreBounded(t *testing.T) {
	var log bytes.Buffer
	dir, s := t.TempDir(), config.Server{Name: "s"}
	d := openDefinitions(dir, slog.New(slog.NewTextHandler(&log, nil)))
	d.max = 1 << 20
	d.save(s, listingOf(`{"name":"a","description":"`+strings.Repeat("x", 1<<20)+`"}`), "")
	d.flush()
	if _, err := os.Stat(d.path(s)); err == nil || !strings.Contains(log.String(), "too big") {
		t.Errorf("%v %s", err, log.String())
	}
	if err := os.WriteFile(d.path(s), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.path(s), d.max+1); err != nil {
		t.Fatal(err)
	}
	if got, issue := d.load(s); got != nil || issue == nil {
		t.Errorf("a file over the bound: %v %v", got, issue)
	}
}

func TestDefinitionsPrune(t *testing.T) {
	dir, used, unused := t.TempDir(), config.Server{Name: "used"}, config.Server{Name: "unused"}
	d := openDefinitions(dir, slog.New(slog.DiscardHandler))
	for _, s := range []config.Server{used, unused} {
		d.save(s, listingOf(`{"name":"a"}`), "")
	}
	d.flush()
	left := func() (n int) {
		files, _ := filepath.Glob(filepath.Join(dir, definitionsDir, "*.json"))
		return len(files)
	}
	d.prune([]config.Server{used}, time.Now())
	if left() != 2 {
		t.Errorf("%d files: one that was used lately is gone", left())
	}
	d.prune([]config.Server{used}, time.Now().Add(definitionsKept+time.Hour))
	if _, issue := d.load(used); left() != 1 || issue != nil {
		t.Errorf("%d files, %v", left(), issue)
	}
	if _, err := os.Stat(filepath.Join(dir, definitionsDir, definitionsKey)); err != nil {
		t.Error("the key is gone")
	}
}

// TestDefinitionsWithoutAPlace: what cannot be kept is no failure.
func TestDefinitionsWithoutAPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file} {
		d := openDefinitions(dir, slog.New(slog.DiscardHandler))
		d.save(config.Server{Name: "s"}, listingOf(`{"name":"a"}`), "")
		d.flush()
		if got, issue := d.load(config.Server{Name: "s"}); got != nil || issue != nil {
			t.Errorf("%q: %v %v", dir, got, issue)
		}
		d.prune(nil, time.Now())
	}
}

func TestClipWords(t *testing.T) {
	if got := clipWords(strings.Repeat("é", maxInstructions)); len(got) > maxInstructions || !strings.HasSuffix(got, "…") || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-6:])
	}
	if clipWords("short") != "short" {
		t.Error("a short text is changed")
	}
}
