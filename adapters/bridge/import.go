package bridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

// importSessions takes conversations, as envelopes or as messages of the older agent framework. All of them are looked at before the first is stored;
// each is stored whole, and the same again does nothing, so that an import that was cut off is repeated.
func (t *transcripts) importSessions(w http.ResponseWriter, r *http.Request, c caller) error {
	raw, err := readBody(r, maxImportBytes)
	if err != nil {
		return err
	}
	for _, entry := range entriesOf(raw) {
		if _, err := value.Decode(entry.raw, value.Limits{Bytes: maxImportBytes, Depth: maxDepth + importDepth}); err != nil {
			return noJSON(entry, err)
		}
	}

	documents, mapped, err := ReadImport(raw)
	if err != nil {
		return err
	}

	query := r.URL.Query()
	strict, err := strictIn(query.Get("strict"))
	if err != nil {
		return err
	}
	for i := range documents {
		documents[i].Agent = cmp.Or(documents[i].Agent, query.Get("agent"))
		documents[i].Format = cmp.Or(documents[i].Format, query.Get("format"))
		documents[i].Strict = documents[i].Strict || strict
	}
	if len(documents) == 1 {
		documents[0].SessionID = cmp.Or(documents[0].SessionID, query.Get("session_id"))
		documents[0].Title = cmp.Or(documents[0].Title, query.Get("title"))
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

// strictIn reads whether an import refuses messages that break the rules of their form.
func strictIn(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	strict, err := strconv.ParseBool(text)
	if err != nil {
		return false, fault.InField("strict", "must be true or false")
	}
	return strict, nil
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

// errBundle is what who sends a bundle of agents hears. The status is 422: the body is understood, and nothing is done with it.
var errBundle = fault.New(fault.Unsupported,
	"this is a bundle of agents, and only conversations are imported: declare its agents as [[agents]] and its executors as [[targets]] in the configuration")

// isBundle reports whether a body says that it is a package of agents, or a runtime bundle of them (agent runtime contract, section
// 10).
func isBundle(raw []byte) bool {
	var body struct {
		Schema        string          `json:"schema"`
		RuntimeBundle json.RawMessage `json:"runtime_bundle"`
		Bundle        json.RawMessage `json:"bundle"`
	}
	if json.Unmarshal(raw, &body) != nil {
		return false
	}

	schema, ours := strings.CutPrefix(body.Schema, "agents-api")
	return body.RuntimeBundle != nil || body.Bundle != nil ||
		ours && (strings.Contains(schema, "bundle") || strings.Contains(schema, "package"))
}

// entry is one JSON value of an import: the whole body, or one of its lines.
type entry struct {
	raw  []byte
	line int // from 1; 0 = the entry is the whole body
}

// entriesOf splits a body of one JSON value a line (NDJSON). Every other body, one that is not JSON included, is one entry.
func entriesOf(raw []byte) []entry {
	first, _, several := bytes.Cut(bytes.TrimSpace(raw), []byte("\n"))
	if !several || !json.Valid(first) || json.Valid(raw) {
		return []entry{{raw: raw}}
	}

	var entries []entry
	for i, line := range bytes.Split(raw, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			entries = append(entries, entry{line, i + 1})
		}
	}
	return entries
}

// noJSON says in which line a body stops being JSON.
func noJSON(at entry, err error) error {
	line := at.line
	if syntax, is := errors.AsType[*json.SyntaxError](err); is && line == 0 {
		line = 1 + bytes.Count(at.raw[:min(int(syntax.Offset), len(at.raw))], []byte("\n"))
	}
	if line == 0 || value.TooLarge(err) {
		return fault.Wrap(fault.Malformed, "the body is not JSON that is read: "+err.Error(), err)
	}
	return fault.Wrap(fault.Malformed, fmt.Sprintf("line %d is not JSON: %v", line, err), err)
}

// ReadImport reads the body of an import: a list of messages, a conversation, or many; or line by line (NDJSON) messages and
// conversations. The messages that stand in lines of their own are one conversation.
func ReadImport(raw []byte) (documents []Document, mapped map[string]string, err error) {
	if !utf8.Valid(raw) { // readers of JSON would put another character in the place of what is none
		return nil, nil, fault.New(fault.Malformed, "the body must be UTF-8")
	}
	if isBundle(raw) {
		return nil, nil, errBundle
	}

	var alone Document // the messages that stand in no conversation
	mapped = map[string]string{}
	for _, one := range entriesOf(raw) {
		body, message, err := readEntry(one)
		if err != nil {
			return nil, nil, err
		}

		for i := range body.Conversations {
			body.Conversations[i].place = fmt.Sprintf("conversations[%d].", i)
		}
		documents = append(documents, body.Conversations...)

		switch {
		case message:
			alone.Messages = append(alone.Messages, one.raw)
			if one.line > 0 {
				alone.lines = append(alone.lines, one.line)
			}
		case body.Messages != nil:
			documents = append(documents, body.Document)
		}
		maps.Copy(mapped, body.SessionMap)
	}

	if alone.Messages != nil {
		documents = append(documents, alone)
	}
	switch {
	case len(documents) == 0 && len(mapped) == 0:
		return nil, nil, fault.InField("messages", "is needed, or conversations, or session_map")
	case len(documents) > maxConversations || len(mapped) > maxConversations:
		return nil, nil, fault.InField("conversations", "has more than 1000 of them")
	}

	return documents, mapped, nil
}

// readEntry reads one value; message reports that it is a message by itself.
func readEntry(one entry) (body importBody, message bool, err error) {
	if strings.HasPrefix(strings.TrimSpace(string(one.raw)), "[") { // the messages alone
		if err := json.Unmarshal(one.raw, &body.Messages); err != nil {
			return body, false, noJSON(one, err)
		}
		return body, false, nil
	}

	var members map[string]json.RawMessage
	if err := json.Unmarshal(one.raw, &members); err != nil {
		return body, false, noJSON(one, err)
	}
	if members["messages"] == nil && members["conversations"] == nil && members["session_map"] == nil && (one.line > 0 || members["type"] != nil || members["role"] != nil) {
		return body, true, nil
	}

	if err := json.Unmarshal(one.raw, &body); err != nil {
		return body, false, fault.Wrap(fault.Malformed, `want {"agent", "messages": […]} or {"conversations": [{"agent", "messages": […]}]}`, err)
	}
	return body, false, nil
}

// Prepared is a conversation that can be stored.
type Prepared struct {
	Session  exchange.Session
	Messages []string
	Lenient  int // messages that break a rule of the framework and are kept all the same
}

// prepare checks a conversation of the caller's.
func (t *transcripts) prepare(c caller, owner string, document Document, index int) (Prepared, error) {
	agent, err := t.opens(c, document.Agent)
	if err != nil {
		return Prepared{}, err
	}
	return Prepare(owner, agent.Name, document, index)
}

// Prepare checks a conversation for an owner and an agent. A message of the older framework is stored
// as its JSON came, without the blanks between; an envelope, and a plain row of role and content, is stored as a canonical
// envelope. index is the conversation's place in the import, for errors.
func Prepare(owner, agent string, document Document, index int) (one Prepared, err error) {
	format, err := formatOf(document.Format)
	if err != nil {
		return one, err
	}
	if document.Format == "" {
		format = ""
	}

	list := make([]envelope.Envelope, 0, len(document.Messages))
	for i, raw := range document.Messages {
		stored, message, lenient, err := prepareMessage(raw, format, document.Strict)
		if err != nil {
			return one, refusedMessage(document, index, i, err)
		}
		if lenient {
			one.Lenient++
		}
		one.Messages, list = append(one.Messages, stored), append(list, message)
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
		ID: id, Owner: owner, Agent: agent, ThreadID: newThread(agent, owner), Title: title(document.Title, firstWords(list)),
		Connector: document.Connector, Conversation: document.Conversation, CreatedAt: now, UpdatedAt: now,
	}

	return one, nil
}

// prepareMessage checks a message and returns what is stored of it. Without a format it is what it looks like: an envelope, a
// plain row where it names a role, else a message of the framework.
func prepareMessage(raw json.RawMessage, format string, strict bool) (stored string, message envelope.Envelope, lenient bool, err error) {
	given, err := decodedMessage(raw)
	if err != nil {
		return "", message, false, err
	}

	row := value.Assoc(given)["role"] != nil
	if format == FormatEnvelope || format == "" && (row || envelope.Typed(given)) {
		if message, err = envelope.Normalize(given); err != nil {
			return "", message, false, err
		}
		stored, err = canonical(message)
		return stored, message, false, err
	}

	if strict {
		if err := envelope.ValidateFramework(given); err != nil {
			return "", message, false, err
		}
	}
	read, broken, err := lenientRow(given)
	if err != nil {
		return "", message, false, err
	}
	if message, err = envelope.Import(read); err != nil {
		return "", message, false, err
	}
	markBroken(&message, given, broken)
	if lenient = len(broken) > 0; envelope.Typed(given) { // its own bytes would be read as an envelope later
		stored, err = canonical(message)
		return stored, message, lenient, err
	}

	var flat bytes.Buffer
	if err := json.Compact(&flat, raw); err != nil {
		return "", message, lenient, err
	}
	return flat.String(), message, lenient, nil
}

func canonical(message envelope.Envelope) (string, error) {
	encoded, err := value.Encode(message.Value())
	return string(encoded), err
}

// refusedMessage says which message of which conversation is refused, and which member of it.
func refusedMessage(document Document, index, number int, err error) error {
	what, field, member := err.Error(), fmt.Sprintf("%smessages[%d]", document.place, number), ""
	if problem, is := errors.AsType[*envelope.Error](err); is {
		what, member = problem.Reason, problem.Member()
		if problem.Path != "" {
			what = problem.Path + " " + what
		}
	}

	place := fmt.Sprintf("conversation %d, message %d", index+1, number+1)
	if number < len(document.lines) {
		place, field = fmt.Sprintf("line %d", document.lines[number]), ""
	}

	refusal := fault.Wrap(fault.Malformed, place+": "+what, err)
	refusal.Field = strings.TrimPrefix(strings.TrimSuffix(field+"."+member, "."), ".")
	return refusal
}

func firstWords(messages []envelope.Envelope) string {
	for _, message := range messages {
		if message.Role == "user" && message.Type != envelope.TypeToolResult {
			return shownText(message)
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
	if one.Lenient > 0 {
		value["lenient"] = one.Lenient
	}
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

	lines, err := readKept(imported)
	if err != nil {
		return nil, fmt.Errorf("read what was imported into session %s: %w", r.Session, err)
	}

	var history []normalized.HistoricalMessage
	for i, one := range lines {
		if line, says := t.historical(turn, one.message, i+1); says {
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
	text := shownText(message)
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

	if message.Role == "assistant" || message.Role == "tool" || message.Type == envelope.TypeToolResult {
		line.Role, line.Sender.Address = normalized.RoleAssistant, identity.Stated(turn.Message.Recipient)
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
