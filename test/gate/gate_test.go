// Package gate tests from the outside what stands between a caller and a server:
// permissions, approvals, the pins of definitions and the trust in a workspace. The
// witness of the fixture server says whether anything ran.
package gate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// began lists the nonces that reached a server.
func began(t testing.TB, lab *harness.Lab) []string {
	t.Helper()
	var out []string
	if _, err := os.Stat(lab.Path("witness")); err != nil {
		return nil // nothing was ever started
	}
	for _, s := range lab.History(t).Spans {
		out = append(out, s.Nonce)
	}
	slices.Sort(out)
	return out
}

// ran fails the test unless exactly these nonces reached a server.
func ran(t testing.TB, lab *harness.Lab, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := began(t, lab); !slices.Equal(got, want) {
		t.Errorf("the servers ran %q, want %q", got, want)
	}
}

func approvals(t testing.TB, d *harness.Daemon) []messages.Approval {
	t.Helper()
	var list control.Approvals
	d.OK(t, "approvals", "-o", "json").JSON(t, &list)
	return list.Approvals
}

// only is the one approval that waits.
func only(t testing.TB, d *harness.Daemon) messages.Approval {
	t.Helper()
	list := approvals(t, d)
	if len(list) != 1 {
		t.Fatalf("%d approvals wait, want 1: %+v", len(list), list)
	}
	return list[0]
}

// refusal checks a call that was refused, and returns it.
func refusal(t testing.TB, d *harness.Daemon, code messages.Code, tool, args string, more ...string) messages.Outcome {
	t.Helper()
	o, r := d.Call(t, tool, args, more...)
	if o.Kind != messages.Rejected || o.Code != code {
		t.Fatalf("%s is %s/%s, want rejected/%s\n%s", tool, o.Kind, o.Code, code, r)
	}
	return o
}

func succeeds(t testing.TB, d *harness.Daemon, tool, args string, more ...string) {
	t.Helper()
	if o, r := d.Call(t, tool, args, more...); o.Kind != messages.OK {
		t.Fatalf("%s is %s/%s, want ok\n%s", tool, o.Kind, o.Code, r)
	}
}

// says fails unless the text holds every part.
func says(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q does not say %q", text, p)
		}
	}
}

// config is one with these servers and permission rules.
func config(servers harness.M, rules ...any) harness.M {
	c := harness.M{"version": 1, "mcp_servers": servers}
	if rules != nil {
		c["permissions"] = rules
	}
	return c
}

// TestApprovalOfACall: what was approved passes once, for the same client with the
// same arguments, and nothing else passes with it.
func TestApprovalOfACall(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := config(harness.M{"fs": lab.Server(t, "fs")})
	cfg["auth"] = harness.M{"tokens": harness.M{"other": harness.M{"env": "OTHER_TOKEN"}}}
	d := harness.Start(t, harness.Options{Config: cfg, Env: []string{"OTHER_TOKEN=0123456789abcdef0123"}})
	d.Await(t, "ready", "fs")

	o := refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"w1","text":"a"}`)
	says(t, o.Hint, "bridgectl approve "+o.ApprovalID, "permissions: [{server: fs, tool: \"write\", action: allow}")
	a := only(t, d)
	if a.ID != o.ApprovalID || a.Kind != messages.ApproveCall || a.Server != "fs" || a.Tool != "mcp__fs__write" || a.Client != "local" ||
		string(a.Args) != `{"nonce":"w1","text":"a"}` || a.ExpiresAt == nil {
		t.Errorf("the approval is %+v", a)
	}
	// The same call asks the same question; another call another one.
	if again := refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"text":"a", "nonce":"w1"}`); again.ApprovalID != a.ID {
		t.Errorf("asked again under %q, before under %q", again.ApprovalID, a.ID)
	}
	if r := d.OK(t, "approve", a.ID); !strings.Contains(r.Stderr, "approved") {
		t.Errorf("%s", r)
	}
	// Other arguments, another tool, another client: each asks anew.
	other := refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"w1","text":"b"}`)
	refusal(t, d, messages.CodeApprovalRequired, "fs/put", `{"nonce":"w1","text":"a"}`)
	stranger := harness.OpenRaw(t, d.URL, harness.ClientOf("0123456789abcdef0123"))
	reply := stranger.Do(t, "tools/call", `{"name":"fs__write","arguments":{"nonce":"w1","text":"a"}}`)
	says(t, string(reply.Result), `"mcpbridge/code":"approval_required"`, `"mcpbridge/approval_id":"call-`)
	if strings.Contains(string(reply.Result), a.ID) {
		t.Errorf("another client is told the id of somebody's approval: %s", reply.Result)
	}
	ran(t, lab)

	succeeds(t, d, "fs/write", `{"nonce":"w1","text":"a"}`)
	refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"w1","text":"a"}`) // it was for once
	ran(t, lab, "w1")

	// A no takes back what was not used; an id counts once.
	d.OK(t, "approve", other.ApprovalID)
	d.OK(t, "deny", other.ApprovalID)
	refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"w1","text":"b"}`)
	if r := d.CLI(t, "approve", a.ID, "-o", "json"); r.Exit != 1 || !strings.Contains(r.Stderr, control.CodeUnknownApproval) {
		t.Errorf("an id that was used up: %s", r)
	}
	if r := d.CLI(t, "approve", ""); r.Exit != 2 {
		t.Errorf("an empty id: %s", r)
	}
	ran(t, lab, "w1")
}

