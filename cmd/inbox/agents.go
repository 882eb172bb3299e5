package main

import (
	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newAgents() *cobra.Command {
	parent := &cobra.Command{
		Use:   "agents",
		Short: "List the agents of this server, or let one rest",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "List agents with their addresses",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := load(cmd)
			if err != nil {
				return err
			}
			agents := operator.ConfiguredAgents(config)
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), agents)
			}
			rows := make([][]string, 0, len(agents))
			for _, a := range agents {
				rows = append(rows, []string{a.Name, a.Kind, a.Address, a.Access, a.Unverified, a.Summary})
			}
			return printTable(cmd.OutOrStdout(), "No agents.", []string{"NAME", "KIND", "ADDRESS", "ACCESS", "UNVERIFIED", "SUMMARY"}, rows)
		},
	}
	addJSON(list)
	parent.AddCommand(list, newAgentsPause(), newAgentsResume())
	return parent
}

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
			if len(names) == 0 {
				return printList(cmd, "No agent is paused.", []string{"NAME", "SINCE", "REASON"}, func(o *inbox.Operator) ([]exchange.ListEntry, error) {
					return o.Pauses.List(cmd.Context())
				}, func(p exchange.ListEntry) []string {
					return []string{p.Target, when(p.CreatedAt), excerpt(p.Reason)}
				})
			}
			return each(cmd, names, "is paused", func(o *inbox.Operator, name string) error {
				return o.Pauses.Begin(cmd.Context(), name, reason)
			})
		},
	}
	addJSON(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func newAgentsResume() *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME…", Short: "Let paused agents work again", Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return each(cmd, names, "works again", func(o *inbox.Operator, name string) error {
				return o.Pauses.End(cmd.Context(), name)
			})
		},
	}
}
