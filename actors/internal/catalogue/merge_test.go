package catalogue

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mcpbridge/messages"
)

func def(name string) messages.ToolDef {
	raw := json.RawMessage(fmt.Sprintf(`{"name":%q}`, name))
	return messages.ToolDef{Name: name, Description: "about " + name, InputSchema: json.RawMessage(`{"type":"object"}`), Raw: raw}
}

func listing(names ...string) messages.Listing {
	l := messages.Listing{Discovered: len(names)}
	for _, n := range names {
		l.Tools = append(l.Tools, def(n))
	}
	return l
}

func open() Rules {
	return Rules{
		Input: func(messages.ToolDef) string { return "" },
		Effect: func(messages.ToolDef) (messages.Effect, messages.EffectSource) {
			return messages.ReadOnly, messages.FromConfig
		},
		Decide:   func(messages.Tool) (messages.Permission, string) { return messages.Allow, "permissions[0]" },
		Visible:  func(string) bool { return true },
		Limits:   func(string) messages.ToolLimits { return messages.ToolLimits{} },
		Problems: func(messages.ToolDef) []string { return nil },
		Output:   func(messages.ToolDef) (bool, string) { return true, "" },
		Reserved: func(string) bool { return false },
	}
}

func TestPart(t *testing.T) {
	rules := open()
	rules.Visible = func(remote string) bool { return remote != "secret" && remote != "hidden" }
	rules.Limits = func(remote string) messages.ToolLimits { return messages.ToolLimits{AbandonNever: remote == "job"} }
	rules.Reserved = func(name string) bool { return name == "fs__job" }
	rules.Problems = func(d messages.ToolDef) []string {
		if d.Name == "job" {
			return []string{"odd schema"}
		}
		return nil
	}
	rules.Output = func(d messages.ToolDef) (bool, string) {
		if d.Name == "job" {
			return false, "odd output schema"
		}
		return true, ""
	}
	l := listing("read", "secret", "hidden", "job")
	for i := range l.Tools {
		l.Tools[i].OutputSchema = json.RawMessage(`{"type":"object"}`)
	}
	l.Discovered = 6
	l.Issues = []messages.Issue{{Stage: messages.StageAdaptTool, Severity: messages.SeverityWarning, Message: "2 entries without a name"}}
	p := NewPart("fs", l, rules)
	if p.Discovered != 6 || p.Adapted != 4 || len(p.Tools) != 2 {
		t.Fatalf("discovered %d, adapted %d, tools %d", p.Discovered, p.Adapted, len(p.Tools))
	}
	want := []messages.Issue{
		{Stage: "adapt_tool", Severity: "warning", Server: "fs", Message: "2 entries without a name"},
		{Stage: "register", Severity: "warning", Server: "fs", Tool: "job", Message: "its name is reserved; it is offered as mcp__fs__job"},
		{Stage: "adapt_tool", Severity: "warning", Server: "fs", Tool: "job", Message: "odd schema"},
		{Stage: "adapt_tool", Severity: "warning", Server: "fs", Tool: "job", Message: "odd output schema"},
		{Stage: "register", Severity: "warning", Server: "fs", Message: "2 tools hidden by tools.allow and tools.deny"},
	}
	if d := cmp.Diff(want, p.Issues); d != "" {
		t.Error(d)
	}
	job := p.Tools[1]
	if !job.Limits.AbandonNever || job.EndpointName != "fs__job__"+Hash("fs", "job") || job.Effect != messages.ReadOnly ||
		job.Permission != messages.Allow || job.Rule != "permissions[0]" || job.Digest != Digest(l.Tools[3]) || job.Def.OutputSchema != nil || p.Tools[0].Def.OutputSchema == nil || l.Tools[3].OutputSchema == nil {
		t.Errorf("%+v", job)
	}
}

func TestMerge(t *testing.T) {
	b := NewPart("b", listing("x", "y"), open())
	a := NewPart("a", listing("z"), open())
	double := a
	double.Tools = append(slices.Clone(a.Tools), b.Tools[0])
	double.Tools[1].Server, double.Tools[1].RemoteName = "a", "forged"
	m := Merge([]Source{{Part: b, Listed: true}, {Part: double, Listed: false, Why: "quarantined"}})
	var got []string
	for _, tool := range m.Tools {
		got = append(got, fmt.Sprint(tool.Name, " ", tool.Listed))
	}
	// a comes first by name, so it keeps the name that both claim.
	if d := cmp.Diff([]string{"mcp__a__z false", "mcp__b__x false", "mcp__b__y true"}, got); d != "" {
		t.Error(d)
	}
	want := map[string][]messages.Issue{
		"a": {{Stage: "register", Severity: "warning", Server: "a", Message: "2 tools not on offer while the server is quarantined"}},
		"b": {{Stage: "register", Severity: "warning", Server: "b", Tool: "x", Message: "not offered: its name mcp__b__x belongs to a/forged already"}},
	}
	if d := cmp.Diff(want, m.Issues); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]int{"b": 1}, m.Registered); d != "" {
		t.Error(d)
	}
}

