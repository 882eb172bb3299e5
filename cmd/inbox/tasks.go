package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"inbox"
	"inbox/agents/runtime/task"
	"inbox/exchange"
	"inbox/operator"
)

func newTasks() *cobra.Command {
	parent := &cobra.Command{
		Use:   "tasks",
		Short: "Run tasks on the targets of a server, and see their results",
		Long: `A task is work for one of the targets that [[targets]] of the configuration name: an agent of this server, an agent
elsewhere, or a pool of programs that fetch their work. The server keeps a run until it has ended, also across crashes.

These commands ask the running server. On its machine they need nothing: they read the configuration and the operator's
token from data_dir. Elsewhere give its address by --server or INBOX_SERVER, and a token by --token or INBOX_TOKEN
(inbox tokens create --tasks --results NAME).`,
		Example: `  inbox tasks targets
  inbox tasks run --require gpu --wait "Render the film."
  inbox tasks list
  inbox tasks show task_run_5c…
  inbox tasks cancel task_run_5c…`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	parent.PersistentFlags().String("server", "", "address of the server (INBOX_SERVER; that of the configuration)")
	parent.PersistentFlags().String("token", "", "token for tasks or of an operator (INBOX_TOKEN; data_dir/"+operator.AdminTokenFile+")")
	parent.AddCommand(newTasksRun(), newTasksList(), newTasksShow(), newTasksCancel(), newTasksTargets())
	return parent
}

// taskClient asks a server about tasks.
type taskClient struct{ *bridgeClient }

// taskServer finds the server and the token: by flags, the environment, or the configuration of this machine.
func taskServer(cmd *cobra.Command) (taskClient, error) {
	said := func(flag, variable string) string {
		given, _ := cmd.Flags().GetString(flag)
		return cmp.Or(given, os.Getenv(variable))
	}

	server, token := said("server", "INBOX_SERVER"), said("token", "INBOX_TOKEN")
	var own *http.Transport // to the server of the configuration
	if server == "" || token == "" {
		config, err := load(cmd)
		if err != nil {
			return taskClient{}, err
		}
		if server == "" {
			if network, _ := operator.Reach(config.HTTP.Listen); network == "unix" {
				server, own = "http://localhost", ownTransport(config)
			} else if server = config.PublicURL; config.HTTP.TLS == "off" {
				server = "http://" + reached(config.HTTP.Listen)
			} else {
				own = ownTransport(config)
			}
		}
		if token == "" {
			file := filepath.Join(config.DataDir, operator.AdminTokenFile)
			content, err := os.ReadFile(file)
			if err != nil {
				return taskClient{}, fmt.Errorf("no token: give one by --token or INBOX_TOKEN, because the operator's cannot be read: %w", err)
			}
			token = strings.TrimSpace(string(content))
		}
	}

	if address, err := url.Parse(server); err != nil || address.Host == "" {
		return taskClient{}, usageError{fmt.Errorf("--server must be an address such as https://agents.example, not %q\nRun '%s --help'", server, cmd.CommandPath())}
	}
	client := newBridgeClient(server, token)
	if own != nil {
		client.http.Transport = own
	}
	return taskClient{client}, nil
}

// ownTransport reaches the server of a configuration under its public name, where it listens on this machine.
func ownTransport(config *inbox.Config) *http.Transport {
	network, place := "tcp", reached(config.HTTP.Listen)
	if found, path := operator.Reach(config.HTTP.Listen); found == "unix" {
		network, place = found, path
	}
	return &http.Transport{TLSClientConfig: ownTLS(config), DialContext: dialing(network, place)}
}

// reached is where this machine reaches a listener: one without host, or on all of them, also listens on loopback.
func reached(listen string) string {
	host, port, found := strings.Cut(listen, ":")
	if found && (host == "" || host == "0.0.0.0") {
		return "127.0.0.1:" + port
	}
	return strings.Replace(listen, "[::]:", "127.0.0.1:", 1)
}

// taskRun is a run as far as a terminal needs it; whole is the document.
type taskRun struct {
	ID          string         `json:"run_id"`
	Session     string         `json:"session_id"`
	Status      string         `json:"status"`
	Executor    string         `json:"executor_id"`
	Started     string         `json:"started_at"`
	Updated     string         `json:"updated_at"`
	Output      any            `json:"output"`
	Artifacts   []taskArtifact `json:"artifact_refs"`
	Diagnostics map[string]any `json:"diagnostics"`
	Metadata    map[string]any `json:"metadata"`
	Cancelled   bool           `json:"cancelled"`

	whole json.RawMessage
}

type taskArtifact struct {
	Label string `json:"label"`
	URL   string `json:"url"`
}

// UnmarshalJSON keeps the document beside its members.
func (r *taskRun) UnmarshalJSON(document []byte) error {
	type members taskRun
	if err := json.Unmarshal(document, (*members)(r)); err != nil {
		return err
	}
	r.whole = append(json.RawMessage(nil), document...)
	return nil
}

// MarshalJSON returns the document as the server wrote it.
func (r taskRun) MarshalJSON() ([]byte, error) { return r.whole, nil } //nolint:unparam // encoding/json wants an error

// taskTarget is a target as far as a table needs it; whole is the document.
type taskTarget struct {
	ID           string   `json:"id"`
	Label        string   `json:"label"`
	Kind         string   `json:"kind"`
	Capabilities []string `json:"capabilities"`
	Classes      []string `json:"resource_classes"`

	whole json.RawMessage
}

// UnmarshalJSON keeps the document beside its members.
func (t *taskTarget) UnmarshalJSON(document []byte) error {
	type members taskTarget
	if err := json.Unmarshal(document, (*members)(t)); err != nil {
		return err
	}
	t.whole = append(json.RawMessage(nil), document...)
	return nil
}

// MarshalJSON returns the document as the server wrote it.
func (t taskTarget) MarshalJSON() ([]byte, error) { return t.whole, nil } //nolint:unparam // encoding/json wants an error

func taskPath(run, session, more string) string {
	return "/v1/tasks/" + url.PathEscape(run) + more + "?session_id=" + url.QueryEscape(session)
}

func newTasksRun() *cobra.Command {
	var target, class, session, run, input string
	var allowed, required []string
	var wait bool
	cmd := &cobra.Command{
		Use:   "run [--target T] [--require …] [--wait] INSTRUCTIONS…",
		Short: "Run a task on a target",
		Long: `Runs a task. Of the targets that take it (--allow, --class, --require) the preferred one gets it (--target), else the first.

--input gives the task a JSON object beside its instructions; @FILE reads it from a file, @- from standard input.
--run names the run: a run of this name begins once, however often the command is repeated.
--wait shows the progress until the run has ended, across restarts of the server; the exit code is 1 when it did not succeed. Without it
the command ends as soon as the server has the task, and prints the name of the run.`,
		Example: `  inbox tasks run --target local "Write the report of July."
  inbox tasks run --require gpu,linux --input @scene.json --wait "Render the scene."
  inbox tasks run --run nightly-2026-11-23 --json "Clean up." | jq -r .status`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, words []string) error {
			client, err := taskServer(cmd)
			if err != nil {
				return err
			}
			given, err := taskInput(cmd, input)
			if err != nil {
				return err
			}

			run, session := cmp.Or(run, task.NewRunID()), cmp.Or(session, "command-line")
			placement := map[string]any{"allowed_targets": allowed, "required_capabilities": required}
			for name, text := range map[string]string{"preferred_target": target, "resource_class": class} {
				if text != "" {
					placement[name] = text
				}
			}

			begun, err := client.begin(cmd.Context(), run, session, map[string]any{
				"run_id": run, "session_id": session, "placement": placement,
				"task": map[string]any{"id": uuid.NewString(), "instructions": strings.Join(words, " "), "input": given},
			})
			if err != nil {
				return err
			}
			if wait {
				return client.show(cmd, begun, true)
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), begun.whole)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", begun.ID)
			fmt.Fprintf(cmd.ErrOrStderr(), "It is %s on %s; see: inbox tasks show %s\n", begun.Status, begun.Executor, begun.ID)
			return nil
		},
	}

	addJSON(cmd)
	flags := cmd.Flags()
	flags.StringVar(&target, "target", "", "the target that gets the task if it takes it")
	flags.StringSliceVar(&allowed, "allow", nil, "only these targets")
	flags.StringSliceVar(&required, "require", nil, "what the target must be able to do")
	flags.StringVar(&class, "class", "", "class of resources that is needed (generic)")
	flags.StringVar(&session, "session", "", "session to which the run belongs (command-line)")
	flags.StringVar(&run, "run", "", "name of the run (one is made)")
	flags.StringVar(&input, "input", "", "JSON object for the task, @FILE or @-")
	flags.BoolVar(&wait, "wait", false, "until it has ended, and show the progress")
	return cmd
}

