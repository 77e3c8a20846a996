package catalogue

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

var (
	fullName     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	endpointName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)
)

// fits fails for names that a provider would refuse, or that are given twice.
func fits(t *testing.T, tools []messages.Tool) {
	t.Helper()
	seen := map[string]string{}
	for _, tl := range tools {
		if !fullName.MatchString(tl.Name) || !endpointName.MatchString(tl.EndpointName) {
			t.Errorf("%s/%s is %q, at the endpoint %q", tl.Server, tl.RemoteName, tl.Name, tl.EndpointName)
		}
		for _, n := range []string{tl.Name, tl.EndpointName} {
			id := tl.Server + "/" + tl.RemoteName
			if other, ok := seen[n]; ok && other != id {
				t.Errorf("%s and %s are both %s", other, id, n)
			}
			seen[n] = id
		}
	}
}

// reaches calls a tool under a name and fails unless the server's own one answered.
func reaches(t *testing.T, call func(name, args string) messages.Outcome, name string, want messages.Tool) {
	t.Helper()
	o := call(name, `{"nonce":"n"}`)
	if o.Kind != messages.OK || o.Server != want.Server || o.RemoteTool != want.RemoteName {
		t.Errorf("%s reached %s/%s: %s %s", name, o.Server, o.RemoteTool, o.Kind, o.ErrorText())
	}
}

func TestC1LocalNames(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"fs": listing(t, lab, "fs", newList(t, entry("read_file")))})})
	tools, _ := toolsOf(t, d)
	if len(tools) != 1 || tools[0].Name != "mcp__fs__read_file" || tools[0].EndpointName != "fs__read_file" || tools[0].RemoteName != "read_file" {
		t.Fatalf("%+v", tools)
	}
	for _, name := range []string{"mcp__fs__read_file", "fs__read_file", "fs/read_file"} {
		reaches(t, func(name, args string) messages.Outcome { o, _ := d.Call(t, name, args); return o }, name, tools[0])
	}
	raw := d.Raw(t, d.URL)
	if list := string(raw.Do(t, "tools/list", `{}`).Result); !strings.Contains(list, `"name":"fs__read_file"`) {
		t.Errorf("the endpoint lists %s", list)
	}
	if list := string(d.Raw(t, d.Base()+"/servers/fs/mcp").Do(t, "tools/list", `{}`).Result); !strings.Contains(list, `"name":"read_file"`) {
		t.Errorf("the server's own endpoint lists %s", list)
	}
}

// TestC2NameLimits: what is added or taken away elsewhere renames nothing.
func TestC2NameLimits(t *testing.T) {
	lab := harness.NewLab(t)
	odd := newList(t, entry("a.b"), entry("a_b"), entry(strings.Repeat("long", 30)), entry("x__y"), entry("_x"), entry("plain"))
	one := harness.M{"a": listing(t, lab, "a", odd), "a.": listing(t, lab, "a2", odd)}
	before := harness.Library(t, harness.Config(one)).Catalogue().Tools()
	fits(t, before)
	if len(before) != 12 {
		t.Fatalf("%d tools: %v", len(before), remotes(before))
	}
	more := harness.M{"a": one["a"], "a.": one["a."], "a_": listing(t, lab, "a3", odd), "a__a": listing(t, lab, "a4", odd), strings.Repeat("s", 60): listing(t, lab, "a5", odd)}
	b := harness.Library(t, harness.Config(more))
	after := b.Catalogue().Tools()
	fits(t, after)
	if len(after) != 30 {
		t.Fatalf("%d tools: %v", len(after), remotes(after))
	}
	for _, was := range before {
		now, ok := b.Catalogue().LookupRemote(was.Server, was.RemoteName)
		if !ok || now.Name != was.Name || now.EndpointName != was.EndpointName {
			t.Errorf("%s/%s was %s and is %s", was.Server, was.RemoteName, was.Name, now.Name)
		}
	}
	for _, tl := range after {
		reaches(t, func(name, args string) messages.Outcome {
			return b.Call(context.Background(), messages.CallTool{Tool: name, Args: json.RawMessage(args)})
		}, tl.EndpointName, tl)
	}
}

