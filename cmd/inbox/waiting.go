package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/operator"
)

func newWaiting() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "waiting",
		Short: "Show how much work waits for you, and what is down",
		Long: `Counts the work that waits for you: messages on which an agent failed, answers and other work that were given
up, held messages and approvals. Below are the open breakers: agents whose back ends are down, and destinations that take
nothing; their work waits and continues by itself when they are back.`,
		Example: "  inbox waiting",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				found, err := o.Waiting.Overview(cmd.Context())
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), found)
				}
				return printOverview(cmd.OutOrStdout(), found)
			})
		},
	}

	addJSON(cmd)
	return cmd
}

func printOverview(out io.Writer, found operator.Overview) error {
	rows := [][]string{}
	for _, one := range []struct {
		what  string
		count int64
		look  string
	}{
		{"failed messages", found.Failed, "inbox failed list"}, {"dead deliveries", found.Deliveries, "inbox deliveries list --state dead"},
		{"dead jobs", found.Jobs, "inbox jobs list"}, {"held messages", found.Held, "inbox held list"},
		{"open approvals", found.Approvals, "inbox approvals list"}, {"messages in conversations that operators have", found.TakenOver, "inbox takeover list"},
	} {
		if one.count > 0 {
			rows = append(rows, []string{strconv.FormatInt(one.count, 10), one.what, one.look})
		}
	}
	if err := printTable(out, "Nothing waits for you.", []string{"COUNT", "WHAT", "LOOK"}, rows); err != nil || len(found.Breakers) == 0 {
		return err
	}

	fmt.Fprintln(out)
	return printBreakers(out, found.Breakers)
}

func newFailed() *cobra.Command {
	parent := &cobra.Command{
		Use: "failed", Short: "List messages on which an agent failed", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newFailedList())
	return parent
}

func newFailedList() *cobra.Command {
	var chosen workFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List messages on which an agent failed, the newest failure first",
		Long:    "Lists messages on which an agent failed, the newest failure first. Run them again with \"inbox retry\".",
		Example: "  inbox failed list --since 24h --channel email",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := chosen.filter("inbox failed list")
			if err != nil {
				return err
			}
			shown := table[exchange.TurnRecord]{"No message failed.", []string{"ID", "AGENT", "FROM", "BY", "FAILED", "WHY", "TEXT"}, func(t exchange.TurnRecord) []string {
				return []string{t.ID, t.Agent, oneLine(t.Message.Sender.Address.String()), t.Channel, when(t.UpdatedAt), excerpt(t.Reason), excerpt(markup.PlainText(t.Message.Parts))}
			}}
			return printPage(cmd, chosen.limit, shown, exchange.TurnCursor, func(o *inbox.Operator, size int) ([]exchange.TurnRecord, error) {
				return o.Waiting.Failed(cmd.Context(), filter, chosen.before, size)
			})
		},
	}

	addJSON(cmd)
	chosen.add(cmd)
	addPaging(cmd, &chosen.before, &chosen.limit)
	return cmd
}

// workFlags restrict lists of what failed.
type workFlags struct {
	agent, channel, since string
	before                string
	limit                 int
}

func (w *workFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.agent, "agent", "", "only work of this agent")
	addChoice(cmd, &w.channel, "channel", "only what came or leaves by this channel", inbox.ChannelNames()...)
	cmd.Flags().StringVar(&w.since, "since", "", "only what failed within this time, such as 2h, or after this moment (RFC 3339)")
}

func (w *workFlags) filter(command string) (filter exchange.RetryFilter, err error) {
	filter.Agent, filter.Channel = w.agent, w.channel
	if w.since == "" {
		return filter, nil
	}
	if filter.Since, err = operator.SinceTime(w.since, time.Now()); err != nil {
		return filter, usageError{fmt.Errorf("--since: %w\nRun '%s --help'", err, command)}
	}
	return filter, nil
}

// retryFlags are those of what is run again in bulk.
type retryFlags struct {
	workFlags
	failed, deliveries, jobs, dryRun bool
}

func (f *retryFlags) any() bool { return f.failed || f.deliveries || f.jobs }

