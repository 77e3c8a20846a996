package catalogue

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// lazy is a server that starts when it is needed; its list is the file's.
func lazy(t *testing.T, lab *harness.Lab, name string, f listFile, more ...string) harness.M {
	e := listing(t, lab, name, f, more...)
	e["connect"] = "lazy"
	return e
}

// asleep fails unless the server has never been spawned in this life.
func asleep(t *testing.T, d *harness.Daemon, name string) {
	t.Helper()
	if r := d.Server(t, name); r.State != messages.StateIdle || r.PID != 0 || r.Generation != 0 {
		t.Errorf("%s is %s, pid %d, generation %d", name, r.State, r.PID, r.Generation)
	}
}

// TestA8ConnectModes: startup, lazy, disabled, and the default from the environment.
func TestA8ConnectModes(t *testing.T) {
	lab := harness.NewLab(t)
	f := newList(t, entry("x"))
	startup, lazily, never := listing(t, lab, "startup", f), listing(t, lab, "unsaid", f), listing(t, lab, "disabled", f)
	startup["connect"], never["connect"] = "startup", "disabled"
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"startup": startup, "unsaid": lazily, "disabled": never}), Env: []string{"MCP_CONNECT_MODE=lazy"}})
	d.Await(t, "ready", "startup")
	asleep(t, d, "unsaid")
	if o, r := d.Call(t, "unsaid/x", `{"nonce":"wakes"}`); o.Kind != messages.OK || lab.History(t).Begins("wakes") != 1 {
		t.Errorf("a call wakes it: %s", r)
	}
	if r := d.Server(t, "disabled"); r.State != messages.StateDisabled || r.Generation != 0 {
		t.Errorf("disabled is %s", r.State)
	}
	if o, r := d.Call(t, "disabled/x", `{"nonce":"never"}`); o.Kind == messages.OK || o.Sent() {
		t.Errorf("a call of a disabled one: %s", r)
	}
	if tools, _ := toolsOf(t, d); !slices.Equal(names(tools), []string{"startup__x", "unsaid__x"}) {
		t.Errorf("%v", names(tools))
	}
}

// TestC8StoredDefinitions: what was listed once is offered before anything runs, byte for
// byte, and a call starts its server.
func TestC8StoredDefinitions(t *testing.T) {
	lab := harness.NewLab(t)
	f := newList(t, entry("x"), `{"name":"odd","description":"<&> \u00e9","inputSchema":null,"vendor":{"n":9007199254740993}}`)
	servers := harness.M{"s": lazy(t, lab, "s", f, "-instructions", "Ask twice."), "empty": lazy(t, lab, "empty", newList(t))}
	w := harness.NewWorld(t)
	first := harness.Start(t, harness.Options{World: w, Config: harness.Config(servers)})
	tools, before := toolsOf(t, first) // never seen: the first list wakes them
	if !slices.Equal(names(tools), []string{"s__odd", "s__x"}) {
		t.Fatalf("%v", names(tools))
	}
	first.Await(t, "ready", "s", "empty")
	first.Stop(t)
	files, _ := filepath.Glob(filepath.Join(w.State, "definitions", "*.json"))
	if len(files) != 2 {
		t.Fatalf("stored: %v", files)
	}
	for _, file := range files {
		if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, fi.Mode(), err)
		}
	}

	d := harness.Start(t, harness.Options{World: w, Config: harness.Config(servers)})
	if _, after := toolsOf(t, d); after != before {
		t.Errorf("before: %s\nafter:  %s", before, after)
	}
	cs := d.Session(t, "2025-11-25", nil)
	list, err := cs.ListTools(harness.Context(t), nil)
	if err != nil || len(list.Tools) != 2 {
		t.Fatalf("%v %v", list, err)
	}
	if got := cs.InitializeResult().Instructions; !strings.Contains(got, "Ask twice.") {
		t.Errorf("instructions: %q", got)
	}
	asleep(t, d, "s")
	asleep(t, d, "empty")
	r := d.Server(t, "s")
	if got := issuesOf(r); !strings.Contains(got, "as it listed them on") || !strings.Contains(got, "inputSchema is missing") || r.Tools != 2 {
		t.Errorf("%d tools, issues: %s", r.Tools, got)
	}
	if c := d.Status(t).Bridge.Counts; c != (messages.Counts{Configured: 2, Connected: 0, Discovered: 2, Adapted: 2, Registered: 2}) {
		t.Errorf("%+v", c)
	}
	if o, r := d.Call(t, "s__x", `{"nonce":"first"}`); o.Kind != messages.OK || lab.History(t).Begins("first") != 1 {
		t.Errorf("a call: %s", r)
	}
	asleep(t, d, "empty")
	if got := issuesOf(d.Server(t, "s")); strings.Contains(got, "as it listed them on") {
		t.Errorf("it has listed again: %s", got)
	}
	if _, after := toolsOf(t, d); after != before {
		t.Errorf("before: %s\nready:  %s", before, after)
	}
}

