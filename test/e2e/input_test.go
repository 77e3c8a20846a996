package e2e

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// wants checks an exit code and what a command must say.
func wants(t *testing.T, r harness.Result, exit int, words ...string) {
	t.Helper()
	if r.Exit != exit {
		t.Errorf("exit %d, want %d\n%s", r.Exit, exit, r)
	}
	for _, w := range words {
		if !strings.Contains(r.Stderr+r.Stdout, w) {
			t.Errorf("%q is not said\n%s", w, r)
		}
	}
}

// TestBadInputWithoutADaemon: each mistake ends with the contract's exit code and a
// message that names what is wrong.
func TestBadInputWithoutADaemon(t *testing.T) {
	broken := "mcp_servers:\n  fs: {command: [unclosed\n"
	misspelt := "version: 1\nmcp_servers:\n  fs:\n    comand: npx\n"
	for _, tt := range []struct {
		name   string
		config string
		args   []string
		exit   int
		words  []string
	}{
		{"no such verb", "", []string{"superwise"}, 2, []string{"superwise"}},
		{"no such flag", "", []string{"status", "--nonsense"}, 2, []string{"--nonsense"}},
		{"call without a tool", "", []string{"call"}, 2, nil},
		{"status without a daemon", "", []string{"status"}, 4, []string{"supervise"}},
		{"call without a daemon", "", []string{"call", "fs/read"}, 4, []string{"supervise"}},
		{"configuration is not there", "", []string{"supervise", "-c", "nowhere.yaml"}, 2, []string{"nowhere.yaml"}},
		{"configuration is broken", broken, []string{"supervise", "-c", "CONFIG"}, 2, []string{"bad.yaml:"}},
		{"check of a broken one", broken, []string{"config", "check", "CONFIG"}, 2, []string{"bad.yaml:"}},
		{"check of a misspelt one", misspelt, []string{"config", "check", "CONFIG"}, 2, []string{"bad.yaml:4:", "comand", "command"}},
		{"listen nowhere", "mcp_servers: {}\n", []string{"supervise", "-c", "CONFIG", "--listen", "nonsense"}, 2, []string{"nonsense"}},
		{"open to the world without TLS", "mcp_servers: {}\n", []string{"supervise", "-c", "CONFIG", "--listen", "0.0.0.0:0"}, 2, []string{"TLS"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := harness.NewWorld(t)
			for i, a := range tt.args {
				if a == "CONFIG" {
					tt.args[i] = w.WriteConfig(t, "bad.yaml", tt.config)
				}
			}
			wants(t, w.Run(t, tt.args...), tt.exit, tt.words...)
		})
	}
}

// TestNoConfiguration: nothing configured is no mistake; the bridge serves an empty
// catalogue and says how to fill it.
func TestNoConfiguration(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	status := d.Status(t)
	if len(status.Servers) != 0 || status.Bridge.Counts != (messages.Counts{}) {
		t.Errorf("status: %+v", status)
	}
	if !strings.Contains(d.Stderr(), "config init") {
		t.Errorf("stderr gives no hint:\n%s", d.Stderr())
	}
	res, err := d.Session(t, "", nil).ListTools(harness.Context(t), nil)
	if err != nil || len(res.Tools) != 0 {
		t.Errorf("tools: %v, %v", res, err)
	}
	wants(t, d.CLI(t, "call", "fs/read"), 7, "fs/read")
}

// TestBrokenServersCostThemselvesOnly: the good one runs beside them.
func TestBrokenServersCostThemselvesOnly(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"good":    lab.Server(t, "good"),
		"both":    harness.M{"command": "x", "url": "http://127.0.0.1:1/mcp"},
		"neither": harness.M{"args": []string{"a"}},
		"unset":   harness.M{"url": "http://127.0.0.1:1/mcp", "headers": harness.M{"Authorization": "Bearer ${NOT_SET_ANYWHERE}"}},
	})})
	d.Await(t, "ready", "good")
	status := d.Status(t)
	for name, word := range map[string]string{"both": "url", "neither": "command", "unset": "headers.Authorization: NOT_SET_ANYWHERE is not set"} {
		row, ok := status.Server(name)
		if !ok || row.State != messages.StateConfigError || len(row.Issues) == 0 || row.Issues[0].Stage != messages.StageConfig || !strings.Contains(row.Issues[0].Message, word) {
			t.Errorf("%s: %t, %s, issues %v; want config_error with %q", name, ok, row.State, row.Issues, word)
		}
	}
}

