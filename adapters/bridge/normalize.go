package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	mimeJSON         = "application/json"
	maxContextBytes  = 16 << 10 // of a client_context that is kept
	contextExtension = "dev.inbox.bridge"
)

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
}

// inbound makes the normalized message of a question, and what is kept beside it.
func (a *Adapter) inbound(ctx context.Context, q question, imported bool) (exchange.Inbound, error) {
	parts, err := a.parts(ctx, q.message)
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
		Original: q.original, Channel: ChannelName, Route: kept, FromAgent: q.chain != nil, Rejected: q.rejected,
	}
	in.Message.Sender.Profile = q.profile()
	return in, nil
}

// nativeID is the same for a repeat: that of the message at its product, or a new one where it has none. The principal of
// the sender stands behind it in the natural key, so nobody can burn the id of somebody else's message.
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
	if encoded := value.EncodeText(context); len(encoded) <= maxContextBytes {
		profile.Extensions = map[string]json.RawMessage{contextExtension: json.RawMessage(encoded)}
	}
	return &profile
}

// surfaceName is the source in a client_context (agent runtime contract, section 6.1).
func (q question) surfaceName() string {
	if q.surface == surfaceConnector {
		return contract.SourceChannel
	}
	return surfaceBridge
}

// maxReadable bounds names of outside that are kept as they are, in bytes; longer ones are kept as their hash.
const maxReadable = 200

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func hashOf(pieces ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(pieces, "\x00")))
	return hex.EncodeToString(sum[:])
}

// escaped writes a name of outside so that it can stand in a subject: no blanks, nothing that does not print. Separators
// stay, so that rules may name a beginning such as T123/.
func escaped(name string) string {
	if len(name) > maxReadable {
		return "sha256-" + hashOf(name)
	}
	return strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
}

// short keeps an id of outside readable where it is not too long.
func short(id string) string {
	if len(id) > maxReadable {
		return "sha256-" + hashOf(id)
	}
	return id
}

// address is local@domain; a local part that cannot stand in an address is replaced by a hash of the subject.
func (a *Adapter) address(local, subject string) string {
	if address, err := identity.ParseAddress(local + "@" + a.options.Domain); err == nil && address.Local == local {
		return address.String()
	}
	if address, err := identity.ParseAddress("bridged-" + hashOf(subject)[:24] + "@" + a.options.Domain); err == nil {
		return address.String()
	}
	return "@bridged@" + a.options.Domain
}

const (
	maxAttachments    = 32
	maxAttachmentName = 255
	mimeBytes         = "application/octet-stream"
)

// parts are the text and the files of a message. A file is an object with an address or with its bytes as base64; its
// members may have any of the names that products use. Nothing is fetched.
func (a *Adapter) parts(ctx context.Context, message contract.Message) ([]normalized.Part, error) {
	var parts []normalized.Part
	if message.Text != "" {
		parts = append(parts, normalized.Text(message.Text))
	}
	if len(message.Attachments) > maxAttachments {
		return nil, fault.InField("attachments", fmt.Sprintf("has more than %d files", maxAttachments))
	}
	for i, one := range message.Attachments {
		part, err := a.file(ctx, value.Assoc(one), fmt.Sprintf("attachments[%d]", i))
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func (a *Adapter) file(ctx context.Context, file map[string]any, field string) (normalized.Part, error) {
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
		return a.keep(ctx, part, encoded, field)
	}
	address := text(file, "url", "uri", "url_private", "href")
	if address == "" {
		return part, fault.InField(field, "needs url, or data_base64")
	}
	part.BytesRef = normalized.At(address)
	return part, nil
}

func (a *Adapter) keep(ctx context.Context, part normalized.Part, encoded, field string) (normalized.Part, error) {
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return part, fault.InField(field+".data_base64", "is no base64")
	}
	return part.Carrying(ctx, content, a.options.Blobs)
}
