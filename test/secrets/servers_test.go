package secrets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"mcpbridge/test/harness"
)

// blabber is the program of a stdio server that says all that it knows on stderr, plain
// and encoded, in long lines and short ones, and then becomes its arguments.
const blabber = `#!/bin/sh
secret=$1; shift
for v in "$LITERAL" "$FROM" "$FILE" "$secret"; do
  printf 'starting with %s\n' "$v"
  printf '%s' "$v" | base64 | tr -d '\n'; echo
  for n in 1000 2024 4072 8168 16360 32744 65512; do # so that a cut there falls into the secret's tail
    printf '%*s%s\n' $n x "$v"
  done
done >&2
if [ -n "$NOISY" ]; then printf 'banner: %s\n' "$FROM"; fi
exec "$@"
`

func writeBlabber(t testing.TB, lab *harness.Lab) string {
	t.Helper()
	file := lab.Path("blabber")
	if err := os.WriteFile(file, []byte(blabber), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// echo is all that a request told.
func echo(r *http.Request) string {
	user, password, _ := r.BasicAuth()
	return fmt.Sprintf("you said %s %s %q %s:%s", r.Method, r.URL, r.Header, user, password)
}

// hostile is an HTTP server that repeats what it was told in the way that its path names.
func hostile(t testing.TB) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := echo(r)
		var msg struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Arguments struct{ How string } `json:"arguments"`
			} `json:"params"`
		}
		_ = json.NewDecoder(r.Body).Decode(&msg)
		fails := func(how string) bool {
			switch how {
			case "401":
				w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q, error_description=%q", "x", strings.ReplaceAll(said, `"`, "'")))
				http.Error(w, said, http.StatusUnauthorized)
			case "403", "404", "429", "500", "503":
				var status int
				_, _ = fmt.Sscan(how, &status)
				w.Header().Set("Retry-After", "1")
				http.Error(w, said, status)
			case "redirect":
				w.Header().Set("Location", "http://127.0.0.1:1/elsewhere?"+r.URL.RawQuery+"&auth="+strings.ReplaceAll(r.Header.Get("Authorization"), " ", "+"))
				w.WriteHeader(http.StatusTemporaryRedirect)
			case "text":
				w.Header().Set("Content-Type", "text/html; said="+fmt.Sprintf("%q", r.Header.Get("X-Key")))
				_, _ = fmt.Fprint(w, said)
			case "json":
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","id":7,"nonsense":`, said)
			case "stream":
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\nevent: %s\ndata: x\n\n", said, strings.ReplaceAll(said, "\n", " "))
			case "endpoint": // of the older SSE transport, and not where it may be
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprintf(w, "event: endpoint\ndata: http://127.0.0.1:1/post?%s\n\n", r.URL.RawQuery)
			case "cut":
				panic(http.ErrAbortHandler)
			default:
				return false
			}
			return true
		}
		answer := func(key string, v any) {
			w.Header().Set("Content-Type", "application/json")
			b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": msg.ID, key: v})
			_, _ = w.Write(b)
		}
		how := strings.TrimPrefix(r.URL.Path, "/")
		switch {
		case fails(how):
		case r.Method != http.MethodPost:
			http.Error(w, said, http.StatusMethodNotAllowed)
		case len(msg.ID) == 0:
			w.WriteHeader(http.StatusAccepted)
		case how == "rpc", msg.Method == "tools/list" && how == "list":
			answer("error", map[string]any{"code": -32000, "message": said, "data": said})
		case msg.Method == "initialize":
			answer("result", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "x", "version": "1"}})
		case msg.Method == "tools/list":
			answer("result", map[string]any{"tools": []any{map[string]any{"name": "fail", "inputSchema": map[string]any{"type": "object"}}}})
		case msg.Method == "tools/call" && fails(msg.Params.Arguments.How):
		default:
			answer("error", map[string]any{"code": -32601, "message": "no such method"})
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// starts are the ways of the hostile server to fail a start, calls those to fail a call.
var (
	starts = []string{"401", "403", "404", "429", "500", "503", "redirect", "text", "json", "stream", "endpoint", "cut", "rpc", "list"}
	calls  = []string{"401", "403", "404", "429", "500", "503", "redirect", "text", "json", "stream", "cut"}
)