func TestBadCalls(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := harness.Config(harness.M{"s": lab.Server(t, "s", "-record", lab.Path("record"))})
	cfg["permissions"] = []any{harness.M{"tool": "put", "action": "ask"}, harness.M{"tool": "inc", "action": "deny"}, harness.M{"action": "allow"}}
	d := harness.Start(t, harness.Options{Config: cfg})
	d.Await(t, "ready", "s")
	for _, tt := range []struct {
		name, tool, args string
		exit             int
		code             messages.Code
		word             string
	}{
		{"unknown tool", "s/raed", `{}`, 7, messages.CodeUnknownTool, "raed"},
		{"unknown server", "nobody/read", `{}`, 7, messages.CodeUnknownTool, "nobody"},
		{"broken JSON", "s/read", `{"nonce":`, 7, messages.CodeInvalidArguments, "JSON"},
		{"an array", "s/read", `[1]`, 7, messages.CodeInvalidArguments, "object"},
		{"a string", "s/read", `"x"`, 7, messages.CodeInvalidArguments, "object"},
		{"against the schema", "s/read", `{"nonce":5}`, 7, messages.CodeInvalidArguments, "nonce"},
		{"denied", "s/inc", `{}`, 6, messages.CodeDenied, "permissions"},
		{"to be asked", "s/put", `{}`, 6, messages.CodeApprovalRequired, "permissions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, r := d.Call(t, tt.tool, tt.args)
			wants(t, r, tt.exit, tt.word)
			if o.Kind != messages.Rejected || o.Code != tt.code || o.Sent() || !o.SafeToRetry() {
				t.Errorf("%s/%s, sent %t", o.Kind, o.Code, o.Sent())
			}
		})
	}
	if o, r := d.Call(t, "s/read", `null`); o.Kind != messages.OK {
		t.Errorf("null arguments: %s", r)
	}
	if records := lab.History(t).Spans; len(records) != 1 {
		t.Errorf("%d calls reached the server, want the one good one", len(records))
	}
	for _, verb := range []string{"start", "stop", "restart", "reset", "drain"} {
		wants(t, d.CLI(t, verb, "nobody"), 2, "nobody", "known: s")
	}
	wants(t, d.CLI(t, "wait", "s", "--for", "quarantined", "--timeout", "200ms"), 3, "s")
	wants(t, d.CLI(t, "cancel", "no-such-call"), 1, "no-such-call")
	wants(t, d.CLI(t, "call", "s/read", "--timeout", "nonsense"), 2, "nonsense")
}

func TestSecondDaemon(t *testing.T) {
	d := harness.Start(t, harness.Options{Config: "mcp_servers: {}\n"})
	r := d.Run(t, "supervise", "-c", d.Path("bridge.yaml"), "--listen", "127.0.0.1:0", "--state-dir", d.State)
	wants(t, r, 1, d.State)
	addr := strings.TrimPrefix(d.Base(), "http://")
	r = harness.NewWorld(t).Run(t, "supervise", "-c", d.Path("bridge.yaml"), "--listen", addr)
	wants(t, r, 1, addr)
	d.Status(t) // and the first one lives
}

func TestDoor(t *testing.T) {
	d := harness.Start(t, harness.Options{Config: "mcp_servers: {}\n"})
	host := strings.TrimPrefix(d.Base(), "http://")
	_, port, _ := net.SplitHostPort(host)
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	post := func(change func(*http.Request)) int {
		t.Helper()
		req, err := http.NewRequestWithContext(harness.Context(t), http.MethodPost, d.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer "+d.Token)
		change(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"as it should be", func(*http.Request) {}, 200},
		{"by the name localhost", func(r *http.Request) { r.Host = "localhost:" + port }, 200},
		{"no token", func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		{"another token", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+strings.Repeat("0", len(d.Token))) }, 401},
		{"another host", func(r *http.Request) { r.Host = "evil.example:" + port }, 403},
		{"another port", func(r *http.Request) { r.Host = "127.0.0.1:1" }, 403},
		{"another origin", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		{"a form's content type", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
	} {
		if got := post(tt.change); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		resp, err := http.Get(d.Base() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

func TestReadyzNamesWhatIsMissing(t *testing.T) {
	lab := harness.NewLab(t)
	e := lab.Server(t, "needed", "-silent", "all")
	e["required"] = true
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"needed": e, "other": lab.Server(t, "other", "-silent", "all")})})
	resp, err := http.Get(d.Base() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b := make([]byte, 4096)
	n, _ := resp.Body.Read(b)
	if body := string(b[:n]); resp.StatusCode != 503 || !strings.Contains(body, "needed") || strings.Contains(body, "other") {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

// TestDemo: the first command that a person tries works, and says what to try next.
func TestDemo(t *testing.T) {
	d := harness.Start(t, harness.Options{Args: []string{"--demo"}})
	d.Await(t, "ready", "demo")
	var cat struct {
		Tools []messages.Tool `json:"tools"`
	}
	d.OK(t, "tools", "-o", "json").JSON(t, &cat)
	if len(cat.Tools) < 5 {
		t.Errorf("%d tools", len(cat.Tools))
	}
	for _, word := range []string{d.URL, d.TokenFile, "bridgectl"} {
		if !strings.Contains(d.Stderr(), word) {
			t.Errorf("%q is not said at start:\n%s", word, d.Stderr())
		}
	}
	if n := strings.Count(d.Stderr(), "bridgectl "); n < 3 {
		t.Errorf("%d commands to try, want three", n)
	}
}
