package main

import (
	"context"

	"github.com/spf13/cobra"

	"mcpbridge/supervisor/control"
)

func (a *app) callsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "calls",
		Short: "Show the calls that are queued or running, and what blocks them",
		Long: `Show every call that is queued or running: its lane, its place in the queue, its
age, and which calls it waits for. "fenced" is a call whose caller has its outcome
while the server may still work on it: it holds its lane.

Exit codes: 0 · 4 no daemon.`,
		Example: `  bridgectl calls
  bridgectl calls -o json | jq -r '.calls[] | select(.state=="queued").call_id'`,
		Args: cobra.NoArgs,
	}
	out := outputFlag(cmd, "table", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			list, err := c.Calls(ctx)
			if err != nil {
				return err
			}
			if out.value == "json" {
				return a.out.json(list)
			}
			if len(list.Calls) == 0 {
				a.err.line("no call is queued or running")
				return nil
			}
			a.out.calls(list.Calls)
			return nil
		})
	}
	return cmd
}

func (a *app) cancelCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a call",
		Long: `Cancel a call by the id that "bridgectl calls" shows. A queued call ends as not_sent.
A running one: its server is told, and the server's answer still counts inside the
deadline; otherwise the outcome is unknown. The caller hears the outcome.

Exit codes: 0 asked · 1 no such call is queued or running · 4 no daemon.`,
		Example: `  bridgectl cancel cli-4f0d2a91c3b7e856`,
		Args:    cobra.ExactArgs(1),
	}
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			if err := c.Cancel(ctx, args[0]); err != nil {
				return err
			}
			if out.value == "json" {
				return a.out.json(map[string]string{"cancelled": args[0]})
			}
			a.err.line("asked to cancel %s", args[0])
			return nil
		})
	}
	return cmd
}
