package requirements

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
)

// TestA1Layers: the user's file where XDG says and where it says nothing, the project's in
// the workspace that is named and in the current directory; none at all is no error.
func TestA1Layers(t *testing.T) {
	lab := harness.NewLab(t)
	w := harness.NewWorld(t)
	elsewhere := filepath.Join(w.Home, "elsewhere")
	write(t, userFile(w), harness.Config(harness.M{"xdg": lab.Server(t, "xdg")}))
	write(t, filepath.Join(w.Home, ".config", "mcpbridge", "config.yaml"), harness.Config(harness.M{"home": lab.Server(t, "home")}))
	write(t, projectFile(w), harness.M{"mcp_servers": harness.M{"here": lab.Server(t, "here")}})
	write(t, filepath.Join(elsewhere, ".mcpbridge", "config.yaml"), harness.M{"mcp_servers": harness.M{"there": lab.Server(t, "there")}})
	for _, tt := range []struct {
		env, args []string
		want      []string
	}{
		{nil, nil, []string{"here", "xdg"}},
		{[]string{"XDG_CONFIG_HOME="}, nil, []string{"here", "home"}},
		{nil, []string{"--workspace", elsewhere}, []string{"there", "xdg"}},
		{[]string{"XDG_CONFIG_HOME=" + w.Path("nothing")}, []string{"--workspace", w.Path("tmp")}, nil},
	} {
		d := harness.Start(t, harness.Options{World: w, Env: tt.env, Args: append(tt.args, "--trust-project")})
		d.Await(t, "ready", tt.want...)
		var got []string
		for _, r := range d.Status(t).Servers {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v %v: %v, want %v", tt.env, tt.args, got, tt.want)
		}
		d.Stop(t)
	}
	// Without --workspace it is the current directory.
	r := w.Run(t, "config", "check", "-o", "json")
	if r.Exit != 0 || !strings.Contains(r.Stdout, `"here"`) || !strings.Contains(r.Stdout, `"xdg"`) {
		t.Errorf("%s", r)
	}
}

// TestA2BrokenLayers: a broken layer costs itself, a broken server itself; everything is
// reported at once with its place; check and reload are strict and change nothing.
func TestA2BrokenLayers(t *testing.T) {
	lab := harness.NewLab(t)
	for broken, good := range map[string]string{"user": "project", "project": "user"} {
		t.Run(broken, func(t *testing.T) {
			w := harness.NewWorld(t)
			files := map[string]string{"user": userFile(w), "project": projectFile(w)}
			write(t, files[broken], "mcp_servers:\n  lost: {command: [unclosed\n")
			write(t, files[good], harness.M{"mcp_servers": harness.M{"good": lab.Server(t, "good"), "bad": harness.M{"command": "x", "comand": 1, "timeouts": harness.M{"call": "-1s"}}}})
			d := harness.Start(t, harness.Options{World: w, Args: []string{"--trust-project"}})
			d.Await(t, "ready", "good")
			if r := d.Server(t, "bad"); r.State != messages.StateConfigError {
				t.Errorf("bad is %s", r.State)
			}
			st := d.Status(t)
			for _, path := range []string{"mcp_servers.bad.comand", "mcp_servers.bad.timeouts.call"} {
				if !slices.ContainsFunc(st.Issues, func(i messages.Issue) bool {
					return i.File == files[good] && i.Line > 1 && i.Column > 1 && i.Path == path && i.Severity == messages.SeverityError
				}) {
					t.Errorf("no issue about %s: %v", path, st.Issues)
				}
			}
			if !slices.ContainsFunc(st.Issues, func(i messages.Issue) bool { return i.File == files[broken] && i.Line >= 2 }) {
				t.Errorf("no issue about the broken file: %v", st.Issues)
			}
			says(t, d.Stderr(), files[broken]+":", files[good]+":", ": mcp_servers.bad.comand: ")
			if r := d.CLI(t, "config", "check"); r.Exit != 2 {
				t.Errorf("%s", r)
			}
			pid := d.Server(t, "good").PID
			write(t, files[good], harness.M{"mcp_servers": harness.M{}})
			if r := d.CLI(t, "reload"); r.Exit != 2 {
				t.Errorf("%s", r)
			}
			if now := d.Server(t, "good"); now.PID != pid || now.State != messages.StateReady {
				t.Errorf("a refused reload changed the server: %+v", now)
			}
		})
	}
}

