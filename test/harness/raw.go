package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// RawHTTP speaks MCP over Streamable HTTP without decoding results, for tests that
// care for bytes.
type RawHTTP struct {
	URL     string
	Client  *http.Client
	Version string // the negotiated protocol revision
	// OnRequest hears the server's own requests; nil drops them.
	OnRequest func(id json.RawMessage, method string, params json.RawMessage)
	session   string
	id        atomic.Int64
}

// RawReply is a JSON-RPC answer with its parts as they came.
type RawReply struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// Raw opens a 2025-11-25 session at a URL of the daemon.
func (d *Daemon) Raw(t testing.TB, url string) *RawHTTP {
	t.Helper()
	return OpenRaw(t, url, d.HTTPClient())
}

// OpenRaw is Raw for any server; client nil means one without a token.
func OpenRaw(t testing.TB, url string, client *http.Client) *RawHTTP {
	t.Helper()
	return OpenRawWith(t, url, client, "{}")
}

// OpenRawWith is OpenRaw with the client's capabilities.
func OpenRawWith(t testing.TB, url string, client *http.Client, capabilities string) *RawHTTP {
	t.Helper()
	if client == nil {
		client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	}
	r := &RawHTTP{URL: url, Client: client}
	if reply := r.Do(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"clientInfo":{"name":"raw","version":"1"}}`); reply.Error != nil {
		t.Fatalf("initialize: %s", reply.Error)
	}
	r.Version = "2025-11-25"
	if err := r.post(Context(t), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// Do sends a request and returns its answer; notifications before it are dropped.
func (r *RawHTTP) Do(t testing.TB, method, params string) RawReply {
	t.Helper()
	reply, err := r.Try(Context(t), method, params)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// Try is Do for any goroutine.
func (r *RawHTTP) Try(ctx context.Context, method, params string) (RawReply, error) {
	id := fmt.Sprint(r.id.Add(1))
	var found *RawReply
	err := r.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params), func(m RawReply) bool {
		switch {
		case m.Method != "" && len(m.ID) > 0 && r.OnRequest != nil:
			r.OnRequest(m.ID, m.Method, m.Params)
		case m.Method == "" && string(m.ID) == id:
			found = &m
		}
		return found == nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("%s: the answer held no message with id %s", method, id)
	}
	if err != nil {
		return RawReply{}, err
	}
	return *found, nil
}

// Send posts one message of any kind and drops what comes back.
func (r *RawHTTP) Send(ctx context.Context, message string) error { return r.post(ctx, message, nil) }

// post sends one message and hands each message of the answer to each until it
// returns false.
func (r *RawHTTP) post(ctx context.Context, body string, each func(RawReply) bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if r.session != "" {
		req.Header.Set("Mcp-Session-Id", r.session)
	}
	if r.Version != "" {
		req.Header.Set("Mcp-Protocol-Version", r.Version)
	}
	resp, err := r.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" && s != r.session {
		r.session = s
	}
	if resp.StatusCode/100 != 2 {
		b, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("POST %s: %s: %s", r.URL, resp.Status, b)
	}
	if each == nil {
		return nil
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		var m RawReply
		if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
			return fmt.Errorf("answer is no JSON: %w", err)
		}
		each(m)
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
		return nil
	}
	for br := bufio.NewReader(resp.Body); ; {
		line, err := br.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:")); ok {
			var m RawReply
			if json.Unmarshal(bytes.TrimSpace(data), &m) == nil && !each(m) {
				_, _ = io.Copy(io.Discard, br)
				return nil
			}
		}
		if err != nil {
			return nil
		}
	}
}

// Notify sends a notification.
func (r *RawHTTP) Notify(ctx context.Context, method, params string) error {
	return r.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params), nil)
}

// CallTool is tools/call; it returns the result's bytes.
func (r *RawHTTP) CallTool(t testing.TB, name, args string) json.RawMessage {
	t.Helper()
	reply := r.Do(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
	if reply.Error != nil {
		t.Fatalf("tools/call %s: %s", name, reply.Error)
	}
	return reply.Result
}

// RawStdio speaks MCP line by line with a command.
type RawStdio struct {
	in io.WriteCloser
	r  *bufio.Reader
	id int
}

// StartRawStdio starts the command and does the 2025-11-25 handshake.
func StartRawStdio(t testing.TB, cmd *exec.Cmd) *RawStdio {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s := &RawStdio{in: in, r: bufio.NewReader(out)}
	if reply := s.Do(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`); reply.Error != nil {
		t.Fatalf("initialize: %s", reply.Error)
	}
	if _, err := io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	return s
}

// Do sends a request and returns its answer; other messages are dropped.
func (s *RawStdio) Do(t testing.TB, method, params string) RawReply {
	t.Helper()
	s.id++
	id := fmt.Sprint(s.id)
	if _, err := fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
		t.Fatal(err)
	}
	for {
		line, err := s.r.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		var m RawReply
		if json.Unmarshal(line, &m) == nil && string(m.ID) == id {
			return m
		}
	}
}

// CallTool is tools/call; it returns the result's bytes.
func (s *RawStdio) CallTool(t testing.TB, name, args string) json.RawMessage {
	t.Helper()
	reply := s.Do(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
	if reply.Error != nil {
		t.Fatalf("tools/call %s: %s", name, reply.Error)
	}
	return reply.Result
}

// Post sends an initialize request, with a token or ("") without, and returns the
// status; the body is written to out.
func Post(t testing.TB, url, token string, out *bytes.Buffer) int {
	t.Helper()
	req, err := http.NewRequestWithContext(Context(t), http.MethodPost, url, strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(out, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}