// TestC8SlowStart: nobody waits for a server whose tools are known, and its calls wait
// for it inside their deadlines.
func TestC8SlowStart(t *testing.T) {
	lab := harness.NewLab(t)
	f := newList(t, entry("x"))
	w := harness.NewWorld(t)
	gate := lab.Path("gate")
	e := listing(t, lab, "s", f, "-stall", gate)
	e["timeouts"] = harness.M{"start": "15s", "first_start": "15s"}
	cfg := harness.Config(harness.M{"s": e})
	cfg["list_wait"] = "50s"
	first := harness.Start(t, harness.Options{World: w, Config: cfg})
	first.Await(t, "ready", "s")
	first.Stop(t)
	if err := os.WriteFile(gate, nil, 0o600); err != nil { // from now on it starts and says nothing
		t.Fatal(err)
	}
	d := harness.Start(t, harness.Options{World: w, Config: cfg})
	tools, _ := toolsOf(t, d)
	// Who waits sees its first start fail, which takes longer than an answer.
	if s := d.Server(t, "s"); len(tools) != 1 || s.State != messages.StateStarting || s.LastExit != nil {
		t.Errorf("%v, it is %s, its last exit %+v", names(tools), s.State, s.LastExit)
	}
	if o, r := d.Call(t, "s/x", `{}`, "--timeout", "300ms"); o.Kind != messages.NotSent || o.Code != messages.CodeExpired {
		t.Errorf("a call whose deadline comes first: %s", r)
	}
	done := make(chan messages.Outcome, 1)
	go func() {
		o, _ := d.Call(t, "s/x", `{"nonce":"waited"}`)
		done <- o
	}()
	harness.Eventually(t, "the call waits", func() bool { return strings.Contains(d.OK(t, "calls", "-o", "json").Stdout, `"queued"`) })
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	if o := <-done; o.Kind != messages.OK || lab.History(t).Begins("waited") != 1 {
		t.Errorf("%s %s", o.Kind, o.ErrorText())
	}
}

