package protocol

import (
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// strictList is tools/list as the official client reads it: one entry that it cannot read
// would cost the whole list.
func (c *town) strictList() map[string]*mcp.Tool {
	c.t.Helper()
	srv := httptest.NewServer(c.b.Handler())
	defer srv.Close()
	client := mcp.NewClient(&mcp.Implementation{Name: "strict", Version: "1"}, nil)
	cs, err := client.Connect(harness.Context(c.t), &mcp.StreamableClientTransport{Endpoint: srv.URL + "/mcp", DisableStandaloneSSE: true}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = cs.Close() }()
	out := map[string]*mcp.Tool{}
	for tool, err := range cs.Tools(harness.Context(c.t), nil) {
		if err != nil {
			c.t.Fatal(err)
		}
		out[strings.TrimPrefix(tool.Name, "rogue__")] = tool
	}
	return out
}

func hasIssue(row messages.ServerStatus, tool, part string) bool {
	return slices.ContainsFunc(row.Issues, func(i messages.Issue) bool { return i.Tool == tool && strings.Contains(i.Message, part) })
}

// eight tools, as on each page of the cursor faults.
func eight(from int) string {
	var out []string
	for i := range 8 {
		out = append(out, fmt.Sprintf(`{"name":"read_%d","description":"d","inputSchema":{"type":"object"}}`, from+i))
	}
	return strings.Join(out, ",")
}

// cursors are ways in which a list may not end; each page is the same eight tools, or
// fresh ones.
var cursors = map[string]func(page int) (next string, fresh bool){
	"empty":          func(int) (string, bool) { return `""`, false },
	"null":           func(int) (string, bool) { return `null`, false },
	"a number":       func(int) (string, bool) { return `7`, false },
	"an object":      func(int) (string, bool) { return `{"a":1}`, false },
	"the same":       func(int) (string, bool) { return `"x"`, false },
	"two in turn":    func(p int) (string, bool) { return strconv.Quote(string("AB"[p%2])), false },
	"five in turn":   func(p int) (string, bool) { return strconv.Quote(fmt.Sprint(p % 5)), true },
	"ever new":       func(p int) (string, bool) { return strconv.Quote(fmt.Sprint("c", p)), false },
	"ever new tools": func(p int) (string, bool) { return strconv.Quote(fmt.Sprint("c", p)), true },
	"long ones":      func(p int) (string, bool) { return strconv.Quote(fmt.Sprint(p) + strings.Repeat("c", 1<<20)), false },
}

func init() {
	for name, f := range cursors {
		pages := 0
		modes["cursor "+name] = mode{list: func(r *rogue, id, _ string) {
			next, fresh := f(pages)
			from := 0
			if fresh {
				from = 8 * pages
			}
			pages++
			r.result(id, `{"tools":[`+eight(from)+`],"nextCursor":`+next+`}`)
		}}
	}
	modes["many tools"] = mode{list: func(r *rogue, id, _ string) {
		var b strings.Builder
		for i := range 12_000 {
			fmt.Fprintf(&b, `,{"name":"read_%d","description":"d","inputSchema":{"type":"object"}}`, i)
		}
		r.result(id, `{"tools":[`+b.String()[1:]+`]}`)
	}}
}

// R10, B39, B41: a list that does not end is cut; what was listed stays, each tool once,
// and the status says so.
func TestR10Cursors(t *testing.T) {
	cursorTest(t, "the same", "two in turn", "five in turn", "ever new", "ever new tools", "long ones")
}
func TestB39EmptyCursor(t *testing.T) { cursorTest(t, "empty", "null", "a number", "an object") }
func TestB41CursorThatDoesNotAdvance(t *testing.T) {
	cursorTest(t, "the same", "two in turn", "ever new")
}

func cursorTest(t *testing.T, names ...string) {
	wants := map[string]struct {
		requests, tools int
		degraded        bool
	}{
		"empty": {1, 8, false}, "null": {1, 8, false}, "a number": {1, 8, false}, "an object": {1, 8, false},
		"the same": {2, 8, true}, "two in turn": {3, 8, true}, "five in turn": {6, 48, true},
		"ever new": {50, 8, true}, "ever new tools": {13, 100, true}, "long ones": {50, 8, true},
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			c := found(t, "cursor "+name, harness.M{"limits": harness.M{"pages": 50, "tools": 100}})
			want := wants[name]
			row := c.row()
			if n := len(c.asked("tools/list")); n > want.requests {
				t.Errorf("%d requests, want %d", n, want.requests)
			}
			if row.Tools != want.tools || row.Degraded != want.degraded || row.State != messages.StateReady {
				t.Errorf("%d tools, degraded %v, %s; want %+v", row.Tools, row.Degraded, row.State, want)
			}
			if (len(row.Issues) > 0) != want.degraded && name != "a number" && name != "an object" {
				t.Errorf("issues %v", row.Issues)
			}
			c.mustCall("rogue/read_0", `{}`)
		})
	}
}

