package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/operator"
)

func newDeliveries() *cobra.Command {
	parent := &cobra.Command{
		Use:   "deliveries",
		Short: "List, retry or cancel deliveries of replies",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newDeliveriesList(), newDeliveriesRetry(), newDeliveriesCancel())
	return parent
}

func newDeliveriesList() *cobra.Command {
	var filter delivery.Filter
	var limit int
	var since, until string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List deliveries, newest first",
		Example: "  inbox deliveries list --state dead",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if since != "" {
				if filter.Since, err = operator.Moment("since", since, time.Now()); err != nil {
					return usageError{fmt.Errorf("--since: %w\nRun 'inbox deliveries list --help'", err)}
				}
			}
			if until != "" {
				if filter.Until, err = operator.Moment("until", until, time.Now()); err != nil {
					return usageError{fmt.Errorf("--until: %w\nRun 'inbox deliveries list --help'", err)}
				}
			}
			heading := []string{"ID", "STATE", "TRIES", "AGENT", "TO", "CHANGED", "LAST ANSWER"}
			shown := table[delivery.Record]{"No deliveries.", heading, func(r delivery.Record) []string {
				return []string{r.ID, r.State, strconv.Itoa(r.Attempt), r.Agent, r.Address, when(r.UpdatedAt), r.Reason}
			}}
			return printPage(cmd, limit, shown, func(r delivery.Record) string { return r.ID }, func(o *inbox.Operator, size int) ([]delivery.Record, error) {
				filter.Limit = size
				return o.Deliveries.List(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	addChoice(cmd, &filter.State, "state", "only this state", delivery.States()...)
	cmd.Flags().StringVar(&filter.TurnID, "turn", "", "only deliveries of this turn")
	cmd.Flags().StringVar(&filter.Key, "to", "", "only this host or domain")
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only answers of this agent")
	addChoice(cmd, &filter.Channel, "channel", "only by this channel", inbox.ChannelNames()...)
	cmd.Flags().StringVar(&since, "since", "", "made within this time, such as 24h, or since this moment (RFC 3339)")
	cmd.Flags().StringVar(&until, "until", "", "made longer ago than this, or before this moment")
	addPaging(cmd, &filter.Before, &limit)
	return cmd
}

func newDeliveriesRetry() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:   "retry ID…",
		Short: "Send dead or cancelled deliveries again",
		Long: `Tries dead or cancelled deliveries again at once, with a new schedule. The wire id stays the same, so a
receiver that already has the reply recognises it.`,
		Example: "  inbox deliveries list --state dead\n  inbox deliveries retry 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "will be sent again", func(o *inbox.Operator, id string) error {
				return o.Deliveries.Retry(cmd.Context(), id)
			})
		},
	}), deadDeliveries)
}

func newDeliveriesCancel() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:     "cancel ID…",
		Example: "  inbox deliveries cancel 019a…",
		Short:   "Cancel deliveries that were not made yet",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is cancelled", func(o *inbox.Operator, id string) error {
				return o.Deliveries.Cancel(cmd.Context(), id)
			})
		},
	}), openDeliveries)
}

const answerIDs = `ID is the id of the answer, of its message (as inbox show prints them), or the address of the post.`

func newDelete() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:     "delete ID…",
		Example: "  inbox delete 019a…\n  inbox delete https://agents.example/o/019a…",
		Short:   "Withdraw answers, and tell everyone who has them",
		Long: `Withdraws answers. The running server tells every server that got the answer; one that did not get it yet gets
nothing. The text is removed from the history, and its address says that it was deleted.
` + answerIDs,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is withdrawn", func(o *inbox.Operator, id string) error {
				if err := o.Answers.Delete(cmd.Context(), id, operator.CommandLine); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				return nil
			})
		},
	}), answeredIDs)
}