// TestC8ChangedMeanwhile: a server that comes back with other tools changes the list, and
// clients hear of it.
func TestC8ChangedMeanwhile(t *testing.T) {
	lab := harness.NewLab(t)
	f := newList(t, entry("old"), entry("stays"))
	w := harness.NewWorld(t)
	cfg := harness.Config(harness.M{"s": lazy(t, lab, "s", f)})
	first := harness.Start(t, harness.Options{World: w, Config: cfg})
	if tools, _ := toolsOf(t, first); len(tools) != 2 {
		t.Fatalf("%v", names(tools))
	}
	first.Stop(t)
	f.set(t, entry("new"), entry("stays"))
	d := harness.Start(t, harness.Options{World: w, Config: cfg})
	heard := make(chan struct{}, 10)
	cs := d.Session(t, "2025-11-25", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { heard <- struct{}{} }})
	list := func() (out []string) {
		got, err := cs.ListTools(harness.Context(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tl := range got.Tools {
			out = append(out, tl.Name)
		}
		return out
	}
	if got := list(); !slices.Equal(got, []string{"s__old", "s__stays"}) {
		t.Fatalf("%v", got)
	}
	if o, r := d.Call(t, "s/stays", `{"nonce":"x"}`); o.Kind != messages.OK {
		t.Fatalf("%s", r)
	}
	select {
	case <-heard:
	case <-harness.Context(t).Done():
		t.Fatal("no list_changed came")
	}
	if got := list(); !slices.Equal(got, []string{"s__new", "s__stays"}) {
		t.Errorf("%v", got)
	}
	if o, r := d.Call(t, "s/old", `{"nonce":"gone"}`); o.Kind != messages.Rejected || lab.History(t).Begins("gone") != 0 {
		t.Errorf("the tool that went: %s", r)
	}
	d.Stop(t)
	last := harness.Start(t, harness.Options{World: w, Config: cfg}) // the newer list was stored
	if tools, _ := toolsOf(t, last); !slices.Equal(names(tools), []string{"s__new", "s__stays"}) {
		t.Errorf("%v", names(tools))
	}
}

// TestC8Damage: whatever lies in the state directory, the bridge starts, says so, and
// lists what the server says.
func TestC8Damage(t *testing.T) {
	for name, with := range map[string]func([]byte) []byte{
		"empty":       func([]byte) []byte { return nil },
		"cut":         func(b []byte) []byte { return b[:len(b)/2] },
		"one bit":     func(b []byte) []byte { b[len(b)-10] ^= 1; return b },
		"forged tool": func(b []byte) []byte { return bytes.Replace(b, []byte(`"name":"x"`), []byte(`"name":"y"`), 1) },
		"rubbish":     func([]byte) []byte { return []byte("{}\n\x00\xff") },
	} {
		t.Run(name, func(t *testing.T) {
			lab := harness.NewLab(t)
			w := harness.NewWorld(t)
			cfg := harness.Config(harness.M{"s": lazy(t, lab, "s", newList(t, entry("x")))})
			first := harness.Start(t, harness.Options{World: w, Config: cfg})
			_, before := toolsOf(t, first)
			first.Stop(t)
			if damage(t, w, with) != 1 {
				t.Fatal("nothing was stored")
			}
			d := harness.Start(t, harness.Options{World: w, Config: cfg})
			asleep(t, d, "s")
			if got := issuesOf(d.Server(t, "s")); !strings.Contains(got, "from an earlier run are ignored") {
				t.Errorf("issues: %s", got)
			}
			if _, after := toolsOf(t, d); after != before { // it is woken, and lists itself
				t.Errorf("before: %s\nafter:  %s", before, after)
			}
			if got := issuesOf(d.Server(t, "s")); got != "" {
				t.Errorf("afterwards: %s", got)
			}
			d.Stop(t)
			last := harness.Start(t, harness.Options{World: w, Config: cfg})
			asleep(t, last, "s")
			if got := issuesOf(last.Server(t, "s")); strings.Contains(got, "ignored") {
				t.Errorf("it was not written anew: %s", got)
			}
		})
	}
}

// TestC8OtherEntry: of an entry that says something else nothing is known, and what is
// stored tells no secret.
func TestC8OtherEntry(t *testing.T) {
	lab := harness.NewLab(t)
	w := harness.NewWorld(t)
	const secret = "hunter2-canary-hunter2"
	config := func(token string) harness.M {
		e := lazy(t, lab, "s", newList(t, entry("x")))
		e["args"] = append(lab.Args("s"), "-tools", "1") // the same in both
		e["env"] = harness.M{"TOKEN": token}
		return harness.Config(harness.M{"s": e})
	}
	first := harness.Start(t, harness.Options{World: w, Config: config(secret)})
	if tools, _ := toolsOf(t, first); len(tools) == 0 {
		t.Fatal("no tools")
	}
	first.Stop(t)
	err := filepath.WalkDir(filepath.Join(w.State, "definitions"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d := harness.Start(t, harness.Options{World: w, Config: config("another")})
	if r := d.Server(t, "s"); r.Tools != 0 {
		t.Errorf("%d tools of another entry are offered", r.Tools)
	}
}

// TestIdleAfterCleanEnd: under on_failure a clean end is no failure: the server rests,
// its tools stay, and the next call starts it.
func TestIdleAfterCleanEnd(t *testing.T) {
	lab := harness.NewLab(t)
	e := lab.Server(t, "s")
	e["restart"] = harness.M{"mode": "on_failure"}
	b := harness.Library(t, harness.Config(harness.M{"s": e}))
	tools := len(b.Catalogue().Tools())
	out := b.Call(context.Background(), messages.CallTool{Tool: "s/crash", Args: json.RawMessage(`{"code":0}`)})
	if out.Kind != messages.OutcomeUnknown {
		t.Fatalf("%s %s", out.Kind, out.ErrorText())
	}
	harness.Eventually(t, "it is idle", func() bool { return row(t, b, "s").State == messages.StateIdle })
	if got := len(b.Catalogue().Tools()); got != tools || tools == 0 {
		t.Errorf("%d tools of %d are offered", got, tools)
	}
	if got := issuesOf(row(t, b, "s")); !strings.Contains(got, "ended by itself") || !strings.Contains(got, "a call starts it") {
		t.Errorf("issues: %s", got)
	}
	if out := b.Call(context.Background(), messages.CallTool{Tool: "s/read", Args: json.RawMessage(`{"nonce":"again"}`)}); out.Kind != messages.OK || out.Generation < 2 {
		t.Errorf("the next call: %s %s", out.Kind, out.ErrorText())
	}
}
