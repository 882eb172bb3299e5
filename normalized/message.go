// Package normalized is the contract between the three networks and an agent: one message in, one response out,
// whatever protocol carried them. It depends on the standard library, identity, policypart and the error type of
// internal/fault only, so that an agent author can read it alone. It does no input or output.
package normalized

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"

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

// Raw points at the native original: activity JSON, A2A request or RFC 5322 bytes. It is stored once; it is never put into a prompt
// and never logged.
type Raw struct {
	Ref       string `json:"ref"` // sha256:<lower-case hex>
	MediaType string `json:"media_type"`

	// URL opens the bytes for a while. Only the document of a program outside has it; it is never stored.
	URL string `json:"url,omitempty"`
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
	Address     identity.StatedAddress `json:"address"` // canonical @user@domain; to be shown, see identity.StatedAddress
	DisplayName string                 `json:"display_name,omitempty"`
	Profile     *SenderProfile         `json:"profile,omitempty"` // context, never authorization
	AuthMethod  string                 `json:"auth_method"`
	Verified    bool                   `json:"verified"` // the transport's own proof was checked here; authorizes nothing alone
	KeyID       string                 `json:"key_id,omitempty"`
	Identities  []identity.Evidence    `json:"identities,omitempty"`

	// CarriedBy is the address of the caller that brought the message of someone else, such as a connector; empty = the sender
	// came without one.
	CarriedBy identity.StatedAddress `json:"carried_by,omitzero"`
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
	Parts     []Part        `json:"parts"` // of all segments, one after the other
	Timestamp identity.Time `json:"timestamp"`

	// Segments are the messages that were merged into the turn, oldest first; empty = the turn is a single message. They say who
	// wrote which parts: Sender has a proof only if it is the sender of all of them.
	Segments []Segment `json:"segments,omitempty"`
}

// Segment is one message of a turn of the history, with its sender and what proves them.
type Segment struct {
	ID        string        `json:"id,omitempty"`
	Sender    Sender        `json:"sender"`
	Parts     []Part        `json:"parts"`
	Timestamp identity.Time `json:"timestamp"`
}

// Messages returns the segments of a turn. A turn that is a single message has one.
func (h *HistoricalMessage) Messages() []Segment {
	if len(h.Segments) > 0 {
		return h.Segments
	}
	return []Segment{{ID: h.ID, Sender: h.Sender, Parts: h.Parts, Timestamp: h.Timestamp}}
}

// Kinds of a Part.
const (
	PartText     = "text"
	PartFile     = "file"
	PartLink     = "link"
	PartArtifact = "artifact"
	PartToolCall = "tool_call"
	PartPolicy   = "policy"
)

// ArtifactData is the ArtifactType of data: a JSON value that is no file, as A2A's data parts are (message contract, section 3).
const ArtifactData = "data"

// Media types of a text part.
const (
	MIMEPlain    = "text/plain"
	MIMEMarkdown = "text/markdown"
	MIMEHTML     = "text/html"
)

// maxTextMIME bounds the declared type of a text, in bytes.
const maxTextMIME = 255

// TextMIME returns which of the three media types of a text a declared one means, and whether it means one of them. The type may be written
// in any case, and parameters are read over: the charset, because the text is Unicode in every document of the contract, and all others,
// because none changes what the text says (message contract, section 3).
func TextMIME(declared string) (text string, known bool) {
	switch declared {
	case MIMEPlain, MIMEMarkdown, MIMEHTML:
		return declared, true
	}
	if len(declared) > maxTextMIME {
		return "", false
	}
	base, _, err := mime.ParseMediaType(declared)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", false
	}
	switch base {
	case MIMEPlain, MIMEMarkdown, MIMEHTML:
		return base, true
	}
	return "", false
}

// Part is one piece of a message (message contract, section 3). Kind decides which fields are meant; the others
// stay empty and are neither written nor read.
type Part struct {
	Kind string

	MIME    string // text, file, artifact
	Content string // text
	New     string // text: content without quoted older messages and signature; empty = all of content is new

	BytesRef     *BytesRef // file, artifact
	Name         string    // file, artifact, tool_call
	Size         int64     // file, artifact: bytes; 0 = unknown
	Alt          string    // file, artifact: description of an image
	ContentID    string    // file, artifact: by which a text of the same message refers to it, as in cid:… (RFC 2392)
	ArtifactType string    // artifact
	ID           string    // artifact, tool_call
	Description  string    // artifact, link

	URL   string // link
	Title string // link

	Args   json.RawMessage // tool_call
	Result json.RawMessage // tool_call: exactly one of Result and Error, or neither while it runs
	Error  *ToolError      // tool_call

	Metadata json.RawMessage // tool_call: an object beside the result, with its citations

	Citation *Citation // text, link: the part shows where something in the answer comes from

	Policy *policypart.Part // policy

	whole   json.RawMessage // a part of a kind that we do not know, kept byte for byte
	unknown members         // keys of a newer contract, kept in stored and forwarded documents
}

