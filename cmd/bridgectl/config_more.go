package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"mcpbridge/config"
	"mcpbridge/supervisor/control"
)

func (a *app) configDiffCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff [OLD NEW]",
		Short: "Show what the files say now and the running bridge does not do yet",
		Long: `Show what "bridgectl reload" with the configuration files as they are now would change in the
running bridge: servers added (+), removed (-) and changed (~), and every value. Secrets
are never shown; that one has changed is. With OLD and NEW two files are compared, and no
bridge is needed.

Exit codes: 0 · 2 the configuration cannot be read · 4 no daemon.`,
		Example: `  bridgectl config diff
  bridgectl config diff bridge.yaml new.yaml`,
		Args: cobra.MaximumNArgs(2),
	}
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 1:
			return usagef("give two files, OLD and NEW, or none to ask the running bridge")
		case 2:
			var both [2]*config.Config
			for i, file := range args {
				c, err := config.Load(config.LoadOptions{File: file, Env: a.env})
				if err != nil {
					return &failure{exit: exitUsage, code: "bad_configuration", err: err}
				}
				both[i] = c
			}
			return a.difference(out.value, control.ConfigDiff{Difference: config.Diff(both[0], both[1]), Issues: both[1].Issues, Files: args})
		}
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			d, err := c.ConfigDiff(ctx)
			if err != nil {
				return err
			}
			return a.difference(out.value, d)
		})
	}
	return cmd
}

func (a *app) difference(form string, d control.ConfigDiff) error {
	if form == "json" {
		return a.out.json(d)
	}
	a.err.issues(d.Issues)
	for _, l := range d.Lines() {
		a.out.line("%s", oneLine(l))
	}
	if d.Empty() {
		a.out.line("no difference")
	}
	return nil
}

func (a *app) configSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Long: `Print the JSON Schema (2020-12) of the bridge's own configuration. An editor with a YAML
language server uses it for a file whose first line is
  # yaml-language-server: $schema=mcpbridge.schema.json

Exit codes: 0.`,
		Example: `  bridgectl config schema > mcpbridge.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := config.Schema()
			if err == nil {
				a.out.text(string(b))
			}
			return err
		},
	}
}

func (a *app) configImportCmd() *cobra.Command {
	var write bool
	var from, workspace string
	cmd := &cobra.Command{
		Use:   "import FILE [OUT]",
		Short: "Turn another tool's configuration into one of ours",
		Long: `Turn another tool's configuration into one of the bridge's own and print it, with comments
about everything that could not be carried over. FILE may be - for standard input. Values
that look like secrets are not repeated: a reference such as ${env:GITHUB_TOKEN} takes
their place, and the head of the file lists what to set.

With -w it is written to OUT, or to the user's configuration file; a file that exists is
never touched.

Tools: ` + strings.Join(config.Dialects(), ", ") + `.

Exit codes: 0 · 1 OUT exists, or cannot be written · 2 FILE cannot be read, or usage.`,
		Example: `  bridgectl config import ~/.cursor/mcp.json
  bridgectl config import --from codex ~/.codex/config.toml -w bridge.yaml`,
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.Flags().StringVar(&from, "from", "auto", "the tool whose file it is; auto tells by name and content")
	cmd.Flags().StringVar(&workspace, "workspace", "", "what the file's ${CWD} stands for (default: the current directory)")
	cmd.Flags().BoolVarP(&write, "write", "w", false, "write it to OUT, or to the user's configuration file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !write && len(args) > 1 {
			return usagef("give -w to write %s", args[1])
		}
		o := config.ImportOptions{Load: config.LoadOptions{File: args[0], Workspace: workspace, Env: a.env}, From: from}
		if args[0] == "-" {
			b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 8<<20))
			if err != nil {
				return fmt.Errorf("standard input: %w", err)
			}
			o.Text, o.Load.File = append([]byte{}, b...), "stdin"
		}
		im, err := config.Import(o)
		if err != nil {
			return &failure{exit: exitUsage, code: "bad_configuration", err: err}
		}
		a.err.issues(im.Issues)
		a.err.line("read as %s (--from %s): %s%s", oneLine(im.Tool), im.Dialect, counted(len(im.Servers), "server"), leftOut(im.Left))
		if !write {
			a.out.text(im.YAML)
			return nil
		}
		return a.writeConfig(args[1:], im.YAML, "look through it, then `bridgectl config check`")
	}
	return cmd
}

func leftOut(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", left out: " + oneLine(strings.Join(names, ", "))
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
