package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
)

func (a *app) approvalsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List what waits for a person",
		Long: `List what waits for a person, each with the id that "approve" and "deny" take:

  call        a call that a permission rule wants to be asked about, with its arguments.
              After approve the same client may make the same call once, within ten
              minutes. The question is forgotten after ten minutes.
  definition  a tool that says something else than when it was seen first; see
              "bridgectl tools diff".
  server      an entry of the workspace's own configuration. It is shown as it is
              written: references (${…}) are not expanded, and evident secrets are
              masked. Approve it only if you would run its command yourself.

An id stands for exactly what is shown. Whatever changes afterwards waits anew.

Exit codes: 0 · 2 usage · 4 no daemon.`,
		Example: `  bridgectl approvals
  bridgectl approvals -o json | jq -r '.approvals[].id'`,
		Args: cobra.NoArgs,
	}
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			list, err := c.Approvals(ctx)
			if err != nil {
				return err
			}
			if out.value == "json" {
				return a.out.json(list)
			}
			if len(list.Approvals) == 0 {
				a.err.line("nothing waits for a person")
				return nil
			}
			a.out.approvals(list.Approvals)
			return nil
		})
	}
	return cmd
}

// judgeCmds are approve and deny.
func (a *app) judgeCmds() []*cobra.Command {
	return []*cobra.Command{
		a.judgeCmd("approve", "Say yes to what waits under an id", `Say yes to what "bridgectl approvals" shows under the id: a call may be made once within
ten minutes by the same client with the same arguments; a definition counts from now
on; a server of the workspace starts, now and in every later life of the bridge, until
its entry changes.`, (*control.Client).Approve),
		a.judgeCmd("deny", "Say no to what waits under an id", `Say no to what "bridgectl approvals" shows under the id. A call that waits for the answer
ends as denied, and an approval that was not used yet is taken back. A definition stays
held back and a server blocked; they are not listed again until they change or the
bridge starts anew.`, (*control.Client).Deny),
	}
}

func (a *app) judgeCmd(verb, short, long string, decide func(*control.Client, context.Context, string) (messages.Approval, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   verb + " ID...",
		Short: short,
		Long: long + `

Exit codes: 0 · 1 nothing waits under the id · 2 usage · 4 no daemon.`,
		Example:           "  bridgectl " + verb + " call-ab3de6gh1j",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeApprovals,
	}
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, ids []string) error {
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			done := control.Approvals{Approvals: []messages.Approval{}}
			var refused []error
			for _, id := range ids {
				if id == "" { // an unset variable of a script
					return usagef("the id is empty: `bridgectl approvals` lists them")
				}
				q, err := decide(c, ctx, id)
				if err != nil {
					refused = append(refused, err)
					continue
				}
				done.Approvals = append(done.Approvals, q)
				if out.value != "json" {
					a.err.line("%s: %s", map[string]string{"approve": "approved", "deny": "denied"}[verb], approvalWords(q))
				}
			}
			if len(refused) > 0 {
				return joined(refused, a)
			}
			if out.value == "json" {
				return a.out.json(done)
			}
			return nil
		})
	}
	return cmd
}

func (a *app) completeApprovals(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return a.complete(func(ctx context.Context, c *control.Client) (ids []string, err error) {
		list, err := c.Approvals(ctx)
		for _, q := range list.Approvals {
			ids = append(ids, oneLine(q.ID))
		}
		return ids, err
	})
}

func (a *app) toolsDiffCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff [PATTERN]",
		Short: "Show definitions that are not what they were",
		Long: `Show, field by field, how the definitions of tools differ from what was seen first or
approved since. Characters that a terminal would hide or obey are shown as escapes.

A tool that may do more than read is held back until it is approved (pins: {on_change:
block}, the default): it is not offered, and a call of it ends as tool_changed.

Exit codes: 0 · 2 usage · 4 no daemon.`,
		Example: `  bridgectl tools diff
  bridgectl tools diff fs/write_file`,
		Args: cobra.MaximumNArgs(1),
	}
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		pattern := ""
		if len(args) == 1 {
			pattern = args[0]
		}
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			list, err := c.Definitions(ctx, pattern)
			if err != nil {
				return err
			}
			if out.value == "json" {
				return a.out.json(list)
			}
			if len(list.Changes) == 0 {
				a.err.line("no definition has changed")
				return nil
			}
			for i, change := range list.Changes {
				if i > 0 {
					a.out.line("")
				}
				a.out.change(change)
			}
			return nil
		})
	}
	return cmd
}

func (a *app) toolsApproveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve NAME...",
		Short: "Take changed definitions over",
		Long: `Take the definitions that "bridgectl tools diff" shows over for the right ones. NAME is
a tool's name in any of its forms, or a pattern such as 'fs__*'. What changes after you
looked is not approved with it: it waits anew.

Exit codes: 0 · 1 nothing of that name waits · 2 usage · 4 no daemon.`,
		Example: `  bridgectl tools approve fs/write_file
  bridgectl tools approve 'fs__*'`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeTools,
	}
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			var refused []error
			for _, name := range names {
				if name == "" {
					return usagef("the name is empty: `bridgectl tools diff` lists them")
				}
				list, err := c.Definitions(ctx, name)
				if err != nil {
					return err
				}
				list.Changes = exactly(name, list.Changes)
				if len(list.Changes) == 0 {
					refused = append(refused, &failure{exit: exitFailure, code: control.CodeUnknownApproval, tool: name,
						err: errors.New("no changed definition is called " + name), hint: "`bridgectl tools diff` lists them"})
				}
				for _, change := range list.Changes {
					if _, err := c.Approve(ctx, change.ID); err != nil {
						refused = append(refused, err)
						continue
					}
					a.err.line("approved: %s (%s)", change.Name, change.After.Digest)
				}
			}
			if len(refused) > 0 {
				return joined(refused, a)
			}
			return nil
		})
	}
	return cmd
}

// exactly keeps the one tool that a name means, where it means one: approving `read`
// must not approve `read_all`.
func exactly(name string, all []messages.DefinitionChange) []messages.DefinitionChange {
	for _, c := range all {
		if name == c.Name || name == c.EndpointName || name == c.Server+"/"+c.After.Tool {
			return []messages.DefinitionChange{c}
		}
	}
	if !isPattern(name) {
		return nil
	}
	return all
}

// tellHeld mentions the tools that are missing because their definitions changed.
func (a *app) tellHeld(ctx context.Context, c *control.Client) {
	list, err := c.Definitions(ctx, "")
	if err != nil {
		return // an older daemon; the list itself is complete without it
	}
	held := 0
	for _, d := range list.Changes {
		if d.Held {
			held++
		}
	}
	if held > 0 {
		a.err.line("held back because their definitions changed: %d; `bridgectl tools diff` shows them", held)
	}
}
