package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/operator"
	"inbox/operator/lookup"
	"inbox/operator/takeover"
)

// asFlags say who acts, and in which conversation where an id does not say it.
type asFlags struct{ as, agent string }

func (f *asFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.as, "as", "", "your name, for the other operators and the record (default: command line)")
	cmd.Flags().StringVar(&f.agent, "agent", "", "the agent, where several have a conversation with the id")
}

func (f *asFlags) by() string {
	if f.as == "" {
		return operator.CommandLine
	}
	return "operator:" + f.as
}

func (f *asFlags) conversation(id string) lookup.ConversationID {
	return lookup.ConversationID{ID: id, Agent: f.agent}
}

func newTakeover() *cobra.Command {
	parent := &cobra.Command{
		Use:   "takeover",
		Short: "Write as an agent in a conversation, while the agent is silent",
		Long: `Takes over a conversation from its agent, and hands it back. New messages are accepted as always and wait for you; answer them
with "inbox reply". The answer on which the agent was working is not sent; "inbox show" prints it as a draft.

A conversation is named by its id or by any id that "inbox show" takes of one of its messages. One operator has it at a time.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newTakeoverList(), newTakeoverBegin(), newTakeoverEnd())
	return parent
}

func newTakeoverList() *cobra.Command {
	var filter exchange.TakeoverFilter
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List conversations that operators have taken over, newest first",
		Example: "  inbox takeover list --agent helper",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			heading := []string{"ID", "AGENT", "CONVERSATION", "HOLDER", "SINCE", "ENDED", "WAITING"}
			shown := table[exchange.Takeover]{"No conversation is taken over.", heading, func(t exchange.Takeover) []string {
				ended := ""
				if !t.Open() {
					ended = when(t.EndedAt)
				}
				return []string{t.ID, t.Agent, oneLine(t.ThreadID), oneLine(t.Holder), when(t.Since), ended, strconv.Itoa(t.Waiting)}
			}}
			return printPage(cmd, limit, shown, func(t exchange.Takeover) string { return t.ID }, func(o *inbox.Operator, size int) ([]exchange.Takeover, error) {
				filter.Limit = size
				return o.Takeovers.List(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only conversations of this agent")
	cmd.Flags().StringVar(&filter.Holder, "holder", "", "only those of this operator, as the list names them")
	cmd.Flags().BoolVar(&filter.All, "all", false, "also those that were handed back")
	addPaging(cmd, &filter.Before, &limit)
	return cmd
}

func newTakeoverBegin() *cobra.Command {
	var who asFlags
	var force bool
	cmd := &cobra.Command{
		Use:     "begin ID",
		Short:   "Take a conversation over from its agent",
		Example: "  inbox takeover begin 019a… --as anna",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				open, err := o.Takeovers.Take(cmd.Context(), who.conversation(args[0]), who.by(), force)
				return printTakeover(cmd, open, err)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, threadIDs)
	who.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also when another operator has it; both see it on the timeline")
	return cmd
}

func newTakeoverEnd() *cobra.Command {
	var who asFlags
	var how takeover.HandBack
	cmd := &cobra.Command{
		Use:   "end ID",
		Short: "Hand a conversation back to its agent",
		Long: `Hands a conversation back. The agent answers what still waits, unless you --drop it: then its senders get no answer. The agent's history has your
answers as its own; in its next turn it is told that a person answered, and reads the note, which no one else gets.`,
		Example: `  inbox takeover end 019a… --as anna --note "She gets a refund of 20 EUR; do not offer more."`,
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				ended, err := o.Takeovers.End(cmd.Context(), who.conversation(args[0]), who.by(), how)
				return printTakeover(cmd, ended, err)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, takeoverIDs)
	who.add(cmd)
	cmd.Flags().StringVar(&how.Note, "note", "", "what the agent must know in its next turn")
	cmd.Flags().BoolVar(&how.Drop, "drop", false, "close what still waits without an answer")
	cmd.Flags().BoolVar(&how.Force, "force", false, "also when another operator has it")
	return cmd
}

func printTakeover(cmd *cobra.Command, t exchange.Takeover, err error) error {
	switch {
	case err != nil:
		return err
	case wantsJSON(cmd):
		return printJSON(cmd.OutOrStdout(), t)
	case t.Open():
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s took over conversation %s of %s; %s for an answer\n", t.Holder, t.ThreadID, t.Agent, waits(t.Waiting))
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "conversation %s is handed back to %s\n", t.ThreadID, t.Agent)
	}
	return err
}

func waits(messages int) string {
	if messages == 1 {
		return "1 message waits"
	}
	return strconv.Itoa(messages) + " messages wait"
}

// maxReplyBytes is more than an answer may have, so that one that is too long is refused and not cut.
const maxReplyBytes = 2 << 20

func newReply() *cobra.Command {
	var who asFlags
	var key string
	var markdown, yes bool
	var recipient string
	cmd := &cobra.Command{
		Use:   "reply ID TEXT",
		Short: "Answer a message as its agent",
		Long: `Answers a message as its agent. The running server sends the answer like one of the agent. A message that waits, runs, failed, is held or
was left unanswered gets its answer; one that was answered by mail or on the fediverse gets a further one. The id is any that "inbox show" takes; the id of a
conversation means its newest message that waits for an operator, else its newest one.

The command first prints who gets the answer and, at a terminal, asks whether to send it. Senders choose the ids of their messages: if an id fits
several messages, the command lists them and sends nothing. A script names the recipient with --to, and nothing is sent to anyone else.

If TEXT is "-", it is read from standard input. With the same --key a second call does nothing.`,
		Example: "  inbox reply 019a… \"We have sent the parcel again.\"\n  inbox reply 019a… --markdown - < answer.md",
		Args:    arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply := takeover.WrittenReply{Text: args[1], MIME: normalized.MIMEPlain, Key: key}
			if markdown {
				reply.MIME = normalized.MIMEMarkdown
			}
			if args[1] == "-" {
				text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxReplyBytes))
				if err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
				reply.Text = strings.TrimRight(string(text), "\n")
			}
			if strings.TrimSpace(reply.Text) == "" {
				return usageError{errors.New("the answer is empty\nRun 'inbox reply --help'")}
			}
			return operate(cmd, func(o *inbox.Operator) error {
				to, err := o.Takeovers.Addressee(cmd.Context(), who.conversation(args[0]))
				if err != nil {
					return err
				}
				if err := confirmAddressee(cmd, to, recipient, yes || args[1] == "-"); err != nil {
					return err
				}

				to, err = o.Takeovers.Reply(cmd.Context(), lookup.ConversationID{ID: to.TurnID, Agent: to.Agent}, who.by(), reply)
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), to)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is answered; the answer goes to %s by %s\n", to.TurnID, oneLine(to.To), to.Channel)
				return err
			})
		},
	}

	addJSON(cmd)
	completing(cmd, messageIDs, completed{})
	who.add(cmd)
	cmd.Flags().StringVar(&key, "key", "", "name of this answer, by which a repeat is recognised")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "the answer is Markdown")
	cmd.Flags().BoolVar(&yes, "yes", false, "send without asking")
	cmd.Flags().StringVar(&recipient, "to", "", "send only if the answer goes to this address")
	return cmd
}

// confirmAddressee prints who gets an answer, and asks a person at a terminal whether to send it.
func confirmAddressee(cmd *cobra.Command, to takeover.Addressee, wanted string, yes bool) error {
	if wanted != "" {
		if !identity.SameAddress(wanted, to.To) {
			return usageError{fmt.Errorf("the answer would go to %s, not to %s; nothing was sent", oneLine(to.To), wanted)}
		}
		return nil
	}

	proof := ""
	if !to.Proven {
		proof = " (unproven)"
	}
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "To %s%s by %s, about: %s\n", oneLine(to.To), proof, to.Channel, oneLine(to.About)); err != nil {
		return err
	}
	if len(to.Also) > 0 {
		if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "The message also names %s; the answer may go to them, too.\n", oneLine(strings.Join(to.Also, ", "))); err != nil {
			return err
		}
	}
	if !yes && atTerminalInput(cmd) && !agrees(cmd, "Send?") {
		return errors.New("nothing was sent")
	}
	return nil
}

// atTerminalInput reports whether a person at a terminal can be asked.
func atTerminalInput(cmd *cobra.Command) bool {
	input, is := cmd.InOrStdin().(*os.File)
	return is && isTerminal(input)
}

// agrees asks a person a question; anything but a yes, also the end of the input, is a no.
func agrees(cmd *cobra.Command, question string) bool {
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] "); err != nil {
		return false
	}
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	return err == nil && strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y")
}
