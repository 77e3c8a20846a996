package consent

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"mcpbridge/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func open(t testing.TB, dir string) *Store {
	t.Helper()
	return Open(dir, slog.New(slog.DiscardHandler))
}

func closed(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func entry(name, place, text string) Entry { return Entry{name, place, []byte(text)} }

func TestServers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "consent")
	s := open(t, dir)
	e := entry("fs", "/work\nfs", `{"command":"secret-command"}`)
	if s.Approved(e) {
		t.Error("approved from the start")
	}
	id := s.ID(e)
	s.Approve(e, now)
	closed(t, s)
	if len(s.Issues()) != 0 {
		t.Errorf("issues: %v", s.Issues())
	}
	b, err := os.ReadFile(filepath.Join(dir, "servers.json"))
	if err != nil || bytes.Contains(b, []byte("secret-command")) {
		t.Errorf("%v %s", err, b)
	}
	if fi, err := os.Stat(filepath.Join(dir, "servers.json")); err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	s = open(t, dir)
	if !s.Approved(e) || s.ID(e) != id {
		t.Error("not approved in the next life, or under another id")
	}
	for _, other := range []Entry{
		entry("fs", "/work\nfs", `{"command":"secret-command "}`), entry("fs", "/work2\nfs", `{"command":"secret-command"}`),
		entry("fs", "/work\nfs{", `"command":"secret-command"}`), entry("fs", "", ""),
	} {
		if s.Approved(other) || s.ID(other) == id {
			t.Errorf("%q counts as approved, or has its id", other)
		}
	}
	// A newer yes replaces the older one: what was approved long ago does not come back.
	s.Approve(entry("fs", "/work\nfs", `{"command":"new"}`), now)
	if s.Approved(e) {
		t.Error("the entry before counts still")
	}
	closed(t, s)
}

// TestDamagedServers: every file that is not whole agrees to nothing, is told, and is
// kept aside.
func TestDamagedServers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "consent")
	e := entry("fs", "/work\nfs", "{}")
	s := open(t, dir)
	s.Approve(e, now)
	closed(t, s)
	file := filepath.Join(dir, "servers.json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string) {
		t.Helper()
		s := open(t, dir)
		defer closed(t, s)
		if s.Approved(e) {
			t.Errorf("%s: approved", name)
		}
		if len(s.Issues()) != 1 {
			t.Errorf("%s: issues %v", name, s.Issues())
		}
	}
	for at := 0; at < len(whole)-1; at++ { // without the line's end it is whole
		if err := os.WriteFile(file, whole[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		if at < len(bytes.TrimSpace(whole)) {
			check("cut at " + string(rune('0'+at%10)))
		}
	}
	for name, content := range map[string]string{"no JSON": "x", "a list": "[]", "another version": `{"version":2}`, "a short key": `{"version":1,"key":"AAAA"}`} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		check(name)
	}
	if runtime.GOOS != "windows" {
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o666); err != nil {
			t.Fatal(err)
		}
		check("writable by others")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(dir, "other")
		if err := os.WriteFile(other, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, file); err != nil {
			t.Fatal(err)
		}
		check("a link")
	}
	s = open(t, dir)
	s.Approve(e, now)
	closed(t, s)
	if len(s.Issues()) != 0 || !open(t, dir).Approved(e) {
		t.Errorf("after a new yes: %v", s.Issues())
	}
	if _, err := os.Lstat(file + ".damaged"); err != nil {
		t.Error(err)
	}
}

// TestUnwritable: what cannot be saved counts, and is told.
func TestUnwritable(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "consent")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	s := open(t, dir)
	e := entry("fs", "p", "{}")
	s.Approve(e, now)
	if err := s.Close(); err == nil {
		t.Error("nothing failed")
	}
	if !s.Approved(e) || len(s.Issues()) == 0 {
		t.Errorf("approved %v, issues %v", s.Approved(e), s.Issues())
	}
}

func TestGrants(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "consent")
	s := open(t, dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	good := messages.CallGrant{Client: "local", Server: "fs", Tool: "write", Args: "a", Until: now.Add(time.Minute)}
	list := []messages.CallGrant{good, {Client: "late", Until: now}, {Client: "for ever", Until: now.Add(48 * time.Hour)}}
	if err := s.KeepGrants(list); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]messages.CallGrant{good}, s.TakeGrants(now)); d != "" {
		t.Error(d)
	}
	if again := s.TakeGrants(now); len(again) != 0 {
		t.Errorf("given twice: %v", again)
	}
	if err := os.WriteFile(filepath.Join(dir, "grants.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if broken := s.TakeGrants(now); len(broken) != 0 {
		t.Errorf("from a damaged file: %v", broken)
	}
	closed(t, s)
}

func def(tool, text string) messages.Definition {
	b, err := json.Marshal(map[string]string{"name": tool, "description": text})
	if err != nil {
		panic(err)
	}
	return messages.Definition{Tool: tool, Digest: tool + ":" + text, Text: b}
}

