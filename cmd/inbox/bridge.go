package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

func newBridge() *cobra.Command {
	var talk talk
	var resume, listen bool
	cmd := &cobra.Command{
		Use:   "bridge --agent A [--resume | --session ID] [MESSAGE…] | --listen",
		Short: "Talk with an agent from this terminal",
		Long: `A conversation with an agent over the bridge protocol: answers appear as they grow, and each waits in a queue on the server
until this program has shown and acknowledged it. Nothing is lost when the connection breaks, this program is killed or the
server restarts: the next start shows what came meanwhile.

Make a token first, on the server:

  inbox tokens create --bridge laptop

and pass it by --token or INBOX_TOKEN, and the address of the server by --server or INBOX_SERVER.

With MESSAGE the command sends it and shows the answer; without, every line is a message, until the end of the input. These lines are
commands: /history, /sessions, /new, /stop (the answer that is being written), /quit.

--listen shows everything that comes for the client, in any conversation, one item a line with --json.
--json prints each answer as one line of JSON (queue_id, session_id, content, completed, metadata); use it in scripts.`,
		Example: `  inbox bridge --agent echo "hello"
  inbox bridge --agent helper --resume
  inbox bridge --agent helper --json "what is new?" | jq -r .content
  inbox bridge --listen --json`,
		RunE: func(cmd *cobra.Command, words []string) error {
			talk.out, talk.errors, talk.json = cmd.OutOrStdout(), cmd.ErrOrStderr(), wantsJSON(cmd)
			if err := talk.connect(cmd); err != nil {
				return err
			}
			if !listen && talk.agent == "" && talk.session == "" {
				return usageError{fmt.Errorf("--agent is needed\nRun '%s --help'", cmd.CommandPath())}
			}

			err := talk.run(cmd.Context(), cmd.InOrStdin(), words, listen, resume)
			if errors.Is(err, context.Canceled) { // Ctrl-C is how a conversation ends
				return nil
			}
			return err
		},
	}

	addJSON(cmd)
	flags := cmd.Flags()
	flags.StringVar(&talk.server, "server", "", "address of the server (INBOX_SERVER; http://127.0.0.1:8080)")
	flags.StringVar(&talk.token, "token", "", "token of a bridge (INBOX_TOKEN)")
	flags.StringVar(&talk.agent, "agent", "", "name of the agent")
	flags.StringVar(&talk.session, "session", "", "go on with this conversation")
	flags.BoolVar(&resume, "resume", false, "go on with the newest conversation with the agent")
	flags.IntVar(&talk.history, "history", 0, "show so many of the last messages first")
	flags.BoolVar(&listen, "listen", false, "show what comes for the client, in all conversations")
	return cmd
}

// talk is one conversation in a terminal.
type talk struct {
	server, token, agent, session string
	history                       int
	json                          bool
	out, errors                   io.Writer
	client                        *bridgeClient
}

func (t *talk) run(ctx context.Context, input io.Reader, words []string, listen, resume bool) error {
	if listen {
		return t.listen(ctx)
	}
	if err := t.begin(ctx, resume); err != nil {
		return err
	}
	if len(words) > 0 {
		return t.say(ctx, strings.Join(words, " "))
	}
	return t.lines(ctx, input)
}

func (t *talk) connect(cmd *cobra.Command) error {
	fill := func(value *string, variable, otherwise string) {
		if *value == "" {
			*value = os.Getenv(variable)
		}
		if *value == "" {
			*value = otherwise
		}
	}

	fill(&t.server, "INBOX_SERVER", "http://127.0.0.1:8080")
	fill(&t.token, "INBOX_TOKEN", "")

	if t.token == "" {
		return usageError{fmt.Errorf("a token is needed: inbox tokens create --bridge NAME on the server, then --token or INBOX_TOKEN here\nRun '%s --help'", cmd.CommandPath())}
	}
	if address, err := url.Parse(t.server); err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return usageError{fmt.Errorf("--server must be an address such as https://agents.example, not %q\nRun '%s --help'", t.server, cmd.CommandPath())}
	}

	t.client = newBridgeClient(t.server, t.token)
	return nil
}

// begin finds the conversation and shows what was missed in it.
func (t *talk) begin(ctx context.Context, resume bool) error {
	if resume && t.session == "" {
		newest, err := t.client.newest(ctx, t.agent)
		if err != nil {
			return err
		}
		t.session = newest
	}

	if t.session == "" {
		return nil
	}
	if err := t.showHistory(ctx, t.history); err != nil {
		return err
	}

	items, err := t.client.pending(ctx, t.session, 0)
	if err != nil {
		return err
	}

	return t.show(ctx, items)
}

