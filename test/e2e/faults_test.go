package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/test/harness"
)

// TestOddStreams: servers that are ugly and work.
func TestOddStreams(t *testing.T) {
	lab := harness.NewLab(t)
	odd := map[string][]string{
		"banner": {"-banner"}, "bom": {"-bom"}, "crlf": {"-crlf"}, "blanks": {"-trailing-blanks"}, "split": {"-split-writes"},
		"stringid": {"-string-id"}, "noise": {"-noise"}, "dup": {"-dup-reply"}, "late": {"-late-reply"}, "wrong": {"-wrong-id"},
		"flood": {"-stderr-flood", "5000000"}, "storm": {"-list-changed", "1ms"}, "modern": {"-modern"},
		"old": {"-protocol", "2024-11-05"}, "nodiscover": {"-silent", "discover"}, "diesondiscover": {"-exit-on", "discover"},
		"slow": {"-start-delay", "1s"}, "progress": {"-progress", "5ms"},
	}
	servers := harness.M{}
	var names []string
	for name, args := range odd {
		servers[name] = lab.Server(t, name, args...)
		names = append(names, name)
	}
	d := harness.Start(t, harness.Options{Config: harness.Config(servers)})
	d.Await(t, "ready", names...)
	for _, name := range names {
		for i := range 2 {
			nonce := fmt.Sprintf("%s-%d", name, i)
			if o, r := d.Call(t, name+"/write", `{"nonce":"`+nonce+`","sleep_ms":20}`); o.Kind != messages.OK || o.Text() != "wrote "+nonce {
				t.Errorf("%s: %s", name, r)
			}
		}
	}
	status := d.Status(t)
	for _, name := range []string{"banner", "noise"} {
		harness.Eventually(t, "the noise of "+name+" is counted", func() bool { return d.Server(t, name).NoiseLines > 0 })
	}
	for name, want := range map[string]string{"modern": "2026-07-28", "old": "2024-11-05", "nodiscover": "2025-11-25", "diesondiscover": "2025-11-25"} {
		if row, _ := status.Server(name); row.Protocol != want {
			t.Errorf("%s speaks %s, want %s", name, row.Protocol, want)
		}
	}
	if twice := lab.History(t).Twice(); len(twice) > 0 {
		t.Error(twice)
	}
}

// anyCode is for faults that may be called by two names: half of an answer and then
// the end is a broken answer and a broken connection.
const anyCode messages.Code = "*"

// TestFaultyCalls: one bad call costs one call, and its outcome is the truth.
func TestFaultyCalls(t *testing.T) {
	lab := harness.NewLab(t)
	e := lab.Server(t, "s")
	e["restart"] = harness.M{"backoff": harness.M{"initial": "10ms", "max": "50ms"}, "burst": 0}
	e["timeouts"] = harness.M{"abandon_after": "1s"}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": e})})
	d.Await(t, "ready", "s")
	for _, tt := range []struct {
		fault, timeout string
		kind           messages.OutcomeKind
		code           messages.Code
		begins         int
	}{
		{"crash-before-begin", "20s", messages.OutcomeUnknown, messages.CodeConnectionLost, 0},
		{"crash-after-begin", "20s", messages.OutcomeUnknown, messages.CodeConnectionLost, 1},
		{"crash-after-end", "20s", messages.OutcomeUnknown, messages.CodeConnectionLost, 1},
		{"half-frame", "20s", messages.OutcomeUnknown, anyCode, 1},
		{"never", "1s", messages.OutcomeUnknown, messages.CodeTimeout, 1},
		{"no-body", "20s", messages.OutcomeUnknown, messages.CodeProtocolError, 1},
		{"huge-frame", "50s", messages.ToolError, messages.CodeResultTooLarge, 1},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			nonce := "n-" + tt.fault
			o, r := d.Call(t, "s/write", fmt.Sprintf(`{"nonce":%q,"fault":%q}`, nonce, tt.fault), "--timeout", tt.timeout)
			if o.Kind != tt.kind || o.Code != tt.code && tt.code != anyCode {
				t.Errorf("%s/%s, want %s/%s\n%s", o.Kind, o.Code, tt.kind, tt.code, r)
			}
			if got := lab.History(t).Begins(nonce); got != tt.begins {
				t.Errorf("began %d times, want %d", got, tt.begins)
			}
			if o, r := d.Call(t, "s/write", `{"nonce":"after-`+tt.fault+`"}`); o.Kind != messages.OK {
				t.Errorf("the next call: %s", r)
			}
		})
	}
	h := lab.History(t)
	for _, bad := range [][]string{h.Twice(), h.Overlaps(), h.Survivors()} {
		for _, s := range bad {
			t.Error(s)
		}
	}
}

