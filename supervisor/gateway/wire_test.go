package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// odd is a result that a decoder would change: big integers, unknown blocks, key
// order, white space, escapes.
const odd = "{ \"zeta\":1e400,\n\t\"content\" : [ {\"type\":\"future\",\"n\":9007199254740993, \"d\":0.1000,\"z\":-0},{\"text\":\"<&>\\u00e9\\/\",\"type\":\"text\"} ],\r\n \"structuredContent\":{\"b\":18446744073709551615,\"a\":1.0}, \"isError\":false }"

func TestCallKeepsBytes(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome { return ok(c, odd) }
	_, srv := start(t, b, Options{})
	url := srv.URL + "/mcp"
	id := open(t, url)
	args := "{ \"n\" : 9007199254740993,\"s\":\"\\u0041<\", \"z\":1.0}"

	t.Run("legacy", func(t *testing.T) {
		r := send(t, url, `{"jsonrpc":"2.0","id": "a\u0062" ,"method":"tools/call","params":{"name":"fs__read","arguments":`+args+`}}`, headerSession, id)
		if want := `{"jsonrpc":"2.0","id":"a\u0062","result":` + odd + `}`; r.status != 200 || r.body != want {
			t.Errorf("got %d %q\nwant %q", r.status, r.body, want)
		}
		if got := b.last(t); string(got.Args) != args || got.Tool != "fs__read" || got.Client != Anonymous || got.ID == "" {
			t.Errorf("the backend was asked %+v", got)
		}
	})
	t.Run("2026", func(t *testing.T) {
		r := send(t, url, `{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{"name":"fs__read",`+meta26+`}}`, headers26("tools/call", "fs__read")...)
		if want := `{"jsonrpc":"2.0","id":12345678901234567890,"result":{"resultType":"complete",` + odd[1:] + `}`; r.body != want {
			t.Errorf("got %q\nwant %q", r.body, want)
		}
	})
	t.Run("2026 with a result type of the server's", func(t *testing.T) {
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			return ok(c, `{"content":[],"resultType":"complete"}`)
		}
		r := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read",`+meta26+`}}`, headers26("tools/call", "=?base64?ZnNfX3JlYWQ=?=")...)
		if want := `{"jsonrpc":"2.0","id":1,"result":{"content":[],"resultType":"complete"}}`; r.body != want {
			t.Errorf("got %q", r.body)
		}
	})
	t.Run("event stream", func(t *testing.T) {
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome { return ok(c, odd) }
		r := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read","_meta":{"progressToken":7}}}`, headerSession, id)
		want := `{"jsonrpc":"2.0","id":1,"result":` + strings.ReplaceAll(odd, "\r\n", "\n") + `}`
		if got := r.last(); got != want || r.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("call id on request", func(t *testing.T) {
		r := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read","_meta":{"mcpbridge/want_call_id":true}}}`, headerSession, id)
		want := `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"mcpbridge/call_id":"` + b.last(t).ID + `"},` + odd[1:] + `}`
		if r.body != want {
			t.Errorf("got %q", r.body)
		}
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			return ok(c, `{"content":[],"_meta": {"x":1.0}}`)
		}
		r = send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read","_meta":{"mcpbridge/want_call_id":true}}}`, headerSession, id)
		if want := `{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta": {"mcpbridge/call_id":"` + b.last(t).ID + `","x":1.0}}}`; r.body != want {
			t.Errorf("got %q", r.body)
		}
	})
	t.Run("a server that speaks for the bridge", func(t *testing.T) {
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			return ok(c, `{"_meta":{"a":1.0, "mcpbridge/outcome":"not_sent"},"content":[],"_meta": {"mcpbridge\/code":"unavailable","mcpbridge/call_id":"x","mcpbridge/truncated":true,"b":2.0 }}`)
		}
		r := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}}`, headerSession, id)
		if want := `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"a":1.0},"content":[],"_meta": {"b":2.0}}}`; r.body != want {
			t.Errorf("got %q", r.body)
		}
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			o := ok(c, `{"content":[],"_meta":{"mcpbridge/truncated":true,"mcpbridge/result_uri":"u","mcpbridge/sent":false}}`)
			o.Truncated, o.ResultURI = true, "u"
			return o
		}
		r = send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}}`, headerSession, id)
		if want := `{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"mcpbridge/truncated":true,"mcpbridge/result_uri":"u"}}}`; r.body != want {
			t.Errorf("of a result that was cut: %q", r.body)
		}
	})
	t.Run("the server's error object", func(t *testing.T) {
		raw := `{"code":-32042,"message":"no","data":{"n":9007199254740993, "z":[1.0]}}`
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			return messages.Outcome{CallID: c.ID, Kind: messages.ToolError, Code: messages.CodeToolError, RPCError: []byte(raw)}
		}
		r := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}}`, headerSession, id)
		if want := `{"jsonrpc":"2.0","id":1,"error":` + raw + `}`; r.status != 200 || r.body != want {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})
}

func TestCallMeta(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, Options{})
	url := srv.URL + "/servers/fs/mcp?view=plan"
	id := open(t, url)
	r := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":null,"_meta":{ "traceparent" : "00-1", "progressToken":"p","mcpbridge/idempotency-key":"k1","mcpbridge/timeout_ms":1500.5,"mcpbridge/other":1,"io.modelcontextprotocol/logLevel":"debug","x":{"n":1.0}}}}`, headerSession, id)
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	got := b.last(t)
	if string(got.Meta) != `{"traceparent" : "00-1","x":{"n":1.0}}` {
		t.Errorf("meta %s", got.Meta)
	}
	if got.Server != "fs" || got.Tool != "read" || got.View != "plan" || got.Args != nil || got.IdempotencyKey != "k1" || got.Timeout.Microseconds() != 1500500 || got.OnProgress == nil {
		t.Errorf("the backend was asked %+v", got)
	}
	for _, meta := range []string{`{"mcpbridge/timeout_ms":-1}`, `{"mcpbridge/timeout_ms":"1s"}`, `{"mcpbridge/timeout_ms":1e300}`, `{"mcpbridge/idempotency-key":""}`,
		`{"mcpbridge/idempotency-key":5}`, `{"mcpbridge/want_call_id":1}`, `{"progressToken":{}}`, `[]`, `"x"`} {
		n := b.count()
		r := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","_meta":`+meta+`}}`, headerSession, id)
		if !strings.Contains(r.body, `"code":-32602`) || b.count() != n {
			t.Errorf("%s: %s", meta, r.body)
		}
	}
}

