package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

var toolRequests = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_tool_requests_total",
	Help: "Calls of tools that programs outside execute, by event (requested, submitted, timed_out, cancelled).",
}, []string{"event"})

// ToolTx is what a transaction does about tools that programs outside execute.
type ToolTx interface {
	// InsertToolRequest stores a request unless its id is taken, and returns the status of the row that is there afterwards.
	InsertToolRequest(ctx context.Context, r exchange.ToolRequest) (status string, err error)
	// EndToolRequest changes a pending request to a terminal status, with its result if there is one, and reports whether it did.
	EndToolRequest(ctx context.Context, id, status string, result json.RawMessage, at time.Time) (bool, error)
	// PendingToolRequests returns the ids of the requests for which a turn waits.
	PendingToolRequests(ctx context.Context, turnID string) ([]string, error)
}

// ToolReader is what the pipeline reads about them outside transactions.
type ToolReader interface {
	// ToolRequest returns one request; fault.NotFound when there is none.
	ToolRequest(ctx context.Context, id string) (exchange.ToolRequest, error)
	// ToolRequests lists requests, oldest first.
	ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error)
}

// toolWait is agents.ToolRequests of one run. It stays in the goroutine of the run.
type toolWait struct {
	*core
	turn   exchange.TurnRecord
	wanted *exchange.ToolRequest
}

// Await implements agents.ToolRequests.
func (w *toolWait) Await(wanted map[string]any) error {
	normalized, err := request.Normalize(wanted)
	if err != nil {
		return fault.Wrap(fault.Malformed, "the tool request is not valid", err)
	}
	if normalized["run_id"] != w.turn.ID {
		return fault.InField("run_id", "must be the id of the turn")
	}

	encoded, err := value.Encode(normalized)
	if err != nil || len(encoded) > request.MaxRecordBytes {
		return fault.Wrap(fault.Malformed, "the tool request is not JSON of at most 1 MiB", err)
	}

	due, _ := request.TimeoutAt(normalized)
	w.wanted = &exchange.ToolRequest{
		ID: value.Text(normalized["request_id"]), Agent: w.turn.Agent, TurnID: w.turn.ID, ToolName: value.Text(normalized["tool_name"]),
		Status: request.StatusPending, Request: encoded, TimeoutAt: due,
	}

	return nil
}

// Request implements agents.ToolRequests. Requests of other turns are not there.
func (w *toolWait) Request(ctx context.Context, id string) (map[string]any, error) {
	stored, err := w.options.Store.ToolRequest(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound) || err == nil && stored.TurnID != w.turn.ID:
		return nil, nil
	case err != nil:
		return nil, fault.RetryIn(0, "the tool request cannot be read now", err)
	}
	return request.FromRow(stored.Request, stored.Status, stored.Result)
}

// awaitTool parks the turn until a program outside has executed a tool. Nothing is sent, and an acknowledgement stays
// possible: for the asker the agent is still at work.
func (s *runner) awaitTool(
	ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, record *runRecord, wanted exchange.ToolRequest,
) error {
	wanted.CreatedAt = time.Now().UTC().Truncate(time.Microsecond)
	made := false
	return s.replies.conclude(ctx, job, record, ending{
		turn: turn, state: exchange.StateWaiting, reason: exchange.WaitingTool + " (" + wanted.ToolName + ")", at: wanted.CreatedAt,
		more: func(ctx context.Context, tx Tx) (err error) {
			if made, err = storeToolRequest(ctx, tx, turn, wanted); err != nil || !made {
				return err
			}
			return s.replies.scheduleAck(ctx, tx, agent, turn)
		},
		stored: func() {
			if made {
				s.tellTool(ctx, wanted, requestedEvent(wanted))
			}
			toolRequests.WithLabelValues("requested").Inc()
			s.options.Requested(wanted)
		},
	})
}

