package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

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

// exportSession writes a session in the form that import takes, or the messages of one collection of it.
func (t *transcripts) exportSession(w http.ResponseWriter, r *http.Request, c caller) error {
	format, err := formatOf(r.URL.Query().Get("format"))
	if err != nil {
		return err
	}

	session, err := t.sessions.asked(r, c)
	if err != nil {
		return err
	}

	document, err := t.archive.Document(r.Context(), session, format)
	if err != nil {
		return err
	}

	document.Messages, err = collected(document, r.URL.Query().Get("collection"))
	if err != nil {
		return err
	}

	encoded, err := document.Encode()
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", mimeJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(encoded) //nolint:gosec // JSON that says so; the reader may be gone
	return nil
}

// The formats of exported and imported messages.
const (
	// FormatFramework is that of the older agent framework, with type, content, timestamp, agent_key and metadata (agent runtime
	// contract, section 8).
	FormatFramework = "agent-framework"
	// FormatEnvelope is the canonical envelope of the agent runtime (agent runtime contract, section 1).
	FormatEnvelope = "envelope"
	// FormatProvider is the row of role, content and metadata that is made of an envelope for one call of a model (agent runtime
	// contract, section 1.5). Messages of a session can be read so; nothing is exported or kept in it.
	FormatProvider = "provider"
)

// Formats lists the formats; an export without one has the first.
func Formats() []string { return []string{FormatFramework, FormatEnvelope} }

func formatOf(given string) (string, error) {
	if given == "" {
		return FormatFramework, nil
	}
	if !slices.Contains(Formats(), given) {
		return "", fault.InField("format", "must be one of "+strings.Join(Formats(), ", "))
	}
	return given, nil
}

// Document is an exported conversation, as import takes it.
type Document struct {
	Format       string            `json:"format"`
	SessionID    string            `json:"session_id"`
	Agent        string            `json:"agent"`
	Title        string            `json:"title,omitempty"`
	Connector    string            `json:"connector_id,omitempty"`
	Conversation string            `json:"external_conversation_id,omitempty"`
	Messages     []json.RawMessage `json:"messages"`
	Strict       bool              `json:"strict,omitempty"` // messages of the framework that break its rules refuse the import
	Runs         json.RawMessage   `json:"runs,omitempty"`   // []RunAudit; imports pass over it

	place string // of the conversation in an import, before the names of its members: "conversations[0]."
	lines []int  // where the messages stand in a body of one message a line, from 1; nil = in another body
}

// RunAudit is what the owner of a conversation reads of a run: how it ended, and which tools were called, with hashes in the place of
// parameters and results. The whole conversation result is the operator's: it holds what tools returned, and what the agent was told.
type RunAudit struct {
	RunID      string            `json:"run_id"`
	Run        int               `json:"run"` // attempt of the turn
	At         time.Time         `json:"at"`
	Status     string            `json:"status,omitempty"`
	ToolAudits []json.RawMessage `json:"tool_audit_events"`
}

