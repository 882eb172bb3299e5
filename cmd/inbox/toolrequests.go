package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/agents/runtime/tool/request"
	"inbox/exchange"
	"inbox/operator"
)

func newToolRequests() *cobra.Command {
	parent := &cobra.Command{
		Use:   "tool-requests",
		Short: "List, show, submit or cancel calls of tools that programs outside execute",
		Long: `A model that calls a client tool waits until your program has handed in the result. These commands show what
waits, and act instead of the program. A request has one result; its message goes on by itself.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	parent.AddCommand(newToolRequestsList(), newToolRequestsShow(), newToolRequestsSubmit(), newToolRequestsCancel())
	return parent
}

func newToolRequestsList() *cobra.Command {
	var filter exchange.ToolRequestFilter
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List requests that wait, oldest first",
		Example: "  inbox tool-requests list --agent helper\n  inbox tool-requests list --all --json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown := table[exchange.ToolRequest]{"No tool requests wait.", []string{"ID", "AGENT", "TOOL", "STATUS", "TURN", "CREATED", "TIMES OUT"}, func(r exchange.ToolRequest) []string {
				return []string{r.ID, r.Agent, r.ToolName, r.Status, r.TurnID, when(r.CreatedAt), when(r.TimeoutAt)}
			}}
			return printPage(cmd, limit, shown, exchange.ToolRequest.Cursor, func(o *inbox.Operator, size int) ([]exchange.ToolRequest, error) {
				filter.Limit = size
				return o.Tools.Requests(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only of this agent")
	cmd.Flags().StringVar(&filter.ToolName, "tool", "", "only of this tool, such as client/look_up")
	cmd.Flags().BoolVar(&filter.All, "all", false, "also those that do not wait any more")
	addPaging(cmd, &filter.Before, &limit)
	return cmd
}

func newToolRequestsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a request with its parameters and its result",
		Example: "  inbox tool-requests show runtime-tool-8c1f…",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				found, err := o.Tools.Request(cmd.Context(), ids[0])
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), found)
				}
				printToolRequest(cmd.OutOrStdout(), found)
				return nil
			})
		},
	}

	addJSON(cmd)
	completing(cmd, requestIDs)
	return cmd
}

func printToolRequest(out io.Writer, r exchange.ToolRequest) {
	printLinef(out, "Tool      %s  %s  %s", r.ID, r.ToolName, r.Status)
	printLinef(out, "          since %s, times out %s", when(r.CreatedAt), when(r.TimeoutAt))
	printLinef(out, "  request %s", r.Request)
	if len(r.Result) > 0 {
		printLinef(out, "  result  %s", r.Result)
	}
}

func newToolRequestsSubmit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit ID [RESULT]",
		Short: "Hand in the result of a request",
		Long: `Hands in the result instead of the program, as JSON: {"success":true,"result":…} or
{"success":false,"error":"…"}. Without RESULT it is read from standard input. The first result counts.`,
		Example: `  inbox tool-requests submit runtime-tool-8c1f… '{"result":{"price":12}}'`,
		Args:    arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			result, err := resultOf(cmd, given[1:])
			if err != nil {
				return err
			}
			return endToolRequest(cmd, func(o *inbox.Operator) (*request.Envelope, error) {
				return o.Tools.Submit(cmd.Context(), given[0], operator.CommandLine, result)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, requestIDs, completed{})
	return cmd
}

// maxResultInput is more than a result may have, so that one that is too large is told so.
const maxResultInput = 2 << 20

func resultOf(cmd *cobra.Command, given []string) ([]byte, error) {
	if len(given) > 0 {
		return []byte(given[0]), nil
	}

	input := cmd.InOrStdin()
	if file, is := input.(*os.File); is {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return nil, usageError{fmt.Errorf("write the result, or pipe it in\nRun '%s --help'", cmd.CommandPath())}
		}
	}
	return io.ReadAll(io.LimitReader(input, maxResultInput))
}

func newToolRequestsCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cancel ID",
		Short:   "Cancel a request; its message continues with a failed result",
		Example: "  inbox tool-requests cancel runtime-tool-8c1f…",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return endToolRequest(cmd, func(o *inbox.Operator) (*request.Envelope, error) {
				return o.Tools.Cancel(cmd.Context(), ids[0], operator.CommandLine)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, requestIDs)
	return cmd
}

func endToolRequest(cmd *cobra.Command, end func(*inbox.Operator) (*request.Envelope, error)) error {
	return operate(cmd, func(o *inbox.Operator) error {
		answer, err := end(o)
		if err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd.OutOrStdout(), answer)
		}

		word := "has its end; the message goes on"
		if answer.Duplicate {
			word = "had ended before; nothing was changed"
		}

		fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", answer.Request["request_id"], word)
		return nil
	})
}
