package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"inbox"
	"inbox/internal/clock"
)

func newChat() *cobra.Command {
	var goOn bool
	cmd := &cobra.Command{
		Use:   "chat [@AGENT] [WORDS…]",
		Short: "Talk to an agent of the running server from its machine",
		Long: `Talks to an agent of the server that runs with this configuration. With words it sends them and prints the answer as the agent
writes it; without, each line that you type is a message of one conversation, until Ctrl-D. You may leave out AGENT if the server has one.
--continue resumes your newest conversation with the agent.

It needs no peer token: it uses that of the operator (INBOX_TOKEN, or admin-token in data_dir), and asks at admin.listen, or at
http.listen if that is not set. All rules and limits apply to the messages; their evidence says that the operator wrote them
(local-operator, docs/trust.md). The run goes on when you leave; "inbox show" finds it. It ends with 1 when the agent fails or the message is refused.`,
		Example: "  inbox chat @helper 'What can you do?'\n  inbox chat --continue @helper 'And tomorrow?'\n  inbox chat @helper\n  inbox chat --json @helper hello",
		Args:    arguments(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, given []string) error {
			config, err := load(cmd)
			if err != nil {
				return err
			}
			agent, words, err := whomToAsk(config, given)
			if err != nil {
				return err
			}
			node, err := newRunningNode(config, "")
			if err != nil {
				return err
			}

			talk := &conversation{node: node, agent: agent, goOn: goOn, out: cmd.OutOrStdout(), json: wantsJSON(cmd)}
			if words != "" {
				err = talk.say(cmd.Context(), words)
			} else {
				err = talk.lines(cmd)
			}
			if errors.Is(err, errNoServer) {
				return fmt.Errorf("%w: start it with \"inbox serve\"", err)
			}
			return err
		},
	}

	addJSON(cmd)
	completing(cmd, chatAgents, completed{})
	cmd.Flags().BoolVar(&goOn, "continue", false, "resume your newest conversation with the agent")
	return cmd
}

// whomToAsk reads the agent and the words out of the command line.
func whomToAsk(config *inbox.Config, given []string) (agent, words string, err error) {
	if len(given) > 0 && strings.HasPrefix(given[0], "@") {
		agent, given = strings.TrimSuffix(given[0][1:], "@"+config.Domain), given[1:]
	}
	words = strings.TrimSpace(strings.Join(given, " "))
	if agent != "" {
		return agent, words, nil
	}

	var names []string
	for i := range config.Agents {
		names = append(names, "@"+config.Agents[i].Name)
	}
	if len(names) != 1 {
		return "", "", usageError{fmt.Errorf("name the agent, one of %s\nRun 'inbox chat --help'", strings.Join(names, ", "))}
	}
	return names[0][1:], words, nil
}

// conversation is one with an agent. Its messages are said one after the other.
type conversation struct {
	node    *runningNode
	agent   string
	session string // empty before the first answer
	goOn    bool
	out     io.Writer
	json    bool
	many    bool // answers follow each other: JSON is one line each
}

// failedAnswer is the error of a message that got no answer.
type failedAnswer struct{ error }

// lines says each line of the standard input, until its end. At a terminal a message that fails does not end the conversation.
func (c *conversation) lines(cmd *cobra.Command) error {
	c.many = true
	prompt := func() {}
	input, isFile := cmd.InOrStdin().(*os.File)
	person := isFile && isTerminal(input)
	if person && !c.json {
		fmt.Fprintf(cmd.ErrOrStderr(), "You talk to @%s. Each line is a message; Ctrl-D ends.\n", c.agent)
		prompt = func() { fmt.Fprint(cmd.ErrOrStderr(), "> ") }
	}

	lines, ended := readLines(cmd.InOrStdin())
	var failed error
	for {
		prompt()
		select {
		case <-cmd.Context().Done():
			fmt.Fprintln(cmd.ErrOrStderr())
			return nil
		case line, more := <-lines:
			if !more {
				return errors.Join(failed, <-ended)
			}
			if strings.TrimSpace(line) == "" {
				continue
			}
			err := c.say(cmd.Context(), line)
			if _, is := errors.AsType[failedAnswer](err); is && person {
				fmt.Fprintf(cmd.ErrOrStderr(), "inbox: %v\n", err)
				continue
			} else if is {
				failed = err
				continue
			}
			if err != nil {
				return err
			}
		}
	}
}

