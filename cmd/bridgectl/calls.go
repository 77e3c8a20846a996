package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpbridge/supervisor/control"
)

func (a *app) callsCmd() *cobra.Command {
	var past bool
	var n int
	cmd := &cobra.Command{
		Use:   "calls [--journal [ID|KEY]]",
		Short: "Show the calls that are queued or running and what blocks them, or past side effects",
		Long: `Show every call that is queued or running: its lane, its place in the queue, its
age, and which calls it waits for. A lane may be split by a key (lane_key) and shared
by the servers of a group (lane_group). Beyond "queued" and "running" a call may be

  waiting    for the first list of its server's tools
  recording  about to be sent, as soon as the journal has it
  joined     given the outcome of another call with its idempotency key
  fenced     its caller has its outcome while the server may still work on it: it
             holds its lane

With --journal, show past side effects instead, latest first: all, or those of one
call id or one idempotency key, this life of the bridge and earlier ones. An outcome
of "open" is a call in flight; what was in flight when the bridge was killed is
outcome_unknown. Reads, and calls that were refused before they were sent, have no
entry. So no entry means that no side effect was sent, as far back as the journal
reaches (journal.keep, journal.max_size) and unless it was damaged, which the answer
tells ("complete" with -o json).

Exit codes: 0 · 1 no entry for that id or key (with -o json an empty list, and 0), or
there is no journal to read · 2 usage · 4 no daemon.`,
		Example: `  bridgectl calls
  bridgectl calls -o json | jq -r '.calls[] | select(.state=="queued").call_id'
  bridgectl calls --journal
  bridgectl calls --journal order-17 -o json | jq -r '.entries[0].outcome'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	out := outputFlag(cmd, "table", "json")
	cmd.Flags().BoolVar(&past, "journal", false, "past side effects, of the call id or idempotency key that follows, or all")
	cmd.Flags().IntVarP(&n, "lines", "n", 100, fmt.Sprintf("with --journal: how many of the latest, up to %d", control.JournalMost))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case past && len(args) == 1 && args[0] == "": // an unset variable of a script must not list everything
			return usagef("the call id or idempotency key is empty: give one, or none for all entries")
		case past && (n < 1 || n > control.JournalMost):
			return usagef("-n is %d: give a number from 1 to %d", n, control.JournalMost)
		case past:
			return a.journal(strings.Join(args, ""), n, out.value == "json")
		case len(args) > 0:
			return usagef("a call id or an idempotency key is looked up with --journal: bridgectl calls --journal %s", args[0])
		case cmd.Flags().Changed("lines"):
			return usagef("-n goes with --journal; without it, all calls are shown")
		}
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

// journal shows past side effects: all for "", else those of a call id or key.
func (a *app) journal(idOrKey string, n int, asJSON bool) error {
	return a.withClient(func(ctx context.Context, c *control.Client) error {
		j, err := c.Journal(ctx, idOrKey, n)
		if err != nil {
			return err
		}
		if asJSON {
			return a.out.json(j)
		}
		if len(j.Entries) > 0 {
			a.out.journal(j.Entries)
			for _, d := range j.Doubts {
				a.err.line("the journal may lack entries: %s", d)
			}
			return nil
		}
		none := noEntry(idOrKey, j)
		if idOrKey == "" {
			a.err.line("%s", none)
			return nil
		}
		return &failure{exit: exitFailure, code: control.CodeUnknownCall, err: none,
			hint: "reads, and calls that were refused, have no record; `bridgectl calls` shows what is queued or running"}
	})
}

// noEntry says what it means that there is none, and claims no more than the journal can.
func noEntry(idOrKey string, j control.Journal) error {
	of, under := "", ""
	if idOrKey != "" {
		of, under = fmt.Sprintf(" of %q", idOrKey), " under that id or key"
	}
	if !j.Complete {
		return fmt.Errorf("no record%s within retention, which does not prove that nothing was dispatched: %s", of, strings.Join(j.Doubts, "; "))
	}
	if j.Since != nil {
		return fmt.Errorf("no record%s within retention, which goes back to %s: no side effect was dispatched%s since then", of, j.Since.Local().Format(time.RFC3339), under)
	}
	return fmt.Errorf("no record%s within retention: no side effect was dispatched%s", of, under)
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
