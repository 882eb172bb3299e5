package request

import (
	"maps"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// StatusSubmitted is the status of every normalized result, failed and timed out ones among them (agent runtime
// contract, section 5).
const StatusSubmitted = "runtime_tool_submitted"

// What is written into results that bring no words of their own (agent runtime contract, section 5).
const (
	textFailed   = "Runtime tool execution failed."
	textTimedOut = "Runtime tool request timed out."
	textTerminal = "Runtime tool request is already terminal."
)

// FilesKey is the member of a result's metadata with the files that came with it: a list of parts (message contract, section 3) whose bytes
// this server stored. Only the server sets it: a digest is no way to the bytes of others.
const FilesKey = "files"

// FromOutside removes from a result what a program that hands it in does not decide: the name of the tool, and files.
func FromOutside(raw map[string]any) {
	delete(raw, "tool_name") // it is the request's
	if metadata, is := raw["metadata"].(map[string]any); is {
		delete(metadata, FilesKey)
	}
}

// NormalizeResult returns the canonical form of a submitted result: status, request_id, tool_name, success, metadata and
// either result or error. A result that is no object or list is wrapped as {"value": x}. It fails with CodeResult when
// a name is blank (agent runtime contract, section 5).
func NormalizeResult(raw map[string]any) (map[string]any, error) {
	requestID, toolName := value.Text(raw["request_id"]), value.Text(raw["tool_name"])
	if blank(requestID) {
		return nil, invalid(CodeResult, "request_id must be a non-empty string")
	}
	if blank(toolName) {
		return nil, invalid(CodeResult, "tool_name must be a non-empty string")
	}

	success := raw["success"] == nil || value.Truthy(raw["success"])
	normalized := map[string]any{
		"status":     StatusSubmitted,
		"request_id": value.Trim(requestID),
		"tool_name":  value.Trim(toolName),
		"success":    success,
		"metadata":   citedMetadata(raw["metadata"]),
	}

	if success {
		normalized["result"] = payload(raw["result"])
	} else {
		normalized["error"] = failure(raw["error"])
	}

	return normalized, nil
}

// ResultFor is NormalizeResult with the names of the request where the result brings none. It fails with CodeRequest
// when request is none.
func ResultFor(request, raw map[string]any) (map[string]any, error) {
	normalized, err := Normalize(request)
	if err != nil {
		return nil, err
	}

	named := maps.Clone(raw)
	if named == nil {
		named = map[string]any{}
	}

	for _, name := range []string{"request_id", "tool_name"} {
		if named[name] == nil {
			named[name] = normalized[name]
		}
	}

	return NormalizeResult(named)
}

func payload(value any) any {
	switch value.(type) {
	case nil, map[string]any, []any:
		return container(value)
	}
	return map[string]any{"value": value}
}

func failure(given any) string {
	if said := value.Text(given); !blank(said) {
		return said
	}
	return textFailed
}

// terminalResult is the result of a request that ends without one.
func terminalResult(request map[string]any, reason, status string) (map[string]any, error) {
	return ResultFor(request, map[string]any{
		"success": false, "error": reason, "metadata": map[string]any{"status": status},
	})
}

// newEnvelope builds the answer. shown is the request as the caller sees it, request the normalized one.
func newEnvelope(status string, shown, request, result map[string]any) *Envelope {
	turn, _ := value.Integer(value.Assoc(request["metadata"])["turn_count"])
	return &Envelope{
		Status:  status,
		Request: shown,
		Result:  result,
		ToolResultMessage: map[string]any{
			"tool_name":    request["tool_name"],
			"tool_call_id": request["tool_call_id"],
			"success":      result["success"],
			"status":       result["status"],
			"result":       result,
		},
		ToolExecutionResult: map[string]any{
			"tool_name":    request["tool_name"],
			"tool_call_id": request["tool_call_id"],
			"parameters":   request["parameters"],
			"result":       result,
			"runtime":      request["runtime"],
			"turn_count":   turn,
		},
	}
}

// replaySubmit answers a submit for a terminal request: with the result that won, or not at all.
func replaySubmit(stored map[string]any) (*Envelope, error) {
	request, err := Normalize(stored)
	if err != nil {
		return nil, err
	}

	result, err := storedResult(stored)
	if err != nil {
		return nil, err
	}
	if Pending(stored) || result == nil {
		return nil, invalid(CodeResult, ReasonNotPending)
	}

	answer := newEnvelope(StatusSubmitted, request, request, result)
	answer.Duplicate = true
	return answer, nil
}

// replayTimeout answers a timeout for a terminal request with what is known of its end.
func replayTimeout(stored map[string]any) (*Envelope, error) {
	if Pending(stored) {
		return nil, invalid(CodeTimeout, "the store lost the end of the request")
	}

	request, err := Normalize(stored)
	if err != nil {
		return nil, err
	}

	status := value.Text(stored["status"])
	result, err := storedResult(stored)
	if err == nil && result == nil {
		result, err = terminalResult(request, textTerminal, status)
	}
	if err != nil {
		return nil, err
	}

	answer := newEnvelope(status, withStatus(request, status), request, result)
	answer.Duplicate = true
	return answer, nil
}

// storedResult returns the normalized result that a terminal record keeps, nil when it keeps none.
func storedResult(stored map[string]any) (map[string]any, error) {
	kept, ok := value.Object(stored["result"])
	if !ok {
		return nil, nil
	}
	return ResultFor(stored, kept)
}

func withStatus(request map[string]any, status string) map[string]any {
	changed := maps.Clone(request)
	changed["status"] = status
	return changed
}

func blank(given string) bool { return value.Trim(given) == "" }

// container keeps objects and lists; everything else becomes an empty object.
func container(given any) any {
	if value.Container(given) {
		return given
	}
	return map[string]any{}
}

// citedMetadata keeps metadata and brings its citations into form.
func citedMetadata(value any) any {
	metadata, ok := container(value).(map[string]any)
	if !ok {
		return value
	}

	raw, cited := metadata["citations"]
	if !cited {
		return metadata
	}

	metadata = maps.Clone(metadata)
	metadata["citations"] = envelope.Citations(raw)
	return metadata
}