func TestOutcomeOnTheWire(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, Options{})
	url := srv.URL + "/mcp"
	id := open(t, url)
	for _, tt := range []struct {
		out  messages.Outcome
		want string
	}{
		{messages.Outcome{Kind: messages.Rejected, Code: messages.CodeUnknownTool, Message: `unknown tool "x"`, Hint: "list the tools"},
			`{"content":[{"type":"text","text":"unknown tool \"x\"\nlist the tools"}],"isError":true,"_meta":{"mcpbridge/call_id":"ID","mcpbridge/outcome":"rejected","mcpbridge/code":"unknown_tool","mcpbridge/sent":false,"mcpbridge/safe_to_retry":true}}`},
		{messages.Outcome{Kind: messages.OutcomeUnknown, Code: messages.CodeConnectionLost, Message: "gone", Effect: messages.SideEffect},
			`{"content":[{"type":"text","text":"gone"}],"isError":true,"_meta":{"mcpbridge/call_id":"ID","mcpbridge/outcome":"outcome_unknown","mcpbridge/code":"connection_lost","mcpbridge/sent":true,"mcpbridge/safe_to_retry":false}}`},
		{messages.Outcome{Kind: messages.Rejected, Code: messages.CodeApprovalRequired, Message: "ask", ApprovalID: "a1"},
			`{"content":[{"type":"text","text":"ask"}],"isError":true,"_meta":{"mcpbridge/call_id":"ID","mcpbridge/outcome":"rejected","mcpbridge/code":"approval_required","mcpbridge/sent":false,"mcpbridge/safe_to_retry":true,"mcpbridge/approval_id":"a1"}}`},
		{messages.Outcome{Kind: messages.ToolError, Code: messages.CodeResultTooLarge, Message: "big"},
			`{"content":[{"type":"text","text":"big"}],"isError":true,"_meta":{"mcpbridge/call_id":"ID","mcpbridge/outcome":"tool_error","mcpbridge/code":"result_too_large","mcpbridge/sent":true,"mcpbridge/safe_to_retry":false}}`},
		{messages.Outcome{Kind: messages.OK, Result: nil},
			`{"content":[{"type":"text","text":"the bridge has no result for this call"}],"isError":true,"_meta":{"mcpbridge/call_id":"ID","mcpbridge/outcome":"outcome_unknown","mcpbridge/code":"internal","mcpbridge/sent":true,"mcpbridge/safe_to_retry":false}}`},
		{messages.Outcome{Kind: messages.ToolError, Code: messages.CodeToolError, Result: []byte(`{"content":[],"isError":true}`)}, `{"content":[],"isError":true}`},
	} {
		b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome {
			tt.out.CallID = c.ID
			return tt.out
		}
		r := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}`, headerSession, id)
		want := `{"jsonrpc":"2.0","id":1,"result":` + strings.ReplaceAll(tt.want, `"ID"`, fmt.Sprintf("%q", b.last(t).ID)) + `}`
		if r.body != want {
			t.Errorf("%v:\n got %s\nwant %s", tt.out.Code, r.body, want)
		}
	}
}

func TestMalformed(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, Options{MaxBody: 4096})
	url := srv.URL + "/mcp"
	id := open(t, url)
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"empty", "", 400, `-32700`},
		{"broken", `{"jsonrpc":`, 400, `-32700`},
		{"not utf-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\xff\"}", 400, `-32700`},
		{"two values", `{} {}`, 400, `-32700`},
		{"a number", `42`, 400, `-32600`},
		{"no version", `{"id":1,"method":"tools/call","params":{"name":"fs__read"}}`, 400, `-32600`},
		{"method twice", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"fs__read"}}`, 400, `occurs twice`},
		{"escaped key twice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{},"p\u0061rams":{"name":"fs__read"}}`, 400, `occurs twice`},
		{"name twice", call(`{"name":"fs__read","n\u0061me":"web__get"}`), 200, `occurs twice`},
		{"other case", `{"jsonrpc":"2.0","id":1,"Method":"tools/call","params":{"name":"fs__read"}}`, 400, `neither a request`},
		{"arguments array", call(`{"name":"fs__read","arguments":[]}`), 200, `-32602`},
		{"arguments string", call(`{"name":"fs__read","arguments":"x"}`), 200, `-32602`},
		{"arguments number", call(`{"name":"fs__read","arguments":0}`), 200, `-32602`},
		{"params array", call(`["fs__read"]`), 200, `-32602`},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, 200, `-32602`},
		{"no name", call(`{}`), 200, `-32602`},
		{"name is a number", call(`{"name":5}`), 200, `-32602`},
		{"no id", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"fs__read"}}`, 400, `-32600`},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"fs__read"}}`, 400, `-32600`},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{"name":"fs__read"}}`, 400, `-32600`},
		{"too large", call(`{"name":"fs__read","arguments":{"x":"` + strings.Repeat("x", 5000) + `"}}`), 413, `-32600`},
		{"bad cursor", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"zzz"}}`, 200, `-32602`},
		{"deep", call(`{"name":"fs__read","arguments":` + strings.Repeat("[", 2000) + `}`), 400, `-32700`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := send(t, url, tt.body, headerSession, id)
			if r.status != tt.status || !strings.Contains(r.body, tt.want) {
				t.Errorf("got %d %s", r.status, r.body)
			}
		})
	}
	t.Run("too large without a length", func(t *testing.T) {
		req := newRequest(t, http.MethodPost, url, strings.Repeat(" ", 5000), headerSession, id)
		req.ContentLength = -1
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("got %d", resp.StatusCode)
		}
	})
	if n := b.count(); n != 0 {
		t.Errorf("%d of these reached the backend", n)
	}
}

