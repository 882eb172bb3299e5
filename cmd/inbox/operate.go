package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

const defaultFile = "inbox.toml"

// load reads the configuration that the command line names, and returns that of one domain.
func load(cmd *cobra.Command) (*inbox.Config, error) {
	whole, err := loadWhole(cmd)
	if err != nil {
		return nil, err
	}
	name := domainFlag(cmd)
	if name == "" {
		return whole, nil
	}

	one, known := whole.WithDomain(name)
	if !known {
		var names []string
		for _, other := range append([]*inbox.Config{whole}, whole.Hosted...) {
			names = append(names, other.Domain)
		}
		return nil, usageError{fmt.Errorf("--domain: %q is no domain of this server; it has %s", name, strings.Join(names, ", "))}
	}
	return one, nil
}

// loadWhole reads the configuration that the command line names, with all domains of the server.
func loadWhole(cmd *cobra.Command) (*inbox.Config, error) {
	file, err := configFile(cmd)
	if err != nil {
		return nil, err
	}
	return inbox.LoadConfig(file, os.Environ())
}

// loadEach reads the configurations of all domains, or of the one that the command line names.
func loadEach(cmd *cobra.Command) ([]*inbox.Config, error) {
	config, err := load(cmd)
	if err != nil || domainFlag(cmd) != "" {
		return []*inbox.Config{config}, err
	}
	return append([]*inbox.Config{config}, config.Hosted...), nil
}

// domainFlag is the domain that the command line names; empty = none. inbox init has a flag of the same name for what it writes.
func domainFlag(cmd *cobra.Command) string {
	if flag := cmd.InheritedFlags().Lookup("domain"); flag != nil {
		return flag.Value.String()
	}
	return ""
}

// furtherDomain is the domain that the command line names as tables of the file name it; empty = that at the top.
func furtherDomain(cmd *cobra.Command) (string, error) {
	if domainFlag(cmd) == "" {
		return "", nil
	}
	config, err := load(cmd)
	if err != nil || config.HostedBy == "" {
		return "", err
	}
	return config.Domain, nil
}

// configFile is the file that the command line names; empty = there is none.
func configFile(cmd *cobra.Command) (string, error) {
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return "", err
	}

	if file == "" {
		if _, err := os.Stat(defaultFile); err == nil {
			file = defaultFile
		}
	}
	return file, nil
}

// operate opens the database for one operator command and closes it afterwards.
func operate(cmd *cobra.Command, work func(*inbox.Operator) error) error {
	config, err := load(cmd)
	if err != nil {
		return err
	}
	return operateOn(cmd, config, work)
}

// onEachDomain does the same on every domain, or on the one that the command line names, and says when all is done.
func onEachDomain(cmd *cobra.Command, done string, work func(*inbox.Operator) error) error {
	domains, err := loadEach(cmd)
	if err != nil {
		return err
	}
	for _, config := range domains {
		if err := operateOn(cmd, config, work); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
	return err
}

func operateOn(cmd *cobra.Command, config *inbox.Config, work func(*inbox.Operator) error) error {
	opened, err := inbox.OpenOperator(cmd.Context(), config)
	if err != nil {
		return err
	}
	actOn(cmd, objectsOf(cmd)...)
	return errors.Join(work(opened), opened.Close())
}

// actOn begins an act of the operator on these objects: its first change is on the audit trail with them.
func actOn(cmd *cobra.Command, objects ...string) {
	cmd.SetContext(operator.ByCommand(cmd.Context(), cmd.CommandPath(), systemUser(), objects...))
}

// objectsOf are the arguments that name what a command acts on, by its line of use. Texts and files are none.
func objectsOf(cmd *cobra.Command) (objects []string) {
	required, optional := positionals(cmd.Use)
	names := slices.Concat(required, optional)
	for i, given := range cmd.Flags().Args() {
		if len(names) == 0 {
			break
		}
		name := strings.TrimRight(names[min(i, len(names)-1)], "…")
		if slices.Contains([]string{"ID", "NAME", "AGENT", "ADDRESS", "ACTOR", "TARGET", "PERSON", "WHO", "RUN"}, name) {
			objects = append(objects, given)
		}
	}
	return objects
}

// systemUser is the user of the machine who runs a command, for the record.
func systemUser() string {
	me, err := user.Current()
	if err != nil {
		return fmt.Sprintf("uid %d", os.Getuid())
	}
	return me.Username
}

// printList prints what an operator reads as a table with one row for each, or as JSON.
func printList[T any](cmd *cobra.Command, empty string, heading []string, read func(*inbox.Operator) ([]T, error), row func(T) []string) error {
	return printRead(cmd, empty, heading, func(o *inbox.Operator) (all any, count int, rowOf func(int) []string, err error) {
		found, err := read(o)
		return found, len(found), func(i int) []string { return row(found[i]) }, err
	})
}

// printRead is printList for lists of all types, so that the program has it once.
func printRead(cmd *cobra.Command, empty string, heading []string, read func(*inbox.Operator) (all any, count int, row func(int) []string, err error)) error {
	return operate(cmd, func(o *inbox.Operator) error {
		found, count, row, err := read(o)
		if err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd.OutOrStdout(), found)
		}

		rows := make([][]string, count)
		for i := range rows {
			rows[i] = row(i)
		}
		return printTable(cmd.OutOrStdout(), empty, heading, rows)
	})
}

// each does the same about each name and says when it is done, until one fails.
func each(cmd *cobra.Command, names []string, done string, do func(o *inbox.Operator, name string) error) error {
	return operate(cmd, func(o *inbox.Operator) error {
		for _, name := range names {
			actOn(cmd, name)
			if err := do(o, name); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", name, done)
		}
		return nil
	})
}

// openFile opens a file; "-" is the standard input.
func openFile(cmd *cobra.Command, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	return os.Open(name)
}

// readFile reads a file as far as a limit.
func readFile(cmd *cobra.Command, name string, limit int64) ([]byte, error) {
	file, err := openFile(cmd, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

func addJSON(cmd *cobra.Command) { cmd.Flags().Bool("json", false, "print JSON") }

// wantsJSON reports whether --json was given.
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

// printRow prints each cell on one line: a line break or a tab in it would begin another row or column.
func printRow(out io.Writer, cells []string) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(out, "\t")
		}
		fmt.Fprint(out, oneLine(cell))
	}
	fmt.Fprintln(out)
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// addPaging adds the two flags of every long list.
func addPaging(cmd *cobra.Command, before *string, limit *int) {
	cmd.Flags().StringVar(before, "before", "", "continue after the last row of the page before (its cursor)")
	cmd.Flags().IntVar(limit, "limit", 50, "at most this many, up to 500")
}

const excerptRunes = 60

// excerpt returns the beginning of a stranger's text on one line.
func excerpt(text string) string {
	text = oneLine(text)
	if utf8.RuneCountInString(text) <= excerptRunes {
		return text
	}
	return string([]rune(text)[:excerptRunes-1]) + "…"
}

// oneLine takes control characters out of what strangers wrote: a terminal would obey them.
func oneLine(text string) string { return strings.Join(strings.FieldsFunc(text, breaksLine), " ") }

func breaksLine(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError
}

// printLinef prints one line, whatever strangers wrote in it.
func printLinef(out io.Writer, format string, given ...any) {
	fmt.Fprintln(out, strings.Map(func(r rune) rune {
		if breaksLine(r) {
			return ' '
		}
		return r
	}, fmt.Sprintf(format, given...)))
}
