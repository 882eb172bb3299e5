package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"inbox/agents/runtime/value"
)

// Caller is who asks. The zero value is no one: it owns no run and sees none.
type Caller struct {
	OwnerType string // for example "token"
	OwnerKey  string
	Manager   bool // sees and cancels every run
	Whole     bool // reads its own runs without redaction; a manager reads all so

	// Opens reports whether the caller may use a target; nil = it may use all.
	Opens func(target map[string]any) bool
}

// Owner returns the owner as runs have it; empty for no one.
func (c Caller) Owner() map[string]any {
	return normalizeOwner(map[string]any{"type": c.OwnerType, "key": c.OwnerKey})
}

func (c Caller) owns(run map[string]any) bool {
	owner := c.Owner()
	return len(owner) > 0 && value.Equal(owner, normalizeOwner(run["owner"]))
}

// Visible returns a run as the caller may read it (agent runtime contract, section 6.6).
func (c Caller) Visible(run map[string]any) map[string]any {
	if c.Manager || c.Whole && c.owns(run) {
		return run
	}
	return Redact(run)
}

// Begin is a run that is about to begin.
type Begin struct {
	Run    map[string]any // the task result of its begin: queued, with ids, executor, owner, start time and metadata
	Input  map[string]any // canonical
	Target map[string]any // canonical
}

// Executions begins, reads and stops runs, durably.
type Executions interface {
	// Begin stores the run together with its work and returns it as it is then; nil when its run_id was taken before. Its errors
	// reach the caller.
	Begin(ctx context.Context, begin Begin) (map[string]any, error)

	// Find returns a run as it is now, nil when there is none. The caller may change what it gets.
	Find(ctx context.Context, runID string) (map[string]any, error)

	// Stop ends a run that has not ended, and returns it as it is then; stopped is false when it had ended before.
	Stop(ctx context.Context, runID string) (run map[string]any, stopped bool, err error)
}

// Dispatcher runs tasks on executor targets. It is safe for concurrent use where its Executions are.
type Dispatcher struct {
	Declared   []map[string]any // targets in canonical form (NormalizeTargets)
	Executions Executions
}

// Targets returns the targets that the caller may use and the query allows, as a target list. A query without resource_class asks
// for none (agent runtime contract, section 7).
func (d Dispatcher) Targets(caller Caller, query map[string]any) map[string]any {
	return map[string]any{"schema": SchemaTargetList, "targets": Suitable(d.open(caller), query)}
}

func (d Dispatcher) open(caller Caller) []map[string]any {
	open := make([]map[string]any, 0, len(d.Declared))
	for _, target := range d.Declared {
		if caller.Opens == nil || caller.Opens(target) {
			open = append(open, value.Clone(target))
		}
	}
	return open
}

// Run begins a task on the target that its placement selects and returns the run. A run id is taken once, for ever. It fails with
// CodeInvalidInput, CodeNoHandler or CodeAlreadyStarted, or as its begin does (agent runtime contract, section 7).
func (d Dispatcher) Run(ctx context.Context, caller Caller, raw map[string]any) (map[string]any, error) {
	input, err := NormalizeInput(raw)
	if err != nil {
		return nil, err
	}

	placement := value.Assoc(input["placement"])
	target := Select(d.open(caller), placement)
	if target == nil {
		return nil, refuse(CodeNoHandler, "No executor target fits the placement of the task.")
	}

	input["executor_id"] = target["id"]
	run, err := Start(input, StatusQueued, caller, map[string]any{
		"task_id": input["task_id"], "executor_id": target["id"], "target_kind": target["kind"], "resource_class": placement["resource_class"],
	})
	if err != nil {
		return nil, err
	}

	begun, err := d.Executions.Begin(ctx, Begin{Run: run, Input: input, Target: target})
	if err != nil {
		return nil, err
	}
	if begun == nil {
		return nil, refuse(CodeAlreadyStarted, "The run_id has already been claimed for execution.")
	}
	return begun, nil
}