// maxTaskInput bounds what --input reads.
const maxTaskInput = 8 << 20

func taskInput(cmd *cobra.Command, given string) (map[string]any, error) {
	if given == "" {
		return map[string]any{}, nil
	}

	content := []byte(given)
	if name, is := strings.CutPrefix(given, "@"); is {
		var err error
		if content, err = readFile(cmd, name, maxTaskInput); err != nil {
			return nil, err
		}
	}

	object := map[string]any{}
	if err := json.Unmarshal(content, &object); err != nil {
		return nil, usageError{fmt.Errorf("--input must be a JSON object: %w\nRun '%s --help'", err, cmd.CommandPath())}
	}
	return object, nil
}

// begin runs a task. A request whose answer was lost is repeated: the server then says that the run has begun.
func (c taskClient) begin(ctx context.Context, run, session string, body map[string]any) (begun taskRun, err error) {
	for try := 1; ; try++ {
		err = c.call(ctx, http.MethodPost, "/v1/tasks", body, &begun)
		refused, is := errors.AsType[*refusedRequest](err)
		switch {
		case is && refused.code == task.CodeAlreadyStarted && try > 1:
			err = c.call(ctx, http.MethodGet, taskPath(run, session, ""), nil, &begun)
			return begun, err
		case !errors.Is(err, errUnreachable) || try == sendTries || !rest(ctx):
			return begun, err
		}
	}
}

