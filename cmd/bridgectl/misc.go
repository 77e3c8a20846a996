package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"mcpbridge/supervisor/demo"
)

// buildInfo is `version -o json`.
type buildInfo struct {
	Version string       `json:"version"`
	Go      string       `json:"go"`
	OS      string       `json:"os"`
	Arch    string       `json:"arch"`
	Daemon  *daemonBuild `json:"daemon"` // null when none runs
}

type daemonBuild struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
}

// askBriefly is how long verbs that work without a daemon ask for it.
const askBriefly = 2 * time.Second

func (a *app) versionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of bridgectl and of the running bridge",
		Long:    "Show the version of bridgectl and, if one runs, of the bridge.\n\nExit codes: 0.",
		Example: "  bridgectl version\n  bridgectl version -o json",
		Args:    cobra.NoArgs,
	}
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := buildInfo{buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, a.daemonBuild()}
		if out.value == "json" {
			return a.out.json(v)
		}
		a.out.line("bridgectl %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
		if v.Daemon != nil {
			a.out.line("bridge %s, pid %d", v.Daemon.Version, v.Daemon.PID)
			if v.Daemon.Version != v.Version {
				a.err.line("the running bridge is of another version: restart it to use this one")
			}
		}
		return nil
	}
	return cmd
}

// daemonBuild is nil when no daemon answers.
func (a *app) daemonBuild() *daemonBuild {
	c, err := a.client()
	if err != nil {
		return nil
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askBriefly)
	defer cancel()
	v, err := c.Version(ctx)
	if err != nil {
		return nil
	}
	return &daemonBuild{v.Version, v.PID}
}

func (a *app) manCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "man [DIR]",
		Short: "Write the manual pages",
		Long: `Write the manual pages of every verb into DIR, or the first one to stdout.

Exit codes: 0 · 1 the directory cannot be written.`,
		Example: "  bridgectl man | man -l -\n  bridgectl man ~/.local/share/man/man1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			header := &doc.GenManHeader{Section: "1", Source: "mcpbridge " + buildVersion(), Manual: "mcpbridge"}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			escapeMarkup(root)
			if len(args) == 0 {
				return doc.GenMan(root, header, cmd.OutOrStdout())
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return doc.GenManTree(root, header, args[0])
		},
	}
}

// escapeMarkup keeps the texts of all verbs as they are: the pages are made by way of
// Markdown, which would read mcp__fs__read_file as bold.
func escapeMarkup(cmd *cobra.Command) {
	escape := strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`).Replace
	cmd.Short, cmd.Long = escape(cmd.Short), escape(cmd.Long)
	flag := func(f *pflag.Flag) { f.Usage = escape(f.Usage) }
	cmd.LocalNonPersistentFlags().VisitAll(flag)
	cmd.PersistentFlags().VisitAll(flag)
	for _, c := range cmd.Commands() {
		escapeMarkup(c)
	}
}

func (a *app) demoServerCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "demo-server",
		Short: "Serve the built-in demo MCP server on stdio",
		Long: `Serve the built-in demo MCP server on stdio, as any MCP client starts it: echo, add, a
slow read with progress, a list of notes in memory, and a tool that crashes it.
"bridgectl supervise --demo" runs it under supervision.

Exit codes: 0 stdin ended · 3 the tool "crash" was called.`,
		Example: `  {"mcpServers": {"demo": {"command": "bridgectl", "args": ["demo-server"]}}}`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			out, ok := a.stdout.(io.WriteCloser)
			if !ok {
				return fmt.Errorf("stdout cannot be closed")
			}
			in, ok := a.in.(io.ReadCloser)
			if !ok {
				return fmt.Errorf("stdin cannot be closed")
			}
			return demo.Serve(ctx, demo.Options{In: in, Out: out, Stderr: a.stderr, Version: buildVersion(), Exit: os.Exit})
		},
	}
}
