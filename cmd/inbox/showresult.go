package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/operator"
)

// showResult prints the conversation result of one run of a message: a summary, or the document with --json.
func showResult(cmd *cobra.Command, id string, run int) error {
	return operate(cmd, func(o *inbox.Operator) error {
		message, err := o.Messages.Show(cmd.Context(), id)
		if err != nil {
			return err
		}
		shown, err := o.Results.Result(cmd.Context(), message.Turn.ID, run)
		if err != nil {
			return err
		}
		if !wantsJSON(cmd) {
			return printResult(cmd.OutOrStdout(), shown)
		}
		if shown.LeftOut != "" {
			return fmt.Errorf("run %d: %s", shown.Run, shown.LeftOut)
		}
		return printJSON(cmd.OutOrStdout(), shown.Result)
	})
}

func printResult(out io.Writer, shown operator.ShownResult) error {
	for _, one := range shown.Runs {
		printRun(out, one)
	}
	if shown.LeftOut != "" {
		return nil
	}

	given, err := value.Decode(shown.Result, value.Limits{Bytes: len(shown.Result), Depth: 128})
	if err != nil {
		return fmt.Errorf("read the result of run %d: %w", shown.Run, err)
	}

	result := value.Assoc(given)
	outcome, calls := value.Assoc(result["run_outcome"]), value.Elements(result["tool_audit_events"])
	fmt.Fprintf(out, "\nRun       %d of turn %s\n", shown.Run, shown.TurnID)
	fmt.Fprintf(out, "Outcome   %s, stopped: %s\n", word(outcome["status"]), word(outcome["stop_reason"]))
	if failure := value.Assoc(result["failure"]); len(failure) > 0 {
		fmt.Fprintf(out, "Failure   %s: %s\n", word(failure["type"]), word(failure["message"]))
	}
	if budget := word(result["budget"]); budget != "" {
		fmt.Fprintf(out, "Budget    %s is used up\n", budget)
	}
	fmt.Fprintf(out, "Took      %s, %s, %s\n", counted(number(result["turn_count"]), "turn"), counted(len(value.Elements(result["messages"])), "message"),
		tokens(int64(number(value.Assoc(result["usage"])["prompt_tokens"])), 0, 0, int64(number(value.Assoc(result["usage"])["completion_tokens"]))))

	if left := value.Assoc(value.Assoc(result["metadata"])["left_out"]); len(left) > 0 {
		fmt.Fprintf(out, "Left out  %s: the whole result has %d bytes\n", strings.Join(value.Words(left["members"]), ", "), number(left["original_bytes"]))
	}
	for _, one := range calls {
		printAudit(out, value.Assoc(one))
	}
	for _, one := range value.Elements(result["events"]) {
		event := value.Assoc(one)
		fmt.Fprintf(out, "Event     %s (%s)\n", word(event["type"]), strings.Join(slices.Sorted(maps.Keys(value.Assoc(event["metadata"]))), ", "))
	}

	_, err = fmt.Fprintf(out, "\n%s\n", strings.TrimSpace(value.Text(result["final_content"])))
	return err
}

func printRun(out io.Writer, one exchange.RunResult) {
	fmt.Fprintf(out, "Result    run %d  %s  %s  %s", one.Run, when(one.At), one.Status, counted(one.Bytes, "byte"))
	if one.LeftOut != "" {
		fmt.Fprintf(out, "  not kept: %s", one.LeftOut)
	}
	fmt.Fprintln(out)
}

func printAudit(out io.Writer, event map[string]any) {
	status := word(event["result_status"])
	if kind := word(event["error_type"]); kind != "" {
		status += " (" + kind + ")"
	}
	fmt.Fprintf(out, "Call      turn %d  %s  %s  parameters %s  result %s  %s\n", number(event["turn_count"]), word(event["tool_name"]), status,
		word(event["parameters_sha256"]), word(event["result_sha256"]), word(event["tool_call_id"]))
}

// word is a text of a result on one line.
func word(given any) string { return oneLine(value.Text(given)) }

func number(given any) int {
	count, _ := value.Integer(given)
	return int(count)
}
