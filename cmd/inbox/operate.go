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
	"inbox/exchange"
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
func onEachDomain(cmd *cobra.Command, said string, work func(*inbox.Operator) error) error {
	domains, err := loadEach(cmd)
	if err != nil {
		return err
	}
	var all []done
	for _, config := range domains {
		if err := operateOn(cmd, config, work); err != nil {
			return err
		}
		all = append(all, doneBy(cmd, config.Domain))
	}
	if wantsJSON(cmd) {
		return printAllDone(cmd, all)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
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

// table says how a list is printed for people.
type table[T any] struct {
	empty   string // instead of a list without rows
	heading []string
	row     func(T) []string
}

// show prints a page of a list as a table with one row for each and the cursor of the following page, or as JSON.
func (t table[T]) show(cmd *cobra.Command, page exchange.List[T]) error {
	out := cmd.OutOrStdout()
	if wantsJSON(cmd) {
		return printJSON(out, page)
	}

	rows := make([][]string, len(page.Items))
	for i, item := range page.Items {
		rows[i] = t.row(item)
	}
	if err := printTable(out, t.empty, t.heading, rows); err != nil {
		return err
	}
	return tellNext(out, page.Next)
}

// printList prints a list that is never long.
func printList[T any](cmd *cobra.Command, empty string, heading []string, read func(*inbox.Operator) ([]T, error), row func(T) []string) error {
	return operate(cmd, func(o *inbox.Operator) error {
		found, err := read(o)
		if err != nil {
			return err
		}
		return table[T]{empty, heading, row}.show(cmd, exchange.NewList(found, ""))
	})
}

// printPage prints one page of a long list. It reads a row more than the page has, to know whether another page follows.
func printPage[T any](cmd *cobra.Command, limit int, shown table[T], cursor func(T) string, read func(o *inbox.Operator, limit int) ([]T, error)) error {
	if err := checkLimit(cmd, limit); err != nil {
		return err
	}
	return operate(cmd, func(o *inbox.Operator) error {
		found, err := read(o, limit+1)
		if err != nil {
			return err
		}
		return shown.show(cmd, exchange.CutList(found, limit, cursor))
	})
}

// done is what a command did to one of the things that it was given, for --json.
type done struct {
	Name    string `json:"name"`    // the id, address or name that was given
	Command string `json:"command"` // what was done: the command without "inbox"
}

func doneBy(cmd *cobra.Command, name string) done {
	_, command, _ := strings.Cut(cmd.CommandPath(), " ")
	return done{name, command}
}

// printDone says what was done to one thing, in words or as JSON.
func printDone(cmd *cobra.Command, name, words string) error {
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), doneBy(cmd, name))
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), words)
	return err
}

// each does the same about each name and says when it is done, until one fails. JSON has those that were done also if one failed.
func each(cmd *cobra.Command, names []string, said string, do func(o *inbox.Operator, name string) error) error {
	return eachNamed(cmd, names, said, func(o *inbox.Operator, name string) (string, error) { return name, do(o, name) })
}

// eachNamed is each for what is called otherwise than it was given.
func eachNamed(cmd *cobra.Command, names []string, said string, do func(o *inbox.Operator, name string) (called string, err error)) error {
	return operate(cmd, func(o *inbox.Operator) error {
		var all []done
		for _, name := range names {
			actOn(cmd, name)
			called, err := do(o, name)
			switch {
			case err != nil && len(all) == 0:
				return err
			case err != nil:
				return errors.Join(err, printAllDone(cmd, all))
			}
			if all = append(all, doneBy(cmd, called)); !wantsJSON(cmd) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", called, said)
			}
		}
		return printAllDone(cmd, all)
	})
}

// printAllDone prints what was done as JSON; for people it is printed as it is done.
func printAllDone(cmd *cobra.Command, all []done) error {
	if !wantsJSON(cmd) {
		return nil
	}
	return printJSON(cmd.OutOrStdout(), exchange.NewList(all, ""))
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

// withJSON is addJSON for a command without other flags.
func withJSON(cmd *cobra.Command) *cobra.Command {
	addJSON(cmd)
	return cmd
}

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
	cmd.Flags().StringVar(before, "before", "", "the page after another one: the \"next\" of that page in JSON, or what its last line names")
	cmd.Flags().IntVar(limit, "limit", 50, "at most this many, up to 500")
}

// maxListed is the largest page.
const maxListed = 500

func checkLimit(cmd *cobra.Command, limit int) error {
	if limit < 1 || limit > maxListed {
		return usageError{fmt.Errorf("--limit: must be a number from 1 to %d\nRun '%s --help'", maxListed, cmd.CommandPath())}
	}
	return nil
}

// tellNext says how to go on where there is more.
func tellNext(out io.Writer, next string) error {
	if next == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "More: --before '%s'\n", next)
	return err
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
