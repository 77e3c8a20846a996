package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
)

// afterInterrupt is how long a cancelled call may take to bring its outcome.
const afterInterrupt = 3 * time.Second

type callOptions struct {
	tool     string
	pairs    []string
	args     string
	argsFile string
	timeout  time.Duration
	view     string
	key      string // idempotency key
	dryRun   bool
	progress bool
	output   *choice
	codes    *choice
}

func (a *app) callCmd() *cobra.Command {
	var o callOptions
	cmd := &cobra.Command{
		Use:   "call TOOL [k=v...]",
		Short: "Call a tool",
		Long: `Call a tool, through permissions and lanes like every other caller.

TOOL is the full name (mcp__fs__read_file), the endpoint name (fs__read_file) or
server/tool (fs/read_file). Arguments are given as k=v, where v is read as the
tool's input schema says (numbers, true, lists and objects as JSON, else text), as
k:=JSON where it shall not be guessed, or whole with --args or --args-file; k=v then
adds to them.

The result's text goes to stdout, with stand-ins for images and the like. -o json
prints the result object whatever the outcome, with "error" filled in; -o envelope
the compact form for a model. An interrupt cancels the call.

With --idempotency-key the same call can be made again without being executed again,
for 24 hours, after a crash of the bridge too. The key belongs to the tool; with the
same arguments it returns the outcome of the first call (whose id is first_call_id in
-o json), or waits for it; with other arguments the call is refused. A first call
that was provably not sent does not count. A dry run takes no notice of the key. Of a
read-only tool the key is forgotten when the bridge ends.

Exit codes: 0 ok · 5 the tool reported an error · 6 refused by permissions ·
7 not executed, safe to repeat · 8 outcome unknown: it was sent, no answer was read, or
the bridge went away in the middle · 2 usage · 4 no daemon · 130 interrupted.`,
		Example: `  bridgectl call demo/echo text=hello
  bridgectl call demo__add a=1 b=2 -o json
  bridgectl call fs/read_file --args '{"path":"README.md"}' --timeout 10s
  echo '{"path":"README.md"}' | bridgectl call fs/read_file --args-file -
  bridgectl call demo/slow_read steps=3 --progress
  bridgectl call demo/note_add text=milk --idempotency-key order-17
  bridgectl call fs/write_file path=x content=y --dry-run`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeTools,
	}
	f := cmd.Flags()
	f.StringVar(&o.args, "args", "", "arguments as a JSON object")
	f.StringVar(&o.argsFile, "args-file", "", "file with the arguments as a JSON object, - for stdin")
	f.DurationVar(&o.timeout, "timeout", 0, "how long the call may take, waiting included (default and most: the server's timeouts.call)")
	f.StringVar(&o.view, "view", "", "call within this view of the configuration")
	f.StringVar(&o.key, "idempotency-key", "", "1 to 256 printable characters; the same key executes the same call once")
	f.BoolVar(&o.dryRun, "dry-run", false, "show the decision and the lane, send nothing")
	f.BoolVar(&o.progress, "progress", false, "show progress on stderr")
	o.output = outputFlag(cmd, "text", "json", "envelope")
	o.codes = choiceFlag(cmd, "codes", "", "names of the error codes", "ours", "classic", "mcp")
	cmd.MarkFlagsMutuallyExclusive("args", "args-file")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &failure{exit: exitUsage, code: "usage", err: err, hint: "a tool's arguments are given as k=v, or whole with --args; `bridgectl call --help` explains both"}
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.tool, o.pairs = args[0], args[1:]
		if cmd.Flags().Changed("idempotency-key") { // an empty one is an unset variable of a script
			if err := control.CheckKey(o.key); err != nil {
				return &failure{exit: exitUsage, code: "usage", err: fmt.Errorf("--idempotency-key: %w", err), tool: o.tool}
			}
		}
		if cmd.Flags().Changed("timeout") && o.timeout <= 0 { // it would pass for "none given"
			return &failure{exit: exitUsage, code: "usage", err: fmt.Errorf("--timeout is %s: give a duration above 0 such as 30s, or no --timeout", o.timeout), tool: o.tool}
		}
		return a.call(o)
	}
	return cmd
}

