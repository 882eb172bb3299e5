// Package normalized is the contract between the three networks and an agent: one message in, one response out,
// whatever protocol carried them. It depends on the standard library, identity, policypart and the error type of
// internal/fault only, so that an agent author can read it alone. It does no input or output.
package normalized

import (
	"encoding/json"

	"inbox/identity"
	"inbox/policypart"
)

// Values of Message.ReceivedVia. They serve telemetry, persistence keys and adapters' logs, never business logic.
const (
	ViaActivityPub = "activitypub"
	ViaA2A         = "a2a"
	ViaEmail       = "email"
)

// Message is one inbound message (message contract, section 1).
type Message struct {
	ID                    string                 `json:"id"`        // the protocol's own id
	ThreadID              string                 `json:"thread_id"` // conversation, in the protocol's own terms
	InReplyTo             string                 `json:"in_reply_to,omitempty"`
	Sender                Sender                 `json:"sender"`
	Recipient             string                 `json:"recipient"` // one agent, @agent@domain
	Parts                 []Part                 `json:"parts"`
	History               []HistoricalMessage    `json:"history,omitempty"` // oldest first, trimmed, without this message
	RecipientCapabilities RecipientCapabilities  `json:"recipient_capabilities"`
	ReceivedVia           string                 `json:"received_via"`
	ReceivedAt            identity.Time          `json:"received_at"` // our clock
	Raw                   Raw                    `json:"raw"`
	PolicyResolution      *policypart.Resolution `json:"policy_resolution,omitempty"`
	ReceivedTrace         *Response              `json:"received_trace,omitempty"`
	Surface               *Surface               `json:"surface,omitempty"`

	unknown members // keys of a newer contract, kept in stored and forwarded documents
}

// Raw points at the native original: activity JSON, A2A request or RFC 5322 bytes. It is stored once and read by
// its own adapter only; it is never put into a prompt and never logged.
type Raw struct {
	Ref       string `json:"ref"` // sha256:<lower-case hex>
	MediaType string `json:"media_type"`
}

// Values of Sender.AuthMethod.
const (
	AuthActivityPubSignature = "ap-http-signature"
	AuthActivityPubProof     = "ap-object-integrity-proof"
	AuthA2AJWT               = "a2a-jwt"
	AuthA2AOAuth             = "a2a-oauth"
	AuthEmailDKIM            = "email-dkim"
	AuthEmailDMARC           = "email-dmarc"
	AuthNone                 = "none"
)

// Sender is who speaks (message contract, section 2). Agents authorize on Identities alone.
type Sender struct {
	Address     string              `json:"address"` // canonical @user@domain
	DisplayName string              `json:"display_name,omitempty"`
	Profile     *SenderProfile      `json:"profile,omitempty"` // context, never authorization
	AuthMethod  string              `json:"auth_method"`
	Verified    bool                `json:"verified"` // the transport's own proof was checked here; authorizes nothing alone
	KeyID       string              `json:"key_id,omitempty"`
	Identities  []identity.Evidence `json:"identities,omitempty"`
}

// Principal is the key under which the sender's rights and message ids are kept: the issuer and subject of the
// first evidence, or the bare address marked as unproven, so that a stranger can never take a verified sender's id.
func (s Sender) Principal() string {
	if len(s.Identities) == 0 {
		return "unverified " + s.Address
	}
	return s.Identities[0].Issuer + " " + s.Identities[0].Subject
}

// SenderProfile is platform data about the sender: an avatar, an attribution line, a language.
type SenderProfile struct {
	DisplayName     string                     `json:"display_name,omitempty"`
	Username        string                     `json:"username,omitempty"`
	URL             string                     `json:"url,omitempty"`
	Avatar          *Image                     `json:"avatar,omitempty"`
	Locale          string                     `json:"locale,omitempty"`   // BCP 47
	Timezone        string                     `json:"timezone,omitempty"` // IANA
	Provider        string                     `json:"provider,omitempty"`
	ProviderSubject string                     `json:"provider_subject,omitempty"`
	FetchedAt       *identity.Time             `json:"fetched_at,omitempty"`
	Extensions      map[string]json.RawMessage `json:"extensions,omitempty"` // namespace → object
}

// Image is a picture by URL; it is never fetched on receipt.
type Image struct {
	URL      string `json:"url"`
	MIMEType string `json:"mime_type,omitempty"`
	Width    int    `json:"width,omitempty"`
	Height   int    `json:"height,omitempty"`
}

// Roles of a HistoricalMessage. RoleAssistant is this agent; every other speaker is RoleUser.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// HistoricalMessage is one earlier turn of the thread (message contract, section 4).
type HistoricalMessage struct {
	ID        string        `json:"id,omitempty"`
	Role      string        `json:"role"`
	Sender    Sender        `json:"sender"`
	Parts     []Part        `json:"parts"`
	Timestamp identity.Time `json:"timestamp"`
}