func (f *retryFlags) restricted() bool {
	return f.agent != "" || f.channel != "" || f.since != "" || f.dryRun
}

func (f *retryFlags) add(cmd *cobra.Command) {
	f.workFlags.add(cmd)
	cmd.Flags().BoolVar(&f.failed, "failed", false, "all messages that failed; needs --since")
	cmd.Flags().BoolVar(&f.deliveries, "deliveries", false, "all deliveries that were given up; needs --since")
	cmd.Flags().BoolVar(&f.jobs, "jobs", false, "all other work that was given up; needs --since")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would run, and change nothing")
}

// retriedAll is what became of everything that was asked for. What was not is left out.
type retriedAll struct {
	*exchange.RetryResult

	Deliveries *exchange.RetriedWork `json:"deliveries,omitempty"`
	Jobs       *exchange.RetriedWork `json:"jobs,omitempty"`
}

func (f *retryFlags) run(cmd *cobra.Command) error {
	if f.since == "" {
		return usageError{fmt.Errorf("--since is missing: give an age such as 2h, or a time\nRun 'inbox retry --help'")}
	}
	filter, err := f.filter("inbox retry")
	if err != nil {
		return err
	}

	return operate(cmd, func(o *inbox.Operator) error {
		done, err := f.retry(cmd.Context(), o, filter)
		if err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd.OutOrStdout(), done)
		}
		return f.print(cmd.OutOrStdout(), done)
	})
}

func (f *retryFlags) retry(ctx context.Context, o *inbox.Operator, filter exchange.RetryFilter) (done retriedAll, err error) {
	if f.failed {
		result, err := o.Messages.RetryFailed(ctx, filter, operator.CommandLine, f.dryRun)
		if err != nil {
			return done, err
		}
		done.RetryResult = &result
	}
	if f.deliveries {
		result, err := o.Deliveries.RetryDead(ctx, filter, f.dryRun)
		if err != nil {
			return done, err
		}
		done.Deliveries = &result
	}
	if f.jobs {
		result, err := o.Jobs.RetryDead(ctx, filter, f.dryRun)
		if err != nil {
			return done, err
		}
		done.Jobs = &result
	}
	return done, nil
}

func (f *retryFlags) print(out io.Writer, done retriedAll) error {
	if result := done.RetryResult; result != nil {
		rows := make([][]string, 0, len(result.Turns))
		for _, t := range result.Turns {
			rows = append(rows, []string{t.ID, t.Agent, oneLine(t.Sender.String()), when(t.FailedAt), f.now("run", t.Skipped), excerpt(t.Failure)})
		}
		if err := printTable(out, "No message failed in that time.", []string{"ID", "AGENT", "FROM", "FAILED", "NOW", "WHY IT FAILED"}, rows); err != nil {
			return err
		}
		tellMore(out, result.More)
	}
	if err := f.printWork(out, done.Deliveries, "send", "No delivery was given up in that time.", "TO"); err != nil {
		return err
	}
	return f.printWork(out, done.Jobs, "run", "No other work was given up in that time.", "KIND")
}

func (f *retryFlags) printWork(out io.Writer, result *exchange.RetriedWork, verb, empty, what string) error {
	if result == nil {
		return nil
	}
	rows := make([][]string, 0, len(result.Work))
	for _, one := range result.Work {
		rows = append(rows, []string{one.ID, one.Agent, oneLine(one.What), when(one.FailedAt), f.now(verb, one.Skipped), excerpt(one.Failure)})
	}
	if err := printTable(out, empty, []string{"ID", "AGENT", what, "GIVEN UP", "NOW", "WHY"}, rows); err != nil {
		return err
	}
	tellMore(out, result.More)
	return nil
}

// now says what becomes of one. Run and send are their own participles but for sent.
func (f *retryFlags) now(verb, skipped string) string {
	switch {
	case skipped != "":
		return "left: " + skipped
	case f.dryRun:
		return "would " + verb + " again"
	case verb == "send":
		return "sent again"
	}
	return "run again"
}

func tellMore(out io.Writer, more bool) {
	if more {
		fmt.Fprintln(out, "There are more: give the same command again.")
	}
}

