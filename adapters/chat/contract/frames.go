package contract

import (
	"inbox/agents/runtime/value"
)

// Delta is one step of a growing answer in canonical form: {type: content, text}, {type: tool_call, tool_call_id,
// tool_name, index} or {type: tool_argument, tool_call_id, text, index}.
type Delta map[string]any

// States of a Task here. Other surfaces have richer ones (agent runtime contract, section 6.5).
const (
	StateCompleted     = "completed"
	StateInputRequired = "input-required"
)

// TaskOf makes the Task of a chat output. Every output that is not completed demands input, also one that failed (agent
// runtime contract, section 6.5).
func TaskOf(output map[string]any) map[string]any {
	run, session := value.Scalar(output["run_id"]), value.Scalar(output["session_id"])
	state := StateCompleted
	if completed, said := output["completed"]; said && !value.Truthy(completed) {
		state = StateInputRequired
	}
	message := map[string]any{
		"role": "agent", "kind": "message", "messageId": first(run, "run") + "-message",
		"parts": []any{map[string]any{"type": "text", "text": value.Scalar(output["reply"])}},
	}
	task := map[string]any{"id": first(run, session, "run"), "status": map[string]any{"state": state, "message": message}}
	if session != "" {
		task["sessionId"] = session
	}
	return task
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// ResultFrame is the last frame of a request that was answered.
func ResultFrame(id any, task map[string]any) map[string]any {
	return map[string]any{"jsonrpc": protocol, "id": id, "result": task}
}

// ErrorFrame is the last frame of every other request.
func ErrorFrame(id any, number int, text string) map[string]any {
	return map[string]any{"jsonrpc": protocol, "id": id, "error": map[string]any{"code": number, "message": text}}
}

// DeltaFrame is the notification of one delta of a task. Deltas of a type that nobody knows are content.
func DeltaFrame(task string, delta Delta) map[string]any {
	return map[string]any{
		"jsonrpc": protocol, "method": methodDelta, "params": map[string]any{"id": task, "delta": wire(delta)},
	}
}

func wire(delta Delta) map[string]any {
	call, index := value.Scalar(delta["tool_call_id"]), value.Truncated(delta["index"])
	switch value.Scalar(delta["type"]) {
	case "tool_call":
		name := value.Scalar(delta["tool_name"])
		return map[string]any{"deltaType": "tool_name", "content": name, "toolCallId": call, "toolCallName": name, "toolCallIndex": index}
	case "tool_argument":
		return map[string]any{"deltaType": "tool_argument", "content": value.Scalar(delta["text"]), "toolCallId": call, "toolCallIndex": index}
	}
	text := delta["text"]
	if text == nil {
		text = delta["content"]
	}
	return map[string]any{"deltaType": "content", "content": value.Scalar(text)}
}
