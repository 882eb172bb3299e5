// Package contract is the wire contract of chat: the input of one turn and its refusals, and the JSON-RPC form with its
// order of checks, parts, paired client tools, tasks and streamed frames (agent runtime contract, sections 6.1 and 6.5).
// It serves no HTTP; Answer is for programs that answer with a handler of their own.
package contract

import (
	"crypto/rand"
	"encoding/hex"
)

// Codes of the chat contract (agent runtime contract, sections 6.1 and 6.5).
const (
	CodeEmptyMessage       = "agents_chat_empty_message"
	CodeInvalidMessages    = "agents_chat_invalid_input_messages"
	CodeInvalidMessageType = "agents_chat_invalid_input_message_type"
	CodeUnpairedMessages   = "agents_chat_unpaired_input_messages"
	// CodeInvalidREST is that of a plain REST request without agent or message.
	CodeInvalidREST = "agents_frontend_chat_invalid_input"
	// CodeInvalidParams is that of every shape that the JSON-RPC endpoint refuses.
	CodeInvalidParams = "agents_chat_jsonrpc_invalid_params"
	// CodeInvalidResult is that of a handler whose output is not an object.
	CodeInvalidResult = "agents_chat_invalid_result"
)

// Error is a refusal with a code of the contract. Its text may leave the server.
type Error struct {
	Code string
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// ErrorCode returns the code.
func (e *Error) ErrorCode() string { return e.Code }

func refuse(code, text string) error { return &Error{code, text} }

// NewRunID returns a new run id.
func NewRunID() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails since Go 1.24
	return "run_" + hex.EncodeToString(random)
}
