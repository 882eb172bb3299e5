package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
)

func newAgentsPause() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "pause [NAME…]",
		Short: "Let agents rest: they take nothing, and what they have taken waits",
		Long: `Lets agents rest until "inbox agents resume". Mail to them is refused with 550 5.2.1, everybody else hears 503 and a time
to come again; messages that were accepted and are not answered yet wait. A server that runs notices within seconds.
Without NAME it shows who rests.`,
		Example: "  inbox agents pause helper --reason 'new model'",
		RunE: func(cmd *cobra.Command, names []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				if len(names) == 0 {
					return printPaused(cmd, o)
				}
				for _, name := range names {
					if err := o.Pauses.Begin(cmd.Context(), name, reason); err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s is paused\n", name)
				}
				return nil
			})
		},
	}
	addJSON(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func printPaused(cmd *cobra.Command, o *inbox.Operator) error {
	paused, err := o.Pauses.List(cmd.Context())
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), paused)
	}
	rows := make([][]string, 0, len(paused))
	for _, p := range paused {
		rows = append(rows, []string{p.Target, when(p.CreatedAt), excerpt(p.Reason)})
	}
	return printTable(cmd.OutOrStdout(), "No agent is paused.", []string{"NAME", "SINCE", "REASON"}, rows)
}

func newAgentsResume() *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME…", Short: "Let paused agents work again", Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				for _, name := range names {
					if err := o.Pauses.End(cmd.Context(), name); err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s works again\n", name)
				}
				return nil
			})
		},
	}
}
