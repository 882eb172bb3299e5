package main

import (
	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

func newDemands() *cobra.Command {
	parent := &cobra.Command{
		Use:   "demands",
		Short: "List or withdraw demands of agents: consent, logins, payments",
		Long: `An agent may ask back before it goes on: for consent, a login, a payment, or whether two addresses belong to one person. Only the sender
of the message can meet such a demand; others decide "inbox approvals".`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	parent.AddCommand(newDemandsList(), newDemandsWithdraw())
	return parent
}

func newDemandsList() *cobra.Command {
	var agent, before string
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List open demands, the soonest to end first",
		Example: "  inbox demands list --agent shop",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown := table[operator.Demand]{"No demand waits.", []string{"ID", "AGENT", "KIND", "FOR", "TURN", "UNTIL", "TEXT"}, func(d operator.Demand) []string {
				return []string{d.ID, d.Agent, oneLine(d.Kind), oneLine(d.Principal), d.TurnID, when(d.ExpiresAt), excerpt(d.Message)}
			}}
			return printPage(cmd, limit, shown, operator.DemandCursor, func(o *inbox.Operator, size int) ([]operator.Demand, error) {
				return o.Demands.List(cmd.Context(), agent, before, size)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&agent, "agent", "", "only of this agent")
	addPaging(cmd, &before, &limit)
	return cmd
}

func newDemandsWithdraw() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:     "withdraw ID",
		Short:   "End an unanswered demand, and its message",
		Long:    "Ends an unanswered demand, and the message that waits for it. Its sender is told in one sentence.",
		Example: "  inbox demands withdraw 019a2f3b-…",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				if err := o.Demands.Withdraw(cmd.Context(), ids[0], operator.CommandLine); err != nil {
					return err
				}
				return printDone(cmd, ids[0], ids[0]+" is withdrawn.")
			})
		},
	}), demandIDs)
}
