package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
)

func (a *app) statusCmd() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show the servers: state, last exit, next try",
		Long: `Show the servers: state, since when, restarts, tools, calls, and why a server is as
it is. With names it also shows the last exit, the last words on stderr and the
issues of those servers.

With -w it goes on and shows the status again after each change (with -o json: one
object a line).

Exit codes: 0 whatever the states are · 2 no such server · 4 no daemon.
Use "bridgectl wait" to ask whether servers are ready.`,
		Example: `  bridgectl status
  bridgectl status fs -o json
  bridgectl status -w`,
		ValidArgsFunction: a.completeServers,
	}
	out := outputFlag(cmd, "table", "json")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again after each change")
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			if watch {
				return a.watch(ctx, c, names, out.value == "json")
			}
			st, err := c.Status(ctx, names...)
			if err != nil {
				return err
			}
			if out.value == "json" {
				return a.out.json(st)
			}
			a.out.status(st, len(names) > 0)
			return nil
		})
	}
	return cmd
}

// watchPause lets a burst of events cost one look.
const watchPause = 200 * time.Millisecond

// watch shows the status now and after each event, until the person has seen enough.
func (a *app) watch(ctx context.Context, c *control.Client, names []string, asJSON bool) error {
	changed := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Events(ctx, control.Window{Servers: names, N: 0, Follow: true}, func(messages.Event) error {
			select {
			case changed <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	for first := true; ; first = false {
		st, err := c.Status(ctx, names...)
		if err != nil {
			return quietInterrupt(ctx, err)
		}
		switch {
		case asJSON:
			err = a.out.ndjson(st)
		default:
			a.out.again(first)
			a.out.status(st, false)
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case err := <-ended:
			return quietInterrupt(ctx, err)
		}
		pause := time.NewTimer(watchPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// quietInterrupt makes the interrupt of something endless its proper end.
func quietInterrupt(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exitWith(exitInterrupted)
	}
	return err
}
