// Bridgectl runs the bridge and talks to the one that runs.
//
// stdout is data, stderr is talk: whatever a script may want to read goes to stdout,
// in a stable form with -o json, and everything for people goes to stderr.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/daemon"
)

// version is set by the build (-ldflags "-X main.version=…"); without it the
// module's own version or the revision is shown.
var version = ""

func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// app is what every verb needs: the three streams, the environment, the global flags.
type app struct {
	in       io.Reader
	out, err printer
	stdout   io.Writer // as it is: for bytes that are not ours
	stderr   io.Writer
	env      func(string) (string, bool)

	control  string // --control
	stateDir string // --state-dir
	noColor  bool   // --no-color
	started  bool   // a verb ran: an error before that is one of usage
}

// run is main without the exit.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, stdout: out, stderr: errOut, env: os.LookupEnv}
	a.noColor = slices.Contains(args, "--no-color")
	a.out, a.err = newPrinter(out, a.env, a.noColor), newPrinter(errOut, a.env, a.noColor)
	data := &watched{w: out}
	a.out.w = data
	root := a.root()
	root.SetArgs(args)
	asJSON := wantsJSON(args)
	code := a.finish(root.ExecuteContext(context.Background()), asJSON)
	if code == 0 && data.err != nil {
		return a.finish(&failure{exit: exitFailure, code: "failed", err: fmt.Errorf("the answer could not be written: %w", data.err)}, asJSON)
	}
	return code
}

// watched remembers the first write that failed: a script that got half an answer must
// not see exit code 0.
type watched struct {
	w   io.Writer
	err error
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// wantsJSON looks for -o json by hand, because an error in the flags themselves must
// be told in that form too.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}

const exitCodes = `Exit codes:
  0  success
  1  failure
  2  usage or bad configuration
  3  not ready (wait)
  4  no daemon, or it cannot be reached
  5  the tool reported an error (call)
  6  refused by permissions (call)
  7  not executed: unknown tool, invalid arguments, overloaded, expired, … (call)
  8  outcome unknown: it was sent and no answer was read (call)
  130 interrupted`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "bridgectl",
		Short: "Supervised MCP servers behind one endpoint",
		Long: `bridgectl runs MCP servers under supervision, offers their tools through one
endpoint, and shows what they do.

A bridge is started with "bridgectl supervise" and lives in the foreground; every
other verb talks to the running one over its control socket: --control SOCK, else
$MCPBRIDGE_CONTROL, else $XDG_RUNTIME_DIR/mcpbridge/control.sock, else control.sock
in the state directory.

` + exitCodes,
		Example: `  bridgectl supervise --demo            # try it with the built-in server
  bridgectl status
  bridgectl tools
  bridgectl call demo/echo text=hello`,
		Version:       buildVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&a.control, "control", "", "control socket of the bridge")
	f.StringVar(&a.stateDir, "state-dir", "", "state directory of the bridge (default $XDG_STATE_HOME/mcpbridge, else ~/.local/state/mcpbridge)")
	f.BoolVar(&a.noColor, "no-color", false, "no colours (also: NO_COLOR, or output that is no terminal)")
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "use", Title: "Look and call:"},
		&cobra.Group{ID: "operate", Title: "Operate:"}, &cobra.Group{ID: "setup", Title: "Set up:"})
	add := func(group string, list ...*cobra.Command) {
		for _, c := range list {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", a.superviseCmd(), a.stdioCmd(), a.demoServerCmd())
	add("use", a.statusCmd(), a.toolsCmd(), a.callCmd(), a.resultCmd(), a.callsCmd(), a.cancelCmd(), a.logsCmd(), a.eventsCmd())
	add("operate", a.operateCmds()...)
	add("operate", a.reloadCmd(), a.waitCmd(), a.approvalsCmd())
	add("operate", a.judgeCmds()...)
	root.AddCommand(a.guardCmd())
	add("setup", a.configCmd(), a.doctorCmd(), a.versionCmd(), a.manCmd())
	root.SetHelpCommandGroupID("setup")
	root.SetCompletionCommandGroupID("setup")
	root.SetOut(a.out.w) // before what the library adds, which looks for it at once
	root.SetErr(a.stderr)
	strict(root)
	a.markStarts(root)
	return root
}

// strict makes mistakes of what the library added: a shell or a verb that does not
// exist is no reason to show help and end with 0.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("completion") // only with arguments is it made at once
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Run = nil
			c.RunE = func(_ *cobra.Command, args []string) error {
				topic, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return usagef("there is no verb %q: `bridgectl --help` lists them", strings.Join(args, " "))
				}
				topic.InitDefaultHelpFlag()
				topic.InitDefaultVersionFlag()
				return topic.Help()
			}
		case "completion":
			c.Args = cobra.NoArgs // an unknown shell would be one
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
}

// markStarts notes when a verb runs: what fails before that is a mistake of usage.
func (a *app) markStarts(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.started = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		a.markStarts(c)
	}
}

// client finds the daemon; whether it is there shows with the first question.
func (a *app) client() (*control.Client, error) {
	dir, err := daemon.StateDir(a.stateDir, a.env)
	if err != nil && a.control == "" {
		if v, _ := a.env("MCPBRIDGE_CONTROL"); v == "" {
			return nil, err
		}
	}
	return control.NewClient(control.Path(a.control, dir, a.env)), nil
}

// withClient runs f with a client and a context that ends with SIGINT or SIGTERM.
func (a *app) withClient(f func(ctx context.Context, c *control.Client) error) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return f(ctx, c)
}

// choice is a flag that takes one of a few words.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("one of %v", c.allowed)
	}
	c.value = s
	return nil
}

func (c *choice) Type() string { return "string" }

// outputFlag adds -o/--output; the first format is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *choice {
	return choiceFlag(cmd, "output", "o", "output format", formats...)
}

func choiceFlag(cmd *cobra.Command, name, short, what string, words ...string) *choice {
	c := &choice{words[0], words}
	text := what + ": "
	for i, w := range words {
		if i > 0 {
			text += ", "
		}
		text += w
	}
	cmd.Flags().VarP(c, name, short, text)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	return c
}
