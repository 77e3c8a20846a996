package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/daemon"
)

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestLostAnswersAreNoSuccess: whatever verb could not write its answer, it says so and
// does not end with 0.
func TestLostAnswersAreNoSuccess(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	for _, args := range []string{"version", "version -o json", "config init", "config show", "config check", "config check -o json", "supervise --dry-run",
		"man", "completion bash", "completion zsh", "completion fish", "help", "help call", "call --help", "doctor", "doctor -o json"} {
		var errOut bytes.Buffer
		if code := run(strings.Fields(args), strings.NewReader(""), full{}, &errOut); code != exitFailure || !strings.Contains(errOut.String(), "no space left") {
			t.Errorf("%s: exit %d, stderr %q", args, code, errOut.String())
		}
	}
}

// TestCallWithoutOutcome: once the bridge may have a call, its unknown end is an outcome
// like every other: a result object, and never the exit code of "nothing happened".
func TestCallWithoutOutcome(t *testing.T) {
	lost := &control.LostError{Err: io.ErrUnexpectedEOF}
	none := &control.NoDaemonError{Path: "sock", Err: os.ErrNotExist}
	tests := []struct {
		name        string
		err         error
		interrupted bool
		dry         bool
		exit        int
		code        messages.Code // of the result object; "" = there is none
	}{
		{"lost", lost, false, false, 8, messages.CodeConnectionLost},
		{"interrupted", context.Canceled, true, false, exitInterrupted, messages.CodeCancelled},
		{"interrupted and lost", lost, true, false, exitInterrupted, messages.CodeCancelled},
		{"no daemon", none, false, false, exitNoDaemon, ""},
		{"dry run lost", lost, false, true, exitNoDaemon, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := quiet()
			var out, errOut bytes.Buffer
			a.out.w, a.err.w = &out, &errOut
			o := callOptions{tool: "fs/write", dryRun: tt.dry, output: &choice{value: "json"}, codes: &choice{value: "ours"}}
			if code := a.finish(a.callFailed(tt.err, "cli-1", o, tt.interrupted), true); code != tt.exit {
				t.Errorf("exit %d, want %d", code, tt.exit)
			}
			if tt.code == "" {
				if out.Len() != 0 || errOut.Len() == 0 {
					t.Errorf("stdout %q, stderr %q", out.String(), errOut.String())
				}
				return
			}
			var got messages.Outcome
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%v: %q", err, out.String())
			}
			if got.Kind != messages.OutcomeUnknown || got.Code != tt.code || got.CallID != "cli-1" || got.Tool != "fs/write" || !got.Sent() || got.SafeToRetry() {
				t.Errorf("%+v", got)
			}
			if !strings.Contains(got.Hint, "calls --journal cli-1") {
				t.Errorf("hint %q", got.Hint)
			}
			if errOut.Len() != 0 {
				t.Errorf("stderr %q", errOut.String())
			}
		})
	}
}

// TestSignalBeforeTheCall: what is awaited before the call, such as stdin, does not keep
// an interrupt from ending the command, and nothing is sent.
func TestSignalBeforeTheCall(t *testing.T) {
	a := quiet()
	r, w := io.Pipe() // a stdin on which nothing comes
	defer w.Close()
	a.in = r
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	_, err := a.argumentsUnless(t.Context(), signals, nil, callOptions{argsFile: "-"})
	if f := a.classify(err); f.exit != exitInterrupted || f.sent {
		t.Errorf("%+v", f)
	}
}

// TestABridgeThatEndsIsUnreachable: to a script it is the same whether the bridge has
// just gone or is just going.
func TestABridgeThatEndsIsUnreachable(t *testing.T) {
	for _, err := range []error{
		&control.Error{Code: control.CodeFailed, Status: 503, Message: "the bridge is shutting down"},
		&control.LostError{Err: io.EOF},
		&control.NoDaemonError{Path: "sock", Err: os.ErrNotExist},
	} {
		if f := quiet().classify(err); f.exit != exitNoDaemon {
			t.Errorf("%v: exit %d", err, f.exit)
		}
	}
}

