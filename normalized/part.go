package normalized

import (
	"encoding/json"

	"inbox/identity"
	"inbox/policypart"
)

// Kinds of a Part.
const (
	PartText     = "text"
	PartFile     = "file"
	PartLink     = "link"
	PartArtifact = "artifact"
	PartToolCall = "tool_call"
	PartPolicy   = "policy"
)

// Media types of a text part.
const (
	MIMEPlain    = "text/plain"
	MIMEMarkdown = "text/markdown"
	MIMEHTML     = "text/html"
)

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

	Policy *policypart.Part // policy

	whole   json.RawMessage // a part of a kind that we do not know, kept byte for byte
	unknown members         // keys of a newer contract, kept in stored and forwarded documents
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
	ExpiresAt  *identity.Time `json:"expires_at,omitempty"`  // url
	Algo       string         `json:"algo,omitempty"`        // content_addressed: sha256
	Digest     string         `json:"digest,omitempty"`      // content_addressed: lower-case hex
}

// Text makes a plain text part.
func Text(content string) Part { return Part{Kind: PartText, MIME: MIMEPlain, Content: content} }

// Markdown makes a markdown text part.
func Markdown(content string) Part { return Part{Kind: PartText, MIME: MIMEMarkdown, Content: content} }
