package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/operator"
)

// arrivalFlags are the filters of what came in.
type arrivalFlags struct {
	filter       exchange.ArrivalFilter
	states       []string
	since, until string
}

func (f *arrivalFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter.Agent, "agent", "", "only messages to this agent")
	flags.StringVar(&f.filter.Sender, "from", "", "only of this sender: an address, all of a domain as @example.org, or a principal as --json shows it")
	addChoice(cmd, &f.filter.Channel, "channel", "only by this channel", inbox.ChannelNames()...)
	flags.StringSliceVar(&f.states, "state", nil, "only in these states, with commas between: "+strings.Join(exchange.States(), ", "))
	flags.StringVar(&f.since, "since", "", "accepted within this time, such as 24h, or since this moment (RFC 3339)")
	flags.StringVar(&f.until, "until", "", "accepted longer ago than this, or before this moment")
	addPaging(cmd, &f.filter.Before, &f.filter.Limit)
	completeWords(cmd, "state", exchange.States()...)
}

// read returns the filter; its error is one of the command line.
func (f *arrivalFlags) read(cmd *cobra.Command) (exchange.ArrivalFilter, error) {
	wrong := func(flag string, err error) (exchange.ArrivalFilter, error) {
		return f.filter, usageError{fmt.Errorf("--%s: %w\nRun '%s --help'", flag, err, cmd.CommandPath())}
	}
	for _, state := range f.states {
		if !slices.Contains(exchange.States(), state) {
			return wrong("state", fmt.Errorf("%q is none of %s", state, strings.Join(exchange.States(), ", ")))
		}
	}
	err := checkLimit(cmd, f.filter.Limit)
	if err != nil {
		return f.filter, err
	}

	if f.filter.States = f.states; f.since != "" {
		if f.filter.Since, err = operator.Moment("since", f.since, time.Now()); err != nil {
			return wrong("since", err)
		}
	}
	if f.until != "" {
		if f.filter.Until, err = operator.Moment("until", f.until, time.Now()); err != nil {
			return wrong("until", err)
		}
	}
	return f.filter, nil
}

func newList() *cobra.Command {
	var chosen arrivalFlags
	var follow bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List received messages, newest first",
		Long: `Lists the received messages with their states, newest first. All filters apply together.

--text searches messages, their subjects, their senders and their answers: all words must occur, "several words" follow
each other, and a * after a word matches its beginnings. New messages are found some hundred milliseconds after they were accepted.

With --follow the list continues: new messages are printed as they come, each once, until you press Ctrl-C. It shows what a
running server accepts. With --json each is then one line.

If there are older messages, a last line has the cursor for --before.`,
		Example: `  inbox list
  inbox list --since 24h --state failed,held
  inbox list --from @example.org --channel email --text 'invoice "second reminder" pay*'
  inbox list --follow --agent echo`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := chosen.read(cmd)
			if err != nil {
				return err
			}
			if follow && (filter.Before != "" || chosen.until != "") {
				return usageError{fmt.Errorf("--follow excludes --before and --until\nRun '%s --help'", cmd.CommandPath())}
			}
			return operate(cmd, func(o *inbox.Operator) error {
				if follow {
					return followArrivals(cmd, o, filter)
				}
				return listArrivals(cmd, o, filter)
			})
		},
	}

	addJSON(cmd)
	chosen.add(cmd)
	cmd.Flags().StringVar(&chosen.filter.Text, "text", "", "only messages with these words, or with an answer that has them")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue and print messages as they come")
	return cmd
}

var arrivalHeading = []string{"ID", "RECEIVED", "AGENT", "FROM", "CHANNEL", "STATE", "TEXT"}

func arrivalRow(t exchange.TurnRecord) []string {
	return []string{
		t.ID, when(t.AcceptedAt), t.Agent, oneLine(t.Message.Sender.Address.String()), t.Channel, t.State, excerpt(markup.PlainText(t.Message.Parts)),
	}
}