func TestC3ReservedNames(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := harness.Config(harness.M{"fs": listing(t, lab, "fs", newList(t, entry("bash"), entry("read")))})
	cfg["reserved_names"] = []any{"mcp__fs__bash"}
	d := harness.Start(t, harness.Options{Config: cfg})
	tools, _ := toolsOf(t, d)
	if len(tools) != 2 || !strings.HasPrefix(tools[0].Name, "mcp__fs__bash__") || tools[0].EndpointName != "fs__bash" || tools[1].Name != "mcp__fs__read" {
		t.Errorf("%v %+v", names(tools), tools)
	}
	if got := issuesOf(d.Server(t, "fs")); !strings.Contains(got, "reserved") || !strings.Contains(got, tools[0].Name) {
		t.Errorf("issues: %s", got)
	}
	if o, r := d.Call(t, "mcp__fs__bash", `{}`); o.Code != messages.CodeUnknownTool {
		t.Errorf("the reserved name is called: %s", r)
	}
}

// TestC4OddTools: one odd tool never hides the others.
func TestC4OddTools(t *testing.T) {
	lab := harness.NewLab(t)
	f := newList(t, `null`, `7`, `{"description":"nameless"}`, entry("good"), `{"name":"good","description":"the second"}`,
		`{"name":"blank","description":" ","inputSchema":null}`, `{"name":"odd","inputSchema":[1]}`)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": listing(t, lab, "s", f)})})
	tools, _ := toolsOf(t, d)
	if got := names(tools); !slices.Equal(got, []string{"s__blank", "s__good", "s__odd"}) {
		t.Fatalf("%v", got)
	}
	for _, tl := range tools {
		want := map[string]string{"good": "does it", "blank": `Tool "blank" from MCP server "s".`, "odd": `Tool "odd" from MCP server "s".`}[tl.RemoteName]
		if tl.Def.Description != want || string(tl.Def.InputSchema) != `{"type":"object"}` {
			t.Errorf("%s: %q %s", tl.RemoteName, tl.Def.Description, tl.Def.InputSchema)
		}
	}
	got := issuesOf(d.Server(t, "s"))
	for _, want := range []string{"entry 1 of tools/list is no object", "entry 2 ", "entry 3 of tools/list has no name", "listed twice", `tool "blank": inputSchema is missing`, `tool "odd": inputSchema is no object`} {
		if !strings.Contains(got, want) {
			t.Errorf("no issue says %q:\n%s", want, got)
		}
	}
}

// TestB46LongNames: prefix and tool name together are longer than any provider takes.
func TestB46LongNames(t *testing.T) {
	lab := harness.NewLab(t)
	server := strings.Repeat("s", 45)
	tool, twin := strings.Repeat("t", 52), strings.Repeat("u", 60)
	f := newList(t, entry(tool), entry(twin+"first"), entry(twin+"second"))
	w := harness.NewWorld(t)
	var before string
	for range 2 { // stable over restarts
		d := harness.Start(t, harness.Options{World: w, Config: harness.Config(harness.M{server: listing(t, lab, "s", f)})})
		tools, raw := toolsOf(t, d)
		fits(t, tools)
		if len(tools) != 3 {
			t.Fatalf("%v", remotes(tools))
		}
		if before != "" && raw != before {
			t.Errorf("before: %s\nafter:  %s", before, raw)
		}
		before = raw
		for _, tl := range tools {
			for _, name := range []string{tl.Name, tl.EndpointName} {
				reaches(t, func(name, args string) messages.Outcome { o, _ := d.Call(t, name, args); return o }, name, tl)
			}
			res := d.Raw(t, d.URL).CallTool(t, tl.EndpointName, `{"nonce":"x"}`)
			if !strings.Contains(string(res), `"nonce`) {
				t.Errorf("%s through the endpoint: %s", tl.EndpointName, res)
			}
		}
		d.Stop(t)
	}
}

// TestB48SameNames: the same name on two servers, and twice on one.
func TestB48SameNames(t *testing.T) {
	lab := harness.NewLab(t)
	var before []messages.Tool
	for _, slow := range []string{"a", "b"} { // whoever comes up first
		servers := harness.M{}
		for _, name := range []string{"a", "b"} {
			f := newList(t, entry("send"), `{"name":"send","description":"the second","inputSchema":{"type":"object"}}`)
			var more []string
			if name == slow {
				more = []string{"-start-delay", "300ms"}
			}
			servers[name] = listing(t, lab, name, f, more...)
		}
		b := harness.Library(t, harness.Config(servers))
		tools := b.Catalogue().Tools()
		if got := names(tools); !slices.Equal(got, []string{"a__send", "b__send"}) {
			t.Fatalf("%v", got)
		}
		for _, tl := range tools {
			if tl.Def.Description != "does it" {
				t.Errorf("%s: the first one is %q", tl.EndpointName, tl.Def.Description)
			}
			reaches(t, func(name, args string) messages.Outcome {
				return b.Call(context.Background(), messages.CallTool{Tool: name, Args: json.RawMessage(args)})
			}, tl.EndpointName, tl)
			row, _ := b.Status().Server(tl.Server)
			if !strings.Contains(issuesOf(row), "listed twice") {
				t.Errorf("%s: %s", tl.Server, issuesOf(row))
			}
		}
		if before != nil && !slices.EqualFunc(before, tools, func(x, y messages.Tool) bool { return x.Name == y.Name && x.Digest == y.Digest }) {
			t.Errorf("the order of the starts counts: %v and %v", names(before), names(tools))
		}
		before = tools
	}
}

