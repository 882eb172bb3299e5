package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"inbox/operator"
)

func newAccess() *cobra.Command {
	parent := &cobra.Command{
		Use:   "access",
		Short: "Try out who may use an agent",
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
		Short: "Say whether a sender may use an agent, and which rule decides",
		Long: `Holds a sender against the trust list and the agent's rules, as the configuration file has them now; nothing is
sent and no server needs to run. Without --method and --subject the sender proved nothing. Without --issuer the proof
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
	return cmd
}

func printAccess(out io.Writer, question operator.AccessQuestion, answer operator.AccessAnswer) {
	fmt.Fprintf(out, "%s  %s of %s\n", answer.Outcome, question.Purpose, question.Agent)
	switch proof := answer.Evidence; {
	case proof == nil:
		fmt.Fprintln(out, "Evidence  none")
	case answer.Believed:
		fmt.Fprintf(out, "Evidence  %s is %s, says %s (%s)\n", proof.Subject, cmp.Or(proof.Assurance, "-"), proof.Issuer, proof.Method)
	default:
		fmt.Fprintf(out, "Evidence  would not be believed: %s\n", answer.Doubt)
	}
	if answer.Rule > 0 {
		fmt.Fprintf(out, "Decided   by rule %d: %s\n", answer.Rule, answer.Text)
	} else {
		fmt.Fprintf(out, "Decided   by access = %q and unverified = %q, no rule matches\n", answer.Access, answer.Unverified)
	}
	if answer.Reason != "" {
		fmt.Fprintf(out, "Reason    %s\n", strings.TrimPrefix(answer.Code+": "+answer.Reason, ": "))
	}
}
