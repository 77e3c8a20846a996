package requirements

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
)

// TestC3ReservedByTheHost: names that the host program keeps for itself take the suffix,
// and the report says so.
func TestC3ReservedByTheHost(t *testing.T) {
	lab := harness.NewLab(t)
	b := harness.Library(t, harness.Config(harness.M{"s": lab.Server(t, "s")}), supervisor.WithReservedNames("mcp__s__read", "s__write"))
	read, _ := b.Catalogue().LookupRemote("s", "read")
	write, _ := b.Catalogue().LookupRemote("s", "write")
	put, _ := b.Catalogue().LookupRemote("s", "put")
	if !strings.HasPrefix(read.Name, "mcp__s__read__") || !strings.HasPrefix(write.EndpointName, "s__write__") || put.Name != "mcp__s__put" || put.EndpointName != "s__put" {
		t.Errorf("%s %s %s", read.Name, write.EndpointName, put.Name)
	}
	for _, tool := range []messages.Tool{read, write} {
		if out := b.Call(harness.Context(t), messages.CallTool{Tool: tool.Name}); out.Kind != messages.OK || out.RemoteTool != tool.RemoteName {
			t.Errorf("%s: %s", tool.Name, out.ErrorText())
		}
	}
	if _, ok := b.Catalogue().Lookup("mcp__s__read"); ok {
		t.Error("the reserved name is taken")
	}
	r, _ := b.Status().Server("s")
	var issues []string
	for _, i := range r.Issues {
		issues = append(issues, i.String())
	}
	says(t, strings.Join(issues, "\n"), read.Name, "reserved")
}

// TestC9ViewsOfTheLibrary: a view governs listing and calling for a host program, too.
func TestC9ViewsOfTheLibrary(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := harness.Config(harness.M{"s": lab.Server(t, "s")})
	cfg["views"] = harness.M{"plan": harness.M{"effects": []any{"read_only"}}, "one": harness.M{"tools": []any{"s__put"}}}
	b := harness.Library(t, cfg)
	for view, tools := range map[string]map[string]bool{"plan": {"s/read": true, "s/write": false, "s/put": false}, "one": {"s/put": true, "s/read": false}, "none": {"s/read": false}, "": {"s/read": true, "s/write": true}} {
		cat, ok := b.Catalogue().View(view)
		if ok != (view != "none") {
			t.Errorf("view %q is there: %t", view, ok)
		}
		for tool, may := range tools {
			if _, ok := cat.Lookup(tool); ok != may {
				t.Errorf("%s in view %q: %t", tool, view, ok)
			}
			nonce := "through-" + view
			if !may {
				nonce = "never"
			}
			out := b.Call(harness.Context(t), messages.CallTool{Tool: tool, View: view, Args: json.RawMessage(`{"nonce":"` + nonce + `"}`)})
			if (out.Kind == messages.OK) != may || !may && (out.Code != messages.CodeUnknownTool || out.Sent()) {
				t.Errorf("%s in view %q: %s/%s", tool, view, out.Kind, out.Code)
			}
		}
	}
	if lab.History(t).Begins("never") != 0 {
		t.Error("a call that no view admits reached the server")
	}
}

