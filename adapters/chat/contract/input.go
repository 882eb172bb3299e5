package contract

import (
	"strings"

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
		said, err := envelope.NewText("user", text, nil)
		if err != nil {
			return nil, refuse(CodeInvalidMessages, err.Error())
		}
		messages = append(messages, said)
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
	if messages = append(messages, continuations...); len(messages) == 0 && len(i.Attachments) == 0 { // a picture may come without words
		return nil, refuse(CodeEmptyMessage, "Message or input_messages must contain at least one message.")
	}

	return messages, nil
}

// defaultRESTClient is the client_name of plain REST chat that names no other.
const defaultRESTClient = "frontend-chat"

// RESTInput reads the body of a plain REST chat: agent, message, input_messages, messages, history, session_id,
// attachments, client_context, workspace_id and client_id. Agent and something to answer must be there; members of the
// contract that only a server sets are not read (agent runtime contract, sections 6.1 and 6.5).
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
	if err := input.readConversation(body); err != nil {
		return Input{}, err
	}
	if input.Agent == "" || value.Trim(input.Message) == "" && len(input.Continuations) == 0 && len(input.Attachments) == 0 {
		return Input{}, refuse(CodeInvalidREST, "The frontend chat REST request requires a non-empty agent and message.")
	}
	if _, err := input.Messages(); err != nil {
		return Input{}, err
	}

	return input, nil
}

// readConversation reads what was said before, in history, messages and input_messages.
func (i *Input) readConversation(body map[string]any) error {
	lists := map[string][]envelope.Envelope{}
	for _, member := range []string{"history", "messages", "input_messages"} {
		if body[member] == nil {
			continue
		}
		list, err := envelope.NormalizeMany(body[member])
		if err != nil {
			return refuse(CodeInvalidMessages, err.Error())
		}
		lists[member] = list
	}

	for _, one := range lists["history"] {
		i.addLine(one)
	}
	if err := i.readMessages(lists["messages"]); err != nil {
		return err
	}

	i.Continuations = append(i.Continuations, envelope.Values(lists["input_messages"])...)
	return nil
}

// readMessages takes the newest text of the user for the message, unless the request has one, what stands before it for
// the history, and calls of tools with their results for continuations.
func (i *Input) readMessages(list []envelope.Envelope) error {
	newest := -1
	if value.Trim(i.Message) == "" {
		for at, one := range list {
			if line, is := lineOf(one); is && line.Role == roleUser {
				newest = at
			}
		}
	}

	for at, one := range list {
		line, said := lineOf(one)
		switch {
		case one.Type == envelope.TypeToolCall, one.Type == envelope.TypeToolResult:
			i.Continuations = append(i.Continuations, one.Value())
		case at == newest:
			i.Message = line.Content
		case said && newest >= 0 && at > newest:
			return refuse(CodeInvalidMessages, "messages must end with a message of the user, or with calls of tools and their results.")
		default:
			i.addLine(one)
		}
	}

	return nil
}

func (i *Input) addLine(one envelope.Envelope) {
	if line, is := lineOf(one); is {
		i.History = append(i.History, line)
	}
}

const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

// lineOf is what a message says, where the user or the agent says something. A caller gives no instructions, so that lines
// of other roles are none.
func lineOf(one envelope.Envelope) (Line, bool) {
	roles := map[string]string{roleUser: roleUser, roleAssistant: roleAssistant, "agent": roleAssistant}
	role := roles[one.Role]
	if role == "" || one.Type == envelope.TypeToolCall || one.Type == envelope.TypeToolResult {
		return Line{}, false
	}

	text := one.Text()
	for _, block := range value.Elements(one.Content) {
		if said := value.Text(value.Assoc(block)["text"]); said != "" {
			text = strings.TrimPrefix(text+"\n"+said, "\n")
		}
	}

	return Line{role, text}, value.Trim(text) != ""
}
