package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator/lookup"
)

func newReaders() *cobra.Command {
	var agent string
	cmd := &cobra.Command{
		Use:   "readers ID",
		Short: "Show who can read a conversation, and why",
		Long: `Shows the parties of a conversation: how many of its newest messages each of them can read, wrote and was addressed in. If the agent has
history = "person", addresses that are linked with a party for this agent can read messages, too: LINKED WITH names the party, BY LINK counts the
messages that they can read only because of the link. Operators read everything.

ID is the id of the conversation, or any that "inbox show" takes of one of its messages.`,
		Example: "  inbox readers 019a…\n  inbox readers c-4k2… --agent helper",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				found, err := o.Arrivals.Readers(cmd.Context(), lookup.ConversationID{ID: ids[0], Agent: agent})
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), found)
				}

				fmt.Fprintf(cmd.OutOrStdout(), "Conversation %s of %s: %s, %d of them open to everyone in the conversation\n\n",
					oneLine(found.ThreadID), found.Agent, counted(found.Messages, "message"), found.Open)
				rows := make([][]string, 0, len(found.Readers))
				for _, one := range found.Readers {
					rows = append(rows, []string{
						oneLine(one.Principal), oneLine(cmp.Or(one.Address, "-")), strconv.Itoa(one.Sees), strconv.Itoa(one.Wrote), strconv.Itoa(one.Addressed),
						strconv.Itoa(one.ByLink), oneLine(strings.Join(one.LinkedWith, ", ")),
					})
				}
				return printTable(cmd.OutOrStdout(), "No one can read it.", []string{"PRINCIPAL", "ADDRESS", "READS", "WROTE", "ADDRESSED", "BY LINK", "LINKED WITH"}, rows)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, threadIDs)
	cmd.Flags().StringVar(&agent, "agent", "", "the agent, where several have a conversation with the id")
	return cmd
}