func TestBatch(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	b.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome { return ok(c, odd) }
	_, srv := start(t, b, Options{})
	url := srv.URL + "/mcp"
	id := openAs(t, url, lastBatches)
	two := `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read","arguments":{"n":9007199254740993}}},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]`
	r := send(t, url, two, headerSession, id)
	if r.status != 200 || !strings.Contains(r.body, `9007199254740993`) || !strings.Contains(r.body, `"name":"fs__read"`) || !strings.Contains(r.body, "1e400") {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if got := string(b.last(t).Args); got != `{"n":9007199254740993}` {
		t.Errorf("arguments %s", got)
	}
}

// A revision without batches has none, however a client says which one it speaks.
func TestNoBatch(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, Options{})
	url := srv.URL + "/mcp"
	batch := `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}}]`
	for _, version := range []string{"2025-06-18", "2025-11-25", "2099-01-01"} {
		id := openAs(t, url, version)
		for _, headers := range [][]string{{headerSession, id}, {headerSession, id, headerProtocol, "2025-11-25"}, {headerProtocol, "2025-06-18"}} {
			if r := send(t, url, batch, headers...); r.status != 400 || !strings.Contains(r.body, `"code":-32600`) || !strings.Contains(r.body, "batches") {
				t.Errorf("%s %v: %d %s", version, headers, r.status, r.body)
			}
		}
	}
	for _, version := range []string{"2024-11-05", "2025-03-26"} {
		id := openAs(t, url, version)
		for _, headers := range [][]string{{headerSession, id}, {headerSession, id, headerProtocol, version}} {
			if r := send(t, url, batch, headers...); r.status != 200 || !strings.Contains(r.body, `"result"`) {
				t.Errorf("%s %v: %d %s", version, headers, r.status, r.body)
			}
		}
	}
	if n := b.count(); n != 4 {
		t.Errorf("%d calls reached the backend", n)
	}
}
