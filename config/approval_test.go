package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// loadProject loads a workspace with this project file, untrusted unless said otherwise.
func loadProject(t *testing.T, project string, trusted bool) (*Config, string) {
	t.Helper()
	work := t.TempDir()
	if err := os.MkdirAll(filepath.Join(work, ".mcpbridge"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, ".mcpbridge", "config.yaml"), []byte(project), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"CANARY": "canary-value", "HOME": t.TempDir()}
	c, err := Load(LoadOptions{Workspace: work, TrustProject: trusted, Env: func(k string) (string, bool) { v, ok := env[k]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	return c, work
}

const asked = `
version: 1
mcp_servers:
  theirs:
    command: ./run
    args: [--token, plain-secret-value, "${CANARY}", "${file:./secret}"]
    env: {NODE_OPTIONS: --require ./evil.js, API_TOKEN: another-secret, N: 7}
    trust: read_only
`

func TestApprovalShowsTheEntry(t *testing.T) {
	c, work := loadProject(t, asked, false)
	s, _ := c.Server("theirs")
	if s.Blocked != "approval" || s.Approval == nil || s.Startable() {
		t.Fatalf("%+v", s)
	}
	want := `{"args":["--token","***","${CANARY}","${file:./secret}"],"command":"./run","env":{"API_TOKEN":"***","N":7,"NODE_OPTIONS":"--require ./evil.js"},"trust":"read_only"}`
	if d := cmp.Diff(want, string(s.Approval.Shown)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"${CANARY}", "${file:./secret}"}, s.Approval.References); d != "" {
		t.Error(d)
	}
	for _, v := range []string{"plain-secret-value", "another-secret", "${CANARY}", "read_only", "./evil.js"} {
		if !strings.Contains(string(s.Approval.Text), v) {
			t.Errorf("the digest is not over %q", v)
		}
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", s.Approval, s.Approval, s.Approval, s), fmt.Sprintf("%+v", struct{ A *Approval }{s.Approval})} {
		if strings.Contains(text, "secret-value") || strings.Contains(text, "another-secret") {
			t.Errorf("a secret is printed: %s", text)
		}
	}
	for _, v := range []any{s, s.Approval, c} {
		if b, err := json.Marshal(v); err != nil || strings.Contains(string(b), "secret-value") || strings.Contains(string(b), "another-secret") {
			t.Errorf("a secret is written: %v %s", err, b)
		}
	}
	// Nothing was read before, everything is afterwards.
	if strings.Contains(strings.Join(append(slices.Clone(s.Args), s.Secrets...), " "), "canary-value") {
		t.Error("a reference of a blocked entry was expanded")
	}
	if r := s.Approval.Resolve(); r.Err == nil || !strings.Contains(r.Err.Message, "secret") || r.Blocked != "" || r.Approval != nil {
		t.Errorf("without the file: %+v", r)
	}
	if err := os.WriteFile(filepath.Join(work, "secret"), []byte("from-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.Approval.Resolve()
	if r.Err != nil || !r.Startable() || !slices.Contains(r.Args, "canary-value") || !slices.Contains(r.Args, "from-the-file") || r.Command != filepath.Join(work, "run") {
		t.Errorf("%+v", r)
	}
	if !slices.Contains(r.Secrets, "canary-value") || !slices.Contains(r.Secrets, "another-secret") {
		t.Errorf("its secrets are %q", r.Secrets)
	}
	if again, _ := c.Server("theirs"); again.Blocked != "approval" {
		t.Error("resolving changed the configuration")
	}
}

// TestApprovalText: what changes the entry changes the text, and nothing else does.
func TestApprovalText(t *testing.T) {
	of := func(text string) string {
		t.Helper()
		c, _ := loadProject(t, text, false)
		s, ok := c.Server("theirs")
		if !ok || s.Approval == nil {
			t.Fatalf("no question about %q: %v", text, c.Issues)
		}
		return string(s.Approval.Text)
	}
	base := of(asked)
	for _, same := range []string{
		strings.Replace(asked, "    command: ./run\n", "", 1) + "    command: './run' # the same\n",
		strings.Replace(asked, "    env: {", "    env: {<<: {N: 8}, ", 1),
		"x: &n 7\n" + strings.Replace(asked, "N: 7", "N: *n", 1),
		asked + "permissions: [{action: deny}]\n",
	} {
		if of(same) != base {
			t.Errorf("the same entry has another text:\n%s", same)
		}
	}
	for _, change := range [][2]string{
		{"./run", "./run2"}, {"--token, ", ""}, {"N: 7", `N: "7"`}, {"N: 7", "N: 7, M: 7"}, {"${CANARY}", "${HOME}"}, {"plain-secret-value", "plain-secret-valuE"},
		{"trust: read_only", "trust: none"}, {"    trust: read_only\n", ""}, {"    trust", "    pins: {on_change: allow}\n    trust"}, {"    trust", "    effects: {a: read_only}\n    trust"},
	} {
		if of(strings.Replace(asked, change[0], change[1], 1)) == base {
			t.Errorf("%q for %q changes nothing", change[1], change[0])
		}
	}
}

// TestApprovalOfOtherDialects: an entry of the workspace's .mcp.json is asked about as one
// of our own file, whole.
func TestApprovalOfOtherDialects(t *testing.T) {
	of := func(text string) *Approval {
		t.Helper()
		work := t.TempDir()
		if err := os.WriteFile(filepath.Join(work, ".mcp.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(LoadOptions{Workspace: work, Home: t.TempDir(), Env: func(string) (string, bool) { return "", false }})
		if err != nil {
			t.Fatal(err)
		}
		s, ok := c.Server("theirs")
		if !ok || s.Approval == nil || s.Startable() {
			t.Fatalf("no question about %s: %v", text, c.Issues)
		}
		return s.Approval
	}
	base := `{"mcpServers": {"theirs": {"command": "node", "args": ["x.js"], "env": {"NODE_OPTIONS": "--require ./evil.js", "T": "${CANARY}"}}}}`
	a := of(base)
	if d := cmp.Diff(`{"args":["x.js"],"command":"node","env":{"NODE_OPTIONS":"--require ./evil.js","T":"${CANARY}"}}`, string(a.Shown)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"${CANARY}"}, a.References); d != "" {
		t.Error(d)
	}
	for _, change := range [][2]string{{"node", "nodejs"}, {"x.js", "y.js"}, {"./evil.js", "./other.js"}, {"CANARY", "HOME"}} {
		if string(of(strings.Replace(base, change[0], change[1], 1)).Text) == string(a.Text) {
			t.Errorf("%q for %q changes nothing", change[1], change[0])
		}
	}
}

// TestWhoIsNotAsked: only sound entries of an untrusted project that would start.
func TestWhoIsNotAsked(t *testing.T) {
	if c, _ := loadProject(t, asked, true); c.Servers[0].Approval != nil || c.Servers[0].Blocked != "" {
		t.Errorf("a trusted project is asked about: %+v", c.Servers[0])
	}
	for _, text := range []string{
		"mcp_servers: {theirs: {command: x, enabled: false}}", "mcp_servers: {theirs: {command: x, connect: disabled}}",
		"mcp_servers: {theirs: {command: x, nonsense: 1}}", "mcp_servers: {theirs: }",
	} {
		c, _ := loadProject(t, text, false)
		if s := c.Servers[0]; s.Approval != nil || s.Startable() {
			t.Errorf("%s: %+v", text, s)
		}
	}
}
