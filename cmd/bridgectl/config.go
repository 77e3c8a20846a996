package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"mcpbridge/config"
	"mcpbridge/supervisor/control"
)

func (a *app) configCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show, compare, begin and import the configuration",
		Long: `Check, show, compare, begin and import the configuration. Without --config it is read
from these places, of which a later one replaces an earlier one's server of the same name:
the user's config.yaml in $XDG_CONFIG_HOME/mcpbridge (else ~/.config/mcpbridge); mcp.json,
.mcp.json and mcp_servers.json in the workspace; .mcpbridge/config.yaml in the workspace;
and the variable MCP_SERVERS, which holds JSON.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.configCheckCmd(), a.configShowCmd(), a.configDiffCmd(), a.configInitCmd(), a.configImportCmd(), a.configSchemaCmd())
	return cmd
}

// loadFlags are the ways to say which configuration is meant.
func (a *app) loadFlags(cmd *cobra.Command) *config.LoadOptions {
	o := &config.LoadOptions{Env: a.env}
	f := cmd.Flags()
	f.StringVarP(&o.File, "config", "c", "", "configuration file; only this one is read")
	f.StringVar(&o.Workspace, "workspace", "", "workspace directory (default: the current one)")
	f.BoolVar(&o.TrustProject, "trust-project", false, "take the workspace's own configuration as the operator's word")
	return o
}

func (a *app) configCheckCmd() *cobra.Command {
	var resolve bool
	cmd := &cobra.Command{
		Use:   "check [FILE...]",
		Short: "Check configuration files and report every problem",
		Long: `Check configuration files, or the layers that "supervise" would read, and report every
problem as file:line:col: path: message. A FILE may also be one of another tool: Claude,
Cursor, VS Code, Codex, Gemini CLI, Zed, Goose, opencode and more, told by its name and
content. It starts nothing. With --resolve it also looks whether commands, directories and
references exist, and whether the hosts of remote servers answer.

Exit codes: 0 valid · 2 there is an error, or a file cannot be read.`,
		Example: `  bridgectl config check
  bridgectl config check bridge.yaml -o json
  bridgectl config check .vscode/mcp.json
  bridgectl config check -c bridge.yaml --resolve`,
	}
	load := a.loadFlags(cmd)
	cmd.Flags().BoolVar(&resolve, "resolve", false, "also look up commands, directories and ${references}, and ask the hosts of URLs")
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, files []string) error {
		if load.File != "" && len(files) > 0 {
			return usagef("give FILE or --config, not both")
		}
		report := config.Check(config.CheckOptions{Load: *load, Files: files, Resolve: resolve})
		if out.value == "json" {
			if err := a.out.json(report); err != nil {
				return err
			}
		} else {
			a.out.checked(report)
		}
		if !report.Valid {
			return exitWith(exitUsage)
		}
		return nil
	}
	return cmd
}

func (a *app) configShowCmd() *cobra.Command {
	var origin, running bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the effective configuration, secrets masked",
		Long: `Show the effective configuration with every default, as YAML. Secrets are masked and
references are shown as they were written. With --running it is what the running
bridge was started with or has reloaded since, else what the files say now.

Exit codes: 0 · 2 a --config that cannot be read · 4 with --running: no daemon.`,
		Example: `  bridgectl config show
  bridgectl config show --origin -c bridge.yaml
  bridgectl config show --running`,
		Args: cobra.NoArgs,
	}
	load := a.loadFlags(cmd)
	cmd.Flags().BoolVar(&origin, "origin", false, "say for every value where it was written")
	cmd.Flags().BoolVar(&running, "running", false, "what the running bridge goes by")
	cmd.MarkFlagsMutuallyExclusive("running", "config")
	cmd.MarkFlagsMutuallyExclusive("running", "workspace")
	cmd.RunE = func(*cobra.Command, []string) error {
		if running {
			return a.withClient(func(ctx context.Context, c *control.Client) error {
				got, err := c.Config(ctx, origin)
				if err == nil {
					a.out.text(got.YAML)
				}
				return err
			})
		}
		cfg, err := config.Load(*load)
		if err != nil {
			return &failure{exit: exitUsage, code: "bad_configuration", err: err}
		}
		a.err.issues(cfg.Issues)
		a.out.text(config.Show(cfg, origin))
		return nil
	}
	return cmd
}

func (a *app) configInitCmd() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Print a starter configuration, or write it with -w",
		Long: `Print a commented starter configuration. With -w it is written to FILE, or to the
user's configuration file, with the JSON Schema for editors beside it; a file that exists
is never touched.

Exit codes: 0 · 1 it exists, or cannot be written · 2 usage.`,
		Example: `  bridgectl config init
  bridgectl config init -w
  bridgectl config init -w bridge.yaml`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVarP(&write, "write", "w", false, "write it to FILE, or to the user's configuration file")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if !write && len(args) > 0 {
			return usagef("give -w to write %s", args[0])
		}
		if !write {
			a.out.text(config.Starter())
			return nil
		}
		return a.writeConfig(args, config.Starter(), "add a server, then `bridgectl config check`")
	}
	return cmd
}

// writeConfig writes a configuration that begins with a line for editors, and the schema
// that the line names.
func (a *app) writeConfig(args []string, text, next string) error {
	file := config.LoadOptions{Env: a.env}.UserFile()
	if len(args) == 1 {
		file = args[0]
	}
	if file == "" {
		return usagef("neither HOME nor XDG_CONFIG_HOME is set: name the file")
	}
	schema, err := config.Schema()
	if err != nil {
		return err
	}
	if err := writeNew(file, text); err != nil {
		return err
	}
	beside := filepath.Join(filepath.Dir(file), config.SchemaFile)
	if _, err := os.Lstat(beside); errors.Is(err, fs.ErrNotExist) {
		if err := writeNew(beside, string(schema)); err != nil {
			return err
		}
	}
	a.err.line("wrote %s: %s", oneLine(file), next)
	return nil
}

// writeNew writes a file that must not exist.
func writeNew(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists and is left alone: remove it first, or name another file", file)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}
