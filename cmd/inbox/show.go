package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/operator"
	"inbox/operator/lookup"
)

func newShow() *cobra.Command {
	var result bool
	var run int
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one message: its sender, the proof, the answer, the deliveries",
		Long: `Shows a message with the evidence about its sender, its answer, its deliveries and its timeline.
ID is any id that a peer, a client or a line of the log showed: of a turn, a task, a message or its answer (Message-ID, address of a post,
messageId of A2A), a session, a run, a delivery, a demand, an approval, a call of a tool, a request (X-Request-Id); docs/operating.md has
the table. Of a conversation or session, and of a mail to several agents, it shows the newest message and names the others. Senders choose some ids:
if one fits messages of several senders, the command lists them with their senders and shows none.

With --result it shows how the agent reached the answer: the conversation result of the newest run, or of --run N. It has the tools with
hashes of their parameters and results; with --json it is the whole document.`,
		Example: "  inbox show 0197…\n  inbox show '<20260501120000.1@example.com>'\n  inbox show https://agents.example/o/0197…\n  inbox show --result 0197…\n  inbox show --result --run 1 --json 0197…",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if result || run > 0 {
				return showResult(cmd, ids[0], run)
			}
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
	completing(cmd, messageIDs)
	cmd.Flags().BoolVar(&result, "result", false, "show the conversation result of a run")
	cmd.Flags().IntVar(&run, "run", 0, "of this run; 0 = of the newest one that has a result")
	return cmd
}

func printShown(out io.Writer, shown operator.Shown) {
	message := shown.Turn.Message
	if len(shown.Others) > 0 {
		fmt.Fprintf(out, "The newest of %s with this %s; the others: %s\n\n", atLeast(len(shown.Others)+1), shown.Found, strings.Join(shown.Others, " "))
	}
	printLinef(out, "Turn      %s  %s  %s", shown.Turn.ID, shown.Turn.State, shown.Turn.Reason)
	printWaits(out, shown.Waits)
	printLinef(out, "Message   %s", message.ID)
	printLinef(out, "Thread    %s", message.ThreadID)
	printLinef(out, "From      %s  (%s)", message.Sender.Address, message.Sender.AuthMethod)
	if !message.Sender.CarriedBy.IsZero() {
		printLinef(out, "Brought   by %s  (%s)", message.Sender.CarriedBy, shown.Turn.Carrier)
	}
	printLinef(out, "To        %s by %s", message.Recipient, cmp.Or(shown.Turn.Channel, message.ReceivedVia))
	if shown.Turn.Request != "" {
		printLinef(out, "Request   %s", shown.Turn.Request)
	}

	for _, evidence := range message.Sender.Identities {
		printLinef(out, "Evidence  %s is %s, says %s (%s)", evidence.Subject, evidence.Assurance, evidence.Issuer, evidence.Method)
	}

	fmt.Fprintf(out, "\n%s\n", printable(markup.PlainText(message.Parts)))
	if answer := shown.Turn.Response; answer != nil {
		author := ""
		if shown.AnsweredBy != "" {
			author = ", written by " + oneLine(shown.AnsweredBy)
		}
		fmt.Fprintf(out, "\nAnswer %s%s\n%s\n", shown.Turn.ReplyID, author, printable(markup.PlainText(answer.Parts)))
		if stopped := answer.Stopped(); stopped != "" {
			printLinef(out, "Outcome   %s, stopped: %s", stopped, answer.StopReason())
		}
		printFailure(out, shown.Turn)
	}

	if shown.Draft != nil {
		fmt.Fprintf(out, "\nDraft of the agent, which did not leave\n%s\n", printable(markup.PlainText(shown.Draft.Parts)))
	}
	if t := shown.Takeover; t != nil {
		fmt.Fprintf(out, "\n%s has this conversation since %s; %s for an answer\n", t.Holder, when(t.Since), waits(t.Waiting))
	}

	fmt.Fprintln(out)
	for _, d := range shown.Deliveries {
		printLinef(out, "Delivery  %s  %s to %s after %s  %s", d.ID, d.State, d.Address, counted(d.Attempt, "attempt"), d.Reason)
		for _, recipient := range slices.Sorted(maps.Keys(d.Returned)) {
			printLinef(out, "          %s does not have it: %s", recipient, d.Returned[recipient])
		}
	}

	for _, r := range shown.ToolRequests {
		printToolRequest(out, r)
	}

	printSpent(out, shown.Spent)
	printTimeline(out, shown.Events)
}

// printWaits says why there is no run now.
func printWaits(out io.Writer, waits *operator.Waits) {
	if waits == nil {
		return
	}
	if !waits.Since.IsZero() {
		printLinef(out, "Agent     down since %s", when(waits.Since))
	}
	if waits.Reason != "" {
		printLinef(out, "Reason    %s", waits.Reason)
	}
	printLinef(out, "Next      attempt %s", upcoming(waits.Next))
}

// upcoming writes when something happens next.
func upcoming(at time.Time) string {
	if !at.After(time.Now()) {
		return "now"
	}
	return when(at)
}

// printFailure says why there is no answer, in the code that the sender's program gets.
func printFailure(out io.Writer, turn exchange.TurnRecord) {
	failure := exchange.FailureOf(turn)
	if failure == nil {
		return
	}
	again := "not retryable"
	if failure.Retryable() {
		again = "retryable"
	}
	printLinef(out, "Failure   %s, %s  (inbox explain %s)", failure.Code, again, failure.Code)
}