// TestDeepAnswer: whatever becomes of the one call, the session lives on.
func TestDeepAnswer(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s")})})
	d.Await(t, "ready", "s")
	before := d.Server(t, "s")
	for _, depth := range []int{900, 9_000, 100_000} {
		if r := d.CLI(t, "call", "s/nest", "--args", fmt.Sprintf(`{"depth":%d}`, depth)); r.Exit != 0 && r.Exit != 5 && r.Exit != 8 {
			t.Errorf("depth %d: exit %d", depth, r.Exit)
		}
		if o, r := d.Call(t, "s/read", `{}`); o.Kind != messages.OK {
			t.Errorf("after depth %d: %s", depth, r)
		}
	}
	if after := d.Server(t, "s"); after.PID != before.PID {
		t.Errorf("the server was restarted: pid %d became %d", before.PID, after.PID)
	}
}

// TestNoCommonProtocol: trying again cannot help, so nobody does.
func TestNoCommonProtocol(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s", "-protocol", "1999-01-01")})})
	d.Await(t, "quarantined", "s")
	row := d.Server(t, "s")
	if e := row.LastExit; e == nil || e.Stage != messages.StageHandshake || !strings.Contains(e.Reason, "1999-01-01") || row.Restarts != 0 {
		t.Errorf("restarts %d, last exit %+v", row.Restarts, row.LastExit)
	}
}

// TestServerThatStopsReading: a write that cannot leave ends with its deadline and
// the server with its tree.
func TestServerThatStopsReading(t *testing.T) {
	lab := harness.NewLab(t)
	// initialize, tools/list and a discover or not: after four requests it is deaf.
	e := lab.Server(t, "s", "-stop-reading", "4", "-ignore-term")
	e["timeouts"] = harness.M{"abandon_after": "1s"}
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": e, "other": lab.Server(t, "other")})})
	d.Await(t, "ready", "s", "other")
	before := d.Server(t, "s")
	tree := harness.Tree(before.PID)
	big := strings.Repeat("x", 2<<20)
	path := d.WriteConfig(t, "args.json", `{"text":"`+big+`"}`)
	var o messages.Outcome
	for range 8 {
		r := d.CLI(t, "call", "s/write", "--args-file", path, "--timeout", "4s", "-o", "json")
		r.JSON(t, &o)
		if o.Kind == messages.OutcomeUnknown {
			break
		}
		// The first may still have been read, and on a slow machine one may have
		// expired before it could leave.
		if o.Kind != messages.OK && o.Kind != messages.NotSent {
			t.Errorf("%s/%s", o.Kind, o.Code)
		}
	}
	if o.Code != messages.CodeTimeout {
		t.Errorf("no call got stuck; the last: %s/%s", o.Kind, o.Code)
	}
	if o, r := d.Call(t, "other/read", `{}`); o.Kind != messages.OK {
		t.Errorf("the neighbour: %s", r)
	}
	d.AwaitGeneration(t, "s", before.Generation)
	if left := harness.AliveOf(tree); len(left) > 0 {
		t.Errorf("left of the deaf server: %v", left)
	}
}

// TestOddTools: one odd definition never hides the others, and each difference in
// the counts has an issue.
func TestOddTools(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"odd": lab.Server(t, "odd", "-odd-tools", "-tools", "300", "-page-size", "50")})})
	d.Await(t, "ready", "odd")
	status := d.Status(t)
	row, _ := status.Server("odd")
	c := status.Bridge.Counts
	if c.Discovered != 16+300+21 || row.Tools < 316 || c.Adapted != row.Tools || c.Registered != row.Tools {
		t.Errorf("counts %+v, tools %d", c, row.Tools)
	}
	if len(row.Issues) < c.Discovered-c.Adapted {
		t.Errorf("%d issues for a difference of %d", len(row.Issues), c.Discovered-c.Adapted)
	}
	var cat struct {
		Tools []messages.Tool `json:"tools"`
	}
	d.OK(t, "tools", "-o", "json").JSON(t, &cat)
	seen := map[string]bool{}
	for _, tool := range cat.Tools {
		if len(tool.Name) > 64 || len(tool.EndpointName) > 48 || strings.ContainsFunc(tool.Name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
		}) {
			t.Errorf("name %q, endpoint name %q", tool.Name, tool.EndpointName)
		}
		if seen[tool.Name] || seen[tool.EndpointName] {
			t.Errorf("%q occurs twice", tool.Name)
		}
		seen[tool.Name], seen[tool.EndpointName] = true, true
		if tool.RemoteName == "echo" && tool.Def.Description == "the second echo" {
			t.Error("of two tools with one name the second was kept")
		}
	}
	named := map[string]bool{}
	for _, i := range row.Issues {
		named[i.Tool] = true
	}
	for _, name := range []string{"odd_task", "odd_hints", "odd_null_schema", "odd_array_schema", "odd_cyclic_schema", "echo"} {
		if !named[name] {
			t.Errorf("no issue names %s", name)
		}
	}
	if o, r := d.Call(t, "odd/read", `{}`); o.Kind != messages.OK {
		t.Error(r)
	}
}