// maxLine bounds a message that is typed, in bytes.
const maxLine = 1 << 20

// readLines reads in the background, so that a signal ends the wait for a line. The error is that of the end.
func readLines(from io.Reader) (lines <-chan string, ended <-chan error) {
	found, end := make(chan string), make(chan error, 1)
	go func() {
		scanner := bufio.NewScanner(from)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			found <- scanner.Text()
		}
		end <- scanner.Err()
		close(found)
	}()
	return found, end
}

// chatBody is the body of POST /api/v1/agents/{agent}/chat.
type chatBody struct {
	Message  string `json:"message"`
	Session  string `json:"session,omitempty"`
	Continue bool   `json:"continue,omitempty"`
	RunID    string `json:"run_id"` // lets a repeat find the same run
}

// chatReply is what the command reads of an answer.
type chatReply struct {
	Session string `json:"session"`
	RunID   string `json:"run_id"`
	Reply   string `json:"reply"`
	Status  string `json:"status"`
}

const (
	chatPatience = 2 * time.Minute // how long a server that stopped in an answer is waited for
	chatPause    = 500 * time.Millisecond
)

// say says one thing and prints the answer. A stream that breaks off is gone on with where it ended: the run goes on in the server.
func (c *conversation) say(ctx context.Context, words string) error {
	body, err := json.Marshal(chatBody{Message: words, Session: c.session, Continue: c.goOn && c.session == "", RunID: uuid.Must(uuid.NewV7()).String()})
	if err != nil {
		return err
	}

	answer := &growingAnswer{out: c.out, quiet: c.json}
	for end := time.Now().Add(chatPatience); ; {
		err := c.ask(ctx, body, answer)
		if answer.whole != nil {
			break
		}
		broken := err == nil || errors.Is(err, errBroken) || answer.last != "" && errors.Is(err, errNoServer)
		if !broken || ctx.Err() != nil || time.Now().After(end) {
			answer.endLine()
			return err
		}
		if err := clock.Sleep(ctx, chatPause); err != nil {
			return err
		}
	}

	var reply chatReply
	if err := json.Unmarshal(answer.whole, &reply); err != nil {
		return fmt.Errorf("the answer of %s is none of an inbox server: %w", c.node.base, err)
	}
	c.session = reply.Session
	if err := c.print(answer, reply); err != nil {
		return err
	}
	return c.outcome(answer, reply)
}

func (c *conversation) print(answer *growingAnswer, reply chatReply) error {
	switch {
	case !c.json:
		answer.finish(reply.Reply)
		return nil
	case c.many:
		var line bytes.Buffer
		if err := json.Compact(&line, answer.whole); err != nil {
			return err
		}
		_, err := fmt.Fprintln(c.out, line.String())
		return err
	}

	var whole map[string]any
	if err := json.Unmarshal(answer.whole, &whole); err != nil {
		return err
	}
	return printJSON(c.out, whole)
}

// outcome is the error of a run that brought no answer, or nothing while it has one or waits for someone.
func (c *conversation) outcome(answer *growingAnswer, reply chatReply) error {
	switch reply.Status {
	case "failed", "cancelled":
		return failedAnswer{fmt.Errorf("the message got no answer (%s); see: inbox show %s", reply.Status, answer.turn())}
	case "approval_required", "runtime_tool_pending":
		if !c.json {
			fmt.Fprintf(os.Stderr, "The run waits for a person; see: inbox show %s\n", answer.turn())
		}
	}
	return nil
}

