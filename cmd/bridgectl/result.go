package main

import (
	"context"

	"github.com/spf13/cobra"

	"mcpbridge/supervisor/control"
)

// resultCmd reads what a call had to leave out.
func (a *app) resultCmd() *cobra.Command {
	var view string
	cmd := &cobra.Command{
		Use:   "result URI",
		Short: "Print the whole of a result that was cut",
		Long: `Print the whole of a result that was larger than limits.result_bytes, as its server
wrote it: JSON, on stdout. The call names it as result_uri; the id at its end will do.
It is kept for ten minutes at most, and less where many are kept.

Exit codes: 0 printed · 1 there is no such result · 4 no daemon.`,
		Example: `  bridgectl result mcpbridge://results/q3zj5m2mmvfxcdlv7ohcvz2k7a | jq -r '.content[].text'`,
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&view, "view", "", "the view that the call was made through")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withClient(func(ctx context.Context, c *control.Client) error {
			raw, err := c.Result(ctx, args[0], view)
			if err != nil {
				return err
			}
			_, err = a.out.w.Write(append(raw, '\n'))
			return err
		})
	}
	return cmd
}
