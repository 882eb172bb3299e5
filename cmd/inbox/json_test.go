package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// withoutJSON are the commands that print nothing a program would read, and why.
var withoutJSON = map[string]string{
	"inbox":                      "it prints its help",
	"inbox serve":                "it runs until it is stopped, and writes a log",
	"inbox demo":                 "it is a conversation for people, and runs until it is stopped",
	"inbox conversations export": "it prints a document in the form that --format names",
	"inbox completion":           "it prints a script for a shell", "inbox completion bash": "a script", "inbox completion fish": "a script",
	"inbox completion powershell": "a script", "inbox completion zsh": "a script",
	"inbox help": "it prints help",
}

// commands visits every command of the program; parents that only print their help are left out.
func commands(visit func(*cobra.Command)) {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() || cmd.Flags().Lookup("json") != nil || withoutJSON[cmd.CommandPath()] != "" {
			visit(cmd)
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
}

// TestEveryCommandHasJSON: a command prints JSON on demand, or is in the table with the reason why not.
func TestEveryCommandHasJSON(t *testing.T) {
	t.Parallel()
	met := map[string]bool{}
	commands(func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		met[path] = true
		has, reason := cmd.Flags().Lookup("json") != nil, withoutJSON[path]
		switch {
		case !has && reason == "":
			t.Errorf("%s has no --json", path)
		case has && reason != "":
			t.Errorf("%s has --json: take it out of the table", path)
		}
	})
	for path := range withoutJSON {
		if !met[path] {
			t.Errorf("%s is in the table and is no command", path)
		}
	}
}

// TestLongListsHaveTheSameFlags: a list that has --limit goes on with --before, and no list has another name for it.
func TestLongListsHaveTheSameFlags(t *testing.T) {
	t.Parallel()
	lists := 0
	commands(func(cmd *cobra.Command) {
		limit, before := cmd.Flags().Lookup("limit") != nil, cmd.Flags().Lookup("before") != nil
		if limit != before && cmd.CommandPath() != "inbox mail reports" { // the largest sums have no following page
			t.Errorf("%s has --limit: %v, and --before: %v", cmd.CommandPath(), limit, before)
		}
		if cmd.Flags().Lookup("after") != nil {
			t.Errorf("%s calls its cursor --after", cmd.CommandPath())
		}
		if before {
			lists++
		}
	})
	if lists < 20 {
		t.Errorf("only %d lists were looked at", lists)
	}
}

// notCompleted are arguments that are new, or that no list of the server has.
var notCompleted = []string{"inbox agents add NAME", "inbox tokens create NAME", "inbox block add TARGET", "inbox allow add TARGET"}

// TestArgumentsAndFlagsAreCompleted: what names a thing of the server, or is one of a few words, is completed in a shell.
func TestArgumentsAndFlagsAreCompleted(t *testing.T) {
	t.Parallel()
	named := []string{"ID", "AGENT", "@AGENT", "NAME", "ACTOR", "TARGET", "RUN", "WHO", "PERSON", "DOMAIN"}
	flags := []string{"agent", "turn", "thread", "state", "status", "channel", "kind", "scope", "scopes", "client", "connector", "actor", "holder", "receipt", "silenced", "type", "access", "mail", "compare", "provider"}
	commands(func(cmd *cobra.Command) {
		required, optional := positionals(cmd.Use)
		for _, argument := range slices.Concat(required, optional) {
			name := strings.TrimRight(argument, "…")
			if slices.Contains(named, name) && !slices.Contains(notCompleted, cmd.CommandPath()+" "+name) && cmd.ValidArgsFunction == nil {
				t.Errorf("%s: %s is not completed", cmd.CommandPath(), argument)
			}
		}
		for _, flag := range flags {
			if cmd.Flags().Lookup(flag) == nil || cmd.Flags().Lookup(flag).Value.Type() == "bool" || cmd.Flags().Lookup(flag).Hidden {
				continue
			}
			if _, is := cmd.GetFlagCompletionFunc(flag); !is {
				t.Errorf("%s: --%s is not completed", cmd.CommandPath(), flag)
			}
		}
	})
}

// runCommand runs a command line in this process and returns what it printed on the standard output.
func runCommand(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	root := newRoot()
	var out, failures bytes.Buffer
	root.SetArgs(arguments)
	root.SetOut(&out)
	root.SetErr(&failures)
	root.SetIn(strings.NewReader("hello\n"))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}
