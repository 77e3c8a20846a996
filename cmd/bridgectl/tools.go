package main

import (
	"context"

	"github.com/spf13/cobra"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
)

func (a *app) toolsCmd() *cobra.Command {
	var q control.ToolsQuery
	var schema bool
	cmd := &cobra.Command{
		Use:   "tools [PATTERN]",
		Short: "List the catalogue of tools",
		Long: `List the tools on offer, with what they may do and whether they may be called.

PATTERN is a part of a name, or a glob (fs__*, *_file). EFFECT is what the bridge
takes the tool to do, BY says who decided that: config (the operator), annotation
(the server's own word, where it is trusted) or default (side_effect).

Servers that are starting for the first time are waited for, at most list_wait.
With -o json every schema is in the output. -o openai, anthropic and gemini print
the value of the field "tools" of a request to that provider (Chat Completions,
Messages, generateContent); what of a schema a provider has no word for is widened,
and told on stderr. -o prompt is text for a model without function calling.
A tool whose definition has changed and that is held back for it shows with --all; see "bridgectl tools diff --help".

Exit codes: 0 · 2 usage, no such server or view · 4 no daemon.`,
		Example: `  bridgectl tools
  bridgectl tools read --effect read_only
  bridgectl tools 'fs__*' --schema
  bridgectl tools -o json | jq -r '.tools[].name'
  bridgectl tools --view plan -o anthropic > tools.json
  bridgectl tools -o prompt`,
		Args: cobra.MaximumNArgs(1),
	}
	out := outputFlag(cmd, "table", "json", "openai", "anthropic", "gemini", "prompt")
	f := cmd.Flags()
	f.StringVar(&q.Server, "server", "", "only the tools of this server")
	effect := &choice{"", []string{"read_only", "idempotent", "side_effect"}}
	f.Var(effect, "effect", "only this effect: read_only, idempotent, side_effect")
	f.StringVar(&q.View, "view", "", "only what this view of the configuration admits")
	f.BoolVar(&q.All, "all", false, "also tools that are known and not on offer, of stopped and quarantined servers")
	f.BoolVar(&schema, "schema", false, "show the input schemas")
	_ = cmd.RegisterFlagCompletionFunc("server", a.completeServers)
	_ = cmd.RegisterFlagCompletionFunc("effect", cobra.FixedCompletions(effect.allowed, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		q.Effect = effect.value
		if len(args) == 1 {
			q.Pattern = args[0]
		}
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			list, err := c.Tools(ctx, q)
			if err != nil {
				return err
			}
			switch out.value {
			case "json":
				return a.out.json(list)
			case "openai":
				return a.form(messages.OpenAIForm(list.Tools))
			case "anthropic":
				return a.form(messages.AnthropicForm(list.Tools))
			case "gemini":
				return a.form(messages.GeminiForm(list.Tools))
			case "prompt":
				if text := messages.PromptText(list.Tools); text != "" {
					a.out.text(text)
				}
				return nil
			}
			a.tellHeld(ctx, c)
			if len(list.Tools) == 0 {
				a.err.line("no tool matches; `bridgectl status` shows which servers are ready")
				return nil
			}
			a.out.tools(list.Tools, schema)
			return nil
		})
	}
	cmd.AddCommand(a.toolsDiffCmd(), a.toolsApproveCmd())
	return cmd
}

// form prints tools for a provider, and what was changed for it.
func (a *app) form(f messages.Form) error {
	for _, i := range f.Issues {
		a.err.line("note: %s/%s: %s", i.Server, i.Tool, i.Message)
	}
	return a.out.json(f)
}
