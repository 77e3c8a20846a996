package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

// world is a home, a workspace and an environment for one test.
type world struct {
	t         *testing.T
	home, dir string
	env       map[string]string
}

func newWorld(t *testing.T) *world {
	return &world{t: t, home: t.TempDir(), dir: t.TempDir(), env: map[string]string{}}
}

func (w *world) user(text string) *world {
	write(w.t, filepath.Join(w.home, ".config/mcpbridge/config.yaml"), text)
	return w
}

func (w *world) project(text string) *world {
	write(w.t, filepath.Join(w.dir, ".mcpbridge/config.yaml"), text)
	return w
}

func (w *world) options() LoadOptions {
	return LoadOptions{Home: w.home, Workspace: w.dir, Env: lookup(w.env)}
}

func (w *world) load(change ...func(*LoadOptions)) *Config {
	w.t.Helper()
	o := w.options()
	for _, c := range change {
		c(&o)
	}
	c, err := Load(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func trust(o *LoadOptions) { o.TrustProject = true }

func (w *world) server(c *Config, name string) Server {
	w.t.Helper()
	s, ok := c.Server(name)
	if !ok {
		w.t.Fatalf("no server %q among %d", name, len(c.Servers))
	}
	return s
}

// lines are the issues without the parts that differ from run to run.
func (w *world) lines(c *Config) []string {
	out := []string{}
	for _, i := range c.Issues {
		s := strings.NewReplacer(w.home, "HOME", w.dir, "WORK", "\\", "/").Replace(i.String())
		out = append(out, string(i.Severity)+": "+s)
	}
	return out
}

func (w *world) wantLines(c *Config, want ...string) {
	w.t.Helper()
	if d := cmp.Diff(append([]string{}, want...), w.lines(c)); d != "" {
		w.t.Errorf("issues (-want +got):\n%s", d)
	}
}

func TestNothingConfigured(t *testing.T) {
	for name, text := range map[string]string{"no file": "", "blank": " \n\n", "comments": "# nothing\n", "null": "~\n", "dashes": "---\n",
		"empty map": "{}", "keys without values": "mcp_servers:\ndefaults:\nviews:\n", "bom": "\ufeff"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if name != "no file" {
				w.user(text)
			}
			c := w.load()
			w.wantLines(c)
			if len(c.Servers) != 0 || !c.Enabled || c.HasPermissions || c.Hash == "" || c.ListWait != 5*time.Second {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestDefaultsOfTheContract(t *testing.T) {
	w := newWorld(t).user("mcp_servers: {fs: {command: npx}}")
	got := w.server(w.load(), "fs")
	base := filepath.Join(w.home, ".config/mcpbridge")
	want := Server{
		Name: "fs", Layer: LayerUser, Source: filepath.Join(base, "config.yaml") + ":1:15", Type: Stdio, Command: "npx", Cwd: base,
		Args: []string{}, Env: map[string]string{}, Headers: map[string]string{},
		Enabled: true, Trust: TrustNone, Connect: ConnectStartup, PinChange: "block",
		Restart: Restart{Mode: "always", Initial: 500 * time.Millisecond, Multiplier: 2, Max: time.Minute, Jitter: 0.2, ResetAfter: 2 * time.Minute,
			Burst: 5, Within: 10 * time.Minute, Cooldown: 5 * time.Minute, MaxCooldown: time.Hour},
		Timeouts: Timeouts{Start: 30 * time.Second, FirstStart: 5 * time.Minute, Call: time.Minute, AbandonAfter: 30 * time.Second,
			StdinClose: 2 * time.Second, SigTerm: 5 * time.Second, Drain: 5 * time.Second},
		Limits: Limits{MaxReads: 8, MaxSideEffects: 1, Queue: 256, QueueBytes: 64 << 20, ResultBytes: 8 << 20, FrameBytes: 32 << 20, Tools: 10000, Pages: 1000},
		Health: Health{ProbeEvery: 30 * time.Second, Failures: 3},
	}
	got.Written, got.Origins = nil, nil
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestLayers(t *testing.T) {
	const user = `
mcp_servers:
  both: {command: user-command, env: {A: user-env-value}, timeouts: {call: 5s}}
  mine: {command: npx, cwd: sub}
permissions: [{effect: read_only, action: allow}]
list_wait: 1s
`
	const project = `
mcp_servers:
  both: {url: "https://example.com/mcp"}
  theirs: {command: ./server, cwd: sub}
permissions:
  - {tool: "delete_*", action: deny}
  - {action: allow}
  - {server: mine, action: ask}
list_wait: 9s
defaults: {trust: read_only}
`
	t.Run("untrusted", func(t *testing.T) {
		w := newWorld(t).user(user).project(project)
		c := w.load()
		w.wantLines(c,
			"warning: WORK/.mcpbridge/config.yaml:3:3: mcp_servers.both: blocked: this server comes from the workspace and nobody has approved it; it stands in for your own entry at HOME/.config/mcpbridge/config.yaml:3:3, which does not run either; rename it to have both, or read the entry, then `bridgectl approve` it (`bridgectl approvals` shows its id), or start with --trust-project",
			"warning: WORK/.mcpbridge/config.yaml:4:3: mcp_servers.theirs: blocked: this server comes from the workspace and nobody has approved it; read the entry, then `bridgectl approve` it (`bridgectl approvals` shows its id), or start with --trust-project",
			"warning: WORK/.mcpbridge/config.yaml:7:5: permissions[1]: ignored: a project may only add deny and ask rules; put it into your own configuration, or start with --trust-project",
			"warning: WORK/.mcpbridge/config.yaml:9:1: list_wait: ignored: a project may only add servers and deny or ask rules; put it into your own configuration, or start with --trust-project",
			"warning: WORK/.mcpbridge/config.yaml:10:1: defaults: ignored: a project may only add servers and deny or ask rules; put it into your own configuration, or start with --trust-project",
		)
		both := w.server(c, "both")
		if both.Command != "" || both.Type != Auto || len(both.Env) != 0 || both.Timeouts.Call != time.Minute || both.Blocked != "approval" || both.Startable() {
			t.Errorf("the user's entry shines through, or the project's may start: %+v", both)
		}
		if s := w.server(c, "theirs"); s.Command != filepath.Join(w.dir, "server") || s.Cwd != filepath.Join(w.dir, "sub") || s.Trust != TrustNone {
			t.Errorf("paths of a project start at the workspace: %+v", s)
		}
		if s := w.server(c, "mine"); s.Cwd != filepath.Join(w.home, ".config/mcpbridge/sub") || !s.Startable() {
			t.Errorf("paths of the user layer start at its folder: %+v", s)
		}
		if len(c.Permissions) != 1 || len(c.ProjectRules) != 2 || c.ProjectRules[0].Action != messages.Deny || c.ProjectRules[1].Server != "mine" {
			t.Errorf("rules: %+v and %+v", c.Permissions, c.ProjectRules)
		}
		if c.ListWait != time.Second || len(c.Files) != 2 {
			t.Errorf("list_wait %v, files %v", c.ListWait, c.Files)
		}
	})
	t.Run("trusted", func(t *testing.T) {
		w := newWorld(t).user(user).project(project)
		c := w.load(trust)
		w.wantLines(c)
		if s := w.server(c, "both"); !s.Startable() || s.Trust != TrustReadOnly {
			t.Errorf("got %+v", s)
		}
		if c.ListWait != 9*time.Second || len(c.ProjectRules) != 0 || len(c.Permissions) != 4 || c.Permissions[0].Tool != "delete_*" {
			t.Errorf("list_wait %v, rules %+v, project rules %+v", c.ListWait, c.Permissions, c.ProjectRules)
		}
	})
	t.Run("xdg", func(t *testing.T) {
		w := newWorld(t).user(user)
		w.env["XDG_CONFIG_HOME"] = filepath.Join(w.home, "xdg")
		write(t, filepath.Join(w.home, "xdg/mcpbridge/config.yaml"), "mcp_servers: {x: {command: x}}")
		if c := w.load(); len(c.Servers) != 1 || c.Servers[0].Name != "x" {
			t.Errorf("got %+v", c.Servers)
		}
		if got, want := w.options().UserFile(), filepath.Join(w.home, "xdg/mcpbridge/config.yaml"); got != want {
			t.Errorf("UserFile is %s, want %s", got, want)
		}
	})
	t.Run("--config alone", func(t *testing.T) {
		w := newWorld(t).user(user).project(project)
		file := filepath.Join(w.dir, ".mcpbridge/config.yaml")
		c := w.load(func(o *LoadOptions) { o.File = file })
		w.wantLines(c)
		if len(c.Servers) != 2 || c.ListWait != 9*time.Second || c.Servers[0].Layer != LayerFile {
			t.Errorf("got %+v", c)
		}
		if s := w.server(c, "theirs"); s.Cwd != filepath.Join(w.dir, ".mcpbridge/sub") {
			t.Errorf("paths of a named file start at its folder: %s", s.Cwd)
		}
	})
}

func TestBrokenLayerCostsItselfOnly(t *testing.T) {
	w := newWorld(t).user("mcp_servers: {a: {command: x}}").project("mcp_servers: {b: {command: x}\n")
	c := w.load()
	if len(c.Servers) != 1 || c.Servers[0].Name != "a" || len(c.Issues) != 1 || c.Issues[0].Line == 0 {
		t.Errorf("servers %+v, issues %v", c.Servers, c.Issues)
	}
	w = newWorld(t).user("version: 7\nmcp_servers: {a: {command: x}}").project("mcp_servers: {b: {command: x}}")
	c = w.load(trust)
	if len(c.Servers) != 1 || c.Servers[0].Name != "b" {
		t.Errorf("servers %+v", c.Servers)
	}
	w.wantLines(c, "error: HOME/.config/mcpbridge/config.yaml:1:10: version: this build reads version 1 only")
	w = newWorld(t).project("mcp_servers: {b: {command: x}}")
	if err := os.MkdirAll(filepath.Join(w.home, ".config/mcpbridge/config.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.wantLines(w.load(trust), "error: HOME/.config/mcpbridge/config.yaml: cannot be read: it is a directory")
}

func TestBrokenProjectEntryShadows(t *testing.T) {
	w := newWorld(t).user("mcp_servers:\n  a: {command: x}\n  b: {}\n").project("mcp_servers:\n  a: {url: 'ftp://x'}\n  b: {}\n")
	c := w.load()
	w.wantLines(c,
		"error: HOME/.config/mcpbridge/config.yaml:3:3: mcp_servers.b: neither command nor url is given; a stdio server needs command, a remote one url",
		"warning: WORK/.mcpbridge/config.yaml:2:3: mcp_servers.a: this entry is broken and still replaces the valid one at HOME/.config/mcpbridge/config.yaml:2:3, which is not used; correct it or remove it",
		"error: WORK/.mcpbridge/config.yaml:2:12: mcp_servers.a.url: must begin with http:// or https://",
		"error: WORK/.mcpbridge/config.yaml:3:3: mcp_servers.b: neither command nor url is given; a stdio server needs command, a remote one url",
	)
	s := w.server(c, "a")
	if s.Err == nil || s.Err.Server != "a" || s.Err.Stage != messages.StageConfig || s.Startable() {
		t.Errorf("got %+v", s)
	}
}

func TestUntrustedReferencesAreNotRead(t *testing.T) {
	w := newWorld(t).project(`mcp_servers: {a: {command: "${SECRET_NAME}/x", cwd: "${SECRET_NAME}", env: {A: "${SECRET_NAME}", B: "${file:/nonexistent}", C: "${UNSET}"}}}`)
	w.env["SECRET_NAME"] = "secret-value"
	s := w.server(w.load(), "a")
	if s.Err != nil || s.Env["A"] != "${SECRET_NAME}" || s.Cwd != "${SECRET_NAME}" || s.Command != "${SECRET_NAME}/x" || len(s.Secrets) != 0 {
		t.Errorf("got %+v", s)
	}
	if s := w.server(w.load(trust), "a"); s.Err == nil {
		t.Error("trusted, the missing file should show")
	}
}

func TestDefaultsBlock(t *testing.T) {
	w := newWorld(t).user(`
defaults:
  timeouts: {call: 5s, start: 10s}
  restart: {mode: on_failure, backoff: {initial: 1s, max: 9s}}
  env: {SHARED: from-defaults, B: from-defaults}
  trust: annotations
  connect: lazy
mcp_servers:
  plain: {command: x}
  own: {command: x, timeouts: {call: 7s}, restart: {backoff: {initial: 2s}}, env: {B: own-value}, read_only: true}
  remote: {url: "https://example.com/mcp"}
`).project("mcp_servers: {theirs: {command: x}}")
	w.env["MCP_CONNECT_MODE"] = "disabled"
	c := w.load()
	plain, own, theirs := w.server(c, "plain"), w.server(c, "own"), w.server(c, "theirs")
	if plain.Timeouts.Call != 5*time.Second || plain.Env["B"] != "from-defaults" || plain.Trust != TrustAnnotations || plain.Connect != ConnectLazy {
		t.Errorf("plain: %+v", plain)
	}
	if own.Timeouts.Call != 7*time.Second || own.Timeouts.Start != 10*time.Second {
		t.Errorf("timeouts are merged key by key: %+v", own.Timeouts)
	}
	if own.Restart.Mode != RestartOnFailure || own.Restart.Initial != 2*time.Second || own.Restart.Max != time.Minute {
		t.Errorf("one level deep, backoff is replaced as a whole: %+v", own.Restart)
	}
	if d := cmp.Diff(map[string]string{"SHARED": "from-defaults", "B": "own-value"}, own.Env); d != "" {
		t.Error(d)
	}
	if own.Trust != TrustReadOnly {
		t.Errorf("read_only: true is the entry's own word: %s", own.Trust)
	}
	if theirs.Timeouts.Call != 5*time.Second || len(theirs.Env) != 0 || theirs.Trust != TrustNone || theirs.Connect != ConnectLazy {
		t.Errorf("an untrusted server takes how it is run from defaults, and nothing else: %+v", theirs)
	}
	for _, i := range c.Issues {
		if i.Server == "remote" {
			t.Errorf("inherited fields of the other transport are no fault of the entry: %s", i)
		}
	}
}

func TestEnvironmentSwitches(t *testing.T) {
	for _, tc := range []struct {
		env     map[string]string
		file    string
		enabled bool
		connect Connect
		issues  int
	}{
		{nil, "", true, ConnectStartup, 0},
		{nil, "enabled: false", false, ConnectStartup, 0},
		{map[string]string{"ENABLE_MCP": "true"}, "enabled: false", true, ConnectStartup, 0},
		{map[string]string{"ENABLE_MCP": "False"}, "", false, ConnectStartup, 0},
		{map[string]string{"ENABLE_MCP": "perhaps"}, "", true, ConnectStartup, 1},
		{map[string]string{"ENABLE_MCP": ""}, "", true, ConnectStartup, 0},
		{map[string]string{"MCP_CONNECT_MODE": "lazy"}, "", true, ConnectLazy, 0},
		{map[string]string{"MCP_CONNECT_MODE": "later"}, "", true, ConnectStartup, 1},
	} {
		w := newWorld(t).user(tc.file + "\nmcp_servers:\n  a: {command: x}\n  b: {command: x, connect: startup}\n")
		w.env = tc.env
		c := w.load()
		if c.Enabled != tc.enabled || w.server(c, "a").Connect != tc.connect || w.server(c, "b").Connect != ConnectStartup || len(c.Issues) != tc.issues {
			t.Errorf("%v %q: enabled %v, a %s, b %s, issues %v", tc.env, tc.file, c.Enabled, c.Servers[0].Connect, c.Servers[1].Connect, c.Issues)
		}
	}
}

func TestConfigFileErrors(t *testing.T) {
	w := newWorld(t)
	_, err := Load(LoadOptions{File: filepath.Join(w.dir, "none.yaml")})
	var fe *FileError
	if !errors.As(err, &fe) || !errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(err.Error(), "none.yaml: there is no such file") {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(w.dir, "bad.yaml")
	write(t, file, "mcp_servers: [")
	if _, err = Load(LoadOptions{File: file}); !errors.As(err, &fe) || fe.Line != 1 {
		t.Errorf("got %v", err)
	}
}

// TestAWorkspaceThatIsNotThere: named by hand it is a mistake, and costs nothing else.
func TestAWorkspaceThatIsNotThere(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, ".config", "mcpbridge", "config.yaml"), "version: 1\nmcp_servers: {a: {command: x}}\n")
	file := filepath.Join(home, "file")
	write(t, file, "")
	none := func(string) (string, bool) { return "", false }
	for workspace, wrong := range map[string]bool{"": false, home: false, filepath.Join(home, "nowhere"): true, file: true} {
		cfg, err := Load(LoadOptions{Workspace: workspace, Home: home, Env: none})
		if err != nil {
			t.Fatal(err)
		}
		told := slices.ContainsFunc(cfg.Issues, func(i messages.Issue) bool {
			return i.Severity == messages.SeverityError && strings.Contains(i.Message, workspace+": there is no such directory")
		})
		if len(cfg.Servers) != 1 || told != wrong {
			t.Errorf("workspace %q: %d servers, issues %v", workspace, len(cfg.Servers), cfg.Issues)
		}
	}
}
