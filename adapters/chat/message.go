package chat

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"inbox/adapters/chat/contract"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/filetype"
	"inbox/normalized"
)

const (
	mimeJSON  = "application/json"
	mimeBytes = "application/octet-stream"

	maxReadableID     = 256      // longer ids of clients are shown as their hash
	maxContextBytes   = 16 << 10 // of a client_context that is kept
	maxContextDepth   = 32       // of a host_context
	contextExtension  = "dev.inbox.chat"
	maxAttachments    = 32
	maxAttachmentName = 255
)

// messages takes what clients say into the engine.
type messages struct {
	*site
	access   *access
	sessions *sessions
	tools    *clientTools
	runs     *runs
}

// question is one message on its way in, whatever surface it came by.
type question struct {
	agent     exchange.AgentProfile
	who       caller
	input     contract.Input
	messageID string // the client's own id of the message; may be empty
	original  []byte
	request   string // digest of the whole request where the message does not tell a repeat; may be empty
	response  *responseNote
	format    *exchange.Format

	// The parts of the message, the earlier messages and the files of both, if the surface has read them; nil = they are in input.
	parts   []normalized.Part
	earlier []exchange.Earlier
	files   exchange.Contents
}

// accept brings a question into the engine and returns its run; the repeat of a question returns the run of the first copy. A
// reader that names the last event it has asks for the rest of that stream and sends nothing.
func (m *messages) accept(ctx context.Context, q question, lastEvent string) (run, error) {
	if lastEvent != "" {
		return m.runs.resume(ctx, q, lastEvent)
	}
	if found, over, err := m.tools.submit(ctx, &q); over || err != nil {
		return found, err
	}

	in, err := m.inbound(ctx, q)
	if err != nil {
		return run{}, err
	}

	receipt, err := m.options.Receiver.Receive(ctx, in)
	if err != nil {
		return run{}, err
	}

	turn, err := m.options.Turns.Turn(ctx, receipt.TurnID)
	if err != nil {
		return run{}, err
	}

	found := run{turn: turn, route: routeOf(turn)}
	if !found.route.Chat {
		return run{}, fault.New(fault.Gone, "the conversation with this run was deleted")
	}
	if found.route.Digest != digestOf(q.input) {
		return run{}, fault.New(fault.Conflict, "the run was started with another message; every message needs its own run id")
	}

	return found, nil
}

// route is what this adapter keeps with every turn. It never leaves the server; the session is a secret of its owner.
type route struct {
	Chat    bool   `json:"chat"` // tells our turns from those of A2A
	Run     string `json:"run"`
	Session string `json:"session"`
	Digest  string `json:"digest"` // of the message: tells a repeat from another message with the same id

	Request string `json:"request,omitempty"` // digest of the whole request

	Response *responseNote `json:"response,omitempty"` // of a request for a response

	Format *exchange.Format `json:"format,omitempty"` // that the answer has to have (exchange.RouteFormat)

	History []exchange.Earlier `json:"history,omitempty"` // what the client says was said before (exchange.RouteHistory)
}

func routeOf(turn exchange.TurnRecord) route {
	var r route
	_ = json.Unmarshal(turn.Route, &r) // our own bytes
	return r
}

// inbound makes the normalized message of a question, and what is kept beside it.
func (m *messages) inbound(ctx context.Context, q question) (exchange.Inbound, error) {
	parts, files, err := q.parts, q.files, error(nil)
	if parts == nil {
		files = exchange.Contents{}
		parts, err = m.parts(ctx, q, files)
	}
	if err != nil {
		return exchange.Inbound{}, err
	}

	session, owned, err := m.sessions.place(q)
	if err != nil {
		return exchange.Inbound{}, err
	}

	thread := owned.conversation(session).ID()
	if session == q.input.SessionID { // it may be from before
		if thread, err = m.options.Conversations.Conversation(ctx, owned.conversation(session)); err != nil {
			return exchange.Inbound{}, err
		}
	}

	told, err := m.history(ctx, q, owned, thread)
	if err != nil {
		return exchange.Inbound{}, err
	}

	id, run := names(q, session)
	kept, err := json.Marshal(route{Chat: true, Run: run, Session: session, Digest: digestOf(q.input), Request: q.request, Response: q.response, Format: q.format, History: told})
	if err != nil {
		return exchange.Inbound{}, err
	}

	threads := true
	in := exchange.Inbound{
		Message: normalized.Message{
			ID: id, ThreadID: thread, Sender: m.access.sender(q.who, q.agent, session), Recipient: q.agent.Address, Parts: parts,
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone},
				TextMIMEs:    []string{normalized.MIMEMarkdown, normalized.MIMEPlain}, Threads: &threads,
			},
			ReceivedVia: normalized.ViaA2A, ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: mimeJSON},
		},
		Original: q.original, Files: files, Channel: ChannelName, Route: kept, Conversation: session, Client: q.who.from,
	}

	in.Message.Sender.Profile = profileOf(q.input.ClientContext)
	in.Message.Surface = surfaceOf(q.input.ClientContext)
	return in, nil
}

