package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"inbox/agents/runtime/value"
)

// Handler executes a task on its target and returns a task result: an object, of which schema, ids and owner are replaced.
// It stops when ctx ends; the cause is ErrCancelled when somebody cancelled the run.
type Handler func(ctx context.Context, input, target map[string]any) (any, error)

// ErrCancelled is why the context of a handler ended when its run was cancelled.
var ErrCancelled = errors.New("the task run was cancelled")

// Caller is who asks. The zero value is no one: it owns no run and sees none.
type Caller struct {
	OwnerType string // for example "user"
	OwnerKey  string
	Manager   bool // sees and cancels every run, unredacted
}

func (c Caller) owner() map[string]any {
	return normalizeOwner(map[string]any{"type": c.OwnerType, "key": c.OwnerKey})
}

func (c Caller) mayUse(run map[string]any) bool {
	owner := c.owner()
	return c.Manager || (len(owner) > 0 && value.Equal(owner, normalizeOwner(run["owner"])))
}

// Options configure a Dispatcher. Targets, Handler and Runs are required.
type Options struct {
	// Targets returns the declarations of all executor targets.
	Targets func(ctx context.Context) ([]any, error)

	// Handler returns what runs the input on the target, nil when nothing does.
	Handler func(input, target map[string]any) Handler

	Runs Runs

	// Failed is told of every dispatch that failed: "no_handler", "invalid_result" or the code of the handler's error.
	// Nil = no one.
	Failed func(reason string, input map[string]any)

	// ForgetStart drops the time and the metadata of the start when the result is saved. The recorded runtime does so by
	// mistake; it is here to compare with its records.
	ForgetStart bool
}

// Dispatcher runs tasks on executor targets. It is safe for concurrent use.
type Dispatcher struct {
	options Options

	mu      sync.Mutex
	running map[string]context.CancelCauseFunc // by run id: handlers in this process
}

// New makes a dispatcher.
func New(options Options) *Dispatcher {
	return &Dispatcher{options: options, running: map[string]context.CancelCauseFunc{}}
}

// ListTargets returns the targets that the query allows, as a target list. A query without resource_class asks for none
// (agent runtime contract, section 7).
func (d *Dispatcher) ListTargets(ctx context.Context, query map[string]any) (map[string]any, error) {
	targets, err := d.targets(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{"schema": SchemaTargetList, "targets": Suitable(targets, query)}, nil
}

// Run executes a task on the target that its placement selects and returns the stored result. A run id is claimed once,
// for ever. It fails with CodeInvalidInput, CodeNoHandler, CodeAlreadyStarted, CodeInvalidResult, the codes of target
// declarations, or the handler's own error (agent runtime contract, section 7).
func (d *Dispatcher) Run(ctx context.Context, caller Caller, raw map[string]any) (map[string]any, error) {
	input, err := NormalizeInput(raw)
	if err != nil {
		return nil, err
	}

	target, handler, err := d.place(ctx, input)
	if err != nil {
		return nil, err
	}

	input["executor_id"] = target["id"]
	placement := value.Assoc(input["placement"])
	started := map[string]any{
		"executor_id": target["id"], "target_kind": target["kind"], "resource_class": placement["resource_class"],
	}

	if _, err := d.Start(ctx, input, started, caller); err != nil {
		return nil, err
	}

	outcome, failure := d.call(ctx, input, target, handler)
	return d.finish(context.WithoutCancel(ctx), input, outcome, failure)
}

func (d *Dispatcher) targets(ctx context.Context) ([]map[string]any, error) {
	declared, err := d.options.Targets(ctx)
	if err != nil {
		return nil, fmt.Errorf("discover executor targets: %w", err)
	}
	return NormalizeTargets(declared)
}

// place selects the target of an input and the handler for it.
func (d *Dispatcher) place(ctx context.Context, input map[string]any) (map[string]any, Handler, error) {
	targets, err := d.targets(ctx)
	if err != nil {
		return nil, nil, err
	}

	target := Select(targets, value.Assoc(input["placement"]))
	if target == nil {
		d.failed("no_handler", input)
		return nil, nil, refuse(CodeNoHandler, "No executor target fits the placement of the task.")
	}

	handler := d.options.Handler(input, target)
	if handler == nil {
		d.failed("no_handler", input)
		return nil, nil, refuse(CodeNoHandler, "No agents/run-task handler is registered for the selected executor target.")
	}

	return target, handler, nil
}

// Start claims the run that the ids in run name, running and owned by the caller, and returns it. It fails with
// CodeAlreadyStarted for every caller of a run id but the first, and like NormalizeRun.
func (d *Dispatcher) Start(ctx context.Context, run, metadata map[string]any, caller Caller) (map[string]any, error) {
	now := timestamp()
	startedAt := metadata["started_at"]
	if startedAt == nil {
		startedAt = now
	}

	started, err := NormalizeRun(map[string]any{
		"run_id": run["run_id"], "session_id": run["session_id"], "executor_id": run["executor_id"],
		"status": StatusRunning, "owner": caller.owner(), "started_at": startedAt, "updated_at": now, "metadata": metadata,
	})
	if err != nil {
		return nil, err
	}

	won, err := d.options.Runs.Claim(ctx, started)
	if err != nil {
		return nil, fmt.Errorf("claim task run: %w", err)
	}
	if !won {
		return nil, refuse(CodeAlreadyStarted, "The run_id has already been claimed for execution.")
	}

	return started, nil
}

// call runs the handler so that Cancel reaches it. A panic of the handler is its failure.
func (d *Dispatcher) call(ctx context.Context, input, target map[string]any, handler Handler) (outcome any, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runID := value.Text(input["run_id"])
	d.mu.Lock()
	d.running[runID] = cancel
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.running, runID)
		d.mu.Unlock()
		if reason := recover(); reason != nil {
			outcome, err = nil, fmt.Errorf("the task handler panicked: %v", reason)
		}
	}()
	outcome, err = handler(ctx, value.Clone(input), value.Clone(target))
	if err != nil && errors.Is(context.Cause(ctx), ErrCancelled) {
		return map[string]any{"status": StatusCancelled}, nil
	}

	return outcome, err
}