func listArrivals(cmd *cobra.Command, o *inbox.Operator, filter exchange.ArrivalFilter) error {
	page, err := o.Arrivals.List(cmd.Context(), filter)
	if err != nil {
		return err
	}
	return table[exchange.TurnRecord]{"No messages.", arrivalHeading, arrivalRow}.show(cmd, exchange.NewList(page.Turns, page.Next))
}

// followEvery is how long one look for new messages waits.
const followEvery = 10 * time.Second

// followArrivals prints the newest messages and then all that come, until the command is interrupted. The cursor is taken before the
// list, so that nothing is lost between the two; what both have is left out once.
func followArrivals(cmd *cobra.Command, o *inbox.Operator, filter exchange.ArrivalFilter) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()

	after, err := o.Arrivals.Newest(ctx)
	if err != nil {
		return err
	}
	page, err := o.Arrivals.List(ctx, filter)
	if err != nil {
		return err
	}

	printed := map[string]bool{}
	slices.Reverse(page.Turns)
	for _, turn := range page.Turns {
		printed[turn.ID] = true
	}
	out := newArrivalWriter(cmd)
	if err := out.print(page.Turns); err != nil {
		return err
	}

	filter.Limit = maxListed
	for {
		turns, next, err := o.Arrivals.After(ctx, filter, after, followEvery, nil)
		if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err())) {
			return nil
		}
		if err != nil {
			return err
		}

		after = next
		turns = slices.DeleteFunc(turns, func(turn exchange.TurnRecord) bool { return printed[turn.ID] })
		if err := out.print(turns); err != nil {
			return err
		}
	}
}

// arrivalWriter prints messages one after the other in columns of fixed width.
type arrivalWriter struct {
	json  *json.Encoder // nil = for people
	table *tabwriter.Writer
}

func newArrivalWriter(cmd *cobra.Command) *arrivalWriter {
	if wantsJSON(cmd) {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetEscapeHTML(false)
		return &arrivalWriter{json: encoder}
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 12, 4, 2, ' ', 0)
	printRow(table, arrivalHeading)
	return &arrivalWriter{table: table}
}

func (w *arrivalWriter) print(turns []exchange.TurnRecord) error {
	for _, turn := range turns {
		if w.json == nil {
			printRow(w.table, arrivalRow(turn))
		} else if err := w.json.Encode(turn); err != nil {
			return err
		}
	}
	if w.json != nil {
		return nil
	}
	return w.table.Flush()
}

func newThreads() *cobra.Command {
	parent := &cobra.Command{
		Use:   "threads",
		Short: "List conversations",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newThreadsList())
	return parent
}

func newThreadsList() *cobra.Command {
	var chosen arrivalFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List conversations, the one with the newest message first",
		Long: `Lists conversations by their newest message. Filters are about that message: --since 24h lists conversations with a message within a day,
--state waiting those that wait now.`,
		Example: "  inbox threads list --since 24h\n  inbox threads list --from @ann@example.org",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := chosen.read(cmd)
			if err != nil {
				return err
			}
			return operate(cmd, func(o *inbox.Operator) error { return listThreads(cmd, o, filter) })
		},
	}

	addJSON(cmd)
	chosen.add(cmd)
	return cmd
}

func listThreads(cmd *cobra.Command, o *inbox.Operator, filter exchange.ArrivalFilter) error {
	found, limit := []operator.Conversation{}, filter.Limit
	for {
		page, next, err := o.Arrivals.Conversations(cmd.Context(), filter, exchange.SessionOwner{})
		if err != nil {
			return err
		}
		found, filter.Before = append(found, page...), next
		if filter.Limit = limit - len(found); next == "" || filter.Limit <= 0 {
			break
		}
	}

	heading := []string{"THREAD", "AGENT", "FROM", "CHANNEL", "MESSAGES", "NEWEST", "STATE", "TEXT"}
	return table[operator.Conversation]{"No conversations.", heading, func(one operator.Conversation) []string {
		messages := strconv.Itoa(one.Messages)
		if one.More {
			messages += "+"
		}
		return []string{oneLine(one.ThreadID), one.Agent, oneLine(one.Sender), one.Channel, messages, when(one.At), one.State, excerpt(one.Excerpt)}
	}}.show(cmd, exchange.NewList(found, filter.Before))
}