func (t *talk) showHistory(ctx context.Context, most int) error {
	if most <= 0 || t.session == "" {
		return nil
	}
	messages, err := t.client.messages(ctx, t.session, most)
	for _, one := range messages {
		fmt.Fprintf(t.errors, "%s: %s\n", one.Role, one.Content)
	}
	return err
}

// show prints items and acknowledges them: only what was printed.
func (t *talk) show(ctx context.Context, items []queueItem) error {
	for _, item := range items {
		if t.json {
			if _, err := fmt.Fprintln(t.out, string(item.raw)); err != nil {
				return err
			}
		} else if _, err := fmt.Fprintln(t.out, item.Content); err != nil {
			return err
		}
		if err := t.client.ack(ctx, item.ID); err != nil {
			return err
		}
	}
	return nil
}

// lines sends every line of the input.
func (t *talk) lines(ctx context.Context, input io.Reader) error {
	scanner := bufio.NewScanner(input)
	scanner.Buffer(nil, 1<<20)

	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		quit, err := t.command(ctx, line)
		switch {
		case quit:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			fmt.Fprintf(t.errors, "inbox: %v\n", err)
		}
	}

	return scanner.Err()
}

func (t *talk) command(ctx context.Context, line string) (quit bool, err error) {
	switch line {
	case "":
		return false, nil
	case "/quit", "/exit":
		return true, nil
	case "/new":
		t.session = ""
		return false, nil
	case "/history":
		return false, t.showHistory(ctx, 20)
	case "/sessions":
		return false, t.showSessions(ctx)
	case "/stop":
		return false, t.client.stop(ctx, t.session)
	case "/help":
		fmt.Fprintln(t.errors, "/history  /sessions  /new  /stop  /quit; everything else is a message")
		return false, nil
	}
	return false, t.say(ctx, line)
}

func (t *talk) showSessions(ctx context.Context) error {
	sessions, err := t.client.sessions(ctx, t.agent, 20)
	for _, one := range sessions {
		fmt.Fprintf(t.errors, "%s  %s  %s\n", one.ID, one.Agent, one.Title)
	}
	return err
}

// say sends one message and shows its answer. The stream is for the eye; what counts is the item in the queue, which is
// acknowledged when the whole answer was printed.
func (t *talk) say(ctx context.Context, message string) error {
	shown := &growing{out: t.out, silent: t.json}
	run, err := t.client.send(ctx, t.agent, t.session, message, shown.event)
	if err != nil {
		return err
	}

	t.session = run.Session
	if run.Queue == "" { // no answer: cancelled, or silent
		shown.end("")
		fmt.Fprintf(t.errors, "(%s)\n", run.Status)
		return nil
	}

	item, err := t.client.await(ctx, run)
	if err != nil {
		return err
	}
	if t.json {
		return t.show(ctx, []queueItem{item})
	}

	shown.end(item.Content)
	return t.client.ack(ctx, item.ID)
}

// listen shows everything that comes, until the program is stopped.
func (t *talk) listen(ctx context.Context) error {
	for {
		items, err := t.client.pending(ctx, "", longPoll)
		if err == nil {
			err = t.show(ctx, items)
		}
		if err != nil && !errors.Is(err, errUnreachable) || err != nil && !rest(ctx) {
			return err
		}
	}
}

// growing prints an answer while it grows.
type growing struct {
	out     io.Writer
	silent  bool
	printed strings.Builder
}

func (g *growing) event(name, text string) {
	switch {
	case g.silent:
	case name == "restarted" && g.printed.Len() > 0: // what was printed is void
		fmt.Fprint(g.out, "\n")
		g.printed.Reset()
	case name == "delta":
		g.printed.WriteString(text)
		fmt.Fprint(g.out, text)
	}
}

// end prints what is missing of the whole answer.
func (g *growing) end(whole string) {
	if g.silent {
		return
	}

	printed := strings.TrimSpace(g.printed.String())
	switch rest, grown := strings.CutPrefix(whole, printed); {
	case grown:
		fmt.Fprintln(g.out, rest)
	default:
		fmt.Fprint(g.out, "\n"+whole+"\n")
	}
}

// maxImportFile bounds a file of conversations.
const maxImportFile = 1 << 30

// newConversations groups what other systems read and write of conversations.
func newConversations() *cobra.Command {
	parent := &cobra.Command{
		Use:   "conversations",
		Short: "Export conversations of bridges and connectors, or import them",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newExport(), newImport())
	return parent
}

