package secrets

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mcpbridge/test/harness"
)

// town is a configuration full of canaries, and the environment that it reads.
type town struct {
	lab     *harness.Lab
	c       canaries
	env     []string
	program string // blabber
	hostile string
	healthy string // an HTTP server that works
	dir     string // of the user's configuration
	life    string // makes the canaries of each configuration others
}

// set puts a canary into the daemon's environment and returns the variable's name.
func (w *town) set(name, tail string) string {
	v := "V_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	w.env = append(w.env, v+"="+w.c.hatch(name, tail))
	return v
}

// variable is set, as a reference.
func (w *town) variable(name, tail string) string { return "${env:" + w.set(name, tail) + "}" }

// file writes a canary into a file and returns the reference.
func (w *town) file(t testing.TB, name string) string {
	path := w.lab.Path(name)
	if err := os.WriteFile(path, []byte(w.c.hatch(name, awkward)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "${file:" + path + "}"
}

// child is a stdio server that tells its secrets and becomes the fixture.
func (w *town) child(t testing.TB, name string, more ...string) harness.M {
	id := w.life + name
	e := w.lab.Server(t, name)
	e["command"] = w.program
	e["args"] = append([]string{w.variable(id+"-arg", awkward), harness.Fixture(t)}, w.lab.Args(name, more...)...)
	e["env"] = harness.M{"LITERAL": w.c.hatch(id+"-literal", awkward), "FROM": w.variable(id+"-from", awkward), "FILE": w.file(t, id+"-file")}
	return quick(e)
}

// remote is an HTTP server that is told secrets in every way.
func (w *town) remote(name, base, path string) harness.M {
	id := w.life + name
	host := strings.TrimPrefix(base, "http://")
	return quick(harness.M{
		"type": "http",
		"url": "http://" + url.UserPassword(w.c.hatch(id+"-user", ""), w.c.hatch(id+"-password", awkward)).String() + "@" + host + path +
			"?api_key=" + url.QueryEscape(w.c.hatch(id+"-query", awkward)) + "&plain=" + w.variable(id+"-from-query", ""),
		"headers": harness.M{"Authorization": "Bearer " + w.variable(id+"-bearer", tame), "X-Key": w.c.hatch(id+"-header", tame)},
	})
}

// quick fails soon, and is tried again soon.
func quick(e harness.M) harness.M {
	e["timeouts"] = harness.M{"start": "3s", "first_start": "3s"}
	e["restart"] = harness.M{"burst": 1, "backoff": harness.M{"initial": "10ms", "max": "20ms"}}
	return e
}

// config is the user's configuration.
func (w *town) config(t testing.TB) harness.M {
	healthy := w.remote("healthy", w.healthy[:strings.LastIndex(w.healthy, "/")], "/mcp")
	healthy["effects"] = harness.Effects()
	child, definer := w.child(t, "child"), w.child(t, "definer", "-define", w.lab.Path("define"))
	child["restart"] = harness.M{"burst": 0, "backoff": harness.M{"initial": "10ms", "max": "20ms"}}
	noisy := w.child(t, "noisy")
	noisy["env"].(harness.M)["NOISY"] = "1"
	silent := w.child(t, "silent", "-silent", "discover,initialize")
	spawn := w.child(t, "spawn")
	spawn["command"] = "/no/such/" + w.variable(w.life+"spawn-command", "")
	cwd := w.child(t, "cwd")
	cwd["cwd"] = "/no/such/" + w.variable(w.life+"cwd-dir", "")
	broken := w.child(t, "broken")
	broken["env"].(harness.M)["NOT"] = "${SURELY_NOT_SET}"
	off := w.child(t, "off")
	off["enabled"] = false
	legacy := w.remote("legacy", w.hostile, "/endpoint")
	legacy["type"] = "sse"
	servers := harness.M{
		"child": child, "definer": definer, "noisy": noisy, "silent": silent, "spawn": spawn, "cwd": cwd, "broken": broken, "off": off,
		"exits":   w.child(t, "exits", "-exit-on", "initialize", "-exit-code", "3"),
		"unlists": w.child(t, "unlists", "-exit-on", "list"),
		"healthy": healthy, "legacy": legacy, "caller": w.remote("caller", w.hostile, "/calls"),
		"nobody":  w.remote("nobody", "http://127.0.0.1:1", "/mcp"),
		"nowhere": w.remote("nowhere", "http://"+w.variable(w.life+"nowhere-host", "")+".invalid", "/mcp"),
		"port":    w.remote("port", "http://127.0.0.1:"+w.variable(w.life+"port-number", ""), "/mcp"),
	}
	for _, how := range starts {
		servers["fails-"+how] = w.remote("fails-"+how, w.hostile, "/"+how)
	}
	return harness.M{"version": 1, "mcp_servers": servers, "list_wait": "1s", "log": harness.M{"file": filepath.Join(w.dir, "bridge.log")},
		"permissions": []any{harness.M{"tool": "put", "action": "ask"}, harness.M{"tool": "add_tool", "action": "deny"}, harness.M{"action": "allow"}},
		"auth":        harness.M{"tokens": harness.M{"bot": harness.M{"env": w.set(w.life+"bot-token", "0123456789abcdef0123456789")}}}}
}

func (w *town) write(t testing.TB, path string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if text, ok := v.(string); ok {
		b = []byte(text)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNoSecretLeaves: a bridge that is told secrets in every way, by servers that fail in
// every way and repeat all that they were told, shows none of them anywhere.
func TestNoSecretLeaves(t *testing.T) {
	lab, world := harness.NewLab(t), harness.NewWorld(t)
	w := &town{lab: lab, c: canaries{}, program: writeBlabber(t, lab), hostile: hostile(t), dir: filepath.Join(world.Home, "config", "mcpbridge"), life: "a"}
	w.c.hatch("argument", awkward)
	w.c.hatch("asked", awkward)
	w.c.hatch("wrong-token", "")
	w.define(t, "first")
	w.healthy, _ = lab.HTTPFixture(t, "healthy")
	file := filepath.Join(w.dir, "config.yaml")
	first := w.config(t)
	w.write(t, file, first)
	stdout := w.project(t, world)
	w.life = "b" // what a reload brings
	next := w.config(t)
	next["auth"], next["log"] = first["auth"], first["log"]
	servers, was := next["mcp_servers"].(harness.M), first["mcp_servers"].(harness.M)
	servers["healthy"] = was["healthy"]
	for _, name := range []string{"off", "broken", "port"} { // a reload takes no errors
		delete(servers, name)
	}

	s := &sinks{t, w.env, map[string]string{}}
	for _, format := range []string{"json", "text"} { // the second life reads what the first one wrote
		d := harness.Start(t, harness.Options{World: world, Args: []string{"--log-level", "debug", "--log-format", format}, Env: w.env})
		if format == "json" {
			w.c["token"] = canary{d.Token[:16], d.Token}
		}
		w.live(t, d, s)
		if format == "json" {
			w.change(t, d, s, file, next)
			d.Stop(t)
		} else {
			s.pprof(d)
			d.Signal(t, syscall.SIGQUIT) // the runtime writes down what every goroutine does
			d.Wait(t)
			if !strings.Contains(d.Stderr(), "SIGQUIT") {
				t.Error("no dump of the goroutines came")
			}
		}
		s.add("stderr of the daemon, "+format, d.Stderr())
		if n := s.folder(world.State, d.TokenFile); n < 5 {
			t.Errorf("only %d files in the state directory", n)
		}
		for _, dir := range []string{"run", "tmp", "cache", "xdgstate"} { // where a stray file might go
			if _, err := os.Stat(filepath.Join(world.Home, dir)); err == nil {
				s.folder(filepath.Join(world.Home, dir))
			}
		}
		log, err := os.ReadFile(filepath.Join(w.dir, "bridge.log"))
		if err != nil || len(log) == 0 {
			t.Errorf("the log file: %d bytes, %v", len(log), err)
		}
		s.add("log file, "+format, string(log))
	}
	s.add("supervise --dry-run", stdout())
	w.judge(t, s)
}

// project writes what the workspace says, and returns what a dry run says to it all.
func (w *town) project(t testing.TB, world *harness.World) func() string {
	w.write(t, filepath.Join(world.Work, ".mcpbridge", "config.yaml"), harness.M{"mcp_servers": harness.M{
		"theirs": harness.M{"command": "sh", "args": []string{"-c", "true", "--token", w.c.hatch("project-arg", "")},
			"env": harness.M{"API_TOKEN": w.c.hatch("project-env", awkward), "X": w.variable("project-from", awkward)}},
		"far": harness.M{"url": "http://u:" + w.c.hatch("project-password", "") + "@127.0.0.1:1/mcp?api_key=" + w.c.hatch("project-query", ""),
			"headers": harness.M{"Authorization": "Bearer " + w.c.hatch("project-bearer", tame)}}}})
	w.write(t, filepath.Join(world.Work, ".mcp.json"), harness.M{"mcpServers": harness.M{"more": harness.M{"command": "x",
		"env": harness.M{"SECRET_KEY": w.c.hatch("project-json", awkward)}}}})
	return func() string {
		r := world.RunIn(t, "", w.env, "supervise", "--dry-run", "--listen", "127.0.0.1:0", "--state-dir", world.Path("dry"))
		if r.Exit != 0 {
			t.Errorf("%s", r)
		}
		return r.Stdout + r.Stderr
	}
}

// live makes calls with all kinds of outcomes and asks for everything that can be asked.
func (w *town) live(t testing.TB, d *harness.Daemon, s *sinks) {
	d.Await(t, "ready", "child", "noisy", "healthy", "caller")
	ready, err := filepath.Glob(filepath.Join(d.Home, "ready-*.json")) // it is gone with the daemon
	if err != nil || len(ready) != 1 {
		t.Fatalf("ready files: %v, %v", ready, err)
	}
	b, err := os.ReadFile(ready[0])
	if err != nil {
		t.Fatal(err)
	}
	s.add("ready file", string(b))
	for _, name := range []string{"silent", "spawn", "cwd", "exits", "unlists", "nobody"} {
		harness.Eventually(t, name+" has failed", func() bool { return d.Server(t, name).LastExit != nil })
	}
	outcomes := map[string]bool{}
	call := func(tool, args string, more ...string) {
		o, r := d.Call(t, tool, args, more...)
		outcomes[o.Kind.String()+"/"+string(o.Code)] = true
		s.add("call "+tool+" "+args, r.Stdout+r.Stderr)
		r = d.CLI(t, append([]string{"call", tool, "--args", args}, more...)...)
		s.add("call as text "+tool+" "+args, r.Stdout+r.Stderr)
	}
	arg := quoted(w.c["argument"].whole)
	call("child/read", `{"nonce":"r","note":`+arg+`}`)
	call("child/write", `{"nonce":"w","note":`+arg+`}`, "--idempotency-key", "k1")
	call("child/fail", `{"message":"no","note":`+arg+`}`)
	call("child/rpc_error", `{"code":-32000,"message":"no","note":`+arg+`}`)
	call("child/write", `{"nonce":"slow","sleep_ms":1500,"note":`+arg+`}`, "--timeout", "500ms")
	call("child/crash", `{"code":3,"note":`+arg+`}`)
	call("child/read", `{"fault":"half-frame","note":`+arg+`}`)
	call("child/put", `{"nonce":"p","note":`+quoted(w.c["asked"].whole)+`}`)
	call("child/add_tool", `{"name":`+arg+`}`)
	call("child/nothing", `{"note":`+arg+`}`)
	call("child/slow", `{"ms":"not a number","note":`+arg+`}`)
	call("healthy/read", `{"nonce":"h"}`)
	call("healthy/write", `{"nonce":"h","note":`+arg+`}`)
	for _, how := range calls {
		call("caller/fail", `{"how":"`+how+`","note":`+arg+`}`)
	}
	for _, row := range d.Status(t).Servers {
		call(row.Name+"/read", `{}`, "--timeout", "1s")
	}
	for _, want := range []string{"ok/", "tool_error/tool_error", "outcome_unknown/timeout", "outcome_unknown/connection_lost", "rejected/denied", "rejected/unknown_tool"} {
		if !outcomes[want] {
			t.Errorf("no call ended in %s: %v", want, outcomes)
		}
	}
	w.ask(t, d, s)
}

// define sets what the server definer offers besides.
func (w *town) define(t testing.TB, description string) {
	w.write(t, w.lab.Path("define"), `{"tools":[{"name":"defined","description":"`+description+`","inputSchema":{"type":"object"}}]}`)
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// ask uses everything that the bridge can be asked with.
func (w *town) ask(t testing.TB, d *harness.Daemon, s *sinks) {
	for _, line := range []string{"status", "status -o json", "tools", "tools -o json --schema", "tools -o prompt", "tools diff", "calls", "calls -o json", "calls --journal", "calls --journal -o json",
		"logs -n 100000", "logs -n 100000 -o json", "events -n 100000", "events -n 100000 -o json", "config show", "config show --origin", "config diff", "config diff -o json", "config check", "config check -o json",
		"config check --resolve", "config schema", "doctor", "doctor -o json", "approvals", "approvals -o json", "version", "wait --timeout 1ms",
		"config check " + filepath.Join(w.dir, "config.yaml"), "config import " + filepath.Join(d.Work, ".mcp.json"), "config show --workspace " + d.Work, "call --dry-run child/write nonce=x"} {
		s.run(d, strings.Fields(line)...)
	}
	if r := s.run(d, "logs", "-n", "100000"); !strings.Contains(r.Stdout, "starting with ***") {
		t.Error("no server has told its secrets: this test searches for nothing")
	}
	get := func(path, token string) {
		method, body := http.MethodGet, ""
		if strings.HasPrefix(path, "/mcp") {
			method, body = http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		}
		req, err := http.NewRequestWithContext(harness.Context(t), method, d.Base()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		req.Header.Set("Mcp-Session-Id", w.c["wrong-token"].whole)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		s.add(path, fmt.Sprint(resp.Header)+string(b))
	}
	wrong := w.c["wrong-token"].whole
	for _, path := range []string{"/metrics", "/healthz", "/readyz?verbose", "/nothing"} {
		get(path, "")
	}
	get("/mcp", wrong)
	get("/mcp", d.Token)
	get("/mcp?token="+wrong, "")
	get("/mcp?access_token="+url.QueryEscape(d.Token), "")
	raw := d.Raw(t, d.URL)
	for _, row := range d.Status(t).Servers {
		s.add("tools/call "+row.Name, fmt.Sprint(raw.Do(t, "tools/call", `{"name":`+quoted(row.Name+"__fail")+`,"arguments":{"how":"500"}}`)))
	}
	list := raw.Do(t, "tools/list", `{}`)
	s.add("tools/list", string(list.Result)+string(list.Error))
	var said strings.Builder
	cmd := d.StdioCommand(t)
	cmd.Stderr = &said
	client := harness.StartRawStdio(t, cmd)
	list = client.Do(t, "tools/list", `{}`)
	s.add("stdio", string(list.Result)+string(list.Error))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s.add("stderr of stdio", said.String())
}

// change reloads: what is broken, then what has other secrets.
func (w *town) change(t testing.TB, d *harness.Daemon, s *sinks, file string, next harness.M) {
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, broken := range []any{
		harness.M{"mcp_servers": harness.M{"child": harness.M{"command": "x", "env": harness.M{"A": []string{w.c.hatch("in-a-list", "")}}, "headers": w.c.hatch("no-map", "")}}},
		"mcp_servers:\n  child:\n    command: x\n    env: {A: \"" + w.c.hatch("unclosed", "") + "\n",
		"mcp_servers:\n  child: {command: x, env: {TOKEN: " + w.c.hatch("before-the-tab", "") + "}}\n\t- bad\n",
		harness.M{"mcp_servers": harness.M{"child": harness.M{"url": "http://u:" + w.c.hatch("bad-url", "") + "@h:99999999/%zz?api_key=" + w.c.hatch("bad-query", ""), "headers": harness.M{"X-Key": w.c.hatch("bad-header", "\n\x01")}}}},
		harness.M{"mcp_servers": harness.M{"child": harness.M{"command": "x", "env": harness.M{"A": "${" + w.c.hatch("in-a-reference", "") + " }"}, "cwd": "${file:/nowhere"}}},
	} {
		w.write(t, file, broken)
		for _, line := range []string{"reload", "reload -o json", "config check", "config check -o json", "config diff", "config show --origin -c " + file, "supervise --dry-run -c " + file} {
			r := s.run(d, strings.Fields(line)...)
			if line == "reload" && r.Exit != 2 {
				t.Errorf("broken configuration %d: %s", i, r)
			}
		}
	}
	w.write(t, file, string(good))
	w.define(t, "second")
	d.OK(t, "restart", "definer", "--wait")
	if r := s.run(d, "tools", "diff"); !strings.Contains(r.Stdout, "defined") {
		t.Errorf("no changed definition: %s", r)
	}
	w.write(t, file, next)
	for _, line := range []string{"config diff", "config diff -o json", "reload", "reload -o json"} {
		if r := s.run(d, strings.Fields(line)...); r.Exit != 0 {
			t.Errorf("%s", r)
		}
	}
	d.Await(t, "ready", "child")
	w.ask(t, d, s)
	for _, a := range []string{"stop child", "drain noisy", "start child --wait"} {
		s.run(d, strings.Fields(a)...)
	}
}

// pprof keeps what the profiles say.
func (s *sinks) pprof(d *harness.Daemon) {
	s.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", d.Control)
	}}}
	for _, p := range []string{"goroutine?debug=2", "heap?debug=1", "cmdline", "allocs?debug=1"} {
		resp, err := c.Get("http://bridge/debug/pprof/" + p)
		if err != nil {
			s.t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || len(b) == 0 {
			s.t.Fatalf("%s: %s, %d bytes, %v", p, resp.Status, len(b), err)
		}
		s.add("pprof "+p, string(b))
	}
}

// judge tells of every leak, but for what a person who is asked must see.
func (w *town) judge(t testing.TB, s *sinks) {
	t.Logf("%d secrets, %d places, %d bytes", len(w.c), len(s.texts), func() (n int) {
		for _, x := range s.texts {
			n += len(x)
		}
		return n
	}())
	seen := map[string]int{}
	for _, l := range s.search(w.c) {
		if l.canary == "asked" && strings.Contains(l.where, "bridgectl approvals") {
			continue // the arguments are what is approved
		}
		if seen[l.canary+l.form]++; seen[l.canary+l.form] <= 3 {
			t.Errorf("%s", l)
		}
	}
	for k, n := range seen {
		if n > 3 {
			t.Errorf("%s: in %d places", k, n)
		}
	}
}