// R10: ten thousand tools are listed, what is beyond is not.
func TestR10TenThousandTools(t *testing.T) {
	c := found(t, "many tools")
	c.calm += 32 << 20 // they are kept
	if row := c.row(); row.Tools != 10_000 || !row.Degraded {
		t.Errorf("%d tools, degraded %v", row.Tools, row.Degraded)
	}
	if n := len(c.strictList()); n != 10_000+16 { // and the neighbour's
		t.Errorf("a client sees %d", n)
	}
	c.mustCall("rogue/read_9999", `{}`)
	c.want(messages.Rejected, messages.CodeUnknownTool, "rogue/read_10000", `{}`)
}

// odd are list entries that a client could stumble over, and what becomes of each: "" for
// a schema that is passed on as it is, plain for {"type":"object"}, gone for no tool at all.
var odd = map[string]struct{ entry, want string }{
	"int":            {`"inputSchema":{"type":"object","properties":{"a":{"type":"int"}}}`, "plain"},
	"dangling":       {`"inputSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`, "plain"},
	"remote":         {`"inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/schema.json"}}}`, "plain"},
	"itself":         {`"inputSchema":{"$ref":"#"}`, "plain"},
	"nested":         {`"inputSchema":{"type":"object","properties":` + strings.Repeat(`{"a":{"properties":`, 4000) + `{}` + strings.Repeat(`}}`, 4000) + `}`, "plain"},
	"absent":         {`"x":1`, "plain"},
	"null":           {`"inputSchema":null`, "plain"},
	"true":           {`"inputSchema":true`, "plain"},
	"list":           {`"inputSchema":[]`, "plain"},
	"string":         {`"inputSchema":{"type":"string"}`, "plain"},
	"types":          {`"inputSchema":{"type":["object"]}`, "plain"},
	"empty":          {`"inputSchema":{}`, "plain"},
	"schema only":    {`"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema"}`, ""},
	"nulls":          {`"inputSchema":{"type":"object","required":null,"properties":null},"description":null,"annotations":null`, ""},
	"string hint":    {`"inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes","title":7}`, ""},
	"icons":          {`"inputSchema":{"type":"object"},"icons":"none","_meta":[],"execution":7`, ""},
	"pattern":        {`"inputSchema":{"type":"object","properties":{"a":{"type":"string","pattern":"(a+)+$"}}}`, ""},
	"large pattern":  {`"inputSchema":{"type":"object","properties":{"a":{"type":"string","pattern":"` + strings.Repeat("(a|b)*", 1<<20/6) + `"}}}`, ""},
	"recursive":      {`"inputSchema":{"type":"object","properties":{"child":{"$ref":"#"}}}`, ""},
	"exponential":    {`"inputSchema":{"type":"object","$defs":{` + doubling(40) + `},"allOf":[{"$ref":"#/$defs/d0"}]}`, ""},
	"many":           {`"inputSchema":{"type":"object","properties":{` + strings.TrimSuffix(strings.Repeat(`"p":{},`, 5000), ",") + `}}`, ""},
	"output":         {`"inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":{"type":"int"}}}`, ""},
	"output list":    {`"inputSchema":{"type":"object"},"outputSchema":[]`, ""},
	"no description": {`"inputSchema":{"type":"object"},"description":{}`, ""},
}

// doubling is n definitions each of which uses the next one twice.
func doubling(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	return b.String() + fmt.Sprintf(`"d%d":{"type":"object"}`, n)
}

func init() {
	modes["odd tools"] = mode{list: func(r *rogue, id, _ string) {
		entries := []string{plainTools, eight(0), "null", "42", `{}`, `{"name":""}`, `{"name":7}`, `{"name":null,"description":"x"}`}
		for name, o := range odd {
			entries = append(entries, `{"name":"read `+name+`",`+o.entry+`}`)
		}
		r.result(id, `{"tools":[`+strings.Join(entries, ",")+`]}`)
	}}
}

