package a2a

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

const (
	maxTaskTurns  = 200 // turns of one task that are read; a longer conversation goes on in new tasks of its context
	maxTaskIDSize = 64
)

// route is what this adapter keeps with every turn.
type route struct {
	Context string `json:"context"`           // the context id as the client knows it
	Number  int    `json:"number"`            // position of the turn in its task, from 1
	Digest  string `json:"digest"`            // of the message as sent: tells a repeat from another message with the same id
	Words   *sent  `json:"words,omitempty"`   // what the normalized message does not keep; goes when the message is erased
	Awaited bool   `json:"awaited,omitempty"` // the client waited for the answer when it sent the message
}

func routeOf(turn exchange.TurnRecord) route {
	var r route
	_ = json.Unmarshal(turn.Route, &r) // our own bytes
	return r
}

// tasks reads the tasks of a caller from the rows of their turns, and writes them in the terms of the protocol.
type tasks struct {
	codec
	options *Options
	log     *slog.Logger
}

// task is all turns with one reference, in order of arrival. There is at least one.
type task struct {
	turns     []exchange.TurnRecord
	contextID string    // as the client knows it; the same for all turns
	cancelled time.Time // set when an interrupted task was given up by its owner
	own       *ownRoute // of the turn that the call stored; nil = it stored none
	partial   *partial  // the answer of the newest turn so far, where a follower has read it; nil = it is read when needed
}

// ownRoute is the route of a turn before and after it was encoded.
type ownRoute struct {
	route   route
	encoded []byte
}

// routeOf returns the route of one of the turns. That of the turn that the call stored is decoded only if its row has another one by now.
func (t *task) routeOf(turn exchange.TurnRecord) route {
	if t.own != nil && bytes.Equal(turn.Route, t.own.encoded) {
		return t.own.route
	}
	return routeOf(turn)
}

func (t *task) last() *exchange.TurnRecord { return &t.turns[len(t.turns)-1] }

func (t *task) id() a2a.TaskID { return a2a.TaskID(t.last().Reference) }

// info names the task for the SDK's event constructors.
func (t *task) info() a2a.TaskInfo { return a2a.TaskInfo{TaskID: t.id(), ContextID: t.contextID} }

func (t *task) state() a2a.TaskState {
	if !t.cancelled.IsZero() {
		return a2a.TaskStateCanceled
	}
	return stateOf(*t.last())
}

// taskStates maps a standing to the state of a task.
var taskStates = map[string]a2a.TaskState{
	exchange.StandingSubmitted: a2a.TaskStateSubmitted,
	exchange.StandingWorking:   a2a.TaskStateWorking,
	exchange.StandingInput:     a2a.TaskStateInputRequired,
	exchange.StandingAuthorize: a2a.TaskStateAuthRequired,
	exchange.StandingCompleted: a2a.TaskStateCompleted,
	exchange.StandingFailed:    a2a.TaskStateFailed,
	exchange.StandingRefused:   a2a.TaskStateRejected,
	exchange.StandingCancelled: a2a.TaskStateCanceled,
}

// stateOf is the state of a task whose newest turn this is.
func stateOf(turn exchange.TurnRecord) a2a.TaskState { return taskStates[exchange.StandingOf(turn)] }

// standingOf is the standing of the newest turn of a task in the state; none = there is no such task state.
func standingOf(state a2a.TaskState) (standing string, known bool) {
	for standing, of := range taskStates {
		if of == state {
			return standing, true
		}
	}
	return "", false
}

// interrupted reports whether the task waits for its owner.
func interrupted(state a2a.TaskState) bool {
	return state == a2a.TaskStateInputRequired || state == a2a.TaskStateAuthRequired
}

// policyOf returns the demand or refusal in the answer.
func policyOf(turn exchange.TurnRecord) *policypart.Part {
	if turn.Response == nil {
		return nil
	}
	return turn.Response.Policy()
}

// load reads a task of the owner. The task of another owner and a missing one are the same problem.
func (s *tasks) load(ctx context.Context, owned owner, id a2a.TaskID) (*task, error) {
	if id == "" {
		return nil, inField("id", "is needed")
	}
	if len(id) > maxTaskIDSize || !printable(string(id)) { // none of ours; PostgreSQL has no text with a NUL
		return nil, taskNotFound()
	}

	turns, err := s.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: owned.agent, Carrier: owned.caller, Reference: string(id),
		ReceivedVia: normalized.ViaA2A, Limit: maxTaskTurns,
	})
	if err != nil {
		return nil, err
	}
	if len(turns) == 0 {
		return nil, taskNotFound()
	}

	return s.assemble(ctx, turns)
}

