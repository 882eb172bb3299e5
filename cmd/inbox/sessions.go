package main

import (
	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newSessions() *cobra.Command {
	parent := &cobra.Command{
		Use:   "sessions",
		Short: "List or end the console sessions of operators",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newSessionsList(), newSessionsEnd())
	return parent
}

func newSessionsList() *cobra.Command {
	filter := exchange.ConsoleSessionFilter{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sessions, newest first",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd, "No one is signed in at the console.", []string{"ID", "NAME", "ROLE", "BY", "SINCE", "SEEN", "ADDRESS"}, func(o *inbox.Operator) ([]operator.SignedIn, error) {
				return o.Sessions.List(cmd.Context(), filter)
			}, func(s operator.SignedIn) []string {
				return []string{s.ID, s.Name, s.Role.String(), s.By, when(s.CreatedAt), when(s.SeenAt), s.Address}
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&filter.Before, "before", "", "continue after the last row of the page before (its id)")
	cmd.Flags().IntVar(&filter.Limit, "limit", maxSessionRows, "at most this many")
	return cmd
}

const maxSessionRows = 500

func newSessionsEnd() *cobra.Command {
	return &cobra.Command{
		Use:     "end ID…",
		Short:   "Sign browsers out, at once on all nodes",
		Example: "  inbox sessions list\n  inbox sessions end 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is ended", func(o *inbox.Operator, id string) error {
				return o.Sessions.End(cmd.Context(), id, exchange.SessionOwner{})
			})
		},
	}
}