// TestPinModel holds the pins of one server against a map, over lives of the bridge.
func TestPinModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "pins")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s := Open(dir, slog.New(slog.DiscardHandler))
		defer func() { _ = s.Close() }()
		pinned := map[string]messages.Definition{}
		var last []messages.Definition
		kind := func(d messages.Definition, listed map[string]bool) messages.ChangeKind {
			was, ok := pinned[d.Tool]
			switch {
			case ok && was.Digest == d.Digest:
				return messages.Unchanged
			case ok:
				return messages.Changed
			}
			for tool, p := range pinned {
				if !listed[tool] && nameless(p) == nameless(d) {
					return messages.Renamed
				}
			}
			return messages.Unchanged
		}
		observe := func(takeOver bool) {
			listed := map[string]bool{}
			want := map[string]messages.ChangeKind{}
			for _, d := range last {
				listed[d.Tool] = true
			}
			before := map[string]messages.Definition{}
			for _, d := range last {
				if k := kind(d, listed); k != messages.Unchanged && !takeOver {
					want[d.Tool] = k
				} else {
					before[d.Tool] = d
				}
			}
			for tool, d := range before {
				pinned[tool] = d
			}
			got := map[string]messages.ChangeKind{}
			for tool, c := range s.Pins().Observe("fs", last, takeOver, now) {
				got[tool] = c.Kind
			}
			if d := cmp.Diff(want, got); d != "" {
				rt.Fatalf("changes (-want +got):\n%s", d)
			}
			names := map[string]string{}
			for _, d := range last {
				names[d.Tool] = "fs__" + d.Tool
			}
			s.Pins().Hold("fs", nil, names)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"list": func(t *rapid.T) {
				last = nil
				for _, tool := range []string{"a", "b", "c"} {
					if text := rapid.SampledFrom([]string{"", "one", "two", "three"}).Draw(t, tool); text != "" {
						last = append(last, def(tool, text))
					}
				}
				observe(rapid.IntRange(0, 9).Draw(t, "takeOver") == 0)
			},
			"decide": func(t *rapid.T) {
				all := s.Pins().Changes(false)
				if len(all) == 0 {
					return
				}
				c := rapid.SampledFrom(all).Draw(t, "change")
				yes := rapid.Bool().Draw(t, "yes")
				if _, ok := s.Pins().Decide(c.ID, yes, now); !ok {
					t.Fatalf("%s is listed and not known", c.ID)
				}
				if yes {
					if c.Kind == messages.Renamed {
						delete(pinned, c.Before.Tool)
					}
					pinned[c.After.Tool] = c.After
					if _, again := s.Pins().Decide(c.ID, yes, now); again {
						t.Fatal("an id counts twice")
					}
				}
				observe(false)
			},
			"next life": func(t *rapid.T) {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = Open(dir, slog.New(slog.DiscardHandler))
				observe(false)
			},
		})
	})
}

// TestPinBounds: a server that lists ever new names, or huge definitions, costs a
// bounded amount, and what is beyond it is not taken for seen.
func TestPinBounds(t *testing.T) {
	p := open(t, "").Pins()
	big := messages.Definition{Tool: "big", Digest: "x", Text: json.RawMessage(`"` + string(bytes.Repeat([]byte("x"), maxText)) + `"`)}
	p.Observe("fs", []messages.Definition{big}, false, now)
	if got := p.of("fs").pinned["big"]; got.Digest != "x" || got.Text != nil {
		t.Errorf("%d bytes of a large definition are kept", len(got.Text))
	}
	big.Digest = "y"
	if c := p.Observe("fs", []messages.Definition{big}, false, now)["big"]; c.Kind != messages.Changed {
		t.Errorf("a large definition that changed is %q", c.Kind)
	}
	for round := range 3 {
		var list []messages.Definition
		for i := range maxPins / 2 {
			name := string(rune('a'+round)) + "-" + time.Duration(i).String()
			list = append(list, messages.Definition{Tool: name, Digest: name, Text: json.RawMessage(`{"description":"` + name + `"}`)})
		}
		changes := p.Observe("fs", list, false, now)
		if round < 1 && len(changes) != 0 || round == 2 && len(changes) != len(list) {
			t.Errorf("round %d: %d of %d are changes", round, len(changes), len(list))
		}
	}
	if n := len(p.of("fs").pinned); n > maxPins {
		t.Errorf("%d pins", n)
	}
}

// TestAtOnce: everything may be asked from anywhere while servers list.
func TestAtOnce(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "consent"))
	var all sync.WaitGroup
	for i := range 4 {
		server := string(rune('a' + i))
		all.Go(func() {
			for n := range 50 {
				s.Pins().Observe(server, []messages.Definition{def("t", string(rune('a'+n%3)))}, n%2 == 0, now)
				s.Pins().Hold(server, nil, map[string]string{"t": "fs__t"})
			}
		})
		all.Go(func() {
			for range 50 {
				s.Issues()
				for _, c := range s.Pins().Changes(true) {
					s.Pins().Decide(c.ID, i%2 == 0, now)
				}
				e := entry(server, server, server)
				s.Approve(e, now)
				if !s.Approved(e) {
					t.Error("an approval is lost")
				}
			}
		})
	}
	all.Wait()
	closed(t, s)
	if len(s.Issues()) != 0 {
		t.Errorf("%v", s.Issues())
	}
}

// S09: a clock that was set back makes no grant of an earlier life last, and one that was
// set forward gives none away: what is in doubt is asked again.
func TestStoredGrantsUnderAClockThatJumps(t *testing.T) {
	const life = 10 * time.Minute
	for jump, kept := range map[time.Duration]bool{-24 * time.Hour: false, -time.Hour: false, 0: true, time.Minute: true, time.Hour: false} {
		dir := filepath.Join(t.TempDir(), "consent")
		s := open(t, dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := s.KeepGrants([]messages.CallGrant{{Client: "local", Server: "fs", Tool: "write", Args: "a", Until: now.Add(life)}}); err != nil {
			t.Fatal(err)
		}
		if got := s.TakeGrants(now.Add(jump)); (len(got) == 1) != kept {
			t.Errorf("the clock jumped by %s: %d grants", jump, len(got))
		}
		closed(t, s)
	}
}
