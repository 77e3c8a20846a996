package gate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/messages"
	"mcpbridge/supervisor"
	"mcpbridge/test/harness"
)

// TestApprover: the host program's approver is asked with the call's deadline, off the
// actors, and whatever is not a plain yes is a no.
func TestApprover(t *testing.T) {
	lab := harness.NewLab(t)
	var answer atomic.Pointer[func(context.Context, messages.Approval) (bool, error)]
	b := harness.Library(t, config(harness.M{"fs": lab.Server(t, "fs")}),
		supervisor.WithApprover(func(ctx context.Context, a messages.Approval) (bool, error) { return (*answer.Load())(ctx, a) }))
	call := func(nonce string, f func(context.Context, messages.Approval) (bool, error), change ...func(*messages.CallTool)) messages.Outcome {
		answer.Store(&f)
		c := messages.CallTool{Tool: "fs/write", Args: json.RawMessage(`{"nonce":"` + nonce + `"}`), Client: "host"}
		for _, ch := range change {
			ch(&c)
		}
		return b.Call(harness.Context(t), c)
	}
	is := func(o messages.Outcome, kind messages.OutcomeKind, code messages.Code) {
		t.Helper()
		if o.Kind != kind || o.Code != code {
			t.Errorf("%s is %s/%s, want %s/%s: %s", o.CallID, o.Kind, o.Code, kind, code, o.Message)
		}
	}

	is(call("yes", func(ctx context.Context, a messages.Approval) (bool, error) {
		if _, ok := ctx.Deadline(); !ok || a.Client != "host" || a.Tool != "mcp__fs__write" || string(a.Args) != `{"nonce":"yes"}` || a.Effect != "side_effect" {
			t.Errorf("asked about %+v", a)
		}
		return true, nil
	}), messages.OK, "")
	is(call("no", func(context.Context, messages.Approval) (bool, error) { return false, nil }), messages.Rejected, messages.CodeDenied)
	is(call("no", func(context.Context, messages.Approval) (bool, error) {
		return true, errors.New("the dialogue is broken")
	}), messages.Rejected, messages.CodeDenied)
	is(call("no", func(context.Context, messages.Approval) (bool, error) { panic("on purpose") }), messages.Rejected, messages.CodeDenied)
	o := call("no", func(context.Context, messages.Approval) (bool, error) { return true, messages.ErrCannotAsk })
	is(o, messages.Rejected, messages.CodeApprovalRequired)
	if o.ApprovalID == "" {
		t.Error("a question that nobody could be asked has no id")
	}

	// It may call back, ask for the calls that wait for it, and even approve by the queue.
	is(call("back", func(ctx context.Context, a messages.Approval) (bool, error) {
		if o := b.Call(ctx, messages.CallTool{Tool: "fs/read", Args: json.RawMessage(`{"nonce":"inner"}`)}); o.Kind != messages.OK {
			t.Errorf("a call from inside: %s %s", o.Kind, o.Message)
		}
		if calls, err := b.Calls(ctx); err != nil || len(calls) != 1 || calls[0].State != messages.CallWaiting || calls[0].BlockedBy[0] != "approval "+a.ID {
			t.Errorf("the calls are %+v (%v)", calls, err)
		}
		if _, err := b.Approve(ctx, a.ID); err != nil {
			t.Error(err)
		}
		<-ctx.Done() // the call went on without this answer
		return false, nil
	}), messages.OK, "")

	// The call's deadline is the approver's, and a cancel reaches it.
	gone := make(chan error, 2)
	wait := func(ctx context.Context, _ messages.Approval) (bool, error) {
		<-ctx.Done()
		gone <- ctx.Err()
		return true, nil // too late
	}
	is(call("no", wait, func(c *messages.CallTool) { c.Timeout = 100 * time.Millisecond }), messages.NotSent, messages.CodeExpired)
	<-gone
	started := make(chan struct{})
	cancelled := make(chan messages.Outcome, 1)
	go func() {
		cancelled <- call("no", func(ctx context.Context, a messages.Approval) (bool, error) {
			close(started)
			return wait(ctx, a)
		}, func(c *messages.CallTool) { c.ID = "to-cancel" })
	}()
	<-started
	if !b.CancelCall("to-cancel") {
		t.Error("the call that waits for its approver is not known")
	}
	is(<-cancelled, messages.NotSent, messages.CodeCancelled)
	<-gone
	ran(t, lab, "yes", "inner", "back")
}

// TestCloseFromTheApprover: closing the bridge from inside never deadlocks.
func TestCloseFromTheApprover(t *testing.T) {
	lab := harness.NewLab(t)
	var b *supervisor.Bridge
	ready := make(chan struct{})
	b = harness.Library(t, config(harness.M{"fs": lab.Server(t, "fs")}), supervisor.WithApprover(func(ctx context.Context, _ messages.Approval) (bool, error) {
		<-ready
		return true, b.Close(context.WithoutCancel(ctx))
	}))
	close(ready)
	o := b.Call(harness.Context(t), messages.CallTool{Tool: "fs/write", Args: json.RawMessage(`{"nonce":"x"}`)})
	if o.Sent() || o.Kind == messages.OK {
		t.Errorf("the call is %s/%s", o.Kind, o.Code)
	}
	ran(t, lab)
}

