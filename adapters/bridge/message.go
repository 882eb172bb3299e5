package bridge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// messages takes what programs say to agents into the engine.
type messages struct {
	*site
	access   *access
	sessions *sessions
	runs     *runs
}

// question is one message on its way in, whatever surface it came by.
type question struct {
	agent    exchange.AgentProfile
	sender   normalized.Sender
	message  contract.Message // in the one form of external messages
	context  map[string]any   // client_context
	session  exchange.Session
	way      string
	client   string // whose queue
	surface  string
	relay    normalized.MentionRelay
	chain    *normalized.AgentChain
	rejected []identity.Rejection
	original []byte
	about    map[string]any // what the product says about the sender
}

// send takes a message of a bridge for an agent. The answer waits in the client's queue, whatever becomes of this request;
// who asks for it (Accept: text/event-stream, or wait) gets it here as well.
func (m *messages) send(w http.ResponseWriter, r *http.Request, c caller) error {
	if c.client == "" {
		return fault.New(fault.Forbidden, "only the token of a bridge sends messages here; see: inbox tokens create --bridge")
	}
	body, original, err := readObject(r)
	if err != nil {
		return err
	}
	return m.take(w, r, c, body, original, text(body, "session_id"))
}

// queueMessage adds a message to a session: it runs at once, or waits for the runs before it. It is the same as sending it
// (agent runtime contract, section 6.6).
func (m *messages) queueMessage(w http.ResponseWriter, r *http.Request, c caller) error {
	session, err := m.sessions.asked(r, c)
	if err != nil {
		return err
	}
	if session.Owner != c.owner {
		return fault.New(fault.Forbidden, "an operator reads sessions and writes in none of others")
	}

	body, original, err := readObject(r)
	if err != nil {
		return err
	}
	if named := text(body, "agent"); named != "" && !strings.EqualFold(named, session.Agent) {
		return sessionNotFound()
	}

	body["agent"] = session.Agent
	return m.queued(w, r, c, body, original, session)
}

// queued accepts a message in a session and tells its place: 1 = it is the next to run or runs already.
func (m *messages) queued(w http.ResponseWriter, r *http.Request, c caller, body map[string]any, original []byte, session exchange.Session) error {
	if wantsStream(r) || body["wait"] != nil || r.URL.Query().Get("wait") != "" {
		return m.take(w, r, c, body, original, session.ID)
	}

	q, _, err := m.question(r, c, body, session.ID)
	if err != nil {
		return err
	}

	q.original = original
	taken, err := m.accept(r.Context(), q, false)
	if err != nil {
		return err
	}

	waiting, err := m.options.Turns.Turns(r.Context(), exchange.TurnFilter{
		Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: maxEvents,
		States: []string{exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting},
	})
	if err != nil {
		return err
	}

	position := 1
	for _, other := range waiting {
		if other.ID < taken.turn.ID {
			position++
		}
	}

	answer := runOf(m.withAddresses(taken.turn), m.options.Present)
	answer["queued_message_id"], answer["position"] = taken.turn.ID, position

	if taken.repeat {
		answer["duplicate"] = true
	}

	w.Header().Set("Location", locationOf(taken.turn))
	httpserver.WriteJSON(w, http.StatusAccepted, answer)
	return nil
}

// take accepts the message of a body in a session, named or not, and answers.
func (m *messages) take(w http.ResponseWriter, r *http.Request, c caller, body map[string]any, original []byte, named string) error {
	patience, err := m.wait(r, body)
	if err != nil {
		return err
	}

	q, fresh, err := m.question(r, c, body, named)
	if err != nil {
		return err
	}

	q.original = original
	taken, err := m.accept(r.Context(), q, fresh)
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return m.runs.stream(w, r, taken.turn, 0)
	}

	turn, err := m.runs.settled(r.Context(), taken.turn, patience)
	if err != nil {
		return err
	}

	answer := runOf(m.withAddresses(turn), m.options.Present)
	if taken.repeat {
		answer["duplicate"] = true
	}

	writeTaken(w, turn, answer)
	return nil
}

// statusFor is 200 where the answer is there, else 202.
func statusFor(turn exchange.TurnRecord) int {
	if turn.Response != nil || exchange.Terminal(turn.State) {
		return http.StatusOK
	}
	return http.StatusAccepted
}

