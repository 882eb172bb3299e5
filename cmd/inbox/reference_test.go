package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updateCommands = flag.Bool("update-commands", false, "write docs/reference/commands.md anew")

const commandsPage = "../../docs/reference/commands.md"

//go:generate go test -run ^TestCommandsAreListed$ . -update-commands

// TestCommandsAreListed keeps docs/reference/commands.md current, and wants an example of every command.
func TestCommandsAreListed(t *testing.T) {
	t.Parallel()
	root := newRoot()
	root.InitDefaultHelpFlag()
	_, exits, _ := strings.Cut(root.Long, "Exit codes: ")
	var page bytes.Buffer
	fmt.Fprintf(&page, "# Commands\n\nWritten by `go generate ./cmd/inbox`; do not edit it. `inbox COMMAND --help` prints the same.\n\n"+
		"Exit codes of every command: %s\n\nFlags of every command:\n\n%s", strings.Join(strings.Fields(exits), " "), flagTable(root.PersistentFlags()))
	if strings.Count(exits, ",") < 3 {
		t.Error("the help of inbox does not name the exit codes")
	}
	for _, command := range root.Commands() {
		describe(t, &page, command)
	}

	if *updateCommands {
		if err := os.WriteFile(commandsPage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if committed, err := os.ReadFile(commandsPage); err != nil || !bytes.Equal(committed, page.Bytes()) {
		t.Errorf("docs/reference/commands.md is not that of the commands (%v); run: go generate ./cmd/inbox", err)
	}
}

func describe(t *testing.T, page *bytes.Buffer, command *cobra.Command) {
	t.Helper()
	if command.Hidden || command.Name() == "help" || command.Name() == "completion" {
		return
	}
	fmt.Fprintf(page, "\n## `%s`\n\n%s.\n\n```text\n%s\n```\n", command.CommandPath(), strings.TrimSuffix(command.Short, "."), command.UseLine())
	if command.Long != "" {
		fmt.Fprintf(page, "\n```text\n%s\n```\n", strings.TrimSpace(command.Long))
	}
	if flags := flagTable(command.NonInheritedFlags()); flags != "" {
		page.WriteString("\n" + flags)
	}

	fmt.Fprintf(page, "\n```sh\n%s\n```\n", strings.Join(examples(t, command), "\n"))
	for _, inner := range command.Commands() {
		describe(t, page, inner)
	}
}

// examples are those of the command, or its name alone where it needs nothing else.
func examples(t *testing.T, command *cobra.Command) []string {
	t.Helper()
	if command.Example == "" {
		if words := strings.Fields(command.Use)[1:]; len(words) > 0 && !strings.HasPrefix(words[0], "[") {
			t.Errorf("%s needs %s and has no example", command.CommandPath(), words[0])
		}
		return []string{command.CommandPath()}
	}

	lines, itself := strings.Split(strings.Trim(command.Example, "\n"), "\n"), false
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
		found := checkExample(t, command, lines[i])
		itself = itself || found != nil && (found.Name() == command.Name() || strings.HasPrefix(found.CommandPath()+" ", command.CommandPath()+" ")) // resume is also below agents
	}
	if !itself {
		t.Errorf("%s: no example is one of it", command.CommandPath())
	}
	return lines
}

func flagTable(flags *pflag.FlagSet) string {
	var table strings.Builder
	flags.VisitAll(func(one *pflag.Flag) {
		if one.Hidden || one.Name == "help" {
			return
		}
		name := "--" + one.Name
		if one.Shorthand != "" {
			name = "-" + one.Shorthand + ", " + name
		}
		value := one.DefValue
		if value == "" || value == "false" || value == "[]" || value == "0s" || value == "0" {
			value = "–"
		} else {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, value, strings.ReplaceAll(one.Usage, "|", "\\|"))
	})
	if table.Len() == 0 {
		return ""
	}
	return "| flag | default | meaning |\n|---|---|---|\n" + table.String()
}

var flagForm = regexp.MustCompile(`(?:^|\s)--([a-z][a-z-]*)`)

// checkExample wants a line of an example to be a command with flags that it has, and returns it; nil = it is another program.
func checkExample(t *testing.T, command *cobra.Command, line string) *cobra.Command {
	t.Helper()
	_, written, is := strings.Cut(line, "inbox ")
	if !is {
		return nil
	}
	found, _, err := command.Root().Find(strings.Fields(written))
	if err != nil {
		t.Errorf("%s: the example %q: %v", command.CommandPath(), line, err)
		return nil
	}
	for _, match := range flagForm.FindAllStringSubmatch(written, -1) {
		if found.Flag(match[1]) == nil {
			t.Errorf("%s: the example %q has --%s, which the command does not take", command.CommandPath(), line, match[1])
		}
	}
	return found
}