// TestMergeOrder: the catalogue depends on what is in it, not on who came first,
// and no tool is renamed because another server comes or goes.
func TestMergeOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c_.]{1,4}`), 1, 5, func(s string) string { return s }).Draw(t, "servers")
		var sources []Source
		for _, s := range servers {
			tools := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c_.]{1,4}`), 0, 5, func(s string) string { return s }).Draw(t, "tools")
			sources = append(sources, Source{Part: NewPart(s, listing(tools...), open()), Listed: rapid.Bool().Draw(t, "listed"), Why: "stopped"})
		}
		want := Merge(sources)
		if got := Merge(rapid.Permutation(sources).Draw(t, "order")); !slices.EqualFunc(want.Tools, got.Tools, Same) {
			t.Fatal("the order of the servers changes the catalogue")
		}
		if !slices.IsSortedFunc(want.Tools, func(a, b messages.Tool) int { return cmpString(a.Name, b.Name) }) {
			t.Fatal("not sorted")
		}
		total, registered := 0, 0
		for _, s := range sources {
			total += len(s.Part.Tools)
			registered += want.Registered[s.Part.Server]
			alone := Merge([]Source{s})
			for _, tool := range alone.Tools {
				if !slices.ContainsFunc(want.Tools, func(o messages.Tool) bool { return Same(o, tool) }) {
					t.Fatalf("%s is another one in company", tool.Name)
				}
			}
		}
		offered := 0
		for _, tool := range want.Tools {
			if tool.Listed {
				offered++
			}
		}
		if len(want.Tools) != total || offered != registered {
			t.Fatalf("%d of %d tools, %d offered, %d registered", len(want.Tools), total, offered, registered)
		}
	})
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestDigest(t *testing.T) {
	base := messages.ToolDef{Name: "a", Title: "t", Description: "d", InputSchema: json.RawMessage(`{"type":"object","x":[1,2.0]}`),
		OutputSchema: json.RawMessage(`{}`), Annotations: json.RawMessage(`{"readOnlyHint":true}`), Raw: json.RawMessage(`{"a":1}`)}
	with := func(f func(*messages.ToolDef)) messages.ToolDef { d := base; f(&d); return d }
	for name, same := range map[string]messages.ToolDef{
		"order and space": with(func(d *messages.ToolDef) { d.InputSchema = json.RawMessage("{ \"x\":[1,\n2.0],\"type\":\"object\" }") }),
		"escapes":         with(func(d *messages.ToolDef) { d.InputSchema = json.RawMessage(`{"type":"obj\u0065ct","x":[1,2.0]}`) }),
		"other fields":    with(func(d *messages.ToolDef) { d.Raw = json.RawMessage(`{"icons":[]}`) }),
	} {
		if Digest(same) != Digest(base) {
			t.Errorf("%s: the digest differs", name)
		}
	}
	seen := map[string]string{Digest(base): "base"}
	for name, other := range map[string]messages.ToolDef{
		"name":        with(func(d *messages.ToolDef) { d.Name = "b" }),
		"title":       with(func(d *messages.ToolDef) { d.Title = "" }),
		"description": with(func(d *messages.ToolDef) { d.Description = "d " }),
		"schema":      with(func(d *messages.ToolDef) { d.InputSchema = json.RawMessage(`{"type":"object","x":[2.0,1]}`) }),
		"number":      with(func(d *messages.ToolDef) { d.InputSchema = json.RawMessage(`{"type":"object","x":[1,2]}`) }),
		"output":      with(func(d *messages.ToolDef) { d.OutputSchema = nil }),
		"annotations": with(func(d *messages.ToolDef) { d.Annotations = json.RawMessage(`{"readOnlyHint":false}`) }),
		"swapped":     with(func(d *messages.ToolDef) { d.Title, d.Description = d.Description, d.Title }),
		"broken":      with(func(d *messages.ToolDef) { d.Annotations = json.RawMessage(`{`) }),
	} {
		d := Digest(other)
		if was, twice := seen[d]; twice {
			t.Errorf("%s has the digest of %s", name, was)
		}
		seen[d] = name
	}
	if got := Digest(base); len(got) != len("sha256:")+64 || got[:7] != "sha256:" {
		t.Errorf("digest %s", got)
	}
}

func TestView(t *testing.T) {
	match := func(patterns []string, name string) bool { return slices.Contains(patterns, name) }
	tool := messages.Tool{Server: "docs", EndpointName: "docs__find", Effect: messages.ReadOnly}
	for _, c := range []struct {
		v    View
		want bool
	}{
		{View{}, true},
		{View{Effects: []messages.Effect{messages.ReadOnly}}, true},
		{View{Effects: []messages.Effect{messages.SideEffect}}, false},
		{View{Tools: []string{"docs__find"}}, true},
		{View{Tools: []string{"find"}}, false},
		{View{Servers: []string{"docs"}}, true},
		{View{Servers: []string{"docs"}, Tools: []string{"x"}}, false},
	} {
		if got := c.v.Admits(match)(tool); got != c.want {
			t.Errorf("%+v: %v", c.v, got)
		}
	}
}
