package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

func TestListKeepsBytes(t *testing.T) {
	schema := "{ \"type\":\"object\",\n \"properties\":{\"z\":{\"default\":9007199254740993},\"a\":{\"const\":1.0,\"x\":\"<&>\"}}, \"vendor\":[1e400] }"
	full := `{"vendor":{"n":9007199254740993},"name":"re\u0061d","title":"T","description":"d <&>","inputSchema":` + schema + `,"outputSchema":` + schema +
		`,"annotations":{"readOnlyHint":true, "x":1.0},"icons":[{"src":"x"}],"execution":{"taskSupport":"optional"},"_meta":{"k":1.0}}`
	b := newBackend(tool("fs", "read", full))
	_, srv := start(t, b, Options{Name: "b", Version: "1"})
	id := open(t, srv.URL+"/mcp")
	want := strings.Replace(full, `"re\u0061d"`, `"fs__read"`, 1)
	r := send(t, srv.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, headerSession, id)
	if want := `{"jsonrpc":"2.0","id":1,"result":{"tools":[` + want + `]}}`; r.body != want || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("got  %s\nwant %s", r.body, want)
	}
	r = send(t, srv.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta26+`}}`, headers26("tools/list", "")...)
	if want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"b","version":"1"}},"ttlMs":0,"cacheScope":"private","tools":[` + want + `]}}`; r.body != want {
		t.Errorf("got  %s\nwant %s", r.body, want)
	}
	id = open(t, srv.URL+"/servers/fs/mcp")
	r = send(t, srv.URL+"/servers/fs/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":""}}`, headerSession, id)
	if want := `{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Replace(full, `"re\u0061d"`, `"read"`, 1) + `]}}`; r.body != want {
		t.Errorf("got  %s\nwant %s", r.body, want)
	}
}

func TestToolEntry(t *testing.T) {
	object := json.RawMessage(`{"type":"object"}`)
	for _, tt := range []struct {
		name string
		def  messages.ToolDef
		perm messages.Permission
		want string
	}{
		{"no raw form", messages.ToolDef{Title: "T", Description: "d", InputSchema: object}, messages.Allow,
			`{"name":"x","description":"d","inputSchema":{"type":"object"},"title":"T"}`},
		{"adapted", messages.ToolDef{Description: "filled in", InputSchema: object, Raw: []byte(`{"name":"a","description":null,"inputSchema":true,"v":1}`)}, messages.Allow,
			`{"name":"x","description":"filled in","inputSchema":{"type":"object"},"v":1}`},
		{"nulls and wrong types", messages.ToolDef{Description: "d", InputSchema: object, Annotations: []byte(`{"readOnlyHint":"yes","title":"t","openWorldHint":null,"z":1.0}`),
			Raw: []byte(`{"name":"a","description":"d","title":5,"icons":{},"execution":null,"_meta":[],"outputSchema":null}`)}, messages.Allow,
			`{"name":"x","description":"d","inputSchema":{"type":"object"},"annotations":{"title":"t","z":1.0}}`},
		{"annotations that are none", messages.ToolDef{Description: "d", InputSchema: object, Annotations: []byte(`"x"`), Raw: []byte(`{"annotations":"x"}`)}, messages.Allow,
			`{"name":"x","description":"d","inputSchema":{"type":"object"}}`},
		{"keys twice", messages.ToolDef{Description: "two", InputSchema: object, Raw: []byte(`{"name":"a","description":"one","name":"b","description":"two"}`)}, messages.Allow,
			`{"name":"x","description":"two","inputSchema":{"type":"object"}}`},
		{"denied", messages.ToolDef{Description: "d", InputSchema: object, Raw: []byte(`{"name":"a","_meta":{"k":1.0}}`)}, messages.Deny,
			`{"name":"x","_meta":{"mcpbridge/permission":"deny","k":1.0},"description":"d","inputSchema":{"type":"object"}}`},
		{"to be asked", messages.ToolDef{Description: "d", Raw: []byte(`nonsense`)}, messages.Ask,
			`{"name":"x","description":"d","inputSchema":{"type":"object"},"_meta":{"mcpbridge/permission":"ask"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := toolEntry(messages.Tool{Def: tt.def, Permission: tt.perm}, "x")
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var typed mcp.Tool
			if err := json.Unmarshal(got, &typed); err != nil {
				t.Errorf("a typed client refuses it: %v", err)
			}
		})
	}
}

// One odd tool must not hide the others from a typed client.
func TestOddToolsDoNotHideOthers(t *testing.T) {
	odd := tool("fs", "odd", `{"name":"odd","description":null,"title":7,"annotations":{"readOnlyHint":"yes"},"inputSchema":{"type":"object"},"_meta":null,"icons":null}`)
	eachWay(t, func(t *testing.T, d dialer) {
		g, srv := start(t, newBackend(odd, simple("fs", "read")), Options{})
		cs, _, _ := d.connect(t, g, srv.URL)
		if got := names(t, cs); len(got) != 2 {
			t.Errorf("got %v", got)
		}
	})
}