// TestForgedHintChangesNothing: annotations count only for servers that are trusted
// for them.
func TestForgedHintChangesNothing(t *testing.T) {
	lab := harness.NewLab(t)
	plain, trusted := lab.Server(t, "plain"), lab.Server(t, "trusted")
	delete(plain, "effects")
	delete(trusted, "effects")
	trusted["trust"] = "annotations"
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"plain": plain, "trusted": trusted})})
	d.Await(t, "ready", "plain", "trusted")
	var cat struct {
		Tools []messages.Tool `json:"tools"`
	}
	d.OK(t, "tools", "-o", "json").JSON(t, &cat)
	for _, tool := range cat.Tools {
		want, source := messages.SideEffect, messages.FromDefault
		if tool.Server == "trusted" && tool.RemoteName == "read" {
			want, source = messages.ReadOnly, messages.FromAnnotation
		}
		if tool.RemoteName == "read" && (tool.Effect != want || tool.EffectSource != source) {
			t.Errorf("%s is %s by %s, want %s by %s", tool.Name, tool.Effect, tool.EffectSource, want, source)
		}
	}
}

// TestBytesSurvive: what the fixture wrote reaches the caller untouched.
func TestBytesSurvive(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": lab.Server(t, "s")})})
	d.Await(t, "ready", "s")
	want := harness.StartRawStdio(t, lab.Command(t, "direct")).CallTool(t, "blocks", `{}`)
	raw := d.Raw(t, d.URL)
	same(t, "HTTP endpoint", raw.CallTool(t, "s__blocks", `{}`), want)
	same(t, "stdio", harness.StartRawStdio(t, d.StdioCommand(t)).CallTool(t, "s__blocks", `{}`), want)
	_, r := d.Call(t, "s/blocks", `{}`)
	var cli struct {
		Result json.RawMessage `json:"result"`
	}
	r.JSON(t, &cli)
	same(t, "CLI", cli.Result, compact(t, want))
	args := `{"z":12345678901234567890,"a":{"n":1.0,"list":[1,"<&>"]}}`
	if got := string(raw.CallTool(t, "s__echo", args)); !strings.Contains(got, `"structuredContent":`+args) {
		t.Errorf("arguments did not arrive as they were: %s", got)
	}
	if reply := raw.Do(t, "tools/call", `{"name":"s__rpc_error","arguments":{"code":-32077,"message":"m","data":{"big":9007199254740993}}}`); string(reply.Error) != `{"code":-32077,"message":"m","data":{"big":9007199254740993}}` {
		t.Errorf("JSON-RPC error: %s, result %s", reply.Error, reply.Result)
	}
}

// TestProgressAndCancel through the endpoint, in both eras.
func TestProgressAndCancel(t *testing.T) {
	lab := harness.NewLab(t)
	e := lab.Server(t, "s", "-progress", "20ms", "-honour-cancel", "answer")
	d := harness.Start(t, harness.Options{Config: harness.Config(harness.M{"s": e})})
	d.Await(t, "ready", "s")
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			progress := make(chan any, 1000)
			cs := d.Session(t, version, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				select {
				case progress <- r.Params.ProgressToken:
				default:
				}
			}})
			params := &mcp.CallToolParams{Name: "s__read", Arguments: json.RawMessage(`{"sleep_ms":500}`)}
			params.SetProgressToken("mine")
			if _, err := cs.CallTool(harness.Context(t), params); err != nil {
				t.Fatal(err)
			}
			select {
			case token := <-progress:
				if token != "mine" {
					t.Errorf("progress for token %v", token)
				}
			case <-harness.Context(t).Done():
				t.Error("no progress came")
			}
			ctx, cancel := context.WithCancel(harness.Context(t))
			nonce := "cancel-" + version
			ended := make(chan error, 1)
			go func() {
				_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "s__write", Arguments: json.RawMessage(`{"nonce":"` + nonce + `","sleep_ms":60000}`)})
				ended <- err
			}()
			harness.Eventually(t, "the call has begun", func() bool { return lab.History(t).Begins(nonce) == 1 })
			cancel()
			if err := <-ended; err == nil {
				t.Error("a cancelled call has a result")
			}
			harness.Eventually(t, "the server has heard of it", func() bool { return lab.History(t).Ends(nonce) == 1 })
			if o, r := d.Call(t, "s/write", `{"nonce":"next-`+version+`"}`); o.Kind != messages.OK {
				t.Errorf("the lane is not free: %s", r)
			}
		})
	}
}
