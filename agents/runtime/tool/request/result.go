package request

import (
	"maps"

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

// NormalizeResult gives the canonical form of a submitted result: status, request_id, tool_name, success, metadata and
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
