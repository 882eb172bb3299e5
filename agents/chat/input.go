package chat

import (
	"fmt"
	"maps"

	"inbox/agents/runtime/envelope"
)

// MaxInputBytes bounds the JSON text of a chat input or request.
const MaxInputBytes = 1 << 20

const maxDepth = 64

// Sources of a client_context (agent runtime contract, section 6.1).
const (
	SourceChannel = "channel"
	SourceBridge  = "bridge"
	SourceREST    = "rest"
	SourceBlock   = "block"
	SourcePeer    = "peer-agent"
	SourceJSONRPC = "jsonrpc"
)

// Line is one earlier line of a conversation that the caller keeps itself. It is used only when no session is kept.
type Line struct {
	Role    string // user or assistant
	Content string
}

// Input is one turn for an agent (agent runtime contract, section 6.1).
type Input struct {
	Agent          string
	Message        string // may be empty when Continuations are there
	Continuations  []any  // input_messages: pairs of tool_call and tool_result, checked by Messages
	History        []Line
	SessionID      string // "" = begins a session
	RunID          string // "" = made by the Dispatcher
	TokenStreaming *bool  // nil = not said
	Attachments    []any
	ClientContext  map[string]any
	Extra          map[string]any // the other members: see extraMembers
}

// extraMembers are the members that surfaces pass on as they are.
var extraMembers = []string{
	"structured_output", "principal", "session_owner", "workspace", "workspace_id", "client_id", "tool_policy", "allow_only",
	"completion_assertions",
}

// reserved are the members of a client_context with which a caller could bring its own tools; they never come from
// outside (agent runtime contract, section 6.1).
var reserved = []string{
	"runtime_tools", "runtime_tool_declarations", "tool_declarations", "runtime_tool_callback", "runtime_tool_timeout",
}

// ReadInput reads the JSON text of a chat input of at most MaxInputBytes.
func ReadInput(data []byte) (Input, error) {
	value, err := envelope.Decode(data, envelope.Limits{Bytes: MaxInputBytes, Depth: maxDepth})
	if err != nil {
		return Input{}, fmt.Errorf("read chat input: %w", err)
	}
	return NormalizeInput(envelope.Assoc(value))
}

// NormalizeInput reads a chat input and checks it as far as it can be checked without an agent. Its errors are *Error,
// of Messages too.
func NormalizeInput(value map[string]any) (Input, error) {
	input := Input{
		Agent: envelope.Trim(envelope.Scalar(value["agent"])), Message: envelope.Text(value["message"]),
		Continuations: envelope.Clone(envelope.Elements(value["input_messages"])), History: history(value["history"]),
		SessionID: envelope.Scalar(value["session_id"]), RunID: envelope.Scalar(value["run_id"]),
		Attachments: envelope.Clone(envelope.Elements(value["attachments"])), ClientContext: PublicContext(envelope.Assoc(value["client_context"])),
		Extra: map[string]any{},
	}
	if said, is := value["token_streaming"].(bool); is {
		input.TokenStreaming = &said
	}
	for _, member := range extraMembers {
		if given := value[member]; given != nil {
			input.Extra[member] = envelope.Clone(given)
		}
	}
	if _, is := envelope.Object(input.Extra["principal"]); !is && input.Extra["principal"] != nil {
		return Input{}, refuse(CodeInvalidPrincipal, "agents/chat principal must be an object when provided.")
	}
	if input.Agent == "" {
		return Input{}, refuse(CodeAgentNotFound, "An agent is required.")
	}
	_, err := input.Messages()
	return input, err
}

// history keeps the lines of a history that have a known role and text.
func history(value any) []Line {
	var lines []Line
	for _, one := range envelope.Elements(value) {
		line := envelope.Assoc(one)
		role, content := envelope.Text(line["role"]), envelope.Text(line["content"])
		if (role == "user" || role == "assistant") && envelope.Trim(content) != "" {
			lines = append(lines, Line{role, content})
		}
	}
	return lines
}

// PublicContext copies a client_context from outside without the members that only the server may set.
func PublicContext(clientContext map[string]any) map[string]any {
	visible := make(map[string]any, len(clientContext))
	for key, value := range clientContext {
		visible[key] = envelope.Clone(value)
	}
	for _, member := range reserved {
		delete(visible, member)
	}
	return visible
}

// Value writes the input with all members that the contract demands.
func (i Input) Value() map[string]any {
	value := map[string]any{
		"agent": i.Agent, "message": i.Message, "history": lines(i.History), "session_id": nullable(i.SessionID),
		"run_id": nullable(i.RunID), "attachments": i.Attachments, "client_context": i.ClientContext,
	}
	maps.Copy(value, i.Extra)
	if len(i.Continuations) > 0 {
		value["input_messages"] = i.Continuations
	}
	if i.TokenStreaming != nil {
		value["token_streaming"] = *i.TokenStreaming
	}
	return value
}

func lines(history []Line) []any {
	list := make([]any, len(history))
	for i, line := range history {
		list[i] = map[string]any{"role": line.Role, "content": line.Content}
	}
	return list
}

func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// Messages gives what the turn adds to the conversation: the text of the user, then the continuations, which must be
// tool calls and results in pairs. Its errors are *Error (agent runtime contract, section 6.1).
func (i Input) Messages() ([]envelope.Envelope, error) {
	var messages []envelope.Envelope
	if text := envelope.Trim(i.Message); text != "" {
		messages = append(messages, envelope.UserText(text, nil))
	}
	continuations, err := envelope.NormalizeMany(i.Continuations)
	if err != nil && len(i.Continuations) > 0 {
		return nil, refuse(CodeInvalidMessages, err.Error())
	}
	for _, one := range continuations {
		if one.Type != envelope.TypeToolCall && one.Type != envelope.TypeToolResult {
			return nil, refuse(CodeInvalidMessageType, "Canonical input_messages may contain only tool call/result continuations.")
		}
	}
	if len(envelope.Orphans(continuations)) > 0 {
		return nil, refuse(CodeUnpairedMessages, "Canonical tool call/result input_messages must be paired.")
	}
	if messages = append(messages, continuations...); len(messages) == 0 {
		return nil, refuse(CodeEmptyMessage, "Message or input_messages must contain at least one message.")
	}
	return messages, nil
}
