package task

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"inbox/agents/runtime/envelope"
)

// Codes of run control (agent runtime contract, sections 6.1 and 6.6).
const (
	CodeRunStarted   = "agents_chat_run_already_started"
	CodeRunForbidden = "agents_chat_run_owner_forbidden"
	CodeRunNotFound  = "agents_chat_run_not_found"
	CodeQueueFull    = "agents_chat_queue_full"
)

// Statuses of a conversation run beside those of a task run; StatusSucceeded is none of them (agent runtime contract,
// section 6.6).
const (
	StatusCompleted       = "completed"
	StatusToolPending     = "runtime_tool_pending"
	StatusApproval        = "approval_required"
	StatusBudgetExceeded  = "budget_exceeded"
	StatusStalled         = "stalled"
	StatusInterrupted     = "interrupted"
	defaultEventPage      = 100
	maxEventPage          = 500
	maxEventsOfRun        = 1000
	maxMessagesOfSession  = 100
	eventStarted          = "run_started"
	eventCancelRequested  = "cancel_requested"
	eventFinished         = "run_finished"
	prefixOfQueuedMessage = "queued_"
)

var (
	controlStatuses = []string{
		StatusQueued, StatusRunning, StatusCancelling, StatusCancelled, StatusCompleted, StatusFailed, StatusToolPending,
		StatusApproval, StatusBudgetExceeded, StatusStalled, StatusInterrupted,
	}
	controlTerminal = []string{StatusCompleted, StatusFailed, StatusCancelled, StatusBudgetExceeded, StatusStalled, StatusInterrupted}
)

// Control keeps the runs of conversations: who started them, how they end, who asked to cancel them, and messages that
// wait for the next run of a session. It lives in memory and forgets: runs after the retention or when too many newer
// ones came, the first events of a run over 1000. It is safe for concurrent use.
type Control struct {
	maxRuns int
	retain  time.Duration

	mu     sync.Mutex
	runs   map[string]*controlled
	order  *list.List // of *controlled, the one whose last change is the oldest first
	queues map[conversation][]map[string]any
}

// conversation keys queues, so that nobody reaches the messages of somebody else by the name of a session.
type conversation struct{ session, owner string }

type controlled struct {
	id, session, owner, status string // owner is a fingerprint
	started, updated           time.Time
	cancelled                  *bool
	events                     []map[string]any
	forgotten                  int // events before those that are kept
	place                      *list.Element
}

// NewControl makes an empty run control; zero or less takes the default, as in NewMemory.
func NewControl(maxRuns int, retain time.Duration) *Control {
	if maxRuns <= 0 {
		maxRuns = DefaultMaxRuns
	}
	if retain <= 0 {
		retain = DefaultRetain
	}
	return &Control{maxRuns: maxRuns, retain: retain, runs: map[string]*controlled{}, order: list.New(), queues: map[conversation][]map[string]any{}}
}

// As gives the control in the hands of a caller: runs that it starts are its own, and runs of others are not found,
// unless it is a manager.
func (c *Control) As(caller Caller) Controller { return Controller{c, caller} }

// Controller is a Control for one caller.
type Controller struct {
	control *Control
	caller  Caller
}

// fingerprint is what is kept of an owner; "" = nobody.
func (c Caller) fingerprint() string {
	owner := c.owner()
	if len(owner) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(envelope.Text(owner["type"]) + ":" + envelope.Text(owner["key"])))
	return hex.EncodeToString(sum[:])
}

// Start claims a run for the caller. It fails with CodeRunStarted when the caller claimed it before and with
// CodeRunForbidden when it belongs to somebody else or to another session (agent runtime contract, section 6.6).
func (c Controller) Start(_ context.Context, runID, sessionID string) error {
	if envelope.Trim(runID) == "" {
		return refuse(CodeInvalidRun, "run_id must be a non-empty string")
	}
	k := c.control
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget()
	if earlier := k.runs[runID]; earlier != nil {
		if earlier.session != sessionID || earlier.owner != c.caller.fingerprint() {
			return refuse(CodeRunForbidden, "The run belongs to another session or owner.")
		}
		return refuse(CodeRunStarted, "The run_id has already been claimed for execution.")
	}
	if len(k.runs) >= k.maxRuns {
		k.remove(k.order.Front().Value.(*controlled))
	}
	run := &controlled{id: runID, session: sessionID, owner: c.caller.fingerprint(), started: time.Now()}
	run.place = k.order.PushBack(run)
	k.runs[runID] = run
	k.change(run, StatusRunning, eventStarted)
	return nil
}

// Cancelling says whether somebody asked to cancel the run and it has not ended; false for an unknown one.
func (c Controller) Cancelling(_ context.Context, runID string) (bool, error) {
	c.control.mu.Lock()
	defer c.control.mu.Unlock()
	run := c.control.find(c.caller, runID)
	return run != nil && run.status == StatusCancelling, nil
}

