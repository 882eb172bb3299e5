package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"inbox"
)

const defaultFile = "inbox.toml"

// load reads the configuration that the command line names.
func load(cmd *cobra.Command) (*inbox.Config, error) {
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return nil, err
	}
	if file == "" {
		if _, err := os.Stat(defaultFile); err == nil {
			file = defaultFile
		}
	}
	return inbox.LoadConfig(file, os.Environ())
}

// operate opens the database for one operator command and closes it afterwards.
func operate(cmd *cobra.Command, work func(*inbox.Operator) error) error {
	config, err := load(cmd)
	if err != nil {
		return err
	}
	operator, err := inbox.OpenOperator(cmd.Context(), config)
	if err != nil {
		return err
	}
	return errors.Join(work(operator), operator.Close())
}

func addJSON(cmd *cobra.Command) { cmd.Flags().Bool("json", false, "print JSON") }

// wantsJSON says whether --json was given.
func wantsJSON(cmd *cobra.Command) bool {
	given, err := cmd.Flags().GetBool("json")
	return err == nil && given
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// printTable aligns rows under a heading; an empty list says so instead.
func printTable(out io.Writer, empty string, heading []string, rows [][]string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, empty)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	printRow(table, heading)
	for _, row := range rows {
		printRow(table, row)
	}
	return table.Flush()
}

func printRow(out io.Writer, cells []string) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(out, "\t")
		}
		fmt.Fprint(out, cell)
	}
	fmt.Fprintln(out)
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
