package envelope

import (
	"slices"

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

// Known tells whether the type is one of the nine.
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

// Clone copies the envelope with everything inside.
func (e Envelope) Clone() Envelope {
	e.Content, e.Payload, e.Metadata = value.Clone(e.Content), value.Clone(e.Payload), value.Clone(e.Metadata)
	return e
}

// Text gives the content if it is a string.
func (e Envelope) Text() string { return value.Text(e.Content) }

// ToolName gives the payload's tool name, "" if there is none.
func (e Envelope) ToolName() string { return value.Text(e.Payload["tool_name"]) }

// ToolCallID gives the id by which calls and results match, "" if there is none.
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
