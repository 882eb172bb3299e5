package main

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

// exitUnexpected is the exit code of a simulated message that came to another end than expected.
const exitUnexpected = 4

// unexpected is the error of such a message.
type unexpected struct{ error }

// outcomeUnanswered is what --expect calls every end without an answer.
const outcomeUnanswered = "unanswered"

// simulateFlags are those of a message.
type simulateFlags struct {
	message operator.Simulation
	peers   operator.PeerOptions
	files   []string
	expect  string
	wait    time.Duration
}

func newSimulate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Send an agent a message as a simulated sender on a network",
		Long: `Sends a message to an agent of the running server over the wire of a network. The sender exists as long as the command and serves what
the server needs to check the proof: its actor and key, its names, its token. Then the command shows the server's response, the evidence,
the outcome and the answer. With --fault something is wrong with the message or its proof.

Nothing is skipped: a simulated message passes every check, rule and limit that a stranger's passes, reaches the agent, and is stored. No one
is impersonated: senders of mail are below simulated.test, callers have tokens named simulated-…, accounts of the fediverse are on
this machine. See docs/simulate.md for what a server must be able to see.

Exit codes: 0 the outcome is the expected one, 1 the message could not be sent, 2 the command line is wrong, 4 another outcome.`,
		Example: `  inbox simulate mention --text 'What can you do?'
  inbox simulate mail --agent helper --file invoice.pdf --text 'Please book this' --language de
  inbox simulate mail --fault dkim-broken --expect held
  inbox simulate task --fault revoked-token --json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	about := map[string]string{
		"mention": "Mention an agent from an account of the fediverse",
		"mail":    "Mail an agent",
		"task":    "Send an agent a task by A2A",
		"chat":    "Say something to an agent by the chat for programs",
	}
	for _, way := range operator.Ways() {
		cmd.AddCommand(newSimulateWay(way, about[way]))
	}
	return cmd
}

func newSimulateWay(way, short string) *cobra.Command {
	flags := simulateFlags{message: operator.Simulation{Way: way}}
	cmd := &cobra.Command{
		Use:   way,
		Short: short,
		Long: short + `, and show the result.

Without --expect the message is expected to be answered, and with --fault not to be ("unanswered": refused, held, ignored or left without
an answer). An agent with unverified = "answer" answers those who prove nothing, too: then write --expect answered.

Exit codes: 0 the outcome is the expected one, 1 the message could not be sent, 2 the command line is wrong, 4 another outcome.`,
		Example: "  inbox simulate " + way + " --text hello\n  inbox simulate " + way + " --fault " + operator.Faults(way)[0] + "\n  echo hello | inbox simulate " + way + " --text - --json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.read(cmd); err != nil {
				return err
			}
			return operate(cmd, func(o *inbox.Operator) error { return flags.run(cmd, o) })
		},
	}

	addJSON(cmd)
	set := cmd.Flags()
	set.StringVar(&flags.message.Agent, "agent", "", "the agent; may be left out where the server has one")
	set.StringVar(&flags.message.From, "from", "alice", "name of the sender")
	set.StringVar(&flags.message.Text, "text", "", "what is said; - = the standard input")
	set.StringArrayVar(&flags.files, "file", nil, "a file that goes with it; may be given several times")
	set.DurationVar(&flags.wait, "wait", 2*time.Minute, "how long to wait for the outcome")
	addChoice(cmd, &flags.message.Fault, "fault", "what is wrong with it", operator.Faults(way)...)
	addChoice(cmd, &flags.expect, "expect", "the outcome for exit code 0", append(operator.Outcomes(), outcomeUnanswered)...)
	switch way {
	case "mention":
		set.StringVar(&flags.peers.Listen, "peer-listen", "", "host:port where the simulated server listens (default: a free port of 127.0.0.1)")
		set.StringVar(&flags.peers.Host, "peer-host", "", "public name under which your proxy passes https on to --peer-listen")
		set.StringVar(&flags.message.Language, "language", "", "language of the text (BCP 47)")
	case "mail":
		set.StringVar(&flags.message.Subject, "subject", "", `subject of the mail (default "A simulated mail")`)
		set.StringVar(&flags.message.Language, "language", "", "language of the text (BCP 47)")
	}
	return cmd
}

const (
	maxSimulatedText = 1 << 20
	maxSimulatedFile = 16 << 20
)

// read completes the message from the configuration, the standard input and files.
func (f *simulateFlags) read(cmd *cobra.Command) error {
	config, err := load(cmd)
	if err != nil {
		return err
	}
	given := []string{}
	if f.message.Agent != "" {
		given = []string{"@" + strings.TrimPrefix(f.message.Agent, "@"), "-"}
	}
	if f.message.Agent, _, err = whomToAsk(config, given); err != nil {
		return err
	}

	switch f.message.Text {
	case "-":
		text, err := readFile(cmd, "-", maxSimulatedText+1)
		if err != nil {
			return err
		}
		f.message.Text = strings.TrimRight(string(text), "\n")
	case "":
		if len(f.files) == 0 {
			f.message.Text = "hello"
		}
	}

	for _, name := range f.files {
		content, err := readFile(cmd, name, maxSimulatedFile+1)
		if err != nil {
			return err
		}
		kind := mime.TypeByExtension(filepath.Ext(name))
		if kind == "" {
			kind = http.DetectContentType(content)
		}
		f.message.Files = append(f.message.Files, operator.SimulatedFile{Name: filepath.Base(name), MIME: kind, Content: content})
	}
	return nil
}

// expected is the outcome for exit code 0.
func (f *simulateFlags) expected() string {
	switch {
	case f.expect != "":
		return f.expect
	case f.message.Fault != "":
		return outcomeUnanswered
	}
	return exchange.StateAnswered
}

func (f *simulateFlags) run(cmd *cobra.Command, o *inbox.Operator) error {
	simulated, err := o.Simulate(cmd.Context(), f.message, f.peers, f.wait)
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		err = printJSON(cmd.OutOrStdout(), simulated)
	} else {
		printSimulated(cmd.OutOrStdout(), simulated)
	}
	if err != nil {
		return err
	}

	expected := f.expected()
	unanswered := slices.Contains([]string{exchange.StateRefused, exchange.StateHeld, exchange.StateSilent, operator.OutcomeIgnored}, simulated.Outcome)
	if simulated.Outcome == expected || expected == outcomeUnanswered && unanswered {
		return nil
	}
	return unexpected{fmt.Errorf("the outcome is %q, expected was %q", simulated.Outcome, expected)}
}

func printSimulated(out io.Writer, simulated operator.Simulated) {
	fmt.Fprintf(out, "Sender    %s\n", simulated.From)
	fmt.Fprintf(out, "Server    %s\n", oneLine(simulated.Said))
	if simulated.Note != "" {
		fmt.Fprintf(out, "Note      %s\n", oneLine(simulated.Note))
	}
	fmt.Fprintf(out, "Outcome   %s after %d ms\n", simulated.Outcome, simulated.Millis)
	if simulated.Received != nil {
		fmt.Fprintf(out, "Received  %s\n", printable(strings.ReplaceAll(simulated.Received.Text, "\n", "\n          ")))
		for _, one := range simulated.Received.Evidence {
			fmt.Fprintf(out, "          %s\n", oneLine(one))
		}
	}
	if simulated.Message != nil {
		fmt.Fprintln(out)
		printShown(out, *simulated.Message)
	}
}
