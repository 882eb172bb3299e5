// Command inbox is the server and its operator's tool. It parses arguments, calls the root package and prints;
// everything else is in the packages below.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	_ "time/tzdata" // for containers and small systems without zones

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"inbox"
	"inbox/internal/reference"
	"inbox/policypart"
)

// Exit codes, also written in the help text.
const (
	exitOK     = 0
	exitError  = 1
	exitUsage  = 2
	exitAtOnce = 3
)

func main() {
	// With one core a waiting fsync would stall everything: Go parks the only processor in the system call.
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}

	// The live heap of a server is a few megabytes, so the default would collect many times a second under load. Twice
	// the room costs some megabytes and returns a twentieth of the processor; GOGC in the environment wins.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}

	uuid.EnableRandPool()
	ctx, stop := context.WithCancel(context.Background())
	go stopOnSignal(stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, arguments []string, stdout, stderr io.Writer) int {
	// A command that works on the database runs parts of the engine, whose log would stand between the command's own output. Warnings
	// stay. A server sets up a log of its own.
	slog.SetLogLoggerLevel(slog.LevelWarn)

	root := newRoot()
	root.SetArgs(arguments)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage usageError
	var other unexpected
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &other):
		fmt.Fprintf(stderr, "inbox: %v\n", err)
		return exitUnexpected
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "inbox: %v\n", err)
		return exitUsage
	default:
		where := ""
		if address := reference.OfCode(codeOf(err)); address != "" {
			where = fmt.Sprintf(" (%s: %s)", codeOf(err), inRepository(address))
		}
		fmt.Fprintf(stderr, "inbox: %s%s\n", errorText(err), where)
		return exitError
	}
}

