package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// runs are tasks as they are executed: each is a turn of the agent of its target.
type runs struct {
	options Options
}

// request is one request about runs: what the engine needs of it beyond the contract.
type request struct {
	*runs
	caller   caller
	original []byte
}

var _ task.Executions = request{}

// route is what this adapter keeps with every turn.
type route struct {
	Run      string   `json:"task_run"`
	Session  string   `json:"task_session"`
	Target   string   `json:"target"`
	Requires []string `json:"requires,omitempty"` // exchange.RouteRequires
}

// Begin implements task.Executions: message, job and the row of the run in one transaction.
func (rs request) Begin(ctx context.Context, begin task.Begin) (map[string]any, error) {
	target := rs.options.Targets().byID[value.Text(begin.Target["id"])]
	agent, known := rs.options.Directory.Agent(target.Agent)
	if !known {
		return nil, task.NoHandler()
	}

	in, err := rs.inbound(ctx, agent, target, begin)
	if err != nil {
		return nil, err
	}

	receipt, err := rs.options.Receiver.Receive(ctx, in)
	switch {
	case err != nil:
		return nil, err
	case receipt.TaskTaken, !receipt.New:
		return nil, nil
	case receipt.State == exchange.StateAccepted:
		return begin.Run, nil // queued, and that without another look
	}
	return rs.Find(ctx, in.Task.ID)
}

const (
	mimeJSON        = "application/json"
	inputFile       = "input.json"
	maxReadable     = 200 // bytes of a run id in the id of its message
	maxAboutBytes   = 16 << 10
	aboutExtension  = "dev.inbox.task"
	maxAttachments  = 32
	idOfRunMessages = "task:run:"
)

// inbound makes the message of a run.
func (rs request) inbound(ctx context.Context, agent exchange.AgentProfile, target Target, begin task.Begin) (exchange.Inbound, error) {
	files := exchange.Contents{}
	parts, err := parts(ctx, value.Assoc(begin.Input["task"]), files)
	if err != nil {
		return exchange.Inbound{}, err
	}

	requires, err := requirements(target, value.Assoc(begin.Input["placement"]))
	if err != nil {
		return exchange.Inbound{}, err
	}

	run, session := value.Text(begin.Run["run_id"]), value.Text(begin.Run["session_id"])
	kept, err := json.Marshal(route{Run: run, Session: session, Target: target.ID, Requires: requires})
	if err != nil {
		return exchange.Inbound{}, fmt.Errorf("encode route: %w", err)
	}
	started, err := value.Encode(begin.Run)
	if err != nil {
		return exchange.Inbound{}, fmt.Errorf("encode run: %w", err)
	}

	sender := bearer.Sender(rs.caller.token, agent, rs.options.Domain)
	sender.Profile = profileOf(begin)
	readable := run
	if len(readable) > maxReadable {
		readable = "sha256-" + normalized.Digest([]byte(run))
	}

	return exchange.Inbound{
		Message: normalized.Message{
			ID: idOfRunMessages + readable, ThreadID: newThread(agent, sender), Sender: sender, Recipient: agent.Address, Parts: parts,
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}, TextMIMEs: []string{normalized.MIMEMarkdown, normalized.MIMEPlain},
			},
			ReceivedVia: normalized.ViaA2A, ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: mimeJSON},
		},
		Original: rs.original, Files: files, Channel: ChannelName, Route: kept, Conversation: session, NewThread: true, Opens: true,
		Task: &exchange.TaskRun{ID: run, Owner: rs.caller.key(), Started: started},
	}, nil
}

// newThread returns the id of the conversation of a run: each run is one of its own.
func newThread(agent exchange.AgentProfile, sender normalized.Sender) string {
	return exchange.ConversationID(ChannelName, agent.Name, sender.Principal(), uuid.Must(uuid.NewV7()).String())
}

// requirements are the labels that a program must have to get the run, where programs work for the target.
func requirements(target Target, placement map[string]any) ([]string, error) {
	if target.Kind != KindPull {
		return nil, nil
	}
	required := value.Words(placement["required_capabilities"])
	if len(strings.Join(required, " ")) > exchange.MaxRequires {
		return nil, fault.InField("placement.required_capabilities", fmt.Sprintf("must have at most %d bytes together", exchange.MaxRequires))
	}
	return required, nil
}

