package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newFollows() *cobra.Command {
	parent := &cobra.Command{
		Use: "follows", Short: "List, accept or reject who wants to follow an agent", Args: arguments(cobra.NoArgs),
		Long: `Where an agent's setting says follows = "hold", whoever wants to follow it waits for you.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newFollowsList(), newFollowsDecide("accept", "Let actors follow an agent", true), newFollowsDecide("reject", "Refuse followers", false))
	return parent
}

func newFollowsList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list AGENT", Short: "List who waits to follow the agent", Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return printList(cmd, "Nobody waits.", []string{"AGENT", "ACTOR", "SINCE"}, func(o *inbox.Operator) ([]operator.PendingFollow, error) {
				return o.Follows.Pending(cmd.Context(), names[0])
			}, func(p operator.PendingFollow) []string {
				return []string{p.Agent, oneLine(p.Actor), when(p.Since)}
			})
		},
	}
	addJSON(cmd)
	return cmd
}

func newFollowsDecide(use, short string, accept bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " AGENT ACTOR…", Short: short, Args: arguments(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				for _, actor := range names[1:] {
					if err := o.Follows.Decide(cmd.Context(), names[0], actor, accept); err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", actor, use)
				}
				return nil
			})
		},
	}
}

func newReports() *cobra.Command {
	parent := &cobra.Command{
		Use: "reports", Short: "List what other servers complained about", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var agent, before string
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "List reports, newest first", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd, "Nobody complained.", []string{"AT", "AGENT", "BY", "TURN", "COMMENT"}, func(o *inbox.Operator) ([]exchange.AuditRecord, error) {
				return o.Audit.Reports(cmd.Context(), agent, before, limit)
			}, func(r exchange.AuditRecord) []string {
				return []string{when(r.At), r.Agent, oneLine(r.Principal), r.TurnID, oneLine(r.Detail)}
			})
		},
	}
	addJSON(list)
	list.Flags().StringVar(&agent, "agent", "", "only about this agent")
	addPaging(list, &before, &limit)
	parent.AddCommand(list)
	return parent
}
