package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/operator"
)

func newShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one message: who sent it, what proved it, what became of it",
		Long: `Shows a message with the evidence about its sender, its answer, its deliveries and its timeline.
ID is the id of a turn or a delivery, or the protocol's own id of the message (activity IRI, Message-ID, A2A message id).`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				shown, err := o.Messages.Show(cmd.Context(), ids[0])
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), shown)
				}
				printShown(cmd.OutOrStdout(), shown)
				return nil
			})
		},
	}
	addJSON(cmd)
	return cmd
}

func printShown(out io.Writer, shown operator.Shown) {
	message := shown.Turn.Message
	fmt.Fprintf(out, "Turn      %s  %s  %s\n", shown.Turn.ID, shown.Turn.State, shown.Turn.Reason)
	fmt.Fprintf(out, "Message   %s\n", message.ID)
	fmt.Fprintf(out, "Thread    %s\n", message.ThreadID)
	fmt.Fprintf(out, "From      %s  (%s)\n", message.Sender.Address, message.Sender.AuthMethod)
	fmt.Fprintf(out, "To        %s by %s\n", message.Recipient, message.ReceivedVia)
	for _, evidence := range message.Sender.Identities {
		fmt.Fprintf(out, "Evidence  %s is %s, says %s (%s)\n", evidence.Subject, evidence.Assurance, evidence.Issuer, evidence.Method)
	}
	fmt.Fprintf(out, "\n%s\n", normalized.PlainText(message.Parts))
	if answer := shown.Turn.Response; answer != nil {
		fmt.Fprintf(out, "\nAnswer %s\n%s\n", shown.Turn.ReplyID, normalized.PlainText(answer.Parts))
	}
	fmt.Fprintln(out)
	for _, d := range shown.Deliveries {
		fmt.Fprintf(out, "Delivery  %s  %s to %s after %d tries  %s\n", d.ID, d.State, d.Address, d.Attempt, d.Reason)
		for _, recipient := range slices.Sorted(maps.Keys(d.Returned)) {
			fmt.Fprintf(out, "          %s does not have it: %s\n", oneLine(recipient), oneLine(d.Returned[recipient]))
		}
	}
	for _, r := range shown.ToolRequests {
		printToolRequest(out, r)
	}
	printSpent(out, shown.Spent)
	printTimeline(out, shown.Events)
}

func printTimeline(out io.Writer, events []exchange.Event) {
	fmt.Fprintln(out, "\nTimeline")
	for _, event := range events {
		if event.Kind == exchange.EventDelta {
			continue
		}
		fmt.Fprintf(out, "  %s  %-18s %s\n", event.At.Local().Format("15:04:05.000"), event.Kind, said(event))
	}
}
