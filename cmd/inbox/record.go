package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

// recordFlags say what is recorded, and where.
type recordFlags struct {
	directory  string
	filter     exchange.ArrivalFilter
	options    operator.RecordOptions
	pseudonyms bool
	forTime    time.Duration
	count      int
}

func newRecord() *cobra.Command {
	var flags recordFlags
	cmd := &cobra.Command{
		Use:   "record --to DIR [ID…]",
		Short: "Record messages and their answers as files, without secrets",
		Long: `Records new messages of the running server, each with its result, as one directory below DIR: message.json and
expected.json. "inbox replay DIR" sends them again. With IDs it records those messages and ends; otherwise it continues until --count
messages, the time of --for, or Ctrl-C. With --json each recorded message is then one line.

It removes what looks like a secret: tokens, passwords, keys, web addresses that open something. People get pseudonyms, the same
person always the same: addresses, profiles, phone numbers, and the names of senders in all texts. Files are recorded by name and type,
without their bytes. Names that no sender has are not found: read recordings before you pass them on.

--originals also keeps each message as it came, with everything in it. --pseudonyms=false keeps names and addresses.`,
		Example: `  inbox record --to cases --count 20 --agent helper
  inbox record --to cases --for 10m --channel email
  inbox record --to bug 0197…`,
		Args: arguments(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if flags.directory == "" {
				return usageError{fmt.Errorf("--to is missing: name a new directory\nRun '%s --help'", cmd.CommandPath())}
			}
			if len(ids) > 0 && (flags.forTime > 0 || flags.count > 0) {
				return usageError{fmt.Errorf("IDs exclude --for and --count\nRun '%s --help'", cmd.CommandPath())}
			}
			flags.options.Names = !flags.pseudonyms
			return operate(cmd, func(o *inbox.Operator) error {
				if err := operator.PrepareRecordings(flags.directory); err != nil {
					return err
				}
				if len(ids) > 0 {
					return flags.these(cmd, o, ids)
				}
				return flags.follow(cmd, o)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, messageIDs)
	set := cmd.Flags()
	set.StringVar(&flags.directory, "to", "", "directory for the recordings, new or empty")
	set.DurationVar(&flags.forTime, "for", 0, "end after this time, such as 10m")
	set.IntVar(&flags.count, "count", 0, "end after so many messages")
	set.StringVar(&flags.filter.Agent, "agent", "", "only messages to this agent")
	addChoice(cmd, &flags.filter.Channel, "channel", "only by this channel", inbox.ChannelNames()...)
	set.BoolVar(&flags.pseudonyms, "pseudonyms", true, "give people other names and addresses")
	set.BoolVar(&flags.options.Originals, "originals", false, "also keep each message as it came, with everything in it")
	return cmd
}

func (f *recordFlags) these(cmd *cobra.Command, o *inbox.Operator, ids []string) error {
	recorder := o.Recorder(f.options)
	all := []recordedMessage{}
	for _, id := range ids {
		made, err := recorder.Record(cmd.Context(), id)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if err := made.Write(f.directory); err != nil {
			return err
		}
		if all = append(all, recorded(made)); !wantsJSON(cmd) {
			if err := all[len(all)-1].show(cmd.OutOrStdout()); err != nil {
				return err
			}
		}
	}
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), exchange.NewList(all, ""))
	}
	return nil
}

func (f *recordFlags) follow(cmd *cobra.Command, o *inbox.Operator) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	if f.forTime > 0 {
		bounded, cancel := context.WithTimeout(ctx, f.forTime)
		defer cancel()
		ctx = bounded
	}

	ready := func() { fmt.Fprintf(cmd.ErrOrStderr(), "Recording to %s. Ctrl-C ends.\n", f.directory) }
	written := 0
	unfinished, err := o.Recorder(f.options).Follow(ctx, f.filter, ready, func(made operator.Recording) (bool, error) {
		written++
		return f.count == 0 || written < f.count, f.write(cmd, made)
	})
	fmt.Fprintf(cmd.ErrOrStderr(), "%s recorded.\n", counted(written, "message"))
	if unfinished > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s without an end yet: not recorded.\n", counted(unfinished, "message"))
	}
	return err
}

// write writes a recording and prints it; with --json each is one line, because their number is not known.
func (f *recordFlags) write(cmd *cobra.Command, made operator.Recording) error {
	if err := made.Write(f.directory); err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(recorded(made))
	}
	return recorded(made).show(cmd.OutOrStdout())
}

// recordedMessage is a message that was recorded.
type recordedMessage struct {
	ID      string `json:"id"`
	Channel string `json:"channel"`
	Agent   string `json:"agent"`
	State   string `json:"state"`
	Text    string `json:"text"` // its beginning
}

