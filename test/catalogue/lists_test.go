package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
)

// row is a server's row.
func row(t *testing.T, b *supervisor.Bridge, name string) messages.ServerStatus {
	t.Helper()
	r, ok := b.Status().Server(name)
	if !ok {
		t.Fatalf("no server %s", name)
	}
	return r
}

// TestB42ListChanged: a changed list is listed again, also when the news comes in the
// middle of a listing, and front clients hear of it once.
func TestB42ListChanged(t *testing.T) {
	var twenty []string
	for i := range 20 {
		twenty = append(twenty, entry(fmt.Sprintf("tool_%02d", i)))
	}
	t.Run("later", func(t *testing.T) {
		lab := harness.NewLab(t)
		f := newList(t, entry("status_only"))
		d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": listing(t, lab, "s", f)})})
		d.Await(t, "ready", "s")
		heard := make(chan struct{}, 100)
		cs := d.Session(t, "2025-11-25", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { heard <- struct{}{} }})
		if got, err := cs.ListTools(harness.Context(t), nil); err != nil || len(got.Tools) != 1 {
			t.Fatalf("%v %v", got, err)
		}
		f.set(t, twenty...)
		select {
		case <-heard:
		case <-harness.Context(t).Done():
			t.Fatal("no list_changed came")
		}
		got, err := cs.ListTools(harness.Context(t), nil)
		if err != nil || len(got.Tools) != 20 {
			t.Fatalf("%v %v", got, err)
		}
		if res, err := cs.CallTool(harness.Context(t), &mcp.CallToolParams{Name: "s__tool_19", Arguments: map[string]any{"nonce": "x"}}); err != nil || res.IsError {
			t.Errorf("a new tool: %v %v", res, err)
		}
		// A second change is told by a second notification: there was one for the first.
		f.set(t, entry("status_only"))
		select {
		case <-heard:
		case <-harness.Context(t).Done():
			t.Fatal("no second list_changed came")
		}
		if got, err := cs.ListTools(harness.Context(t), nil); err != nil || len(got.Tools) != 1 {
			t.Errorf("after the second notification: %v %v", got, err)
		}
	})
	t.Run("during the listing", func(t *testing.T) {
		lab := harness.NewLab(t)
		next := newList(t, twenty...)
		b := harness.Library(t, harness.Config(harness.M{"s": listing(t, lab, "s", newList(t, entry("status_only")), "-list-race", string(next))}))
		harness.Eventually(t, "the newer list is in the catalogue", func() bool { return len(b.Catalogue().Tools()) == 20 })
		if out := b.Call(context.Background(), messages.CallTool{Tool: "s/tool_00"}); out.Kind != messages.OK {
			t.Errorf("a new tool: %s %s", out.Kind, out.ErrorText())
		}
	})
}

