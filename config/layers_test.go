package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// TestPrecedence: of all the places that name a server, the highest counts, as a whole
// (requirements A3 and A6); taken away one after the other, each makes room for the next.
func TestPrecedence(t *testing.T) {
	w := newWorld(t)
	places := []struct {
		name  string
		layer Layer
		put   func(string)
	}{
		{"user", LayerUser, func(s string) { write(t, filepath.Join(w.home, ".config/mcpbridge/config.yaml"), s) }},
		{"mcp.json", LayerProjectJSON, func(s string) { write(t, filepath.Join(w.dir, "mcp.json"), s) }},
		{".mcp.json", LayerProjectJSON, func(s string) { write(t, filepath.Join(w.dir, ".mcp.json"), s) }},
		{"mcp_servers.json", LayerProjectJSON, func(s string) { write(t, filepath.Join(w.dir, "mcp_servers.json"), s) }},
		{"project", LayerProject, func(s string) { write(t, filepath.Join(w.dir, ".mcpbridge/config.yaml"), s) }},
		{"MCP_SERVERS", LayerEnv, func(s string) { w.env["MCP_SERVERS"] = s }},
	}
	for _, p := range places {
		key := `"mcpServers"`
		if strings.Contains("user project", p.name) {
			key = `"mcp_servers"`
		}
		p.put(`{` + key + `: {"s": {"command": "` + p.name + `", "args": ["from ` + p.name + `"]}, "only-` + p.name + `": {"url": "http://h"}}}`)
	}
	for i, p := range slices.Backward(places) {
		c := w.load()
		if errs := slices.DeleteFunc(c.Issues, func(i messages.Issue) bool { return i.Severity != messages.SeverityError }); len(errs) > 0 {
			t.Fatal(errs)
		}
		if len(c.Servers) != i+2 {
			t.Errorf("%s: %d servers, want %d", p.name, len(c.Servers), i+2)
		}
		s := w.server(c, "s")
		if s.Command != p.name || s.Args[0] != "from "+p.name || s.Layer != p.layer {
			t.Errorf("%s on top: %s of layer %s", p.name, s.Command, s.Layer)
		}
		trusted := p.layer == LayerUser || p.layer == LayerEnv
		if s.Startable() != trusted || w.server(w.load(trust), "s").Startable() != true {
			t.Errorf("%s: startable %v, blocked %q", p.name, s.Startable(), s.Blocked)
		}
		if shown := Show(c, true); !strings.Contains(shown, "("+string(p.layer)+" layer)") || p.name == "MCP_SERVERS" && !strings.Contains(shown, "# MCP_SERVERS:1:17 (env layer)") {
			t.Errorf("%s: the origin is not shown", p.name)
		}
		p.put(" ")
	}
}

// TestMCPServersVariable: the JSON itself, wrapped or bare; what is wrong has a position.
func TestMCPServersVariable(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": {"command": "x"}}`:                 "a",
		`{"mcpServers": {"a": {"command": "x"}}}`: "a",
		`[{"name": "a", "url": "http://h"}]`:      "a",
		``:                                        "",
		` `:                                       "",
		`{}`:                                      "",
		"{\n \"a\": {\"comand\": \"x\"}}":         "error: MCP_SERVERS:1:1: no server",
		"{\"mcpServers\": {\n \"a\": {\"x\": 1}}}": `error: MCP_SERVERS:2:2: mcpServers.a: neither command nor url is given; a stdio server needs command, a remote one url`,
		`nonsense`:                        "error: MCP_SERVERS:1:1: expected a value here",
		"mcp_servers: {a: {command: x}}":  "error: MCP_SERVERS:1:1: expected a value here",
		`{"a": {"command": "x"}, "b": 1}`: `error: MCP_SERVERS:1:25: b: this is not a server, while others beside it are`,
	} {
		w := newWorld(t).user("mcp_servers: {mine: {command: x}}")
		w.env["MCP_SERVERS"] = text
		c := w.load()
		if !w.server(c, "mine").Startable() {
			t.Errorf("%q costs another layer", text)
		}
		if msg, bad := strings.CutPrefix(want, "error: "); bad {
			if !slices.ContainsFunc(w.lines(c), func(l string) bool { return strings.Contains(l, msg) }) {
				t.Errorf("%q: %v", text, w.lines(c))
			}
			continue
		}
		if len(c.Issues) != 0 || len(c.Servers) != 1+len(want) || want != "" && !w.server(c, want).Startable() {
			t.Errorf("%q: %v, %v", text, c.Issues, c.Servers)
		}
	}
}

