package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// tokens authenticates `Bearer a` as client a, and so on.
func tokens(r *http.Request) (string, bool) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return name, ok && (name == "a" || name == "b")
}

func TestGuards(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, Options{Authenticate: tokens, AllowedHosts: []string{"bridge.example", "other.example:9"}, AllowedOrigins: []string{"https://app.example"}})
	u, _ := url.Parse(srv.URL)
	port := u.Port()
	id := open(t, srv.URL+"/mcp", "Authorization", "Bearer a")
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__read"}}`
	good := []string{"Authorization", "Bearer a", headerSession, id}
	for _, tt := range []struct {
		name    string
		headers []string
		path    string
		status  int
		want    string
	}{
		{"plain", nil, "/mcp", 200, "result"},
		{"localhost", []string{"Host", "localhost:" + port}, "/mcp", 200, "result"},
		{"capitals", []string{"Host", "LOCALHOST.:" + port}, "/mcp", 200, "result"},
		{"ipv6 loopback", []string{"Host", "[::1]:" + port}, "/mcp", 200, "result"},
		{"configured host", []string{"Host", "bridge.example"}, "/mcp", 200, "result"},
		{"configured host, any port", []string{"Host", "bridge.example:1"}, "/mcp", 200, "result"},
		{"configured host and port", []string{"Host", "other.example:9"}, "/mcp", 200, "result"},
		{"configured host, wrong port", []string{"Host", "other.example:8"}, "/mcp", 403, "other.example"},
		{"foreign host", []string{"Host", "evil.example"}, "/mcp", 403, "evil.example"},
		{"foreign host, our port", []string{"Host", "evil.example:" + port}, "/mcp", 403, ""},
		{"wrong port", []string{"Host", "127.0.0.1:1"}, "/mcp", 403, ""},
		{"no port", []string{"Host", "127.0.0.1"}, "/mcp", 403, ""},
		{"name that starts like ours", []string{"Host", "localhost.evil.example:" + port}, "/mcp", 403, ""},
		{"other address", []string{"Host", "10.0.0.1:" + port}, "/mcp", 403, ""},
		{"odd host", []string{"Host", "localhost:" + port + ":x"}, "/mcp", 403, ""},
		{"loopback origin", []string{"Origin", "http://localhost:3000"}, "/mcp", 200, "result"},
		{"loopback origin v6", []string{"Origin", "http://[::1]"}, "/mcp", 200, "result"},
		{"loopback origin, marked cross-site by the browser", []string{"Origin", "http://localhost:3000", "Sec-Fetch-Site", "cross-site"}, "/mcp", 200, "result"},
		{"configured origin", []string{"Origin", "https://app.example"}, "/mcp", 200, "result"},
		{"configured origin, other scheme", []string{"Origin", "http://app.example"}, "/mcp", 403, ""},
		{"foreign origin", []string{"Origin", "https://evil.example"}, "/mcp", 403, "evil.example"},
		{"origin null", []string{"Origin", "null"}, "/mcp", 403, "null"},
		{"origin file", []string{"Origin", "file://"}, "/mcp", 403, ""},
		{"origin with user", []string{"Origin", "http://localhost@evil.example"}, "/mcp", 403, ""},
		{"origin that starts like ours", []string{"Origin", "http://localhost.evil.example"}, "/mcp", 403, ""},
		{"cross-site without origin", []string{"Sec-Fetch-Site", "cross-site"}, "/mcp", 403, "cross-origin"},
		{"same-site without origin", []string{"Sec-Fetch-Site", "same-site"}, "/mcp", 403, "cross-origin"},
		{"no token", []string{"Authorization", ""}, "/mcp", 401, "Bearer TOKEN"},
		{"wrong token", []string{"Authorization", "Bearer x"}, "/mcp", 401, ""},
		{"no token, unknown path", []string{"Authorization", ""}, "/x", 401, ""},
		{"no token, unknown view", []string{"Authorization", ""}, "/mcp?view=x", 401, ""},
		{"page without token", []string{"Authorization", "", "Origin", "https://evil.example"}, "/mcp", 403, ""},
		{"page with token", []string{"Origin", "https://evil.example"}, "/mcp", 403, ""},
		{"rebound page, unknown path", []string{"Host", "evil.example"}, "/x", 403, ""},
		{"unknown path", nil, "/x", 404, "/servers/NAME/mcp"},
		{"unknown view", nil, "/mcp?view=x", 404, `no view \"x\"`},
		{"empty view", nil, "/mcp?view=", 400, "view"},
		{"two views", nil, "/mcp?view=plan&view=x", 400, "view"},
		{"broken query", nil, "/mcp?view=plan;x&%zz", 400, "query"},
		{"unknown server", nil, "/servers/nope/mcp", 404, `no server \"nope\"`},
		{"text/plain", []string{"Content-Type", "text/plain"}, "/mcp", 415, "application/json"},
		{"form", []string{"Content-Type", "application/x-www-form-urlencoded"}, "/mcp", 415, ""},
		{"no type", []string{"Content-Type", ""}, "/mcp", 415, ""},
		{"type with charset", []string{"Content-Type", "application/json; charset=utf-8"}, "/mcp", 200, "result"},
		{"only json accepted", []string{"Accept", "application/json"}, "/mcp", 400, "Accept"},
		{"anything accepted", []string{"Accept", "*/*"}, "/mcp", 200, "result"},
		{"unknown session", []string{headerSession, "nope"}, "/mcp", 404, "session not found"},
		{"no session", []string{headerSession, ""}, "/mcp", 200, "invalid during session initialization"},
		{"other client's session", []string{"Authorization", "Bearer b"}, "/mcp", 404, "session not found"},
		{"other endpoint's session", nil, "/servers/fs/mcp", 404, "session not found"},
		{"other view's session", nil, "/mcp?view=plan", 404, "session not found"},
		{"unknown revision", []string{headerProtocol, "2020-01-01"}, "/mcp", 400, "Unsupported protocol version"},
		{"other known revision", []string{headerProtocol, "2025-06-18"}, "/mcp", 200, "result"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := b.count()
			r := send(t, srv.URL+tt.path, call, append(append([]string{}, good...), tt.headers...)...)
			if r.status != tt.status || !strings.Contains(r.body, tt.want) {
				t.Errorf("got %d %s", r.status, r.body)
			}
			if ran := b.count() > before; ran != (tt.want == "result") {
				t.Errorf("the call reached the backend: %v", ran)
			}
			if auth := r.header.Get("WWW-Authenticate"); (r.status == 401) != (auth == "Bearer") {
				t.Errorf("WWW-Authenticate %q", auth)
			}
			for h := range r.header {
				if strings.HasPrefix(h, "Access-Control-") {
					t.Errorf("header %s", h)
				}
			}
		})
	}
	for _, tt := range []struct {
		method string
		status int
	}{{"PUT", 405}, {"OPTIONS", 405}, {"HEAD", 405}, {"GET", 404}, {"DELETE", 404}} {
		if r := do(t, tt.method, srv.URL+"/mcp", "", "Authorization", "Bearer a", headerSession, "nope"); r.status != tt.status {
			t.Errorf("%s: %d %s", tt.method, r.status, r.body)
		}
	}
	if r := do(t, "GET", srv.URL+"/mcp", "", "Authorization", "Bearer b", headerSession, id); r.status != 404 {
		t.Errorf("a foreign client opened the stream: %d", r.status)
	}
	if r := do(t, "DELETE", srv.URL+"/mcp", "", "Authorization", "Bearer b", headerSession, id); r.status != 404 {
		t.Errorf("a foreign client ended the session: %d", r.status)
	}
	if r := do(t, "DELETE", srv.URL+"/mcp", "", good...); r.status != 204 {
		t.Errorf("end of the session: %d %s", r.status, r.body)
	}
	if r := send(t, srv.URL+"/mcp", ping, good...); r.status != 404 {
		t.Errorf("an ended session answers: %d %s", r.status, r.body)
	}
}