// tells reports whether the asker is to hear what the run said while the turn waits: where someone has to sign in elsewhere. An
// agent whose answers need an approval waits without a word.
func (w *toolWait) tells(agent agents.Entry, response normalized.Response) bool {
	approved := agent.Settings.ApproveReplies == "" || agent.Settings.ApproveReplies == agents.ApproveNever
	return w.wanted != nil && w.wanted.ToolName == exchange.ToolAuthorization && response.Status == normalized.StatusInputRequired &&
		len(response.Parts) > 0 && response.Policy() == nil && approved && len(agent.Settings.ReplyRules) == 0
}

// awaitAuthorization is awaitTool with a notice for the asker, as a demand has one. The turn holds no worker while it waits.
func (s *runner) awaitAuthorization(
	ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, wanted exchange.ToolRequest, response normalized.Response,
) error {
	wanted.CreatedAt = time.Now().UTC().Truncate(time.Microsecond)
	response.To, response.Cc = nil, nil
	reply := s.replies.newReply(turn, response)
	reply.Response = inPrivate(reply.Response) // it says where to sign in
	reply.Notice = turn.Attempt
	made := false
	return s.replies.conclude(ctx, job, record, ending{
		turn: turn, reply: reply, state: exchange.StateWaiting, reason: exchange.WaitingAuthorization,
		more: func(ctx context.Context, tx Tx) (err error) {
			made, err = storeToolRequest(ctx, tx, turn, wanted)
			return err
		},
		stored: func() {
			if made {
				s.tellTool(ctx, wanted, requestedEvent(wanted))
			}
		},
	})
}

// storeToolRequest stores the request for which a turn waits, and reports whether it is new. A turn whose request has a result already
// runs again.
func storeToolRequest(ctx context.Context, tx Tx, turn exchange.TurnRecord, wanted exchange.ToolRequest) (made bool, err error) {
	status, err := tx.InsertToolRequest(ctx, wanted)
	if err != nil {
		return false, err
	}
	if status != request.StatusPending {
		_, err := resumeTurn(ctx, tx, turn)
		return false, err
	}
	return true, tx.AppendEvents(ctx, turn.ID, []exchange.Event{requestedEvent(wanted)})
}

func requestedEvent(wanted exchange.ToolRequest) exchange.Event {
	return toolEvent(exchange.EventToolRequested, wanted, map[string]any{"timeout_at": timeText(wanted.TimeoutAt)})
}

// toolEventNames are the names of the contract for the rows of a timeline. A request that is taken back ends as one whose time is over.
var toolEventNames = map[string]request.EventName{
	exchange.EventToolRequested: request.EventCreated, exchange.EventToolSubmitted: request.EventSubmitted,
	exchange.EventToolTimedOut: request.EventTimedOut, exchange.EventToolCancelled: request.EventTimedOut,
	exchange.EventToolResumed: request.EventResumed,
}

func timeText(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.UTC().Format(time.RFC3339Nano)
}

func toolEvent(kind string, r exchange.ToolRequest, more map[string]any) exchange.Event {
	more["event"], more["request_id"], more["tool_name"] = toolEventNames[kind].Full(), r.ID, r.ToolName
	body, err := json.Marshal(more)
	if err != nil {
		body = nil // texts and flags always encode
	}
	return exchange.Event{Kind: kind, Body: body, At: time.Now()}
}

// tellTool writes what happened to a request to the log, once it is stored.
func (s *core) tellTool(ctx context.Context, r exchange.ToolRequest, event exchange.Event) {
	level, name := slog.LevelInfo, toolEventNames[event.Kind]
	if event.Kind == exchange.EventToolTimedOut {
		level = slog.LevelWarn // its program did not answer
	}
	s.options.Logger.Log(ctx, level, "request to a tool outside the server", "event", name.Full(), "kind", event.Kind,
		"turn_id", r.TurnID, "agent", r.Agent, "request_id", r.ID, "tool", r.ToolName)
}

// resumeTurn lets a turn that waits for a tool run again, behind what arrived in its thread meanwhile. It reports whether the turn waited.
func resumeTurn(ctx context.Context, tx Tx, turn exchange.TurnRecord) (resumed bool, err error) {
	resumed, err = tx.ResumeTurn(ctx, turn.ID, nil, nil, time.Now())
	if err != nil || !resumed {
		return false, err
	}
	return true, tx.Enqueue(ctx, resumedJob(turn))
}