func recorded(made operator.Recording) recordedMessage {
	return recordedMessage{made.Message.ID, made.Message.Channel, made.Message.Agent, made.Expected.State, excerpt(made.Message.Text())}
}

func (r recordedMessage) show(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%s  %s  %s  %s  %s\n", r.ID, r.Channel, r.Agent, r.State, r.Text)
	return err
}

// errDiffers is the error of a replay in which something is not as it was recorded.
var errDiffers = errors.New("answers differ from what was recorded")

// replayReport is what --json prints.
type replayReport struct {
	Replayed  []operator.Replayed `json:"replayed"`
	Equal     int                 `json:"equal"`
	Different int                 `json:"different"`
	Skipped   int                 `json:"skipped"`
}

func newReplay() *cobra.Command {
	var options operator.ReplayOptions
	cmd := &cobra.Command{
		Use:   "replay DIR",
		Short: "Send recorded messages again, and report which answers differ",
		Long: `Sends the messages of "inbox record" to the running server, one after the other, in their conversations and by the same
networks, like "inbox simulate". It waits for each result, and reports differences to the recording.

--compare text requires the same words, shape the same state, kinds of parts and tools, state only the same state. Names of servers and
people do not count. Answers of models differ in their words each time: compare their shape. Messages of channels that cannot be
simulated are skipped and counted.

Exit codes: 0 nothing differs, 1 something does or could not be sent, 2 the command line is wrong.`,
		Example: "  inbox replay cases\n  inbox replay cases --agent helper-next --compare shape\n  inbox replay cases --json > report.json",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			recordings, err := operator.ReadRecordings(given[0])
			if err != nil {
				return err
			}
			return operate(cmd, func(o *inbox.Operator) error { return replay(cmd, o, recordings, options) })
		},
	}

	addJSON(cmd)
	options.Compare = operator.Comparisons()[0]
	addChoice(cmd, &options.Compare, "compare", "what has to be the same", operator.Comparisons()...)
	cmd.Flags().StringVar(&options.Agent, "agent", "", "send all of them to this agent")
	cmd.Flags().DurationVar(&options.Wait, "wait", 2*time.Minute, "how long to wait for the end of each message")
	return cmd
}

func replay(cmd *cobra.Command, o *inbox.Operator, recordings []operator.Recording, options operator.ReplayOptions) error {
	report := replayReport{Replayed: []operator.Replayed{}}
	out := cmd.OutOrStdout()
	err := o.Replay(cmd.Context(), recordings, options, func(one operator.Replayed) error {
		report.Replayed = append(report.Replayed, one)
		switch {
		case one.Skipped != "":
			report.Skipped++
		case len(one.Differences) > 0:
			report.Different++
		default:
			report.Equal++
		}
		if wantsJSON(cmd) {
			return nil
		}
		return printReplayed(out, one)
	})
	if err != nil {
		return err
	}

	if wantsJSON(cmd) {
		err = printJSON(out, report)
	} else {
		_, err = fmt.Fprintf(out, "%d equal, %d different, %d skipped\n", report.Equal, report.Different, report.Skipped)
	}
	if err == nil && report.Different > 0 {
		err = errDiffers
	}
	return err
}

// printReplayed prints one line for what is equal, and a block for what is not.
func printReplayed(out io.Writer, one operator.Replayed) error {
	word := "equal"
	switch {
	case one.Skipped != "":
		word = "skipped"
	case len(one.Differences) > 0:
		word = "different"
	}
	if _, err := fmt.Fprintf(out, "%-9s  %s  %s  %s  %s\n", word, one.ID, one.Channel, one.Agent, excerpt(one.Question)); err != nil {
		return err
	}

	var block strings.Builder
	if one.Skipped != "" {
		fmt.Fprintf(&block, "  %s\n", oneLine(one.Skipped))
	}
	for _, difference := range one.Differences {
		fmt.Fprintf(&block, "  %s\n%s%s", difference.What, marked("    - ", difference.Recorded), marked("    + ", difference.Replayed))
	}
	if len(one.Differences) > 0 && one.TurnID != "" {
		fmt.Fprintf(&block, "  inbox show %s\n", one.TurnID)
	}
	_, err := io.WriteString(out, block.String())
	return err
}

// marked writes each line of a text behind a mark.
func marked(mark, text string) string {
	var lines strings.Builder
	for line := range strings.SplitSeq(printable(text), "\n") {
		lines.WriteString(mark + line + "\n")
	}
	return lines.String()
}