// documentOf makes the document of a session.
func documentOf(session exchange.Session, format string, messages []json.RawMessage) Document {
	return Document{
		Format: format, SessionID: session.ID, Agent: session.Agent, Title: session.Title,
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

// sessionMessages returns the newest messages of a session, oldest of them first: role and content, which a client shows, or
// with format=envelope whole envelopes, calls of tools and their results among them, or with format=provider their rows for a
// model's provider. With coalesce=true neighbours of one role are one envelope or row, which some providers demand.
func (t *transcripts) sessionMessages(w http.ResponseWriter, r *http.Request, c caller) error {
	query := r.URL.Query()
	format := query.Get("format")
	if format != "" && format != FormatEnvelope && format != FormatProvider {
		return fault.InField("format", "must be "+FormatEnvelope+", "+FormatProvider+" or left out")
	}

	session, err := t.sessions.asked(r, c)
	if err != nil {
		return err
	}

	limit, err := limitOf(query.Get("limit"), maxEvents)
	if err != nil {
		return err
	}

	if limit == 0 {
		limit = defaultEvents
	}

	lines, _, err := t.archive.newest(r.Context(), session)
	if err != nil {
		return err
	}

	var list []any
	switch coalesce := query.Get("coalesce") == "true"; format {
	case FormatEnvelope:
		list = envelope.Values(envelopesOf(lines, coalesce))
	case FormatProvider:
		list = providerRows(envelopesOf(lines, coalesce))
	default:
		list = shownLines(lines)
	}

	httpserver.WriteJSON(w, http.StatusOK, map[string]any{
		"session_id": session.ID, "agent": session.Agent, "messages": list[max(len(list)-limit, 0):], "total": len(list),
	})

	return nil
}

func envelopesOf(lines []line, coalesce bool) []envelope.Envelope {
	list := make([]envelope.Envelope, len(lines))
	for i, one := range lines {
		list[i] = one.message
	}
	if coalesce {
		return envelope.Coalesce(list)
	}
	return list
}

// providerRows are messages as a provider reads them, calls and results by the same id.
func providerRows(list []envelope.Envelope) []any {
	rows := make([]any, len(list))
	for i := range list {
		rows[i] = list[i].Provider()
	}
	return rows
}

// shownLines are messages as clients show them, without calls of tools.
func shownLines(lines []line) []any {
	list := []any{}
	for _, one := range lines {
		message := one.message
		if message.Type == envelope.TypeToolCall || message.Type == envelope.TypeToolResult {
			continue
		}
		list = append(list, map[string]any{"role": message.Role, "content": shownText(message), "type": message.Type, "created_at": message.CreatedAt})
	}
	return list
}

// shownText is the content of a message as text: that of blocks is theirs, one below the other, or where none of them has
// any, their JSON.
func shownText(message envelope.Envelope) string {
	if !value.Container(message.Content) {
		return message.Text()
	}

	blocks, is := value.List(message.Content)
	if !is {
		blocks = []any{message.Content}
	}

	var texts []string
	for _, block := range blocks {
		object := value.Assoc(block)
		for _, name := range []string{"text", "content"} {
			if text, is := value.NonBlank(object[name]); is {
				texts = append(texts, text)
				break
			}
		}
	}

	if len(texts) == 0 && len(blocks) > 0 {
		return value.EncodeText(message.Content)
	}
	return strings.Join(texts, "\n\n")
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

// Document returns a session as messages of the format: what was imported, and then what was said here. A message that was
// imported in this format is byte for byte as it is kept. A session of more than 5,000 turns is fault.TooLarge.
func (a Archive) Document(ctx context.Context, session exchange.Session, format string) (Document, error) {
	lines, whole, err := a.newest(ctx, session)
	if err != nil {
		return Document{}, err
	}
	if !whole {
		return Document{}, fault.Newf(fault.TooLarge, "the conversation %s has more than %d turns, too many for one export", session.ID, maxTranscriptTurns)
	}

	messages := make([]json.RawMessage, 0, len(lines))
	for i, one := range lines {
		written, err := one.write(format, session.Agent)
		if err != nil {
			return Document{}, fmt.Errorf("write message %d of session %s: %w", i+1, session.ID, err)
		}
		messages = append(messages, written)
	}

	document := documentOf(session, format, messages)
	document.Runs, err = a.Runs(ctx, session)
	return document, err
}

// Runs returns the audits of a session as a JSON list of RunAudit; nil when none of its runs has one.
func (a Archive) Runs(ctx context.Context, session exchange.Session) (json.RawMessage, error) {
	results, err := a.Turns.ThreadResults(ctx, session.Agent, session.ThreadID)
	if err != nil || len(results) == 0 {
		return nil, err
	}

	audits := make([]RunAudit, 0, len(results))
	known := map[string]bool{} // turn and call: a later run of a turn tells those of earlier ones again
	for _, one := range results {
		audit := RunAudit{RunID: one.TurnID, Run: one.Run, At: one.At, Status: one.Status, ToolAudits: []json.RawMessage{}}
		for _, event := range one.Audit {
			id := one.TurnID + " " + value.Text(value.Assoc(decoded(event))["tool_call_id"])
			if !known[id] {
				known[id] = true
				audit.ToolAudits = append(audit.ToolAudits, event)
			}
		}
		audits = append(audits, audit)
	}

	encoded, err := json.Marshal(audits)
	if err != nil {
		return nil, fmt.Errorf("write runs of session %s: %w", session.ID, err)
	}
	return encoded, nil
}

// line is one message of a conversation.
type line struct {
	message envelope.Envelope
	kept    string // the message as it was imported and is kept; "" = it was said here
	format  string // of kept
}

func (l line) write(format, agent string) ([]byte, error) {
	switch {
	case l.kept != "" && l.format == format:
		return []byte(l.kept), nil
	case format == FormatEnvelope:
		return value.Encode(l.message.Value())
	}
	return value.Encode(envelope.Export(l.message, agent))
}

// readKept reads what was imported into a session.
func readKept(imported []string) ([]line, error) {
	given := make([]any, len(imported))
	for i, raw := range imported {
		given[i] = decoded(json.RawMessage(raw))
	}

	read, broken := slices.Clone(given), make([][]string, len(given))
	for i := range given {
		if envelope.Typed(given[i]) {
			continue
		}
		row, left, err := lenientRow(given[i])
		if err != nil {
			return nil, err
		}
		read[i], broken[i] = row, left
	}
	messages, err := envelope.ReadMany(read)
	if err != nil {
		return nil, err
	}

	lines := make([]line, len(imported))
	for i, message := range messages {
		markBroken(&message, given[i], broken[i])
		lines[i] = line{message: message, kept: imported[i], format: FormatFramework}
		if envelope.Typed(given[i]) {
			lines[i].format = FormatEnvelope
		}
	}
	return lines, nil
}

// newest returns the lines of as many of the newest turns as are read at once, behind what was imported.
func (a Archive) newest(ctx context.Context, session exchange.Session) (list []line, whole bool, err error) {
	imported, err := a.Sessions.Transcript(ctx, session.Owner, session.ID)
	if err != nil {
		return nil, false, err
	}

	if list, err = readKept(imported); err != nil {
		return nil, false, fmt.Errorf("read what was imported into session %s: %w", session.ID, err)
	}

	turns, err := a.turnsOf(ctx, session)
	if err != nil {
		return nil, false, err
	}

	for _, turn := range turns {
		for _, message := range spoken(turn) {
			list = append(list, line{message: message})
		}
	}

	return list, len(turns) <= maxTranscriptTurns, nil
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
	asked := envelope.UserText(plainText(turn.Message.Parts), map[string]any{
		"message_id": turn.Message.ID, "run_id": turn.ID, "sender": turn.Message.Sender.Address.String(),
	})
	asked.ID, asked.CreatedAt = turn.Message.ID, stamp(turn.AcceptedAt)

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

	answer := envelope.AssistantText(textOf(turn.Response, unopened), map[string]any{"run_id": turn.ID})
	answer.CreatedAt = at
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
	return textOf(&normalized.Response{Parts: parts}, unopened)
}

// callEnvelopes are a call of a tool and its outcome, which one part holds.
func callEnvelopes(part normalized.Part, at string) []envelope.Envelope {
	metadata := func() map[string]any { return map[string]any{"tool_call_id": part.ID} }
	call := envelope.NewToolCall("", part.Name, value.Assoc(decoded(part.Args)), 1, metadata())
	call.CreatedAt = at

	var result envelope.Envelope
	switch {
	case part.Error != nil:
		result = envelope.NewToolResult(part.Error.Message, part.Name, map[string]any{"success": false, "error": part.Error.Message}, metadata())
	case len(part.Result) > 0:
		result = envelope.NewToolResult(string(part.Result), part.Name, map[string]any{"success": true, "result": decoded(part.Result)}, metadata())
	default:
		return []envelope.Envelope{call}
	}

	result.CreatedAt = at
	return []envelope.Envelope{call, result}
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
