package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newBlock() *cobra.Command {
	return listCommand(exchange.ListBlock, "Keep servers, people and agents out", `Keeps servers, people and agents out, on every protocol: nothing is taken from them and nothing is sent to them. A
server that runs notices within seconds; what it had accepted and not answered is cancelled.

TARGET is a host (example.com), a domain with everything below it (*.example.com), an address (@user@example.com), an
actor's address (https://example.com/users/user) or a principal as "inbox show" prints it. The narrowest entry decides, so
that "inbox allow add" makes an exception from a wider block.`)
}

func newAllow() *cobra.Command {
	return listCommand(exchange.ListAllow, "Let servers, people and agents in", `Lists who is admitted. With federation.mode = "allowlist" no one else is; otherwise an entry is an exception from a
wider block. TARGET is written as for "inbox block".`)
}

func listCommand(list, short, long string) *cobra.Command {
	parent := &cobra.Command{
		Use: list, Short: short, Long: long, Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newListAdd(list), newListRemove(list), newListList(list), newListImport(list))
	return parent
}

// addedEntry is an entry that was put on a list, for --json.
type addedEntry struct {
	exchange.ListEntry

	Cancelled int `json:"cancelled"` // accepted messages that were cancelled; with --dry-run those that would be
}

func newListAdd(list string) *cobra.Command {
	var reason string
	var hold, dryRun bool
	cmd := &cobra.Command{
		Use:     "add TARGET…",
		Short:   "Add an entry to the list",
		Long:    map[string]string{exchange.ListBlock: "Adds entries to the list. Messages of blocked senders that were accepted and are not answered are cancelled for good, and held ones\nare dropped: --dry-run shows how many. \"inbox held restore\" brings dropped ones back.", exchange.ListAllow: "Adds entries to the list."}[list],
		Example: "  inbox " + list + " add '*.example.com' --reason 'spam'\n  inbox " + list + " add @user@example.org",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, targets []string) error {
			effect := ""
			if hold {
				effect = exchange.EffectHold
			}

			return operate(cmd, func(o *inbox.Operator) error {
				added := make([]addedEntry, 0, len(targets))
				for _, target := range targets {
					wanted := exchange.ListEntry{List: list, Target: target, Effect: effect, Reason: reason, Source: "operator"}
					if dryRun {
						entry, cancels, err := o.Lists.Preview(cmd.Context(), wanted)
						if err != nil {
							return err
						}
						if added = append(added, addedEntry{entry, cancels}); wantsJSON(cmd) {
							continue
						}
						fmt.Fprintf(cmd.OutOrStdout(), "%s would be on the %s list; %s\n", entry.Target, list, wouldCancel(cancels))
						continue
					}
					entry, cancelled, err := o.Lists.Add(cmd.Context(), wanted)
					if err != nil {
						return err
					}
					if added = append(added, addedEntry{entry, cancelled}); !wantsJSON(cmd) {
						fmt.Fprintf(cmd.OutOrStdout(), "%s is on the %s list%s\n", entry.Target, list, cancelledText(cancelled))
					}
				}

				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), exchange.NewList(added, ""))
				}

				return nil
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")

	if list == exchange.ListBlock {
		cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, and show how many accepted messages would be cancelled or dropped")
		cmd.Flags().BoolVar(&hold, "hold", false, "hold their messages for you instead of refusing them")
	}

	return cmd
}

func wouldCancel(messages int) string {
	if messages == 0 {
		return "no accepted message would be cancelled"
	}
	return acceptedMessages(messages) + " would be cancelled for good, or dropped if held"
}

func cancelledText(cancelled int) string {
	if cancelled == 0 {
		return ""
	}
	return "; cancelled: " + acceptedMessages(cancelled) + " (held ones can be restored: inbox held list --dropped)"
}

func acceptedMessages(count int) string {
	if count == 1 {
		return "1 accepted message"
	}
	return fmt.Sprintf("%d accepted messages", count)
}

