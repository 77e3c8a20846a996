package messages

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestContractTable holds CodeTable to the contract, row by row, written out again.
func TestContractTable(t *testing.T) {
	rows := []struct {
		code    Code
		kind    OutcomeKind
		exit    int
		classic string
		mcp     string
		sent    bool
	}{
		{"", OK, 0, "ok", "ok", true},
		{"tool_error", ToolError, 5, "mcp_tool_error", "MCP_EXECUTION_ERROR", true},
		{"result_too_large", ToolError, 5, "mcp_call_error", "MCP_PARSE_ERROR", true},
		{"protocol_error", OutcomeUnknown, 8, "mcp_call_error", "MCP_PARSE_ERROR", true},
		{"denied", Rejected, 6, "permission_denied", "PERMISSION_DENIED", false},
		{"approval_required", Rejected, 6, "permission_denied", "PERMISSION_DENIED", false},
		{"unknown_tool", Rejected, 7, "unknown_tool", "PERMISSION_DENIED", false},
		{"tool_changed", Rejected, 7, "unknown_tool", "PERMISSION_DENIED", false},
		{"invalid_arguments", Rejected, 7, "invalid_arguments", "MCP_PARAM_ERROR", false},
		{"idempotency_conflict", Rejected, 7, "invalid_arguments", "MCP_PARAM_ERROR", false},
		{"overloaded", Rejected, 7, "mcp_call_error", "MCP_NETWORK_ERROR", false},
		{"draining", Rejected, 7, "mcp_call_error", "MCP_NETWORK_ERROR", false},
		{"journal_unavailable", Rejected, 7, "mcp_call_error", "MCP_NETWORK_ERROR", false},
		{"unavailable", NotSent, 7, "mcp_call_error", "MCP_NETWORK_ERROR", false},
		{"expired", NotSent, 7, "mcp_call_error", "MCP_TIMEOUT", false},
		{"cancelled", NotSent, 7, "mcp_call_error", "MCP_TIMEOUT", false},
		{"timeout", OutcomeUnknown, 8, "mcp_call_error", "MCP_TIMEOUT", true},
		{"connection_lost", OutcomeUnknown, 8, "mcp_call_error", "MCP_NETWORK_ERROR", true},
		{"cancelled", OutcomeUnknown, 8, "mcp_call_error", "MCP_TIMEOUT", true},
		{"internal", NotSent, 7, "mcp_call_error", "MCP_EXECUTION_ERROR", false},
		{"internal", OutcomeUnknown, 8, "mcp_call_error", "MCP_EXECUTION_ERROR", true},
	}
	if len(rows) != len(CodeTable) {
		t.Errorf("CodeTable has %d rows, the contract %d", len(CodeTable), len(rows))
	}
	for _, r := range rows {
		o := Outcome{Kind: r.kind, Code: r.code, Attempt: 1}
		if o.ExitCode() != r.exit || o.ClassicCode() != r.classic || o.MCPCode() != r.mcp || o.Sent() != r.sent {
			t.Errorf("%s/%s: exit %d, classic %s, mcp %s, sent %t; want %+v", r.kind, r.code, o.ExitCode(), o.ClassicCode(), o.MCPCode(), o.Sent(), r)
		}
	}
	if (Outcome{Kind: OK}).Sent() {
		t.Error("a dry run, which is ok without an attempt, claims to have been sent")
	}
	param := Outcome{Kind: ToolError, Code: CodeToolError, RPCError: json.RawMessage(`{"code":-32602,"message":"no"}`)}
	if got := param.MCPCode(); got != "MCP_PARAM_ERROR" {
		t.Errorf("JSON-RPC -32602: %s", got)
	}
	if got := (Outcome{Kind: OK, Code: CodeDenied}).ExitCode(); got != 1 {
		t.Errorf("a pair outside of the table: exit %d, want 1", got)
	}
}

