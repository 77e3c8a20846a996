package messages

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sample() *Catalogue {
	tool := func(name, endpoint, server, remote string, e Effect, listed bool) Tool {
		return Tool{Name: name, EndpointName: endpoint, Server: server, RemoteName: remote, Effect: e, Listed: listed}
	}
	return NewCatalogue(3, []Tool{
		tool("mcp__a__b_c", "a__b_c", "a", "b/c", ReadOnly, true),
		tool("mcp__fs__read", "fs__read", "fs", "read", ReadOnly, true),
		tool("mcp__fs__write", "fs__write", "fs", "write", SideEffect, true),
		tool("mcp__old__read", "old__read", "old", "read", ReadOnly, false),
	}, map[string]func(Tool) bool{"plan": func(t Tool) bool { return t.Effect == ReadOnly }}, map[string]bool{"fs": true})
}

func names(tools []Tool) []string {
	out := []string{}
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return out
}

func TestLookup(t *testing.T) {
	c := sample()
	for in, want := range map[string]string{
		"mcp__fs__read": "mcp__fs__read", "fs__read": "mcp__fs__read", "fs/read": "mcp__fs__read",
		"old/read": "mcp__old__read", "a/b/c": "mcp__a__b_c", "read": "", "": "", "fs/Read": "",
	} {
		got, ok := c.Lookup(in)
		if ok != (want != "") || got.Name != want {
			t.Errorf("Lookup(%q) = %q, %t; want %q", in, got.Name, ok, want)
		}
	}
	if got, ok := c.LookupRemote("a", "b/c"); !ok || got.Name != "mcp__a__b_c" {
		t.Errorf("LookupRemote = %q, %t", got.Name, ok)
	}
	if _, ok := c.LookupRemote("a/b", "c"); ok {
		t.Error(`server "a/b" with tool "c" was found as "a" with "b/c"`)
	}
}

// TestLookupDoesNotGuess: servers and tools may have slashes in their names, so that one
// server/tool form may belong to several tools. It is then nobody's, in whatever order
// they come and in every view, and each is found by all its other names.
func TestLookupDoesNotGuess(t *testing.T) {
	one := Tool{Name: "mcp__a__b_c__1", EndpointName: "a__b_c__1", Server: "a", RemoteName: "b/c", Effect: ReadOnly}
	two := Tool{Name: "mcp__a_b__c__2", EndpointName: "a_b__c__2", Server: "a/b", RemoteName: "c", Effect: SideEffect, Listed: true}
	three := Tool{Name: "mcp__a_b_c__2", EndpointName: "a_b_c__2", Server: "a", RemoteName: "b/d"}
	rules := map[string]func(Tool) bool{"reads": func(t Tool) bool { return t.Effect == ReadOnly }}
	for _, tools := range [][]Tool{{one, two, three}, {two, one, three}, {three, two, one}} {
		whole := NewCatalogue(1, tools, rules, nil)
		reads, _ := whole.View("reads")
		for _, c := range []*Catalogue{whole, reads} {
			if got, ok := c.Lookup("a/b/c"); ok {
				t.Errorf("a/b/c is taken for %s", got.Name)
			}
		}
		if got := names(whole.Meanings("a/b/c")); len(got) != 2 {
			t.Errorf("a/b/c may mean %v", got)
		}
		if got := names(reads.Meanings("a/b/c")); len(got) != 1 || got[0] != one.Name {
			t.Errorf("in the view a/b/c may mean %v", got)
		}
		for _, want := range []Tool{one, two} {
			for _, name := range []string{want.Name, want.EndpointName} {
				if got, ok := whole.Lookup(name); !ok || got.Name != want.Name {
					t.Errorf("%s finds %s, %t", name, got.Name, ok)
				}
			}
			if got, ok := whole.LookupRemote(want.Server, want.RemoteName); !ok || got.Name != want.Name {
				t.Errorf("%s and %s find %s, %t", want.Server, want.RemoteName, got.Name, ok)
			}
		}
		if got, ok := whole.Lookup("a/b/d"); !ok || got.Name != three.Name || whole.Meanings("a/b/d") != nil {
			t.Errorf("a/b/d finds %s, %t", got.Name, ok)
		}
	}
}

