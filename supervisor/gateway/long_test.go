package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestLongMessageID(t *testing.T) {
	pad := strings.Repeat("x", 5000)
	params := `"params":{"id":99,"a":"` + pad + `","z":{"id":98}}`
	for _, tt := range []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":7,"method":"m",` + params + `}`, "7"},
		{`{"jsonrpc":"2.0","id":"a\"b","method":"m",` + params + `}`, `"a\"b"`},
		{`{"method":"m",` + params + `,"jsonrpc":"2.0","id":7}`, "7"},
		{`{"method":"m",` + params + `,"jsonrpc":"2.0", "id" : "q" } `, `"q"`},
		{`{"method":"m",` + params + `,"id":-1.5e3,"jsonrpc":"2.0"}`, "-1.5e3"},
		{`{"method":"m",` + params + `,"jsonrpc":"2.0"}`, ""},             // a notification
		{`{"method":"m","params":{"a":"` + pad + `","id":5}}`, ""},        // not the outermost one
		{`{"method":"m","params":{"a":"` + pad + `,\"id\":5}"}}`, ""},     // inside a string
		{`{"method":"m",` + params + `,"jsonrpc":"2.0","id":null}`, ""},   // none
		{`{"method":"m",` + params + `,"jsonrpc":"2.0","id":"a\"b"}`, ""}, // too odd to be sure
		{`[{"jsonrpc":"2.0","id":7,"method":"m",` + params + `}]`, ""},    // a batch
		{`{"method":"m","params":"` + pad, ""}, {`{"id":7` + strings.Repeat("7", 5000), ""}, {"", ""}, {"}", ""}, {`"id":7}`, ""},
	} {
		for _, step := range []int{1, 1000, 1 << 20} {
			var l longMessage
			for b := []byte(tt.in); len(b) > 0; b = b[min(step, len(b)):] {
				_, _ = l.Write(b[:min(step, len(b))])
			}
			if got := string(l.id()); got != tt.want {
				t.Errorf("%.40s … in steps of %d: got %s, want %s", tt.in, step, got, tt.want)
			}
		}
		line, err := readLine(bufio.NewReaderSize(strings.NewReader(tt.in+"\n{}\n"), 16), 3000)
		if len(tt.in) > 3000 && (!errors.Is(err, errLineTooLong) || string(line) != tt.want) {
			t.Errorf("%.40s …: read %s, %v", tt.in, line, err)
		}
	}
}

// A message that is too large costs its own call, not the session.
func TestTooLargeIsOneCallsMatter(t *testing.T) {
	eachWay(t, func(t *testing.T, d dialer) {
		b := newBackend(simple("fs", "read"))
		g, srv := start(t, b, Options{MaxBody: 100_000})
		cs, _, _ := d.connect(t, g, srv.URL)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, n := range []int{100_000, 1 << 20, 20 << 20} {
			args := json.RawMessage(`{"a":"` + strings.Repeat("x", n) + `"}`)
			if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "fs__read", Arguments: args}); err == nil || b.count() != 0 {
				t.Errorf("%d bytes: %v, %d calls", n, err, b.count())
			}
		}
		if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "fs__read"}); err != nil {
			t.Errorf("the session is over: %v", err)
		}
	})
}

// Without a Content-Length the limit is found out while reading.
func TestTooLargeChunked(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, Options{MaxBody: 1000})
	id := open(t, srv.URL+"/mcp")
	for n, status := range map[int]int{850: 200, 2000: 413} {
		body := `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"fs__read","arguments":{"a":"` + strings.Repeat("x", n) + `"}}}`
		req := newRequest(t, "POST", srv.URL+"/mcp", "", headerSession, id)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), -1
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != status || !strings.Contains(string(got), `"id":"x"`) {
			t.Errorf("%d bytes: %d %s", n, resp.StatusCode, got)
		}
	}
}
