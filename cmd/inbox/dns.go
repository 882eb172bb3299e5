package main

import (
	"github.com/spf13/cobra"

	"inbox"
)

func newDNS() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dns",
		Short: "Print the DNS records that mail of this domain needs",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, func(operator *inbox.Operator) error {
				records, err := operator.DNSRecords(cmd.Context())
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), records)
				}
				rows := make([][]string, 0, len(records))
				for _, r := range records {
					rows = append(rows, []string{r.Name, r.Type, r.Value})
				}
				return printTable(cmd.OutOrStdout(), "Email is off (smtp.listen is empty); no records are needed.", []string{"NAME", "TYPE", "VALUE"}, rows)
			})
		},
	}
	addJSON(cmd)
	return cmd
}