// TestNobodyIsAskedInVain: a dry run and a call that could not be made open no question.
func TestNobodyIsAskedInVain(t *testing.T) {
	lab := harness.NewLab(t)
	d := harness.Start(t, harness.Options{Config: config(harness.M{"fs": lab.Server(t, "fs")})})
	d.Await(t, "ready", "fs")
	o := refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"text":7}`)
	says(t, o.Message, "could not be made", "text")
	refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"text":"a"}`, "--dry-run")
	r := d.RunIn(t, `{"text":"`+strings.Repeat("x", 300<<10)+`"}`, []string{"MCPBRIDGE_CONTROL=" + d.Control}, "call", "fs/write", "--args-file", "-")
	if r.Exit != 6 || !strings.Contains(r.Stderr, "too many for a person to look at") {
		t.Errorf("arguments that nobody can look at: exit %d\n%s", r.Exit, r.Stderr)
	}
	if list := approvals(t, d); len(list) != 0 {
		t.Errorf("somebody is asked: %+v", list)
	}
	ran(t, lab)
}

// TestApprovalsOverARestart: an approval that was not used holds for the same client
// after an orderly restart, is used up there, and is lost, not doubled, by a kill.
func TestApprovalsOverARestart(t *testing.T) {
	lab, w := harness.NewLab(t), harness.NewWorld(t)
	o := harness.Options{World: w, Config: config(harness.M{"fs": lab.Server(t, "fs")})}
	d := harness.Start(t, o)
	d.Await(t, "ready", "fs")
	first := refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"a"}`)
	second := refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"b"}`)
	d.OK(t, "approve", first.ApprovalID, second.ApprovalID)
	d.Stop(t)

	d = harness.Start(t, o)
	d.Await(t, "ready", "fs")
	succeeds(t, d, "fs/write", `{"nonce":"a"}`)
	refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"a"}`)
	if _, err := os.Stat(filepath.Join(w.State, "consent", "grants.json")); err == nil {
		t.Error("approvals are on the disk while they can be used: a crash would give them again")
	}
	d.Signal(t, os.Kill)
	d.Wait(t)

	d = harness.Start(t, o)
	d.Await(t, "ready", "fs")
	refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"a"}`)
	refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"b"}`) // lost with the kill
	ran(t, lab, "a")
}

// TestListingAndCallingAgree: what a list says of a tool is what a call gets, for each
// client and view of its own.
func TestListingAndCallingAgree(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := config(harness.M{"fs": lab.Server(t, "fs")},
		harness.M{"client": "agent", "tool": "write", "action": "allow"},
		harness.M{"view": "strict", "tool": "put", "action": "deny"},
		harness.M{"tool": "put", "action": "ask"},
		harness.M{"effect": "read_only", "action": "allow"})
	cfg["auth"] = harness.M{"tokens": harness.M{"agent": harness.M{"env": "AGENT_TOKEN"}}}
	cfg["views"] = harness.M{"strict": harness.M{"tools": []string{"fs__put", "fs__write"}}, "plan": harness.M{"effects": []string{"read_only"}}}
	d := harness.Start(t, harness.Options{Config: cfg, Env: []string{"AGENT_TOKEN=0123456789abcdef0123"}})
	d.Await(t, "ready", "fs")

	agent, own := harness.ClientOf("0123456789abcdef0123"), d.HTTPClient()
	for _, c := range []struct {
		name, url string
		agent     bool
		tool      string
		listed    string // the permission of the list; "" = not listed
		code      string // of a call; "" = ok
	}{
		{"agent writes", d.URL, true, "fs__write", "allow", ""},
		{"others do not", d.URL, false, "fs__write", "deny", "denied"},
		{"put asks", d.URL, true, "fs__put", "ask", "approval_required"},
		{"put in the strict view", d.URL + "?view=strict", true, "fs__put", "deny", "denied"},
		{"write in the strict view", d.URL + "?view=strict", true, "fs__write", "allow", ""},
		{"read in the strict view", d.URL + "?view=strict", true, "fs__read", "", "unknown_tool"},
		{"write in the plan", d.URL + "?view=plan", true, "fs__write", "", "unknown_tool"},
		{"read in the plan", d.URL + "?view=plan", false, "fs__read", "allow", ""},
		{"one server alone", d.Base() + "/servers/fs/mcp?view=strict", true, "put", "deny", "denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			who := own
			if c.agent {
				who = agent
			}
			s := harness.OpenRaw(t, c.url, who)
			if got := listedPermission(t, s, c.tool); got != c.listed {
				t.Errorf("the list says %q, want %q", got, c.listed)
			}
			var res struct {
				IsError bool           `json:"isError"`
				Meta    map[string]any `json:"_meta"`
			}
			reply := s.Do(t, "tools/call", `{"name":"`+c.tool+`","arguments":{}}`)
			if err := json.Unmarshal(reply.Result, &res); err != nil {
				t.Fatalf("%v: %s %s", err, reply.Result, reply.Error)
			}
			if code, _ := res.Meta["mcpbridge/code"].(string); code != c.code || res.IsError != (c.code != "") {
				t.Errorf("a call gives %q, want %q: %s", code, c.code, reply.Result)
			}
		})
	}
}

// listedPermission is what tools/list says about a tool: "" for not listed.
func listedPermission(t testing.TB, s *harness.RawHTTP, name string) string {
	t.Helper()
	var list struct {
		Tools []struct {
			Name string         `json:"name"`
			Meta map[string]any `json:"_meta"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(s.Do(t, "tools/list", `{}`).Result, &list); err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if tool.Name == name {
			if p, ok := tool.Meta["mcpbridge/permission"].(string); ok {
				return p
			}
			return "allow"
		}
	}
	return ""
}
