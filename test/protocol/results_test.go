package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// as is a client of the daemon with a token of its own.
func as(t *testing.T, url, token, version string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "as", Version: "1"}, nil)
	hc := &http.Client{Transport: harness.Bearer{Token: token, Base: http.DefaultTransport}}
	cs, err := client.Connect(harness.Context(t), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: hc, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

func readWhole(t *testing.T, cs *mcp.ClientSession, uri string) (string, error) {
	t.Helper()
	res, err := cs.ReadResource(harness.Context(t), &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	return res.Contents[0].Text, nil
}

// D7: a result over result_bytes is cut, says so, and can be read whole by the client that
// made the call and by nobody else; one over the frame cap is an error, and the session
// lives.
func TestD7LargeResults(t *testing.T) {
	w := harness.NewWorld(t)
	tokens := harness.M{}
	for _, name := range []string{"alice", "bob"} {
		if err := os.WriteFile(w.Path(name), []byte(strings.Repeat(name, 10)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		tokens[name] = harness.M{"file": w.Path(name)}
	}
	cfg := harness.Config(harness.M{"rogue": rogueEntry(t, "big", w.Path("record"), harness.M{"limits": harness.M{"result_bytes": "64KiB", "frame_bytes": "1MiB"}})})
	cfg["auth"] = harness.M{"tokens": tokens}
	cfg["views"] = harness.M{"plan": harness.M{"effects": []string{"read_only"}}}
	d := harness.Start(t, harness.Options{World: w, Config: cfg})
	d.Await(t, "ready", "rogue")
	const n = 300_000
	want := textResult(strings.Repeat("x", n))

	t.Run("command line", func(t *testing.T) {
		o, r := d.Call(t, "rogue/read", fmt.Sprintf(`{"n":%d}`, n))
		if o.Kind != messages.OK || !o.Truncated || o.ResultURI == "" || len(o.Result) > 70<<10 || r.Exit != 0 || !strings.Contains(o.Text(), o.ResultURI) {
			t.Fatalf("%s truncated %v %q, %d bytes", o.Kind, o.Truncated, o.ResultURI, len(o.Result))
		}
		for _, name := range []string{o.ResultURI, strings.TrimPrefix(o.ResultURI, "mcpbridge://results/")} {
			if got := d.OK(t, "result", name).Stdout; got != want+"\n" {
				t.Errorf("%s: %d bytes", name, len(got))
			}
		}
		if r := d.CLI(t, "result", "mcpbridge://results/none"); r.Exit != 1 || !strings.Contains(r.Stderr, "ten minutes") {
			t.Error(r)
		}
		if r := d.CLI(t, "result", o.ResultURI, "--view", "plan"); r.Exit != 1 {
			t.Error(r)
		}
		if r := d.CLI(t, "call", "rogue/read", fmt.Sprintf("n=%d", n)); r.Exit != 0 || !strings.Contains(r.Stderr, "bridgectl result mcpbridge://results/") {
			t.Errorf("%.300s", r.Stderr)
		}
		if o, _ := d.Call(t, "rogue/read", `{"n":60000}`); o.Truncated || o.ResultURI != "" || string(o.Result) != textResult(strings.Repeat("x", 60000)) {
			t.Error("a result below the limit was touched")
		}
	})
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run("endpoint "+version, func(t *testing.T) {
			alice, bob := as(t, d.URL, strings.Repeat("alice", 10), version), as(t, d.URL, strings.Repeat("bob", 10), version)
			res, err := alice.CallTool(harness.Context(t), &mcp.CallToolParams{Name: "rogue__read", Arguments: map[string]any{"n": n}})
			if err != nil || res.IsError {
				t.Fatalf("%+v %v", res, err)
			}
			uri, _ := res.Meta["mcpbridge/result_uri"].(string)
			if res.Meta["mcpbridge/truncated"] != true || !strings.HasPrefix(uri, "mcpbridge://results/") || len(res.Content) != 2 {
				t.Fatalf("%v, %d blocks", res.Meta, len(res.Content))
			}
			if got, err := readWhole(t, alice, uri); err != nil || got != want {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if got, err := readWhole(t, as(t, d.Base()+"/servers/rogue/mcp", strings.Repeat("alice", 10), version), uri); err != nil || got != want {
				t.Errorf("at the server's own endpoint: %d bytes, %v", len(got), err)
			}
			_, none := readWhole(t, bob, "mcpbridge://results/none")
			for name, cs := range map[string]*mcp.ClientSession{"another client": bob, "another view": as(t, d.URL+"?view=plan", strings.Repeat("alice", 10), version)} {
				if _, err := readWhole(t, cs, uri); err == nil || none == nil || err.Error() != none.Error() {
					t.Errorf("%s reads it: %v", name, err)
				}
			}
		})
	}
	t.Run("over the frame cap", func(t *testing.T) {
		row := d.Server(t, "rogue")
		o, r := d.Call(t, "rogue/read", `{"n":2000000}`)
		if o.Kind != messages.ToolError || o.Code != messages.CodeResultTooLarge || r.Exit != 5 {
			t.Error(r)
		}
		if now := d.Server(t, "rogue"); now.Generation != row.Generation {
			t.Error("the session did not live")
		}
	})
	if s := d.Stderr(); strings.Contains(s, strings.Repeat("x", 100)) || strings.Contains(s, "has no effect yet") {
		t.Errorf("the log: %.500s", s)
	}
	if files, _ := os.ReadDir(w.State); len(files) > 0 {
		for _, f := range files {
			if strings.Contains(f.Name(), "result") {
				t.Errorf("left in the state directory: %s", f.Name())
			}
		}
	}
}

// D7, as a library: the outcome names the resource, and Bridge.Result reads it.
func TestD7Library(t *testing.T) {
	c := found(t, "big", harness.M{"limits": harness.M{"result_bytes": "64KiB"}})
	call := messages.CallTool{Tool: "rogue/read", Args: json.RawMessage(`{"n":100000}`), Client: "me"}
	o := c.b.Call(context.Background(), call)
	id := strings.TrimPrefix(o.ResultURI, "mcpbridge://results/")
	if o.Kind != messages.OK || !o.Truncated || o.Held {
		t.Fatalf("%+v", o)
	}
	if raw, ok := c.b.Result("me", "", "", id); !ok || string(raw) != textResult(strings.Repeat("x", 100000)) {
		t.Errorf("%d bytes, %v", len(raw), ok)
	}
	for _, other := range [][3]string{{"", "", ""}, {"you", "", ""}, {"me", "plan", ""}, {"me", "", "neighbour"}} {
		if _, ok := c.b.Result(other[0], other[1], other[2], id); ok {
			t.Errorf("%v reads it", other)
		}
	}
	if _, ok := c.b.Result("me", "", "rogue", id); !ok {
		t.Error("not its own server's")
	}
}
