package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"

	"mcpbridge/config"
	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

var always = Options{Discovery: config.Discovery{MetaTools: "always"}}

// manyTools are n tools of four servers with a hundred words of description each.
func manyTools(n int) []messages.Tool {
	verbs, things := []string{"create", "delete", "list", "read", "update"}, []string{"issue", "repository", "invoice", "calendar_event", "file", "user", "branch"}
	var out []messages.Tool
	for i := range n {
		verb, thing, server := verbs[i%len(verbs)], things[i/len(verbs)%len(things)], fmt.Sprintf("server%d", i%4)
		name := fmt.Sprintf("%s_%s_%d", verb, thing, i)
		text := fmt.Sprintf("Tool %d: %s one %s. ", i, verb, thing) + strings.Repeat("It has a description of many words. ", 12)
		out = append(out, tool(server, name, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{"id":{"type":"string"}}}}`, name, text)))
	}
	return out
}

// ask calls a tool and returns its text.
func ask(t *testing.T, cs *mcp.ClientSession, name string, args any) (text string, res *mcp.CallToolResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	return res.Content[0].(*mcp.TextContent).Text, res
}

// TestDiscovery: a thousand tools cost a model under a thousand tokens, at four bytes a
// token, and each of them can be found, described and called, by every way in.
func TestDiscovery(t *testing.T) {
	b := newBackend(manyTools(1000)...)
	g, srv := start(t, b, Options{Discovery: config.Discovery{MetaTools: "auto", OverTokens: 10000}})
	eachWay(t, func(t *testing.T, d dialer) {
		cs, _, _ := d.connect(t, g, srv.URL)
		list, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if tokens := len(raw) / bytesPerToken; tokens >= 1000 {
			t.Errorf("the list costs %d tokens: %s", tokens, raw)
		}
		if got := names(t, cs); !slices.Equal(got, []string{callTool, describeTool, searchTools}) {
			t.Fatalf("listed: %v", got)
		}
		for _, tl := range list.Tools {
			if readOnly := tl.Annotations.ReadOnlyHint; readOnly != (tl.Name != callTool) {
				t.Errorf("%s says readOnlyHint %v", tl.Name, readOnly)
			}
		}
		text, _ := ask(t, cs, searchTools, map[string]any{"query": "create calendar events", "limit": 3})
		var found struct {
			Tools []struct{ Name, Description, Effect, Permission string }
			Total int
		}
		if err := json.Unmarshal([]byte(text), &found); err != nil || len(found.Tools) != 3 || found.Total < 3 {
			t.Fatalf("%v %s", err, text)
		}
		name := found.Tools[0].Name
		if !strings.Contains(name, "create_calendar_event") {
			t.Errorf("found %s first", name)
		}
		if text, _ = ask(t, cs, describeTool, map[string]any{"name": name}); !strings.Contains(text, `"inputSchema":{"type":"object","properties":{"id"`) || !strings.Contains(text, name) {
			t.Errorf("described: %s", text)
		}
		if text, _ = ask(t, cs, callTool, map[string]any{"name": name, "arguments": json.RawMessage(`{"id":"x","n":9007199254740993}`)}); text != "hi" {
			t.Errorf("called: %s", text)
		}
		if c := b.last(t); c.Tool != name || string(c.Args) != `{"id":"x","n":9007199254740993}` || c.Client != Anonymous && !d.stream {
			t.Errorf("the backend got %s %s of %s", c.Tool, c.Args, c.Client)
		}
		if text, _ = ask(t, cs, name, map[string]any{"id": "direct"}); text != "hi" || string(b.last(t).Args) != `{"id":"direct"}` {
			t.Errorf("by its own name: %s", text)
		}
	})
}

// TestDiscoveryLimits: what decides is the size of the definitions at /mcp, and one
// server's own endpoint never hides its tools.
func TestDiscoveryLimits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		d     config.Discovery
		tools int
		path  string
		meta  bool
	}{
		{"small", config.Discovery{MetaTools: "auto", OverTokens: 10000}, 20, "/mcp", false},
		{"large", config.Discovery{MetaTools: "auto", OverTokens: 10000}, 200, "/mcp", true},
		{"large, but what the view admits is not", config.Discovery{MetaTools: "auto", OverTokens: 10000}, 200, "/mcp?view=plan", false},
		{"never", config.Discovery{MetaTools: "never", OverTokens: 10}, 200, "/mcp", false},
		{"always", config.Discovery{MetaTools: "always"}, 1, "/mcp", true},
		{"one server", config.Discovery{MetaTools: "always"}, 200, "/servers/server1/mcp", false},
		{"not configured", config.Discovery{}, 200, "/mcp", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBackend(manyTools(tt.tools)...)
			b.servers = []string{"server0", "server1", "server2", "server3"}
			_, srv := start(t, b, Options{Discovery: tt.d})
			id := open(t, srv.URL+tt.path)
			r := send(t, srv.URL+tt.path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, headerSession, id)
			if got := strings.Contains(r.body, `"name":"`+searchTools+`"`); got != tt.meta {
				t.Errorf("%.300s", r.body)
			}
			r = send(t, srv.URL+tt.path, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search_tools","arguments":{"query":"issue"}}}`, headerSession, id)
			if mine := strings.Contains(r.body, `\"total\"`); mine != (tt.d.MetaTools != "never" && tt.d.MetaTools != "" && !strings.HasPrefix(tt.path, "/servers")) {
				t.Errorf("search_tools: %.300s", r.body)
			}
		})
	}
}

