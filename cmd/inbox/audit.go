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
			return printList(cmd, "Nothing was noted.", []string{"AT", "CODE", "AGENT", "WHO", "TURN", "DETAIL"}, func(o *inbox.Operator) ([]exchange.AuditRecord, error) {
				return o.Audit.Records(cmd.Context(), filter)
			}, func(r exchange.AuditRecord) []string {
				return []string{when(r.At), r.Code, r.Agent, oneLine(r.Principal), r.TurnID, oneLine(r.Detail)}
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