func TestSafeToRetry(t *testing.T) {
	for _, tt := range []struct {
		kind   OutcomeKind
		effect Effect
		want   bool
	}{
		{OK, ReadOnly, false}, {ToolError, ReadOnly, false}, {Rejected, SideEffect, true}, {NotSent, SideEffect, true},
		{OutcomeUnknown, SideEffect, false}, {OutcomeUnknown, Idempotent, true}, {OutcomeUnknown, ReadOnly, true},
	} {
		if got := (Outcome{Kind: tt.kind, Effect: tt.effect}).SafeToRetry(); got != tt.want {
			t.Errorf("%s of a %s tool: %t, want %t", tt.kind, tt.effect, got, tt.want)
		}
	}
}

// TestZeroValuesClaimTheLeast: a forgotten field must never promise something.
func TestZeroValuesClaimTheLeast(t *testing.T) {
	var o Outcome
	if o.Kind != OutcomeUnknown || o.Effect != SideEffect || o.SafeToRetry() || !o.Sent() {
		t.Errorf("zero outcome: %s of a %s tool", o.Kind, o.Effect)
	}
	var p Permission
	if p != Deny {
		t.Errorf("zero permission: %s", p)
	}
}

func TestOutcomeJSON(t *testing.T) {
	deadline := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	o := Outcome{CallID: "c1", Tool: "mcp__fs__read_file", Server: "fs", RemoteTool: "read_file", Effect: ReadOnly, Kind: OK,
		Result:  json.RawMessage(`{"content":[{"type":"text","text":"a"},{"type":"new"}],"structuredContent":{"z":9007199254740993,"a":1.0}}`),
		Attempt: 1, Generation: 7, Queued: 100 * time.Microsecond, Ran: 2300 * time.Microsecond, Deadline: deadline, DeadlineSource: DeadlineCaller}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"call_id":"c1","tool":"mcp__fs__read_file","server":"fs","remote_tool":"read_file","effect":"read_only","outcome":"ok",` +
		`"result":{"content":[{"type":"text","text":"a"},{"type":"new"}],"structuredContent":{"z":9007199254740993,"a":1.0}},` +
		`"text":"a\n[new]","content_counts":{"new":1,"text":1},"truncated":false,"error":null,"sent":true,"safe_to_retry":false,` +
		`"attempt":1,"generation":7,"queued_ms":0.1,"ran_ms":2.3,"deadline":"2026-05-06T07:08:09Z","deadline_source":"caller"}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	var back Outcome
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o, back); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

func TestFailedOutcomeJSON(t *testing.T) {
	o := Outcome{CallID: "c2", Tool: "mcp__fs__put", Server: "fs", Kind: Rejected, Code: CodeOverloaded, Message: "the queue of fs is full",
		Hint: "try again", RetryAfter: 1500 * time.Millisecond}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Result   json.RawMessage `json:"result"`
		Deadline *string         `json:"deadline"`
		Error    map[string]any  `json:"error"`
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"code": "overloaded", "message": "the queue of fs is full", "server": "fs", "tool": "mcp__fs__put",
		"sent": false, "safe_to_retry": true, "hint": "try again", "retry_after_ms": 1500.0}
	if diff := cmp.Diff(want, got.Error); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if got.Result != nil && string(got.Result) != "null" || got.Deadline != nil {
		t.Errorf("result %s, deadline %v", got.Result, got.Deadline)
	}
	var line struct {
		Error map[string]any `json:"error"`
	}
	if err := json.Unmarshal(o.ErrorLine(), &line); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, line.Error); diff != "" {
		t.Errorf("error line (-want +got):\n%s", diff)
	}
	if bytes.ContainsRune(o.ErrorLine(), '\n') {
		t.Error("the error line has more than one line")
	}
	if (Outcome{Kind: OK}).ErrorLine() != nil {
		t.Error("ok has an error line")
	}
	var back Outcome
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o, back); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

// TestResultKeepsItsBytes: what a person or a script reads from `call -o json` is
// what the server wrote, "<", ">" and "&" too.
func TestResultKeepsItsBytes(t *testing.T) {
	raw := `{"content":[{"type":"text","text":"a < b && c > d\u2028é"}],"big":123456789012345678901234567890,"f":1.50}`
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(Outcome{Kind: OK, Result: json.RawMessage(raw)}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(buf.String(), `"result":`+raw+`,`) {
		t.Errorf("the result was rewritten:\n%s", buf.String())
	}
}
