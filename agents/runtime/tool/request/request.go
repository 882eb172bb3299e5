// Package request is the pause of a conversation that waits for a tool outside of this server: the pending request,
// the submitted result, the exactly-once change from pending to terminal and the continuation after it (agent runtime
// contract, section 5). It runs no tools, knows no conversation and keeps nothing beyond its in-memory store.
//
// Requests and results are JSON objects: map[string]any, []any, json.Number, string, bool and nil. Builders may also
// put Go integers and floats. What a function returns is its own copy at the top level; members are shared.
package request

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"strings"

	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// Statuses of a request (agent runtime contract, section 5).
const (
	StatusPending   = "runtime_tool_pending"
	StatusCompleted = "runtime_tool_completed"
	StatusTimeout   = "runtime_tool_timeout"
)

// Normalize returns the pending request that raw describes: status, request_id, tool_name, tool_call_id, parameters,
// run_id, timeout_at, runtime and metadata, and nothing else. The names are trimmed; members of a wrong type count as
// absent. It fails with CodeRequest when a name is blank (agent runtime contract, section 5).
func Normalize(raw map[string]any) (map[string]any, error) {
	toolName, toolCallID := value.Text(raw["tool_name"]), value.Text(raw["tool_call_id"])
	if blank(toolName) {
		return nil, invalid(CodeRequest, "tool_name must be a non-empty string")
	}
	if blank(toolCallID) {
		return nil, invalid(CodeRequest, "tool_call_id must be a non-empty string")
	}

	requestID, runID := value.Text(raw["request_id"]), value.Text(raw["run_id"])
	if blank(requestID) {
		requestID = ID(runID, toolName, toolCallID)
	}

	return map[string]any{
		"status":       StatusPending,
		"request_id":   requestID,
		"tool_name":    value.Trim(toolName),
		"tool_call_id": value.Trim(toolCallID),
		"parameters":   container(raw["parameters"]),
		"run_id":       runID,
		"timeout_at":   value.Text(raw["timeout_at"]),
		"runtime":      container(raw["runtime"]),
		"metadata":     container(raw["metadata"]),
	}, nil
}

// ID is the id of a request that brings none: the same call of the same run gets the same id. Parts are taken as they
// are, untrimmed; empty ones are left out, and so is "0", which the recorded ids count as empty.
func ID(runID, toolName, toolCallID string) string {
	var parts []string
	for _, part := range []string{runID, toolName, toolCallID} {
		if part != "" && part != "0" {
			parts = append(parts, part)
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "|")))
	return "runtime-tool-" + hex.EncodeToString(sum[:])
}

// Pending reports whether a stored request still waits; a record without status does.
func Pending(stored map[string]any) bool {
	status := value.Text(stored["status"])
	return status == "" || status == StatusPending
}

// Object values keep their members when they are copied, so that a nil map becomes an empty object on the wire.
func object(value map[string]any) map[string]any {
	if value == nil {
		return map[string]any{}
	}
	return maps.Clone(value)
}

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

// Error returns the code and the reason, as recorded.
func (e *Error) Error() string { return e.Code + ": " + e.Reason }

// ErrorCode returns the machine code.
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
