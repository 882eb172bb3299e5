package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
	"inbox/policypart"
)

// transcripts brings conversations in and out, and tells an agent what was imported.
type transcripts struct {
	*site
	sessions *sessions
	archive  Archive
}

// exportSession writes a session in the form that import takes.
func (t *transcripts) exportSession(w http.ResponseWriter, r *http.Request, c caller) error {
	session, err := t.sessions.asked(r, c)
	if err != nil {
		return err
	}

	messages, err := t.archive.Messages(r.Context(), session)
	if err != nil {
		return err
	}

	encoded, err := DocumentOf(session, messages).Encode()
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", mimeJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(encoded) //nolint:gosec // JSON that says so; the reader may be gone
	return nil
}

// FormatFramework is the format of exports: messages of the older agent framework, with type, content, timestamp, agent_key
// and metadata (agent runtime contract, section 8).
const FormatFramework = "agent-framework"

// Document is an exported conversation, as import takes it.
type Document struct {
	Format       string            `json:"format"`
	SessionID    string            `json:"session_id"`
	Agent        string            `json:"agent"`
	Title        string            `json:"title,omitempty"`
	Connector    string            `json:"connector_id,omitempty"`
	Conversation string            `json:"external_conversation_id,omitempty"`
	Messages     []json.RawMessage `json:"messages"`
}

// DocumentOf makes the document of a session.
func DocumentOf(session exchange.Session, messages []json.RawMessage) Document {
	return Document{
		Format: FormatFramework, SessionID: session.ID, Agent: session.Agent, Title: session.Title,
		Connector: session.Connector, Conversation: session.Conversation, Messages: messages,
	}
}

// Encode writes the document; its messages stay byte for byte as they are, so that importing it again finds the same.
func (d Document) Encode() ([]byte, error) {
	if d.Messages == nil {
		d.Messages = []json.RawMessage{}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(d)
	return out.Bytes(), err
}

// EncodeAll writes several encoded documents as one import.
func EncodeAll(documents []json.RawMessage) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(map[string]any{"conversations": documents})
	return out.Bytes(), err
}

// sessionMessages returns the newest messages of a session, oldest of them first, as role and content: what a client shows.
func (t *transcripts) sessionMessages(w http.ResponseWriter, r *http.Request, c caller) error {
	session, err := t.sessions.asked(r, c)
	if err != nil {
		return err
	}

	limit, err := limitOf(r.URL.Query().Get("limit"), maxEvents)
	if err != nil {
		return err
	}

	if limit == 0 {
		limit = defaultEvents
	}

	messages, _, err := t.archive.newest(r.Context(), session)
	if err != nil {
		return err
	}

	list := []any{}
	for _, raw := range messages {
		message, err := envelope.Import(decoded(raw))
		if err != nil {
			return fmt.Errorf("read a message of session %s: %w", session.ID, err)
		}
		if message.Type == envelope.TypeToolCall || message.Type == envelope.TypeToolResult {
			continue
		}
		list = append(list, map[string]any{"role": message.Role, "content": message.Text(), "type": message.Type, "created_at": message.CreatedAt})
	}

	httpserver.WriteJSON(w, http.StatusOK, map[string]any{
		"session_id": session.ID, "agent": session.Agent, "messages": list[max(len(list)-limit, 0):], "total": len(list),
	})

	return nil
}

// maxTranscriptTurns bounds what is read of one conversation at once. An export of more is refused: half of a conversation
// would look like all of it, and no import takes more.
const maxTranscriptTurns = 5000

// Archive reads conversations from the rows. What it writes holds no secret: the addresses of demands lack what opens them.
type Archive struct {
	Turns    Turns
	Sessions Sessions
}

func unopened(part policypart.Part) policypart.Part { return part }

// Messages returns a session as messages of the older agent framework: what was imported, byte for byte as it came, and then
// what was said here (agent runtime contract, section 8). A session of more than 5,000 turns is fault.TooLarge.
func (a Archive) Messages(ctx context.Context, session exchange.Session) ([]json.RawMessage, error) {
	messages, whole, err := a.newest(ctx, session)
	if err == nil && !whole {
		return nil, fault.Newf(fault.TooLarge, "the conversation %s has more than %d turns, too many for one export", session.ID, maxTranscriptTurns)
	}
	return messages, err
}

// newest is Messages of as many of the newest turns as are read at once.
func (a Archive) newest(ctx context.Context, session exchange.Session) (list []json.RawMessage, whole bool, err error) {
	imported, err := a.Sessions.Transcript(ctx, session.Owner, session.ID)
	if err != nil {
		return nil, false, err
	}

	list = make([]json.RawMessage, 0, len(imported))
	for _, message := range imported {
		list = append(list, json.RawMessage(message))
	}

	turns, err := a.turnsOf(ctx, session)
	if err != nil {
		return nil, false, err
	}

	whole = len(turns) <= maxTranscriptTurns
	for _, turn := range turns {
		for _, message := range spoken(turn) {
			encoded, err := value.Encode(envelope.Export(message, turn.Agent))
			if err != nil {
				return nil, false, fmt.Errorf("write turn %s: %w", turn.ID, err)
			}
			list = append(list, encoded)
		}
	}

	return list, whole, nil
}