func (a *app) call(o callOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()

	text, err := a.argumentsUnless(ctx, signals, c, o)
	if err != nil {
		f := *a.classify(err) // nothing was sent
		f.tool = o.tool
		return &f
	}
	req := control.CallRequest{ID: newCallID(), Tool: o.tool, Args: text, Timeout: control.Duration(o.timeout), View: o.view, DryRun: o.dryRun, IdempotencyKey: o.key}
	var progress func(json.RawMessage)
	if o.progress {
		progress = a.err.progress
	}
	type answer struct {
		outcome messages.Outcome
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		out, err := c.Call(ctx, req, progress)
		done <- answer{out, err}
	}()
	interrupted := false
	var giveUp <-chan time.Time
	for {
		select {
		case got := <-done:
			if got.err != nil {
				return a.callFailed(got.err, req.ID, o, interrupted)
			}
			return a.called(got.outcome, o, interrupted)
		case <-giveUp:
			leave()
		case <-signals:
			if interrupted { // a second one: leave at once
				leave()
				continue
			}
			interrupted = true
			timer := time.NewTimer(afterInterrupt)
			defer timer.Stop()
			giveUp = timer.C
			go cancelUntilKnown(ctx, c, req.ID)
		}
	}
}

func newCallID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "cli-" + hex.EncodeToString(b[:])
}

