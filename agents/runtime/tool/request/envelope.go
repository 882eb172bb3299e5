package request

import (
	"maps"

	"inbox/agents/runtime/value"
)

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

// storedResult gives the normalized result that a terminal record keeps, nil when it keeps none.
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