// endToolRequests ends what a turn waited for that is not wanted any more: no result would be of use.
func endToolRequests(ctx context.Context, tx Tx, turnID, reason string) error {
	ids, err := tx.PendingToolRequests(ctx, turnID)
	if err != nil {
		return err
	}

	for _, id := range ids {
		ended, err := tx.EndToolRequest(ctx, id, request.StatusTimeout, nil, time.Now())
		if err != nil {
			return err
		}
		if !ended {
			continue
		}

		event := toolEvent(exchange.EventToolCancelled, exchange.ToolRequest{ID: id}, map[string]any{"by": reason})
		if err := tx.AppendEvents(ctx, turnID, []exchange.Event{event}); err != nil {
			return err
		}
	}

	return nil
}

// tools serves the calls of tools that programs outside execute.
type tools struct{ *core }

// ToolRequests serves the requests of one agent, or of all agents where agent is empty: those of others are not found. By
// says who calls, for the timeline. What ends a request lets its turn run again in the same transaction, so that
// continuations are not needed. Stored records also have agent, created_at and updated_at.
func (s *tools) ToolRequests(agent, by string) request.Lifecycle {
	return request.Lifecycle{Store: toolStore{core: s.core, agent: agent, by: by}}
}

// ToolCancels is ToolRequests for who takes a request back: the timeline tells it from one whose time is over.
func (s *tools) ToolCancels(agent, by string) request.Lifecycle {
	return request.Lifecycle{Store: toolStore{core: s.core, agent: agent, by: by, cancels: true}}
}

// toolStore is request.Store over the requests of turns.
type toolStore struct {
	*core
	agent   string
	by      string
	cancels bool
}

// errTurnsAlone is met by who wants to make a request without a turn.
var errTurnsAlone = errors.New("requests are made by turns")

// Create implements request.Store. Only a run makes requests, by Await.
func (t toolStore) Create(context.Context, map[string]any) error { return errTurnsAlone }

func (t toolStore) find(ctx context.Context, id string) (found exchange.ToolRequest, has bool, err error) {
	found, err = t.options.Store.ToolRequest(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return found, false, nil
	}
	return found, err == nil && (t.agent == "" || found.Agent == t.agent), err
}

// Get implements request.Store.
func (t toolStore) Get(ctx context.Context, id string) (map[string]any, error) {
	found, has, err := t.find(ctx, id)
	if err != nil || !has {
		return nil, err
	}
	return toolRecord(found)
}

// toolRecord is a stored request with what only the server knows of it.
func toolRecord(stored exchange.ToolRequest) (map[string]any, error) {
	record, err := request.FromRow(stored.Request, stored.Status, stored.Result)
	if err != nil {
		return nil, err
	}
	record["agent"], record["created_at"], record["updated_at"] = stored.Agent, timeText(stored.CreatedAt), timeText(stored.UpdatedAt)
	return record, nil
}

// RecentPending implements request.Store; at most 500 at once.
func (t toolStore) RecentPending(ctx context.Context, query request.Query) ([]map[string]any, error) {
	found, err := t.options.Store.ToolRequests(ctx, exchange.ToolRequestFilter{
		Agent: t.agent, TurnID: query.RunID, ToolName: query.ToolName, CreatedBefore: query.Before, CreatedAfter: query.After,
		DueBy: query.DueBy, Limit: query.Limit,
	})
	if err != nil {
		return nil, err
	}

	records := make([]map[string]any, 0, len(found))
	for _, one := range found {
		record, err := toolRecord(one)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}

	return records, nil
}

// maxToolResult bounds a result as JSON: what a program may hand in, and the names around it.
const maxToolResult = request.MaxRecordBytes + 4<<10

// errOther rolls the transaction of a request back that someone else ended.
var errOther = errors.New("the request is not pending any more")