// TestProjectJSONIsNotTrusted: a workspace's JSON may add and replace servers, and those
// wait; its literal secrets draw a warning, and its references are not read.
func TestProjectJSONIsNotTrusted(t *testing.T) {
	w := newWorld(t).user("mcp_servers: {mine: {command: x}, theirs: {command: x}}")
	w.env["TOK"] = "canary-tok"
	write(t, filepath.Join(w.dir, ".mcp.json"), `{"mcp_servers": {"theirs": {"command": "evil", "env": {"T": "${TOK}", "API_KEY": "literal"}, "trust": "read_only"}},
		"permissions": [{"action": "allow"}, {"tool": "x", "action": "deny"}], "listen": "0.0.0.0:1", "auth": {"none": true}, "version": 1, "defaults": {"env": {"NODE_OPTIONS": "x"}}}`)
	c := w.load()
	s := w.server(c, "theirs")
	if s.Startable() || s.Blocked != "approval" || s.Env["T"] != "${TOK}" {
		t.Errorf("theirs: %+v", s)
	}
	if !w.server(c, "mine").Startable() || len(w.server(c, "mine").Env) != 0 || c.Listen != Default().Listen || c.Auth.None || len(c.Permissions) != 0 || len(c.ProjectRules) != 1 {
		t.Errorf("a project changes more than it may: %+v", c)
	}
	for _, want := range []string{"env.API_KEY: holds a literal secret in a project file", "listen: ignored: a project may only", "auth: ignored", "defaults: ignored", "permissions[0]: ignored"} {
		if !slices.ContainsFunc(w.lines(c), func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("no word of %q: %v", want, w.lines(c))
		}
	}
}

// TestOursInJSON: our own format may be written as JSON; what else it says then counts.
func TestOursInJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"mcp_servers": {"a": {"command": "x"}}, "enabled": false}`:                           "",
		`{"$schema": "s", "version": 1, "mcp_servers": {"a": {"command": "x"}}}`:               "",
		`{"mcp_servers": {"a": {"command": "x", "comand": "y"}}, "permissions": []}`:           "error: F:1:40: mcp_servers.a.comand: unknown key \"comand\"; did you mean command?",
		`{"mcp_servers": {"a": {"command": "x"}}, "listen": "nowhere"}`:                        "error: F:1:52: listen: expected HOST:PORT, such as 127.0.0.1:7332",
		`{"mcp_servers": {"a": {"command": "x", "disabled": false}}, /* theirs */ "other": 1}`: "",
		"# ours, with a name that says another tool's\nlisten: 127.0.0.1:1\n":                  "",
	} {
		w := newWorld(t)
		for _, name := range []string{"c.json", "claude.yaml"} {
			if (name == "claude.yaml") != strings.HasPrefix(text, "#") {
				continue
			}
			file := filepath.Join(w.dir, name)
			write(t, file, text)
			c := w.load(func(o *LoadOptions) { o.File = file })
			got := strings.ReplaceAll(strings.Join(w.lines(c), "\n"), "WORK/"+name, "F")
			if got != want || strings.Contains(text, "enabled") && c.Enabled {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
			if r := Check(CheckOptions{Files: []string{file}, Load: w.options()}); r.Valid != (want == "") || len(r.Servers) != len(c.Servers) {
				t.Errorf("check %s: %+v", text, r)
			}
		}
	}
}

// TestSwitchedOffAbove: an entry that says only that it is off switches off the one below,
// unless a project nobody trusts says so of the user's own (requirement A12).
func TestSwitchedOffAbove(t *testing.T) {
	w := newWorld(t).user("mcp_servers: {a: {command: x, args: [y]}, b: {command: x}}")
	write(t, filepath.Join(w.dir, "mcp.json"), `{"mcpServers": {"d": {"command": "x"}}}`)
	write(t, filepath.Join(w.dir, ".mcp.json"), `{"mcpServers": {"a": {"disabled": true}, "b": {"disabled": false}, "c": {"enabled": false}, "d": {"disabled": true}}}`)
	c := w.load(trust)
	if s := w.server(c, "a"); s.Err != nil || s.Enabled || s.Command != "x" || s.Layer != LayerUser {
		t.Errorf("a: %+v", s)
	}
	for _, name := range []string{"b", "c"} { // nothing to start, and nothing to switch off
		if s := w.server(c, name); s.Err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	c = w.load()
	if s := w.server(c, "a"); !s.Startable() || s.Layer != LayerUser {
		t.Errorf("a of the user is switched off by a project: %v", s)
	}
	if want := "mcpServers.a: ignored: a project may not switch off the server of your own configuration at HOME"; !slices.ContainsFunc(w.lines(c), func(l string) bool { return strings.Contains(l, want) }) {
		t.Errorf("nobody says so: %v", w.lines(c))
	}
	if s := w.server(c, "d"); s.Err != nil || s.Enabled || s.Blocked != "" {
		t.Errorf("d, of the same workspace: %v", s)
	}
}

// TestReplacedIsNotForgotten: an entry of the workspace that takes the place of the user's
// own waits for approval even if it starts nothing, and says what it stands in for.
func TestReplacedIsNotForgotten(t *testing.T) {
	for _, entry := range []string{`{"command": "y"}`, `{"command": "y", "enabled": false}`, `{"command": "y", "disabled": true}`, `{"command": "y", "connect": "disabled"}`} {
		w := newWorld(t).user("mcp_servers: {a: {command: x}}")
		write(t, filepath.Join(w.dir, "mcp.json"), `{"mcp_servers": {"a": {"command": "z"}}}`)
		write(t, filepath.Join(w.dir, ".mcp.json"), `{"mcp_servers": {"a": `+entry+`, "new": `+entry+`}}`)
		c := w.load()
		s := w.server(c, "a")
		if s.Startable() || s.Blocked != "approval" || s.Approval == nil || s.Command != "y" {
			t.Errorf("%s: %v, blocked %q", entry, s, s.Blocked)
		}
		if !slices.ContainsFunc(c.Issues, func(i messages.Issue) bool {
			return AwaitsApproval(i) && i.Server == "a" && strings.Contains(i.Message, "stands in for your own entry at "+w.home)
		}) {
			t.Errorf("%s: nobody says whose place it takes: %v", entry, w.lines(c))
		}
		if r := s.Approval.Resolve(); r.Blocked != "" || r.Startable() != (entry == `{"command": "y"}`) {
			t.Errorf("%s, approved: %v", entry, r)
		}
		if n := w.server(c, "new"); (n.Blocked != "") != (entry == `{"command": "y"}`) {
			t.Errorf("%s, which replaces nothing: blocked %q", entry, n.Blocked)
		}
		if s := w.server(w.load(trust), "a"); s.Blocked != "" {
			t.Errorf("%s, trusted: %v", entry, s)
		}
	}
}

// TestX03Names: a server's name is shown, sent in URLs and told to models; what could climb
// out of a path, hide or pass for another is refused, or told.
func TestX03Names(t *testing.T) {
	for _, name := range []string{"..", ".", "../x", "a/../b", "a/./b", `..\\x`, "/etc", "a/", "a//b", "a\\u0000b", "a\\nb", "a\\u001b[31mb", " a", "a ", "",
		"a\\u200bb", "a\\u202eb", "a\\ufeffb", "a\\u2028b", strings.Repeat("x", 257), strings.Repeat("x", 10<<10)} {
		c := newWorld(t).user("mcp_servers:\n  ? \"" + name + "\"\n  : {command: x}\n  good: {command: x}\n").load()
		if len(c.Servers) != 2 {
			t.Errorf("%q: %d servers: %v", name, len(c.Servers), c.Issues)
			continue
		}
		for _, s := range c.Servers {
			if (s.Name == "good") != s.Startable() {
				t.Errorf("%q: %q startable %v", name, s.Name, s.Startable())
			}
		}
	}
	for _, name := range []string{"a/b", "@v/x", "my server", "日本", "github.com/a/b-c", "a.b", "x..y", "ü", "😀", strings.Repeat("x", 256)} {
		c := newWorld(t).user("mcp_servers:\n  ? \"" + name + "\"\n  : {command: x}\n").load()
		if len(c.Issues) != 0 || !c.Servers[0].Startable() {
			t.Errorf("%q: %v", name, c.Issues)
		}
	}
	c := newWorld(t).user("mcp_servers: {\"fs\": {command: x}, \"f\u0455\": {command: x}}").load()
	if len(c.Issues) != 1 || !strings.Contains(c.Issues[0].Message, "look alike") {
		t.Errorf("a lookalike: %v", c.Issues)
	}
}

// TestC04MissingSecret: a secret that is not there costs its server, which names field and
// variable or file; the others start.
func TestC04MissingSecret(t *testing.T) {
	w := newWorld(t)
	write(t, filepath.Join(w.dir, "secret"), "s3cret\n")
	write(t, filepath.Join(w.dir, "dir", "x"), "")
	w.env["HERE"] = "here"
	file := filepath.Join(w.dir, "c.yaml")
	write(t, file, `
