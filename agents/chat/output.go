package chat

import (
	"inbox/agents/runtime/envelope"
)

// OutputOf makes the chat output of a normalized conversation result: session_id, reply, messages, completed, metadata
// and what the result has of status, runtime_tool_pending, run_outcome and structured_output (agent runtime contract,
// section 6.1). The run_id is set by the Dispatcher.
func OutputOf(sessionID string, result map[string]any) map[string]any {
	output := map[string]any{
		"session_id": sessionID, "reply": envelope.Text(result["final_content"]), "messages": spoken(result["messages"]),
		"completed": result["completed"] == nil || envelope.Truthy(result["completed"]),
		"metadata":  map[string]any{"agents_api": about(result)},
	}
	for _, member := range []string{"runtime_tool_pending", "run_outcome"} {
		if object, is := envelope.Object(result[member]); is {
			output[member] = object
		}
	}
	if status := envelope.Text(envelope.Assoc(result["run_outcome"])["status"]); status != "" {
		output["status"] = status
	}
	if structured, is := result["structured_output"]; is {
		output["structured_output"] = structured
		if diagnostics := envelope.Assoc(result["structured_output_diagnostics"]); len(diagnostics) > 0 {
			envelope.Assoc(envelope.Assoc(output["metadata"])["agents_api"])["structured_output"] = diagnostics
		}
	}
	return output
}

// about is metadata.agents_api of an output.
func about(result map[string]any) map[string]any {
	metadata := map[string]any{}
	if status, is := result["status"].(string); is {
		metadata["status"] = status
	}
	if turns, is := envelope.Integer(result["turn_count"]); is {
		metadata["turn_count"] = turns
	}
	for _, member := range []string{"usage", "run_outcome", "tool_observability", "runtime_profile"} {
		if object, is := envelope.Object(result[member]); is {
			metadata[member] = object
		}
	}
	return metadata
}

// spoken gives role and text of the messages that are no tool calls and results.
func spoken(messages any) []any {
	list := []any{}
	for _, one := range envelope.Elements(messages) {
		message := envelope.Assoc(one)
		kind, role := envelope.Text(message["type"]), envelope.Text(message["role"])
		content, is := message["content"].(string)
		if kind == string(envelope.TypeToolCall) || kind == string(envelope.TypeToolResult) || role == "" || !is {
			continue
		}
		list = append(list, map[string]any{"role": role, "content": content})
	}
	return list
}
