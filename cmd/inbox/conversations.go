package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

// maxImportFile bounds a file of conversations.
const maxImportFile = 1 << 30

func newExport() *cobra.Command {
	var filter operator.ConversationFilter
	var format, output string
	cmd := &cobra.Command{
		Use:   "export --format agent-framework [--client C | --connector C] [--agent A] [--session ID | --thread ID] [--output FILE]",
		Short: "Write conversations as messages that another system can import",
		Long: `Writes the conversations of bridges and connectors, or with --thread one thread of any way, as JSON: "conversations", each
with session_id, agent and messages of the older agent framework (type, content, timestamp, agent_key, metadata).
What was imported before is written as it came. 'inbox import' and POST /v1/import take it again.`,
		Example: "  inbox export --format agent-framework --client relay > conversations.json\n  inbox export --format agent-framework --agent helper --thread '<root@example.org>'",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "agent-framework" {
				return usageError{fmt.Errorf("--format must be agent-framework\nRun '%s --help'", cmd.CommandPath())}
			}
			return operate(cmd, func(o *inbox.Operator) error {
				documents, err := o.Conversations.Export(cmd.Context(), filter)
				if err != nil {
					return err
				}
				encoded, err := operator.EncodeConversations(documents)
				if err != nil {
					return err
				}
				if output == "" {
					_, err = cmd.OutOrStdout().Write(encoded)
					return err
				}
				if err := os.WriteFile(output, encoded, 0o600); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%d conversations are in %s\n", len(documents), output)
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&format, "format", "", "form of the messages: agent-framework")
	flags.StringVar(&filter.Client, "client", "", "sessions of this bridge alone")
	flags.StringVar(&filter.Connector, "connector", "", "sessions of this connector alone")
	flags.StringVar(&filter.Agent, "agent", "", "conversations with this agent alone")
	flags.StringVar(&filter.Session, "session", "", "this session alone")
	flags.StringVar(&filter.Thread, "thread", "", "one thread of --agent, whichever way it came")
	flags.StringVar(&output, "output", "", "file instead of the standard output")
	return cmd
}

func newImport() *cobra.Command {
	var client, connector, agent string
	cmd := &cobra.Command{
		Use:   "import {--client C | --connector C} [--agent A] FILE",
		Short: "Take over conversations that another system wrote",
		Long: `Stores conversations as sessions of a bridge or connector. FILE (- = standard input) holds what 'inbox export' writes, one
conversation {"agent", "messages": […]}, or a list of messages alone, which needs --agent. All messages are checked first;
a conversation is stored whole or not at all, and storing the same again does nothing.`,
		Example: "  inbox import --client relay conversations.json\n  inbox import --client relay --agent helper - < messages.json",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if (client == "") == (connector == "") {
				return usageError{fmt.Errorf("one of --client and --connector is needed\nRun '%s --help'", cmd.CommandPath())}
			}
			body, err := readFile(cmd, names[0], maxImportFile)
			if err != nil {
				return err
			}
			return printList(cmd, "Nothing was imported.", []string{"SESSION", "AGENT", "MESSAGES", ""}, func(o *inbox.Operator) ([]operator.ImportedConversation, error) {
				return o.Conversations.Import(cmd.Context(), client, connector, agent, body)
			}, func(one operator.ImportedConversation) []string {
				return []string{one.SessionID, one.Agent, fmt.Sprint(one.Messages), map[bool]string{true: "new", false: "was here"}[one.Created]}
			})
		},
	}
	addJSON(cmd)
	cmd.Flags().StringVar(&client, "client", "", "the bridge to which they belong")
	cmd.Flags().StringVar(&connector, "connector", "", "the connector to which they belong")
	cmd.Flags().StringVar(&agent, "agent", "", "the agent of conversations that name none")
	return cmd
}
