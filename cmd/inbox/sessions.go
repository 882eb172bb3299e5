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
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sessions, newest first",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown := table[operator.SignedIn]{"No one is signed in at the console.", []string{"ID", "NAME", "ROLE", "BY", "SINCE", "SEEN", "ADDRESS"}, func(s operator.SignedIn) []string {
				return []string{s.ID, s.Name, s.Role.String(), s.By, when(s.CreatedAt), when(s.SeenAt), s.Address}
			}}
			return printPage(cmd, limit, shown, func(s operator.SignedIn) string { return s.ID }, func(o *inbox.Operator, size int) ([]operator.SignedIn, error) {
				filter.Limit = size
				return o.Sessions.List(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	addPaging(cmd, &filter.Before, &limit)
	return cmd
}

func newSessionsEnd() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:     "end ID…",
		Short:   "Sign browsers out, at once on all nodes",
		Example: "  inbox sessions list\n  inbox sessions end 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is ended", func(o *inbox.Operator, id string) error {
				return o.Sessions.End(cmd.Context(), id, exchange.SessionOwner{})
			})
		},
	}), sessionIDs)
}