// atLeast counts messages as far as they are named.
func atLeast(count int) string {
	if count > lookup.MaxOthers {
		return fmt.Sprintf("%d or more messages", count)
	}
	return counted(count, "message")
}

func printTimeline(out io.Writer, events []exchange.Event) {
	fmt.Fprintln(out, "\nTimeline")
	for _, event := range events {
		if event.Kind == exchange.EventDelta {
			continue
		}
		printLinef(out, "  %s  %-18s %s", event.At.Local().Format("15:04:05.000"), event.Kind, said(event))
	}
}

// printSpent says what the agent's steps took together.
func printSpent(out io.Writer, spent *exchange.Spent) {
	if spent == nil {
		return
	}
	printLinef(out, "Spent     %s, %s, %s", counted(spent.ModelCalls, "model call"), counted(spent.ToolCalls, "tool call"),
		tokens(spent.Input, spent.CacheRead, spent.CacheWrite, spent.Output)+price(spent.Cost, spent.Currency))
}

// said writes the body of a row for people where it is a step of an agent, else as it is.
func said(event exchange.Event) string {
	text := ""
	switch event.Kind {
	case exchange.EventModelCalled:
		text = read(event, modelStep)
	case exchange.EventToolCalled:
		text = read(event, toolStep)
	case exchange.EventRunWaits:
		text = read(event, waitStep)
	case exchange.EventCompacted:
		text = read(event, compactionStep)
	case exchange.EventHookDecided, exchange.EventHookFailed:
		text = read(event, hookStep)
	case exchange.EventAnswerCut:
		text = read(event, (*normalized.Left).String)
	}

	if text == "" {
		return string(event.Body)
	}

	return text
}

func read[T any](event exchange.Event, write func(*T) string) string {
	var step T
	if json.Unmarshal(event.Body, &step) != nil {
		return ""
	}
	return write(&step)
}

func modelStep(step *exchange.ModelStep) string {
	words := []string{fmt.Sprintf("call %d of %s", step.Number, step.Model)}
	if step.Purpose != "" {
		words[0] += " (" + step.Purpose + ")"
	}

	words = append(words, lasted(step.Millis), tokens(step.Input, step.CacheRead, step.CacheWrite, step.Output)+price(step.Cost, step.Currency))
	if step.Stop != "" {
		words = append(words, "stop "+step.Stop)
	}
	if step.Error != "" {
		words = append(words, "failed: "+step.Error)
	}
	return strings.Join(words, ", ")
}

func toolStep(step *exchange.ToolStep) string {
	words := []string{step.Name + " " + step.Status, lasted(step.Millis)}
	if step.Arguments.Count > 0 {
		words = append(words, counted(step.Arguments.Count, "argument")+" ("+strings.Join(step.Arguments.Keys, ", ")+")")
	}
	if step.Result != nil {
		words = append(words, "result "+shape(step.Result))
	}
	if step.ErrorType != "" {
		words = append(words, step.ErrorType)
	}
	return strings.Join(words, ", ") + "  " + step.CallID
}

func shape(result *exchange.ToolShape) string {
	switch result.Type {
	case "string":
		return counted(result.Size, "byte")
	case "object", "array":
		return fmt.Sprintf("%s of %d", result.Type, result.Count)
	}
	return result.Type
}

func waitStep(step *exchange.WaitStep) string {
	text := step.For + " for " + step.Tool
	if step.Calls > 1 {
		text += fmt.Sprintf(", %d calls", step.Calls)
	}
	return text + "  " + step.CallID
}

func hookStep(step *exchange.HookStep) string {
	words := []string{step.Hook}
	if step.Action != "" {
		words = append(words, step.Action)
	}
	if step.Tool != "" {
		words = append(words, "for "+step.Tool)
	}

	text := strings.Join(words, " ")
	if step.Undelivered > 0 {
		text += ": " + counted(step.Undelivered, "event") + " not delivered"
	}
	if step.Error != "" {
		text += ": " + step.Error
	}
	if step.CallID != "" {
		text += "  " + step.CallID
	}
	return text
}

func compactionStep(step *exchange.CompactionStep) string {
	text := fmt.Sprintf("%s %s: %s, %d kept, %d → %d bytes", step.Of, step.Status, counted(step.Messages, "message"), step.Kept, step.Before, step.After)
	if step.ArchiveID != "" {
		text += ", " + step.ArchiveID
	}
	if step.Error != "" {
		text += ", " + step.Error
	}
	return text
}

func tokens(input, cacheRead, cacheWrite, output int64) string {
	text := fmt.Sprintf("%d tokens in", input)
	if cacheRead > 0 {
		text += fmt.Sprintf(" (%d cached)", cacheRead)
	}
	if cacheWrite > 0 {
		text += fmt.Sprintf(" (%d to the cache)", cacheWrite)
	}
	return text + fmt.Sprintf(", %d out", output)
}

func price(cost float64, currency string) string {
	if cost <= 0 {
		return ""
	}
	return strings.TrimRight(", "+strconv.FormatFloat(cost, 'f', -1, 64)+" "+currency, " ")
}

func lasted(millis int64) string { return (time.Duration(millis) * time.Millisecond).String() }

func counted[N int | int64](count N, what string) string {
	if count == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", count, what)
}
