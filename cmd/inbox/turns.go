package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/operator"
)

func newHeld() *cobra.Command {
	parent := &cobra.Command{
		Use:   "held",
		Short: "List, release or drop messages that wait for you",
		Long: `Messages of senders who proved nothing about themselves are held where the agent's setting says
unverified = "hold". Nothing happens to them until you release or drop them.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	parent.AddCommand(newHeldList(), newHeldRelease(), newHeldDrop())
	return parent
}

func newHeldList() *cobra.Command {
	var agent, before string
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List held messages, newest first",
		Example: "  inbox held list --agent helper",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			heading := []string{"ID", "AGENT", "FROM", "BY", "RECEIVED", "EXPIRES", "TEXT"}
			return printList(cmd, "No messages are held.", heading, func(o *inbox.Operator) ([]exchange.TurnRecord, error) {
				return o.Held.List(cmd.Context(), agent, before, limit)
			}, func(t exchange.TurnRecord) []string {
				text := excerpt(normalized.PlainText(t.Message.Parts))
				return []string{t.ID, t.Agent, t.Message.Sender.Address, t.Message.ReceivedVia, when(t.AcceptedAt), expiry(t), text}
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&agent, "agent", "", "only messages to this agent")
	addPaging(cmd, &before, &limit)
	return cmd
}

// expiry is when a held message is refused by itself.
func expiry(t exchange.TurnRecord) string {
	if t.ExpiresAt == nil {
		return "never"
	}
	return when(*t.ExpiresAt)
}

func newHeldRelease() *cobra.Command {
	return &cobra.Command{
		Use:     "release ID…",
		Short:   "Let the agent answer held messages",
		Example: "  inbox held list\n  inbox held release 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is released and will be answered", func(o *inbox.Operator, id string) error {
				return o.Held.Release(cmd.Context(), id)
			})
		},
	}
}

func newHeldDrop() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "drop ID…",
		Short:   "Refuse held messages",
		Long:    "Refuses held messages. They are kept with the reason, and the agent never sees them.",
		Example: "  inbox held drop --reason spam 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is dropped", func(o *inbox.Operator, id string) error {
				return o.Held.Drop(cmd.Context(), id, reason)
			})
		},
	}

	cmd.Flags().StringVar(&reason, "reason", "dropped by the operator", "why, for the record")
	return cmd
}

func newRetry() *cobra.Command {
	var agent, since string
	var failed, dryRun bool
	cmd := &cobra.Command{
		Use:   "retry [ID…]",
		Short: "Run failed messages again",
		Long: `Lets the agent answer messages on which it failed: those with the ids, or all that failed lately. Their senders have
read an apology by then; the answer is a further reply in the same conversation. A task of A2A whose failure was fetched
has ended and cannot be answered any more. Messages run behind what arrived in their conversations meanwhile, a few a
second. The same command a second time does nothing, unless a message has failed again.`,
		Example: "  inbox retry 019a…\n  inbox retry --agent helper --failed --since 2h --dry-run\n  inbox retry --failed --since 2026-05-01T12:00:00Z",
		Args:    arguments(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if len(ids) > 0 == failed || len(ids) > 0 && (agent != "" || since != "" || dryRun) {
				return usageError{errors.New("give ids of messages, or --failed with --since and perhaps --agent\nRun 'inbox retry --help'")}
			}
			if !failed {
				return retryTurns(cmd, ids)
			}

			after, err := operator.SinceTime(since, time.Now())
			if err != nil {
				return usageError{fmt.Errorf("--since: %w\nRun 'inbox retry --help'", err)}
			}

			return operate(cmd, func(o *inbox.Operator) error {
				result, err := o.Messages.RetryFailed(cmd.Context(), exchange.RetryFilter{Agent: agent, Since: after}, operator.CommandLine, dryRun)
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), result)
				}
				return printRetried(cmd, result, dryRun)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().BoolVar(&failed, "failed", false, "all messages that failed; needs --since")
	cmd.Flags().StringVar(&agent, "agent", "", "only messages to this agent")
	cmd.Flags().StringVar(&since, "since", "", "only those that failed within this time, such as 2h, or after this moment (RFC 3339)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would run, and change nothing")
	return cmd
}

func retryTurns(cmd *cobra.Command, ids []string) error {
	return operate(cmd, func(o *inbox.Operator) error {
		result := exchange.RetryResult{Turns: []exchange.RetriedTurn{}}
		for _, id := range ids {
			if err := o.Messages.Retry(cmd.Context(), id, operator.CommandLine); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			result.Retried++
			result.Turns = append(result.Turns, exchange.RetriedTurn{ID: id})
			if !wantsJSON(cmd) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s will be run again\n", id)
			}
		}

		if wantsJSON(cmd) {
			return printJSON(cmd.OutOrStdout(), result)
		}

		return nil
	})
}

func printRetried(cmd *cobra.Command, result exchange.RetryResult, dryRun bool) error {
	done := "run again"
	if dryRun {
		done = "would run again"
	}

	rows := make([][]string, 0, len(result.Turns))
	for _, t := range result.Turns {
		what := done
		if t.Skipped != "" {
			what = "left: " + t.Skipped
		}
		rows = append(rows, []string{t.ID, t.Agent, oneLine(t.Sender), when(t.FailedAt), what, excerpt(t.Failure)})
	}

	out := cmd.OutOrStdout()
	if err := printTable(out, "No message failed in that time.", []string{"ID", "AGENT", "FROM", "FAILED", "NOW", "WHY IT FAILED"}, rows); err != nil {
		return err
	}

	if result.More {
		fmt.Fprintln(out, "There are more: give the same command again.")
	}

	return nil
}
