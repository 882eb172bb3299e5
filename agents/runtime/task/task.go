// Package task runs work that is larger than one turn on executors: it normalizes task input, placement, executor
// targets and results, selects a target, runs its handler once per run id, and answers get and cancel for the owner of a
// run (agent runtime contract, section 7). It executes nothing itself, knows no protocol and keeps nothing: runs are
// kept by a Runs that passes tasktest.Runs, as the server's database does.
//
// Values are JSON objects in the types of envelope.Decode; builders may also put Go integers and floats.
package task

import "context"

// Schemas of the documents (agent runtime contract, section 7).
const (
	SchemaInput      = "agents-api/task-input/v1"
	SchemaPlacement  = "agents-api/execution-placement/v1"
	SchemaTarget     = "agents-api/executor-target/v1"
	SchemaTargetList = "agents-api/execution-target-list/v1"
	SchemaResult     = "agents-api/task-result/v1"
	SchemaMetrics    = "agents-api/execution-metrics/v1"
	SchemaRunResult  = "agents-api/run-result/v1"
)

// Codes of Error (agent runtime contract, section 7).
const (
	CodeInvalidInput   = "agents_task_invalid_input"
	CodeNoHandler      = "agents_task_no_handler"
	CodeAlreadyStarted = "agents_task_run_already_started"
	CodeInvalidResult  = "agents_task_invalid_result"
	CodeNotFound       = "agents_task_run_not_found"
	CodeInvalidTarget  = "agents_execution_target_invalid"
	CodeInvalidTargets = "agents_execution_targets_invalid"

	// CodeInvalidRun is the generic code of a run without one of its ids.
	CodeInvalidRun = "invalid_argument"
	// CodeFailed stands in the diagnostics of a run whose handler failed without a code of its own.
	CodeFailed = "agents_task_run_failed"
)

// Error is a refusal with the machine code of the contract.
type Error struct {
	Code    string // one of the Code constants, or the code of a handler
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// ErrorCode returns the machine code.
func (e *Error) ErrorCode() string { return e.Code }

func refuse(code, message string) error { return &Error{Code: code, Message: message} }

// Runs keeps task results by run id.
type Runs interface {
	// Claim stores a new run and is true for exactly one caller of its run id.
	Claim(ctx context.Context, run map[string]any) (bool, error)

	// Get returns the stored run, nil when there is none. The caller may change what it gets.
	Get(ctx context.Context, runID string) (map[string]any, error)

	// Update replaces a stored run by what change makes of it, with no other change in between, and returns the new one;
	// nil when there is none. change may run more than once and must not keep what it gets.
	Update(ctx context.Context, runID string, change func(run map[string]any) (map[string]any, error)) (map[string]any, error)
}
