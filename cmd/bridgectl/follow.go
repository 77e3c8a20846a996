package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
)

// since reads a duration (5m: that long ago) or a time.
func since(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--since is %q: give a duration such as 5m, or a time such as 2026-01-31T12:00:00Z", s)
}

// windowFlags are those that logs and events share.
func windowFlags(cmd *cobra.Command, w *control.Window, from *string, n int) {
	f := cmd.Flags()
	f.BoolVarP(&w.Follow, "follow", "f", false, "go on with what comes")
	f.IntVarP(&w.N, "lines", "n", n, "how many of the last ones, -1 for all that are kept")
	f.StringVar(from, "since", "", "only from then on: a duration (5m) or a time (RFC 3339)")
}

func (a *app) logsCmd() *cobra.Command {
	var w control.Window
	var from string
	var times bool
	cmd := &cobra.Command{
		Use:   "logs [NAME...]",
		Short: "Show the stderr of servers and what the bridge says about them",
		Long: `Show the last lines of the servers' stderr, each behind its server's name: "fs | …"
is the server's own word, "fs * …" the bridge's about it. Values of configured
secrets are replaced by ***, and what could disturb a terminal is shown as escape.

Exit codes: 0 · 2 usage, no such server · 4 no daemon, or it went away · 130 interrupted.`,
		Example: `  bridgectl logs
  bridgectl logs fs -f
  bridgectl logs --since 10m -n -1 -o json`,
		ValidArgsFunction: a.completeServers,
	}
	windowFlags(cmd, &w, &from, 100)
	cmd.Flags().BoolVarP(&times, "timestamps", "t", false, "show when each line came")
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, names []string) (err error) {
		if w.Since, err = since(from); err != nil {
			return err
		}
		w.Servers = names
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			return quietInterrupt(ctx, c.Logs(ctx, w, func(l messages.LogLine) error {
				if out.value == "json" {
					return a.out.ndjson(l)
				}
				a.out.logLine(l, times)
				return nil
			}))
		})
	}
	return cmd
}

func (a *app) eventsCmd() *cobra.Command {
	var w control.Window
	var from string
	cmd := &cobra.Command{
		Use:   "events [NAME...]",
		Short: "Show what happened: life cycle, catalogue and calls",
		Long: `Show the typed events of the bridge, of all servers or the named ones: life cycle,
catalogue changes, and every step of every call. Arguments and results are never in
them. With -o json each line is one event (NDJSON). An event of type "gap" says how
many were dropped because this reader was too slow.

Exit codes: 0 · 2 usage, no such server · 4 no daemon, or it went away · 130 interrupted.`,
		Example: `  bridgectl events -f
  bridgectl events fs --since 1h -n -1
  bridgectl events --type server_state -o json`,
		ValidArgsFunction: a.completeServers,
	}
	windowFlags(cmd, &w, &from, 100)
	cmd.Flags().StringSliceVar(&w.Types, "type", nil, "only events of this type, such as server_state or call_settled")
	out := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, names []string) (err error) {
		if w.Since, err = since(from); err != nil {
			return err
		}
		w.Servers = names
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			return quietInterrupt(ctx, c.Events(ctx, w, func(e messages.Event) error {
				if out.value == "json" {
					return a.out.ndjson(e)
				}
				a.out.event(e)
				return nil
			}))
		})
	}
	return cmd
}
