package main

import (
	"github.com/spf13/cobra"

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
