package envelope

import (
	"maps"

	"inbox/agents/runtime/value"
)

// NewText builds a message from role and content. As in plain rows, metadata.type and block contents decide the type.
// An empty role or a content that is neither text nor blocks is an error (agent runtime contract, section 1.5).
func NewText(role string, content any, metadata map[string]any) (Envelope, error) {
	source := map[string]any{"role": role, "content": content}
	return build(source, infer(content, metadata), map[string]any{}, value.Filled(metadata))
}

// UserText builds a text of the user.
func UserText(content string, metadata map[string]any) Envelope {
	return Envelope{Type: TypeText, Role: "user", Content: content, Payload: map[string]any{}, Metadata: value.Filled(metadata)}
}

// AssistantText builds a text of the assistant.
func AssistantText(content string, metadata map[string]any) Envelope {
	return Envelope{Type: TypeText, Role: "assistant", Content: content, Payload: map[string]any{}, Metadata: value.Filled(metadata)}
}

// NewToolCall builds a call of a tool by the assistant. Turns count from one.
func NewToolCall(content, toolName string, parameters map[string]any, turn int64, metadata map[string]any) Envelope {
	payload := map[string]any{"tool_name": toolName, "parameters": value.Filled(parameters), "turn": turn}
	return Envelope{Type: TypeToolCall, Role: "assistant", Content: content, Payload: payload, Metadata: value.Filled(metadata)}
}

// NewToolResult builds what a tool gave. Its role is "user", not the default role of the type: providers expect
// results from the user's side. The payload is copied and its tool_name replaced.
func NewToolResult(content, toolName string, payload, metadata map[string]any) Envelope {
	payload = value.Filled(maps.Clone(payload))
	payload["tool_name"] = toolName
	return Envelope{Type: TypeToolResult, Role: "user", Content: content, Payload: payload, Metadata: value.Filled(metadata)}
}

// NewApprovalRequired builds the request for a person's decision.
func NewApprovalRequired(content string, payload, metadata map[string]any) Envelope {
	return Envelope{
		Type: TypeApprovalRequired, Role: TypeApprovalRequired.DefaultRole(), Content: content,
		Payload: value.Filled(payload), Metadata: value.Filled(metadata),
	}
}