func (m *messages) question(r *http.Request, c caller, body map[string]any, named string) (q question, fresh bool, err error) {
	about := value.Assoc(body["client_context"])
	message, err := m.external(c, body, about)
	if err != nil {
		return q, false, err
	}

	name := text(body, "agent")
	if name == "" && named != "" {
		session, err := m.sessionOf(r.Context(), c.owner, named)
		if err != nil {
			return q, false, err
		}
		name = session.Agent
	}

	agent, err := m.opens(c, name)
	if err != nil {
		return q, false, err
	}

	q = question{
		agent: agent, sender: m.access.sender(c, agent, message.SenderID, text(body, "sender_name", "display_name")), message: message, context: about,
		way: wayQueue, client: c.client, surface: surfaceBridge, relay: normalized.MentionRelay{Kind: normalized.RelayNone},
	}

	if c.client == "" { // a peer that continues one of its sessions: it asks for the answer
		q.way = wayResponse
	}

	q.session, fresh, err = m.sessions.place(r.Context(), c.owner, named, agent, message, title(text(body, "title"), message.Text))
	return q, fresh, err
}

// external reads the message of a connector (agent runtime contract, section 6.2); members that stand in client_context need not stand beside it.
func (m *messages) external(c caller, body, about map[string]any) (contract.Message, error) {
	either := func(names ...string) any {
		for _, name := range names {
			if found := text(body, name); found != "" {
				return found
			}
		}

		for _, name := range names {
			if found := text(about, name); found != "" {
				return found
			}
		}
		return nil
	}

	connector := either("connector_id", "client_name")
	if connector == nil {
		connector = c.connectorName()
	}

	provider := either("external_provider")
	if provider == nil {
		provider = connector
	}

	message, err := contract.NormalizeMessage(map[string]any{
		"text": text(body, "message", "text"), "connector_id": connector, "external_provider": provider,
		"external_conversation_id": either("external_conversation_id"), "external_message_id": either("external_message_id", "message_id"),
		"sender_id": either("sender_id"), "room_kind": either("room_kind"), "attachments": body["attachments"],
	})
	if err == nil && message.Text == "" && len(message.Attachments) == 0 {
		err = fault.InField("message", "is needed")
	}

	return message, err
}

func (c caller) connectorName() string {
	if c.client != "" {
		return c.client
	}
	return "peer"
}

// accepted is one question that is stored: new, or the first copy of a repeat.
type accepted struct {
	turn    exchange.TurnRecord
	session string
	repeat  bool
}

// accept brings a question into the engine. It returns only when message and job are committed. Where the answer would have
// no room the question is refused: what is taken is answered.
func (m *messages) accept(ctx context.Context, q question, fresh bool) (accepted, error) {
	if q.way == wayQueue {
		if err := m.options.Queue.Room(ctx, q.client); err != nil {
			return accepted{}, m.abandon(ctx, q.session, fresh, err)
		}
	}

	imported, err := m.begins(ctx, q.session)
	if err != nil {
		return accepted{}, err
	}

	in, err := m.inbound(ctx, q, imported)
	if err != nil {
		return accepted{}, m.abandon(ctx, q.session, fresh, err)
	}

	receipt, err := m.options.Receiver.Receive(ctx, in)
	if err != nil {
		return accepted{}, m.abandon(ctx, q.session, fresh, err)
	}

	turn, err := m.options.Turns.Turn(ctx, receipt.TurnID)
	if err != nil {
		return accepted{}, err
	}

	kept := readRoute(turn.Route)
	if !receipt.New && kept.Session != q.session.ID {
		_ = m.abandon(ctx, q.session, fresh, nil)
	}

	if receipt.New {
		if err := m.options.Sessions.TouchSession(ctx, q.session.Owner, q.session.ID, turn.AcceptedAt); err != nil {
			m.options.Logger.WarnContext(ctx, "a session keeps its old date", "session", q.session.ID, "error", err)
		}
	}

	return accepted{turn, kept.Session, !receipt.New}, nil
}

// begins reports whether the next message of a session is the first after an import: its history is what was imported.
func (m *messages) begins(ctx context.Context, session exchange.Session) (bool, error) {
	if session.Imported == 0 {
		return false, nil
	}
	turns, err := m.options.Turns.Turns(ctx, exchange.TurnFilter{Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: 1})
	return len(turns) == 0, err
}

