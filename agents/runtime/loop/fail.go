package loop

import (
	"errors"
	"fmt"

	"inbox/internal/fault"
)

// Codes of errors that this room makes (agent runtime contract, sections 3.2 and 9).
const (
	codeLoop             = "invalid_agent_conversation_loop"
	codeProviderTurn     = "invalid_agent_provider_turn_result"
	codeStructuredOutput = "invalid_agent_structured_output_request"
)

// Error is an input that breaks a rule of the contract: a code, the member at fault (may be empty) and the reason.
type Error struct {
	Code   string
	Path   string // the member at fault, "" when the whole input is
	Reason string
}

// Error returns "code: path reason".
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Code + ": " + e.Reason
	}
	return e.Code + ": " + e.Path + " " + e.Reason
}

// ErrorCode returns the machine-readable code.
func (e *Error) ErrorCode() string { return e.Code }

func invalid(code, path, reason string) error { return &Error{Code: code, Path: path, Reason: reason} }

// PanicError is a panic of a callback, caught so that one bad tool or policy does not end the process.
type PanicError struct {
	Where string // the callback, as in "turn runner"
	Value any
}

// Error says where the panic was and its value.
func (e *PanicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.Where, e.Value) }

// guard calls a callback and turns its panic into an error.
func guard(where string, call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Where: where, Value: value}
		}
	}()
	return call()
}

// quietly calls a callback whose failure must not change the result (agent runtime contract, section 3.2).
func quietly(call func()) {
	defer func() { _ = recover() }()
	call()
}

// publicText is the text of an error as transcripts, events and results may show it.
func publicText(err error) string {
	if carried, is := errors.AsType[*fault.Fault](err); is {
		return carried.Public
	}
	return err.Error()
}

// errorType and errorCode name an error in a failure block; the contract leaves both names to the implementation.
func errorType(err error) string {
	if carried, is := errors.AsType[*fault.Fault](err); is {
		return string(carried.Kind)
	}
	if _, is := errors.AsType[*PanicError](err); is {
		return "panic"
	}
	return "runner_error"
}

func errorCode(err error) string {
	if coded, is := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); is {
		return coded.ErrorCode()
	}
	return "0"
}
