package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

func newPeople() *cobra.Command {
	parent := &cobra.Command{
		Use:   "people",
		Short: "List or unlink people who proved that several addresses are theirs",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newPeopleList(), newPeopleUnlink())
	return parent
}

func newPeopleList() *cobra.Command {
	var before string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List linked identities, those of one person together, and who told an agent to stop",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd, "Nobody has linked two addresses, and nobody told an agent to stop.", []string{"PERSON", "ADDRESS", "SUBJECT", "PROVEN BY", "LINKED", "STOPPED"}, func(o *inbox.Operator) ([]operator.Person, error) {
				return o.People.WithStops(cmd.Context(), before, limit)
			}, func(p operator.Person) []string {
				return []string{p.PersonID, oneLine(p.Address), oneLine(p.Subject), oneLine(p.Method), linkedAt(p), strings.Join(p.Stopped, " ")}
			})
		},
	}
	addJSON(cmd)
	addPaging(cmd, &before, &limit)
	return cmd
}

// linkedAt leaves out the time of who linked nothing.
func linkedAt(p operator.Person) string {
	if p.PersonID == "" {
		return ""
	}
	return when(p.LinkedAt)
}

func newPeopleUnlink() *cobra.Command {
	return &cobra.Command{
		Use:   "unlink WHO…",
		Short: "Take an identity out of its person",
		Long: `Takes an identity out of its person: from then on its conversations stand alone again. WHO is the identity's
subject, address or principal, as "inbox people list" shows them. What an agent has already seen is not taken back.`,
		Example: "  inbox people unlink mailto:alice@example.org",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				for _, name := range names {
					principal, err := o.People.UnlinkNamed(cmd.Context(), name)
					if err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s is unlinked\n", principal)
				}
				return nil
			})
		},
	}
}
