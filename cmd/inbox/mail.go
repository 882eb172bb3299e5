package main

import (
	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
)

func newMail() *cobra.Command {
	parent := &cobra.Command{
		Use: "mail", Short: "Look after mail that leaves", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newSuppressed())
	return parent
}

func newSuppressed() *cobra.Command {
	parent := &cobra.Command{
		Use: "suppressed", Short: "Show or lift addresses to which nothing is sent any more", Args: arguments(cobra.NoArgs),
		Long: `An address is suppressed after one mail that came back because there is no such mailbox, after five mails within seven
days that it did not take, or when its owner reported a mail as unwanted. Nothing is sent there until you lift it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newSuppressedList(), newSuppressedRemove())
	return parent
}

func newSuppressedList() *cobra.Command {
	var filter exchange.SuppressionFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List suppressed addresses", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd, "No address is suppressed.", []string{"ADDRESS", "KIND", "SINCE", "REASON"}, func(o *inbox.Operator) ([]exchange.Suppression, error) {
				return o.Suppressions.List(cmd.Context(), filter)
			}, func(s exchange.Suppression) []string {
				return []string{oneLine(s.Address), s.Kind, when(s.CreatedAt), excerpt(s.Reason)}
			})
		},
	}
	addJSON(cmd)
	cmd.Flags().StringVar(&filter.Kind, "kind", "", "only hard, soft or complaint")
	cmd.Flags().StringVar(&filter.After, "after", "", "only addresses after this one, for the next page")
	cmd.Flags().IntVar(&filter.Limit, "limit", 50, "at most this many, up to 500")
	return cmd
}

func newSuppressedRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove ADDRESS…", Short: "Send mail to an address again",
		Long: `Lets mail go to an address again and forgets its failures. Mails that were given up meanwhile are not sent by that; see
"inbox deliveries retry".`,
		Example: "  inbox mail suppressed remove ann@example.com",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, addresses []string) error {
			return each(cmd, addresses, "gets mail again", func(o *inbox.Operator, address string) error {
				return o.Suppressions.Lift(cmd.Context(), address)
			})
		},
	}
}

// newSuppressions is the short way to "inbox mail suppressed".
func newSuppressions() *cobra.Command {
	cmd := newSuppressed()
	cmd.Use = "suppressions"
	return cmd
}
