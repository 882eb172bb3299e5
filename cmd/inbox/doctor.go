package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/identity"
	"inbox/operator/doctor"
	"inbox/operator/setup"
)

// waitUsually is how long doctor --wait without a time waits.
const waitUsually = 10 * time.Minute

func newDoctor() *cobra.Command {
	var options doctor.Options
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that this server needs and show what to add",
		Long: `Checks database, clock, listeners and ports, certificate, the pages by which others find the agents, the back end of each
agent and its tools (it starts MCP servers; no agent makes a run), every DNS record and reverse DNS, all through the
configured resolver, whether mail can leave, and whether a mail that is signed with the real key would pass SPF, DKIM and
DMARC at a recipient. It changes nothing and sends nothing. Run it on the machine of the server, while the server runs. Each line
begins with ok, warn (works, but not as well as it could) or fail.

With mail.mode = "mx" it connects once to the mail server of the domain that --probe names, to see whether port 25 is
open outwards; --probe "" skips that. With "smarthost" it logs in at the relay and offers a sender of your domain,
but no mail; inbox mail send-test sends one. It contacts no other service.

--wait repeats the failed checks until all pass or the time is over (10m by default), and prints on standard
error what it waits for.

Exit codes: 0 nothing failed, 1 something did, with --wait also at the end of the time, 2 the command line is wrong.`,
		Example: "  inbox doctor\n  inbox doctor --wait 30m --json",
		Args: arguments(func(cmd *cobra.Command, given []string) error {
			if !cmd.Flags().Changed("wait") {
				return cobra.NoArgs(cmd, given)
			}
			return cobra.MaximumNArgs(1)(cmd, given)
		}),
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(given) == 1 { // --wait 30m: a flag whose value may be missing does not take the next word
				var err error
				if wait, err = time.ParseDuration(given[0]); err != nil || wait <= 0 {
					return usageError{fmt.Errorf("--wait: %q is no time such as 10m", given[0])}
				}
			}
			return examine(cmd, options, wait)
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&options.Probe, "probe", "gmail.com", "domain whose mail server shows that port 25 is open outwards")
	cmd.Flags().DurationVar(&wait, "wait", 0, "repeat failed checks, for at most this time")
	cmd.Flags().Lookup("wait").NoOptDefVal = waitUsually.String()
	return cmd
}

// examine looks at every domain of the server, or at the one that the command line names.
func examine(cmd *cobra.Command, options doctor.Options, wait time.Duration) error {
	domains, err := loadEach(cmd)
	if err != nil {
		return err
	}

	end := time.Now().Add(wait)
	findings := []doctor.Finding{}
	for _, config := range domains {
		err := operateOn(cmd, config, func(o *inbox.Operator) error {
			found, err := o.Doctor.ExamineUntil(cmd.Context(), options, time.Until(end), func(found []doctor.Finding, next time.Duration) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s  waiting for: %s; again in %s\n", time.Now().Format(time.TimeOnly), failing(found), next)
			})
			for _, one := range found {
				if len(domains) > 1 {
					one.Name = config.Domain + ": " + one.Name
				}
				findings = append(findings, one)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if wantsJSON(cmd) {
		return errors.Join(printJSON(cmd.OutOrStdout(), exchange.NewList(findings, "")), doctor.Unwell(findings))
	}

	for _, one := range findings {
		fmt.Fprintf(cmd.OutOrStdout(), "%-4s  %s: %s\n", one.Status, one.Name, oneLine(one.Detail))
		if one.Remedy != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "      %s\n", strings.ReplaceAll(one.Remedy, "\n", "\n      "))
		}
	}
	return doctor.Unwell(findings)
}

// failing names what fails.
func failing(findings []doctor.Finding) string {
	var names []string
	for _, one := range findings {
		if one.Failed() {
			names = append(names, oneLine(one.Name))
		}
	}
	return strings.Join(names, ", ")
}

func newDNS() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dns",
		Short: "Print the DNS records that mail of this domain needs",
		Long: `Prints every record that mail of this domain needs, with the public addresses of this machine's interfaces. Behind NAT or
a balancer, give the public address by --address; an unknown address is left as <…> to fill in. A separate domain or subdomain
for agents, such as agents.example.com, keeps their reputation and their mail server apart from those of people. DMARC begins with
p=none; the steps to p=reject are printed below the records. With apex = "elsewhere" it also prints the redirects for the web server of the domain.`,
		Example: "  inbox dns --zone >> example.com.zone\n  inbox dns check",
		Args:    arguments(cobra.NoArgs),
		RunE:    printRecords,
	}

	addJSON(cmd)
	addRecordFlags(cmd)
	printed := &cobra.Command{Use: "print", Short: "Print the records, as without a subcommand", Args: arguments(cobra.NoArgs), RunE: printRecords}
	addJSON(printed)
	addRecordFlags(printed)
	cmd.AddCommand(printed, newDNSCheck())
	return cmd
}

func addRecordFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("zone", false, "print lines of a zone file (BIND)")
	cmd.Flags().StringSlice("address", nil, "public address of this machine, instead of those of its interfaces")
}

func printRecords(cmd *cobra.Command, _ []string) error {
	named, err := cmd.Flags().GetStringSlice("address")
	if err != nil {
		return err
	}
	addresses, _, err := publicAddresses(named)
	if err != nil {
		return err
	}
	domains, err := loadEach(cmd)
	if err != nil {
		return err
	}

	records := []doctor.DNSRecord{}
	var steps []doctor.Step
	for _, config := range domains {
		if config.Development {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is a name of this machine alone: no records are published in development mode\n", identity.HostOf(config.Domain))
			continue
		}
		err := operateOn(cmd, config, func(o *inbox.Operator) error {
			found, err := o.Doctor.DNSRecords(cmd.Context())
			steps = append(steps, doctor.DMARCSteps(found)...)
			if len(found) > 0 || config.Apex == setup.ApexElsewhere {
				found = doctor.FirstRecords(found, config, addresses)
			}
			for _, one := range found {
				if !slices.Contains(records, one) { // domains may share a mail server
					records = append(records, one)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}

	zone, err := cmd.Flags().GetBool("zone")
	switch {
	case err != nil:
		return err
	case wantsJSON(cmd):
		return printJSON(cmd.OutOrStdout(), exchange.NewList(records, ""))
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
	if err := printTable(cmd.OutOrStdout(), "Email is off (smtp.listen is empty); no records are needed.", []string{"NAME", "TYPE", "VALUE"}, rows); err != nil {
		return err
	}
	printDMARC(cmd.OutOrStdout(), steps[:min(len(steps), 3)])
	for _, config := range domains {
		printRedirects(cmd.OutOrStdout(), config.Domain, doctor.Redirects(config))
	}
	return nil
}

func newDNSCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Look up the records and show what is missing", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return examine(cmd, doctor.Options{DNSOnly: true}, 0)
		},
	}
	addJSON(cmd)
	return cmd
}