// show prints a run; with wait when it has ended. A run that did not succeed is an error then.
func (c taskClient) show(cmd *cobra.Command, run taskRun, wait bool) error {
	said, tries := "", 0
	for wait {
		if run.Status != said {
			said = run.Status
			fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s%s\n", run.ID, run.Status, waitingFor(run))
		}
		if task.Terminal(run.Status) {
			break
		}

		var next taskRun
		asked := time.Now()
		err := c.call(cmd.Context(), http.MethodGet, taskPath(run.ID, run.Session, "")+"&wait="+longPoll.String(), nil, &next)
		switch {
		case err == nil:
			run, tries = next, 0
			if time.Since(asked) < restWait && !task.Terminal(run.Status) && !rest(cmd.Context()) { // a server that stops does not wait
				return cmd.Context().Err()
			}
		case !errors.Is(err, errUnreachable) || tries == sendTries || !rest(cmd.Context()):
			return err
		default:
			tries++
		}
	}

	if err := printTaskRun(cmd, run); err != nil || !wait || run.Status == task.StatusSucceeded {
		return err
	}
	return fmt.Errorf("the run %s", run.Status)
}

func waitingFor(run taskRun) string {
	if word, _ := run.Metadata["waiting_for"].(string); word != "" {
		return " (" + word + ")"
	}
	return ""
}

func printTaskRun(cmd *cobra.Command, run taskRun) error {
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), run.whole)
	}

	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "Run       %s  %s%s on %s\n", oneLine(run.ID), run.Status, waitingFor(run), oneLine(run.Executor))
	fmt.Fprintf(out, "          session %s, since %s, updated %s\n", oneLine(run.Session), run.Started, run.Updated)
	printTaskEnd(out, run)
	return nil
}

func printTaskEnd(out io.Writer, run taskRun) {
	if message, _ := run.Diagnostics["error_message"].(string); message != "" {
		fmt.Fprintf(out, "  error   %s (%v)\n", oneLine(message), run.Diagnostics["error_code"])
	}
	for _, file := range run.Artifacts {
		fmt.Fprintf(out, "  file    %s  %s\n", oneLine(file.Label), oneLine(file.URL))
	}

	output, _ := run.Output.(map[string]any)
	if text, is := output["text"].(string); is {
		fmt.Fprintf(out, "\n%s\n", quoteLines(text))
	}
	if data := output["data"]; data != nil {
		if encoded, err := json.MarshalIndent(data, "", "  "); err == nil {
			fmt.Fprintf(out, "\n%s\n", encoded)
		}
	}
	if run.Output != nil && output["text"] == nil && output["data"] == nil {
		if encoded, err := json.Marshal(run.Output); err == nil {
			fmt.Fprintf(out, "\n%s\n", encoded)
		}
	}
}

// find returns a run by its name; without its session it is looked for among the newest.
func (c taskClient) find(ctx context.Context, run, session string) (found taskRun, err error) {
	if session == "" {
		listed, err := c.list(ctx, maxTasks, "")
		if err != nil {
			return found, err
		}
		for _, one := range listed.Items {
			if one.ID == run {
				session = one.Session
			}
		}
	}
	if session == "" {
		return found, fmt.Errorf("there is no run %q among the newest; name its session with --session", run)
	}
	err = c.call(ctx, http.MethodGet, taskPath(run, session, ""), nil, &found)
	return found, err
}

