package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

func newAgentsWhy() *cobra.Command {
	var question operator.AccessQuestion
	var channel string
	cmd := &cobra.Command{
		Use:   "why AGENT ADDRESS",
		Short: "Show whether an agent would admit a sender, check by check",
		Long: `Checks a sender against the block list, the agent's pause, its setting for senders without proof and its rules, in the
order of the server, and prints each result. It sends and stores nothing. Without --proof and --channel the sender
proved nothing. It does not check limits on how much a sender may send. "inbox access check" reads only the configuration.`,
		Example: "  inbox agents why helper @alice@example.org --channel email\n  inbox agents why helper @alice@example.org --proof ap-http-signature --subject https://example.org/users/alice",
		Args:    arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			question.Agent, question.Address = given[0], given[1]
			return operate(cmd, func(o *inbox.Operator) error {
				answer, err := o.Why(cmd.Context(), question, channel)
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), answer)
				}

				out := cmd.OutOrStdout()
				printAccess(out, question, answer)
				fmt.Fprintln(out)
				rows := make([][]string, 0, len(answer.Steps))
				for _, step := range answer.Steps {
					check := step.Check
					if step.Rule > 0 {
						check = fmt.Sprintf("%s %d", check, step.Rule)
					}
					rows = append(rows, []string{check, string(step.Result), oneLine(step.Detail)})
				}
				return printTable(out, "Nothing was asked.", []string{"CHECK", "RESULT", "DETAIL"}, rows)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, agentNames, completed{})
	cmd.Flags().StringVar(&question.Purpose, "purpose", "message", "message, tool:<name> or skill:<id>")
	addChoice(cmd, &channel, "channel", "the channel, which proves its senders in its own way", inbox.ChannelNames()...)
	cmd.Flags().StringVar(&question.Method, "proof", "", "how the sender was proven: a URN, or its name alone such as email-dmarc")
	cmd.Flags().StringVar(&question.Subject, "subject", "", "whom the proof names; default: what follows from the address")
	cmd.Flags().StringVar(&question.Issuer, "issuer", "", "who vouches for the sender; default: this server")
	cmd.Flags().StringVar(&question.Assurance, "assurance", "", "how far the proof goes; default: as usual for the method")
	cmd.Flags().BoolVar(&question.Automatic, "automatic", false, "the message is automatic mail, such as a vacation notice")
	return cmd
}
