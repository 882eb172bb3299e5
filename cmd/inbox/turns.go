package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/operator"
)

func newHeld() *cobra.Command {
	parent := &cobra.Command{
		Use:   "held",
		Short: "List, release or drop messages that wait for you",
		Long: `Messages of senders without proof are held if the agent has unverified = "hold".
Nothing happens to them until you release or drop them.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	parent.AddCommand(newHeldList(), newHeldRelease(), newHeldDrop(), newHeldRestore())
	return parent
}

func newHeldList() *cobra.Command {
	var agent, before string
	var limit int
	var dropped bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List held messages, newest first",
		Example: "  inbox held list --agent helper\n  inbox held list --dropped",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			heading := []string{"ID", "AGENT", "FROM", "BY", "RECEIVED", "EXPIRES", "TEXT"}
			none := "No messages are held."
			if dropped {
				none = "No dropped messages can be restored."
			}
			shown := table[exchange.TurnRecord]{none, heading, func(t exchange.TurnRecord) []string {
				text := excerpt(markup.PlainText(t.Message.Parts))
				return []string{t.ID, t.Agent, t.Message.Sender.Address.String(), t.Message.ReceivedVia, when(t.AcceptedAt), expiry(t), text}
			}}
			return printPage(cmd, limit, shown, exchange.TurnCursor, func(o *inbox.Operator, size int) ([]exchange.TurnRecord, error) {
				if dropped {
					return o.Held.Dropped(cmd.Context(), agent, before, size)
				}
				return o.Held.List(cmd.Context(), agent, before, size)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&agent, "agent", "", "only messages to this agent")
	cmd.Flags().BoolVar(&dropped, "dropped", false, "show what you or a block dropped and inbox held restore brings back, until it expires")
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
	return completing(withJSON(&cobra.Command{
		Use:     "release ID…",
		Short:   "Let the agent answer held messages",
		Example: "  inbox held list\n  inbox held release 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is released and will be answered", func(o *inbox.Operator, id string) error {
				return o.Held.Release(cmd.Context(), id)
			})
		},
	}), heldIDs)
}

func newHeldDrop() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "drop ID…",
		Short: "Refuse held messages",
		Long: `Refuses held messages. The server keeps them with the reason, and the agent never sees them. Until they expire,
"inbox held restore" puts them back on hold.`,
		Example: "  inbox held drop --reason spam 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is dropped", func(o *inbox.Operator, id string) error {
				return o.Held.Drop(cmd.Context(), id, reason)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, heldIDs)
	cmd.Flags().StringVar(&reason, "reason", "dropped by the operator", "why, for the record")
	return cmd
}

func newHeldRestore() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:   "restore ID…",
		Short: "Put dropped messages back on hold",
		Long: `Puts messages back on hold that you or a block dropped from there. It works until their content expires, as "inbox held list --dropped"
shows, and not while their sender is blocked.`,
		Example: "  inbox block remove '*.example.com'\n  inbox held list --dropped\n  inbox held restore 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is held again", func(o *inbox.Operator, id string) error {
				return o.Held.Restore(cmd.Context(), id)
			})
		},
	}), droppedIDs)
}

func newRetry() *cobra.Command {
	var bulk retryFlags
	cmd := &cobra.Command{
		Use:   "retry [ID…]",
		Short: "Run failed messages again, or repeat dead deliveries and jobs",
		Long: `Lets the agent answer messages on which it failed: those with the ids, or all recent ones. Their senders have
already read an apology; the answer is a further reply in the same conversation. An A2A task whose failure was fetched
has ended and cannot be answered any more. Messages run after those that arrived in their conversations meanwhile.

--deliveries sends answers again on which the server had given up, as after the outage of a mail server. They get a new schedule and
keep their ids, so that a receiver who has one recognises it. --jobs repeats other work that was given up ("inbox jobs list"). The command
does five a second, the oldest first. Run a second time, it does nothing, unless something has failed again; if it was interrupted, it
does the rest.`,
		Example: "  inbox retry 019a…\n  inbox retry --agent helper --failed --since 2h --dry-run\n  inbox retry --failed --since 2026-05-01T12:00:00Z\n" +
			"  inbox retry --deliveries --channel email --since 12h\n  inbox retry --failed --deliveries --jobs --since 24h",
		Args: arguments(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if len(ids) > 0 == bulk.any() || len(ids) > 0 && bulk.restricted() {
				return usageError{errors.New("give ids of messages, or --failed, --deliveries or --jobs with --since and perhaps --agent and --channel\nRun 'inbox retry --help'")}
			}
			if len(ids) > 0 {
				return retryTurns(cmd, ids)
			}
			return bulk.run(cmd)
		},
	}

	addJSON(cmd)
	completing(cmd, failedIDs)
	bulk.add(cmd)
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
