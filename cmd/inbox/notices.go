package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newNotices() *cobra.Command {
	parent := &cobra.Command{
		Use:   "notices",
		Short: "Show notices of trouble, and test whether they reach you",
		Long: `The server reports trouble to the addresses of operator.notify: at once when a back end, a certificate, the disk or the
server itself is in trouble or failures come in a burst, and the rest in one digest a day.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newNoticesList(), newNoticesTest())
	return parent
}

// noticesView is what "inbox notices list --json" prints.
type noticesView struct {
	exchange.List[exchange.Notice]

	Pending operator.PendingNotices `json:"pending"`
}

func newNoticesList() *cobra.Command {
	var before string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List notices, newest first, lasting trouble, and events for the next digest",
		Long: `Lists notices with their result at each address, then lasting trouble, and how many events the next digest
will have. Events are counted also if operator.notify has no address.`,
		Example: "  inbox notices list\n  inbox notices list --json --limit 5",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(cmd, limit); err != nil {
				return err
			}
			return operate(cmd, func(o *inbox.Operator) error {
				found, err := o.Notices.List(cmd.Context(), before, limit+1)
				if err != nil {
					return err
				}
				view := noticesView{List: exchange.CutList(found, limit, func(n exchange.Notice) string { return n.ID })}
				if view.Pending, err = o.Notices.Pending(cmd.Context()); err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), view)
				}
				return printNotices(cmd.OutOrStdout(), view)
			})
		},
	}

	addJSON(cmd)
	addPaging(cmd, &before, &limit)
	return cmd
}

func printNotices(out io.Writer, view noticesView) error {
	var rows [][]string
	for _, one := range view.Items {
		var ways []string
		for _, way := range one.Ways {
			ways = append(ways, way.Address+" "+way.State)
		}
		rows = append(rows, []string{one.ID, when(one.CreatedAt), one.Phase, oneLine(one.Title), oneLine(strings.Join(ways, ", "))})
	}
	if err := printTable(out, "Nothing was told yet.", []string{"ID", "AT", "WHAT", "TITLE", "TO"}, rows); err != nil {
		return err
	}
	if err := tellNext(out, view.Next); err != nil {
		return err
	}

	rows = nil
	for _, one := range view.Pending.Lasting {
		told := "not told"
		if !one.ToldAt.IsZero() {
			told = "told " + when(one.ToldAt)
		}
		rows = append(rows, []string{one.Kind, oneLine(one.Subject), one.State, when(one.Since), told, excerpt(one.Reason)})
	}
	fmt.Fprintln(out)
	if err := printTable(out, "Nothing lasts.", []string{"KIND", "SUBJECT", "STATE", "SINCE", "", "REASON"}, rows); err != nil {
		return err
	}

	rows = nil
	for _, one := range view.Pending.Counted {
		newest := ""
		if len(one.Examples) > 0 {
			newest = oneLine(one.Examples[0].ID + " " + excerpt(one.Examples[0].Note))
		}
		rows = append(rows, []string{one.Kind, oneLine(one.Subject), strconv.FormatInt(one.Count, 10), when(one.LastAt), newest})
	}
	fmt.Fprintln(out)
	return printTable(out, "The next digest has nothing.", []string{"KIND", "SUBJECT", "COUNT", "LAST", "NEWEST"}, rows)
}

func newNoticesTest() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send a test to every address of operator.notify and show the results",
		Long: `Sends a test to every address of operator.notify. The running server sends it like every notice; the command
waits for the results. Exit code 1 means that it did not arrive everywhere.`,
		Example: "  inbox notices test\n  inbox notices test --wait 2m",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				sent, err := o.Notices.Test(cmd.Context())
				if err == nil {
					sent, err = o.Notices.Outcome(cmd.Context(), sent.ID, wait)
				}
				if err != nil {
					return err
				}

				if wantsJSON(cmd) {
					err = printJSON(cmd.OutOrStdout(), sent)
				} else {
					err = printTable(cmd.OutOrStdout(), "No address.", []string{"ADDRESS", "STATE", "WHY"}, wayRows(sent))
				}
				for _, way := range sent.Ways {
					if err == nil && !operator.Reached(way) {
						err = errors.New("the test has not arrived everywhere; is the server running? See the results: inbox notices list")
					}
				}
				return err
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the results")
	return cmd
}

func wayRows(sent exchange.Notice) (rows [][]string) {
	for _, way := range sent.Ways {
		rows = append(rows, []string{oneLine(way.Address), way.State, oneLine(way.Reason)})
	}
	return rows
}
