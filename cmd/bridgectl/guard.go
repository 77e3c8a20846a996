package main

import (
	"github.com/spf13/cobra"

	"mcpbridge/actors/upstream/own"
)

// guardCmd is the guardian: the bridge starts this very program with it, in a session of
// its own, so that somebody is left to clean up when the bridge itself is killed. It is
// hidden because nobody else has a use for it.
func (a *app) guardCmd() *cobra.Command {
	return &cobra.Command{
		Use:    own.GuardVerb,
		Short:  "End what a killed bridge leaves running (started by the bridge itself)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return own.Guard() },
	}
}
