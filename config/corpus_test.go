package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"

	"mcpbridge/messages"
)

// badEntries are the ways in which one entry can be broken, in our words and in those of
// every other tool.
var badEntries = []string{
	`{}`, `"text"`, `7`, `true`, `["x"]`, `{"args": ["x"]}`, `{"command": "x", "url": "http://h"}`, `{"type": "carrier-pigeon", "command": "x"}`,
	`{"type": "http", "command": "x"}`, `{"type": "stdio", "url": "http://h"}`, `{"command": {"a": 1}}`, `{"command": []}`, `{"command": ""}`,
	`{"command": "x", "args": "y"}`, `{"command": "x", "args": [["y"]]}`, `{"command": "x", "args": ["a\u0000"]}`, `{"command": "x", "env": ["A"]}`,
	`{"command": "x", "env": {"A": {"b": 1}}}`, `{"command": "x", "env": {"A=B": "c"}}`, `{"command": "x", "env": {"A": "${"}}`, `{"command": "x", "env": {"A": "${}"}}`,
	`{"command": "x", "env": {"A": "${B:-${C}}"}}`, `{"url": "ftp://h"}`, `{"url": "http://"}`, `{"url": ["http://h"]}`, `{"url": "http://h", "headers": {"a b": "c"}}`,
	`{"url": "http://h", "headers": {"A": "b\nc"}}`, `{"url": "http://h", "headers": {"Authorization": "Bearer "}}`, `{"url": "http://h", "headers": {"a": "1", "A": "2"}}`,
	`{"command": "x", "enabled": "maybe"}`, `{"command": "x", "timeouts": {"call": -5}}`, `{"command": "x", "timeouts": {"call": "soon"}}`, `{"command": "x", "limits": {"queue": 0}}`,
	`{"command": "x", "restart": {"mode": "sometimes"}}`, `{"command": "x", "effects": {"a": "none"}}`, `{"command": "x", "tools": {"allow": []}}`, `{"command": "x", "command": "y"}`,
}