// TestDiscoveryView: neither search nor description shows what the view hides, and a
// call carries the view to the gate.
func TestDiscoveryView(t *testing.T) {
	asked := simple("fs", "write")
	asked.Permission = messages.Ask
	b := newBackend(simple("fs", "read"), asked, simple("web", "read_secret"))
	g, srv := start(t, b, always)
	_ = g
	url := srv.URL + "/mcp?view=plan"
	id := open(t, url)
	call := func(name, args string) string {
		return send(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, args), headerSession, id).body
	}
	if got := call(searchTools, `{"query":""}`); strings.Contains(got, "secret") || !strings.Contains(got, `\"total\":2`) || !strings.Contains(got, `\"permission\":\"ask\"`) {
		t.Errorf("search: %s", got)
	}
	if got := call(describeTool, `{"name":"web__read_secret"}`); !strings.Contains(got, `"mcpbridge/code":"unknown_tool"`) || strings.Contains(got, "does read_secret") {
		t.Errorf("describe: %s", got)
	}
	call(callTool, `{"name":"web__read_secret"}`)
	if c := b.last(t); c.View != "plan" || c.Tool != "web__read_secret" || c.Args != nil {
		t.Errorf("the gate was asked %+v", c)
	}
}

// TestDiscoveryArguments: what is wrong is told, and reaches nobody.
func TestDiscoveryArguments(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, always)
	id := open(t, srv.URL+"/mcp")
	for _, tt := range []struct{ tool, args, want string }{
		{callTool, `{}`, "name is missing"},
		{callTool, `{"name":7}`, "name must be a string"},
		{callTool, `{"name":"fs__read","arguments":"{}"}`, "arguments must be an object"},
		{callTool, `{"name":"fs__read","name":"fs__write"}`, "occurs twice"},
		{searchTools, `{"query":"x","limit":0}`, "limit must be"},
		{searchTools, `{"query":["x"]}`, "query must be"},
		{describeTool, `{"name":"nothing"}`, "unknown tool"},
		{describeTool, `{"name":"fs__reed read"}`, "did you mean fs__read"},
	} {
		r := send(t, srv.URL+"/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tt.tool, tt.args), headerSession, id)
		if !strings.Contains(r.body, tt.want) || !strings.Contains(r.body, `"isError":true`) || !strings.Contains(r.body, `"mcpbridge/outcome":"rejected"`) {
			t.Errorf("%s %s: %s", tt.tool, tt.args, r.body)
		}
	}
	if n := b.count(); n != 0 {
		t.Errorf("%d calls reached the backend", n)
	}
}

