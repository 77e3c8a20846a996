package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"mcpbridge/messages"
)

// quiet is an app that talks to nobody.
func quiet() *app {
	a := &app{env: os.LookupEnv, stderr: &bytes.Buffer{}}
	a.out, a.err = newPrinter(&bytes.Buffer{}, a.env, false), newPrinter(&bytes.Buffer{}, a.env, false)
	return a
}

func TestEveryVerbExplainsItself(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" || c.Parent() != nil && c.Parent().Name() == "completion" {
			return
		}
		if c.Short == "" || c.Long == "" {
			t.Errorf("%s: no description", c.CommandPath())
		}
		if !c.HasSubCommands() {
			if !strings.Contains(c.Long, "Exit codes:") {
				t.Errorf("%s: no exit codes", c.CommandPath())
			}
			if c.Example == "" {
				t.Errorf("%s: no example", c.CommandPath())
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(quiet().root())
}

// TestVerbs keeps the list of verbs that people see from changing by accident.
func TestVerbs(t *testing.T) {
	want := "approvals approve call calls cancel completion config demo-server deny doctor drain events help logs man reload reset restart result start status stdio stop supervise tools version wait"
	var got []string
	for _, c := range quiet().root().Commands() {
		if !c.Hidden {
			got = append(got, c.Name())
		}
	}
	if s := strings.Join(got, " "); s != want {
		t.Errorf("verbs\n%s, want\n%s", s, want)
	}
}

func TestWantsJSON(t *testing.T) {
	tests := map[string]bool{
		"status -o json": true, "status -ojson": true, "status --output=json": true, "status --output json": true, "status -o=json": true,
		"status": false, "status -o table": false, "call x -- -o json": false, "status -o": false,
	}
	for args, want := range tests {
		if got := wantsJSON(strings.Fields(args)); got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{"nonsense", "status --nonsense", "call", "cancel", "call x -o yaml", "call x --idempotency-key=", "calls x", "calls -n 3", "calls --journal -n 0", "calls --journal -n 1001", "calls --journal a b", "wait --for rich", "logs -n many", "logs --since yesterday",
		"completion nonsense", "help nonsense", "help config nonsense", "call x --text y", "supervise --demo --ready-file testdata"} {
		var out, errOut bytes.Buffer
		if code := run(strings.Fields(args), strings.NewReader(""), &out, &errOut); code != exitUsage || errOut.Len() == 0 || out.Len() != 0 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", args, code, out.String(), errOut.String())
		}
	}
}

func TestTablesCleanForeignWords(t *testing.T) {
	var b bytes.Buffer
	p := printer{w: &b}
	evil := "\x1b[2J\u202e"
	p.status(messages.Status{Servers: []messages.ServerStatus{{Name: "s" + evil, Reason: "why\n" + evil, LastExit: &messages.Exit{Reason: evil, Hint: evil, StderrTail: []string{evil}},
		Issues: []messages.Issue{{Message: evil}}, Source: evil, Protocol: evil}}}, true)
	p.tools([]messages.Tool{{EndpointName: evil, Def: messages.ToolDef{Description: evil, InputSchema: []byte(`{"` + "\u202e" + `":1}`)}}}, true)
	p.tools([]messages.Tool{{EndpointName: evil, Def: messages.ToolDef{Description: evil}}}, false)
	p.calls([]messages.CallInfo{{CallID: evil, Tool: evil, Client: evil, BlockedBy: []string{evil}, LaneKey: evil, LaneGroup: evil}})
	p.journal([]messages.JournalEntry{{CallID: evil, Server: evil, Tool: evil, Client: evil, IdempotencyKey: evil, Outcome: evil, Code: messages.Code(evil)}})
	p.logLine(messages.LogLine{Server: evil, Text: evil}, true)
	p.event(messages.Event{Type: messages.EventServerIssue, Message: evil})
	p.progress([]byte(`{"progress":1,"message":"\u001b[2J"}`))
	p.issues([]messages.Issue{{File: evil, Path: evil, Message: evil}})
	for _, r := range b.String() {
		if hidden(r) && r != '\n' {
			t.Fatalf("%U reached the terminal:\n%q", r, b.String())
		}
	}
}