func newJobs() *cobra.Command {
	parent := &cobra.Command{
		Use: "jobs", Short: "List, retry or remove work of the server that was given up", Args: arguments(cobra.NoArgs),
		Long: `Work on which the server gave up, except failed messages and deliveries of answers: changes
for followers, webhooks of tasks, notices to you, and work that a defect prevented. The list shows the reason.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newJobsList(), newJobsRetry(), newJobsRemove())
	return parent
}

func newJobsList() *cobra.Command {
	var chosen workFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List work that was given up, newest first",
		Example: "  inbox jobs list --since 24h",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := chosen.filter("inbox jobs list")
			if err != nil {
				return err
			}
			shown := table[operator.DeadJob]{"No work was given up.", []string{"ID", "KIND", "AGENT", "MESSAGE", "TRIES", "GIVEN UP", "WHY"}, func(j operator.DeadJob) []string {
				return []string{j.ID, j.Kind, orDash(j.Agent), orDash(j.TurnID), strconv.Itoa(j.Attempt), when(j.UpdatedAt), excerpt(j.Reason)}
			}}
			return printPage(cmd, chosen.limit, shown, func(j operator.DeadJob) string { return j.ID }, func(o *inbox.Operator, size int) ([]operator.DeadJob, error) {
				return o.Jobs.List(cmd.Context(), filter, chosen.before, size)
			})
		},
	}

	addJSON(cmd)
	chosen.add(cmd)
	addPaging(cmd, &chosen.before, &chosen.limit)
	return cmd
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newJobsRetry() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:     "retry ID…",
		Short:   "Repeat work that was given up",
		Long:    "Repeats work that was given up, at once and with a new schedule. \"inbox retry --jobs\" does much of it, a little at a time.",
		Example: "  inbox jobs list\n  inbox jobs retry 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "will be done again", func(o *inbox.Operator, id string) error {
				return o.Jobs.Retry(cmd.Context(), id)
			})
		},
	}), jobIDs)
}

func newJobsRemove() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:     "remove ID…",
		Short:   "Forget work that was given up",
		Long:    "Forgets work that was given up. Work on a message stays, because the message would wait forever.",
		Example: "  inbox jobs remove 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is removed", func(o *inbox.Operator, id string) error {
				return o.Jobs.Remove(cmd.Context(), id)
			})
		},
	}), jobIDs)
}

func newBreakers() *cobra.Command {
	parent := &cobra.Command{
		Use: "breakers", Short: "List open breakers, or try their back ends and destinations at once", Args: arguments(cobra.NoArgs),
		Long: `A breaker is open while an agent's back end is down, or a destination takes nothing. Their work waits, and one probe
after a pause finds out whether they are back. A destination that took nothing on seven days is given up until something comes from there.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newBreakersList(), newBreakersClose())
	return parent
}

func newBreakersList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List open breakers", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				open, err := o.Breakers.List(cmd.Context())
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), exchange.NewList(open, ""))
				}
				return printBreakers(cmd.OutOrStdout(), open)
			})
		},
	}

	addJSON(cmd)
	return cmd
}

func printBreakers(out io.Writer, open []operator.Breaker) error {
	rows := make([][]string, 0, len(open))
	for _, b := range open {
		rows = append(rows, []string{oneLine(b.Target), orDash(b.Channel), b.Kind, b.State, when(b.Until), strconv.Itoa(b.Opened), excerpt(b.Reason)})
	}
	return printTable(out, "No breaker is open.", []string{"TARGET", "BY", "KIND", "STATE", "NEXT PROBE", "OPENED", "WHY"}, rows)
}

func newBreakersClose() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:   "close TARGET…",
		Short: "Try agents or destinations at once",
		Long: `Closes the open breakers of agents or destinations, as the list names them: waiting work is tried at once, and failures open
them again. Answers that were given up meanwhile are sent by "inbox retry --deliveries".`,
		Example: "  inbox breakers list\n  inbox breakers close mail.example.com",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, targets []string) error {
			return each(cmd, targets, "is tried again", func(o *inbox.Operator, target string) error {
				_, err := o.Breakers.Close(cmd.Context(), target, operator.CommandLine)
				return err
			})
		},
	}), openBreakers)
}
