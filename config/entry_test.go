package config

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

func TestServerNames(t *testing.T) {
	w := newWorld(t).user(`
mcp_servers:
  "io.github.x/y": {command: x}
  my server: {command: x}
  "@scope": {command: x}
  日本: {command: x}
  123: {command: x}
  true: {command: x}
  "": {command: x}
  " pad": {command: x}
  "a\tb": {command: x}
  ..: {command: x}
  /x: {command: x}
`)
	var good, bad []string
	for _, s := range w.load().Servers {
		if s.Err == nil {
			good = append(good, s.Name)
		} else {
			bad = append(bad, s.Name)
		}
	}
	if d := cmp.Diff([]string{"123", "@scope", "io.github.x/y", "my server", "true", "日本"}, good); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"", " pad", "..", "/x", "a\tb"}, bad); d != "" {
		t.Error(d)
	}
}

func TestProjectLiteralSecrets(t *testing.T) {
	w := newWorld(t).project(`
mcp_servers:
  a: {command: x, env: {API_TOKEN: literal-value, REGION: eu, OTHER: ghp_abcdefghijklmnopqrst, FINE_TOKEN: "${T}"}, args: [--token, literal-value], enabled: false}
  b: {url: "https://u:literal@example.com/?api_key=literal", headers: {Authorization: Bearer literal-value, X-Version: "2", X-Key: "${K}"}, enabled: false}
`)
	var at []string
	for _, i := range w.load().Issues {
		if !strings.Contains(i.Message, "literal secret") || strings.Contains(i.Message, "literal-value") {
			t.Errorf("unexpected: %s", i)
		}
		at = append(at, i.Path)
	}
	slices.Sort(at)
	if d := cmp.Diff([]string{"mcp_servers.a.args[1]", "mcp_servers.a.env.API_TOKEN", "mcp_servers.a.env.OTHER",
		"mcp_servers.b.headers.Authorization", "mcp_servers.b.url"}, at); d != "" {
		t.Error(d)
	}
}

func TestWorldWritableFileDrawsAWarning(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such permissions here")
	}
	w := newWorld(t).user("mcp_servers: {}")
	if err := os.Chmod(filepath.Join(w.home, ".config/mcpbridge/config.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	if c := w.load(); len(c.Issues) != 1 || c.Issues[0].Severity != messages.SeverityWarning {
		t.Errorf("got %v", c.Issues)
	}
}

func TestExpansion(t *testing.T) {
	w := newWorld(t)
	write(t, filepath.Join(w.dir, "token"), "from-a-file\r\n")
	w.env = map[string]string{"T": "value-of-t", "RAW": "${T}", "EMPTY": "", "HOST": "example.com"}
	w.user(`
mcp_servers:
  a:
    command: ~/bin/${T}
    args: ["${T}", "$${T}", "$$${T}", "$T", "${RAW}", "${EMPTY:-dflt}", "a${T}b${T}c", "${UNSET:-}", "${env:T}", "${env:UNSET:-e}"]
    env: {F: "${file:` + filepath.ToSlash(w.dir) + `/token}", R: "${file:rel}"}
  b: {url: "https://${HOST}/mcp", headers: {Authorization: "Bearer ${T}"}}
`)
	write(t, filepath.Join(w.home, ".config/mcpbridge/rel"), "relative-file")
	c := w.load()
	a, b := w.server(c, "a"), w.server(c, "b")
	if d := cmp.Diff([]string{"value-of-t", "${T}", "$${T}", "$T", "${T}", "dflt", "avalue-of-tbvalue-of-tc", "", "value-of-t", "e"}, a.Args); d != "" {
		t.Error(d)
	}
	if a.Command != filepath.Join(w.home, "bin/value-of-t") || a.Env["F"] != "from-a-file" || a.Env["R"] != "relative-file" {
		t.Errorf("got %+v", a)
	}
	if b.URL != "https://example.com/mcp" || b.Headers["Authorization"] != "Bearer value-of-t" {
		t.Errorf("got %+v", b)
	}
	if d := cmp.Diff([]string{"Bearer value-of-t", "example.com", "value-of-t"}, b.Secrets); d != "" {
		t.Error(d)
	}
}