func newEdit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit ID [FILE]",
		Short: "Replace the text of an answer, and tell everyone who has it",
		Long: `Replaces the text of an answer by that of a file, or of standard input without a file or with "-". Files and links of
the answer stay. The running server tells every server that got the answer.
` + answerIDs,
		Example: "  inbox edit 019a… answer.md\n  echo 'Tomorrow at ten.' | inbox edit 019a…",
		Args:    arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			file := "-"
			if len(given) > 1 {
				file = given[1]
			}

			text, err := readFile(cmd, file, maxEditedText)
			if err != nil {
				return err
			}

			mime, err := cmd.Flags().GetString("type")
			if err != nil {
				return err
			}

			return operate(cmd, func(o *inbox.Operator) error {
				if err := o.Answers.Edit(cmd.Context(), given[0], operator.CommandLine, string(text), mime); err != nil {
					return err
				}
				return printDone(cmd, given[0], given[0]+" is edited")
			})
		},
	}

	addJSON(cmd)
	completing(cmd, answeredIDs)
	cmd.Flags().String("type", "", "text/plain, text/markdown or text/html (default: as before)")
	completeWords(cmd, "type", normalized.MIMEPlain, normalized.MIMEMarkdown, normalized.MIMEHTML)
	return cmd
}

// maxEditedText is more than an answer may have, so that one that is too long is told so.
const maxEditedText = 1<<20 + 1

func newPin() *cobra.Command {
	return pinning("pin ID", "Show an answer on the profile of its agent: its followers are told", "is pinned", true)
}

func newUnpin() *cobra.Command {
	return pinning("unpin ID", "Take an answer off the profile of its agent: its followers are told", "is not pinned any more", false)
}

func pinning(use, short, done string, pinned bool) *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use: use, Short: short, Long: short + ".\n" + answerIDs,
		Example: "  inbox " + strings.Replace(use, "ID", "019a…", 1),
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, done, func(o *inbox.Operator, id string) error {
				return o.Answers.Pin(cmd.Context(), id, pinned)
			})
		},
	}), answeredIDs)
}

func newSuppressed() *cobra.Command {
	parent := &cobra.Command{
		Use: "suppressed", Short: "Show or lift addresses to which nothing is sent any more", Args: arguments(cobra.NoArgs),
		Long: `An address is suppressed after one bounce because the mailbox does not exist, after five mails within seven
days that it refused, or when its owner reported a mail as unwanted. Nothing is sent there until you lift it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newSuppressedList(), newSuppressedRemove())
	return parent
}

func newSuppressedList() *cobra.Command {
	var filter exchange.SuppressionFilter
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List suppressed addresses", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown := table[exchange.Suppression]{"No address is suppressed.", []string{"ADDRESS", "KIND", "SINCE", "REASON"}, func(s exchange.Suppression) []string {
				return []string{oneLine(s.Address), s.Kind, when(s.CreatedAt), excerpt(s.Reason)}
			}}
			return printPage(cmd, limit, shown, func(s exchange.Suppression) string { return s.Address }, func(o *inbox.Operator, size int) ([]exchange.Suppression, error) {
				filter.Limit = size
				return o.Suppressions.List(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	addChoice(cmd, &filter.Kind, "kind", "only this kind", exchange.SuppressionKinds()...)
	addPaging(cmd, &filter.After, &limit)
	return cmd
}

func newSuppressedRemove() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use: "remove ADDRESS…", Short: "Send mail to an address again",
		Long: `Allows mail to an address again and forgets its failures. It does not send mails that were given up meanwhile; see
"inbox deliveries retry".`,
		Example: "  inbox suppressions remove ann@example.com\n  inbox mail suppressed remove ann@example.com",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, addresses []string) error {
			return each(cmd, addresses, "gets mail again", func(o *inbox.Operator, address string) error {
				return o.Suppressions.Lift(cmd.Context(), address)
			})
		},
	}), suppressed)
}

// newSuppressions is the short way to "inbox mail suppressed".
func newSuppressions() *cobra.Command {
	cmd := newSuppressed()
	cmd.Use = "suppressions"
	return cmd
}