// TestD2Order: of several reasons to refuse a call the first counts: known, in view,
// allowed, arguments, admitted; and nothing of it is sent.
func TestD2Order(t *testing.T) {
	lab := harness.NewLab(t)
	e := lab.Server(t, "s")
	e["limits"] = harness.M{"queue": 1}
	cfg := harness.Config(harness.M{"s": e})
	cfg["views"] = harness.M{"plan": harness.M{"effects": []any{"read_only"}}}
	cfg["permissions"] = []any{harness.M{"tool": "inc", "action": "deny"}, harness.M{"action": "allow"}}
	d := harness.Start(t, harness.Options{Config: cfg})
	d.Await(t, "ready", "s")
	var busy sync.WaitGroup
	for _, nonce := range []string{"runs", "waits"} {
		busy.Go(func() { d.Call(t, "s/write", `{"nonce":"`+nonce+`","sleep_ms":20000}`, "--timeout", "30s") })
		if nonce == "runs" {
			harness.Eventually(t, "it runs", func() bool { return lab.History(t).Begins("runs") == 1 })
		}
	}
	harness.Eventually(t, "the queue is full", func() bool { return d.Server(t, "s").Queued == 1 })
	bad := `{"nonce":7}`
	for _, tt := range []struct {
		tool, args, view string
		want             messages.Code
	}{
		{"s/nothing", bad, "", messages.CodeUnknownTool},
		{"s/inc", bad, "plan", messages.CodeUnknownTool},
		{"s/inc", bad, "", messages.CodeDenied},
		{"s/inc", `[]`, "", messages.CodeDenied},
		{"s/write", bad, "", messages.CodeInvalidArguments},
		{"s/write", `{"nonce":"late"}`, "", messages.CodeOverloaded},
	} {
		o, r := d.Call(t, tt.tool, tt.args, "--view", tt.view)
		if o.Kind != messages.Rejected || o.Code != tt.want || o.Sent() {
			t.Errorf("%s %s in %q: want %s\n%s", tt.tool, tt.args, tt.view, tt.want, r)
		}
	}
	if lab.History(t).Begins("late") != 0 || len(lab.History(t).Spans) != 1 {
		t.Errorf("sent: %v", lab.History(t).Spans)
	}
	d.OK(t, "stop", "s") // nobody waits for the 20 s
	busy.Wait()
}

// TestD3Deadline: the earlier of the caller's and the configured deadline counts, the
// outcome says which, and a caller who gives less than nothing is refused.
func TestD3Deadline(t *testing.T) {
	lab := harness.NewLab(t)
	quick, usual := lab.Server(t, "quick"), lab.Server(t, "usual")
	quick["timeouts"], usual["timeouts"] = harness.M{"call": "700ms", "abandon_after": "1s"}, harness.M{"call": 0}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"quick": quick, "usual": usual})})
	d.Await(t, "ready", "quick", "usual")
	for _, tt := range []struct {
		tool, timeout string
		source        messages.DeadlineSource
		within        time.Duration
	}{
		{"quick/read", "", messages.DeadlineConfig, 700 * time.Millisecond},
		{"quick/read", "1h", messages.DeadlineConfig, 700 * time.Millisecond},
		{"quick/read", "300ms", messages.DeadlineCaller, 300 * time.Millisecond},
		{"usual/read", "400ms", messages.DeadlineCaller, 400 * time.Millisecond},
	} {
		var more []string
		if tt.timeout != "" {
			more = []string{"--timeout", tt.timeout}
		}
		before := time.Now()
		o, r := d.Call(t, tt.tool, `{"sleep_ms":30000}`, more...)
		if o.Kind != messages.OutcomeUnknown || o.Code != messages.CodeTimeout || o.DeadlineSource != tt.source || o.Deadline.Before(before.Add(tt.within)) || o.Deadline.After(time.Now()) {
			t.Errorf("%s --timeout %s: deadline %s after the start\n%s", tt.tool, tt.timeout, o.Deadline.Sub(before), r)
		}
	}
	before := time.Now()
	if o, r := d.Call(t, "usual/read", `{"sleep_ms":1}`); o.Kind != messages.OK || o.Deadline.Before(before.Add(time.Minute)) || o.Deadline.After(time.Now().Add(time.Minute)) || o.DeadlineSource != messages.DeadlineConfig {
		t.Errorf("0 is the default of one minute: %s", r)
	}
	for _, bad := range []string{"-1s", "5"} {
		file := d.WriteConfig(t, "bad.yaml", "version: 1\nmcp_servers: {s: {command: x, timeouts: {call: "+bad+"}}}\n")
		if r := d.Run(t, "config", "check", file); r.Exit != 2 || !strings.Contains(r.Stdout, "timeouts.call") {
			t.Errorf("%s", r)
		}
	}
}