// assemble orders the turns of one task by their ids, which are UUIDv7, and looks whether its owner gave it up.
func (s *tasks) assemble(ctx context.Context, turns []exchange.TurnRecord) (*task, error) {
	slices.SortFunc(turns, func(x, y exchange.TurnRecord) int { return strings.Compare(x.ID, y.ID) })
	t := &task{turns: turns}
	t.contextID = routeOf(*t.last()).Context

	if last := t.last(); exchange.Terminal(last.State) && interrupted(stateOf(*last)) {
		at, cancelled, err := s.wasCancelled(ctx, last.ID)
		if err != nil {
			return nil, err
		}
		if cancelled {
			t.cancelled = at
		}
	}
	return t, nil
}

// The next step after an interrupted turn is claimed once: by the message that continues the task, or by its
// cancellation. Two followers at the same time must not both run, or a finished task would change again.
const (
	claimSpace    = "a2a.next"
	claimMessage  = "message "
	claimCancel   = "cancel "
	claimLifetime = 10 * time.Minute // of a message's claim: its turn is there, and after that no request that looked at the task before is under way
)

// nextStep is the claim of a message on the step behind a turn. It is stored with the message or not at all: a copy of the message that
// fails must not free the step on which another copy stands.
func nextStep(turnID, messageID string) *exchange.Claim {
	return &exchange.Claim{Namespace: claimSpace, Key: turnID, Value: []byte(claimMessage + messageID), Expires: time.Now().Add(claimLifetime)}
}

func (s *tasks) wasCancelled(ctx context.Context, turnID string) (at time.Time, cancelled bool, err error) {
	value, found, err := s.options.Claims.Get(ctx, claimSpace, turnID)
	if err != nil || !found {
		return at, false, err
	}
	text, cancelled := strings.CutPrefix(string(value), claimCancel)
	if cancelled {
		at, err = time.Parse(time.RFC3339Nano, text)
	}
	return at, cancelled, err
}

// cancel ends the newest turn of a task, or gives up a task that waits for its owner.
func (h *handler) cancel(ctx context.Context, c *call, id a2a.TaskID) (*task, error) {
	t, err := h.load(ctx, c.owner, id)
	if err != nil {
		return nil, err
	}

	if !exchange.Terminal(t.last().State) {
		turn, err := h.options.Runs.Cancel(ctx, t.last().ID, "the sender cancelled the task")
		if err == nil {
			*t.last() = turn
			return t, nil
		}
		if !fault.Is(err, fault.Conflict) {
			return nil, err
		}
		if t, err = h.load(ctx, c.owner, id); err != nil { // it ended meanwhile, perhaps with a question
			return nil, err
		}
	}
	if !interrupted(t.state()) {
		return nil, notCancelable()
	}

	at := time.Now().UTC().Truncate(time.Microsecond)
	err = h.options.Runs.GiveUp(ctx, t.last().ID, cancellation(t.last().ID, at), "the sender cancelled the task", at)
	switch {
	case fault.Is(err, fault.Conflict):
		return nil, notCancelable()
	case err != nil:
		return nil, err
	}

	return h.load(ctx, c.owner, id)
}

// cancellation is the claim that gives up an interrupted task whose turn has ended.
func cancellation(turnID string, at time.Time) exchange.Claim {
	return exchange.Claim{Namespace: claimSpace, Key: turnID, Value: []byte(claimCancel + at.Format(time.RFC3339Nano))}
}

func notCancelable() *problem {
	return newProblem(a2a.ErrTaskNotCancelable, "the task has ended or goes on already")
}

const (
	defaultPage = 50
	maxPage     = 100

	maxPageToken = 128 // bytes; ours have 71
	uuidLength   = 36
)

// ListTasks returns the caller's tasks, newest status first. A page costs the same however many tasks there are; totalSize
// ends at 10,000, which then means that many or more (a2a.proto calls it the number before pagination; AIP-158 lets it be
// an estimate).
func (h *handler) ListTasks(ctx context.Context, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	c, err := h.enter(ctx, "ListTasks")
	if err != nil {
		return nil, err
	}
	response, err := h.list(ctx, c, req)
	if err != nil {
		return nil, h.fail(c, err)
	}
	return response, nil
}