func TestHostRules(t *testing.T) {
	g := newGuard(Options{AllowedHosts: []string{"bridge.example"}})
	outside := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 7332}
	inside := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 80}
	for _, tt := range []struct {
		host  string
		local net.Addr
		want  bool
	}{
		{"10.1.2.3:7332", outside, true}, {"192.168.0.9:8080", outside, true}, {"[2001:db8::1]:1", outside, true}, {"localhost:8080", outside, true},
		{"bridge.example", outside, true}, {"evil.example", outside, false}, {"evil.example:7332", outside, false}, {"", outside, false},
		{"127.0.0.2", inside, true}, {"127.0.0.2:80", inside, true}, {"localhost", inside, true}, {"127.0.0.3", inside, false}, {"evil.example", inside, false},
		{"[::1]", inside, true}, {"::1", inside, true}, {"[::1", inside, false}, {"localhost:", inside, false}, {"a b", inside, false},
		{"localhost", nil, true}, {"evil.example", nil, false}, {"localhost", &net.UnixAddr{}, true},
	} {
		if got := g.hostOK(tt.host, tt.local); got != tt.want {
			t.Errorf("%q at %v: %v", tt.host, tt.local, got)
		}
	}
}

func TestModernHeaders(t *testing.T) {
	annotated := tool("fs", "region", `{"name":"region","inputSchema":{"type":"object","properties":{"where":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}}`)
	b := newBackend(simple("fs", "read"), annotated)
	_, srv := start(t, b, Options{})
	body := func(name, rest string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `"` + rest + `}}`
	}
	for _, tt := range []struct {
		name, body string
		headers    []string
		status     int
		want       string
	}{
		{"good", body("fs__read", ","+meta26), headers26("tools/call", "fs__read"), 200, `"result"`},
		{"a session id is ignored", body("fs__read", ","+meta26), headers26("tools/call", "fs__read", headerSession, "x"), 200, `"result"`},
		{"no method header", body("fs__read", ","+meta26), headers26("", "fs__read"), 400, `-32020`},
		{"other method", body("fs__read", ","+meta26), headers26("tools/list", "fs__read"), 400, `-32020`},
		{"no name header", body("fs__read", ","+meta26), headers26("tools/call", ""), 400, `-32020`},
		{"other name", body("fs__read", ","+meta26), headers26("tools/call", "fs__write"), 400, `-32020`},
		{"other name in base64", body("fs__read", ","+meta26), headers26("tools/call", "=?base64?eA==?="), 400, `-32020`},
		{"no meta", body("fs__read", ""), headers26("tools/call", "fs__read"), 400, `-32602`},
		{"no capabilities", body("fs__read", `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`), headers26("tools/call", "fs__read"), 400, `-32602`},
		{"other revision in meta", body("fs__read", `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-29","io.modelcontextprotocol/clientCapabilities":{}}`), headers26("tools/call", "fs__read"), 400, `-32020`},
		{"future revision", body("fs__read", `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}}`), headers26("tools/call", "fs__read", headerProtocol, "2099-01-01"), 400, `-32022`},
		{"bad arguments", body("fs__read", `,"arguments":[],`+meta26), headers26("tools/call", "fs__read"), 400, `-32602`},
		{"batch", "[" + body("fs__read", ","+meta26) + "]", headers26("tools/call", "fs__read"), 400, `batches`},
		{"parameter headers", body("fs__region", `,"arguments":{"where":"é","n":5},`+meta26), headers26("tools/call", "fs__region", "Mcp-Param-Region", "=?base64?w6k=?=", "Mcp-Param-N", "5"), 200, `"result"`},
		{"parameter header differs", body("fs__region", `,"arguments":{"where":"eu"},`+meta26), headers26("tools/call", "fs__region", "Mcp-Param-Region", "us"), 400, `-32020`},
		{"parameter header missing", body("fs__region", `,"arguments":{"where":"eu"},`+meta26), headers26("tools/call", "fs__region"), 400, `-32020`},
		{"parameter header without parameter", body("fs__region", `,"arguments":{},`+meta26), headers26("tools/call", "fs__region", "Mcp-Param-N", "5"), 400, `-32020`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := b.count()
			r := send(t, srv.URL+"/mcp", tt.body, tt.headers...)
			if r.status != tt.status || !strings.Contains(r.body, tt.want) {
				t.Errorf("got %d %s", r.status, r.body)
			}
			if ran := b.count() > before; ran != (tt.status == 200) {
				t.Errorf("the call reached the backend: %v", ran)
			}
		})
	}
	r := do(t, "GET", srv.URL+"/mcp", "", headerProtocol, "2026-07-28")
	if r.status != 405 {
		t.Errorf("GET without sessions: %d", r.status)
	}
}

