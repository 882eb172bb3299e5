package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

func newDoctor() *cobra.Command {
	var options operator.DoctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that this server needs and say what to add",
		Long: `Checks database, clock, listeners, certificate, the pages by which others find the agents, every DNS record and reverse
DNS, all through the configured resolver, and whether mail can leave. It changes nothing. Run it where the server runs,
while the server runs. Each line begins with ok, warn (works, but not as well as it could) or fail.

With mail.mode = "mx" it connects once to the mail server of the domain that --probe names, to see whether port 25 is
open outwards; --probe "" leaves that out.

Exit codes: 0 nothing failed, 1 something did.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return examine(cmd, options) },
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&options.Probe, "probe", "gmail.com", "domain whose mail server shows that port 25 is open outwards")
	return cmd
}

func examine(cmd *cobra.Command, options operator.DoctorOptions) error {
	return operate(cmd, func(o *inbox.Operator) error {
		findings, err := o.Doctor(cmd.Context(), options)
		if err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return errors.Join(printJSON(cmd.OutOrStdout(), findings), operator.Unwell(findings))
		}

		for _, one := range findings {
			fmt.Fprintf(cmd.OutOrStdout(), "%-4s  %s: %s\n", one.Status, one.Name, oneLine(one.Detail))
			if one.Remedy != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "      %s\n", one.Remedy)
			}
		}

		return operator.Unwell(findings)
	})
}

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