// TransitionPending implements request.Store: the request ends, its timeline says so and its turn runs again, all of it
// or nothing.
func (t toolStore) TransitionPending(ctx context.Context, id, status string, result map[string]any) (bool, error) {
	found, has, err := t.find(ctx, id)
	if err != nil || !has || found.Status != request.StatusPending {
		return false, err
	}

	var encoded json.RawMessage
	if result != nil {
		if encoded, err = value.Encode(result); err != nil || len(encoded) > maxToolResult {
			return false, &request.Error{Code: request.CodeResult, Reason: "is not JSON of at most 1 MiB"}
		}
	}

	turn, err := t.options.Store.Turn(ctx, found.TurnID)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}

	events := []exchange.Event{t.event(found, status, result)}
	err = t.options.Store.InTx(ctx, func(tx Tx) error {
		events = events[:1]
		if exchange.GoesOnByItself(turn) || turn.State == exchange.StateWaiting && turn.Reason == exchange.WaitingAuthorization {
			resumed, err := resumeTurn(ctx, tx, turn) // the turn's row is taken first, as everywhere
			if err != nil {
				return err
			}
			if resumed {
				events = append(events, toolEvent(exchange.EventToolResumed, found, map[string]any{}))
			}
		}

		won, err := tx.EndToolRequest(ctx, id, status, encoded, time.Now())
		if err != nil {
			return err
		}
		if !won {
			return errOther
		}
		if turn.ID == "" {
			return nil
		}

		return tx.AppendEvents(ctx, turn.ID, events)
	})
	if errors.Is(err, errOther) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	toolRequests.WithLabelValues(outcomes[events[0].Kind]).Inc()
	for _, event := range events {
		t.tellTool(ctx, found, event)
	}
	t.broker.notify(turn.ID)
	return true, nil
}

var outcomes = map[string]string{
	exchange.EventToolSubmitted: "submitted", exchange.EventToolTimedOut: "timed_out", exchange.EventToolCancelled: "cancelled",
}

func (t toolStore) event(r exchange.ToolRequest, status string, result map[string]any) exchange.Event {
	facts := map[string]any{"by": t.by}
	switch {
	case status == request.StatusCompleted:
		facts["success"] = result["success"]
		return toolEvent(exchange.EventToolSubmitted, r, facts)
	case t.cancels:
		return toolEvent(exchange.EventToolCancelled, r, facts)
	}
	return toolEvent(exchange.EventToolTimedOut, r, facts)
}

// expireEvery is how often a node looks for requests whose time is over.
const expireEvery = time.Second

// byClock is who ends a request whose time is over, for the timeline.
const byClock = "the clock"

// ExpireTools ends requests whose time is over, until ctx is done. Any number of nodes may run it: each request ends
// once, by a conditional update.
func (s *tools) ExpireTools(ctx context.Context) error {
	ticker := time.NewTicker(expireEvery)
	defer ticker.Stop()
	lifecycle := s.ToolRequests("", byClock)
	for {
		if _, err := lifecycle.Expire(ctx, time.Now(), nil, nil); err != nil && ctx.Err() == nil {
			s.options.Logger.WarnContext(ctx, "tool requests whose time is over cannot be ended", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// AckKind is the queue kind of acknowledgements of turns that wait for a tool; the payload is the turn id.
const AckKind = "acknowledge"

// scheduleAck lets the asker of a turn that waits for a tool hear of it when the turn is old enough.
func (s *replier) scheduleAck(ctx context.Context, tx Tx, agent agents.Entry, turn exchange.TurnRecord) error {
	after := s.ackAfter(agent, turn)
	if after == 0 {
		return nil
	}
	return tx.Enqueue(ctx, queue.NewJob{ID: newID(), Kind: AckKind, Payload: turn.ID, RunAt: turn.AcceptedAt.Add(after)})
}

// RunAck acknowledges a turn that still waits for a tool. One that runs sees to it itself.
func (s *replier) RunAck(ctx context.Context, job queue.Job) error {
	turn, err := s.options.Store.Turn(ctx, job.Payload)
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return queue.RetryAfter(time.Second, err)
	}

	agent, known := s.options.Agents.Lookup(turn.Agent)
	if known && exchange.GoesOnByItself(turn) && s.ackAfter(agent, turn) > 0 {
		s.acknowledge(ctx, agent, turn)
	}
	return nil
}
