package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"mcpbridge/messages"
)

// BenchmarkCall measures the raw path alone: one client, HTTP over loopback, a
// backend that answers at once.
func BenchmarkCall(b *testing.B) {
	for name, size := range map[string]int{"50B": 50, "1MiB": 1 << 20} {
		for _, modern := range []bool{false, true} {
			era := "legacy"
			if modern {
				era = "2026"
			}
			b.Run(era+"/"+name, func(b *testing.B) {
				fake := newBackend(simple("fs", "read"))
				result := `{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}`
				fake.answer = func(_ context.Context, c messages.CallTool, _ <-chan struct{}) messages.Outcome { return ok(c, result) }
				_, srv := start(b, fake, Options{})
				url := srv.URL + "/mcp"
				body, headers := read1, []string{headerSession, ""}
				if modern {
					body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read",` + meta26 + `}}`
					headers = headers26("tools/call", "fs__read")
				} else {
					headers[1] = open(b, url)
				}
				req := newRequest(b, http.MethodPost, url, "", headers...)
				b.ReportAllocs()
				for b.Loop() {
					req.Body = io.NopCloser(strings.NewReader(body))
					req.ContentLength = int64(len(body))
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					n, err := io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if err != nil || n < int64(size) {
						b.Fatal(n, err)
					}
					fake.calls = fake.calls[:0]
				}
			})
		}
	}
}

// BenchmarkParse measures what taking a call apart costs.
func BenchmarkParse(b *testing.B) {
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read","arguments":{"text":"` + strings.Repeat("x", 50) + `"},"_meta":{"progressToken":1}}}`)
	b.ReportAllocs()
	for b.Loop() {
		env, _, werr := parseEnvelope(bytes.Clone(body))
		if werr != nil {
			b.Fatal(werr)
		}
		if _, werr := parseCall(env.id, env.params, false); werr != nil {
			b.Fatal(werr)
		}
	}
}