// Finish stores the status at the end of a run; an unknown status is StatusRunning. An unknown run is left alone.
func (c Controller) Finish(_ context.Context, runID, status string) error {
	c.control.mu.Lock()
	defer c.control.mu.Unlock()
	if run := c.control.find(c.caller, runID); run != nil {
		status = controlStatus(status)
		if status == StatusCancelled {
			run.cancelled = new(true)
		}
		c.control.change(run, status, eventFinished)
	}
	return nil
}

// Get gives the run, redacted for callers that are no managers. It fails with CodeRunNotFound, also for the run of
// somebody else (agent runtime contract, section 6.6).
func (c Controller) Get(_ context.Context, runID string) (map[string]any, error) {
	c.control.mu.Lock()
	defer c.control.mu.Unlock()
	run := c.control.find(c.caller, runID)
	if run == nil {
		return nil, noRun()
	}
	return c.shown(run.object()), nil
}

// Cancel asks a run to end and gives it; "cancelled" is false and the status stays when it had ended. It fails like Get.
func (c Controller) Cancel(_ context.Context, runID string) (map[string]any, error) {
	c.control.mu.Lock()
	defer c.control.mu.Unlock()
	run := c.control.find(c.caller, runID)
	if run == nil {
		return nil, noRun()
	}
	status := run.status
	run.cancelled = new(!slices.Contains(controlTerminal, status))
	if *run.cancelled {
		status = StatusCancelling
	}
	c.control.change(run, status, eventCancelRequested)
	return c.shown(run.object()), nil
}

// Events gives the run with a page of its events, "cursor" of the next page ("" at the end) and "has_more". limit is
// 1 to 500, zero = 100. It fails like Get (agent runtime contract, section 6.6).
func (c Controller) Events(_ context.Context, runID, cursor string, limit int) (map[string]any, error) {
	c.control.mu.Lock()
	defer c.control.mu.Unlock()
	run := c.control.find(c.caller, runID)
	if run == nil {
		return nil, noRun()
	}
	offset, err := strconv.Atoi(envelope.Trim(cursor))
	if err != nil {
		offset = 0
	}
	first := min(max(0, offset-run.forgotten), len(run.events))
	last := min(first+max(1, min(cmp.Or(limit, defaultEventPage), maxEventPage)), len(run.events))
	page := []any{}
	for _, event := range run.events[first:last] {
		page = append(page, event)
	}
	object := run.object()
	object["events"], object["has_more"], object["cursor"] = page, last < len(run.events), ""
	if last < len(run.events) {
		object["cursor"] = strconv.Itoa(run.forgotten + last)
	}
	return c.shown(object), nil
}

// Queue keeps a message for the next run of a session of the caller's and gives its place: status queued, run_id,
// session_id, queued_message_id and position, which begins with 1. It fails with CodeRunNotFound when the session has
// no run of the caller's and with CodeQueueFull (agent runtime contract, section 6.6).
func (c Controller) Queue(_ context.Context, sessionID string, message map[string]any) (map[string]any, error) {
	k := c.control
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget()
	run := k.latest(c.caller, sessionID)
	if run == nil {
		return nil, noRun()
	}
	waiting := k.queues[run.conversation()]
	if len(waiting) >= maxMessagesOfSession {
		return nil, refuse(CodeQueueFull, "Too many messages wait for this session.")
	}
	queued := envelope.Clone(message)
	if queued == nil {
		queued = map[string]any{}
	}
	queued["queued_message_id"] = prefixOfQueuedMessage + random()
	queued["session_id"], queued["run_id"], queued["created_at"] = sessionID, run.id, timestamp()
	k.queues[run.conversation()] = append(waiting, queued)
	return map[string]any{
		"run_id": run.id, "session_id": sessionID, "status": StatusQueued, "started_at": "", "updated_at": timestamp(),
		"metadata": map[string]any{}, "queued_message_id": queued["queued_message_id"], "position": len(waiting) + 1,
	}, nil
}

// TakeQueued gives the waiting messages of a session of the caller's, in order, and forgets them.
func (c Controller) TakeQueued(_ context.Context, sessionID string) ([]map[string]any, error) {
	k := c.control
	k.mu.Lock()
	defer k.mu.Unlock()
	run := k.latest(c.caller, sessionID)
	if run == nil {
		return nil, noRun()
	}
	waiting := k.queues[run.conversation()]
	delete(k.queues, run.conversation())
	return waiting, nil
}

func (c Controller) shown(run map[string]any) map[string]any {
	if c.caller.Manager {
		return run
	}
	return Redact(run)
}

func controlStatus(status string) string {
	if said := strings.ToLower(envelope.Trim(status)); slices.Contains(controlStatuses, said) {
		return said
	}
	return StatusRunning
}

func noRun() error {
	return refuse(CodeRunNotFound, "There is no such run of yours.")
}
