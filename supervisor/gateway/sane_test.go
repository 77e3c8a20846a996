package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

func nest(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }

// Whatever one server answers costs that one call: the client's session, which is
// for all servers, goes on.
func TestOddAnswersDoNotEndTheSession(t *testing.T) {
	answers := map[string]messages.Outcome{}
	for _, e := range []string{`{}`, `{"code":"abc","message":"m"}`, `{"code":1.5,"message":"m"}`, `{"code":1e400,"message":"m"}`, `{"code":99999999999999999999,"message":"m"}`,
		`{"code":null,"message":null}`, `{"code":1,"message":5}`, `{"code":1,"message":{"a":1},"data":[1]}`, `{"code":true}`, `{"message":"m"}`,
		`{"code":1,"message":"m","data":` + nest(5000) + `}`} {
		answers["error "+e[:min(len(e), 60)]] = messages.Outcome{Kind: messages.ToolError, Code: messages.CodeToolError, RPCError: []byte(e)}
	}
	for _, r := range []string{`{}`, `{"content":null}`, `{"content":5}`, `{"content":[],"_meta":7}`, `{"isError":"yes"}`, `{"content":[{"type":"text","text":"` + "\xff" + `"}]}`,
		`{"content":[],"structuredContent":` + nest(5000) + `}`, `{"content":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`} {
		answers["result "+r[:min(len(r), 60)]] = messages.Outcome{Kind: messages.OK, Result: []byte(r)}
	}
	odd := []string{`[]`, `{}`, `{"progress":"x"}`, `{"progress":null}`, `{"progress":1e400}`, `{"progress":1,"total":"x"}`, `{"progress":1,"message":5}`, `{"progress":1,"x":` + nest(5000) + `}`}
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend(simple("fs", "read"), simple("fs", "fine"))
		g, srv := start(t, b, Options{})
		cs, _, progress := d.connect(t, g, srv.URL)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for name, o := range answers {
			b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
				for _, p := range odd {
					c.OnProgress([]byte(p))
				}
				c.OnProgress([]byte(`{"progress":7,"message":"m"}`))
				o.CallID = c.ID
				return o
			}
			p := &mcp.CallToolParams{Name: "fs__read"}
			p.SetProgressToken(name)
			_, _ = cs.CallTool(ctx, p)
			if got := await(t, "the progress that can be read", progress); got.Progress != 7 || got.Message != "m" {
				t.Errorf("%s: progress %+v", name, got)
			}
			b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
				return ok(c, `{"content":[]}`)
			}
			if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "fs__fine"}); err != nil {
				t.Fatalf("after %s the session is over: %v", name, err)
			}
		}
	})
}

func TestSaneError(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"code":-32000, "message":"m","data":[1.0],"x":1}`, `{"code":-32000, "message":"m","data":[1.0],"x":1}`},
		{`{"code":"abc","message":"m"}`, `{"code":-32603,"message":"m","data":{"mcpbridge/error":{"code":"abc","message":"m"}}}`},
		{`{"code":7,"message":null}`, `{"code":7,"message":"the server answered with an error that says nothing readable","data":{"mcpbridge/error":{"code":7,"message":null}}}`},
		{`{"code":7,"message":"m","data":` + nest(600) + `}`, `{"code":7,"message":"m"}`},
	} {
		if got := string(saneError([]byte(tt.in))); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.in[:min(len(tt.in), 80)], got, tt.want)
		}
	}
}

// A result that is too deep says what happened: the server answered, and that this
// is not to be called again for its answer.
func TestDeepResult(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, Options{})
	id := open(t, srv.URL+"/mcp")
	for _, tt := range []struct {
		depth int
		whole bool
	}{{maxWireDepth - 1, true}, {maxWireDepth, false}} {
		result := `{"content":[],"structuredContent":` + nest(tt.depth) + `}`
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome { return ok(c, result) }
		r := send(t, srv.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}}`, headerSession, id)
		if tt.whole != strings.Contains(r.body, result) || tt.whole == strings.Contains(r.body, `"mcpbridge/code":"result_too_large","mcpbridge/sent":true,"mcpbridge/safe_to_retry":false`) {
			t.Errorf("depth %d: %.300s", tt.depth, r.body)
		}
	}
}

