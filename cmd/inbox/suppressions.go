package main

import "github.com/spf13/cobra"

// newSuppressions is the short way to "inbox mail suppressed".
func newSuppressions() *cobra.Command {
	cmd := newSuppressed()
	cmd.Use = "suppressions"
	return cmd
}