// cancelUntilKnown asks to cancel a call, and again while the bridge does not know it:
// the interrupt may be faster than the call. The outcome tells how it went.
func cancelUntilKnown(ctx context.Context, c *control.Client, id string) {
	for {
		var unknown *control.Error
		if err := c.Cancel(ctx, id); !errors.As(err, &unknown) || unknown.Code != control.CodeUnknownCall {
			return
		}
		again := time.NewTimer(50 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
	}
}

// called prints the result and gives the exit code.
func (a *app) called(out messages.Outcome, o callOptions, interrupted bool) (err error) {
	shown := out
	switch o.codes.value {
	case "classic":
		shown.Code = messages.Code(out.ClassicCode())
	case "mcp":
		shown.Code = messages.Code(out.MCPCode())
	}
	switch o.output.value {
	case "json":
		err = a.out.json(shown)
	case "envelope":
		err = a.out.json(shown.Envelope())
	default:
		a.callText(shown)
	}
	if err != nil {
		return err
	}
	if interrupted && out.Failed() {
		return exitWith(exitInterrupted)
	}
	if code := out.ExitCode(); code != 0 {
		return exitWith(code)
	}
	return nil
}

// callFailed is for a call whose outcome did not come: the daemon is not there, or went
// away in the middle, or the person left. Once the bridge may have it, nobody here knows
// what became of it, and that is its outcome.
func (a *app) callFailed(err error, id string, o callOptions, interrupted bool) error {
	var lost *control.LostError
	out := messages.Outcome{CallID: id, Tool: o.tool, Kind: messages.OutcomeUnknown, Attempt: 1, Hint: lostHint(id, o.key)}
	switch {
	case o.dryRun: // sends nothing
	case interrupted:
		out.Code, out.Message = messages.CodeCancelled, "interrupted: the call was cancelled and its outcome did not come in time"
		return a.called(out, o, true)
	case errors.As(err, &lost):
		out.Code, out.Message = messages.CodeConnectionLost, err.Error()
		return a.called(out, o, false)
	}
	f := *a.classify(err)
	f.tool = o.tool
	return &f
}

// lostHint tells where the answer to "was it sent?" is.
func lostHint(id, key string) string {
	hint := "it may have reached its server: once the bridge runs again, `bridgectl calls --journal " + id + "` tells whether a side effect was sent"
	if key != "" {
		hint += "; the same call with the same key sends no side effect twice"
	}
	return hint
}

// callText is for people: the answer on stdout, everything else on stderr.
func (a *app) callText(out messages.Outcome) {
	if len(out.Result) > 0 {
		if text := out.Text(); text != "" || len(out.ContentCounts()) > 0 {
			a.out.text(text)
		} else if !hasContent(out.Result) {
			a.out.text(string(out.Result))
		}
	}
	if out.Truncated {
		if out.ResultURI != "" {
			a.err.line("the result was cut; `bridgectl result %s` prints the whole", out.ResultURI)
		} else {
			a.err.line("the result was cut; the whole is not kept")
		}
	}
	if !out.Failed() {
		if out.FirstID != "" { // nothing was sent for this one
			a.err.line("bridgectl: %s", out.Message)
		}
		return
	}
	what := out.ErrorText()
	if out.Text() != "" { // it is on stdout
		what = "the tool reported an error"
	} else if out.Kind == messages.OutcomeUnknown && what == string(out.Code) { // nobody left to say more, as after a crash
		what = "it was sent and no answer was read"
	}
	a.err.line("bridgectl: %s: %s: %s", out.Tool, out.Code, what)
	if out.Hint != "" {
		a.err.line("  hint: %s", out.Hint)
	}
	if out.Kind == messages.OutcomeUnknown && out.Hint == "" {
		retry := "do not repeat it blindly: it may have been executed"
		if out.SafeToRetry() {
			retry = "it is safe to repeat"
		}
		a.err.line("  the call was sent and no answer was read; %s", retry)
	}
	if out.RetryAfter > 0 {
		a.err.line("  another try is worth it in %s", short(out.RetryAfter))
	}
}

// hasContent tells a result that says nothing from one of another form.
func hasContent(result json.RawMessage) bool {
	var r struct {
		Content *[]json.RawMessage `json:"content"`
	}
	return json.Unmarshal(result, &r) == nil && r.Content != nil
}

// argumentsUnless puts the arguments together unless a signal comes first: stdin may
// stay open and a server's schema may be waited for, and no call has been made yet.
func (a *app) argumentsUnless(ctx context.Context, signals <-chan os.Signal, c *control.Client, o callOptions) (string, error) {
	type prepared struct {
		text string
		err  error
	}
	done := make(chan prepared, 1)
	go func() {
		text, err := a.arguments(ctx, c, o)
		done <- prepared{text, err}
	}()
	select {
	case p := <-done:
		return p.text, p.err
	case <-signals:
		return "", &failure{exit: exitInterrupted, code: "interrupted", err: errors.New("interrupted before the call was made")}
	}
}

// arguments puts together the text of the arguments object.
func (a *app) arguments(ctx context.Context, c *control.Client, o callOptions) (string, error) {
	text := o.args
	if o.argsFile != "" {
		b, err := a.readFile(o.argsFile)
		if err != nil {
			return "", usagef("--args-file: %w", err)
		}
		text = string(b)
	}
	if len(o.pairs) == 0 {
		return text, nil
	}
	for _, p := range o.pairs {
		if !strings.Contains(p, "=") {
			return "", usagef("argument %q: give k=v, k:=JSON, or the whole object with --args", p)
		}
	}
	// The schema says how to read the values. A tool that is not known yet is the
	// bridge's business: its refusal explains more than one from here.
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	list, err := c.Tools(ctx, control.ToolsQuery{Name: o.tool, View: o.view})
	var api *control.Error
	if err != nil && !errors.As(err, &api) && !errors.Is(err, context.DeadlineExceeded) {
		return "", err
	}
	var schema json.RawMessage
	if len(list.Tools) == 1 {
		schema = list.Tools[0].Def.InputSchema
	}
	merged, err := mergeArguments(text, o.pairs, schema)
	if err != nil {
		return "", usagef("%w", err)
	}
	return merged, nil
}

func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return readAll(a.in)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f)
}

func (a *app) completeTools(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(func(ctx context.Context, c *control.Client) (names []string, err error) {
		list, err := c.Tools(ctx, control.ToolsQuery{})
		for _, t := range list.Tools {
			names = append(names, oneLine(t.EndpointName))
		}
		return names, err
	})
}

func (a *app) completeServers(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return a.complete(func(ctx context.Context, c *control.Client) (names []string, err error) {
		st, err := c.Status(ctx)
		for _, s := range st.Servers {
			names = append(names, oneLine(s.Name))
		}
		return names, err
	})
}

// complete asks the daemon, briefly: a shell that waits is worse than no names.
func (a *app) complete(f func(context.Context, *control.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	c, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	names, err := f(ctx, c)
	if err != nil {
		cobra.CompDebugln(fmt.Sprint(err), false)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
