package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"inbox/internal/disk"
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

// domainRow is a domain of the server, or one that it had.
type domainRow struct {
	Domain    string `json:"domain"`
	State     string `json:"state"` // served, or orphaned: it is in no table [[domains]] any more, and its data is there
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
				return printJSON(cmd.OutOrStdout(), rows)
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
		Long: `Deletes everything that is kept of a domain whose table [[domains]] was removed: keys, messages, files. It cannot be undone. A domain
that is still in the settings is refused, and one that a server started with earlier settings still serves: restart that server first. Files in a
bucket remain; the command names their address. On PostgreSQL the rows are in a schema of their own, which the command names, because only the owner
of the database can drop it; the directory is deleted.`,
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
			if err := removeDirectory(left[at].Domain, left[at].Directory); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", left[at].Directory)
			if left[at].Files != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "Remains   the files, in %s; delete what is below that address\n", left[at].Files)
			}
			if left[at].Schema != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "Remains   the rows, in PostgreSQL; delete them with: DROP SCHEMA %q CASCADE\n", left[at].Schema)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&erase, "erase", false, "delete it for good")
	return cmd
}

// removeDirectory deletes the directory of a domain that no server has open: one that was not restarted since the table was removed would go
// on accepting messages into files that are deleted.
func removeDirectory(domain, directory string) (err error) {
	seat, err := disk.Take(directory)
	if errors.Is(err, disk.ErrTaken) {
		return fmt.Errorf("nothing was removed: a running server still serves %s; restart it, so that it reads the settings without that domain, and try again", domain)
	}
	if err == nil {
		defer func() { err = errors.Join(err, seat.Leave()) }()
		err = os.RemoveAll(directory)
	}
	if err != nil {
		return fmt.Errorf("delete the data of %s: %w", domain, disk.Cause(err))
	}
	return nil
}
