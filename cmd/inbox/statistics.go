package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

func newStatistics() *cobra.Command {
	var since, step, agent string
	cmd := &cobra.Command{
		Use:   "statistics",
		Short: "Show received messages by channel, and how they ended",
		Long: `Shows received messages, how they ended, the time within which 95 of 100 answers left (from buckets, so roughly), and the cost that agents
stated. A running server counts from the messages about once a minute; numbers are kept for 400 days, also of messages that retention removed.`,
		Example: "  inbox statistics\n  inbox statistics --since 720h --step day --agent helper --json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := operator.Moment("since", since, time.Now())
			if err != nil {
				return usageError{fmt.Errorf("--since: %w\nRun '%s --help'", err, cmd.CommandPath())}
			}
			return operate(cmd, func(o *inbox.Operator) error {
				found, err := o.Statistics.Read(cmd.Context(), agent, step, from)
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), found)
				}

				rows := make([][]string, 0, len(found.Channels))
				for _, c := range found.Channels {
					rows = append(rows, []string{
						c.Channel, fmt.Sprint(c.Received), fmt.Sprint(c.Answered), fmt.Sprint(c.Silent), fmt.Sprint(c.Refused), fmt.Sprint(c.Failed),
						fmt.Sprint(c.Held), fmt.Sprint(c.Waiting), (time.Duration(c.P95) * time.Millisecond).String(), fmt.Sprintf("%.2f", float64(c.Spend)/1e6),
					})
				}
				return printTable(cmd.OutOrStdout(), "No message since "+when(found.Since)+" is counted yet; a running server counts about once a minute.",
					[]string{"CHANNEL", "RECEIVED", "ANSWERED", "SILENT", "REFUSED", "FAILED", "HELD", "WAITING", "P95", "COST"}, rows)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "23h", "from when on: a time such as 24h, or an instant (RFC 3339)")
	cmd.Flags().StringVar(&step, "step", operator.StepHour, "hour or day, for --json")
	cmd.Flags().StringVar(&agent, "agent", "", "one agent alone")
	addJSON(cmd)
	return cmd
}