// Start returns the task result of a run that begins: with the ids of raw, owned by the caller, started now unless its metadata has
// started_at. It fails like NormalizeRun (agent runtime contract, section 7).
func Start(raw map[string]any, status string, caller Caller, metadata map[string]any) (map[string]any, error) {
	now := Timestamp(time.Now())
	return NormalizeRun(map[string]any{
		"run_id": raw["run_id"], "session_id": raw["session_id"], "executor_id": raw["executor_id"], "status": status,
		"owner": caller.Owner(), "started_at": or(value.Scalar(metadata["started_at"]), now), "updated_at": now, "metadata": metadata,
	})
}

// InvalidResult is the failure of a run whose executor gave an outcome that is not an object.
func InvalidResult() error {
	return refuse(CodeInvalidResult, "The handler gave no object of the form agents-api/task-result/v1.")
}

// NoHandler is the refusal of a run whose target nothing serves.
func NoHandler() error {
	return refuse(CodeNoHandler, "No agents/run-task handler is registered for the selected executor target.")
}

// Result returns what a run is after its executor gave an outcome, or failed. What was known when it began stays: schema, ids,
// owner, start time and, beneath those of the outcome, its metadata. An outcome that is no object is a failure with
// CodeInvalidResult. It fails like NormalizeRun (agent runtime contract, section 7).
func Result(begun map[string]any, outcome any, failure error) (map[string]any, error) {
	result := maps.Clone(value.ShallowCopy(outcome))
	if failure == nil && !value.Container(outcome) {
		failure = InvalidResult()
	}
	if failure != nil {
		diagnostics := value.ShallowCopy(result["diagnostics"])
		diagnostics["error_code"], diagnostics["error_message"] = codeOf(failure), failure.Error()
		result["status"], result["diagnostics"] = StatusFailed, diagnostics
	}

	for _, name := range []string{"run_id", "session_id", "executor_id", "owner"} {
		result[name] = begun[name]
	}

	result["schema"] = SchemaResult
	normalized, err := NormalizeRun(result)
	if err != nil {
		return nil, err
	}

	metadata := value.ShallowCopy(begun["metadata"])
	maps.Copy(metadata, value.ShallowCopy(result["metadata"]))
	normalized["metadata"] = metadata
	normalized["started_at"] = or(value.Scalar(normalized["started_at"]), value.Scalar(begun["started_at"]))
	normalized["updated_at"] = or(value.Scalar(normalized["updated_at"]), value.Scalar(begun["updated_at"]))
	return normalized, nil
}

func codeOf(failure error) string {
	if found, is := errors.AsType[*Error](failure); is {
		return found.Code
	}
	return CodeFailed
}

const timeForm = "2006-01-02T15:04:05-07:00"

// Timestamp writes an instant as runs have it.
func Timestamp(at time.Time) string { return at.UTC().Format(timeForm) }

// Get returns the run that run_id and session_id of the address name, as the caller may read it. It fails with CodeNotFound also for
// a run of someone else (agent runtime contract, section 7).
func (d Dispatcher) Get(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	run, err := d.find(ctx, caller, address)
	if err != nil {
		return nil, err
	}
	return caller.Visible(run), nil
}

// Cancel ends a run and returns it with "cancelled", which is false for one that had come to its end. It may be repeated, and fails
// like Get (agent runtime contract, section 7).
func (d Dispatcher) Cancel(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	found, err := d.find(ctx, caller, address)
	if err != nil {
		return nil, err
	}

	run, stopped, err := d.Executions.Stop(ctx, value.Text(found["run_id"]))
	if err != nil {
		return nil, fmt.Errorf("cancel task run: %w", err)
	}
	if run == nil {
		return nil, notFound()
	}

	run = caller.Visible(run)
	run["cancelled"] = stopped
	return run, nil
}

// find returns the run of an address if the caller may know of it.
func (d Dispatcher) find(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	run, err := d.Executions.Find(ctx, value.Scalar(address["run_id"]))
	if err != nil {
		return nil, fmt.Errorf("read task run: %w", err)
	}
	if run == nil || value.Scalar(run["session_id"]) != value.Scalar(address["session_id"]) || !caller.Manager && !caller.owns(run) {
		return nil, notFound()
	}
	return run, nil
}

func notFound() error {
	return refuse(CodeNotFound, "There is no such run in this session.")
}
