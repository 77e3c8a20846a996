package gate

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/test/harness"
)

// TestACallIsForWhatWasListed: where changed definitions stay on offer (warn), a client
// that listed the one before does not call the new one unseen. Each session for itself,
// in both eras, over HTTP and stdio.
func TestACallIsForWhatWasListed(t *testing.T) {
	changed := strings.Replace(calm, "outbox", "world", 1)
	w := newWardrobe(t)
	d := harness.Start(t, harness.Options{Config: config(harness.M{
		"fs": w.server(t, harness.M{"pins": harness.M{"on_change": "warn"}})}, harness.AllowAll()...)})
	d.Await(t, "ready", "fs")
	sessions := map[string]*mcp.ClientSession{
		"http": d.Session(t, "2025-11-25", nil), "stdio": d.StdioSession(t, "2025-11-25"), "stateless": d.Session(t, "2026-07-28", nil),
	}
	list := func(cs *mcp.ClientSession) {
		t.Helper()
		if _, err := cs.ListTools(harness.Context(t), nil); err != nil {
			t.Fatal(err)
		}
	}
	call := func(cs *mcp.ClientSession, tool, nonce string) string {
		t.Helper()
		res, err := cs.CallTool(harness.Context(t), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"nonce": nonce}})
		if err != nil {
			t.Fatal(err)
		}
		code, _ := res.Meta["mcpbridge/code"].(string)
		return code
	}
	var want []string
	for name, cs := range sessions {
		list(cs)
		if code := call(cs, "fs__send", name+"-1"); code != "" {
			t.Errorf("%s: a tool as it was listed: %q", name, code)
		}
		want = append(want, name+"-1")
	}
	fresh := d.Session(t, "2025-11-25", nil) // has listed nothing
	before := digestOf(t, d, "fs__send")
	w.wear(t, nil, changed)
	relist(t, d, func() bool { return digestOf(t, d, "fs__send") != before })
	want = append(want, "relist")
	for name, cs := range sessions {
		for _, tool := range []string{"fs__send", "mcp__fs__send", "fs/send"} { // by any of its names
			if code := call(cs, tool, "stale"); code != "tool_changed" {
				t.Errorf("%s: %s, which has changed since it was listed: %q", name, tool, code)
			}
		}
		if code := call(cs, "fs__read", name+"-read"); code != "" {
			t.Errorf("%s: a tool that has not changed: %q", name, code)
		}
		want = append(want, name+"-read")
	}
	if code := call(fresh, "fs__send", "fresh"); code != "" {
		t.Errorf("a session that has listed nothing: %q", code)
	}
	want = append(want, "fresh")
	for name, cs := range sessions {
		list(cs)
		if code := call(cs, "fs__send", name+"-2"); code != "" {
			t.Errorf("%s: after it has listed again: %q", name, code)
		}
		want = append(want, name+"-2")
	}
	ran(t, w.lab, want...)
}