// TestC01Corpus breaks real configurations in two thousand ways, the same in every run. A
// check must find each, with file, line and column; a start must lose nothing but what is
// broken.
func TestC01Corpus(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	var texts []string
	for _, s := range samples(t) {
		if s.parses != "INVALID" && strings.Contains(s.file, ".json") {
			texts = append(texts, string(s.data))
		}
	}
	ours, err := os.ReadFile("testdata/examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 2000
	if testing.Short() {
		n = 200
	}
	kinds := map[string]int{}
	w := newWorld(t).user("mcp_servers: {other: {command: x}}")
	w.env = maps.Clone(answers)
	for i := range n {
		if i%2 == 0 {
			entry := badEntries[rnd.IntN(len(badEntries))]
			text := texts[rnd.IntN(len(texts))]
			oneBadEntry(t, w, dir, rnd, text, entry)
			kinds["entry"]++
			continue
		}
		text, name := string(ours), "bad.yaml"
		if rnd.IntN(3) > 0 {
			text, name = texts[rnd.IntN(len(texts))], ".mcp.json"
		}
		kinds[name]++
		badSyntax(t, w, dir, rnd, text, name)
		if t.Failed() {
			return
		}
	}
	t.Logf("broken files: %v", kinds)
}

// oneBadEntry puts a broken entry among the good ones of a configuration.
func oneBadEntry(t *testing.T, w *world, dir string, rnd *rand.Rand, text, entry string) {
	t.Helper()
	plain, err := hujson.Standardize([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]json.RawMessage
	key, servers := "mcpServers", map[string]json.RawMessage{}
	if json.Unmarshal(plain, &doc) == nil {
		for _, k := range []string{"mcpServers", "servers", "mcp_servers", "context_servers"} {
			if json.Unmarshal(doc[k], &servers) == nil && len(servers) > 0 {
				key = k
				break
			}
		}
	}
	if len(servers) == 0 {
		servers["good"] = json.RawMessage(`{"command": "x"}`)
	}
	delete(servers, "maps") // its URL is a reference, which the other tools' files answer elsewhere
	before := encodeServers(t, key, servers)
	victim := fmt.Sprintf("victim%d", rnd.IntN(10))
	servers[victim] = json.RawMessage(entry)
	after := encodeServers(t, key, servers)

	load := func(text string) *Config {
		file := filepath.Join(dir, "mcp.json")
		write(t, file, text)
		c, err := Load(LoadOptions{File: file, Home: w.home, Workspace: dir, Env: lookup(w.env)})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return c
	}
	was, is := load(before), load(after)
	if len(is.Servers) != len(was.Servers)+1 {
		t.Errorf("%d servers became %d with %s", len(was.Servers), len(is.Servers), entry)
	}
	for _, s := range was.Servers {
		got, _ := is.Server(s.Name)
		if d := gocmp.Diff(essence(s), essence(got)); d != "" || got.Startable() != s.Startable() {
			t.Errorf("%s beside %s changed:\n%s", s.Name, entry, d)
		}
	}
	if s, ok := is.Server(victim); !ok || s.Startable() || s.Err == nil {
		t.Errorf("startable: %s", entry)
	}
	r := Check(CheckOptions{Files: []string{filepath.Join(dir, "mcp.json")}, Load: LoadOptions{Home: w.home, Env: lookup(nil)}})
	checkFaults(t, r, after)
	for _, s := range r.Servers {
		if s.OK == (s.Name == victim) {
			t.Errorf("check: %s ok %v beside %s: %v", s.Name, s.OK, entry, r.Issues)
		}
	}
}

func encodeServers(t *testing.T, key string, servers map[string]json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  %q: {\n", key)
	for i, name := range slices.Sorted(maps.Keys(servers)) {
		fmt.Fprintf(&b, "%s    %q: %s", map[bool]string{true: "", false: ",\n"}[i == 0], name, servers[name])
	}
	b.WriteString("\n  }\n}\n")
	return b.String()
}

// badSyntax damages a text until it is broken, and loads it as one layer of two.
func badSyntax(t *testing.T, w *world, dir string, rnd *rand.Rand, text, name string) {
	t.Helper()
	file := filepath.Join(dir, name)
	layer := file
	if name == "bad.yaml" {
		layer = filepath.Join(dir, ".mcpbridge/config.yaml")
	}
	defer os.Remove(layer)
	_ = os.Remove(filepath.Join(dir, "mcp.json"))
	broken := []byte(text)
	for range 1000 {
		broken = damage(rnd, broken)
		write(t, file, string(broken))
		r := Check(CheckOptions{Files: []string{file}, Load: LoadOptions{Home: w.home, Env: lookup(nil)}})
		if r.Valid {
			continue
		}
		checkFaults(t, r, string(broken))
		write(t, layer, string(broken))
		o := w.options()
		o.Workspace, o.TrustProject = dir, true
		c, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := c.Server("other"); !ok || !s.Startable() {
			t.Errorf("another layer is lost to\n%s", broken)
		}
		for _, s := range c.Servers {
			if s.Err != nil && s.Startable() {
				t.Errorf("%s is broken and starts", s.Name)
			}
		}
		return
	}
	t.Fatal("a thousand damages broke nothing")
}

// damage changes one place of a text.
func damage(rnd *rand.Rand, text []byte) []byte {
	if len(text) == 0 {
		return []byte("{")
	}
	at := rnd.IntN(len(text))
	junk := []string{"{", "}", "[", "]", ",", ":", `"`, "'", "\x00", "\xff", "- ", "\t", "&", "*", "${", "/*", "\n", "\\", "#", "0"}
	put := junk[rnd.IntN(len(junk))]
	switch rnd.IntN(4) {
	case 0:
		return slices.Clone(text[:at])
	case 1:
		return slices.Concat(text[:at], text[min(at+1+rnd.IntN(3), len(text)):])
	case 2:
		return slices.Concat(text[:at], []byte(put), text[at:])
	default:
		return slices.Concat(text[:at], []byte(put), text[at+1:])
	}
}

// checkFaults wants every error of a report to have a place that is in the text.
func checkFaults(t *testing.T, r CheckReport, text string) {
	t.Helper()
	if r.Valid {
		t.Errorf("valid:\n%s", text)
	}
	lines := strings.Split(text, "\n")
	for _, i := range r.Issues {
		if i.Severity != messages.SeverityError {
			continue
		}
		if i.File == "" || i.Message == "" || i.Line < 1 || i.Column < 1 || i.Line > len(lines)+1 {
			t.Errorf("no place in %d lines: %v", len(lines), i)
		} else if i.Line <= len(lines) && i.Column > len(lines[i.Line-1])+2 {
			t.Errorf("no such column in %q: %v", lines[i.Line-1], i)
		}
	}
}