// TestA3WholeEntries: an entry of a higher layer replaces the lower one whole, and a broken
// one still does, and says so.
func TestA3WholeEntries(t *testing.T) {
	lab := harness.NewLab(t)
	url, _ := lab.HTTPFixture(t, "web")
	w := harness.NewWorld(t)
	mine := lab.Server(t, "mine")
	mine["env"] = harness.M{"STALE": "yes"}
	mine["tools"] = harness.M{"deny": []string{"read"}}
	write(t, userFile(w), harness.Config(harness.M{"s": mine, "broken": lab.Server(t, "broken")}))
	write(t, projectFile(w), harness.M{"mcp_servers": harness.M{"s": harness.M{"url": url}, "broken": harness.M{"command": "x", "url": url}}})
	d := harness.Start(t, harness.Options{World: w, Args: []string{"--trust-project"}})
	d.Await(t, "ready", "s")
	if r := d.Server(t, "s"); r.Transport != "http" || r.PID != 0 {
		t.Errorf("s: %+v", r)
	}
	if o, r := d.Call(t, "s/read", `{}`); o.Kind != messages.OK {
		t.Errorf("the old entry's deny list is still there: %s", r)
	}
	if r := d.Server(t, "broken"); r.State != messages.StateConfigError || r.PID != 0 {
		t.Errorf("broken: %+v", r)
	}
	says(t, d.OK(t, "status", "-o", "json").Stdout, "still replaces the valid one at "+userFile(w))
}

// TestA4Transports: what is inferred, what is an error of its server, what a warning.
func TestA4Transports(t *testing.T) {
	lab := harness.NewLab(t)
	url, _ := lab.HTTPFixture(t, "web")
	typed := lab.Server(t, "typed")
	typed["type"], typed["headers"] = "stdio", harness.M{"X": "1"}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"child": lab.Server(t, "child"), "web": harness.M{"url": url}, "typed": typed, "remote": harness.M{"type": "http", "url": url, "args": []string{"x"}},
		"both": harness.M{"command": "x", "url": url}, "neither": harness.M{"args": []string{"x"}}, "unknown": harness.M{"type": "tcp", "url": url},
		"no-command": harness.M{"type": "stdio", "url": url}, "no-url": harness.M{"type": "sse", "command": "x"}})})
	d.Await(t, "ready", "child", "web", "typed", "remote")
	for name, transport := range map[string]string{"child": "stdio", "web": "http", "typed": "stdio", "remote": "http"} {
		if r := d.Server(t, name); !strings.HasPrefix(r.Transport, transport) {
			t.Errorf("%s is %s", name, r.Transport)
		}
	}
	for name, word := range map[string]string{"both": "command", "neither": "command", "unknown": "tcp", "no-command": "command", "no-url": "url"} {
		r := d.Server(t, name)
		if r.State != messages.StateConfigError || len(r.Issues) == 0 || r.Issues[0].Stage != messages.StageConfig || !strings.Contains(r.Issues[0].Message, word) {
			t.Errorf("%s: %s %v", name, r.State, r.Issues)
		}
	}
	says(t, d.Stderr(), "mcp_servers.typed.headers: has no effect: the server's type is stdio", "mcp_servers.remote.args: has no effect: the server's type is http")
}

// recorder is a program that notes its arguments and directory and becomes the fixture.
const recorder = `#!/bin/sh
{ pwd; for a in "$@"; do printf '%s\n' "$a"; done; } > "$RECORD"
shift 6
exec "$@"
`