func (h *handler) list(ctx context.Context, c *call, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	if err := checkList(req); err != nil {
		return nil, err
	}

	filter, found, err := h.listFilter(ctx, c.owner, req)
	if err != nil || !found {
		return &a2a.ListTasksResponse{Tasks: []*a2a.Task{}, PageSize: req.PageSize}, err
	}

	page, err := h.page(ctx, filter, req.PageSize)
	if err != nil {
		return nil, err
	}
	return h.renderPage(ctx, c, page, req)
}

func checkList(req *a2a.ListTasksRequest) error {
	if req.PageSize == 0 {
		req.PageSize = defaultPage
	}
	if req.PageSize < 1 || req.PageSize > maxPage {
		return inField("pageSize", "must be from 1 to "+strconv.Itoa(maxPage))
	}
	if _, known := standingOf(req.Status); req.Status != a2a.TaskStateUnspecified && !known {
		return inField("status", "is no task state")
	}
	return checkHistory("historyLength", req.HistoryLength)
}

// listFilter chooses the newest turn of each task of the owner. A context that is not the owner's has no tasks.
func (h *handler) listFilter(ctx context.Context, owned owner, req *a2a.ListTasksRequest) (filter exchange.TurnFilter, found bool, err error) {
	filter = exchange.TurnFilter{
		Agent: owned.agent, Carrier: owned.caller, ReceivedVia: normalized.ViaA2A, Latest: true,
		Limit: req.PageSize + 1,
	}

	filter.Standing, _ = standingOf(req.Status)
	if req.StatusTimestampAfter != nil {
		// The instant itself counts (a2a.proto, ListTasksRequest), the store's bound does not; it keeps microseconds.
		filter.UpdatedAfter = req.StatusTimestampAfter.Add(-time.Microsecond)
	}

	if req.ContextID != "" {
		if !isName(req.ContextID) || !owned.names().MayName(req.ContextID) { // no message was taken for such a context
			return filter, false, nil
		}
		if filter.ThreadID, err = h.options.Conversations.Conversation(ctx, owned.context(req.ContextID, owned.caller)); err != nil {
			return filter, false, err
		}
		filter.Conversation = req.ContextID
	}

	filter.Before, err = readPageToken(req.PageToken)
	return filter, true, err
}

func readPageToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	if len(token) > maxPageToken {
		return "", inField("pageToken", "is not one that this server gave")
	}

	decoded, err := base64.RawURLEncoding.DecodeString(token)
	at, id, found := strings.Cut(string(decoded), ".")
	_, number := strconv.ParseInt(at, 10, 64)
	if err != nil || !found || number != nil || len(id) != uuidLength || uuid.Validate(id) != nil {
		return "", inField("pageToken", "is not one that this server gave")
	}
	return fmt.Sprintf("%s.%s", at, id), nil
}

// writePageToken makes a cursor opaque; none is none.
func writePageToken(cursor string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursor))
}

// listed is one page: the newest turns of its tasks.
type listed struct {
	turns []exchange.TurnRecord
	next  string // cursor of the following page; empty = this is the last one
	total int64
}

func (h *handler) page(ctx context.Context, filter exchange.TurnFilter, size int) (page listed, err error) {
	if page.total, err = h.options.Turns.CountTurns(ctx, filter); err != nil {
		return page, err
	}
	turns, err := h.options.Turns.Turns(ctx, filter)
	page.turns, page.next = exchange.NextPage(turns, size, exchange.TurnCursor)
	return page, err
}

func (h *handler) renderPage(ctx context.Context, c *call, page listed, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	response := &a2a.ListTasksResponse{
		Tasks: make([]*a2a.Task, 0, len(page.turns)), TotalSize: int(page.total), PageSize: req.PageSize,
	}

	none := 0
	wanted := view{history: req.HistoryLength, artifacts: req.IncludeArtifacts}
	if wanted.history == nil {
		wanted.history = &none
	}

	for _, turn := range page.turns {
		t, err := h.listedTask(ctx, c, turn, wanted)
		if err != nil {
			return nil, err
		}
		rendered, err := h.render(ctx, t, wanted)
		if err != nil {
			return nil, err
		}
		response.Tasks = append(response.Tasks, rendered)
	}

	response.NextPageToken = writePageToken(page.next)
	return response, nil
}

// listedTask reads the earlier turns of a task only where they will be seen.
func (h *handler) listedTask(ctx context.Context, c *call, turn exchange.TurnRecord, wanted view) (*task, error) {
	if routeOf(turn).Number <= 1 || (*wanted.history == 0 && !wanted.artifacts) {
		return h.assemble(ctx, []exchange.TurnRecord{turn})
	}
	return h.load(ctx, c.owner, a2a.TaskID(turn.Reference))
}
