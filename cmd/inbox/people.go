package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newPeople() *cobra.Command {
	parent := &cobra.Command{
		Use:   "people",
		Short: "List or unlink people who proved that several addresses are theirs",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newPeopleList(), newPeopleUnlink())
	return parent
}

func newPeopleList() *cobra.Command {
	var before, who string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List links, both sides together, and people who told an agent to stop",
		Long: `Lists links: two addresses that one agent may treat as one person, because both agreed. Of each side it shows the address
that its evidence proves and the subject of the evidence. A link counts for its agent and for its two sides alone. People who told an
agent to stop follow; an address that nothing proves has a question mark.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			heading := []string{"LINK", "AGENT", "ADDRESS", "SUBJECT", "PROVEN BY", "LINKED", "STOPPED"}
			shown := table[operator.Person]{"No person has linked two addresses, and no one told an agent to stop.", heading, func(p operator.Person) []string {
				return []string{p.PersonID, p.Agent, oneLine(shownAddress(p)), oneLine(p.Subject), oneLine(p.Method), linkedAt(p), strings.Join(p.Stopped, " ")}
			}}
			if err := checkLimit(cmd, limit); err != nil {
				return err
			}
			return operate(cmd, func(o *inbox.Operator) error {
				if who != "" {
					found, err := o.People.OfWithStops(cmd.Context(), who)
					if err != nil {
						return err
					}
					return shown.show(cmd, exchange.NewList(found, ""))
				}
				page, err := o.People.Page(cmd.Context(), before, limit)
				if err != nil {
					return err
				}
				return shown.show(cmd, page)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&who, "who", "", "only links of which a side has this principal, subject or proven address")
	addPaging(cmd, &before, &limit)
	return cmd
}

// shownAddress marks an address that nothing proves.
func shownAddress(p operator.Person) string {
	if stated := p.Stated.String(); p.Address == "" && stated != "" {
		return stated + "?"
	}
	return string(p.Address)
}

// linkedAt leaves out the time of who linked nothing.
func linkedAt(p operator.Person) string {
	if p.PersonID == "" {
		return ""
	}
	return when(p.LinkedAt)
}

func newPeopleUnlink() *cobra.Command {
	var agent string
	cmd := &cobra.Command{
		Use:   "unlink WHO… [--agent A]",
		Short: "End the links of an address",
		Long: `Ends the links of an address with others: from then on its conversations are separate again. WHO is a side's subject,
proven address or principal, as "inbox people list" shows them. Without --agent the links for all agents end. An agent keeps what it has
already seen. People end their links themselves with a message to the agent that is only the word "unlink".`,
		Example: "  inbox people unlink mailto:alice@example.org\n  inbox people unlink @alice@example.org --agent memory",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return eachNamed(cmd, names, "is unlinked", func(o *inbox.Operator, name string) (string, error) {
				return o.People.UnlinkNamed(cmd.Context(), agent, name, operator.CommandLine)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, linkedPeople)
	cmd.Flags().StringVar(&agent, "agent", "", "only the links for this agent")
	return cmd
}

func newAccess() *cobra.Command {
	parent := &cobra.Command{
		Use:   "access",
		Short: "Test who may use an agent",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newAccessCheck())
	return parent
}

func newAccessCheck() *cobra.Command {
	var question operator.AccessQuestion
	cmd := &cobra.Command{
		Use:   "check --agent A [flags]",
		Short: "Show whether a sender may use an agent, and which rule decides",
		Long: `Checks a sender against the trust list and the agent's rules, as the configuration file has them now. It sends
nothing, and no server needs to run. Without --method and --subject the sender proved nothing. Without --issuer the proof
is one that this server checked itself, such as a signed mail.`,
		Example: `  inbox access check --agent helper --address @alice@example.org
  inbox access check --agent helper --method email-dmarc --subject mailto:alice@example.org --address @alice@example.org
  inbox access check --agent helper --issuer chat.example --method slack-workspace-member --subject slack:T123/U456 --purpose tool:search`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if question.Agent == "" {
				return usageError{fmt.Errorf("--agent is missing\nRun '%s --help'", cmd.CommandPath())}
			}

			config, err := load(cmd)
			if err != nil {
				return err
			}

			answer, err := operator.CheckAccess(config, question)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), answer)
			}

			printAccess(cmd.OutOrStdout(), question, answer)
			return nil
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&question.Agent, "agent", "", "the agent")
	cmd.Flags().StringVar(&question.Purpose, "purpose", "message", "message, tool:<name> or skill:<id>")
	cmd.Flags().StringVar(&question.Address, "address", "", "the sender's address as stated")
	cmd.Flags().StringVar(&question.Issuer, "issuer", "", "who vouches for the sender; default: this server")
	cmd.Flags().StringVar(&question.Method, "method", "", "how the sender was proven: a URN, or its name alone such as email-dmarc")
	cmd.Flags().StringVar(&question.Subject, "subject", "", "whom the proof names")
	cmd.Flags().StringVar(&question.Assurance, "assurance", "", "how far the proof goes; default: as usual for the method")
	cmd.Flags().BoolVar(&question.Automatic, "automatic", false, "the message is automatic mail, such as a vacation notice")
	return cmd
}

func printAccess(out io.Writer, question operator.AccessQuestion, answer operator.AccessAnswer) {
	printLinef(out, "%s  %s of %s", answer.Outcome, question.Purpose, question.Agent)
	switch proof := answer.Evidence; {
	case proof == nil:
		fmt.Fprintln(out, "Evidence  none")
	case answer.Believed:
		printLinef(out, "Evidence  %s is %s, says %s (%s)", proof.Subject, cmp.Or(proof.Assurance, "-"), proof.Issuer, proof.Method)
	default:
		printLinef(out, "Evidence  would be rejected: %s", answer.Doubt)
	}

	if answer.Rule > 0 {
		printLinef(out, "Decided   by rule %d: %s", answer.Rule, answer.Text)
	} else {
		printLinef(out, "Decided   by access = %q and unverified = %q, no rule matches", answer.Access, answer.Unverified)
	}

	if answer.Reason != "" {
		printLinef(out, "Reason    %s", strings.TrimPrefix(answer.Code+": "+answer.Reason, ": "))
	}
}

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

func auditCursor(record exchange.AuditRecord) string { return record.ID }

func newAuditList() *cobra.Command {
	var filter exchange.AuditFilter
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List decisions about trust, newest first",
		Long: `Lists refusals and grants with their reasons: rejected evidence (evidence:…, credential:…), senders
who were kept out (access:…), how demands ended (demand:…) and attempts on them that failed (state:…). Records are kept
for 90 days.`,
		Example: "  inbox audit list --code 'evidence:*'\n  inbox audit list --turn 019a…",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown := table[exchange.AuditRecord]{"Nothing was noted.", []string{"AT", "CODE", "AGENT", "WHO", "TURN", "DETAIL"}, func(r exchange.AuditRecord) []string {
				return []string{when(r.At), r.Code, r.Agent, oneLine(r.Principal), r.TurnID, oneLine(r.Detail)}
			}}
			return printPage(cmd, limit, shown, auditCursor, func(o *inbox.Operator, size int) ([]exchange.AuditRecord, error) {
				filter.Limit = size
				return o.Audit.Records(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&filter.Code, "code", "", "only this code; with * at the end all codes with this beginning")
	cmd.Flags().StringVar(&filter.TurnID, "turn", "", "only records of this turn")
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only records of this agent")
	addPaging(cmd, &filter.Before, &limit)
	return cmd
}