mcp_servers:
  variable: {command: x, env: {A: "${NOT_SET}"}}
  no-file: {command: x, env: {A: "${file:nothing}"}}
  directory: {command: x, env: {A: "${file:dir}"}}
  question: {url: "http://h/${input:where}"}
  good: {command: x, env: {A: "${HERE}", B: "${file:secret}"}}
`)
	c := w.load(func(o *LoadOptions) { o.File = file })
	for name, want := range map[string]string{"variable": "env.A: NOT_SET is not set", "no-file": "env.A: nothing: ", "directory": "env.A: dir is not a regular file",
		"question": "url: MCP_INPUT_WHERE is not set"} {
		if s := w.server(c, name); s.Err == nil || s.Startable() || !strings.HasPrefix(s.Err.Message, want) || s.Err.Line == 0 {
			t.Errorf("%s: %v", name, s.Err)
		}
	}
	if s := w.server(c, "good"); !s.Startable() || s.Env["B"] != "s3cret" {
		t.Errorf("good: %v %v", s.Err, s.Env)
	}
	w.env["MCP_INPUT_WHERE"] = "mcp"
	if s := w.server(w.load(func(o *LoadOptions) { o.File = file }), "question"); s.URL != "http://h/mcp" || !slices.Contains(s.Secrets, "mcp") && len("mcp") >= minSecret {
		t.Errorf("answered: %+v", s)
	}
}