// abandon takes back a session that was made for a message which did not need it.
func (m *messages) abandon(ctx context.Context, session exchange.Session, fresh bool, cause error) error {
	if !fresh {
		return cause
	}
	if err := m.options.Sessions.DeleteSession(context.WithoutCancel(ctx), session.Owner, session.ID); err != nil {
		m.options.Logger.WarnContext(ctx, "an empty session stays", "session", session.ID, "error", err)
	}
	return cause
}

const (
	mimeJSON         = "application/json"
	maxContextBytes  = 16 << 10 // of a client_context that is kept
	maxContextDepth  = 32       // of a host_context
	contextExtension = "dev.inbox.bridge"
)

// inbound makes the normalized message of a question, and what is kept beside it.
func (m *messages) inbound(ctx context.Context, q question, imported bool) (exchange.Inbound, error) {
	files := exchange.Contents{}
	parts, err := parts(ctx, q.message, files)
	if err != nil {
		return exchange.Inbound{}, err
	}

	kept, err := json.Marshal(route{
		Surface: q.surface, Owner: q.session.Owner, Session: q.session.ID, Way: q.way, Client: q.client, Connector: q.message.ConnectorID,
		Provider: q.message.Provider, Conversation: q.message.ConversationID, ExternalID: q.message.MessageID, Person: q.message.SenderID,
		Room: q.message.RoomKind, Digest: q.digest(), Imported: imported,
	})
	if err != nil {
		return exchange.Inbound{}, fmt.Errorf("encode route: %w", err)
	}

	threads := true
	in := exchange.Inbound{
		Message: normalized.Message{
			ID: q.nativeID(), ThreadID: q.session.ThreadID, Sender: q.sender, Recipient: q.agent.Address, Parts: parts,
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: q.relay, AgentChain: q.chain, TextMIMEs: []string{normalized.MIMEMarkdown, normalized.MIMEPlain}, Threads: &threads,
			},
			ReceivedVia: normalized.ViaA2A, ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: mimeJSON},
		},
		Audience: exchange.Audience{Open: q.message.RoomKind != roomDM}, // elsewhere the program decides who is in its room
		Original: q.original, Files: files, Channel: ChannelName, Route: kept, Conversation: q.session.ID, FromAgent: q.chain != nil, Rejected: q.rejected,
	}

	in.Message.Sender.Profile = q.profile()
	in.Message.Surface = q.nativeSurface()
	return in, nil
}

// Surfaces of a route.
const (
	surfaceBridge    = "bridge"
	surfaceConnector = "connector"
)

// roomDM is the room_kind of a direct message: only its sender reads the answer.
const roomDM = "dm"

// Ways by which an answer leaves.
const (
	wayQueue    = "queue"    // the client fetches it from its queue
	wayCallback = "callback" // the connector's callback is called
	wayResponse = "response" // the caller waits for it, or asks again
)

