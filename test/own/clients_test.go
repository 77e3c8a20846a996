//go:build linux

package own

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
)

// leaving is a way for a client to disappear in the midst of its call. It begins a write
// of s with these arguments and returns what makes the client vanish. The session, where
// one is needed, is open before: it outlives its connections, until it is idle for long.
type leaving func(t *testing.T, d *harness.Daemon, session *harness.RawHTTP, args string) (vanish func())

// hangUp posts a request whose connection is cut by vanish.
func hangUp(t *testing.T, d *harness.Daemon, method, body string, headers ...string) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, d.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	gone := make(chan struct{})
	// A connection of its own: cutting it cuts nobody else's.
	client := &http.Client{Transport: harness.Bearer{Token: d.Token, Base: &http.Transport{DisableKeepAlives: true}}}
	go func() {
		defer close(gone)
		if resp, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	return func() { cancel(); <-gone }
}

// killed runs bridgectl, says something to it, and kills it.
func killed(t *testing.T, cmd *exec.Cmd, say string) func() {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := io.WriteString(in, say); err != nil {
		t.Fatal(err)
	}
	return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
}

const greeting = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n" +
	`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

var leavings = map[string]leaving{
	"a request of a session": func(t *testing.T, d *harness.Daemon, raw *harness.RawHTTP, args string) func() {
		raw.Client = &http.Client{Transport: harness.Bearer{Token: d.Token, Base: &http.Transport{DisableKeepAlives: true}}}
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = raw.Try(ctx, "tools/call", `{"name":"s__write","arguments":`+args+`}`)
		}()
		return func() { cancel(); <-gone }
	},
	"a request without a session": func(t *testing.T, d *harness.Daemon, _ *harness.RawHTTP, args string) func() {
		return hangUp(t, d, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__write","arguments":`+args+
			`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "s__write")
	},
	"a killed stdio client": func(t *testing.T, d *harness.Daemon, _ *harness.RawHTTP, args string) func() {
		return killed(t, d.StdioCommand(t), greeting+`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__write","arguments":`+args+"}}\n")
	},
	"a killed command line": func(t *testing.T, d *harness.Daemon, _ *harness.RawHTTP, args string) func() {
		cmd := exec.Command(harness.Bridgectl(t), "call", "s/write", "--args", args)
		cmd.Dir, cmd.Env = d.Work, d.Env("MCPBRIDGE_CONTROL="+d.Control)
		return killed(t, cmd, "")
	},
}