// errBroken is that of a stream that ended before the answer.
var errBroken = errors.New("the stream of the answer broke off")

// ask sends the message, or asks for the rest of its answer.
func (c *conversation) ask(ctx context.Context, body []byte, answer *growingAnswer) error {
	token, err := c.node.token(ctx)
	if err != nil {
		if !c.node.listens(ctx) {
			return fmt.Errorf("%w at %s", errNoServer, c.node.base)
		}
		return err
	}

	address := c.node.base + "/api/v1/agents/" + url.PathEscape(c.agent) + "/chat"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Host = c.node.host
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	if answer.last != "" {
		request.Header.Set("Last-Event-ID", answer.last)
	}

	client := *c.node.http
	client.Timeout = 0 // an agent takes its time
	response, err := client.Do(request)
	if failed, is := errors.AsType[*net.OpError](err); is && failed.Op == "dial" {
		return fmt.Errorf("%w at %s", errNoServer, c.node.base)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	defer response.Body.Close()

	if response.StatusCode >= http.StatusMultipleChoices {
		said, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if response.StatusCode == http.StatusServiceUnavailable && answer.last != "" { // it starts again
			return errBroken
		}
		return nodeRefusal(c.node.base, response.Status, said)
	}
	return answer.read(response.Body)
}

// growingAnswer prints an answer while it is written.
type growingAnswer struct {
	out     io.Writer
	quiet   bool
	last    string          // id of the last event
	printed strings.Builder // text that was written so far
	whole   json.RawMessage // the last event; nil before it
}

// maxEvent bounds one event of a stream: a whole answer with its files' addresses.
const maxEvent = 16 << 20

// read reads server-sent events (HTML standard, section 9.2) up to the whole answer.
func (g *growingAnswer) read(from io.Reader) error {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, maxEvent)
	name, id := "", ""
	var data []string
	for scanner.Scan() {
		field, value, _ := strings.Cut(scanner.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case scanner.Text() == "":
			if id != "" {
				g.last = id
			}
			if over := g.event(name, strings.Join(data, "\n")); over {
				return nil
			}
			name, id, data = "", "", nil
		case field == "event":
			name = value
		case field == "id":
			id = value
		case field == "data":
			data = append(data, value)
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return errBroken
}

// event takes one event, and reports whether it is the last one.
func (g *growingAnswer) event(name, data string) (over bool) {
	var about struct {
		EventID string `json:"event_id"`
		Text    string `json:"text"`
	}
	_ = json.Unmarshal([]byte(data), &about) // what is none of ours has none of these
	switch name {
	case "start", "resume":
		if g.last == "" || name == "resume" {
			g.last = about.EventID
		}
	case "delta":
		g.write(about.Text)
	case "reset": // the agent begins its answer again
		g.endLine()
		g.printed.Reset()
	case "reply":
		g.whole = json.RawMessage(data)
		return true
	}
	return false
}

func (g *growingAnswer) write(text string) {
	g.printed.WriteString(text)
	if !g.quiet {
		fmt.Fprint(g.out, printable(text))
	}
}

// finish prints what of the whole answer was not printed yet: all of it where the agent began anew.
func (g *growingAnswer) finish(reply string) {
	rest, grew := strings.CutPrefix(reply, g.printed.String())
	if !grew {
		g.endLine()
		rest = reply
	}
	g.write(rest)
	g.endLine()
}

func (g *growingAnswer) endLine() {
	if text := g.printed.String(); !g.quiet && text != "" && !strings.HasSuffix(text, "\n") {
		g.write("\n")
	}
}

// turn is the id of the turn, out of that of an event.
func (g *growingAnswer) turn() string {
	turn, _, _ := strings.Cut(g.last, ".")
	return turn
}

// printable takes the control characters out of what an agent says: a terminal would obey them.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return -1
		}
		return r
	}, text)
}