// TestA5References: references expand where they may, once; what is unset or empty costs
// its server, and no ${…} ever reaches a server.
func TestA5References(t *testing.T) {
	lab := harness.NewLab(t)
	var mu sync.Mutex
	var seen []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.URL.String()+" "+r.Header.Get("Authorization"))
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	t.Cleanup(web.Close)
	program := write(t, lab.Path("bin/recorder"), recorder)
	secret := write(t, lab.Path("secret"), "from-a-file\n")
	here := filepath.Dir(secret)
	remote := func(authorization string) harness.M {
		return harness.M{"type": "http", "url": web.URL + "/${WHERE}", "headers": harness.M{"Authorization": authorization}, "restart": harness.M{"mode": "never"}}
	}
	good := lab.Server(t, "good")
	good["command"], good["cwd"] = "${BIN}/recorder", "${HERE}"
	good["args"] = append([]string{"${WHERE}", "${UNSET_ONE:-else}", "${env:WHERE}", "$${WHERE}", "${ODD}", "a${UNSET_ONE:-}b", harness.Fixture(t)}, lab.Args("good")...)
	good["env"] = harness.M{"FILE": "${file:" + secret + "}", "RECORD": lab.Path("record")}
	d := harness.Start(t, harness.Options{
		Env: []string{"WHERE=there", "BIN=" + filepath.Dir(program), "HERE=" + here, "ODD=${WHERE}", "BLANK="},
		Config: harness.Config(harness.M{"good": good, "web": remote("Bearer ${WHERE}"), "blank": remote("Bearer ${BLANK}"), "unset": remote("Bearer ${UNSET_TWO}"),
			"command": harness.M{"command": "${UNSET_THREE}"}, "public": harness.M{"command": "true", "args": []string{"--token", "${WHERE}"}, "connect": "lazy"}})})
	d.Await(t, "ready", "good")
	if got := environ(t, d, "good")["FILE"]; got != "from-a-file" {
		t.Errorf("FILE=%q", got)
	}
	b, err := os.ReadFile(lab.Path("record"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(string(b), "\n")
	if real, _ := filepath.EvalSymlinks(here); !slices.Equal(got[1:7], []string{"there", "else", "there", "${WHERE}", "${WHERE}", "ab"}) || got[0] != here && got[0] != real {
		t.Errorf("directory and arguments: %q", got)
	}
	row(t, d, "web", "has failed", failed)
	for name, words := range map[string]string{"blank": "headers.Authorization", "unset": "headers.Authorization: UNSET_TWO is not set", "command": "command: UNSET_THREE is not set"} {
		if r := d.Server(t, name); r.State != messages.StateConfigError || len(r.Issues) == 0 || !strings.Contains(r.Issues[0].Message, words) {
			t.Errorf("%s is %s: %v", name, r.State, r.Issues)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, s := range seen {
		if s != "/there Bearer there" {
			t.Errorf("a request went out as %q", s)
		}
	}
	if len(seen) == 0 {
		t.Error("no request went out")
	}
	says(t, d.Stderr(), "mcp_servers.public.args[1]: ", "command lines are public")
}

// TestA6Sources: of all the places that name a server the highest counts, and show says
// which that was; a running bridge reads the same.
func TestA6Sources(t *testing.T) {
	lab := harness.NewLab(t)
	w := harness.NewWorld(t)
	servers := func(place string) harness.M {
		e := lab.Server(t, place)
		e["env"] = harness.M{"PLACE": place}
		return harness.M{"s": e, "only-" + place: lab.Server(t, "only-"+place)}
	}
	places := []string{"user", "mcp", "dotmcp", "mcp_servers", "project"}
	files := map[string]string{"user": userFile(w), "mcp": filepath.Join(w.Work, "mcp.json"), "dotmcp": filepath.Join(w.Work, ".mcp.json"),
		"mcp_servers": filepath.Join(w.Work, "mcp_servers.json"), "project": projectFile(w)}
	claude := func(m harness.M) harness.M {
		for _, e := range m {
			delete(e.(harness.M), "effects")
		}
		return m
	}
	for _, p := range places {
		switch p {
		case "user", "project":
			write(t, files[p], harness.M{"mcp_servers": servers(p)})
		case "mcp_servers": // bare
			write(t, files[p], claude(servers(p)))
		default:
			write(t, files[p], harness.M{"mcpServers": claude(servers(p))})
		}
	}
	variable := `{
 "s": {"command": "` + harness.Fixture(t) + `", "env": {"PLACE": "variable"}, "args": ["-name", "variable"]}}`
	winner := func(want string, env ...string) {
		t.Helper()
		r := w.RunIn(t, "", env, "config", "show", "--origin")
		says(t, r.Stdout, want)
	}
	winner("MCP_SERVERS:2:", "MCP_SERVERS="+variable)
	for _, p := range slices.Backward(places) {
		d := harness.Start(t, harness.Options{World: w, Args: []string{"--trust-project"}})
		d.Await(t, "ready", "s", "only-"+p)
		if got := d.Server(t, "s").Source; !strings.HasPrefix(got, files[p]+":") {
			t.Errorf("with %s on top, s is from %s", p, got)
		}
		winner(files[p] + ":")
		if n := len(d.Status(t).Servers); n != slices.Index(places, p)+2 {
			t.Errorf("with %s on top there are %d servers", p, n)
		}
		d.Stop(t)
		if err := os.Remove(files[p]); err != nil {
			t.Fatal(err)
		}
	}
	write(t, files["user"], harness.M{"mcp_servers": servers("user"), "permissions": harness.AllowAll()})
	d := harness.Start(t, harness.Options{World: w, Env: []string{"MCP_SERVERS=" + variable}})
	d.Await(t, "ready", "s", "only-user")
	if got := environ(t, d, "s")["PLACE"]; got != "variable" {
		t.Errorf("the variable does not come first: %s", got)
	}
	d.Stop(t)
	// A file that is named is read alone.
	d = harness.Start(t, harness.Options{World: w, Env: []string{"MCP_SERVERS=" + variable}, Config: harness.Config(harness.M{"alone": lab.Server(t, "alone")})})
	if n := len(d.Status(t).Servers); n != 1 {
		t.Errorf("%d servers beside those of --config", n)
	}
}

// TestA9Switches: a bridge that is switched off starts nothing, until ENABLE_MCP says that
// it is on; one that was not opened does nothing at all.
func TestA9Switches(t *testing.T) {
	lab := harness.NewLab(t)
	var mu sync.Mutex
	asked := 0
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { mu.Lock(); defer mu.Unlock(); asked++ }))
	t.Cleanup(web.Close)
	touched := lab.Path("touched")
	entry := func() harness.M {
		return harness.Config(harness.M{"s": harness.M{"command": "sh", "args": []string{"-c", "touch " + touched + "; exec " + harness.Fixture(t)}, "effects": harness.Effects()}, "web": harness.M{"url": web.URL}})
	}
	off := entry()
	off["enabled"] = false
	for name, o := range map[string]harness.Options{
		"enabled: false": {Config: off}, "ENABLE_MCP=false": {Config: entry(), Env: []string{"ENABLE_MCP=false"}},
	} {
		d := harness.Start(t, o)
		for _, s := range []string{"s", "web"} {
			if r := d.Server(t, s); r.State != messages.StateDisabled || r.Generation != 0 {
				t.Errorf("%s: %s is %s", name, s, r.State)
			}
		}
		if o, r := d.Call(t, "s/read", `{}`); o.Kind == messages.OK || o.Sent() {
			t.Errorf("%s: %s", name, r)
		}
		if r := d.CLI(t, "start", "s"); r.Exit == 0 {
			t.Errorf("%s: %s", name, r)
		}
	}
	w := harness.NewWorld(t)
	c := harness.LoadConfig(t, w, entry()) // and no Open
	if len(c.Servers) != 2 {
		t.Errorf("%v", c.Servers)
	}
	for _, verb := range [][]string{{"config", "check", "FILE"}, {"config", "show", "-c", "FILE"}, {"config", "show", "--origin", "-c", "FILE"}, {"config", "diff", "FILE", "FILE"}, {"supervise", "--dry-run", "-c", "FILE"}} {
		file := w.WriteConfig(t, "read.yaml", entry())
		for i := range verb {
			verb[i] = strings.Replace(verb[i], "FILE", file, 1)
		}
		if r := w.Run(t, verb...); r.Exit != 0 {
			t.Errorf("%s", r)
		}
	}
	if _, err := os.Stat(touched); err == nil || asked != 0 {
		t.Errorf("something was started (%v) or asked (%d)", err == nil, asked)
	}
	d := harness.Start(t, harness.Options{Config: off, Env: []string{"ENABLE_MCP=true"}})
	d.Await(t, "ready", "s")
	if _, err := os.Stat(touched); err != nil {
		t.Error("the probe of this test does not work")
	}
}

// TestA10UVCache: uv and uvx get a cache of the bridge's, unless they have their own.
func TestA10UVCache(t *testing.T) {
	lab := harness.NewLab(t)
	uvx := write(t, lab.Path("bin/uvx"), "#!/bin/sh\nexec "+harness.Fixture(t)+" \"$@\"\n")
	server := func(name, command string, env harness.M) harness.M {
		e := lab.Server(t, name)
		e["command"], e["env"] = command, env
		return e
	}
	d := harness.Start(t, harness.Options{Env: []string{"UV_CACHE_DIR=/the/users/own", "PATH=" + filepath.Dir(uvx) + ":" + os.Getenv("PATH")}, Config: harness.Config(harness.M{
		"uvx": server("uvx", "uvx", harness.M{}), "own": server("own", "uvx", harness.M{"UV_CACHE_DIR": "/my/own"}), "other": server("other", harness.Fixture(t), harness.M{})})})
	d.Await(t, "ready", "uvx", "own", "other")
	for name, want := range map[string]string{"uvx": filepath.Join(d.State, "uv-cache"), "own": "/my/own", "other": ""} {
		if got := environ(t, d, name)["UV_CACHE_DIR"]; got != want {
			t.Errorf("%s: UV_CACHE_DIR=%q, want %q", name, got, want)
		}
	}
}

// TestC5CheckSaysWhatLoosens: the old spelling works, and check says what it does.
func TestC5CheckSaysWhatLoosens(t *testing.T) {
	w := harness.NewWorld(t)
	file := w.WriteConfig(t, "c.yaml", "version: 1\nmcp_servers:\n  old: {command: x, read_only: true}\n")
	r := w.Run(t, "config", "check", file)
	says(t, r.Stdout+r.Stderr, "read_only", "trust: read_only")
	if r.Exit != 0 {
		t.Errorf("%s", r)
	}
	c, err := config.Load(config.LoadOptions{File: file})
	if err != nil || c.Servers[0].Trust != config.TrustReadOnly {
		t.Errorf("%v %v", c, err)
	}
}

// TestA12References: a project's entry is shown whole, with what it would read, and lifted
// by --trust-project.
func TestA12References(t *testing.T) {
	lab := harness.NewLab(t)
	w := harness.NewWorld(t)
	theirs := lab.Server(t, "theirs")
	theirs["env"] = harness.M{"A": "${GIVEN}", "B": "${file:/nowhere}", "API_TOKEN": "literal-0123456789"}
	write(t, projectFile(w), harness.M{"mcp_servers": harness.M{"theirs": theirs}, "permissions": []any{harness.M{"action": "allow"}, harness.M{"tool": "put", "action": "deny"}}})
	d := harness.Start(t, harness.Options{World: w, Env: []string{"GIVEN=1"}})
	if r := d.Server(t, "theirs"); r.State != messages.StateBlocked || r.PID != 0 {
		t.Errorf("%+v", r)
	}
	var list control.Approvals
	d.OK(t, "approvals", "-o", "json").JSON(t, &list)
	if len(list.Approvals) != 1 || !slices.Equal(list.Approvals[0].References, []string{"${GIVEN}", "${file:/nowhere}"}) {
		t.Errorf("%+v", list)
	}
	says(t, d.Stderr(), "env.API_TOKEN: holds a literal secret in a project file")
	d.Stop(t)
	delete(theirs["env"].(harness.M), "B")
	write(t, projectFile(w), harness.M{"mcp_servers": harness.M{"theirs": theirs}, "permissions": []any{harness.M{"action": "allow"}}})
	d = harness.Start(t, harness.Options{World: w, Env: []string{"GIVEN=1"}, Args: []string{"--trust-project"}})
	d.Await(t, "ready", "theirs")
	if o, r := d.Call(t, "theirs/write", `{}`); o.Kind != messages.OK {
		t.Errorf("a trusted project's rules: %s", r)
	}
}