// Every field that a typed client reads, in every wrong form: what cannot be read is
// left out, the rest keeps its bytes.
func TestToolEntryForTypedClients(t *testing.T) {
	const head = `{"name":"x","description":"d",`
	for _, tt := range []struct{ raw, want string }{
		{`"icons":[1,{"src":5},{"src":"a","sizes":"48x48","mimeType":1,"theme":"blue","v": 1},{"src":"b","sizes":["any"],"theme":"dark"}]`,
			`"icons":[{"src":"a","v":1},{"src":"b","sizes":["any"],"theme":"dark"}]`},
		{`"icons": [ {"src":"a", "v":1.0} ]`, `"icons":[ {"src":"a", "v":1.0} ]`},
		{`"icons":"x"`, ``},
		{`"execution":{"taskSupport":5,"v": 1}`, `"execution":{"v":1}`},
		{`"execution":{"taskSupport":"optional", "v":1}`, `"execution":{"taskSupport":"optional", "v":1}`},
		{`"_meta":` + nest(600), ``},
		{`"vendor":` + nest(600), ``},
		{`"vendor":` + nest(500), `"vendor":` + nest(500)},
		{`"outputSchema":{"type":"array"}`, ``},
		{`"outputSchema":{"type":"object","properties":{"a":true,"b":{}}, "required":["a"]}`, `"outputSchema":{"type":"object","properties":{"a":{},"b":{}},"required":["a"]}`},
		{`"outputSchema":` + strings.Replace(nest(600), "{", `{"type":"object",`, 1), ``},
	} {
		raw := head + `"inputSchema":{"type":"object"},` + tt.raw + `}`
		def := messages.ToolDef{Name: "a", Description: "d", InputSchema: []byte(`{"type":"object"}`), Raw: []byte(raw)}
		if out, ok := rawjson.Lookup(def.Raw, "outputSchema"); ok {
			def.OutputSchema = out
		}
		want := strings.TrimSuffix(head+`"inputSchema":{"type":"object"},`+tt.want, ",") + `}`
		if diff := cmp.Diff(want, string(toolEntry(messages.Tool{Def: def, Permission: messages.Allow}, "x"))); diff != "" {
			t.Errorf("%.100s: %s", tt.raw, diff)
		}
	}
	for _, tt := range []struct{ in, want string }{
		{`{ "type":"object","properties":{"a":{"x":1.0}, "b":{}},"required":["a"] }`, `{ "type":"object","properties":{"a":{"x":1.0}, "b":{}},"required":["a"] }`},
		{`{"type":"object","properties":{"a":true,"b":false,"c":null,"d":"string","e":{}}}`, `{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{},"d":{},"e":{}}}`},
		{`{"type":"object","properties":[],"required":"a"}`, `{"type":"object"}`},
		{`{"type":"object","properties":null,"required":[1]}`, `{"type":"object"}`},
		{`{"type":"object","properties":{"a":` + nest(600) + `}}`, `{"type":"object"}`},
	} {
		def := messages.ToolDef{Name: "a", Description: "d", InputSchema: []byte(tt.in)}
		want := head + `"inputSchema":` + tt.want + `}`
		if diff := cmp.Diff(want, string(toolEntry(messages.Tool{Def: def, Permission: messages.Allow}, "x"))); diff != "" {
			t.Errorf("%.100s: %s", tt.in, diff)
		}
	}
}

// Members of any form never make an entry that the official client refuses, nor one
// that is no JSON.
func TestToolEntryIsAlwaysReadable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(jsonValue(3), rapid.SampledFrom([]string{`[{"src":1}]`, `[{"src":"a","sizes":[1]}]`, `{"taskSupport":1}`, `{"properties":[]}`, `{"type":"object","properties":{"a":1},"required":[{}]}`, `{"readOnlyHint":1}`}))
		def := messages.ToolDef{Name: "a", Description: "d"}
		var members []string
		for _, key := range []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "_meta", "vendor"} {
			if !rapid.Bool().Draw(t, key) {
				continue
			}
			// Numbers keep their bytes, even those that the official client cannot hold.
			v := strings.ReplaceAll(value.Draw(t, "value"), "1e400", "1e40")
			members = append(members, `"`+key+`":`+v)
			switch key {
			case "inputSchema":
				def.InputSchema = []byte(v)
			case "outputSchema":
				def.OutputSchema = []byte(v)
			case "annotations":
				def.Annotations = []byte(v)
			}
		}
		def.Raw = []byte("{" + strings.Join(members, ",") + "}")
		got := toolEntry(messages.Tool{Def: def, Permission: messages.Ask}, "x")
		var typed mcp.Tool
		if err := json.Unmarshal(got, &typed); err != nil || typed.Name != "x" {
			t.Fatalf("%s became %s: %v", def.Raw, got, err)
		}
	})
}