// names returns the id of the message and of its run, which are one. A repeat has the same ones: those of the run that the
// client named, or of its message.
func names(q question, session string) (id, run string) {
	run = strings.TrimSpace(q.input.RunID)
	if run == "" && q.messageID != "" {
		conversation := session
		if q.input.SessionID == "" && !q.who.guest() { // the session is a new one with each copy; a guest without one is another person
			conversation = ""
		}
		run = "run_" + hash("chat message", q.agent.Name, conversation, q.messageID, digestOf(q.input))[:32]
	}
	if run == "" {
		run = q.input.Named().RunID
	}
	return exchange.RunMessageID(run), run
}

// digestOf is the same for a repeat of a message and different for another one.
func digestOf(input contract.Input) string {
	return hash("chat digest", input.Message, value.EncodeText(input.Continuations), value.EncodeText(input.Attachments))
}

func hash(pieces ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(pieces, "\x00")))
	return hex.EncodeToString(sum[:])
}

// short keeps an id of a client readable in a refusal.
func short(id string) string {
	if len(id) <= maxReadableID {
		return id
	}
	return hash("chat id", id)
}

// profileOf keeps what the client says about where it is: context for the agent, never authorization.
func profileOf(clientContext map[string]any) *normalized.SenderProfile {
	text := value.EncodeText(clientContext)
	if len(clientContext) == 0 || len(text) > maxContextBytes {
		return nil
	}
	return &normalized.SenderProfile{Extensions: map[string]json.RawMessage{contextExtension: json.RawMessage(text)}}
}

// surfaceOf is what the client says of itself and of where its user is.
func surfaceOf(clientContext map[string]any) *normalized.Surface {
	surface := &normalized.Surface{Channel: ChannelName, Source: nameIn(clientContext, "source"), ClientName: nameIn(clientContext, "client_name")}
	if host := value.Assoc(clientContext["host_context"]); len(host) > 0 {
		if encoded, err := value.Encode(host); err == nil && len(encoded) <= normalized.MaxHostContextBytes && normalized.CheckJSON(encoded, maxContextDepth) == nil {
			surface.HostContext = encoded
		}
	}
	return surface
}

// nameIn reads a name of the client's; one that is none is left out.
func nameIn(clientContext map[string]any, member string) string {
	name := value.Word(clientContext[member])
	if len(name) > maxReadableID || strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return name
}

// parts are the text, the results of tools that ran at the client, and its files.
func (m *messages) parts(ctx context.Context, q question, files exchange.Contents) ([]normalized.Part, error) {
	var parts []normalized.Part
	input := q.input
	if text := strings.TrimSpace(input.Message); text != "" {
		parts = append(parts, normalized.Text(text))
	}
	messages, err := input.Messages()
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, err.Error(), err)
	}
	parts = append(parts, toolParts(messages)...)

	if len(input.Attachments) > maxAttachments {
		return nil, fault.Newf(fault.Malformed, "a message has at most %d files", maxAttachments)
	}

	for _, attached := range input.Attachments {
		part, content, err := filePart(value.Assoc(attached))
		if err == nil && content != nil {
			part, err = part.Carrying(ctx, content, files)
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}

	return parts, nil
}