// OnlyText reports whether the part is a text and has nothing else that could be read.
func (p *Part) OnlyText() bool {
	return p.Kind == PartText && p.Citation == nil && p.BytesRef == nil && len(p.whole) == 0 && len(p.unknown) == 0
}

// ToolError is the failure of a tool call.
type ToolError struct {
	Message string `json:"message"`
}

// Kinds of a BytesRef.
const (
	BytesInline           = "inline"
	BytesURL              = "url"
	BytesContentAddressed = "content_addressed"
)

// MaxInlineBytes is the largest decoded size of inline bytes; larger content goes to the blob store.
const MaxInlineBytes = 256 << 10

// BytesRef says where the bytes of a file are.
type BytesRef struct {
	Kind       string         `json:"kind"`
	DataBase64 string         `json:"data_base64,omitempty"` // inline
	URL        string         `json:"url,omitempty"`         // url (https), content_addressed (optional)
	ExpiresAt  *identity.Time `json:"expires_at,omitempty"`  // of the url
	Algo       string         `json:"algo,omitempty"`        // content_addressed: sha256
	Digest     string         `json:"digest,omitempty"`      // content_addressed: lower-case hex
}

const mimeJSON = "application/json"

// Data frames a JSON value that is no file; Carrying puts it in.
func Data() Part { return Part{Kind: PartArtifact, ArtifactType: ArtifactData, MIME: mimeJSON} }

// IsData reports whether the part is data rather than a file: an artifact that says so, or one of JSON without a name and a type.
func (p *Part) IsData() bool {
	return p.Kind == PartArtifact && (p.ArtifactType == ArtifactData || p.ArtifactType == "" && p.Name == "" && p.MIME == mimeJSON)
}

// Text makes a plain text part.
func Text(content string) Part { return Part{Kind: PartText, MIME: MIMEPlain, Content: content} }

// Markdown makes a markdown text part.
func Markdown(content string) Part { return Part{Kind: PartText, MIME: MIMEMarkdown, Content: content} }

// Keeper keeps bytes and returns their digest, lower-case hex SHA-256.
type Keeper interface {
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
}

// Carrying returns a copy of a file's part with its content and size: inline up to MaxInlineBytes, kept elsewhere above
// (message contract, section 3). Errors are those of the keeper.
func (p Part) Carrying(ctx context.Context, content []byte, keeper Keeper) (Part, error) {
	p.Size = int64(len(content))
	if len(content) <= MaxInlineBytes {
		p.BytesRef = Inline(content)
		return p, nil
	}

	digest, _, err := keeper.Put(ctx, bytes.NewReader(content))
	if err != nil {
		return p, fmt.Errorf("keep a file: %w", err)
	}

	p.BytesRef = Stored(digest)
	return p, nil
}

// Limits bound a message or a response. Sizes are bytes. The zero value stands for DefaultLimits; to change one limit
// begin with those.
type Limits struct {
	ID       int // id, thread_id, in_reply_to, key_id and urls
	Address  int // of sender, recipient, to, cc
	Name     int // display and file names, tool names, media types
	Parts    int // of a message, a response or a turn of the history
	TextPart int // one text part
	Text     int // all text parts of a message or a response
	History  int // turns

	Identities int // pieces of evidence
	Evidence   int // all of them as JSON

	Inline   int // decoded inline bytes of one file
	ToolJSON int // args and result of a tool call, each
	Trace    int // received_trace as JSON
	Document int // the whole as JSON, without inline bytes
	Depth    int // nesting of a document from outside

	Recipients int // to and cc together
	Metadata   int // keys and values of a response's metadata together

	AllowHTTP bool // development (federation.allow_private): files may be at plain http addresses
}

// DefaultLimits are the limits of the message contract, section 1, and where it names none, ours.
func DefaultLimits() Limits {
	return Limits{
		ID: 2048, Address: 320, Name: 1 << 10, Parts: 64, TextPart: 1 << 20, Text: 4 << 20, History: 200,
		Identities: 16, Evidence: 64 << 10,
		Inline: MaxInlineBytes, ToolJSON: 64 << 10, Trace: 256 << 10, Document: 8 << 20, Depth: 64,
		Recipients: 64, Metadata: 16 << 10,
	}
}

// orDefault replaces the zero value.
func (l Limits) orDefault() Limits {
	if l == (Limits{}) {
		return DefaultLimits()
	}
	return l
}

// documentWithBytes is the most that a document may measure before it is read: everything and its inline bytes.
func (l Limits) documentWithBytes() int {
	return l.Document + l.Parts*base64Size(l.Inline)
}

func base64Size(decoded int) int { return (decoded + 2) / 3 * 4 }