// asked is a client that answers the bridge's questions.
func asked(t testing.TB, d *harness.Daemon, over string, answer func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)) *mcp.ClientSession {
	t.Helper()
	opts := &mcp.ClientOptions{ElicitationHandler: answer}
	if over == "stdio" {
		return d.StdioSessionWith(t, "2025-11-25", opts)
	}
	return d.Session(t, "2025-11-25", opts)
}

// TestAskingTheClient: ask_via: client puts the question to the client that calls, if
// it can be asked; its accept lets this one call through.
func TestAskingTheClient(t *testing.T) {
	for _, over := range []string{"http", "stdio"} {
		t.Run(over, func(t *testing.T) {
			lab := harness.NewLab(t)
			cfg := config(harness.M{"fs": lab.Server(t, "fs")})
			cfg["ask_via"] = "client"
			d := harness.Start(t, harness.Options{Config: cfg})
			d.Await(t, "ready", "fs")
			if strings.Contains(d.Stderr(), "has no effect yet") {
				t.Errorf("a warning about a setting that works: %s", d.Stderr())
			}
			var question atomic.Pointer[string]
			action := "accept"
			cs := asked(t, d, over, func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				question.Store(&r.Params.Message)
				if action == "error" {
					return nil, errors.New("no user here")
				}
				return &mcp.ElicitResult{Action: action, Content: map[string]any{}}, nil
			})
			call := func(nonce string) string {
				t.Helper()
				res, err := cs.CallTool(harness.Context(t), &mcp.CallToolParams{Name: "fs__write",
					Arguments: map[string]any{"nonce": nonce, "text": "a\u202e\x1b[2J"}})
				if err != nil {
					t.Fatal(err)
				}
				code, _ := res.Meta["mcpbridge/code"].(string)
				return code
			}
			if code := call("yes"); code != "" {
				t.Errorf("after an accept: %q", code)
			}
			says(t, *question.Load(), "fs/write", "side_effect", `\u{202e}`)
			if strings.ContainsAny(*question.Load(), "\u202e\x1b") {
				t.Errorf("the question carries what hides or obeys: %q", *question.Load())
			}
			for _, no := range []string{"decline", "cancel"} {
				if action = no; call("no") != "denied" {
					t.Errorf("after a %s it is not denied", no)
				}
			}
			if action = "error"; call("no") != "approval_required" {
				t.Error("a client that cannot ask after all does not leave the call to the queue")
			}
			ran(t, lab, "yes")
			// Who did not say that it can be asked is refused at once.
			refusal(t, d, messages.CodeApprovalRequired, "fs/write", `{"nonce":"no"}`)
			mute := d.Session(t, "2025-11-25", nil)
			res, err := mute.CallTool(harness.Context(t), &mcp.CallToolParams{Name: "fs__write", Arguments: map[string]any{"nonce": "no"}})
			if err != nil || res.Meta["mcpbridge/code"] != "approval_required" {
				t.Errorf("a client without elicitation: %v %v", res, err)
			}
			ran(t, lab, "yes")
		})
	}
}

// TestOneCannotAnswerForAnother: a response counts only from the session that was asked.
func TestOneCannotAnswerForAnother(t *testing.T) {
	lab := harness.NewLab(t)
	cfg := config(harness.M{"fs": lab.Server(t, "fs")})
	cfg["ask_via"] = "client"
	d := harness.Start(t, harness.Options{Config: cfg})
	d.Await(t, "ready", "fs")
	stranger := d.Raw(t, d.URL)
	ids := make(chan string, 1)
	victim := harness.OpenRawWith(t, d.URL, d.HTTPClient(), `{"elicitation":{}}`)
	victim.OnRequest = func(id json.RawMessage, method string, _ json.RawMessage) {
		if method == "elicitation/create" {
			ids <- string(id)
		}
	}
	answered := make(chan harness.RawReply, 1)
	go func() {
		reply, err := victim.Try(harness.Context(t), "tools/call", `{"name":"fs__write","arguments":{"nonce":"x"},"_meta":{"mcpbridge/timeout_ms":3000}}`)
		if err != nil {
			t.Error(err)
		}
		answered <- reply
	}()
	id := <-ids
	if err := stranger.Send(harness.Context(t), `{"jsonrpc":"2.0","id":`+id+`,"result":{"action":"accept","content":{}}}`); err != nil {
		t.Logf("the stranger hears: %v", err)
	}
	says(t, string((<-answered).Result), `"mcpbridge/code":"expired"`)
	ran(t, lab)
}
