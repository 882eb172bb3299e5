package main

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/normalized"
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

// addPaging adds the two flags of every long list.
func addPaging(cmd *cobra.Command, before *string, limit *int) {
	cmd.Flags().StringVar(before, "before", "", "continue after the last row of the page before (its cursor)")
	cmd.Flags().IntVar(limit, "limit", 50, "at most this many, up to 500")
}

// expiry is when a held message is refused by itself.
func expiry(t exchange.TurnRecord) string {
	if t.ExpiresAt == nil {
		return "never"
	}
	return when(*t.ExpiresAt)
}

const excerptRunes = 60

// excerpt returns the beginning of a stranger's text on one line.
func excerpt(text string) string {
	text = oneLine(text)
	if utf8.RuneCountInString(text) <= excerptRunes {
		return text
	}
	return string([]rune(text)[:excerptRunes-1]) + "…"
}

// oneLine takes control characters out of what strangers wrote: a terminal would obey them.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError
	}), " ")
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
