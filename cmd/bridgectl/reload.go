package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"mcpbridge/supervisor/control"
)

func (a *app) reloadCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Apply the configuration files again, without a restart",
		Long: `Make the running bridge read its configuration again, from where it was started with, and
apply it. SIGHUP to the bridge does the same. "config diff" shows before what it would do.

Servers whose entries are the same go on untouched: same process, no call is lost. One
whose command, environment or URL is another is drained (timeouts.drain) and started anew;
one that is gone is drained and leaves; permissions, effects, filters, limits, timeouts
and views apply at once. Servers of the workspace that were changed wait for approval
again. listen, auth, tls, allowed_hosts, allowed_origins, log and journal are read at the
start alone: that they have changed is said, and nothing of it is applied.

A configuration with any error changes nothing: the one before goes on, and "status" says
so until a reload succeeds. The command ends when the new configuration is in force;
"wait" waits for servers that are starting.

Exit codes: 0 · 2 the configuration has an error, nothing has changed · 4 no daemon.`,
		Example: `  bridgectl config diff
  bridgectl reload
  bridgectl reload && bridgectl wait --timeout 30s`,
		Args: cobra.NoArgs,
	}
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			r, err := c.Reload(ctx)
			var e *control.Error
			switch {
			case errors.As(err, &e) && len(e.Issues) > 1 && out.value != "json":
				a.err.issues(e.Issues)
				f := *a.classify(err)
				f.err = fmt.Errorf("nothing has changed: the configuration has %d errors", len(e.Issues))
				return &f
			case err != nil:
				return err
			case out.value == "json":
				return a.out.json(r)
			}
			a.err.issues(r.Issues)
			for _, l := range r.Lines() {
				a.out.line("%s", oneLine(l))
			}
			if r.Empty() && len(r.Restart) == 0 {
				a.out.line("no difference")
			}
			return nil
		})
	}
	return cmd
}