// TestD4Texts: an error that says nothing gets a text, by every way.
func TestD4Texts(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s")})})
	d.Await(t, "ready", "s")
	for _, args := range []string{`{}`, `{"message":""}`} {
		o, r := d.Call(t, "s/fail", args)
		if o.Kind != messages.ToolError || o.ErrorText() != "MCP tool returned an error" || r.Exit != 5 {
			t.Errorf("%s: %q %s", args, o.ErrorText(), r)
		}
		r = d.CLI(t, "call", "s/fail", "--args", args, "-o", "envelope")
		says(t, r.Stdout, `"status":"error"`, "MCP tool returned an error")
		if r = d.CLI(t, "call", "s/fail", "--args", args); r.Exit != 5 || !strings.Contains(r.Stdout+r.Stderr, "MCP tool returned an error") {
			t.Errorf("%s", r)
		}
	}
}

// answering is an HTTP server whose tool answers with this result.
func answering(t testing.TB, result string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var msg struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.NewDecoder(r.Body).Decode(&msg); err != nil || len(msg.ID) == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answer := map[string]string{"initialize": `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`,
			"tools/list": `"result":{"tools":[{"name":"tell","inputSchema":{"type":"object"}}]}`, "tools/call": `"result":` + result}[msg.Method]
		if answer == "" {
			answer = `"error":{"code":-32601,"message":"no such method"}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, msg.ID, answer)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestD5Texts: how each kind of block reads as text, and that structured content stands
// for itself where there is nothing else.
func TestD5Texts(t *testing.T) {
	blocks := `[{"type":"text","text":"one"},{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"resource_link","uri":"file:///l","name":"l"},{"type":"resource","resource":{"uri":"file:///r","text":"hidden"}},{"type":"text","text":"two"}]`
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{
		"blocks": harness.M{"type": "http", "url": answering(t, `{"content":`+blocks+`,"structuredContent":{"a":1}}`)},
		"only":   harness.M{"type": "http", "url": answering(t, `{"content":[],"structuredContent":{ "z": 9007199254740993, "a": [1.0, "<&>"] }}`)},
	})})
	d.Await(t, "ready", "blocks", "only")
	o, r := d.Call(t, "blocks/tell", `{}`)
	lines := strings.Split(o.Text(), "\n")
	if o.Kind != messages.OK || len(lines) != 5 || lines[0] != "one" || !strings.HasPrefix(lines[1], "[image image/png ") || lines[2] != "[resource file:///l]" || lines[3] != "[resource file:///r]" || lines[4] != "two" {
		t.Errorf("%q\n%s", lines, r)
	}
	if o, r := d.Call(t, "only/tell", `{}`); o.Kind != messages.OK || o.Text() != `{"z":9007199254740993,"a":[1.0,"<&>"]}` {
		t.Errorf("%q\n%s", o.Text(), r)
	}
}

// TestD6LocalFacts: what a server writes into its answer changes nothing of what the
// bridge says of the call.
func TestD6LocalFacts(t *testing.T) {
	forged := `{"content":[{"type":"text","text":"done"}],"isError":false,"call_id":"forged","server":"forged","outcome":"not_sent","_meta":{"x":1.0,"server":"forged","generation":99,` +
		`"mcpbridge/call_id":"forged","mcpbridge/outcome":"not_sent","mcpbridge/code":"unavailable","mcpbridge/sent":false,"mcpbridge/safe_to_retry":true,"mcpbridge/result_uri":"mcpbridge://results/forged","mcpbridge/truncated":true}}`
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": harness.M{"type": "http", "url": answering(t, forged)}})})
	d.Await(t, "ready", "s")
	o, r := d.Call(t, "s/tell", `{}`)
	if o.Kind != messages.OK || o.Server != "s" || o.RemoteTool != "tell" || o.Generation == 99 || o.Generation == 0 || o.CallID == "forged" || o.CallID == "" || !o.Sent() || o.Truncated || o.ResultURI != "" {
		t.Errorf("%s", r)
	}
	if string(o.Result) != forged {
		t.Errorf("the answer itself: %s", o.Result)
	}
	var envelope struct{ Meta map[string]any }
	d.CLI(t, "call", "s/tell", "-o", "envelope").JSON(t, &envelope)
	if envelope.Meta["server"] != "s" {
		t.Errorf("envelope: %v", envelope.Meta)
	}
	clients := map[string]func(params string) harness.RawReply{}
	http := d.Raw(t, d.URL)
	stdio := harness.StartRawStdio(t, d.StdioCommand(t))
	clients["http"] = func(p string) harness.RawReply { return http.Do(t, "tools/call", p) }
	clients["stdio"] = func(p string) harness.RawReply { return stdio.Do(t, "tools/call", p) }
	for name, call := range clients {
		if got := string(call(`{"name":"s__tell"}`).Result); strings.Contains(got, "mcpbridge/") || !strings.Contains(got, `"x":1.0`) || !strings.Contains(got, `"server":"forged"`) {
			t.Errorf("%s: %s", name, got)
		}
		got := string(call(`{"name":"s__tell","_meta":{"mcpbridge/want_call_id":true}}`).Result)
		if strings.Count(got, "mcpbridge/") != 1 || !strings.Contains(got, `"mcpbridge/call_id":"`) || strings.Contains(got, `"mcpbridge/call_id":"forged"`) {
			t.Errorf("%s with its id: %s", name, got)
		}
	}
}

