package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
)

func newConfig() *cobra.Command {
	parent := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration, or show the resulting settings",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newConfigCheck(), newConfigShow())
	return parent
}

func newConfigCheck() *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "check",
		Short: "Report every mistake in the configuration",
		Long: `Reads the file and the INBOX_… variables as "inbox serve" does, makes every part of the server in a directory that it removes afterwards,
and reports every mistake, with its line and what to write instead. What it accepts, a start accepts. It does not open your database and contacts
no server; "inbox doctor" does.`,
		Example: "  inbox config check --config /etc/inbox/inbox.toml",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := load(cmd)
			if err != nil {
				return err
			}
			whole, err := loadWhole(cmd)
			if err == nil {
				err = inbox.CheckConfig(cmd.Context(), whole)
			}
			if err != nil {
				return err
			}

			if wantsJSON(cmd) {
				checked := checkedConfig{File: config.File, Domain: config.Domain, Agents: len(config.Agents), Hosted: []checkedDomain{}}
				for _, further := range config.Hosted {
					checked.Hosted = append(checked.Hosted, checkedDomain{further.Domain, len(further.Agents)})
				}
				return printJSON(cmd.OutOrStdout(), checked)
			}
			from := "no file: development mode"
			if config.File != "" {
				from = config.File
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %s, domain %s, %s\n", from, config.Domain, counted(len(config.Agents), "agent"))
			for _, further := range config.Hosted {
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "    and domain %s, %s\n", further.Domain, counted(len(further.Agents), "agent"))
				}
			}
			return err
		},
	})
}

// checkedConfig is what --json prints of a configuration without mistakes.
type checkedConfig struct {
	File   string          `json:"file"` // empty = there is none: development mode
	Domain string          `json:"domain"`
	Agents int             `json:"agents"`
	Hosted []checkedDomain `json:"hosted"` // further domains of the server
}

type checkedDomain struct {
	Domain string `json:"domain"`
	Agents int    `json:"agents"`
}

func newConfigShow() *cobra.Command {
	var effective bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the settings that differ from the defaults",
		Long: `Prints the settings of the file and the INBOX_… variables that differ from the defaults, as a file would have them. With
--effective it prints all of them, with the defaults and what follows from other settings. Secrets and passwords are hidden.`,
		Example: "  inbox config show --effective",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := load(cmd)
			if err != nil {
				return err
			}
			document, err := config.Document(effective)
			switch {
			case err != nil:
			case wantsJSON(cmd):
				err = printJSON(cmd.OutOrStdout(), map[string]string{"toml": string(document)})
			default:
				_, err = cmd.OutOrStdout().Write(document)
			}
			return err
		},
	}
	addJSON(cmd)
	cmd.Flags().BoolVar(&effective, "effective", false, "print every setting, also those with default values")
	return cmd
}