// toolParts joins each call with its result: by its id, and calls without one by the name of the tool, in order.
func toolParts(messages []envelope.Envelope) []normalized.Part {
	var parts []normalized.Part
	open := map[[2]string][]int{}
	for _, message := range messages {
		key := [2]string{message.ToolCallID()}
		if key[0] == "" {
			key[1] = message.ToolName()
		}

		switch message.Type {
		case envelope.TypeToolCall:
			open[key] = append(open[key], len(parts))
			parts = append(parts, normalized.Part{
				Kind: normalized.PartToolCall, ID: cmp.Or(key[0], fmt.Sprintf("unnamed-call-%d", len(parts)+1)), Name: message.ToolName(),
				Args: json.RawMessage(value.EncodeText(message.Payload["parameters"])),
			})
		case envelope.TypeToolResult:
			if calls := open[key]; len(calls) > 0 {
				parts[calls[0]].Result, parts[calls[0]].Error = broughtBy(message)
				open[key] = calls[1:]
			}
		}
	}

	return parts
}

// broughtBy is what a tool that ran at the client brought.
func broughtBy(message envelope.Envelope) (json.RawMessage, *normalized.ToolError) {
	if success, said := message.Payload["success"]; said && !value.Truthy(success) {
		return nil, &normalized.ToolError{Message: cmp.Or(value.Text(message.Payload["error"]), message.Text(), "The tool failed.")}
	}
	for _, member := range []string{"result", "tool_data"} {
		if result, there := message.Payload[member]; there {
			return json.RawMessage(value.EncodeText(result)), nil
		}
	}
	return json.RawMessage(value.EncodeText(message.Content)), nil
}

// filePart reads {name, mimeType, bytes} or {name, mimeType, uri}; other names of these members are those that clients of
// the reference use. Nothing is fetched. The part lacks the bytes, which are returned beside it; nil = they are at an address.
func filePart(file map[string]any) (part normalized.Part, content []byte, err error) {
	part = normalized.Part{Kind: normalized.PartFile, MIME: textOf(file, "mimeType", "mime_type", "type"), Name: textOf(file, "name", "filename")}
	if !strings.Contains(part.MIME, "/") {
		part.MIME = ""
	}
	if len(part.Name) > maxAttachmentName {
		part.Name = strings.ToValidUTF8(part.Name[:maxAttachmentName], "")
	}
	if encoded := textOf(file, "bytes", "data", "data_base64"); encoded != "" {
		if content, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return part, nil, fault.New(fault.Malformed, "the bytes of a file must be base64")
		}
		part.MIME = filetype.Of(part.MIME, part.Name, content)
		return part, content, nil
	}

	address := textOf(file, "uri", "url")
	if address == "" {
		return part, nil, fault.New(fault.Malformed, "a file needs bytes (base64) or a uri")
	}

	part.MIME, part.BytesRef = filetype.Of(part.MIME, part.Name, nil), normalized.At(address)
	return part, nil, nil
}

func textOf(object map[string]any, members ...string) string {
	for _, member := range members {
		if text := value.Text(object[member]); text != "" {
			return text
		}
	}
	return ""
}

// history returns what the client says was said before, as far as nothing of the session is kept here: what we have
// ourselves is never repeated to the agent (agent runtime contract, section 6.1).
func (m *messages) history(ctx context.Context, q question, owned owner, thread string) ([]exchange.Earlier, error) {
	told := q.input.History
	if len(told) == 0 {
		return q.earlier, nil
	}
	if len(told) > exchange.MaxEarlier {
		return nil, fault.Newf(fault.Malformed, "the history has %d messages, and the limit is %d", len(told), exchange.MaxEarlier)
	}

	if q.input.SessionID != "" {
		kept, err := m.options.Turns.Turns(ctx, exchange.TurnFilter{
			Agent: owned.agent, Principal: owned.principal, ThreadID: thread, ByArrival: true, Limit: 1,
		})
		if err != nil || len(kept) > 0 {
			return nil, err
		}
	}

	var list []exchange.Earlier
	for _, one := range told {
		said := normalized.Message{Parts: []normalized.Part{normalized.Text(one.Content)}}
		if said.Clean(); len(said.Parts) > 0 {
			list = append(list, exchange.Earlier{Role: one.Role, Text: said.Parts[0].Content})
		}
	}
	return list, nil
}