// TestB49OddNames: names that strict clients refuse.
func TestB49OddNames(t *testing.T) {
	lab := harness.NewLab(t)
	odd := []string{"a.b", "a/b", "a b", "日本", strings.Repeat("x", 200)}
	list := []string{entry("")}
	for _, n := range odd {
		list = append(list, entry(n))
	}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": listing(t, lab, "s", newList(t, list...))})})
	tools, _ := toolsOf(t, d)
	fits(t, tools)
	if len(tools) != len(odd) {
		t.Fatalf("%v", remotes(tools))
	}
	raw := d.Raw(t, d.URL)
	var listed struct {
		Tools []struct{ Name, Title string }
	}
	if err := json.Unmarshal(raw.Do(t, "tools/list", `{}`).Result, &listed); err != nil {
		t.Fatal(err)
	}
	for _, tl := range listed.Tools {
		if !endpointName.MatchString(tl.Name) || !slices.Contains(odd, tl.Title) {
			t.Errorf("listed as %q with the title %q", tl.Name, tl.Title)
		}
		if res := string(raw.CallTool(t, tl.Name, `{"nonce":"x"}`)); strings.Contains(res, `"isError":true`) {
			t.Errorf("%s: %s", tl.Title, res)
		}
	}
	if got := issuesOf(d.Server(t, "s")); !strings.Contains(got, "has no name and was dropped") {
		t.Errorf("issues: %s", got)
	}
}

// TestNobodyGuesses: a server/tool form that two tools go by calls neither of them, and
// says how each is called; every other name of both works.
func TestNobodyGuesses(t *testing.T) {
	lab := harness.NewLab(t)
	servers := harness.M{"a": listing(t, lab, "short", newList(t, entry("b/c"), entry("b/d"))), "a/b": listing(t, lab, "long", newList(t, entry("c")))}
	d := harness.Start(t, harness.Options{Config: harness.Config(servers)})
	d.Await(t, "ready", "a", "a/b")
	tools, _ := toolsOf(t, d)
	if got := remotes(tools); !slices.Equal(got, []string{"a/b/c", "a/b/d", "a/b/c"}) && !slices.Equal(got, []string{"a/b/c", "a/b/c", "a/b/d"}) {
		t.Fatalf("listed: %v", got)
	}
	o, r := d.Call(t, "a/b/c", `{"nonce":"guessed"}`)
	if o.Kind != messages.Rejected || o.Code != messages.CodeUnknownTool || o.Sent() {
		t.Errorf("%s", r)
	}
	if r := d.CLI(t, "call", "a/b/c", "nonce=guessed"); r.Exit != 7 || !strings.Contains(r.Stderr+r.Stdout, "more than one tool") {
		t.Errorf("%s", r)
	}
	if n := lab.History(t).Begins("guessed"); n != 0 {
		t.Errorf("%d calls of an ambiguous name reached a server", n)
	}
	for _, tl := range tools {
		if tl.RemoteName == "b/d" {
			continue
		}
		if !strings.Contains(o.Hint, tl.Name) {
			t.Errorf("the refusal does not name %s: %s", tl.Name, r)
		}
		for _, name := range []string{tl.Name, tl.EndpointName} {
			if o, r := d.Call(t, name, `{}`); o.Kind != messages.OK || o.Server != tl.Server || o.RemoteTool != tl.RemoteName {
				t.Errorf("%s: %s", name, r)
			}
		}
	}
	if o, r := d.Call(t, "a/b/d", `{}`); o.Kind != messages.OK || o.Server != "a" {
		t.Errorf("what only one tool goes by: %s", r)
	}
	for path, name := range map[string]string{"/servers/a/mcp": "b/c", "/servers/a%2Fb/mcp": "c"} {
		if res := string(d.Raw(t, d.Base()+path).CallTool(t, name, `{}`)); strings.Contains(res, `"isError":true`) {
			t.Errorf("%s: %s", path, res)
		}
	}
}