// R15, B50, B52, B53: whatever a definition holds, it costs its own tool at most: a strict
// client reads the whole list, the others are untouched, and each repair has its reason.
func TestR15HostileSchemas(t *testing.T) { oddToolsTest(t) }
func TestB50BrokenSchemas(t *testing.T) {
	oddToolsTest(t, "int", "dangling", "remote", "itself", "output")
}
func TestB52Nulls(t *testing.T) { oddToolsTest(t, "nulls", "string hint", "icons", "no description") }
func TestB53NoSchema(t *testing.T) {
	oddToolsTest(t, "absent", "null", "true", "list", "string", "types", "empty", "schema only")
}

func oddToolsTest(t *testing.T, only ...string) {
	c := found(t, "odd tools")
	c.calm += 16 << 20 // the definitions are kept
	row := c.row()
	if row.State != messages.StateReady {
		t.Fatalf("%s %s", row.State, row.Reason)
	}
	list := c.strictList()
	for i := range 8 {
		tool := list[fmt.Sprintf("read_%d", i)]
		if tool == nil || tool.Description != "d" {
			t.Errorf("a good tool has changed: %+v", tool)
		}
		if hasIssue(row, fmt.Sprintf("read_%d", i), "") {
			t.Errorf("read_%d has an issue", i)
		}
	}
	for name, o := range odd {
		if only != nil && !slices.Contains(only, name) {
			continue
		}
		remote := "read " + name
		tool, ok := c.b.Catalogue().LookupRemote("rogue", remote)
		if !ok {
			t.Errorf("%s is not listed", name)
			continue
		}
		if o.want == "plain" && (string(tool.Def.InputSchema) != `{"type":"object"}` || !hasIssue(row, remote, "")) {
			t.Errorf("%s: %.200s, issues %v", name, tool.Def.InputSchema, row.Issues)
		}
		if list[strings.TrimPrefix(tool.EndpointName, "rogue__")] == nil {
			t.Errorf("%s: a strict client does not see it", name)
		}
		if o := c.try("mcp__rogue__"+strings.TrimPrefix(tool.Name, "mcp__rogue__"), `{"a":"`+strings.Repeat("a", 1000)+`!"}`); o.Kind != messages.OK && o.Code != messages.CodeInvalidArguments {
			t.Errorf("%s: %s %s %s", name, o.Kind, o.Code, o.Message)
		}
	}
	c.mustCall("rogue/read", `{}`)
}

func init() {
	modes["doubles"] = mode{list: func(r *rogue, id, _ string) {
		r.result(id, `{"tools":[{"name":"b","description":"the first"},{"name":"b","description":"the second"},{"name":"_b","description":"d"},{"name":"a__b","description":"d"},`+
			`{"name":"a.b","description":"d"},{"name":"a/b","description":"d"},{"name":"a b","description":"d"},{"name":"日本","description":"d"},{"name":"`+strings.Repeat("x", 200)+`","description":"d"}]}`)
	}}
}

// R12: names that collide, inside a server or when they are joined with its name, are told
// apart, and of a double the first stays.
func TestR12CollidingNames(t *testing.T) {
	record := t.TempDir() + "/record"
	servers := harness.M{}
	for _, name := range []string{"a", "a_", "a__b"} {
		servers[name] = rogueEntry(t, "doubles", record)
	}
	b := harness.Library(t, harness.Config(servers))
	seen := map[string]string{}
	for _, tool := range b.Catalogue().Tools() {
		for _, name := range []string{tool.Name, tool.EndpointName} {
			if other := seen[name]; other != "" {
				t.Errorf("%q is both %s and %s/%s", name, other, tool.Server, tool.RemoteName)
			}
			seen[name] = tool.Server + "/" + tool.RemoteName
		}
		if tool.RemoteName == "b" && tool.Def.Description != "the first" {
			t.Errorf("of two tools %q stayed", tool.Def.Description)
		}
		o := b.Call(harness.Context(t), messages.CallTool{Tool: tool.Name})
		if o.Kind != messages.OK || o.Server != tool.Server || o.RemoteTool != tool.RemoteName {
			t.Errorf("%s went to %s/%s: %s", tool.Name, o.Server, o.RemoteTool, o.Kind)
		}
	}
	if len(seen) != 2*3*8 {
		t.Errorf("%d names", len(seen))
	}
	row, _ := b.Status().Server("a")
	if !hasIssue(row, "b", "listed twice") {
		t.Errorf("%v", row.Issues)
	}
}

