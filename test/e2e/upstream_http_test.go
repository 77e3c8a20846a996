package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

func httpEntry(url string, more harness.M) harness.M {
	e := harness.M{"url": url, "effects": harness.Effects()}
	for k, v := range more {
		e[k] = v
	}
	return e
}

// seen is one request as the fixture's -http-log tells it.
type seen struct {
	Method  string      `json:"method"`
	RPC     string      `json:"rpc"`
	Headers http.Header `json:"headers"`
}

func requests(t *testing.T, path string) []seen {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var out []seen
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var s seen
		if err := json.Unmarshal(sc.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// TestHTTPUpstream: headers on every request, all pages, results and errors as they
// are, and a session that is ended with the bridge.
func TestHTTPUpstream(t *testing.T) {
	for _, mode := range [][]string{nil, {"-http-json"}, {"-http-stateless"}, {"-http-no-get"}} {
		t.Run(strings.Join(append([]string{"mode"}, mode...), " "), func(t *testing.T) {
			lab := harness.NewLab(t)
			log := lab.Path("requests")
			url, _ := lab.HTTPFixture(t, "web", append(mode, "-http-log", log, "-http-header", "X-Key: s3cret-value", "-tools", "25", "-page-size", "10")...)
			d := harness.Start(t, harness.Options{Env: []string{"WEB_KEY=s3cret-value"}, Config: harness.Config(harness.M{
				"web": httpEntry(url, harness.M{"type": "http", "headers": harness.M{"X-Key": "${WEB_KEY}"}}),
			})})
			d.Await(t, "ready", "web")
			if row := d.Server(t, "web"); row.Tools != 41 || row.Transport != "http" || row.PID != 0 {
				t.Errorf("status: %+v", row)
			}
			if o, r := d.Call(t, "web/echo", `{"z":9007199254740993,"a":"<&>"}`); o.Kind != messages.OK || o.Text() != `{"z":9007199254740993,"a":"<&>"}` {
				t.Error(r)
			}
			if o, r := d.Call(t, "web/fail", `{"message":"sorry"}`); r.Exit != 5 || o.ErrorText() != "sorry" {
				t.Error(r)
			}
			if o, r := d.Call(t, "web/rpc_error", `{"code":-32077,"message":"odd","data":{"k":[1]}}`); r.Exit != 5 || !strings.Contains(string(o.RPCError), "-32077") {
				t.Error(r)
			}
			if o, r := d.Call(t, "web/write", `{"nonce":"w"}`); o.Kind != messages.OK {
				t.Error(r)
			}
			d.Stop(t)
			for _, s := range requests(t, log) {
				if s.Headers.Get("X-Key") != "s3cret-value" {
					t.Errorf("%s %s went without the header", s.Method, s.RPC)
				}
			}
			if strings.Contains(d.Stderr(), "s3cret-value") {
				t.Error("the header's value stands in the log")
			}
			deleted := false
			for _, s := range requests(t, log) {
				deleted = deleted || s.Method == http.MethodDelete
			}
			if want := mode == nil || mode[0] != "-http-stateless"; deleted != want {
				t.Errorf("the session was deleted: %t, want %t", deleted, want)
			}
		})
	}
}

func TestHTTPUpstreamCursorFault(t *testing.T) {
	for _, how := range []string{"repeat", "endless"} {
		t.Run(how, func(t *testing.T) {
			lab := harness.NewLab(t)
			url, _ := lab.HTTPFixture(t, "web", "-cursor", how)
			d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
				"web": httpEntry(url, harness.M{"limits": harness.M{"pages": 20}}),
				"pipe": harness.M{"command": harness.Fixture(t), "args": lab.Args("pipe", "-cursor", how), "limits": harness.M{"pages": 20},
					"effects": harness.Effects()},
			})})
			d.Await(t, "ready", "web", "pipe")
			for _, name := range []string{"web", "pipe"} {
				row := d.Server(t, name)
				if !row.Degraded || len(row.Issues) == 0 || row.Tools < 16 {
					t.Errorf("%s: degraded %t, %d tools, issues %v", name, row.Degraded, row.Tools, row.Issues)
				}
				if o, r := d.Call(t, name+"/read", `{}`); o.Kind != messages.OK {
					t.Error(r)
				}
			}
		})
	}
}

// TestHTTPUpstreamCut: the answer is lost, not the call. A side effect is never
// sent again, by nobody.
func TestHTTPUpstreamCut(t *testing.T) {
	lab := harness.NewLab(t)
	url, _ := lab.HTTPFixture(t, "web", "-http-cut")
	// The lane of the lost side effect is held that long: there is no proof of its end.
	e := httpEntry(url, harness.M{"timeouts": harness.M{"abandon_after": "1s"}})
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"web": e})})
	d.Await(t, "ready", "web")
	if o, r := d.Call(t, "web/write", `{"nonce":"w"}`); o.Kind != messages.OutcomeUnknown || o.Code != messages.CodeConnectionLost || r.Exit != 8 {
		t.Error(r)
	}
	if o, r := d.Call(t, "web/read", `{"nonce":"r"}`); o.Kind != messages.OutcomeUnknown || o.Attempt != 2 {
		t.Error(r)
	}
	h := lab.History(t)
	if h.Begins("w") != 1 || h.Begins("r") != 2 {
		t.Errorf("the side effect began %d times, the read %d times; want 1 and 2", h.Begins("w"), h.Begins("r"))
	}
}