// errorText leaves out the code and the reason of a refused decision, which are for the record: the text before them says the same to people.
func errorText(err error) string {
	text := err.Error()
	if refusal, is := errors.AsType[*policypart.Refusal](err); is {
		text = strings.TrimSuffix(text, ": "+refusal.Error())
	}
	return text
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "inbox",
		Short: "One address for your agent: fediverse, A2A and email",
		Long: `inbox gives an agent one address, @agent@domain, and makes it reachable there by three networks: people
mention it from Mastodon and the rest of the fediverse, other agents send it A2A tasks, and anyone can
email agent@domain. Every proof of who is speaking is checked at the edge, nothing that was accepted is
lost, and each reply goes back over the network of its question.

Start here:
  inbox demo      show conversations on a throw-away server
  inbox serve     run the server; without a configuration file everything stays on this machine
  inbox init      write the files of a server on the internet

Exit codes: 0 done, 1 the command failed (the message says what to do), 2 the command line is wrong,
3 a second signal ended the command before it was done, 4 a simulated message had an unexpected outcome.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          arguments(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	root.PersistentFlags().String("config", "", "configuration file (default: inbox.toml here, if it exists)")
	root.PersistentFlags().String("domain", "", "one of the server's domains, if it has several (default: that at the top of the file)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w\nRun '%s --help'", err, cmd.CommandPath())}
	})

	root.AddCommand(newInit(), newServe(), newDemo(), newShow(), newAgents(), newDeliveries(), newHeld(), newRetry(), newReply(), newTakeover(), newBlock(), newAllow(), newFollows(), newReports(), newApprovals(), newDemands(), newToolRequests(), newReaders(), newPeople(), newAudit(), newAccess(), newTokens(), newSessions(), newKeys(), newDelete(), newEdit(), newPin(), newUnpin(), newMove(), newDNS(), newMigrate(), newReload(), newReady(), newAgentsPause(), newAgentsResume(), newVersion(), newExplain())
	root.AddCommand(newChat(), newDomains(), newWaiting(), newFailed(), newJobs(), newBreakers())
	root.AddCommand(newMail(), newSuppressions(), newNotices(), newDoctor(), newConfig())
	root.AddCommand(newBackup(), newVerify(), newRestore())
	root.AddCommand(newList(), newThreads())
	root.AddCommand(newSimulate(), newRecord(), newReplay())
	root.AddCommand(newBridge(), newTasks(), newConversations())
	root.AddCommand(newExportPerson(), newErase(), newUsage(), newStatistics(), renamed(newImport(), "conversations import"))
	completeCommonFlags(root)
	return root
}

// arguments makes arguments that a command does not take a usage error, which names what is missing, what is too many, or the
// commands that a mistyped one may have meant.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		err := check(cmd, given)
		if err == nil {
			return nil
		}

		text := wrongArguments(cmd, given)
		if text == "" {
			text = err.Error()
		}
		return usageError{fmt.Errorf("%s\nRun '%s --help'", text, cmd.CommandPath())}
	}
}

// wrongArguments says what is wrong in the words of the command's own line of use; "" when that line does not tell.
func wrongArguments(cmd *cobra.Command, given []string) string {
	if cmd.HasAvailableSubCommands() && len(given) > 0 {
		text := fmt.Sprintf("%q is not a command of %s", given[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = 2
		if similar := cmd.SuggestionsFor(given[0]); len(similar) > 0 {
			text += "; did you mean " + strings.Join(similar, " or ") + "?"
		}
		return text
	}

	required, optional := positionals(cmd.Use)
	all := slices.Concat(required, optional)
	repeated := slices.ContainsFunc(all, func(name string) bool { return strings.Contains(name, "…") })
	switch {
	case len(given) < len(required):
		missing := required[len(given):]
		verb := " is missing: "
		if len(missing) > 1 {
			verb = " are missing: "
		}
		return strings.Join(missing, " and ") + verb + cmd.UseLine()
	case len(given) > len(all) && !repeated:
		return fmt.Sprintf("%q is too much: %s", given[len(all)], cmd.UseLine())
	}
	return ""
}

// optionalPart is what a line of use has in brackets, innermost first, or in braces, which hold flags.
var optionalPart = regexp.MustCompile(`\[[^][]*\]|\{[^{}]*\}`)

// positionals reads the names of arguments in a line of use: those that must be there, and those that may. Of alternatives the first one
// counts; the others are flags.
func positionals(use string) (required, optional []string) {
	_, rest, _ := strings.Cut(use, " ")
	for optionalPart.MatchString(rest) {
		rest = optionalPart.ReplaceAllStringFunc(rest, func(part string) string {
			for words := range strings.SplitSeq(strings.Trim(part, "[]{}"), "|") {
				if !strings.Contains(words, "--") { // a flag and its value
					optional = append(optional, strings.Fields(words)...)
				}
			}
			return ""
		})
	}

	rest, _, _ = strings.Cut(rest, " | ")
	flag := false
	for word := range strings.FieldsSeq(rest) {
		switch {
		case strings.HasPrefix(word, "--"):
			flag = true
		case flag: // its value
			flag = false
		default:
			required = append(required, word)
		}
	}
	return required, optional
}

// choice is a flag that takes one of a few words.
type choice struct {
	value *string
	words []string
}

func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (c choice) Type() string { return "word" }

func (c choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return fmt.Errorf("must be one of %s", strings.Join(c.words, ", "))
	}
	*c.value = word
	return nil
}

// addChoice adds a flag that takes one of words, and completes them in a shell.
func addChoice(cmd *cobra.Command, value *string, name, help string, words ...string) {
	cmd.Flags().Var(choice{value, words}, name, help+": "+strings.Join(words, ", "))
	completeWords(cmd, name, words...)
}

// completeWords completes a flag that takes one of a few words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails without the flag alone
}

// buildDetails are what identifies a build beside its version.
func buildDetails(info inbox.Build) (details []string) {
	if info.Revision != "" {
		commit := "commit " + info.Revision[:min(len(info.Revision), 12)]
		if info.Modified {
			commit += " with changes"
		}
		details = append(details, commit)
	}
	if info.Date != "" {
		details = append(details, info.Date)
	}
	return append(details, info.Go, info.Platform)
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and its date",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), inbox.BuildInfo())
			}
			info := inbox.BuildInfo()
			fmt.Fprintf(cmd.OutOrStdout(), "inbox %s (%s)\n", info.Version, strings.Join(buildDetails(info), ", "))
			return nil
		},
	}

	addJSON(cmd)
	return cmd
}
