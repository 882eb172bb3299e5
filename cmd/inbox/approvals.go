package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newApprovals() *cobra.Command {
	parent := &cobra.Command{
		Use:   "approvals",
		Short: "List, show, approve, deny or edit approvals",
		Long: `An agent that needs an approval waits until you decide, or one of the approvers whom its configuration names.
Where approve_replies is set, finished answers wait in the same way. An approval is named by its id or its code.
It is decided once.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	parent.AddCommand(newApprovalsList(), newApprovalsShow(), newApprovalsApprove(), newApprovalsDeny(), newApprovalsEdit())
	return parent
}

func newApprovalsList() *cobra.Command {
	var filter exchange.ApprovalFilter
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List what waits for a decision, newest first",
		Example: "  inbox approvals list --agent helper\n  inbox approvals list --all --json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			heading := []string{"ID", "CODE", "AGENT", "STATUS", "WHAT", "ASKED BY", "UNTIL", "SUMMARY"}
			shown := table[exchange.Approval]{"Nothing waits for a decision.", heading, func(a exchange.Approval) []string {
				return []string{a.ID, a.Code, a.Agent, a.Status, a.Kind, oneLine(a.Asker), when(a.ExpiresAt), excerpt(a.Summary)}
			}}
			return printPage(cmd, limit, shown, func(a exchange.Approval) string { return a.ID }, func(o *inbox.Operator, size int) ([]exchange.Approval, error) {
				filter.Limit = size
				return o.Approvals.Approvals(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only of this agent")
	cmd.Flags().BoolVar(&filter.All, "all", false, "also what was decided")
	addPaging(cmd, &filter.Before, &limit)
	return cmd
}

func newApprovalsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one approval in full",
		Example: "  inbox approvals show 7k3mq2",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return onApproval(cmd, func(o *inbox.Operator) (exchange.Approval, error) {
				return o.Approvals.Approval(cmd.Context(), ids[0])
			}, showApproval)
		},
	}

	addJSON(cmd)
	completing(cmd, approvalIDs)
	return cmd
}

// onApproval does something about one approval and prints what became of it.
func onApproval(
	cmd *cobra.Command, do func(*inbox.Operator) (exchange.Approval, error), say func(io.Writer, exchange.Approval),
) error {
	return operate(cmd, func(o *inbox.Operator) error {
		found, err := do(o)
		if err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd.OutOrStdout(), found)
		}
		say(cmd.OutOrStdout(), found)
		return nil
	})
}

func showApproval(out io.Writer, a exchange.Approval) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%-11s %s\n", name, value)
		}
	}

	line("id", a.ID)
	line("code", a.Code)
	line("agent", a.Agent)
	line("what", a.Kind)
	line("tool", oneLine(a.Tool))
	line("action", oneLine(a.ActionID))
	line("status", a.Status)
	line("decided by", oneLine(a.DecidedBy))
	line("reason", oneLine(a.Reason))
	line("asked by", oneLine(a.Asker+" ("+a.Principal+", "+a.Via+")"))
	line("turn", a.TurnID)
	line("asked", when(a.IssuedAt))
	line("until", when(a.ExpiresAt))
	block := func(name, text string) {
		if text != "" {
			fmt.Fprintf(out, "\n%s:\n%s\n", name, quoteLines(text))
		}
	}

	line("digest", a.Digest)
	if a.Draft == nil {
		block("Preview", jsonOf(a.Preview))
		block("Input", jsonOf(a.ApplyInput))
		block("Hosts in letters beyond ASCII, as they are looked up", strings.Join(a.Hosts, "\n"))
		block("The agent says", a.Summary) // after the call, so that no sentence stands for it
	} else {
		block("The answer", a.DraftText)
		block("Hosts in letters beyond ASCII, as they are looked up", strings.Join(a.Hosts, "\n"))
		line("edited by", oneLine(a.EditedBy))
	}
	block("The message begins", a.Question)
}

func jsonOf(value json.RawMessage) string {
	if len(value) == 0 {
		return ""
	}
	var indented bytes.Buffer
	if json.Indent(&indented, value, "", "  ") != nil {
		return string(value)
	}
	return indented.String()
}

// quoteLines keeps what strangers wrote apart from our own lines, without what a terminal would obey.
func quoteLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		lines[i] = "  | " + indent + oneLine(line)
	}
	return strings.Join(lines, "\n")
}

func newApprovalsApprove() *cobra.Command {
	var yes bool
	var digest string
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Approve an action or an answer",
		Long: `Prints what is to be approved, like show, and asks at a terminal whether to approve it. A code names a text too: an edit makes a new code, and
the old one approves nothing.

A script that has read the approval (show --json) passes its digest: if the approval changed since, nothing is approved. Elsewhere than at
a terminal, and with --yes, the command approves what it prints.`,
		Example: "  inbox approvals approve 7k3mq2\n  inbox approvals approve --digest 6f3c… 7k3mq2",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return onApproval(cmd, func(o *inbox.Operator) (exchange.Approval, error) {
				if digest != "" {
					return o.Approvals.Approve(cmd.Context(), ids[0], digest, operator.CommandLine)
				}
				read, err := o.Approvals.Approvable(cmd.Context(), ids[0], operator.CommandLine)
				if err == nil {
					err = confirmApproval(cmd, read, yes)
				}
				if err != nil {
					return read, err
				}
				return o.Approvals.Approve(cmd.Context(), ids[0], read.Digest, operator.CommandLine)
			}, func(out io.Writer, a exchange.Approval) {
				fmt.Fprintf(out, "%s is approved; %s\n", a.ID, map[string]string{
					exchange.ApprovalReply: "the answer is sent", exchange.ApprovalAction: "the agent goes on",
				}[a.Kind])
			})
		},
	}

	addJSON(cmd)
	completing(cmd, approvalIDs)
	cmd.Flags().BoolVar(&yes, "yes", false, "approve without asking")
	cmd.Flags().StringVar(&digest, "digest", "", "approve only if the approval still has this digest; nothing is printed or asked")
	return cmd
}

// confirmApproval prints what would be approved, and asks a person at a terminal whether to approve it.
func confirmApproval(cmd *cobra.Command, read exchange.Approval, yes bool) error {
	showApproval(cmd.ErrOrStderr(), read)
	if !yes && atTerminalInput(cmd) && !agrees(cmd, "\nApprove?") {
		return errors.New("nothing was approved")
	}
	return nil
}

func newApprovalsDeny() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "deny ID",
		Short: "Deny an action or an answer",
		Long: `Denies an approval. The asker of an action is told that it was not approved, with the reason if you give one. A
held answer is not sent; with a reason, the reason is sent instead.`,
		Example: "  inbox approvals deny 7k3mq2\n  inbox approvals deny --reason \"We do not refund after 30 days.\" 7k3mq2",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return onApproval(cmd, func(o *inbox.Operator) (exchange.Approval, error) {
				return o.Approvals.Deny(cmd.Context(), ids[0], operator.CommandLine, reason)
			}, func(out io.Writer, a exchange.Approval) { fmt.Fprintf(out, "%s is denied\n", a.ID) })
		},
	}

	addJSON(cmd)
	completing(cmd, approvalIDs)
	cmd.Flags().StringVar(&reason, "reason", "", "what the asker is told, at most 500 bytes")
	return cmd
}

// maxTextFile bounds a file with the text of an answer.
const maxTextFile = 4 << 20

func newApprovalsEdit() *cobra.Command {
	var text, file string
	cmd := &cobra.Command{
		Use:   "edit ID",
		Short: "Change the text of an answer before you approve it",
		Long: `Replaces the text of a held answer; its files and recipients stay. It still waits for your decision
afterwards. An answer in Markdown is replaced by Markdown.`,
		Example: "  inbox approvals edit --text \"We open at nine.\" 7k3mq2\n  inbox approvals edit --file answer.md 7k3mq2",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			wanted, err := replacement(cmd, text, file)
			if err != nil {
				return err
			}
			return onApproval(cmd, func(o *inbox.Operator) (exchange.Approval, error) {
				return o.Approvals.EditReply(cmd.Context(), ids[0], operator.CommandLine, wanted)
			}, func(out io.Writer, a exchange.Approval) {
				fmt.Fprintf(out, "%s has the new text; approve it with: inbox approvals approve %s\n", a.ID, a.Code)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, approvalIDs)
	cmd.Flags().StringVar(&text, "text", "", "the new text")
	cmd.Flags().StringVar(&file, "file", "", "file with the new text; - = standard input")
	return cmd
}

// replacement reads the new text.
func replacement(cmd *cobra.Command, text, file string) (string, error) {
	switch {
	case (text == "") == (file == ""):
		return "", usageError{fmt.Errorf("give the new text by --text or --file\nRun '%s --help'", cmd.CommandPath())}
	case file == "":
		return text, nil
	}

	content, err := readFile(cmd, file, maxTextFile+1)
	if err == nil && len(content) > maxTextFile {
		err = errors.New(file + ": is over 4 MiB")
	}
	return string(content), err
}