func TestCallText(t *testing.T) {
	tests := []struct{ name, result, stdout string }{
		{"text", `{"content":[{"type":"text","text":"a"}]}`, "a\n"},
		{"empty text", `{"content":[{"type":"text","text":""}]}`, "\n"},
		{"nothing", `{"content":[]}`, ""},
		{"structured only", `{"content":[],"structuredContent":{"a":1}}`, `{"a":1}` + "\n"},
		{"another form", `{"toolResult":7}`, `{"toolResult":7}` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := quiet()
			var out, errOut bytes.Buffer
			a.out.w, a.err.w = &out, &errOut
			a.callText(messages.Outcome{Kind: messages.OK, Attempt: 1, Result: json.RawMessage(tt.result)})
			if out.String() != tt.stdout || errOut.Len() != 0 {
				t.Errorf("stdout %q, want %q; stderr %q", out.String(), tt.stdout, errOut.String())
			}
		})
	}
}

// TestManPagesKeepTheWords: names with underscores and globs come out as they are written.
func TestManPagesKeepTheWords(t *testing.T) {
	dir := t.TempDir()
	var out, errOut bytes.Buffer
	if code := run([]string{"man", dir}, strings.NewReader(""), &out, &errOut); code != 0 {
		t.Fatal(code, errOut.String())
	}
	for page, words := range map[string][]string{
		"bridgectl-call.1":  {"mcp__fs__read_file", "fs__read_file"},
		"bridgectl-tools.1": {"fs__*", "*_file", "read_only, idempotent, side_effect"},
		"bridgectl.1":       {"$XDG_RUNTIME_DIR/mcpbridge/control.sock"},
	} {
		b, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(`\-`, "-", `\&`, "", `\_`, "_", "\n", " ").Replace(string(b))
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q", page, w)
			}
		}
		before, _, _ := strings.Cut(text, ".SH OPTIONS")
		if strings.Contains(before, `\_`) || strings.Contains(before, `\*`) {
			t.Errorf("%s: an escape is left", page)
		}
	}
}

// TestLastKeepsTheNextTry: however long the reason, the row says when it goes on.
func TestLastKeepsTheNextTry(t *testing.T) {
	at := time.Now().Add(5 * time.Minute)
	got := last(messages.ServerStatus{State: messages.StateQuarantined, Reason: strings.Repeat("long ", 60), NextRetry: &at})
	if !strings.Contains(got, "…; next try in ") || len([]rune(got)) > lastWidth {
		t.Errorf("%d runes: %q", len([]rune(got)), got)
	}
	if got := last(messages.ServerStatus{State: messages.StateBackoff, NextRetry: &at}); !strings.HasPrefix(got, "next try in ") {
		t.Errorf("%q", got)
	}
}

func TestIssuesAreToldOnce(t *testing.T) {
	a := messages.Issue{File: "c.yaml", Line: 3, Column: 5, Path: "mcp_servers.d.bogus", Severity: messages.SeverityError, Message: `unknown key "bogus"`}
	b := messages.Issue{File: "c.yaml", Line: 3, Column: 5, Path: "mcp_servers.d", Severity: messages.SeverityError, Message: `bogus: unknown key "bogus"`}
	c := messages.Issue{File: "c.yaml", Line: 3, Column: 5, Path: "mcp_servers.d", Severity: messages.SeverityError, Message: "something else"}
	var out bytes.Buffer
	printer{w: &out}.issues([]messages.Issue{a, b, c, c})
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, out.String())
	}
}

// TestHintsNameThisProgram: the commands to try work as they are printed, whether PATH
// leads to this program, to another one, or to none.
func TestHintsNameThisProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	a := quiet()
	if got := a.toTry(daemon.Plan{Control: "/x/c.sock"}, true)[0]; !strings.HasPrefix(got, shellQuote(self)+" --control /x/c.sock call ") {
		t.Errorf("not in PATH: %s", got)
	}
	if err := os.Symlink(self, filepath.Join(dir, "bridgectl")); err != nil {
		t.Skip(err)
	}
	if got := a.toTry(daemon.Plan{Control: "/x/c.sock"}, true)[0]; !strings.HasPrefix(got, "bridgectl --control ") {
		t.Errorf("in PATH: %s", got)
	}
}
