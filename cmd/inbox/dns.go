package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

func newDNS() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dns",
		Short: "Print the DNS records that mail of this domain needs",
		Long: `Prints every record that mail of this domain needs. A domain or subdomain of its own for agents, such as
agents.example.com, keeps their repute and their mail server apart from those of people.`,
		Example: "  inbox dns --zone >> example.com.zone\n  inbox dns check",
		Args:    arguments(cobra.NoArgs),
		RunE:    printRecords,
	}
	addJSON(cmd)
	addZone(cmd)
	printed := &cobra.Command{Use: "print", Short: "Print the records, as without a subcommand", Args: arguments(cobra.NoArgs), RunE: printRecords}
	addJSON(printed)
	addZone(printed)
	cmd.AddCommand(printed, newDNSCheck())
	return cmd
}

func addZone(cmd *cobra.Command) {
	cmd.Flags().Bool("zone", false, "print lines of a zone file (BIND)")
}

func printRecords(cmd *cobra.Command, _ []string) error {
	return operate(cmd, func(o *inbox.Operator) error {
		records, err := o.DNSRecords(cmd.Context())
		if err != nil {
			return err
		}
		zone, err := cmd.Flags().GetBool("zone")
		switch {
		case err != nil:
			return err
		case wantsJSON(cmd):
			return printJSON(cmd.OutOrStdout(), records)
		case zone:
			for _, r := range records {
				fmt.Fprintln(cmd.OutOrStdout(), r.Zone)
			}
			return nil
		}
		rows := make([][]string, 0, len(records))
		for _, r := range records {
			rows = append(rows, []string{r.Name, r.Type, r.Value})
		}
		return printTable(cmd.OutOrStdout(), "Email is off (smtp.listen is empty); no records are needed.", []string{"NAME", "TYPE", "VALUE"}, rows)
	})
}

func newDNSCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Look the records up and say what is missing", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return examine(cmd, operator.DoctorOptions{DNSOnly: true}) },
	}
	addJSON(cmd)
	return cmd
}
