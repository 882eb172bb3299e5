package bridge

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
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