// TestDiscoveryChanges: clients hear of a change of the list that they see, and of no
// other.
func TestDiscoveryChanges(t *testing.T) {
	many := manyTools(300)
	b := newBackend(many...)
	g, srv := start(t, b, Options{Discovery: config.Discovery{MetaTools: "auto", OverTokens: 10000}})
	cs, changed, _ := dialers()[0].connect(t, g, srv.URL)
	if got := names(t, cs); len(got) != 3 {
		t.Fatalf("listed %v", got)
	}
	// Who sees the view's small list hears of each change of it, and so tells when the
	// news is out.
	sentinel := dialer{endpoint: func(_ *testing.T, _ *Gateway, url string) mcp.Transport {
		return &mcp.StreamableClientTransport{Endpoint: url + "/mcp?view=plan", MaxRetries: -1}
	}}
	other, heard, _ := sentinel.connect(t, g, srv.URL)
	names(t, other)
	for i := range 2 {
		many = append(many, simple("server1", fmt.Sprintf("brand_new_thing_%d", i)), simple("fs", fmt.Sprintf("seen_%d", i)))
		b.set(many...)
		await(t, "list_changed of the view", heard)
		names(t, other)
	}
	if n := len(changed); n > 1 { // one for the server that is new, which search_tools names
		t.Errorf("%d notifications of tools that the list does not show", n)
	}
	for len(changed) > 0 {
		<-changed
	}
	names(t, cs)
	if text, _ := ask(t, cs, searchTools, map[string]any{"query": "brand new"}); !strings.Contains(text, "brand_new_thing") {
		t.Errorf("a new tool is not found: %s", text)
	}
	b.set(simple("server1", "alone")) // now it is small
	await(t, "list_changed", changed)
	if got := names(t, cs); !slices.Equal(got, []string{"server1__alone"}) {
		t.Errorf("listed %v", got)
	}
	if text, _ := ask(t, cs, searchTools, map[string]any{"query": "alone"}); !strings.Contains(text, "server1__alone") {
		t.Errorf("who listed before may go on searching: %s", text)
	}
}

// TestMetaNamesAreFree: no tool of a server can have one of the three names.
func TestMetaNamesAreFree(t *testing.T) {
	_, entries := metaEntries(manyTools(8))
	for _, e := range entries {
		name, _ := rawjson.Lookup(e, "name")
		if !json.Valid(e) || strings.Contains(rawjson.Unquote(name), "__") {
			t.Errorf("%s", e)
		}
	}
}

// TestIndexIsBM25 holds the index against the formula, written down plainly.
func TestIndexIsBM25(t *testing.T) {
	vocabulary := []string{"read", "write", "file", "issue", "create", "the", "a"}
	rapid.Check(t, func(t *rapid.T) {
		var tools []messages.Tool
		for i := range rapid.IntRange(1, 12).Draw(t, "n") {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 20).Draw(t, "text"), " ")
			tools = append(tools, messages.Tool{EndpointName: fmt.Sprintf("s__t%d", i), RemoteName: fmt.Sprintf("t%d", i), Server: "s", Def: messages.ToolDef{Description: text}})
		}
		x := indexOf(t, tools...)
		query := rapid.SampledFrom(vocabulary).Draw(t, "query")
		found, total := x.find(query, 100, func(*messages.Tool) bool { return true })
		have := 0
		for _, tl := range tools {
			if slices.Contains(strings.Fields(tl.Def.Description), query) {
				have++
			}
		}
		if total != have || len(found) != have {
			t.Fatalf("%d of %d tools with %q were found", total, have, query)
		}
		// With one word, more of it in fewer words ranks higher.
		for i := 1; i < len(found); i++ {
			if a, b := plainBM25(tools, found[i-1], query), plainBM25(tools, found[i], query); a < b-1e-9 {
				t.Fatalf("%q (%v) stands before %q (%v)", found[i-1].Def.Description, a, found[i].Def.Description, b)
			}
		}
	})
}

// plainBM25 leaves out what is the same for all: idf and k1+1.
func plainBM25(all []messages.Tool, t *messages.Tool, word string) float64 {
	length := func(t *messages.Tool) float64 { return 2*nameWeight + float64(len(strings.Fields(t.Def.Description))) }
	average, times := 0.0, 0.0
	for i := range all {
		average += length(&all[i]) / float64(len(all))
	}
	for _, w := range strings.Fields(t.Def.Description) {
		if w == word {
			times++
		}
	}
	return times / (times + bm25K1*(1-bm25B+bm25B*length(t)/average))
}

func TestSplitWords(t *testing.T) {
	for text, want := range map[string]string{
		"github__createPullRequest": "github create pull request", "read_files, HTTP2!": "read file http2", "日本 go": "日 本 go", "": "", "class glass files s": "class glass file s",
	} {
		if got := strings.Join(splitWords(text, 100), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := splitWords(strings.Repeat("x ", 1000), 10); len(got) != 10 {
		t.Errorf("%d words", len(got))
	}
}
