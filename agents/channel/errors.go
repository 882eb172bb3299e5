package channel

import (
	"errors"

	"inbox/agents/runtime/envelope"
)

// Codes of Error (agent runtime contract, section 6.2).
const (
	// CodeSilentSkip marks a message that is dropped without a word: one of our own that came back, or no chat at all.
	CodeSilentSkip = "silent_skip"
	// CodeEmptyMessage marks a message without text; nothing is said about it either.
	CodeEmptyMessage = "empty_message"
	// CodeInvalid is the generic code of a value that breaks a rule.
	CodeInvalid = "invalid_argument"
	// CodeNoDispatchHandler and CodeInvalidDispatch are those of the dispatch-message action.
	CodeNoDispatchHandler = "agents_dispatch_message_no_handler"
	CodeInvalidDispatch   = "agents_dispatch_message_invalid_result"
)

// Error is a refusal with a code of the contract. Its text may be shown to the person who wrote.
type Error struct {
	Code string
	Text string
}

// Error gives the text.
func (e *Error) Error() string { return e.Text }

// ErrorCode gives the code.
func (e *Error) ErrorCode() string { return e.Code }

// Skip is the refusal of a message that gets no answer and no agent. The reason is for logs.
func Skip(reason string) error { return &Error{CodeSilentSkip, reason} }

func invalid(text string) error { return &Error{CodeInvalid, text} }

func code(err error) string {
	if coded, is := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); is {
		return coded.ErrorCode()
	}
	return ""
}

// slug is the common form of the names of connectors, providers and agents.
func slug(name string) string {
	return envelope.Trim(envelope.Lower(dashed(name)))
}