// TestClientDisappears (N09): by whatever way a client came, when it is gone in the midst
// of its side effect the call is settled, the next one begins when the server is done with
// it and not before, and the bridge holds no more than it did.
func TestClientDisappears(t *testing.T) {
	for name, begin := range leavings {
		t.Run(name, func(t *testing.T) {
			lab := harness.NewLab(t)
			d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s")})})
			d.Await(t, "ready", "s")
			if o, r := d.Call(t, "s/write", `{"nonce":"warm"}`); o.Kind != messages.OK {
				t.Fatal(r)
			}
			session := d.Raw(t, d.URL)
			before, pid := measure(t, d), d.Server(t, "s").PID
			for i := range 3 {
				nonce := fmt.Sprint("left-", i)
				vanish := begin(t, d, session, `{"nonce":"`+nonce+`","sleep_ms":1500}`)
				harness.Eventually(t, "the call has begun", func() bool { return lab.History(t).Begins(nonce) == 1 })
				vanish()
				if lab.History(t).Ends(nonce) > 0 {
					t.Log("the call was over before its client was")
				}
				if o, r := d.Call(t, "s/write", `{"nonce":"next-`+nonce+`"}`); o.Kind != messages.OK {
					t.Errorf("the next call: %s", r)
				}
				if lab.History(t).Ends(nonce) != 1 {
					t.Errorf("the next call was made before %s was over", nonce)
				}
			}
			h := lab.History(t)
			for _, bad := range [][]string{h.Twice(), h.Overlaps(), h.Survivors()} {
				for _, s := range bad {
					t.Error(s)
				}
			}
			cl := control.NewClient(d.Control)
			defer cl.Close()
			harness.Eventually(t, "every call is settled", func() bool {
				j, err := cl.Journal(context.Background(), "", 0)
				if err != nil || len(j.Entries) != 7 {
					return false
				}
				for _, e := range j.Entries {
					if e.Outcome == messages.OutcomeOpen {
						return false
					}
				}
				return true
			})
			if now := d.Server(t, "s"); now.PID != pid || now.InFlight != 0 || now.Queued != 0 {
				t.Errorf("pid %d became %d, %d in flight, %d wait", pid, now.PID, now.InFlight, now.Queued)
			}
			var now usage
			harness.Eventually(t, "goroutines and descriptors are back", func() bool {
				now = measure(t, d)
				return now.goroutines <= before.goroutines+4 && now.fds <= before.fds+4 // connections that are kept
			})
		})
	}
	t.Run("streams", func(t *testing.T) {
		lab := harness.NewLab(t)
		d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s")})})
		d.Await(t, "ready", "s")
		before := measure(t, d)
		var vanish []func()
		for range 20 {
			vanish = append(vanish, hangUp(t, d, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+
				`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
				"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"))
		}
		harness.Eventually(t, "20 streams are open", func() bool { return measure(t, d).fds >= before.fds+20 })
		for _, f := range vanish {
			f()
		}
		harness.Eventually(t, "goroutines and descriptors are back", func() bool {
			now := measure(t, d)
			return now.goroutines <= before.goroutines+2 && now.fds <= before.fds+2
		})
		if o, r := d.Call(t, "s/read", `{}`); o.Kind != messages.OK {
			t.Errorf("%s", r)
		}
	})
}

// TestEnvironmentCanary (X04): what stands in the bridge's environment, and what is
// configured for one server, is not in another one's; and no command line shows it.
func TestEnvironmentCanary(t *testing.T) {
	lab, mark := harness.NewLab(t), tag(t, "/")
	a := with(server(t, lab, mark), "env", harness.M{"A_TOKEN": "canary-of-a", "FROM": "${BRIDGE_TOKEN}"})
	d := harness.Start(t, harness.Options{
		Config: harness.Config(harness.M{"a": a, "b": server(t, lab, mark)}),
		Env:    []string{"BRIDGE_TOKEN=canary-of-the-bridge", "AWS_SECRET_ACCESS_KEY=canary-aws", "LD_PRELOAD_X=canary-x"},
	})
	d.Await(t, "ready", "a", "b")
	env := func(s string) string {
		o, r := d.Call(t, s+"/env", `{}`)
		if o.Kind != messages.OK || !strings.Contains(o.Text(), "PATH") {
			t.Fatal(r)
		}
		return o.Text()
	}
	if e := env("b"); strings.Contains(e, "canary") {
		t.Errorf("b sees a secret: %s", e)
	}
	e := env("a")
	for _, want := range []string{`"A_TOKEN":"canary-of-a"`, `"FROM":"canary-of-the-bridge"`} {
		if !strings.Contains(e, want) {
			t.Errorf("a does not see %s", want)
		}
	}
	if strings.Contains(e, "BRIDGE_TOKEN") || strings.Contains(e, "AWS_") || strings.Contains(e, "canary-x") {
		t.Errorf("a sees more than is configured: %s", e)
	}
	procs := harness.Named(mark)
	if len(procs) != 2 {
		t.Errorf("%d processes of two servers", len(procs))
	}
	for _, p := range append(procs, harness.Tree(d.PID)...) {
		if line := read(t, fmt.Sprintf("/proc/%d/cmdline", p.PID)); strings.Contains(line, "canary") {
			t.Errorf("on a command line: %q", line)
		}
	}
}
