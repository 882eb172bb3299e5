package task

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

// Error gives the message.
func (e *Error) Error() string { return e.Message }

// ErrorCode gives the machine code.
func (e *Error) ErrorCode() string { return e.Code }

func refuse(code, message string) error { return &Error{Code: code, Message: message} }
