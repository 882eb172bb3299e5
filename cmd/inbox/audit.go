package main

import (
	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
)

func newAudit() *cobra.Command {
	parent := &cobra.Command{
		Use:   "audit",
		Short: "List decisions about trust",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newAuditList())
	return parent
}

func newAuditList() *cobra.Command {
	var filter exchange.AuditFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List decisions about trust, newest first",
		Long: `Lists what was refused or granted and why: evidence that was not believed (evidence:…, credential:…), senders
who were kept out (access:…), how demands ended (demand:…) and attempts on them that failed (state:…). Records are kept
for 90 days.`,
		Example: "  inbox audit list --code 'evidence:*'\n  inbox audit list --turn 019a…",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				records, err := o.Audit.Records(cmd.Context(), filter)
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), records)
				}
				rows := make([][]string, 0, len(records))
				for _, r := range records {
					rows = append(rows, []string{when(r.At), r.Code, r.Agent, oneLine(r.Principal), r.TurnID, oneLine(r.Detail)})
				}
				return printTable(cmd.OutOrStdout(), "Nothing was noted.", []string{"AT", "CODE", "AGENT", "WHO", "TURN", "DETAIL"}, rows)
			})
		},
	}
	addJSON(cmd)
	cmd.Flags().StringVar(&filter.Code, "code", "", "only this code; with * at the end all that begin so")
	cmd.Flags().StringVar(&filter.TurnID, "turn", "", "only records of this turn")
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only records of this agent")
	addPaging(cmd, &filter.Before, &filter.Limit)
	return cmd
}
