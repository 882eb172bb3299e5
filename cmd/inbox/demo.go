package main

import (
	"github.com/spf13/cobra"

	"inbox/internal/demo"
)

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Watch the conversations on a throw-away server",
		Long: `Starts a throw-away server. A Mastodon-like server mentions its agent, a DKIM-signed mail arrives and
another agent sends an A2A task; a second agent asks for consent before it acts. You see what each side proved about the other.
Everything stays on this machine and is removed afterwards. Exit code 0 means that all replies verified.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
}
