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