// profileOf tells the agent what the caller says about the task: context, never authorization.
func profileOf(begin task.Begin) *normalized.SenderProfile {
	about := map[string]any{
		"run_id": begin.Run["run_id"], "session_id": begin.Run["session_id"], "task_id": begin.Input["task_id"],
		"executor_id": begin.Run["executor_id"], "placement": begin.Input["placement"], "metadata": begin.Input["metadata"],
		"client_context": tool.PublicContext(value.Assoc(begin.Input["client_context"])),
	}

	encoded := value.EncodeText(about)
	if len(encoded) > maxAboutBytes {
		return nil
	}
	return &normalized.SenderProfile{Extensions: map[string]json.RawMessage{aboutExtension: json.RawMessage(encoded)}}
}

// parts are what the agent gets: the instructions as text, the input as a file of JSON, the attachments as files. Nothing is
// fetched.
func parts(ctx context.Context, work map[string]any, files exchange.Contents) ([]normalized.Part, error) {
	instructions := value.Text(work["instructions"])
	if instructions == "" {
		instructions = "Task " + value.Text(work["id"])
	}
	parts := []normalized.Part{normalized.Text(instructions)}

	if input := value.Assoc(work["input"]); len(input) > 0 {
		part, err := normalized.Part{Kind: normalized.PartFile, MIME: mimeJSON, Name: inputFile}.Carrying(ctx, []byte(value.EncodeText(input)), files)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}

	attachments := value.Elements(work["attachments"])
	if len(attachments) > maxAttachments {
		return nil, fault.InField("task.attachments", fmt.Sprintf("has more than %d files", maxAttachments))
	}
	for i, one := range attachments {
		part, err := attachment(ctx, value.Assoc(one), fmt.Sprintf("task.attachments[%d]", i), files)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// wait returns when a run has ended, or the time is over.
func (rs *runs) wait(ctx context.Context, runID string, patience time.Duration) error {
	row, found, err := rs.options.Rows.TaskRun(ctx, runID)
	if err != nil || !found {
		return err
	}

	serving, stop := httpserver.WhileServing(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(serving, patience)
	defer cancel()
	turn, err := rs.options.Runs.Wait(waiting, row.TurnID)
	if err == nil && !exchange.Terminal(turn.State) { // it waits for someone, and may go on soon
		err = follow(waiting, rs.options.Runs, turn.ID)
	}
	if err != nil && (waiting.Err() == nil || ctx.Err() != nil) {
		return err
	}
	return nil
}

// follow returns when a turn has ended.
func follow(ctx context.Context, runs exchange.Runs, turnID string) error {
	for _, err := range runs.Follow(ctx, turnID, 0) {
		if err != nil {
			return err
		}
	}
	return nil
}

// Find implements task.Executions.
func (rs *runs) Find(ctx context.Context, runID string) (map[string]any, error) {
	row, found, err := rs.options.Rows.TaskRun(ctx, runID)
	if err != nil || !found {
		return nil, err
	}
	turn, err := rs.options.Turns.Turn(ctx, row.TurnID)
	if err != nil {
		return nil, err
	}
	return rs.whole(ctx, row, turn)
}

// Stop implements task.Executions. The turn ends at once, whatever its agent does.
func (rs request) Stop(ctx context.Context, runID string) (run map[string]any, stopped bool, err error) {
	row, found, err := rs.options.Rows.TaskRun(ctx, runID)
	if err != nil || !found {
		return nil, false, err
	}

	turn, err := rs.options.Turns.Turn(ctx, row.TurnID)
	if err != nil {
		return nil, false, err
	}
	if !exchange.Terminal(turn.State) {
		turn, err = rs.options.Runs.Cancel(ctx, row.TurnID, "cancelled by "+rs.caller.key())
		if stopped = err == nil; err != nil && !fault.Is(err, fault.Conflict) { // Conflict: it ended meanwhile
			return nil, false, err
		}
	}

	run, err = rs.whole(ctx, row, turn)
	return run, stopped, err
}

// brief is a run for lists: without its events and what comes of them.
func (rs *runs) brief(ctx context.Context, row exchange.TaskRun) (map[string]any, error) {
	turn, err := rs.options.Turns.Turn(ctx, row.TurnID)
	if err != nil {
		return nil, err
	}
	return rs.resultOf(ctx, row, turn, nil)
}

// maxEvents bounds the events of a run, which are its first ones.
const maxEvents = 500

func (rs *runs) whole(ctx context.Context, row exchange.TaskRun, turn exchange.TurnRecord) (map[string]any, error) {
	events, err := rs.options.Turns.Events(ctx, turn.ID, 0, maxEvents)
	if err != nil {
		return nil, err
	}
	return rs.resultOf(ctx, row, turn, events)
}
