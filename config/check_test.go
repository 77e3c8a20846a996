package config

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/messages"
)

func TestCheck(t *testing.T) {
	w := newWorld(t)
	a, b, gone := filepath.Join(w.dir, "a.yaml"), filepath.Join(w.dir, "b.yaml"), filepath.Join(w.dir, "gone.yaml")
	write(t, a, "mcp_servers:\n  ok: {command: surely-not-installed, env: {A: \"${NOT_SET}\"}}\n  off: {url: \"https://x.example/${P}\", enabled: false}\n")
	write(t, b, "mcp_servers:\n  broken: {type: sse}\n")
	none := CheckOptions{Load: w.options()}
	got := Check(none)
	if d := cmp.Diff(CheckReport{Valid: true, Servers: []CheckedServer{}, Issues: []messages.Issue{}}, got); d != "" {
		t.Errorf("nothing configured: %s", d)
	}
	j, _ := json.Marshal(got)
	if string(j) != `{"valid":true,"servers":[],"issues":[]}` {
		t.Errorf("got %s", j)
	}

	got = Check(CheckOptions{Load: w.options(), Files: []string{a}})
	if d := cmp.Diff(CheckReport{Valid: true, Issues: []messages.Issue{}, Servers: []CheckedServer{
		{Name: "off", OK: true, Enabled: false, Transport: "http", Source: a + ":3:3"},
		{Name: "ok", OK: true, Enabled: true, Transport: "stdio", Source: a + ":2:3"}}}, got); d != "" {
		t.Errorf("references and commands are not looked up: %s", d)
	}

	got = Check(CheckOptions{Load: w.options(), Files: []string{a, b, gone}})
	if got.Valid || len(got.Servers) != 3 || len(got.Issues) != 2 {
		t.Errorf("got %+v", got)
	}
	if d := cmp.Diff(CheckedServer{Name: "broken", OK: false, Enabled: true, Transport: "sse", Source: b + ":2:3"}, got.Servers[2]); d != "" {
		t.Error(d)
	}
}

func TestCheckResolve(t *testing.T) {
	w := newWorld(t)
	w.env["PATH"] = filepath.Join(w.dir, "bin")
	w.user("mcp_servers:\n  a: {command: no-such-command, cwd: nowhere}\n  b: {command: x, env: {A: \"${NOT_SET}\"}}\n")
	got := Check(CheckOptions{Load: w.options(), Resolve: true})
	var lines []string
	for _, i := range got.Issues {
		lines = append(lines, strings.ReplaceAll(strings.ReplaceAll(i.String(), w.home, "HOME"), w.dir, "WORK"))
	}
	if d := cmp.Diff([]string{
		"HOME/.config/mcpbridge/config.yaml:3:28: mcp_servers.b: env.A: NOT_SET is not set",
		"HOME/.config/mcpbridge/config.yaml:2:38: mcp_servers.a.cwd: there is no such directory: nowhere",
		`HOME/.config/mcpbridge/config.yaml:2:16: mcp_servers.a.command: "no-such-command" not found in PATH=WORK/bin; install it or give the full path`,
	}, lines); d != "" {
		t.Error(d)
	}
	for _, s := range got.Servers {
		if s.OK {
			t.Errorf("%s is ok", s.Name)
		}
	}
}

// TestCheckResolveURLs: a host that answers is there, whatever it answers; one that does not
// is a problem at the place of its URL. Nothing secret is sent on the way.
func TestCheckResolveURLs(t *testing.T) {
	got := make(chan string, 10)
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.URL.String() + " " + strings.Join(r.Header.Values("Authorization"), "")
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
	}))
	defer host.Close()
	w := newWorld(t)
	w.env["TOK"] = "canary-tok"
	file := filepath.Join(w.dir, "mcp.json")
	base := strings.TrimPrefix(host.URL, "http://")
	write(t, file, `{"mcpServers": {
  "up": {"url": "http://user:canary-pass@`+base+`/mcp?key=${TOK}#canary-frag", "headers": {"Authorization": "Bearer canary-head"}},
  "down": {"url": "http://user:canary-pass@127.0.0.1:1/mcp?key=canary-key"},
  "off": {"url": "http://127.0.0.1:1/", "disabled": true},
  "broken": {"url": "ftp://127.0.0.1:1/"}
}}`)
	r := Check(CheckOptions{Load: w.options(), Files: []string{file}, Resolve: true})
	if r.Valid || len(r.Issues) != 2 || r.Issues[1].Line != 3 || r.Issues[1].Column != 19 || !strings.HasPrefix(r.Issues[1].Message, "127.0.0.1:1 does not answer: ") {
		t.Errorf("%v", r.Issues)
	}
	ok := map[string]bool{}
	for _, s := range r.Servers {
		ok[s.Name] = s.OK
	}
	if d := cmp.Diff(map[string]bool{"up": true, "down": false, "off": true, "broken": false}, ok); d != "" {
		t.Error(d)
	}
	for _, i := range r.Issues {
		if strings.Contains(i.String(), "canary") {
			t.Errorf("a secret is told: %v", i)
		}
	}
	if len(got) != 1 {
		t.Fatalf("%d requests", len(got))
	}
	if req := <-got; req != "HEAD /mcp " {
		t.Errorf("sent %q", req)
	}
	if r := Check(CheckOptions{Load: w.options(), Files: []string{file}}); len(r.Issues) != 1 || len(got) != 0 {
		t.Errorf("without being asked: %v", r.Issues)
	}
}