// A body that never comes to its end must not hold its connection for ever, and the
// deadline for it must not outlive it.
func TestSlowClient(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	_, srv := start(t, b, Options{})
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: 100\r\n\r\n{", srv.Listener.Addr())
	_ = conn.(*net.TCPConn).CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("got %d", resp.StatusCode)
	}
}

func TestPanics(t *testing.T) {
	b := newBackend(simple("fs", "read"))
	b.answer = func(context.Context, messages.CallTool, <-chan struct{}) messages.Outcome { panic("call") }
	g, srv := start(t, b, Options{Authenticate: func(r *http.Request) (string, bool) {
		if r.Header.Get("Authorization") == "panic" {
			panic("authenticate")
		}
		return "a", true
	}})
	id := openAs(t, srv.URL+"/mcp", lastBatches)
	r := send(t, srv.URL+"/mcp", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fs__read"}}`, headerSession, id)
	if r.body != `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"internal error of the bridge"}}` {
		t.Errorf("got %s", r.body)
	}
	r = send(t, srv.URL+"/mcp", `[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fs__read"}}]`, headerSession, id)
	if !strings.Contains(r.body, `"code":-32603`) {
		t.Errorf("got %s", r.body)
	}
	if r = send(t, srv.URL+"/mcp", ping, "Authorization", "panic"); r.status != 500 || !strings.Contains(r.body, "-32603") {
		t.Errorf("got %d %s", r.status, r.body)
	}
	b.listed = func(context.Context, string) { panic("list") }
	if r = send(t, srv.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, headerSession, id); r.status != 500 || !strings.Contains(r.body, "-32603") {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if s := g.sessions.get(id, "a", g.scopeFor(scopeKey{})); s == nil || s.calls.len() != 0 {
		t.Error("the session did not survive, or keeps a call")
	}
}
