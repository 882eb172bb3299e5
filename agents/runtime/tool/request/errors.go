package request

import (
	"errors"

	"inbox/internal/fault"
)

// Codes of Error (agent runtime contract, section 5).
const (
	CodeRequest = "invalid_runtime_tool_request"
	CodeResult  = "invalid_runtime_tool_result"
	CodeTimeout = "invalid_runtime_tool_timeout"
	CodeQuery   = "invalid_runtime_tool_query"
)

// Reasons of Error that callers tell from others: the request is not there, or ended without a result.
const (
	ReasonNotFound   = "request not found"
	ReasonNotPending = "request is not pending"
)

// Error is a refusal with the machine code of the contract.
type Error struct {
	Code   string // one of the Code constants
	Reason string // what was wrong, in words
}

// Error gives the code and the reason, as recorded.
func (e *Error) Error() string { return e.Code + ": " + e.Reason }

// ErrorCode gives the machine code.
func (e *Error) ErrorCode() string { return e.Code }

func invalid(code, reason string) error { return &Error{Code: code, Reason: reason} }

// AsFault classes an Error for callers who know faults: fault.NotFound, Conflict (it ended without a result) or
// Malformed. Every other error stays what it is.
func AsFault(err error) error {
	known, is := errors.AsType[*Error](err)
	if !is {
		return err
	}
	switch known.Reason {
	case ReasonNotFound:
		return fault.Wrap(fault.NotFound, "there is no such tool request", err)
	case ReasonNotPending:
		return fault.Wrap(fault.Conflict, "the tool request ended without a result: its time was over, or it was cancelled", err)
	}
	return fault.Wrap(fault.Malformed, known.Reason, err)
}
