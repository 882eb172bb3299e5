package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
)

func newDomains() *cobra.Command {
	parent := &cobra.Command{
		Use:   "domains",
		Short: "List the server's domains, and remove the data of one that it had",
		Args:  arguments(cobra.NoArgs),
	}
	parent.AddCommand(newDomainsList(), newDomainsRemove())
	return parent
}

// leftDomains are the domains whose data is left of earlier settings.
var leftDomains = completed{local: func(cmd *cobra.Command) (names []string) {
	settings, err := load(cmd)
	if err != nil {
		return nil
	}
	left, _ := settings.OrphanedDomains() // a shell shows no errors
	for _, one := range left {
		names = append(names, one.Domain)
	}
	return names
}}

// domainRow is a domain of the server, or one that it had.
type domainRow struct {
	Domain    string `json:"domain"`
	State     string `json:"state"` // served; orphaned: it is in no table [[domains]] any more, and its data is there; deleted
	Directory string `json:"directory"`
	Schema    string `json:"schema,omitempty"`
	Files     string `json:"files,omitempty"`
}

func newDomainsList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the domains, and those whose data is left of earlier settings",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := load(cmd)
			if err != nil {
				return err
			}
			left, err := settings.OrphanedDomains()
			if err != nil {
				return err
			}

			rows := []domainRow{{Domain: settings.Domain, State: "served", Directory: settings.DataDir}}
			for _, one := range settings.Hosted {
				rows = append(rows, domainRow{Domain: one.Domain, State: "served", Directory: one.DataDir})
			}
			for _, one := range left {
				rows = append(rows, domainRow{one.Domain, "orphaned", one.Directory, one.Schema, one.Files})
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), exchange.NewList(rows, ""))
			}
			table := make([][]string, len(rows))
			for i, row := range rows {
				table[i] = []string{row.Domain, row.State, row.Directory}
			}
			return printTable(cmd.OutOrStdout(), "", []string{"DOMAIN", "STATE", "DIRECTORY"}, table)
		},
	}
	addJSON(cmd)
	return cmd
}

func newDomainsRemove() *cobra.Command {
	var erase bool
	cmd := &cobra.Command{
		Use:   "remove DOMAIN --erase",
		Short: "Delete the data of a domain that is not in the settings any more",
		Long: `Deletes everything that is stored of a domain whose table [[domains]] was removed: keys, messages, files, and on PostgreSQL its schema. It cannot
be undone. A domain that is still in the settings is refused, and so is one that a server with earlier settings still serves: restart that server
first. On PostgreSQL a server that crashed counts as running for 90 seconds. Files in a bucket remain; the command prints their address.`,
		Example: "  inbox domains list\n  inbox domains remove second.example --erase",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			settings, err := load(cmd)
			if err != nil {
				return err
			}
			left, err := settings.OrphanedDomains()
			if err != nil {
				return err
			}
			at := -1
			for i := range left {
				if strings.EqualFold(left[i].Domain, names[0]) {
					at = i
				}
			}
			switch {
			case at < 0:
				return fmt.Errorf("%s has no data that is left of earlier settings; see: inbox domains list", names[0])
			case !erase:
				return usageError{fmt.Errorf("nothing was removed; write --erase to delete %s for good", left[at].Directory)}
			}
			if err := inbox.RemoveDomain(cmd.Context(), settings, left[at]); err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), domainRow{left[at].Domain, "deleted", left[at].Directory, left[at].Schema, left[at].Files})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", left[at].Directory)
			if left[at].Files != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "Remains   the files, in %s; delete what is below that address\n", left[at].Files)
			}
			if left[at].Schema != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "The schema %s is deleted\n", left[at].Schema)
			}
			return nil
		},
	}
	addJSON(cmd)
	completing(cmd, leftDomains)
	cmd.Flags().BoolVar(&erase, "erase", false, "delete it for good")
	return cmd
}