// turnsOf returns the turns of a session, oldest first; when there are too many, the newest, a page more at most.
func (a Archive) turnsOf(ctx context.Context, session exchange.Session) (turns []exchange.TurnRecord, err error) {
	filter := exchange.TurnFilter{Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: maxEvents + 1}
	for len(turns) <= maxTranscriptTurns {
		page, err := a.Turns.Turns(ctx, filter)
		if err != nil {
			return nil, err
		}
		page, filter.Before = exchange.NextPage(page, maxEvents, exchange.TurnCursor)
		turns = append(turns, page...)
		if filter.Before == "" {
			break
		}
	}

	slices.SortFunc(turns, func(x, y exchange.TurnRecord) int { return strings.Compare(x.ID, y.ID) })
	return turns, nil
}

// spoken returns a turn as envelopes: the question, the calls of tools with their outcomes, the answer.
func spoken(turn exchange.TurnRecord) []envelope.Envelope {
	asked := envelope.Envelope{
		ID: turn.Message.ID, Type: envelope.TypeText, Role: "user", Content: plainText(turn.Message.Parts), Payload: map[string]any{},
		CreatedAt: stamp(turn.AcceptedAt), Metadata: map[string]any{"message_id": turn.Message.ID, "run_id": turn.ID, "sender": turn.Message.Sender.Address},
	}

	addParts(&asked, turn.Message.Parts)
	list := []envelope.Envelope{asked}
	if turn.Response == nil || turn.Response.Silent {
		return list
	}

	at := stamp(turn.UpdatedAt)
	for _, part := range turn.Response.Parts {
		if part.Kind == normalized.PartToolCall {
			list = append(list, callEnvelopes(part, at)...)
		}
	}

	answer := envelope.Envelope{
		Type: envelope.TypeText, Role: "assistant", Content: textOf(turn.Response, unopened), Payload: map[string]any{},
		CreatedAt: at, Metadata: map[string]any{"run_id": turn.ID},
	}

	if turn.Response.Status == normalized.StatusFailed && turn.Response.Error != nil {
		answer.Type, answer.Payload = envelope.TypeError, map[string]any{"error_message": answer.Content, "error_type": turn.Response.Error.Code}
	}

	addParts(&answer, turn.Response.Parts)
	return append(list, answer)
}

// addParts keeps files and links, which a text cannot carry.
func addParts(message *envelope.Envelope, parts []normalized.Part) {
	var others []normalized.Part
	for _, part := range parts {
		if part.Kind == normalized.PartFile || part.Kind == normalized.PartArtifact || part.Kind == normalized.PartLink {
			others = append(others, part)
		}
	}
	if kept := plainJSON(others); len(others) > 0 && kept != nil {
		message.Metadata["parts"] = kept
	}
}

func plainText(parts []normalized.Part) string {
	return textOf(&normalized.Response{Parts: parts}, nil)
}

// callEnvelopes are a call of a tool and its outcome, which one part holds.
func callEnvelopes(part normalized.Part, at string) []envelope.Envelope {
	metadata := func() map[string]any { return map[string]any{"tool_call_id": part.ID} }
	call := envelope.Envelope{
		Type: envelope.TypeToolCall, Role: "assistant", Content: "", CreatedAt: at, Metadata: metadata(),
		Payload: map[string]any{"tool_name": part.Name, "parameters": value.Assoc(decoded(part.Args)), "turn": 1},
	}

	list := []envelope.Envelope{call}
	switch {
	case part.Error != nil:
		list = append(list, envelope.Envelope{
			Type: envelope.TypeToolResult, Role: "user", Content: part.Error.Message, CreatedAt: at, Metadata: metadata(),
			Payload: map[string]any{"tool_name": part.Name, "success": false, "error": part.Error.Message},
		})
	case len(part.Result) > 0:
		list = append(list, envelope.Envelope{
			Type: envelope.TypeToolResult, Role: "user", Content: string(part.Result), CreatedAt: at, Metadata: metadata(),
			Payload: map[string]any{"tool_name": part.Name, "success": true, "result": decoded(part.Result)},
		})
	}

	return list
}

// decoded reads JSON that this server stored, or nil.
func decoded(raw json.RawMessage) any {
	value, err := decodedMessage(raw)
	if err != nil {
		return nil
	}
	return value
}

// decodedMessage reads one message of a conversation: as deep as any request, and as long as a whole import, because what is
// exported of a message has more members than the request that brought it.
func decodedMessage(raw json.RawMessage) (any, error) {
	return value.Decode(raw, value.Limits{Bytes: maxImportBytes, Depth: maxDepth})
}
