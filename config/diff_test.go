package config

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	const was = `
mcp_servers:
  same: {command: x, env: {T: "${TOK}"}}
  gone: {command: x}
  tuned: {command: x, timeouts: {call: 5s}}
  moved: {command: x, args: [a, b], env: {SECRET: hunter22}}
  web: {url: "https://h/?token=canary-one"}
permissions: [{effect: read_only, action: allow}]
listen: 127.0.0.1:1
`
	const is = `
mcp_servers:
  same: {env: {T: "${TOK}"}, command: x}   # another order and a comment
  fresh: {command: x}
  tuned: {command: x, timeouts: {call: 6s}}
  moved: {command: x, args: [a], env: {SECRET: hunter23}}
  web: {url: "https://h/?token=canary-two"}
permissions: [{effect: read_only, action: ask}]
listen: 127.0.0.1:2
`
	w := newWorld(t)
	w.env["TOK"] = "canary-tok"
	old, now := w.user(was).load(), w.user(is).load()
	got := strings.Join(Diff(old, now).Lines(), "\n")
	want := `+ fresh
- gone
~ moved (starts anew)
    args[1]: b → (nothing)
    env.SECRET: another value, not shown
~ tuned (goes on as it is)
    timeouts.call: 5s → 6s
~ web (starts anew)
    url: another value, not shown
  listen: 127.0.0.1:1 → 127.0.0.1:2
  permissions[0].action: allow → ask`
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := Diff(now, now); !d.Empty() {
		t.Errorf("with itself: %v", d.Lines())
	}
	// The same file, while the world around it has changed.
	w.env["TOK"] = "canary-other"
	if got := strings.Join(Diff(now, w.load()).Lines(), "\n"); got != "~ same (starts anew)\n    env.T: another value, not shown" {
		t.Errorf("another value of a reference: %s", got)
	}
}

// TestLoadIsPure: two readings of the same sources differ in nothing.
func TestLoadIsPure(t *testing.T) {
	w := newWorld(t)
	w.user("mcp_servers: {a: {command: x}}").project("mcp_servers: {b: {url: 'http://h'}}")
	write(t, w.dir+"/.mcp.json", canaryFile)
	w.env["MCP_SERVERS"] = `{"c": {"command": "x", "timeout": 5}}`
	one, two := w.load(), w.load()
	if d := gocmp.Diff(one, two); d != "" {
		t.Error(d)
	}
	if d := Diff(one, two); !d.Empty() {
		t.Errorf("%v", d.Lines())
	}
}
