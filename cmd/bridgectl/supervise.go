package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"mcpbridge/supervisor/control"
	"mcpbridge/supervisor/daemon"
)

func (a *app) superviseCmd() *cobra.Command {
	var o daemon.Options
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "supervise",
		Short: "Run the bridge in the foreground",
		Long: `Run the bridge in the foreground: start the configured servers, keep them running,
and serve their tools at one MCP endpoint.

Configuration is read from --config alone, or, the first counting most, from the variable
MCP_SERVERS, the workspace's .mcpbridge/config.yaml, its mcp_servers.json, .mcp.json and
mcp.json, and the user's config.yaml in $XDG_CONFIG_HOME/mcpbridge (else
~/.config/mcpbridge). What the workspace brings waits for "bridgectl approve".
A broken server, or a broken layer, costs that server or layer only and is reported.

SIGHUP and "bridgectl reload" apply the configuration again; with --watch, so does every
change of its files, also of those that do not exist yet. Servers whose entries are the
same go on untouched. A configuration with an error then changes nothing, and "status"
says so. listen, auth, tls, allowed_hosts, allowed_origins, log and journal are read at
the start alone.

The endpoint serves before the servers are ready. SIGTERM and SIGINT drain: calls in
flight get their time (timeouts.drain), then every process is ended; a second signal
skips the grace. The bridge logs to stderr and writes nothing to stdout.

Exit codes: 0 drained after a signal · 1 failure (another bridge on the state
directory, the port in use, …) · 2 usage, or a --config that cannot be read.`,
		Example: `  bridgectl supervise --demo
  bridgectl supervise -c bridge.yaml --listen 127.0.0.1:0 --ready-file /tmp/ready.json
  bridgectl supervise --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			o.StateDir, o.Control = a.stateDir, a.control
			return a.supervise(o, dryRun)
		},
	}
	addSuperviseFlags(cmd, &o)
	f := cmd.Flags()
	f.StringVar(&o.ReadyFile, "ready-file", "", `write {"pid","url","control","token_file"} there once the endpoint serves`)
	f.StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.LogFormat, "log-format", "text", "text or json")
	f.BoolVar(&o.Watch, "watch", false, "apply the configuration again whenever its files change")
	f.BoolVar(&dryRun, "dry-run", false, "read and check everything, show what would run, start nothing")
	return cmd
}

// addSuperviseFlags are those that `stdio` shares, for the daemon that it starts.
func addSuperviseFlags(cmd *cobra.Command, o *daemon.Options) {
	f := cmd.Flags()
	f.StringVarP(&o.ConfigFile, "config", "c", "", "configuration file; only this one is read")
	f.StringVar(&o.Workspace, "workspace", "", "workspace directory (default: the current one)")
	f.StringVar(&o.Listen, "listen", "", "HOST:PORT of the endpoint, port 0 = any (default 127.0.0.1:7332)")
	f.BoolVar(&o.Demo, "demo", false, "run the built-in demo server; no configuration is needed or read")
	f.BoolVar(&o.TrustProject, "trust-project", false, "run the servers of the workspace's own configuration, too")
}

func (a *app) supervise(o daemon.Options, dryRun bool) error {
	if err := a.freshEnvironment(); err != nil {
		return err
	}
	var err error
	if o.Executable, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	o.Guardian, o.Alone = o.Executable, true
	o.Version, o.Env, o.Stderr = buildVersion(), a.env, a.stderr
	if dryRun {
		plan, err := daemon.Prepare(o)
		if err != nil {
			return err
		}
		a.err.issues(plan.Issues)
		a.out.planned(plan)
		return nil
	}
	o.Started = func(p daemon.Plan) { a.err.started(p, o.Version, superviseHints{a.toTry(p, o.Demo)}) }
	return daemon.Run(context.Background(), o)
}

// toTry are three commands for this very daemon.
func (a *app) toTry(p daemon.Plan, demo bool) []string {
	prefix := a.name() + " "
	if dir, err := daemon.StateDir("", a.env); err != nil || control.Path("", dir, a.env) != p.Control {
		prefix += "--control " + shellQuote(p.Control) + " "
	}
	if demo {
		return []string{prefix + "call demo/echo text=hello", prefix + "call demo/crash", prefix + "status"}
	}
	return []string{prefix + "status", prefix + "tools", prefix + "logs -f"}
}

// name is how a shell finds this very program: by its name where PATH leads there.
func (a *app) name() string {
	self, err := os.Executable()
	if err != nil {
		return "bridgectl"
	}
	if found, err := exec.LookPath("bridgectl"); err == nil && sameFile(found, self) {
		return "bridgectl"
	}
	return shellQuote(self)
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// shellQuote makes one word of s for a POSIX shell.
func shellQuote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
