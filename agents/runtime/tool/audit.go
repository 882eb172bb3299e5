package tool

import "inbox/agents/runtime/value"

// Outcome is what an audit event says of one call.
type Outcome struct {
	Prepared Prepared
	CallID   string
	Turn     int
	Result   map[string]any // normalized
}

// AuditEvent is the record of a call that may be shown to anybody: hashes and status, no parameters, no result (agent
// runtime contract, section 4.7).
func AuditEvent(outcome Outcome) map[string]any {
	success := value.Truthy(outcome.Result["success"])
	status := "error"
	if success {
		status = "success"
	}
	event := map[string]any{
		"schema_version": 1, "type": "tool_call", "turn_count": outcome.Turn, "tool_name": outcome.Prepared.ModelName,
		"tool_call_id": outcome.CallID, "tool_source": outcome.Prepared.Declaration.Source(),
		"parameters_sha256": outcome.Prepared.ParametersSHA256, "parameters_redacted": true, "success": success,
		"result_status": status, "result_sha256": ResultHash(outcome.Result),
		"error_type": value.Text(value.Members(outcome.Result["metadata"])["error_type"]),
	}
	for name, value := range event {
		if value == "" {
			delete(event, name)
		}
	}
	return event
}

// ResultHash is result_sha256: it covers success, tool name, metadata and on failure the hash of the error text. The
// result itself is not hashed (agent runtime contract, section 4.7).
func ResultHash(result map[string]any) string {
	success := value.Truthy(result["success"])
	summary := map[string]any{
		"success": success, "tool_name": value.Text(result["tool_name"]), "metadata": value.Members(result["metadata"]),
	}
	if !success {
		text, ok := result["error"].(string)
		if !ok {
			text = failedText
		}
		summary["error_sha256"] = Hash(text)
	}
	return Hash(summary)
}
