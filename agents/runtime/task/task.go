// Package task is the contract of work that is larger than one turn: it normalizes task input, placement, executor
// targets and results, selects a target, and decides who may see and cancel a run (agent runtime contract, section 7). It
// executes nothing, knows no protocol and keeps nothing: adapters/tasks begins and reads runs.
//
// Values are JSON objects in the types of envelope.Decode; builders may also put Go integers and floats.
package task

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
	// CodeFailed stands in the diagnostics of a run whose executor failed without a code of its own.
	CodeFailed = "agents_task_run_failed"
)

// Error is a refusal with the machine code of the contract.
type Error struct {
	Code    string // one of the Code constants, or the code of an executor
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// ErrorCode returns the machine code.
func (e *Error) ErrorCode() string { return e.Code }

func refuse(code, message string) error { return &Error{Code: code, Message: message} }