func TestListsAndViews(t *testing.T) {
	c := sample()
	if diff := cmp.Diff([]string{"mcp__a__b_c", "mcp__fs__read", "mcp__fs__write"}, names(c.Tools())); diff != "" {
		t.Errorf("Tools (-want +got):\n%s", diff)
	}
	if len(c.All()) != 4 {
		t.Errorf("All = %v", names(c.All()))
	}
	plan, ok := c.View("plan")
	if diff := cmp.Diff([]string{"mcp__a__b_c", "mcp__fs__read"}, names(plan.Tools())); !ok || diff != "" {
		t.Errorf("plan: %t (-want +got):\n%s", ok, diff)
	}
	if _, ok := plan.Lookup("fs/write"); ok {
		t.Error("a tool outside of the view was found in it")
	}
	none, ok := c.View("nonsense")
	if ok || len(none.Tools()) != 0 {
		t.Errorf("unknown view: %t, %v", ok, names(none.Tools()))
	}
	if c.HasView("nonsense") || !c.HasView("plan") || !c.HasView("") {
		t.Error("HasView")
	}
	if all, ok := c.View(""); !ok || all != c {
		t.Error("the empty view is not the whole catalogue")
	}
	if !c.Knows("fs") || c.Knows("old") {
		t.Error("Knows")
	}
	if diff := cmp.Diff([]string{"mcp__fs__read", "mcp__fs__write"}, names(c.Server("fs"))); diff != "" {
		t.Errorf("Server (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mcp__fs__write"}, names(c.Filter("WRITE"))); diff != "" {
		t.Errorf("Filter (-want +got):\n%s", diff)
	}
}

// TestSnapshotsAreTheCallers: what a caller does to a slice never reaches the snapshot.
func TestSnapshotsAreTheCallers(t *testing.T) {
	c := sample()
	c.Tools()[0].Name, c.All()[0].Name = "changed", "changed"
	if got := c.Tools()[0].Name; got != "mcp__a__b_c" {
		t.Errorf("the snapshot now says %q", got)
	}
}

func TestToolJSON(t *testing.T) {
	tool := sample().Tools()[1]
	tool.Def = ToolDef{Name: "read", Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`)}
	tool.Permission, tool.EffectSource, tool.Digest = Allow, FromConfig, "sha256:00"
	b, err := json.Marshal(tool)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"mcp__fs__read","endpoint_name":"fs__read","server":"fs","remote_name":"read","description":"d","inputSchema":{"type":"object"},` +
		`"outputSchema":null,"annotations":null,"effect":"read_only","effect_source":"config","permission":"allow","digest":"sha256:00","listed":true}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	var back Tool
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tool, back); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

func TestStatusJSONHasNoNullLists(t *testing.T) {
	b, err := json.Marshal(Status{Servers: []ServerStatus{{Name: "fs", LastExit: &Exit{}}}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Issues  []any `json:"issues"`
		Servers []struct {
			State     string `json:"state"`
			Issues    []any  `json:"issues"`
			Instances []any  `json:"instances"`
			LastExit  struct {
				Tail []any `json:"stderr_tail"`
			} `json:"last_exit"`
			NextRetry *string `json:"next_retry"`
		} `json:"servers"`
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	s := got.Servers[0]
	if got.Issues == nil || s.Issues == nil || s.Instances == nil || s.LastExit.Tail == nil || s.State != "idle" || s.NextRetry != nil {
		t.Errorf("%s", b)
	}
}

func TestIssueString(t *testing.T) {
	for want, i := range map[string]Issue{
		"c.yaml:3:5: mcp_servers.fs.command: missing": {File: "c.yaml", Line: 3, Column: 5, Path: "mcp_servers.fs.command", Message: "missing"},
		"c.yaml:3:1: x":                 {File: "c.yaml", Line: 3, Message: "x"},
		`fs: adapt_tool: tool "a": odd`: {Server: "fs", Stage: StageAdaptTool, Tool: "a", Message: "odd"},
		"fs: spawn: npx not found":      {Server: "fs", Stage: StageSpawn, Message: "npx not found"},
	} {
		if got := i.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