// TestB44Reconnect: the catalogue is what the server listed last, through a start that
// fails, a recovery, and a restart with another list.
func TestB44Reconnect(t *testing.T) {
	lab := harness.NewLab(t)
	f := newList(t, entry("a"), entry("stays"))
	off := lab.Path("up")
	e := listing(t, lab, "s", f, "-exit-on", "start", "-off", off)
	e["restart"] = harness.M{"backoff": harness.M{"initial": "20ms", "max": "100ms"}, "burst": 0}
	b := harness.Library(t, harness.Config(harness.M{"s": e}))
	if got := names(b.Catalogue().Tools()); len(got) != 0 {
		t.Fatalf("of a server that never was up: %v", got)
	}
	if err := os.WriteFile(off, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is up", func() bool { return row(t, b, "s").State == messages.StateReady })
	if got := names(b.Catalogue().Tools()); !slices.Equal(got, []string{"s__a", "s__stays"}) {
		t.Fatalf("%v", got)
	}
	before, gen := changes(b), row(t, b, "s").Generation
	// The list changes while the server is down, so that only the restart can tell.
	if err := b.Operate(context.Background(), messages.VerbStop, "s"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is stopped", func() bool { return row(t, b, "s").State == messages.StateStopped })
	left := changes(b)
	if left != before+1 {
		t.Errorf("its tools left with %d announcements", left-before)
	}
	f.set(t, entry("b"), entry("stays"))
	if err := b.Operate(context.Background(), messages.VerbStart, "s"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is up again", func() bool {
		r := row(t, b, "s")
		return r.State == messages.StateReady && r.Generation > gen
	})
	if got := names(b.Catalogue().Tools()); !slices.Equal(got, []string{"s__b", "s__stays"}) {
		t.Errorf("%v", got)
	}
	out := b.Call(context.Background(), messages.CallTool{Tool: "s/a"})
	if out.Kind != messages.Rejected || out.Code != messages.CodeUnknownTool || !strings.Contains(out.ErrorText(), "unknown tool") {
		t.Errorf("the tool that went: %s/%s %s", out.Kind, out.Code, out.ErrorText())
	}
	if out := b.Call(context.Background(), messages.CallTool{Tool: "s/b"}); out.Kind != messages.OK {
		t.Errorf("the tool that came: %s %s", out.Kind, out.ErrorText())
	}
	// Back with the start (the old list, as long as nothing else is known), and over to the
	// new one: nobody hears of more.
	if n := changes(b) - left; n < 1 || n > 2 {
		t.Errorf("%d announcements of the restart", n)
	}
}

func TestC5Effects(t *testing.T) {
	lab := harness.NewLab(t)
	forged := `{"name":"wipe","description":"x","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`
	servers := harness.M{}
	for name, change := range map[string]harness.M{
		"none": {}, "trusted": {"trust": "annotations"}, "all": {"trust": "read_only"}, "old": {"read_only": true}, "listed": {"effects": harness.M{"wipe": "idempotent"}},
	} {
		e := listing(t, lab, name, newList(t, forged))
		delete(e, "effects")
		for k, v := range change {
			e[k] = v
		}
		servers[name] = e
	}
	cfg := harness.M{"version": 1, "mcp_servers": servers} // no permissions: reads only
	b := harness.Library(t, cfg)
	for name, want := range map[string]string{"none": "side_effect default", "trusted": "read_only annotation", "all": "read_only config", "old": "read_only config", "listed": "idempotent config"} {
		tl, ok := b.Catalogue().LookupRemote(name, "wipe")
		if got := tl.Effect.String() + " " + tl.EffectSource.String(); !ok || got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if out := b.Call(context.Background(), messages.CallTool{Tool: "none/wipe"}); out.Kind != messages.Rejected || out.Sent() {
		t.Errorf("a forged hint lets a call through: %s/%s", out.Kind, out.Code)
	}
	if out := b.Call(context.Background(), messages.CallTool{Tool: "trusted/wipe"}); out.Kind != messages.OK {
		t.Errorf("a hint that is trusted: %s %s", out.Kind, out.ErrorText())
	}
}

func TestC6RegisteredIsNotAllowed(t *testing.T) {
	lab := harness.NewLab(t)
	e := lab.Server(t, "s")
	e["tools"] = harness.M{"deny": []any{"crash"}}
	d := harness.Start(t, harness.Options{Config: harness.M{"version": 1, "mcp_servers": harness.M{"s": e},
		"permissions": []any{harness.M{"tool": "put", "action": "deny"}, harness.M{"effect": "read_only", "action": "allow"}}}})
	raw := d.Raw(t, d.URL)
	list := string(raw.Do(t, "tools/list", `{}`).Result)
	if strings.Contains(list, "s__crash") || !strings.Contains(list, `"name":"s__put"`) || !strings.Contains(list, `"mcpbridge/permission":"deny"`) {
		t.Errorf("listed: %s", list)
	}
	for tool, code := range map[string]messages.Code{"s/crash": messages.CodeUnknownTool, "s/nothing": messages.CodeUnknownTool, "s/put": messages.CodeDenied, "s/write": messages.CodeDenied, "other/read": messages.CodeUnknownTool} {
		if o, r := d.Call(t, tool, `{"nonce":"refused"}`); o.Kind != messages.Rejected || o.Code != code {
			t.Errorf("%s: %s", tool, r)
		}
	}
	if o, r := d.Call(t, "s/put", `{}`); !strings.Contains(o.ErrorText()+o.Hint, "permissions[0]") || !strings.Contains(o.ErrorText()+o.Hint, "action: allow") {
		t.Errorf("the refusal names no rule: %s", r)
	}
	if n := lab.History(t).Begins("refused"); n != 0 {
		t.Errorf("%d refused calls reached the server", n)
	}
}

// TestC7ProviderForms: command and library give the same, from the same catalogue, and
// what was changed is told apart from the data.
func TestC7ProviderForms(t *testing.T) {
	lab := harness.NewLab(t)
	f := newList(t, `{"name":"find","description":"Finds\nthings.","inputSchema":{"type":"object","properties":{"q":{"type":["string","null"],"description":"what"},"n":{"$ref":"#/$defs/n"}},"required":["q"],"$defs":{"n":{"type":"integer","exclusiveMinimum":0}}}}`,
		`{"name":"odd","description":"x","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"oneOf":[{"required":["n"]}]}}`)
	cfg := harness.Config(harness.M{"s": listing(t, lab, "s", f)})
	d := harness.Start(t, harness.Options{Config: cfg})
	cat := harness.Library(t, cfg).Catalogue()
	for form, lib := range map[string]messages.Form{"openai": cat.OpenAI(), "anthropic": cat.Anthropic(), "gemini": cat.Gemini()} {
		r := d.OK(t, "tools", "-o", form)
		want, err := json.Marshal(lib)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(r.Stdout) != string(want) {
			t.Errorf("%s: the command says %s\nthe library %s", form, r.Stdout, want)
		}
		if !strings.Contains(r.Stderr, "s/odd") || strings.Contains(r.Stderr, "s/find") {
			t.Errorf("%s: stderr: %s", form, r.Stderr)
		}
		if strings.Contains(r.Stdout, "$ref") != (form == "openai") {
			t.Errorf("%s: %s", form, r.Stdout)
		}
	}
	for form, shape := range map[string]string{
		"openai":    `[{"type":"function","function":{"name":"mcp__s__find","description":"Finds\nthings.","parameters":{"type":"object"`,
		"anthropic": `[{"name":"mcp__s__find","description":"Finds\nthings.","input_schema":{"type":"object"`,
		"gemini":    `[{"functionDeclarations":[{"name":"mcp__s__find","description":"Finds\nthings.","parameters":{"type":"OBJECT","properties":{"q":{"type":"STRING","description":"what","nullable":true},"n":{"type":"INTEGER","minimum":1}},"required":["q"]}}`,
	} {
		if r := d.OK(t, "tools", "-o", form, "find"); !strings.HasPrefix(r.Stdout, shape) || r.Stderr != "" {
			t.Errorf("%s", r)
		}
	}
	want := "## MCP Tools\n\n- mcp__s__find: Finds\n  things.\n  Parameters:\n  - q (string or null, required): what\n  - n (integer, optional)\n"
	if r := d.OK(t, "tools", "-o", "prompt", "find"); r.Stdout != want || !strings.HasPrefix(cat.Prompt(), want) {
		t.Errorf("%s\nlibrary: %s", r, cat.Prompt())
	}
	if o, r := d.Call(t, "mcp__s__find", `{"q":null}`); o.Kind != messages.OK {
		t.Errorf("the name that a provider sees is called: %s", r)
	}
}

func TestC9Views(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := harness.Config(harness.M{"s": lab.Server(t, "s"), "docs": lab.Server(t, "docs")})
	cfg["views"] = harness.M{"plan": harness.M{"effects": []any{"read_only"}}, "docs": harness.M{"tools": []any{"docs__re*"}}}
	d := harness.Start(t, harness.Options{Config: cfg})
	d.Await(t, "ready", "s", "docs")
	tools, _ := toolsOf(t, d, "--view", "docs")
	if got := names(tools); !slices.Equal(got, []string{"docs__read", "docs__remove_tool"}) {
		t.Errorf("%v", got)
	}
	tools, _ = toolsOf(t, d, "--view", "plan")
	for _, tl := range tools {
		if tl.Effect != messages.ReadOnly {
			t.Errorf("plan shows %s", tl.Name)
		}
	}
	for view, tool := range map[string]string{"plan": "s__write", "docs": "s__read", "nonsense": "s__read"} {
		if o, r := d.Call(t, tool, `{"nonce":"unseen"}`, "--view", view); o.Kind != messages.Rejected || o.Code != messages.CodeUnknownTool {
			t.Errorf("%s in %s: %s", tool, view, r)
		}
	}
	raw := d.Raw(t, d.URL+"?view=plan")
	if list := string(raw.Do(t, "tools/list", `{}`).Result); strings.Contains(list, "s__write") || !strings.Contains(list, "s__read") {
		t.Errorf("/mcp?view=plan lists %s", list)
	}
	if res := string(raw.CallTool(t, "s__write", `{"nonce":"unseen"}`)); !strings.Contains(res, `"mcpbridge/code":"unknown_tool"`) {
		t.Errorf("/mcp?view=plan calls %s", res)
	}
	if n := lab.History(t).Begins("unseen"); n != 0 {
		t.Errorf("%d calls that no view shows reached a server", n)
	}
}

// TestB3Stages: each way in which a server can fail says how far it came.
func TestB3Stages(t *testing.T) {
	lab := harness.NewLab(t)
	quick := func(e harness.M) harness.M {
		e["timeouts"] = harness.M{"start": "2s", "first_start": "2s"}
		e["restart"] = harness.M{"mode": "never"}
		return e
	}
	hidden := listing(t, lab, "hidden", newList(t, entry("x"), entry("y")))
	hidden["tools"] = harness.M{"deny": []any{"x"}}
	crashed := lab.Server(t, "crashed", "-exit-on", "listed", "-exit-code", "7", "-stderr", "out of cheese", "-exit-delay", "100ms")
	servers := harness.M{
		"config":       harness.M{"command": "true", "env": harness.M{"TOKEN": "${SURELY_NOT_SET}"}},
		"spawn":        quick(harness.M{"command": "surely-no-such-command"}),
		"connect":      quick(harness.M{"url": "http://127.0.0.1:1/mcp", "type": "http"}),
		"handshake":    quick(lab.Server(t, "handshake", "-silent", "discover,initialize", "-stderr", "hello from below")),
		"list_tools":   quick(lab.Server(t, "list", "-silent", "list")),
		"adapt_tool":   listing(t, lab, "adapt", newList(t, `null`, entry("x"))),
		"register":     hidden,
		"running":      quick(crashed),
		"nothing_odd!": listing(t, lab, "fine", newList(t, entry("x"))),
	}
	d := harness.Start(t, harness.Options{Config: harness.Config(servers)})
	for name := range servers {
		if name == "nothing_odd!" {
			continue
		}
		var got string
		harness.Eventually(t, name+" has an issue of its stage", func() bool {
			r := d.Server(t, name)
			got = issuesOf(r)
			return slices.ContainsFunc(r.Issues, func(i messages.Issue) bool { return string(i.Stage) == name && i.Message != "" && i.Server == name })
		})
		for _, want := range map[string][]string{"config": {"env.TOKEN", "SURELY_NOT_SET"}, "spawn": {"surely-no-such-command", "PATH"}, "running": {"exit status 7"}}[name] {
			if !strings.Contains(got, want) {
				t.Errorf("%s: nobody says %q:\n%s", name, want, got)
			}
		}
	}
	if tail := strings.Join(d.Server(t, "handshake").LastExit.StderrTail, "\n"); !strings.Contains(tail, "hello from below") {
		t.Errorf("the last lines of stderr: %q", tail)
	}
	d.Await(t, "ready", "nothing_odd!")
	if got := issuesOf(d.Server(t, "nothing_odd!")); got != "" {
		t.Errorf("a server without a flaw: %s", got)
	}
}

// TestB5Counters: each number, and for each difference an issue.
func TestB5Counters(t *testing.T) {
	lab := harness.NewLab(t)
	var flood []string
	for range 300 { // more oddities than are shown one by one
		flood = append(flood, `{"description":"nameless"}`)
	}
	hidden := listing(t, lab, "hidden", newList(t, entry("x"), entry("y"), entry("z")))
	hidden["tools"] = harness.M{"deny": []any{"x"}}
	capped := lab.Server(t, "capped", "-tools", "30")
	capped["limits"] = harness.M{"tools": 10}
	off := lab.Server(t, "off")
	off["enabled"] = false
	stopped := listing(t, lab, "stopped", newList(t, entry("x"), entry("y")))
	cfg := harness.Config(harness.M{
		"odd":    listing(t, lab, "odd", newList(t, `null`, entry("good"), entry("good"), `{"name":""}`, `{"name":"blank"}`)),
		"flood":  listing(t, lab, "flood", newList(t, append(flood, entry("good"))...)),
		"hidden": hidden, "capped": capped, "off": off, "stopped": stopped,
		"broken": harness.M{"command": "true", "env": harness.M{"A": "${SURELY_NOT_SET}"}},
		"lazy":   harness.M{"command": harness.Fixture(t), "connect": "lazy"},
	})
	w := harness.NewWorld(t)
	d := harness.Start(t, harness.Options{World: w, Config: cfg})
	d.Await(t, "ready", "odd", "flood", "hidden", "capped", "stopped")
	d.OK(t, "stop", "stopped", "--wait")
	st := d.Status(t)
	want := messages.Counts{Configured: 7, Connected: 4, Discovered: 5 + 301 + 3 + 46 + 2, Adapted: 2 + 1 + 3 + 10 + 2, Registered: 2 + 1 + 2 + 10}
	if st.Bridge.Counts != want {
		t.Errorf("counts %+v\nwant   %+v", st.Bridge.Counts, want)
	}
	for name, words := range map[string][]string{
		"odd":    {"entry 1 of tools/list", "listed twice", "entry 4 of tools/list has no name"},
		"flood":  {"entry 100 of", "200 more issues", "200 of them are entries that were dropped"},
		"hidden": {"1 tool hidden by"}, "capped": {"more than 10 tools"}, "stopped": {"2 tools not on offer while the server is stopped"},
		"off": {"enabled: false"}, "broken": {"SURELY_NOT_SET"}, "lazy": {"not started"},
	} {
		r, _ := st.Server(name)
		for _, word := range words {
			if !strings.Contains(issuesOf(r), word) {
				t.Errorf("%s: no issue says %q:\n%.2000s", name, word, issuesOf(r))
			}
		}
	}
	// The library says the same, as a copy.
	delete(cfg["mcp_servers"].(harness.M), "broken")
	b := harness.Library(t, cfg)
	mine := b.Status() // in which nothing is stopped, and the first list has woken the lazy one
	if want := (messages.Counts{Configured: 7, Connected: 6, Discovered: want.Discovered + 16, Adapted: want.Adapted + 16, Registered: want.Registered + 2 + 16}); mine.Bridge.Counts != want {
		t.Errorf("library: %+v", mine.Bridge.Counts)
	}
	mine.Servers[0].Name, mine.Servers[0].Issues = "changed", nil
	if again := b.Status(); again.Servers[0].Name == "changed" {
		t.Error("Status is no copy")
	}
}

// damage overwrites every stored definition.
func damage(t *testing.T, w *harness.World, with func([]byte) []byte) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.State, "definitions", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(f, with(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return len(files)
}
