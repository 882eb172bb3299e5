package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

const (
	maxConversations = 1000 // of one import
	importDepth      = 4    // of what an import has around a message: the body, its conversations, one of them, its messages
)

// importBody is what an import brings: one conversation, or many of them, and the rows of the reference's session map.
type importBody struct {
	Document
	Conversations []Document        `json:"conversations"`
	SessionMap    map[string]string `json:"session_map"` // key of the reference → session id (agent runtime contract, section 6.3)
}

// importSessions takes conversations of the older agent framework. All of them are looked at before the first is stored;
// each is stored whole, and the same again does nothing, so that an import that was cut off is repeated.
func (t *transcripts) importSessions(w http.ResponseWriter, r *http.Request, c caller) error {
	raw, err := readBody(r, maxImportBytes)
	if err != nil {
		return err
	}
	if _, err := value.Decode(raw, value.Limits{Bytes: maxImportBytes, Depth: maxDepth + importDepth}); err != nil {
		return fault.Wrap(fault.Malformed, "the body is no JSON", err)
	}

	documents, mapped, err := ReadImport(raw)
	if err != nil {
		return err
	}

	owner := t.ownerOfImport(r, c)
	prepared := make([]Prepared, 0, len(documents))
	for i, document := range documents {
		one, err := t.prepare(c, owner, document, i)
		if err != nil {
			return err
		}
		prepared = append(prepared, one)
	}

	results := []any{}
	for _, one := range prepared {
		result, err := t.store(r.Context(), one)
		if err != nil {
			return err
		}
		results = append(results, result)
	}

	rows, err := t.importMap(r.Context(), owner, mapped)
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"sessions": results, "session_map": rows})
	return nil
}

// ownerOfImport is the caller, or the bridge or connector that an operator names.
func (t *transcripts) ownerOfImport(r *http.Request, c caller) string {
	query := r.URL.Query()
	switch client, connector := contract.Slug(query.Get("client")), query.Get("connector"); {
	case c.manager && client != "":
		return OwnerOfBridge(t.options.Domain, client)
	case c.manager && connector != "":
		return OwnerOfConnector(t.options.Domain, connector)
	}
	return c.owner
}

// OwnerOfBridge is the principal to which the sessions of a bridge's client belong.
func OwnerOfBridge(domain, client string) string { return domain + " " + bridgeSubject(client, "") }

// OwnerOfConnector is the principal to which the sessions of a connector belong.
func OwnerOfConnector(domain, connector string) string {
	return domain + " " + connectorSubject(connector, "")
}

// ReadImport reads the body of an import: a list of messages, a conversation, or many.
func ReadImport(raw []byte) (documents []Document, mapped map[string]string, err error) {
	var body importBody
	if strings.HasPrefix(strings.TrimSpace(string(raw)), "[") { // the messages alone
		if err := json.Unmarshal(raw, &body.Messages); err != nil {
			return nil, nil, fault.Wrap(fault.Malformed, "the body is no list of messages", err)
		}
		return []Document{body.Document}, nil, nil
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, nil, fault.Wrap(fault.Malformed, `want {"agent", "messages": […]} or {"conversations": [{"agent", "messages": […]}]}`, err)
	}

	documents = body.Conversations
	if body.Messages != nil {
		documents = append(documents, body.Document)
	}
	switch {
	case len(documents) == 0 && len(body.SessionMap) == 0:
		return nil, nil, fault.InField("messages", "is needed, or conversations, or session_map")
	case len(documents) > maxConversations || len(body.SessionMap) > maxConversations:
		return nil, nil, fault.InField("conversations", "has more than 1000 of them")
	}

	return documents, body.SessionMap, nil
}

// Prepared is a conversation that can be stored.
type Prepared struct {
	Session  exchange.Session
	Messages []string
}

// prepare checks a conversation of the caller's.
func (t *transcripts) prepare(c caller, owner string, document Document, index int) (Prepared, error) {
	agent, err := t.opens(c, document.Agent)
	if err != nil {
		return Prepared{}, err
	}
	return Prepare(owner, agent.Name, document, index)
}

// Prepare checks a conversation for an owner and an agent. What is stored of each message is its JSON as it came, without the
// blanks between. index is its place in the import, for errors.
func Prepare(owner, agent string, document Document, index int) (one Prepared, err error) {
	if document.Format != "" && document.Format != FormatFramework {
		return one, fault.InField("format", "must be "+FormatFramework)
	}

	list := make([]any, 0, len(document.Messages))
	for i, raw := range document.Messages {
		value, err := decodedMessage(raw)
		if err == nil {
			_, err = envelope.Import(value)
		}
		if err != nil {
			return one, fault.Wrap(fault.Malformed, fmt.Sprintf("conversation %d, message %d: %v", index+1, i+1, err), err)
		}

		var flat bytes.Buffer
		if err := json.Compact(&flat, raw); err != nil {
			return one, fault.Wrap(fault.Malformed, "the body is no JSON", err)
		}
		one.Messages, list = append(one.Messages, flat.String()), append(list, value)
	}

	id := document.SessionID
	if id == "" {
		id = newID()
	}
	if len(id) > maxSessionID {
		return one, fault.InField("session_id", "is longer than 255 bytes")
	}

	now := time.Now().UTC().Truncate(time.Microsecond)
	one.Session = exchange.Session{
		ID: id, Owner: owner, Agent: agent, ThreadID: "session:" + newID(), Title: title(document.Title, firstWords(list)),
		Connector: document.Connector, Conversation: document.Conversation, CreatedAt: now, UpdatedAt: now,
	}

	return one, nil
}

