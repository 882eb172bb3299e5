package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
)

func newMigrate() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to the schema of this version",
		Long:  "Brings the database to the schema of this version and prints it. serve does the same at start; several nodes may start together.",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				version, err := o.SchemaVersion(cmd.Context())
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "The database is at schema version %d.\n", version)
				return nil
			})
		},
	}
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), inbox.BuildInfo())
			}
			info := inbox.BuildInfo()
			fmt.Fprintf(cmd.OutOrStdout(), "inbox %s (%s, %s)\n", info.Version, info.Go, info.Platform)
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}