func newListRemove(list string) *cobra.Command {
	var agent string
	var stop bool
	cmd := &cobra.Command{
		Use:     "remove TARGET…",
		Example: "  inbox " + list + " remove '*.example.com'\n  inbox " + list + " remove @user@example.org",
		Short:   "Remove an entry from the list",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, targets []string) error {
			return each(cmd, targets, "is off the list", func(o *inbox.Operator, target string) error {
				entry := exchange.ListEntry{List: list, Target: target}
				if stop {
					entry.List, entry.Agent = exchange.ListStop, agent
				}
				return o.Lists.Remove(cmd.Context(), entry)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, map[string]completed{exchange.ListBlock: blocked, exchange.ListAllow: allowed}[list])
	if list == exchange.ListBlock {
		cmd.Flags().BoolVar(&stop, "stop", false, "lift a stop word; TARGET is the principal, --agent the agent")
		cmd.Flags().StringVar(&agent, "agent", "", "with --stop: the agent that was told to stop")
	}

	return cmd
}

func newListList(list string) *cobra.Command {
	filter := exchange.ListFilter{List: list}
	var limit int
	var stop bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the list, newest first",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stop {
				filter.List = exchange.ListStop
			}
			shown := table[exchange.ListEntry]{"The list is empty.", []string{"TARGET", "KIND", "EFFECT", "AGENT", "SINCE", "BY", "REASON"}, func(e exchange.ListEntry) []string {
				return []string{oneLine(e.Target), e.Kind, e.Effect, e.Agent, when(e.CreatedAt), e.Source, excerpt(e.Reason)}
			}}
			return printPage(cmd, limit, shown, func(e exchange.ListEntry) string { return e.ID }, func(o *inbox.Operator, size int) ([]exchange.ListEntry, error) {
				filter.Limit = size
				return o.Lists.Entries(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	addChoice(cmd, &filter.Kind, "kind", "only this kind", exchange.TargetKinds()...)

	if list == exchange.ListBlock {
		cmd.Flags().BoolVar(&stop, "stop", false, "show who told an agent to stop instead")
		cmd.Flags().StringVar(&filter.Agent, "agent", "", "with --stop: only this agent")
	}

	addPaging(cmd, &filter.Before, &limit)
	return cmd
}

func newListImport(list string) *cobra.Command {
	var silenced string
	var dry bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import a list that Mastodon exported, or one domain a line",
		Long: `Reads a list: the CSV that Mastodon and GoToSocial export (#domain,#severity,…), or one target a line. A domain in
such a CSV covers its subdomains, as it does there. Comments and empty lines are skipped; bad lines are reported and
the others imported. Existing entries stay. FILE may be - for standard input.

Severities: suspend is refused. silence hides posts from timelines in Mastodon, which this server does not have: --silenced
decides about those domains. noop is skipped.`,
		Example: "  inbox " + list + " import --dry-run domain_blocks.csv",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, files []string) error {
			file, err := openFile(cmd, files[0])
			if err != nil {
				return err
			}
			defer file.Close()
			return operate(cmd, func(o *inbox.Operator) error {
				result, err := o.Lists.Import(cmd.Context(), file, operator.ImportOptions{
					List: list, Silenced: silenced, DryRun: dry, Progress: progressOf(cmd),
				})
				if wantsJSON(cmd) {
					return errors.Join(err, printJSON(cmd.OutOrStdout(), result))
				}
				printImport(cmd, result)
				return err
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would happen, and change nothing")
	silenced = "hold"
	addChoice(cmd, &silenced, "silenced", "what to do with silenced domains", "hold", "refuse", "skip")
	return cmd
}

// progressOf tells a terminal how far a long import is.
func progressOf(cmd *cobra.Command) func(int) {
	file, is := cmd.ErrOrStderr().(*os.File)
	if !is {
		return func(int) {}
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func(int) {}
	}
	return func(taken int) { fmt.Fprintf(file, "\r%d entries", taken) }
}

func printImport(cmd *cobra.Command, result exchange.ImportResult) {
	out := cmd.OutOrStdout()
	for _, line := range result.Bad {
		fmt.Fprintf(out, "line %d: %q %s\n", line.Line, oneLine(line.Text), line.Why)
	}

	if more := result.BadLines - len(result.Bad); more > 0 {
		fmt.Fprintf(out, "and %d more bad lines\n", more)
	}

	verb := "added"
	if result.DryRun {
		verb = "would be added"
	}
	fmt.Fprintf(out, "%d entries %s, %d were there, %d lines were left out%s\n", result.Added, verb, result.Unchanged, result.BadLines, cancelledText(result.Cancelled))
}
