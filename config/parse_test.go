package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseEncodings(t *testing.T) {
	for name, text := range map[string]string{
		"bom":       "\ufeffmcp_servers: {a: {command: x}}",
		"crlf":      "mcp_servers:\r\n  a:\r\n    command: x\r\n",
		"cr":        "mcp_servers:\r  a:\r    command: x\r",
		"dashes":    "---\nmcp_servers: {a: {command: x}}\n...\n",
		"directive": "%YAML 1.1\n---\nmcp_servers: {a: {command: x}}\n",
	} {
		w := newWorld(t).user(text)
		c := w.load()
		if len(c.Issues) != 0 || len(c.Servers) != 1 || c.Servers[0].Command != "x" {
			t.Errorf("%s: %v, %+v", name, c.Issues, c.Servers)
		}
	}
	for name, tc := range map[string]struct{ text, want string }{
		"utf-16 cut off": {"\xff\xfea\x00b", "f:1:1: the file is UTF-16 and ends in half a character; save it as UTF-8"},
		"latin 1":        {"a: b\nnämé: \xe9", "f:2:7: the file is not UTF-8 text"},
		"huge":           {strings.Repeat("#", maxFileSize+1), "f: the file is larger than 4MiB; a configuration is a few kilobytes"},
	} {
		if _, err := (source{file: "f"}).parse([]byte(tc.text)); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHostileYAML(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 20; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	for name, tc := range map[string]struct{ text, has string }{
		"alias bomb":    {bomb.String(), "too many aliases"},
		"contains self": {"mcp_servers: &a {x: *a}", "contains itself"},
		"deep flow":     {strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested more than"},
		"deep block":    {"a:\n" + nested(200), "nested more than"},
		"too deep":      {strings.Repeat("{a: ", 50000), ""},
		"merge self":    {"mcp_servers: &a\n  <<: *a\n", "contains itself"},
	} {
		_, err := parseYAML("f", []byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.has) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func nested(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i+1))
	}
	return b.String()
}

func TestAnchorsAndMergeKeys(t *testing.T) {
	w := newWorld(t).user(`
mcp_servers:
  a: &base {command: x, timeouts: &t {call: 5s}}
  b: {<<: *base, args: [y]}
  c: {<<: [*base], command: z, timeouts: {<<: *t, start: 1s}}
`)
	c := w.load()
	w.wantLines(c)
	b, s := w.server(c, "b"), w.server(c, "c")
	if b.Command != "x" || len(b.Args) != 1 || s.Command != "z" || s.Timeouts.Call.String() != "5s" || s.Timeouts.Start.String() != "1s" {
		t.Errorf("b %+v\nc %+v", b, s)
	}
}

// An unquoted password that begins with * or & must not appear in a message.
func TestSyntaxErrorsHoldNoValues(t *testing.T) {
	for _, text := range []string{"env: {P: *hunter2}", "env: {P: %hunter2}", "env:\n  P: @hunter2", "env: {P: !hunter2 x}\nmcp_servers: {a: {command: x, env: {P: !<hunter2> y}}}"} {
		w := newWorld(t).user(text)
		for _, i := range w.load().Issues {
			if strings.Contains(i.String(), "hunter2") {
				t.Errorf("%q: %s", text, i)
			}
		}
	}
}

// A file of the largest size costs a bounded time and a bounded report.
func TestHugeFiles(t *testing.T) {
	for name, line := range map[string]string{
		"unknown keys": "k%d: x\n", "one key again and again": "k: x\n", "servers": "  s%d: {command: x, url: y}\n", "comments": "# %d\n", "warnings": "  s%d: {command: x, read_only: true}\n",
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("mcp_servers:\n")
			for i := 0; b.Len() < maxFileSize/16; i++ {
				if strings.Contains(line, "%d") {
					fmt.Fprintf(&b, line, i)
				} else {
					b.WriteString(line)
				}
			}
			c := newWorld(t).user(b.String()).load()
			if len(c.Issues) > maxIssues+1 {
				t.Errorf("%d issues", len(c.Issues))
			}
			for _, s := range c.Servers {
				if s.Err == nil && strings.Contains(line, "url") {
					t.Fatalf("%s is broken and has no error", s.Name)
				}
			}
		})
	}
}