// route is what this adapter keeps with every turn. It never leaves the server.
type route struct {
	Surface      string `json:"surface"` // tells our turns from those of others
	Owner        string `json:"owner"`   // of the session
	Session      string `json:"session"`
	Way          string `json:"way"`
	Client       string `json:"client,omitempty"` // whose queue
	Connector    string `json:"connector,omitempty"`
	Provider     string `json:"provider,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	ExternalID   string `json:"external_id,omitempty"` // of the message, as the other product has it
	Person       string `json:"person,omitempty"`      // who wrote it there
	Room         string `json:"room,omitempty"`
	Digest       string `json:"digest"`             // of the message: tells a repeat from another message with the same id
	Run          string `json:"run,omitempty"`      // of a chat client; not ours
	Imported     bool   `json:"imported,omitempty"` // it begins a session into which an earlier conversation was imported
}

func readRoute(raw json.RawMessage) route {
	var r route
	_ = json.Unmarshal(raw, &r) // our own bytes, or those of A2A and chat, which have no member surface
	return r
}

// ownerOf returns to whom a turn belongs: the owner of its session, or who brought it where it came another way.
func ownerOf(turn exchange.TurnRecord) string {
	if r := readRoute(turn.Route); r.Surface != "" {
		return r.Owner
	}
	return turn.BroughtBy()
}

// nativeID is the same for a repeat: that of the message at its product, or a new one where it has none. The principal of
// the sender stands behind it in the natural key, so no sender can use up the id of another sender's message.
func (q question) nativeID() string {
	if q.message.MessageID == "" {
		return q.surface + ":" + newID()
	}
	return q.surface + ":" + q.message.ConnectorID + ":" + q.message.Provider + ":" + short(q.message.MessageID)
}

// digest is the same for a repeat of a message and different for another one.
func (q question) digest() string {
	return hashOf("bridge message", q.message.Text, value.EncodeText(q.message.Attachments))
}

// profile keeps what the product says about where the message comes from: context for the agent, never authorization.
func (q question) profile() *normalized.SenderProfile {
	context := tool.PublicContext(q.context)
	for name, value := range q.message.ClientContext(q.surfaceName()) {
		if value != nil {
			context[name] = value
		}
	}

	profile := normalized.SenderProfile{
		DisplayName: q.sender.DisplayName, Provider: q.message.Provider, ProviderSubject: short(q.message.SenderID),
	}

	profile.Locale, profile.Timezone = shortWord(q.about["locale"]), shortWord(q.about["timezone"])
	if address := shortWord(value.Assoc(q.about["avatar"])["url"]); address != "" {
		profile.Avatar = &normalized.Image{URL: address, MIMEType: shortWord(value.Assoc(q.about["avatar"])["mime_type"])}
	}

	if encoded := value.EncodeText(context); len(encoded) <= maxContextBytes {
		profile.Extensions = map[string]json.RawMessage{contextExtension: json.RawMessage(encoded)}
	}
	return &profile
}

// maxProfileWord bounds a member of a profile in bytes.
const maxProfileWord = 1024

// shortWord reads a member of a profile; one that is no short line is left out. The message is worth more than its profile.
func shortWord(given any) string {
	word := value.Word(given)
	if len(word) > maxProfileWord || !utf8.ValidString(word) || strings.ContainsFunc(word, unicode.IsControl) {
		return ""
	}
	return word
}

// nativeSurface is what the program says of itself and of where its user is. The engine adds the channel.
func (q question) nativeSurface() *normalized.Surface {
	surface := &normalized.Surface{Source: q.surfaceName(), ClientName: q.message.ConnectorID}
	if host := value.Assoc(q.context["host_context"]); len(host) > 0 {
		if encoded, err := value.Encode(host); err == nil && len(encoded) <= normalized.MaxHostContextBytes && normalized.CheckJSON(encoded, maxContextDepth) == nil {
			surface.HostContext = encoded
		}
	}
	return surface
}

// surfaceName is the source in a client_context (agent runtime contract, section 6.1).
func (q question) surfaceName() string {
	if q.surface == surfaceConnector {
		return contract.SourceChannel
	}
	return surfaceBridge
}

const (
	maxAttachments    = 32
	maxAttachmentName = 255
	mimeBytes         = "application/octet-stream"
)

// parts are the text and the files of a message. A file is an object with an address or with its bytes as base64; its
// members may have any of the names that products use. Nothing is fetched.
func parts(ctx context.Context, message contract.Message, files exchange.Contents) ([]normalized.Part, error) {
	var parts []normalized.Part
	if message.Text != "" {
		parts = append(parts, normalized.Text(message.Text))
	}
	if len(message.Attachments) > maxAttachments {
		return nil, fault.InField("attachments", fmt.Sprintf("has more than %d files", maxAttachments))
	}

	for i, one := range message.Attachments {
		part, err := filePart(ctx, value.Assoc(one), fmt.Sprintf("attachments[%d]", i), files)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}

	return parts, nil
}

func filePart(ctx context.Context, file map[string]any, field string, files exchange.Contents) (normalized.Part, error) {
	part := normalized.Part{
		Kind: normalized.PartFile, MIME: text(file, "mime", "mime_type", "mimeType", "mimetype", "content_type", "media_type", "type"),
		Name: text(file, "name", "filename", "title"), Alt: text(file, "alt", "alt_text"),
	}
	if !strings.Contains(part.MIME, "/") {
		part.MIME = mimeBytes
	}
	if len(part.Name) > maxAttachmentName {
		part.Name = strings.ToValidUTF8(part.Name[:maxAttachmentName], "")
	}
	if encoded := text(file, "data_base64", "data", "bytes", "content_base64"); encoded != "" {
		return carrying(ctx, part, encoded, field, files)
	}

	address := text(file, "url", "uri", "url_private", "href")
	if address == "" {
		return part, fault.InField(field, "needs url, or data_base64")
	}

	part.BytesRef = normalized.At(address)
	return part, nil
}

func carrying(ctx context.Context, part normalized.Part, encoded, field string, files exchange.Contents) (normalized.Part, error) {
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return part, fault.InField(field+".data_base64", "is no base64")
	}
	return part.Carrying(ctx, content, files)
}
