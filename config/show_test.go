package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gopkg.in/yaml.v3"
)

const showConfig = `
mcp_servers:
  a:
    command: ./run
    args: [--port, "8080", --api-key, canary-arg, "TOKEN=${TOK}", "${PORT:-9000}"]
    env: {LITERAL: canary-env, REF: "${TOK}", MIXED: "pre-canary-${TOK}", DEF: "${UNSET:-canary-default}"}
  b:
    url: "https://canary-user:canary-pass@example.com/path?key=canary-query&ref=${TOK}#canary-frag"
    headers: {Authorization: "Bearer ${TOK}", X-Literal: canary-header, Y: Bearer canary-bearer}
  c: {url: "https://${TOK}:${TOK}@example.com/${TOK:-canary@x}?${TOK}"}
  d: {command: x, enabled: false, env: {OFF: "canary-off"}, cwd: "${TOK}/x"}
  broken: {command: x, env: {A: "${NOT_SET}", B: canary-broken}}
permissions:
  - {server: a, tool: "w*", effect: idempotent, action: ask}
`

func TestShowMasks(t *testing.T) {
	w := newWorld(t).user(showConfig)
	w.env["TOK"] = "canary-expanded"
	c := w.load()
	for _, origin := range []bool{false, true} {
		got := Show(c, origin)
		if strings.Contains(got, "canary") {
			t.Errorf("a secret is shown (origin %v):\n%s", origin, grep(got, "canary"))
		}
		if yaml.Unmarshal([]byte(got), new(any)) != nil {
			t.Errorf("not YAML:\n%s", got)
		}
		for _, line := range []string{`TOKEN=${TOK}`, `args: [--port, "8080", --api-key, '***', 'TOKEN=${TOK}', '${PORT:-9000}']`, "REF: ${TOK}", "MIXED: '***${TOK}'", "DEF: ${UNSET:-***}", "Authorization: Bearer ${TOK}",
			"Y: Bearer ***", "https://***:***@example.com/path?key=***&ref=${TOK}#***", "https://${TOK}:${TOK}@example.com/${TOK:-***}?${TOK}", "cwd: ${TOK}/x",
			"# config_error: env.A: NOT_SET is not set", "{server: a, tool: w*, effect: idempotent, action: ask}"} {
			if !strings.Contains(got, line) {
				t.Errorf("missing %s in\n%s", line, got)
			}
		}
	}
	got := Show(c, true)
	for _, line := range []string{"config.yaml:3:3 (user layer)", "command: ./run # ", "required: false # default"} {
		if !strings.Contains(got, line) {
			t.Errorf("missing %s in\n%s", line, got)
		}
	}
}

func grep(text, word string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// What Show prints for a file without secrets is that configuration again.
func TestShowReadsBack(t *testing.T) {
	file, err := filepath.Abs("testdata/examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	env := lookup(map[string]string{"MCP_TOKEN": "some-token"})
	first, err := Load(LoadOptions{File: file, Env: env})
	if err != nil || len(first.Issues) > 0 {
		t.Fatal(err, first.Issues)
	}
	again := filepath.Join(t.TempDir(), "again.yaml")
	write(t, again, strings.ReplaceAll(Show(first, true), "${TOKEN:-***}", "${TOKEN:-}"))
	second, err := Load(LoadOptions{File: again, Env: env})
	if err != nil || len(second.Issues) > 0 {
		t.Fatal(err, second.Issues)
	}
	// The url was written without a type; shown, it says http, which takes no SSE.
	if s := second.Servers[0]; s.Name == "docs" && s.Type == HTTP {
		second.Servers[0].Type = Auto
	}
	opts := []cmp.Option{cmpopts.IgnoreFields(Config{}, "Files", "Hash", "Origins", "Workspace"), cmpopts.IgnoreFields(Server{}, "Source", "Origins", "Written"),
		cmpopts.IgnoreFields(Rule{}, "Source"), cmpopts.EquateEmpty()}
	if d := cmp.Diff(first, second, opts...); d != "" {
		t.Errorf("(-first +again):\n%s", d)
	}
}

func TestExamplesLoad(t *testing.T) {
	files, _ := filepath.Glob("testdata/examples/*.yaml")
	if len(files) < 3 {
		t.Fatalf("examples are missing: %v", files)
	}
	env := lookup(map[string]string{"MCP_TOKEN": "some-token", "DOCS_TOKEN": "some-token", "SEARCH_KEY": "some-key"})
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !strings.HasPrefix(string(b), "# yaml-language-server: $schema=") {
			t.Errorf("%s: the first line names the schema (%v)", f, err)
		}
		c, err := Load(LoadOptions{File: f, Env: env})
		if err != nil || len(c.Issues) > 0 || len(c.Servers) == 0 || !c.HasPermissions {
			t.Errorf("%s: %v, %v", f, err, c)
		}
	}
}

func TestStarter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, Starter())
	c, err := Load(LoadOptions{File: file})
	if err != nil || len(c.Issues) > 0 || len(c.Servers) != 0 || len(c.Permissions) != 3 {
		t.Errorf("%v, %+v", err, c)
	}
	// With its comments taken away, the example servers are good ones.
	var open strings.Builder
	for line := range strings.Lines(Starter()) {
		for _, indent := range []string{"  #   ", "  # files:", "  # docs:"} {
			if strings.HasPrefix(line, indent) {
				line = "  " + line[4:]
				break
			}
		}
		open.WriteString(line)
	}
	write(t, file, open.String())
	c, err = Load(LoadOptions{File: file, Env: lookup(map[string]string{"TOKEN": "a-token", "MCP_TOKEN": "a-token"})})
	if err != nil || len(c.Issues) > 0 || len(c.Servers) != 2 {
		t.Errorf("%v, %v\n%s", err, c.Issues, open.String())
	}
}
