package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

const answerIDs = `ID is the id of the answer, of its message (as inbox show prints them), or the address of the post.`

func newDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID…",
		Short: "Take answers back: everybody who has them is told",
		Long: `Takes answers back. The running server tells every server that got the answer; one that did not get it yet gets
nothing. The text leaves the history, and its address says that it was deleted.
` + answerIDs,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is taken back", func(o *inbox.Operator, id string) error {
				if err := o.Answers.Delete(cmd.Context(), id, operator.CommandLine); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				return nil
			})
		},
	}
}

func newEdit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit ID [FILE]",
		Short: "Replace the text of an answer: everybody who has it is told",
		Long: `Replaces the text of an answer by that of a file, or of standard input without one or with "-". Files and links of
the answer stay. The running server tells every server that got the answer.
` + answerIDs,
		Example: "  inbox edit 019a… answer.md\n  echo 'Tomorrow at ten.' | inbox edit 019a…",
		Args:    arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			file := "-"
			if len(given) > 1 {
				file = given[1]
			}
			text, err := readFile(cmd, file, maxEditedText)
			if err != nil {
				return err
			}
			mime, err := cmd.Flags().GetString("type")
			if err != nil {
				return err
			}
			return operate(cmd, func(o *inbox.Operator) error {
				if err := o.Answers.Edit(cmd.Context(), given[0], operator.CommandLine, string(text), mime); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s is edited\n", given[0])
				return nil
			})
		},
	}
	cmd.Flags().String("type", "", "text/plain, text/markdown or text/html (default: as before)")
	return cmd
}

// maxEditedText is more than an answer may have, so that one that is too long is told so.
const maxEditedText = 1<<20 + 1

func newPin() *cobra.Command {
	return pinning("pin ID", "Show an answer on the profile of its agent: its followers are told", "is pinned", true)
}

func newUnpin() *cobra.Command {
	return pinning("unpin ID", "Take an answer off the profile of its agent: its followers are told", "is not pinned any more", false)
}

func pinning(use, short, done string, pinned bool) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: short + ".\n" + answerIDs,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, done, func(o *inbox.Operator, id string) error {
				return o.Answers.Pin(cmd.Context(), id, pinned)
			})
		},
	}
}