func TestFirstListWaits(t *testing.T) {
	b := newBackend()
	asked := make(chan string, 1)
	b.listed = func(_ context.Context, server string) {
		asked <- server
		b.set(simple("fs", "late"))
	}
	_, srv := start(t, b, Options{})
	id := open(t, srv.URL+"/servers/fs/mcp")
	r := send(t, srv.URL+"/servers/fs/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, headerSession, id)
	if got := await(t, "the wait", asked); got != "fs" || !strings.Contains(r.body, `"late"`) {
		t.Errorf("waited for %q, got %s", got, r.body)
	}
}

// A page goes on rightly though its last tool is gone by then.
func TestCursorSurvivesChange(t *testing.T) {
	var tools []messages.Tool
	for i := range pageSize + 5 {
		tools = append(tools, simple("fs", "t"+string(rune('0'+i/1000))+string(rune('0'+i/100%10))+string(rune('0'+i/10%10))+string(rune('0'+i%10))))
	}
	b := newBackend(tools...)
	_, srv := start(t, b, Options{})
	id := open(t, srv.URL+"/mcp")
	var page struct {
		Result struct {
			NextCursor string
			Tools      []struct{ Name string }
		}
	}
	list := func(params string) {
		page.Result.NextCursor, page.Result.Tools = "", nil
		r := send(t, srv.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`, headerSession, id)
		if err := json.Unmarshal([]byte(r.body), &page); err != nil {
			t.Fatal(err)
		}
	}
	list(`{}`)
	if len(page.Result.Tools) != pageSize || page.Result.NextCursor == "" {
		t.Fatalf("%d tools, cursor %q", len(page.Result.Tools), page.Result.NextCursor)
	}
	b.set(append(append([]messages.Tool{}, tools[:pageSize-1]...), tools[pageSize:]...)...)
	list(`{"cursor":"` + page.Result.NextCursor + `"}`)
	if len(page.Result.Tools) != 5 || page.Result.Tools[0].Name != "fs__t1000" || page.Result.NextCursor != "" {
		t.Errorf("got %+v", page.Result)
	}
}

// jsonValue draws JSON text with odd spacing.
func jsonValue(depth int) *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", " ", "\n", "\t\r\n "})
	text := rapid.SampledFrom([]string{`""`, `"a"`, `"\""`, `"\\"`, `"}]{[,:"`, `"\u0061"`, `"é<"`})
	return rapid.Custom(func(t *rapid.T) string {
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		if depth == 0 {
			kind = min(kind, 1)
		}
		s := func() string { return space.Draw(t, "space") }
		switch kind {
		case 0:
			return rapid.SampledFrom([]string{"1", "-0", "1e400", "true", "null", "9007199254740993"}).Draw(t, "scalar")
		case 1:
			return text.Draw(t, "text")
		case 2:
			var parts []string
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				parts = append(parts, s()+jsonValue(depth-1).Draw(t, "v")+s())
			}
			return "[" + s() + strings.Join(parts, ",") + "]"
		default:
			var parts []string
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				parts = append(parts, s()+text.Draw(t, "key")+s()+":"+s()+jsonValue(depth-1).Draw(t, "v")+s())
			}
			return "{" + s() + strings.Join(parts, ",") + "}"
		}
	})
}

// The scanner agrees with the decoder, and a splice changes one member only.
func TestScannerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := []byte(jsonValue(3).Draw(t, "json"))
		if !json.Valid(src) {
			t.Fatalf("bad generator: %s", src)
		}
		var want map[string]json.RawMessage
		isObj := json.Unmarshal(src, &want) == nil && want != nil
		got := map[string]json.RawMessage{}
		if ok := rawjson.Object(src, func(m rawjson.Member) bool { got[m.Key] = src[m.ValStart:m.ValEnd]; return true }); ok != isObj {
			t.Fatalf("%q is an object: %v", src, ok)
		}
		if !isObj {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %v", src, got)
		}
		for k, v := range want {
			if string(got[k]) != string(v) {
				t.Fatalf("%q: %q is %q, want %q", src, k, got[k], v)
			}
		}
		for _, key := range []string{"a", "new"} {
			out := rawjson.SetMember(src, key, []byte(`{"spliced":1}`))
			var after map[string]json.RawMessage
			if err := json.Unmarshal(out, &after); err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			if string(after[key]) != `{"spliced":1}` {
				t.Fatalf("%q: %q is %s", out, key, after[key])
			}
			for k, v := range want {
				if k != key && string(after[k]) != string(v) {
					t.Fatalf("%q: %q changed to %q", out, k, after[k])
				}
			}
		}
	})
}

func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a"`, `{"a":[}`, `{"\`, `{"a":"\`, "", `{]`, `{"a":1,}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(_ *testing.T, b []byte) { // must only not panic: upstreams write what they like
		rawjson.Object(b, func(m rawjson.Member) bool { _ = b[m.KeyStart:m.ValEnd]; return true })
		rawjson.Lookup(b, "a")
		rawjson.SetMember(b, "a", []byte("1"))
		rawjson.OneLine(b)
		_, _, _ = parseEnvelope(b)
		_ = toolEntry(messages.Tool{Def: messages.ToolDef{Raw: b, InputSchema: b, OutputSchema: b, Annotations: b}}, "x")
		saneIcons(b)
		saneError(b)
		saneProgress(b)
		deeperThan(b, 2)
	})
}
