package requirements

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestB2FirstStart: the first start of a command line has a budget of its own, the next one
// the usual; neither ends a session that has come up.
func TestB2FirstStart(t *testing.T) {
	lab := harness.NewLab(t)
	slow := lab.Path("slow")
	e := lab.Server(t, "s", "-stall", slow)
	e["timeouts"] = harness.M{"start": "1s", "first_start": "30s"}
	e["restart"] = harness.M{"burst": 0, "backoff": harness.M{"initial": "10ms", "max": "50ms"}}
	write(t, slow, "")
	began := time.Now()
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": e})})
	row(t, d, "s", "is being started", func(r messages.ServerStatus) bool { return r.State == messages.StateStarting && r.PID != 0 })
	for time.Since(began) < 2500*time.Millisecond { // beyond the usual budget, by far within the first
		time.Sleep(50 * time.Millisecond)
	}
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	d.Await(t, "ready", "s")
	if r := d.Server(t, "s"); r.Restarts != 0 || r.LastExit != nil {
		t.Fatalf("the first start was cut short: %+v", r)
	}
	write(t, slow, "")
	d.CLI(t, "restart", "s")
	r := row(t, d, "s", "has spent its budget", func(r messages.ServerStatus) bool { return failed(r) && r.LastExit.Stage == messages.StageHandshake })
	if !strings.Contains(r.LastExit.Reason, "1s") {
		t.Errorf("the reason names no budget: %+v", r.LastExit)
	}
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	d.Await(t, "ready", "s")
}

// TestB3Advice: a program that is not there is told with the place where it was looked for
// and what to do; supervise says so on stderr.
func TestB3Advice(t *testing.T) {
	w := harness.NewWorld(t)
	d := harness.Start(t, harness.Options{World: w, Env: []string{"PATH=" + w.Path("empty")}, Config: harness.Config(harness.M{"s": harness.M{"command": "npx", "args": []string{"-y", "x"}}})})
	d.Await(t, "quarantined", "s")
	for _, text := range []string{d.OK(t, "status", "-o", "json").Stdout, d.Stderr()} {
		says(t, text, "npx not found in PATH="+w.Path("empty"), "install Node.js or give the full path")
	}
	if r := d.Server(t, "s"); r.LastExit == nil || r.LastExit.Stage != messages.StageSpawn {
		t.Errorf("%+v", r.LastExit)
	}
}

