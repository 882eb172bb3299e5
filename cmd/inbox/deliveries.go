package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/engine/delivery"
)

func newDeliveries() *cobra.Command {
	parent := &cobra.Command{
		Use:   "deliveries",
		Short: "List, retry or cancel deliveries of replies",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newDeliveriesList(), newDeliveriesRetry(), newDeliveriesCancel())
	return parent
}

func newDeliveriesList() *cobra.Command {
	var filter delivery.Filter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List deliveries, newest first",
		Example: "  inbox deliveries list --state dead",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			heading := []string{"ID", "STATE", "TRIES", "AGENT", "TO", "CHANGED", "LAST ANSWER"}
			return printList(cmd, "No deliveries.", heading, func(o *inbox.Operator) ([]delivery.Record, error) {
				return o.Deliveries.List(cmd.Context(), filter)
			}, func(r delivery.Record) []string {
				return []string{r.ID, r.State, strconv.Itoa(r.Attempt), r.Agent, r.Address, when(r.UpdatedAt), r.Reason}
			})
		},
	}
	addJSON(cmd)
	cmd.Flags().StringVar(&filter.State, "state", "", "only this state: pending, sending, delivered, retry, dead, cancelled")
	cmd.Flags().StringVar(&filter.TurnID, "turn", "", "only deliveries of this turn")
	cmd.Flags().StringVar(&filter.Key, "to", "", "only this host or domain")
	cmd.Flags().IntVar(&filter.Limit, "limit", 50, "at most this many, up to 500")
	return cmd
}

func newDeliveriesRetry() *cobra.Command {
	return &cobra.Command{
		Use:   "retry ID…",
		Short: "Send dead or cancelled deliveries again",
		Long: `Puts dead or cancelled deliveries back to work at once, with a fresh schedule. The wire id stays the same, so a
receiver that had the reply already recognises it.`,
		Example: "  inbox deliveries list --state dead\n  inbox deliveries retry 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "will be sent again", func(o *inbox.Operator, id string) error {
				return o.Deliveries.Retry(cmd.Context(), id)
			})
		},
	}
}

func newDeliveriesCancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID…",
		Short: "Stop deliveries that have not been made",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is cancelled", func(o *inbox.Operator, id string) error {
				return o.Deliveries.Cancel(cmd.Context(), id)
			})
		},
	}
}