// finish saves what the handler gave, or that it failed.
func (d *Dispatcher) finish(ctx context.Context, input map[string]any, outcome any, failure error) (map[string]any, error) {
	result, usable := value.ShallowCopy(outcome), value.Container(outcome)
	reason := ""
	switch {
	case failure != nil:
		reason = codeOf(failure)
		result = map[string]any{"status": StatusFailed, "diagnostics": map[string]any{
			"error_code": reason, "error_message": failure.Error(),
		}}
	case !usable:
		reason = "invalid_result"
		result = map[string]any{"status": StatusFailed}
		failure = refuse(CodeInvalidResult, "The handler gave no object of the form agents-api/task-result/v1.")
	}

	saved, err := d.save(ctx, input, result)
	if err != nil {
		return nil, err
	}
	if failure != nil {
		d.failed(reason, input)
		return nil, failure
	}

	return saved, nil
}

// save puts the result in the place of the started run; what the server decided stays.
func (d *Dispatcher) save(ctx context.Context, input, result map[string]any) (map[string]any, error) {
	saved, err := d.options.Runs.Update(ctx, value.Text(input["run_id"]), func(started map[string]any) (map[string]any, error) {
		result = maps.Clone(result)
		result["schema"] = SchemaResult

		for _, name := range []string{"run_id", "session_id", "executor_id"} {
			result[name] = input[name]
		}

		result["owner"] = started["owner"]
		normalized, err := NormalizeRun(result)
		if err != nil {
			return nil, err
		}

		normalized["updated_at"] = or(value.Scalar(normalized["updated_at"]), timestamp())
		d.keepStart(normalized, started)
		return normalized, nil
	})
	if err != nil {
		return nil, fmt.Errorf("save task run: %w", err)
	}
	if saved == nil {
		return nil, refuse(CodeNotFound, "The store has forgotten the task run.")
	}

	return saved, nil
}

// keepStart keeps what was known before the handler ran: when the run started, with what metadata, and that it is to be
// cancelled while it has not come to an end.
func (d *Dispatcher) keepStart(result, started map[string]any) {
	if d.options.ForgetStart {
		return
	}

	result["started_at"] = or(value.Scalar(result["started_at"]), value.Scalar(started["started_at"]))
	metadata := value.ShallowCopy(started["metadata"])
	maps.Copy(metadata, value.ShallowCopy(result["metadata"]))
	result["metadata"] = metadata
	if started["status"] == StatusCancelling && !Terminal(value.Scalar(result["status"])) {
		result["status"] = StatusCancelling
	}
}

func (d *Dispatcher) failed(reason string, input map[string]any) {
	if d.options.Failed != nil {
		d.options.Failed(reason, input)
	}
}

func codeOf(failure error) string {
	type coded interface {
		error
		ErrorCode() string
	}
	if found, is := errors.AsType[coded](failure); is {
		return found.ErrorCode()
	}
	return CodeFailed
}

const timeForm = "2006-01-02T15:04:05-07:00"

func timestamp() string { return time.Now().UTC().Format(timeForm) }

// Get returns the stored result of the run that run_id and session_id of the address name, redacted for callers that are
// no managers. It fails with CodeNotFound also for a run of somebody else (agent runtime contract, section 7).
func (d *Dispatcher) Get(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	run, err := d.find(ctx, caller, address)
	if err != nil || caller.Manager {
		return run, err
	}
	return Redact(run), nil
}

// Cancel asks a run to end and returns it with "cancelled", which is false for a run that had come to its end. A handler
// in this process sees the end of its context. It may be repeated, and fails like Get (agent runtime contract,
// section 7).
func (d *Dispatcher) Cancel(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	found, err := d.find(ctx, caller, address)
	if err != nil {
		return nil, err
	}

	runID := value.Text(found["run_id"])
	cancelled := false
	run, err := d.options.Runs.Update(ctx, runID, func(run map[string]any) (map[string]any, error) {
		if cancelled = !Terminal(NormalizeStatus(run["status"])); cancelled {
			run["status"] = StatusCancelling
		}
		run["updated_at"] = timestamp()
		return NormalizeRun(run)
	})
	if err != nil {
		return nil, fmt.Errorf("cancel task run: %w", err)
	}
	if run == nil {
		return nil, notFound()
	}

	d.stop(runID)
	if !caller.Manager {
		run = Redact(run)
	}

	run["cancelled"] = cancelled
	return run, nil
}

// find returns the run of an address if the caller may know of it.
func (d *Dispatcher) find(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	run, err := d.options.Runs.Get(ctx, value.Scalar(address["run_id"]))
	if err != nil {
		return nil, fmt.Errorf("read task run: %w", err)
	}
	if run == nil || value.Scalar(run["session_id"]) != value.Scalar(address["session_id"]) || !caller.mayUse(run) {
		return nil, notFound()
	}
	return NormalizeRun(run)
}

func (d *Dispatcher) stop(runID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel := d.running[runID]; cancel != nil {
		cancel(ErrCancelled)
	}
}

func notFound() error {
	return refuse(CodeNotFound, "There is no such run in this session.")
}