// TestB4NoHalfConnection: a server whose list does not come is not connected, and its
// process and session are released at once; one without tools is.
func TestB4NoHalfConnection(t *testing.T) {
	lab := harness.NewLab(t)
	never := func(e harness.M) harness.M {
		e["restart"], e["timeouts"] = harness.M{"mode": "never"}, harness.M{"start": "2s", "first_start": "2s"}
		return e
	}
	deleted := make(chan string, 10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var msg struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&msg)
		switch {
		case r.Method == http.MethodDelete:
			deleted <- r.Header.Get("Mcp-Session-Id")
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case msg.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "the-session")
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`, msg.ID)
		case msg.Method == "tools/list":
			<-r.Context().Done() // never answered
		case len(msg.ID) == 0:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(web.Close)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"silent": never(lab.Server(t, "silent", "-silent", "list", "-ignore-term", "-ignore-eof", "-grandchild")), "web": never(harness.M{"type": "http", "url": web.URL}),
		"empty": lab.Server(t, "empty", "-list", write(t, lab.Path("empty"), "[]"))})})
	d.Await(t, "ready", "empty")
	for _, name := range []string{"silent", "web"} {
		r := row(t, d, name, "has failed and is released", func(r messages.ServerStatus) bool { return failed(r) && r.State == messages.StateIdle && r.PID == 0 })
		if r.LastExit.Stage != messages.StageListTools || r.Tools != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, p := range harness.Marked(d.RunID) {
		if strings.Contains(p.String(), "-silent list") {
			t.Errorf("left: %s", p)
		}
	}
	select {
	case s := <-deleted:
		if s != "the-session" {
			t.Errorf("session %q is deleted", s)
		}
	case <-harness.Context(t).Done():
		t.Error("the session is not deleted")
	}
	if r := d.Server(t, "empty"); r.Tools != 0 {
		t.Errorf("empty: %+v", r)
	}
	if c := d.Status(t).Bridge.Counts; c != (messages.Counts{Configured: 3, Connected: 1}) {
		t.Errorf("%+v", c)
	}
}

// TestB6Environment: what is configured wins over what a process gets anyway.
func TestB6Environment(t *testing.T) {
	lab := harness.NewLab(t)
	e := lab.Server(t, "s")
	e["env"], e["inherit_env"] = harness.M{"HOME": "/configured", "EXTRA": "configured"}, []string{"EXTRA", "MORE"}
	d := harness.Start(t, harness.Options{Env: []string{"EXTRA=of-the-bridge", "MORE=of-the-bridge", "LESS=of-the-bridge"}, Config: harness.Config(harness.M{"s": e})})
	d.Await(t, "ready", "s")
	env := environ(t, d, "s")
	for name, want := range map[string]string{"HOME": "/configured", "EXTRA": "configured", "MORE": "of-the-bridge", "LESS": "", "LANG": "C.UTF-8", "PATH": os.Getenv("PATH")} {
		if env[name] != want {
			t.Errorf("%s=%q, want %q", name, env[name], want)
		}
	}
}

// TestB8ClosesSideBySide: many servers that end only by force take no longer than one.
func TestB8ClosesSideBySide(t *testing.T) {
	lab := harness.NewLab(t)
	servers := harness.M{}
	var names []string
	for _, name := range strings.Split("abcdef", "") {
		servers[name] = lab.Server(t, name, "-ignore-term", "-ignore-eof")
		names = append(names, name)
	}
	d := harness.Start(t, harness.Options{Config: harness.Config(servers)})
	d.Await(t, "ready", names...)
	if took := d.Stop(t); took > 9*time.Second+harness.Patience/10 {
		t.Errorf("took %s", took)
	}
	if left := harness.Marked(d.RunID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestB10Introduction: the bridge says who it is, and client_info changes it; over stdio
// and HTTP.
func TestB10Introduction(t *testing.T) {
	for want, info := range map[string]harness.M{`"name":"mcpbridge"`: nil, `"name":"host-agent"`: {"name": "host-agent", "version": "7.8.9"}} {
		lab := harness.NewLab(t)
		cfg := harness.Config(harness.M{"s": lab.Server(t, "s", "-record", lab.Path("record"))})
		if info != nil {
			cfg["client_info"] = info
		}
		d := harness.Start(t, harness.Options{Config: cfg})
		d.Await(t, "ready", "s")
		b, err := os.ReadFile(lab.Path("record"))
		if err != nil {
			t.Fatal(err)
		}
		_, said, ok := strings.Cut(string(b), `"clientInfo":`)
		if said, _, _ = strings.Cut(said, "}"); !ok || !strings.Contains(said, want) || !strings.Contains(said, `"version":"`) || info != nil && !strings.Contains(said, `"version":"7.8.9"`) {
			t.Errorf("want %s: %s", want, said)
		}
	}
}

// TestC8FirstList: who lists first waits for servers that were never seen, as long as
// list_wait says, by the command line, the endpoint and the library.
func TestC8FirstList(t *testing.T) {
	lab := harness.NewLab(t)
	stalled := func(name string) (harness.M, string) {
		gate := write(t, lab.Path("gate-"+name), "")
		return lab.Server(t, name, "-stall", gate), gate
	}
	late, gate := stalled("late")
	cfg := harness.Config(harness.M{"late": late, "here": lab.Server(t, "here")})
	cfg["list_wait"] = "50s"
	d := harness.Start(t, harness.Options{Config: cfg})
	d.Await(t, "ready", "here")
	lists := make(chan string, 2)
	raw := d.Raw(t, d.URL)
	go func() { lists <- d.CLI(t, "tools", "-o", "json").Stdout }()
	go func() {
		reply, err := raw.Try(harness.Context(t), "tools/list", `{}`)
		if err != nil {
			t.Error(err)
		}
		lists <- string(reply.Result)
	}()
	select {
	case l := <-lists:
		t.Errorf("somebody did not wait: %.300s", l)
	case <-time.After(time.Second): // it may be slow, but must not be quick
	}
	if o, r := d.Call(t, "here/read", `{}`); o.Kind != messages.OK {
		t.Errorf("calls of what is ready wait, too: %s", r)
	}
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if l := <-lists; !strings.Contains(l, "late__read") || !strings.Contains(l, "here__read") {
			t.Errorf("the first list: %.300s", l)
		}
	}
	never, _ := stalled("never")
	cfg = harness.Config(harness.M{"never": never, "here": lab.Server(t, "here2")})
	cfg["list_wait"] = "300ms"
	d = harness.Start(t, harness.Options{Config: cfg})
	d.Await(t, "ready", "here")
	if l := d.OK(t, "tools", "-o", "json").Stdout; !strings.Contains(l, "here__read") {
		t.Errorf("list_wait is over: %.300s", l)
	}
	if r := d.Server(t, "never"); r.State != messages.StateStarting {
		t.Errorf("never is %s", r.State)
	}
	if files, err := filepath.Glob(lab.Path("gate-never")); err != nil || len(files) != 1 {
		t.Errorf("%v %v", files, err)
	}
}