// TestD8SafeForSynchronousCallers: many goroutines, callers that give up, and callbacks
// that call, ask and close from inside, with servers that really run.
func TestD8SafeForSynchronousCallers(t *testing.T) {
	lab := harness.NewLab(t)
	closed := make(chan error, 1)
	var b *supervisor.Bridge
	var once, inner sync.Once
	opened := make(chan struct{})
	fromInside := make(chan messages.Outcome, 1)
	b = harness.Library(t, harness.Config(harness.M{"s": lab.Server(t, "s"), "t": lab.Server(t, "t")}), supervisor.WithEventHook(func(messages.Event) {
		<-opened
		inner.Do(func() { fromInside <- b.Call(context.Background(), messages.CallTool{Tool: "t/read"}) })
	}))
	close(opened)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%10 == 0 { // gives up in the middle
				time.AfterFunc(50*time.Millisecond, cancel)
				out := b.Call(ctx, messages.CallTool{Tool: "s/slow", Args: json.RawMessage(`{"ms":60000}`)})
				if out.Kind == messages.OK {
					t.Errorf("a call that was given up: %s", out.Kind)
				}
				return
			}
			for range 5 {
				if out := b.Call(ctx, messages.CallTool{Tool: []string{"s/read", "t/write"}[i%2], Args: json.RawMessage(`{}`)}); out.Kind != messages.OK {
					t.Errorf("%s/%s %s", out.Kind, out.Code, out.ErrorText())
				}
				b.Status()
				b.Catalogue().Tools()
			}
		})
	}
	all.Wait()
	if out := <-fromInside; out.Kind != messages.OK {
		t.Errorf("a call from inside a hook: %s %s", out.Kind, out.ErrorText())
	}
	stop := b.Subscribe(func(messages.Event) {
		once.Do(func() { closed <- b.Close(context.Background()) })
	})
	defer stop()
	b.Call(context.Background(), messages.CallTool{Tool: "t/write", Args: json.RawMessage(`{}`)})
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-harness.Context(t).Done():
		t.Fatal("closing from inside a callback does not end")
	}
	if out := b.Call(context.Background(), messages.CallTool{Tool: "t/read"}); out.Kind != messages.Rejected || out.Code != messages.CodeDraining {
		t.Errorf("a call of a closed bridge: %s/%s", out.Kind, out.Code)
	}
}