func init() {
	version := func(v string, discover func(r *rogue, id string)) mode {
		return mode{
			begin: func(r *rogue, id string) {
				r.result(id, `{"protocolVersion":`+v+`,"capabilities":{"tools":{}},"serverInfo":{"name":"rogue","version":"1"}}`)
			},
			other: func(r *rogue, method, id string) bool {
				if method == "server/discover" && discover != nil {
					discover(r, id)
					return true
				}
				return false
			},
		}
	}
	for _, v := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "1999-01-01", "2099-01-01", "garbage"} {
		modes["version "+v] = version(strconv.Quote(v), nil)
	}
	modes["version null"] = version("null", nil)
	modes["version number"] = version("20251125", nil)
	for name, f := range map[string]func(r *rogue, id string){
		"no result":    func(r *rogue, id string) { r.line(`{"jsonrpc":"2.0","id":` + id + `}`) },
		"a text":       func(r *rogue, id string) { r.result(id, `"hello"`) },
		"an empty one": func(r *rogue, id string) { r.result(id, `{}`) },
		"odd versions": func(r *rogue, id string) { r.result(id, `{"supportedVersions":[7,null,"x"],"capabilities":7}`) },
		"no versions":  func(r *rogue, id string) { r.result(id, `{"supportedVersions":[],"capabilities":{"tools":{}}}`) },
		"invalid JSON": func(r *rogue, id string) { r.line(`{"jsonrpc":"2.0","id":` + id + `,"result":{]}`) },
		"internal": func(r *rogue, id string) {
			r.line(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"oops"}}`)
		},
		"an odd error": func(r *rogue, id string) { r.line(`{"jsonrpc":"2.0","id":` + id + `,"error":"no"}`) },
		"noise":        func(r *rogue, id string) { r.line("Unknown method server/discover") },
		"death":        func(*rogue, string) { os.Exit(1) },
		"initialize it": func(r *rogue, id string) {
			r.result(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"r","version":"1"}}`)
		},
	} {
		modes["discover "+name] = version(`"2025-11-25"`, f)
	}
	modes["claims resources"] = mode{
		begin: func(r *rogue, id string) {
			r.result(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{}},"serverInfo":{"name":"rogue","version":"1"}}`)
		},
	}
	modes["claims nothing"] = mode{
		begin: func(r *rogue, id string) {
			r.result(id, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"rogue","version":"1"}}`)
		},
	}
	modes["claims tools"] = mode{list: func(r *rogue, id, _ string) {
		r.line(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no such method"}}`)
	}}
}

// R14: an older revision is spoken, one that nobody knows is a clear failure, and an odd
// answer to server/discover falls back to initialize.
func TestR14ProtocolVersions(t *testing.T) {
	for name := range modes {
		switch v, isVersion := strings.CutPrefix(name, "version "); {
		case strings.HasPrefix(name, "discover "):
			t.Run(name, func(t *testing.T) {
				c := found(t, name)
				c.eventually("ready", func() bool { return c.row().State == messages.StateReady })
				if row := c.row(); row.Protocol != "2025-11-25" {
					t.Errorf("speaks %s", row.Protocol)
				}
				c.mustCall("rogue/read", `{}`)
			})
		case isVersion && strings.HasPrefix(v, "202") && v < "2026":
			t.Run(name, func(t *testing.T) {
				c := found(t, name)
				if row := c.row(); row.State != messages.StateReady || row.Protocol != v {
					t.Errorf("%s, speaks %s: %s", row.State, row.Protocol, row.Reason)
				}
				c.mustCall("rogue/read", `{}`)
			})
		case isVersion:
			t.Run(name, func(t *testing.T) {
				c := found(t, name)
				c.eventually("the failure", func() bool { return c.row().LastExit != nil })
				row := c.row()
				if row.State == messages.StateReady || row.LastExit.Stage != messages.StageHandshake || row.LastExit.Reason == "" {
					t.Errorf("%s %+v", row.State, row.LastExit)
				}
			})
		}
	}
}

// B56: what a server does not say it has is not asked for, and what it says and lacks
// counts as empty.
func TestB56Capabilities(t *testing.T) {
	for name, tools := range map[string]int{"claims resources": 2, "claims nothing": 0, "claims tools": 0} {
		t.Run(name, func(t *testing.T) {
			c := found(t, name)
			row := c.row()
			if row.State != messages.StateReady || row.Tools != tools {
				t.Errorf("%s with %d tools: %s", row.State, row.Tools, row.Reason)
			}
			for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
				if n := len(c.asked(method)); n > 0 {
					t.Errorf("%s was asked", method)
				}
			}
			if n := len(c.asked("tools/list")); name == "claims nothing" && n > 0 {
				t.Errorf("tools/list was asked %d times", n)
			}
		})
	}
}
