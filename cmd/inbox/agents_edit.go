package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/operator"
	"inbox/operator/setup"
)

const takesEffect = "A running server uses it after: inbox reload (or a restart)."

// agentFile is the file that the command line names.
func agentFile(cmd *cobra.Command) (setup.AgentFile, error) {
	path, err := configFile(cmd)
	check := func(settings *inbox.Config) error { return inbox.CheckConfig(cmd.Context(), settings) }
	return setup.AgentFile{Path: path, Environ: os.Environ(), Check: check}, err
}

func newAgentsAdd() *cobra.Command {
	var table setup.AgentTable
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Write a new agent at the end of inbox.toml",
		Long: `Writes a table [[agents]] at the end of inbox.toml; comments and order of the file stay as they are. The file is replaced in one step,
and only if the server could read the new one. For a webhook the command makes a secret in NAME.secret beside the file.

Exit codes: 0 written, 1 refused (with the line that is in the way; nothing is changed), 2 the command line is wrong.`,
		Example: `  inbox agents add helper --kind webhook --backend http://127.0.0.1:9000/
  inbox agents add writer --kind llm --backend http://127.0.0.1:11434/v1 --model small --access verified`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			table.Name = names[0]
			if err := missingOf(table); err != nil {
				return err
			}
			file, err := agentFile(cmd)
			if err != nil {
				return err
			}
			if table.Domain, err = furtherDomain(cmd); err != nil {
				return err
			}
			added, err := file.Add(table)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), added)
			}

			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s is written at the end of %s.\n", added.Agent, added.File)
			if added.SecretFile != "" {
				fmt.Fprintf(out, "Its service checks requests with the secret in %s.\n", added.SecretFile)
			}
			if added.Replaced {
				fmt.Fprintln(out, "The agent echo, which is there while the file names none, is gone with it.")
			}
			fmt.Fprintln(out, takesEffect)
			return nil
		},
	}

	addAgentFlags(cmd, &table)
	addChoice(cmd, &table.Access, "access", "who may talk to it (default public)", "public", "verified", "rules")
	cmd.Flags().StringVar(&table.Summary, "summary", "", "one or two sentences about what it does, for people")
	addJSON(cmd)
	return cmd
}

// missingOf names the flags that a kind of agent needs and that were not given.
func missingOf(table setup.AgentTable) error {
	kind := setup.KindNamed(table.Kind)
	var missing []string
	if table.Kind == "" {
		missing = append(missing, "--kind")
	}
	if kind.BackEnd != "" && !kind.Optional && table.Backend == "" {
		missing = append(missing, "--backend ("+kind.Asks+")")
	}
	if kind.Model && table.Model == "" {
		missing = append(missing, "--model")
	}
	if len(missing) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%s is missing\nRun 'inbox agents add --help'", strings.Join(missing, " and "))}
}

func newAgentsRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an agent from inbox.toml",
		Long: `Removes the table [[agents]] of an agent from inbox.toml, with the tables inside it; the rest of the file stays as it is. The
agent's messages and keys stay in the database: added again, it is the same account. Other servers still know
it; to move its followers, run "inbox move" first.

Exit codes: 0 removed, 1 refused (nothing is changed), 2 the command line is wrong.`,
		Example: "  inbox agents remove helper",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			file, err := agentFile(cmd)
			if err != nil {
				return err
			}
			domain, err := furtherDomain(cmd)
			if err != nil {
				return err
			}
			removed, err := file.Remove(names[0], domain)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), removed)
			}

			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s is taken out of %s.\n", removed.Agent, removed.File)
			fmt.Fprintln(out, "Messages that it got and its keys stay in the database. Withdraw its answers one by one with: inbox delete ID")
			if removed.SecretFile != "" {
				fmt.Fprintf(out, "The file of its secret stays, too: %s\n", removed.SecretFile)
			}
			if removed.Last {
				fmt.Fprintln(out, "The file names no agent now, so the server has the agent echo.")
			}
			fmt.Fprintln(out, takesEffect)
			return nil
		},
	}
	addJSON(cmd)
	completing(cmd, agentNames)
	return cmd
}

// errNotAnswered is the end of a test whose message has no answer.
var errNotAnswered = errors.New("the message was not answered; the lines above say why, and docs/operating.md what to do")

func newAgentsTest() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "test NAME [WORDS…]",
		Short: "Send an agent a message, and print its answer and timeline",
		Long: `Sends one message to an agent of the server that runs here, as another agent would (by A2A, with a token that is valid for this
message alone), and prints the answer, the evidence about the sender, the timeline and the time. The message passes every stage
that a stranger's passes, including rules and limits, and is stored like it.

Exit codes: 0 answered, 1 not answered or not accepted, 2 the command line is wrong.`,
		Example: "  inbox agents test helper what can you do?",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			text := strings.Join(given[1:], " ")
			if text == "" {
				text = "hello"
			}
			return operate(cmd, func(o *inbox.Operator) error {
				tried, err := o.TryAgent(cmd.Context(), given[0], text, wait)
				switch {
				case err != nil:
					return err
				case wantsJSON(cmd):
					err = printJSON(cmd.OutOrStdout(), tried)
				default:
					printTried(cmd.OutOrStdout(), tried)
				}
				if !tried.Answered {
					err = errors.Join(err, notAnswered(tried.Turn))
				}
				return err
			})
		},
	}
	addJSON(cmd)
	completing(cmd, agentNames, completed{})
	cmd.Flags().DurationVar(&wait, "wait", 2*time.Minute, "how long to wait for the answer")
	return cmd
}

// notAnswered says of a message that waits, or is still worked on, that its answer may come.
func notAnswered(turn exchange.TurnRecord) error {
	switch {
	case turn.State == exchange.StateWaiting:
		return fmt.Errorf("the message has no answer yet: it waits (%s); see: inbox show %s, and inbox waiting", oneLine(turn.Reason), turn.ID)
	case !exchange.Settled(turn.State):
		return fmt.Errorf("the message has no answer yet: the agent works on it; see later: inbox show %s, or wait longer with --wait", turn.ID)
	}
	return errNotAnswered
}

func printTried(out io.Writer, tried operator.Tried) {
	turn := tried.Turn
	if turn.Response != nil {
		fmt.Fprintf(out, "%s\n\n", strings.TrimSpace(markup.PlainText(turn.Response.Parts)))
	}
	fmt.Fprintf(out, "State     %s  %s\n", turn.State, oneLine(turn.Reason))
	printFailure(out, turn)
	fmt.Fprintf(out, "Took      %d ms\n", tried.Millis)
	fmt.Fprintf(out, "Turn      %s  (inbox show %s)\n", turn.ID, turn.ID)
	for _, evidence := range turn.Message.Sender.Identities {
		fmt.Fprintf(out, "Evidence  %s is %s, says %s (%s)\n", evidence.Subject, evidence.Assurance, evidence.Issuer, evidence.Method)
	}
	printSpent(out, tried.Spent)
	printTimeline(out, tried.Events)
}