// TestHTTPUpstreamForgetsTheSession: 404 means a new session, not a dead server.
func TestHTTPUpstreamForgetsTheSession(t *testing.T) {
	lab := harness.NewLab(t)
	url, _ := lab.HTTPFixture(t, "web", "-http-forget", "2")
	e := httpEntry(url, nil)
	e["restart"] = harness.M{"backoff": harness.M{"initial": "50ms", "max": "200ms"}, "burst": 0}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"web": e})})
	d.Await(t, "ready", "web")
	for i := range 7 {
		nonce := fmt.Sprintf("n%d", i)
		if o, r := d.Call(t, "web/read", `{"nonce":"`+nonce+`"}`); o.Kind != messages.OK {
			t.Errorf("call %d: %s", i, r)
		}
	}
}

func TestHTTPUpstreamRefuses(t *testing.T) {
	lab := harness.NewLab(t)
	elsewhereLog := lab.Path("elsewhere")
	elsewhere, _ := lab.HTTPFixture(t, "elsewhere", "-http-log", elsewhereLog)
	auth, _ := lab.HTTPFixture(t, "auth", "-http-header", "X-Key: secret")
	redirect, _ := lab.HTTPFixture(t, "redirect", "-http-redirect", elsewhere)
	hang, _ := lab.HTTPFixture(t, "hang", "-http-hang")
	busy, _ := lab.HTTPFixture(t, "busy", "-http-status", "503")
	short := harness.M{"start": "2s", "first_start": "2s"}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"auth":     httpEntry(auth, nil),
		"redirect": httpEntry(redirect, harness.M{"timeouts": short, "headers": harness.M{"Authorization": "Bearer only-for-redirect"}}),
		"hang":     httpEntry(hang, harness.M{"timeouts": short}),
		"busy":     httpEntry(busy, nil),
		"nobody":   httpEntry("http://127.0.0.1:1/mcp", harness.M{"timeouts": short}),
	})})
	d.Await(t, "ready", "busy")
	harness.Eventually(t, "the server that wants a credential is blocked", func() bool {
		row := d.Server(t, "auth")
		return row.State == messages.StateBlocked && strings.Contains(row.Reason, "auth")
	})
	for _, name := range []string{"redirect", "hang", "nobody"} {
		harness.Eventually(t, name+" has failed with a stage and a reason", func() bool {
			e := d.Server(t, name).LastExit
			return e != nil && e.Stage != "" && e.Reason != ""
		})
	}
	if got := requests(t, elsewhereLog); len(got) > 0 {
		t.Errorf("a redirect to another origin was followed: %v", got)
	}
	if o, r := d.Call(t, "busy/write", `{"nonce":"w"}`); o.Kind == messages.OK || r.Exit == 0 {
		t.Error(r)
	}
}

// TestHTTPUpstreamComesBack: the server goes away and returns at the same address.
func TestHTTPUpstreamComesBack(t *testing.T) {
	lab := harness.NewLab(t)
	url, cmd := lab.HTTPFixture(t, "web")
	e := httpEntry(url, nil)
	e["restart"] = harness.M{"backoff": harness.M{"initial": "50ms", "max": "200ms"}, "burst": 0}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"web": e})})
	d.Await(t, "ready", "web")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if o, r := d.Call(t, "web/write", `{"nonce":"gone"}`, "--timeout", "2s"); o.Kind == messages.OK || lab.History(t).Begins("gone") != 0 {
		t.Error(r)
	}
	addr := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	again := exec.Command(harness.Fixture(t), lab.Args("web", "-http", addr)...)
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Process.Kill(); _ = again.Wait() })
	harness.Eventually(t, "calls go through again", func() bool {
		o, _ := d.Call(t, "web/read", `{}`, "--timeout", "5s")
		return o.Kind == messages.OK
	})
}

// TestEverythingOverHTTP is the npm server in its streamableHttp mode.
func TestEverythingOverHTTP(t *testing.T) {
	bin := harness.NPMBin(t, "mcp-server-everything")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	cmd := exec.Command(bin, "streamableHttp")
	cmd.Env = append(os.Environ(), fmt.Sprintf("PORT=%d", port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	e := httpEntry(fmt.Sprintf("http://127.0.0.1:%d/mcp", port), harness.M{"trust": "annotations"})
	delete(e, "effects")
	// The server needs a moment to listen; until then connections are refused.
	e["restart"] = harness.M{"backoff": harness.M{"initial": "100ms", "max": "500ms"}, "burst": 0}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"everything": e})})
	d.Await(t, "ready", "everything")
	if row := d.Server(t, "everything"); row.Tools < 12 {
		t.Errorf("%d tools; issues %v", row.Tools, row.Issues)
	}
	if o, r := d.Call(t, "everything/get-sum", `{"a":2,"b":40}`); o.Kind != messages.OK || !strings.Contains(o.Text(), "42") {
		t.Error(r)
	}
	if o, r := d.Call(t, "everything/get-tiny-image", `{}`); o.Kind != messages.OK || o.ContentCounts()["image"] != 1 {
		t.Error(r)
	}
}
