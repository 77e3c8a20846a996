package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
)

// verbInfo describes one life-cycle verb.
type verbInfo struct {
	verb        messages.Verb
	short, long string
	target      control.Target // what --wait waits for
	newer       bool           // … of a newer incarnation
}

var verbs = []verbInfo{
	{messages.VerbStart, "Start servers", "Start servers that are stopped or idle, or whose next try is still to come. One that runs is left alone.", control.ForReady, false},
	{messages.VerbStop, "Stop servers without waiting for their calls", "Stop servers. Queued calls end as not_sent, calls in flight are not waited for: see drain.", control.ForStopped, false},
	{messages.VerbRestart, "Replace the running process of servers", "Replace the running incarnation. It is no failure and does not count against the restart policy. Queued calls wait for the new one.", control.ForReady, true},
	{messages.VerbReset, "Forget the failures of servers and start them", "Forget the failures of servers that are quarantined, in backoff or blocked by a login, and start them at once.", control.ForReady, false},
	{messages.VerbDrain, "Let servers finish their calls, then stop them", "Let calls in flight finish (timeouts.drain), answer queued ones with not_sent, then stop the servers.", control.ForStopped, false},
}

func (a *app) operateCmds() []*cobra.Command {
	var out []*cobra.Command
	for _, v := range verbs {
		out = append(out, a.operateCmd(v))
	}
	return out
}

func (a *app) operateCmd(v verbInfo) *cobra.Command {
	var all, wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   string(v.verb) + " NAME...",
		Short: v.short,
		Long: v.long + fmt.Sprintf(`

With --wait the command ends when the servers are %s, or after --timeout.

Exit codes: 0 · 1 refused (the message says why) · 2 usage, no such server ·
3 with --wait: not %s in time · 4 no daemon.`, v.target, v.target),
		Example:           fmt.Sprintf("  bridgectl %s fs\n  bridgectl %s --all --wait --timeout 30s", v.verb, v.verb),
		ValidArgsFunction: a.completeServers,
	}
	out := outputFlag(cmd, "text", "json")
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "every server that can run")
	f.BoolVar(&wait, "wait", false, fmt.Sprintf("wait until the servers are %s", v.target))
	f.DurationVar(&timeout, "timeout", time.Minute, "how long --wait waits")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		switch changed := cmd.Flags().Changed("timeout"); {
		case all == (len(names) > 0):
			return usagef("name the servers, or give --all")
		case changed && !wait:
			return usagef("--timeout says how long --wait waits: give both, or neither")
		case timeout <= 0:
			return usagef("--timeout is %s: give a duration such as 30s", timeout)
		}
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			st, err := c.Status(ctx, names...)
			if err != nil {
				return err
			}
			if all {
				if names = operable(st, v.verb); len(names) == 0 {
					a.err.line("no server to %s", v.verb)
				}
			}
			after := map[string]uint64{}
			var refused []error
			for _, n := range names {
				if row, ok := st.Server(n); ok && v.newer {
					after[n] = row.Generation
				}
				if err := c.Operate(ctx, v.verb, n); err != nil {
					refused = append(refused, err)
				}
			}
			if len(refused) > 0 {
				return joined(refused, a)
			}
			if wait && len(names) > 0 {
				return a.waitFor(ctx, c, control.WaitRequest{Servers: names, For: v.target, Timeout: timeout, After: after}, out.value == "json")
			}
			if out.value == "json" {
				if names == nil {
					names = []string{}
				}
				return a.out.json(map[string]any{"verb": v.verb, "servers": names})
			}
			for _, n := range names {
				a.err.line("%s: %s", n, v.verb)
			}
			return nil
		})
	}
	return cmd
}

// operable are the servers that --all means for a verb.
func operable(st messages.Status, verb messages.Verb) []string {
	var out []string
	for _, s := range st.Servers {
		switch s.State {
		case messages.StateDisabled, messages.StateConfigError:
			continue
		case messages.StateBlocked:
			if verb != messages.VerbReset {
				continue
			}
		case messages.StateQuarantined:
			if verb == messages.VerbStart || verb == messages.VerbRestart {
				continue // kept down for its failures: reset is the word for it
			}
		case messages.StateBackoff:
		default:
			if verb == messages.VerbReset {
				continue
			}
		}
		out = append(out, s.Name)
	}
	return out
}

// joined makes one failure of several, with the first one's code and hint.
func joined(errs []error, a *app) error {
	first := *a.classify(errs[0])
	if len(errs) > 1 {
		first.server = ""
		first.err = errors.New(lines(errs))
	}
	return &first
}

func lines(errs []error) string {
	s := ""
	for i, e := range errs {
		if i > 0 {
			s += "; "
		}
		s += e.Error()
	}
	return s
}

func (a *app) waitCmd() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait [NAME...]",
		Short: "Wait until servers are ready, stopped or quarantined",
		Long: `Wait until servers are ready (or, with --for, stopped or quarantined). Without names
it is about every server that starts by itself.

It ends at once when a server can certainly not become ready: its configuration is
broken, it is disabled, or it waits for a person.

Exit codes: 0 reached · 2 no such server · 3 not reached · 4 no daemon.`,
		Example: `  bridgectl wait --timeout 30s
  bridgectl wait fs --for stopped`,
		ValidArgsFunction: a.completeServers,
	}
	out := outputFlag(cmd, "text", "json")
	target := choiceFlag(cmd, "for", "", "what to wait for", "ready", "stopped", "quarantined")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		if timeout <= 0 {
			return usagef("--timeout is %s: give a duration such as 30s", timeout)
		}
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			return a.waitFor(ctx, c, control.WaitRequest{Servers: names, For: control.Target(target.value), Timeout: timeout}, out.value == "json")
		})
	}
	return cmd
}

func (a *app) waitFor(ctx context.Context, c *control.Client, req control.WaitRequest, asJSON bool) error {
	res, err := c.Wait(ctx, req)
	if err != nil {
		return err
	}
	if asJSON {
		if err := a.out.json(res); err != nil {
			return err
		}
	}
	if res.Reached {
		return nil
	}
	if asJSON {
		return exitWith(exitNotReady)
	}
	return &failure{exit: exitNotReady, code: "not_ready", err: fmt.Errorf("not %s: %s", req.For, missing(res)), hint: "`bridgectl status NAME` tells more"}
}
