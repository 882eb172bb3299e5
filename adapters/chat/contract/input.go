package contract

import (
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// MaxInputBytes bounds the JSON text of a chat input or request.
const MaxInputBytes = 1 << 20

const maxDepth = 64

// Sources of a client_context (agent runtime contract, section 6.1).
const (
	SourceREST    = "rest"
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
	RunID          string // "" = the server makes one
	TokenStreaming *bool  // nil = not said
	Attachments    []any
	ClientContext  map[string]any
	Extra          map[string]any // workspace_id and client_id of a REST request
}

// Messages returns what the turn adds to the conversation: the text of the user, then the continuations, which must be
// tool calls and results in pairs. Its errors are *Error (agent runtime contract, section 6.1).
func (i Input) Messages() ([]envelope.Envelope, error) {
	var messages []envelope.Envelope
	if text := value.Trim(i.Message); text != "" {
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

// defaultRESTClient is the client_name of plain REST chat that names no other.
const defaultRESTClient = "frontend-chat"

// RESTInput reads the body of a plain REST chat: agent, message, session_id, attachments, client_context, workspace_id
// and client_id. Agent and message must be there; members of the contract that only a server sets are not read (agent
// runtime contract, section 6.5).
func RESTInput(body map[string]any) (Input, error) {
	input := Input{
		Agent: Slug(value.Scalar(body["agent"])), Message: value.Scalar(body["message"]),
		SessionID:   value.Scalar(body["session_id"]),
		Attachments: value.Clone(value.Elements(body["attachments"])), ClientContext: tool.PublicContext(value.Assoc(body["client_context"])),
		Extra: map[string]any{},
	}

	for _, member := range []string{"workspace_id", "client_id"} {
		if text := value.Scalar(body[member]); text != "" {
			input.Extra[member] = text
		}
	}

	client := value.Scalar(input.ClientContext["client_name"])
	if client == "" {
		client = defaultRESTClient
	}

	input.ClientContext["source"], input.ClientContext["client_name"] = SourceREST, client
	if input.Agent == "" || value.Trim(input.Message) == "" {
		return Input{}, refuse(CodeInvalidREST, "The frontend chat REST request requires a non-empty agent and message.")
	}

	return input, nil
}
