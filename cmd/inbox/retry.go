package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

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