// renamed is a command under its old name, which works for one release more and says on standard error where it is now.
func renamed(cmd *cobra.Command, now string) *cobra.Command {
	cmd.Hidden = true
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "inbox %s is called \"inbox %s\" now; the old name goes with the next release\n", cmd.Name(), now)
	}
	return cmd
}

func newExport() *cobra.Command {
	var filter operator.ConversationFilter
	var output string
	cmd := &cobra.Command{
		Use:   "export --format {agent-framework | envelope} [--client C | --connector C] [--agent A] [--session ID | --thread ID] [--output FILE]",
		Short: "Write conversations as messages that another system can import",
		Long: `Writes the conversations of bridges and connectors, or with --thread one thread of any way, as JSON: "conversations", each
with session_id, agent and messages: canonical envelopes (agents-api.message), or those of the older agent framework (type,
content, timestamp, agent_key, metadata). What was imported in the same form is written as it was. 'inbox conversations import'
and POST /v1/import take it again. It is about conversations, not about one person.`,
		Example: "  inbox conversations export --format agent-framework --client relay > conversations.json\n  inbox conversations export --format agent-framework --agent helper --thread '<root@example.org>'",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(operator.ConversationFormats(), filter.Format) {
				return usageError{fmt.Errorf("--format must be %s\nRun '%s --help'", strings.Join(operator.ConversationFormats(), " or "), cmd.CommandPath())}
			}
			return operate(cmd, func(o *inbox.Operator) error {
				documents, err := o.Conversations.Export(cmd.Context(), filter)
				if err != nil {
					return err
				}

				encoded, err := operator.EncodeConversations(documents)
				if err != nil {
					return err
				}
				if output == "" {
					_, err = cmd.OutOrStdout().Write(encoded)
					return err
				}
				if err := os.WriteFile(output, encoded, 0o600); err != nil {
					return err
				}

				fmt.Fprintf(cmd.OutOrStdout(), "%d conversations are in %s\n", len(documents), output)
				return nil
			})
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&filter.Format, "format", "", "form of the messages: agent-framework or envelope")
	flags.StringVar(&filter.Client, "client", "", "sessions of this bridge alone")
	flags.StringVar(&filter.Connector, "connector", "", "sessions of this connector alone")
	flags.StringVar(&filter.Agent, "agent", "", "conversations with this agent alone")
	flags.StringVar(&filter.Session, "session", "", "this session alone")
	flags.StringVar(&filter.Thread, "thread", "", "one thread of --agent, whichever way it came")
	flags.StringVar(&output, "output", "", "file instead of the standard output")
	return cmd
}

func newImport() *cobra.Command {
	var client, connector, agent string
	var strict bool
	cmd := &cobra.Command{
		Use:   "import {--client C | --connector C} [--agent A] FILE",
		Short: "Import conversations that another system wrote",
		Long: `Stores conversations as sessions of a bridge or connector. FILE (- = standard input) holds what 'inbox conversations export' writes,
one conversation {"agent", "messages": […]}, or messages alone, as a list or one a line, which need --agent. A message is an envelope,
a row of role and content, or one of the older agent framework. The server checks all messages first, and names what it refuses by line or
number and by member. A row of the framework that breaks the rules of its form is kept as it is and counted, unless --strict is given. A conversation is stored whole or not at all, and storing the same again does nothing.`,
		Example: "  inbox conversations import --client relay conversations.json\n  inbox conversations import --client relay --agent helper - < messages.json",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if (client == "") == (connector == "") {
				return usageError{fmt.Errorf("one of --client and --connector is needed\nRun '%s --help'", cmd.CommandPath())}
			}

			body, err := readFile(cmd, names[0], maxImportFile)
			if err != nil {
				return err
			}

			return printList(cmd, "Nothing was imported.", []string{"SESSION", "AGENT", "MESSAGES", "LENIENT", ""}, func(o *inbox.Operator) ([]operator.ImportedConversation, error) {
				return o.Conversations.Import(cmd.Context(), client, connector, agent, strict, body)
			}, func(one operator.ImportedConversation) []string {
				return []string{one.SessionID, one.Agent, fmt.Sprint(one.Messages), fmt.Sprint(one.Lenient), map[bool]string{true: "new", false: "was here"}[one.Created]}
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&client, "client", "", "the bridge to which they belong")
	cmd.Flags().StringVar(&connector, "connector", "", "the connector to which they belong")
	cmd.Flags().StringVar(&agent, "agent", "", "the agent of conversations that name none")
	cmd.Flags().BoolVar(&strict, "strict", false, "refuse messages of the framework that break its rules")
	return cmd
}