func firstWords(messages []any) string {
	for _, message := range messages {
		object := value.Assoc(message)
		if object["type"] == string(envelope.UserMessage) {
			return value.Text(object["content"])
		}
	}
	return ""
}

// store keeps a conversation, and leads its outside conversation there.
func (t *transcripts) store(ctx context.Context, one Prepared) (map[string]any, error) {
	session, created, err := t.options.Sessions.ImportSession(ctx, one.Session, one.Messages)
	if err != nil {
		return nil, err
	}

	if session.Conversation != "" && session.Connector != "" {
		key := contract.NewSessionKey(session.Connector, session.Conversation, session.Agent)
		if err := t.options.SessionOf(session.Owner).SetSession(ctx, key, session.ID); err != nil {
			return nil, err
		}
	}

	value := sessionValue(session)
	value["created"] = created
	return value, nil
}

// importMap keeps rows of the reference's map under the keys that they had there. They lead to sessions of the caller only.
func (t *transcripts) importMap(ctx context.Context, owner string, rows map[string]string) (int, error) {
	for key, session := range rows {
		if len(key) > maxSessionID || len(session) > maxSessionID {
			return 0, fault.InField("session_map", "has a key or session of more than 255 bytes")
		}
		if _, err := t.sessionOf(ctx, owner, session); err != nil {
			return 0, err
		}
	}

	for key, session := range rows {
		if err := t.options.SessionOf(owner).ImportSession(ctx, key, session); err != nil {
			return 0, err
		}
	}

	return len(rows), nil
}

// Late reports whether the turn begins a session into which an earlier conversation was imported. It is pure.
func (t *transcripts) Late(turn exchange.TurnRecord) bool { return readRoute(turn.Route).Imported }

// Ancestors returns what was imported. Of two messages that came at once into a new session the first one gets it.
func (t *transcripts) Ancestors(ctx context.Context, turn exchange.TurnRecord) ([]normalized.HistoricalMessage, error) {
	r := readRoute(turn.Route)
	turns, err := t.options.Turns.Turns(ctx, exchange.TurnFilter{Agent: turn.Agent, ThreadID: turn.ThreadID, ByArrival: true, Limit: maxEvents})
	if err != nil {
		return nil, err
	}

	for _, other := range turns {
		if other.ID < turn.ID {
			return nil, nil
		}
	}

	imported, err := t.options.Sessions.Transcript(ctx, r.Owner, r.Session)
	if err != nil {
		return nil, err
	}

	var history []normalized.HistoricalMessage
	for i, raw := range imported {
		message, err := envelope.Import(decoded([]byte(raw)))
		if err != nil {
			continue // it was checked when it came
		}
		if line, says := t.historical(turn, message, i+1); says {
			history = append(history, line)
		}
	}

	return ends(history), nil
}

// The engine keeps 100 messages of what was said before a turn. The beginning is among them, because the policy of histories
// keeps the head of a thread (message contract, section 4).
const (
	keptMessages = 100
	keptHead     = 4
)

// ends leaves out the middle of a long conversation.
func ends(history []normalized.HistoricalMessage) []normalized.HistoricalMessage {
	if len(history) <= keptMessages {
		return history
	}
	return append(history[:keptHead:keptHead], history[len(history)-keptMessages+keptHead:]...)
}

// historical returns an imported message as a turn of the history. Calls of tools and their results become text: the calls
// were made elsewhere, and no model can be asked to go on with them.
func (t *transcripts) historical(turn exchange.TurnRecord, message envelope.Envelope, number int) (normalized.HistoricalMessage, bool) {
	text := message.Text()
	switch message.Type {
	case envelope.TypeToolCall:
		text = "[called " + message.ToolName() + " " + value.EncodeText(message.Payload["parameters"]) + "]"
	case envelope.TypeToolResult:
		text = "[result: " + text + "]"
	}

	if value.Trim(text) == "" {
		return normalized.HistoricalMessage{}, false
	}

	line := normalized.HistoricalMessage{
		ID: "imported:" + strconv.Itoa(number), Role: normalized.RoleUser, Parts: []normalized.Part{normalized.Text(text)},
		Sender: normalized.Sender{Address: turn.Message.Sender.Address, AuthMethod: normalized.AuthNone}, Timestamp: identity.At(said(message.CreatedAt, turn.AcceptedAt)),
	}

	if message.Role == "assistant" || message.Type == envelope.TypeToolResult {
		line.Role, line.Sender.Address = normalized.RoleAssistant, turn.Message.Recipient
	}

	return line, true
}

// said reads when a message was written; what says no zone is taken as UTC, and what says nothing as the given instant.
func said(written string, otherwise time.Time) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04:05.999999"} {
		if at, err := time.Parse(layout, written); err == nil && at.Before(otherwise) {
			return at.UTC()
		}
	}
	return otherwise
}
