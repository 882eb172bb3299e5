package chat

import (
	"errors"
	"net/http"
)

// Codes of the chat contract (agent runtime contract, section 6.1).
const (
	CodeNoHandler               = "agents_chat_no_handler"
	CodeInvalidResult           = "agents_chat_invalid_result"
	CodeInvalidPrincipal        = "agents_chat_invalid_principal"
	CodeEmptyMessage            = "agents_chat_empty_message"
	CodeInvalidMessages         = "agents_chat_invalid_input_messages"
	CodeInvalidMessageType      = "agents_chat_invalid_input_message_type"
	CodeUnpairedMessages        = "agents_chat_unpaired_input_messages"
	CodeProviderRequired        = "agents_chat_provider_required"
	CodeModelRequired           = "agents_chat_model_required"
	CodeAgentNotFound           = "agents_chat_agent_not_found"
	CodeStructuredIncompatible  = "agents_chat_structured_output_incompatible"
	CodeRunAlreadyStarted       = "agents_chat_run_already_started"
	CodeRunOwnerForbidden       = "agents_chat_run_owner_forbidden"
	CodeInvalidStructuredOutput = "agents_chat_invalid_structured_output"
	// CodeInvalidREST is that of a plain REST request without agent or message.
	CodeInvalidREST = "agents_frontend_chat_invalid_input"
	// CodeInvalidParams is that of every shape that the JSON-RPC endpoint refuses.
	CodeInvalidParams = "agents_chat_jsonrpc_invalid_params"
)

// statuses are the HTTP statuses of codes for surfaces that speak plain HTTP; every other code is 400.
var statuses = map[string]int{
	CodeNoHandler: http.StatusServiceUnavailable, CodeInvalidResult: http.StatusBadGateway, CodeAgentNotFound: http.StatusNotFound,
	CodeRunAlreadyStarted: http.StatusConflict, CodeRunOwnerForbidden: http.StatusForbidden,
}

// Error is a refusal with a code of the contract. Its text may leave the server.
type Error struct {
	Code string
	Text string
}

// Error gives the text.
func (e *Error) Error() string { return e.Text }

// ErrorCode gives the code.
func (e *Error) ErrorCode() string { return e.Code }

// HTTPStatus gives the status for surfaces that speak plain HTTP. JSON-RPC answers are 200.
func (e *Error) HTTPStatus() int {
	if status, known := statuses[e.Code]; known {
		return status
	}
	return http.StatusBadRequest
}

func refuse(code, text string) error { return &Error{code, text} }

// sayInternal stands for every error without a code of its own: what failed inside is for logs.
const sayInternal = "The agent could not answer."

// public gives what a caller may read of an error: the text of one with a code, else a plain sentence.
func public(err error) string {
	if coded, is := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); is {
		return coded.Error()
	}
	return sayInternal
}