// maxTasks is the largest page of runs.
const maxTasks = 499

func (c taskClient) list(ctx context.Context, limit int, before string) (exchange.List[taskRun], error) {
	var page struct {
		Runs []taskRun `json:"runs"`
		Next string    `json:"next"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/tasks?"+url.Values{"limit": {strconv.Itoa(limit)}, "before": {before}}.Encode(), nil, &page)
	return exchange.NewList(page.Runs, page.Next), err
}

func newTasksList() *cobra.Command {
	var limit int
	var before string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		Example: "  inbox tasks list\n  inbox tasks list --json | jq -r '.items[] | select(.status==\"failed\") | .run_id'",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := taskServer(cmd)
			if err != nil {
				return err
			}
			runs, err := client.list(cmd.Context(), limit, before)
			if err != nil {
				return err
			}
			heading := []string{"RUN", "STATUS", "TARGET", "SESSION", "STARTED", "UPDATED"}
			return table[taskRun]{"No runs. Begin one with: inbox tasks run", heading, func(run taskRun) []string {
				return []string{oneLine(run.ID), run.Status + waitingFor(run), oneLine(run.Executor), oneLine(run.Session), run.Started, run.Updated}
			}}.show(cmd, runs)
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&before, "before", "", "the page after another one: the \"next\" of that page in JSON, or what its last line names")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this many, up to "+strconv.Itoa(maxTasks))
	return cmd
}

func newTasksShow() *cobra.Command {
	var session string
	var wait bool
	cmd := &cobra.Command{
		Use:     "show RUN",
		Short:   "Show a run with its result",
		Long:    "Shows a run. With --wait it follows the run to its end; the exit code is 1 when it did not succeed.",
		Example: "  inbox tasks show task_run_5c…\n  inbox tasks show --wait --json nightly-2026-11-23",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			client, err := taskServer(cmd)
			if err != nil {
				return err
			}
			run, err := client.find(cmd.Context(), names[0], session)
			if err != nil {
				return err
			}
			return client.show(cmd, run, wait)
		},
	}

	addJSON(cmd)
	completing(cmd, taskRuns)
	cmd.Flags().StringVar(&session, "session", "", "session of the run (looked up among the newest runs)")
	cmd.Flags().BoolVar(&wait, "wait", false, "until it has ended, and show the progress")
	return cmd
}

func newTasksCancel() *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:     "cancel RUN",
		Short:   "End a run; one that has ended stays as it is",
		Example: "  inbox tasks cancel task_run_5c…",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			client, err := taskServer(cmd)
			if err != nil {
				return err
			}
			run, err := client.find(cmd.Context(), names[0], session)
			if err != nil {
				return err
			}

			var ended taskRun
			if err := client.call(cmd.Context(), http.MethodPost, taskPath(run.ID, run.Session, "/cancel"), map[string]any{}, &ended); err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), ended.whole)
			}
			if !ended.Cancelled {
				fmt.Fprintf(cmd.OutOrStdout(), "%s had ended before: %s\n", ended.ID, ended.Status)
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is cancelled\n", ended.ID)
			return nil
		},
	}

	addJSON(cmd)
	completing(cmd, taskRuns)
	cmd.Flags().StringVar(&session, "session", "", "session of the run (looked up among the newest runs)")
	return cmd
}

func newTasksTargets() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "targets",
		Short:   "List the targets on which tasks run",
		Example: "  inbox tasks targets --json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := taskServer(cmd)
			if err != nil {
				return err
			}

			var found struct {
				Targets []taskTarget `json:"targets"`
			}
			if err := client.call(cmd.Context(), http.MethodGet, "/v1/targets", nil, &found); err != nil {
				return err
			}
			return table[taskTarget]{"No targets. Declare some as [[targets]] in the configuration.", []string{"ID", "LABEL", "KIND", "CAPABILITIES", "CLASSES"}, func(target taskTarget) []string {
				return []string{target.ID, oneLine(target.Label), target.Kind, strings.Join(target.Capabilities, ","), strings.Join(target.Classes, ",")}
			}}.show(cmd, exchange.NewList(found.Targets, ""))
		},
	}

	addJSON(cmd)
	return cmd
}
