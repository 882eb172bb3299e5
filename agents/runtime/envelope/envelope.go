// Package envelope keeps the typed message envelope of the agent runtime: reading rows of every age into the one
// canonical form, builders, the projection for model providers, pairs of tool calls and results, the result of
// a conversation, and the older agent framework's messages with their way in and out (agent runtime contract, sections
// 1, 2 and 8). It runs no loop and calls no tool, and it knows no protocol and no store.
package envelope

import (
	"maps"
	"slices"
	"strings"

	"inbox/agents/runtime/value"
)

// Schema and Version stand in every canonical envelope.
const (
	Schema  = "agents-api.message"
	Version = 1
)

// Type is the kind of a message.
type Type string

// The nine types (agent runtime contract, section 1).
const (
	TypeText             Type = "text"
	TypeToolCall         Type = "tool_call"
	TypeToolResult       Type = "tool_result"
	TypeInputRequired    Type = "input_required"
	TypeApprovalRequired Type = "approval_required"
	TypeFinalResult      Type = "final_result"
	TypeError            Type = "error"
	TypeDelta            Type = "delta"
	TypeMultimodalPart   Type = "multimodal_part"
)

var types = []Type{
	TypeText, TypeToolCall, TypeToolResult, TypeInputRequired, TypeApprovalRequired, TypeFinalResult, TypeError, TypeDelta,
	TypeMultimodalPart,
}

// Known reports whether the type is one of the nine.
func (t Type) Known() bool { return slices.Contains(types, t) }

// DefaultRole is the role of a message of this type that names none.
func (t Type) DefaultRole() string {
	switch t {
	case TypeToolResult, TypeInputRequired, TypeApprovalRequired:
		return "tool"
	}
	return "assistant"
}

// Envelope is one canonical message. It is the only form that is stored and returned; rows for model providers exist
// only at the call (Envelope.Provider). Schema and version are the constants and therefore no fields. An envelope
// shares its content, payload and metadata with the value that it was read from: Clone before changing them in place.
type Envelope struct {
	Type      Type
	Role      string         // never empty; any other text is allowed
	Content   any            // string, or a list or object of provider-neutral blocks
	Payload   map[string]any // what the runtime understands of the type
	Metadata  map[string]any // everything else that travels along
	ID        string         // "" = none, as the two dates
	CreatedAt string
	UpdatedAt string
}

// Value writes the envelope as a JSON value with all members that the contract demands.
func (e Envelope) Value() map[string]any {
	given := map[string]any{
		"schema": Schema, "version": Version, "type": string(e.Type), "role": e.Role, "content": e.Content,
		"payload": value.Filled(e.Payload), "metadata": value.Filled(e.Metadata),
	}
	optional(given, "id", e.ID)
	optional(given, "created_at", e.CreatedAt)
	optional(given, "updated_at", e.UpdatedAt)
	return given
}

func optional(value map[string]any, key, text string) {
	if text != "" {
		value[key] = text
	}
}

// Text returns the content if it is a string.
func (e Envelope) Text() string { return value.Text(e.Content) }

// ToolName returns the payload's tool name, "" if there is none.
func (e Envelope) ToolName() string { return value.Text(e.Payload["tool_name"]) }

// ToolCallID returns the id by which calls and results match, "" if there is none.
func (e Envelope) ToolCallID() string { return value.Text(e.Metadata["tool_call_id"]) }

// MarshalJSON writes the canonical form.
func (e Envelope) MarshalJSON() ([]byte, error) { return value.Encode(e.Value()) }

// UnmarshalJSON reads any accepted form within the default limits.
func (e *Envelope) UnmarshalJSON(data []byte) error {
	given, err := value.Decode(data, value.Limits{})
	if err != nil {
		return err
	}
	*e, err = Normalize(given)
	return err
}

// Values writes a list of envelopes as a JSON list.
func Values(list []Envelope) []any {
	values := make([]any, len(list))
	for i, e := range list {
		values[i] = e.Value()
	}
	return values
}

// Codes of the errors of this package (agent runtime contract, sections 1.4, 2 and 8).
const (
	CodeEnvelope  = "invalid_ai_message_envelope"
	CodeResult    = "invalid_agent_conversation_result"
	CodeFramework = "invalid_agent_framework_message"
)

// Error says which rule a message or a result breaks. Its text is `<code>: [<path> ]<reason>`, as the runtime writes it.
type Error struct {
	Code   string
	Path   string // the failing member, "" for an envelope's own errors
	Reason string
}

// Error returns the machine-readable text.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Code + ": " + e.Reason
	}
	return e.Code + ": " + e.Path + " " + e.Reason
}

// ErrorCode returns the code.
func (e *Error) ErrorCode() string { return e.Code }

// Member returns the member of the message that is at fault, "" where it is the whole message. An envelope's own errors, whose
// recorded text names no path, have it too.
func (e *Error) Member() string {
	switch e.Path {
	case "":
	case "message":
		return ""
	default:
		return e.Path
	}
	for _, name := range []string{"version", "type", "role", "content"} {
		if strings.HasPrefix(strings.TrimPrefix(e.Reason, "unsupported "), name) {
			return name
		}
	}
	return ""
}

func broken(reason string) error { return &Error{Code: CodeEnvelope, Reason: reason} }

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
