package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// EvidenceExtension is the URI of the identity extension (message contract, section 10).
const EvidenceExtension = "https://mentionable.dev/ns/identity/v0.1"

// Methods that our own transports put into evidence. Method is an open string: compare, never enumerate.
const (
	MethodActivityPubSignature = "urn:mentionable:auth:ap-http-signature:v0.1"
	MethodActivityPubProof     = "urn:mentionable:auth:ap-object-proof:v0.1"
	MethodEmailDMARC           = "urn:mentionable:auth:email-dmarc:v0.1"
	MethodEmailDKIM            = "urn:mentionable:auth:email-dkim:v0.1"
	MethodA2AJWT               = "urn:mentionable:auth:a2a-jwt:v0.1"
	MethodA2AOAuth             = "urn:mentionable:auth:a2a-oauth:v0.1"
	MethodLocalAgent           = "urn:mentionable:auth:local-agent:v0.1"    // an agent of this very server
	MethodLocalOperator        = "urn:mentionable:auth:local-operator:v0.1" // the operator of this very server
)

// Assurance levels of the contract; other strings are allowed.
const (
	AssurancePlatform  = "platform"
	AssuranceDomain    = "domain"
	AssuranceAddress   = "address"
	AssuranceAgent     = "agent"
	AssuranceOAuth     = "oauth"
	AssuranceWallet    = "wallet"
	AssuranceDelegated = "delegated"
)

// Proof types of an Evidence.
const (
	ProofTransport         = "transport"
	ProofSignedAttestation = "signed-attestation"
	ProofBearerToken       = "bearer-token"
)

// Values of Proof.Addressed: what proves that the message was meant for the agent. A signature proves who wrote a text; everyone
// who has seen the text can send it on. Without one of these the evidence authorizes nothing, and the engine drops it.
const (
	AddressedAudience  = "audience"         // a token whose audience is the agent (RFC 7519, section 4.1.3)
	AddressedRequest   = "request"          // the sender's own request: its signature covers our host, or its token is ours
	AddressedRecipient = "signed-recipient" // To, Cc or the audience of a note, covered by the sender's signature
	AddressedEnvelope  = "envelope"         // a server of the sender's domain named the agent in the SMTP envelope (RFC 7208)
	AddressedLocal     = "local"            // this server made the message itself
)

// Addressed returns what proves that the message was meant for this agent; empty = nothing does. A signed attestation is for the
// audience that it names, which the Validator has compared.
func (e *Evidence) Addressed() string {
	if e.Proof.Type == ProofSignedAttestation {
		return AddressedAudience
	}
	return e.Proof.Addressed
}

// Evidence records what was already verified about a sender. It is not a login
// (message contract, section 10). Everything from Assurance on is left out where a history keeps only who spoke.
type Evidence struct {
	ID         string          `json:"id,omitempty"`
	Subject    string          `json:"subject"`
	Issuer     string          `json:"issuer"`
	Method     string          `json:"method"`
	Assurance  string          `json:"assurance,omitempty"`
	Audience   Audience        `json:"audience,omitempty"`
	IssuedAt   Time            `json:"issued_at,omitzero"`
	NotBefore  *Time           `json:"not_before,omitempty"`
	ExpiresAt  *Time           `json:"expires_at,omitempty"`
	OnBehalfOf []string        `json:"on_behalf_of,omitempty"`
	Claims     json.RawMessage `json:"claims,omitempty"` // an object: context, never authorization
	Source     *Source         `json:"source,omitempty"`
	Proof      Proof           `json:"proof,omitzero"`

	// Extra holds the keys of a newer contract: an attestation signs them, so they travel with it.
	Extra map[string]json.RawMessage `json:"-"`
}

// Source says by which way the evidence came; context only.
type Source struct {
	Transport       string `json:"transport,omitempty"`
	TransportModule string `json:"transport_module,omitempty"`
	Connector       string `json:"connector,omitempty"`
	Channel         string `json:"channel,omitempty"`
}

// Proof is one of the three proof types; fields of the other types stay empty.
type Proof struct {
	Type             string `json:"type"`
	VerifiedBy       string `json:"verified_by,omitempty"`      // transport, bearer-token
	Addressed        string `json:"addressed,omitempty"`        // transport, bearer-token: one of the Addressed constants
	KeyID            string `json:"key_id,omitempty"`           // transport
	Alg              string `json:"alg,omitempty"`              // signed-attestation
	Kid              string `json:"kid,omitempty"`              // signed-attestation
	Value            string `json:"value,omitempty"`            // signed-attestation
	Canonicalization string `json:"canonicalization,omitempty"` // signed-attestation
	TokenID          string `json:"token_id,omitempty"`         // bearer-token: jti or hash, never the token
}

// Audience is a string or a list on the wire and always a list here.
type Audience []string

// Time is an instant as the contract writes it: UTC with milliseconds. A time without zone is refused on read.
type Time struct{ time.Time }

// plainEvidence is Evidence without its methods, for encoding/json.
type plainEvidence Evidence

// evidenceKeys are the keys of this contract; all others are Extra.
var evidenceKeys = []string{
	"id", "subject", "issuer", "method", "assurance", "audience", "issued_at", "not_before", "expires_at",
	"on_behalf_of", "claims", "source", "proof",
}

// MarshalJSON writes the keys of the contract, then Extra in the order of its keys.
func (e Evidence) MarshalJSON() ([]byte, error) {
	body, err := json.Marshal(plainEvidence(e))
	if err != nil || len(e.Extra) == 0 {
		return body, err
	}
	return AppendMembers(body, e.Extra)
}

// UnmarshalJSON reads an object and keeps the keys that it does not know in Extra.
func (e *Evidence) UnmarshalJSON(data []byte) error {
	var plain plainEvidence
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	*e = Evidence(plain)
	extra, err := UnknownMembers(data, evidenceKeys)
	e.Extra = extra
	return err
}

// UnknownMembers returns the members of a JSON object whose keys are not listed; nil when there are none.
func UnknownMembers(object []byte, known []string) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, fmt.Errorf("must be an object: %w", err)
	}
	maps.DeleteFunc(members, func(key string, _ json.RawMessage) bool { return slices.Contains(known, key) })
	if len(members) == 0 {
		return nil, nil
	}
	return members, nil
}

// AppendMembers writes more members, ordered by key, into a JSON object that has at least one already.
func AppendMembers(object []byte, members map[string]json.RawMessage) ([]byte, error) {
	object = bytes.TrimSuffix(object, []byte{'}'})
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if !json.Valid(members[key]) {
			return nil, fmt.Errorf("%s: not JSON", key)
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		object = append(append(append(append(object, ','), name...), ':'), members[key]...)
	}
	return append(object, '}'), nil
}

// Sizes of evidence in bytes (message contract, section 10). Subjects and issuers may be IRIs and get their length.
const (
	MaxEvidence           = 16       // pieces with one message
	MaxEvidenceBytes      = 32 << 10 // one piece as JSON
	MaxEvidenceTotalBytes = 64 << 10 // all pieces of one message as JSON

	maxNameBytes  = 256
	maxIDBytes    = 512
	maxIRIBytes   = 2048
	maxProofBytes = 2048
	maxListed     = 16
)

// ShapeError says which field of a document breaks which rule.
type ShapeError struct {
	Field    string // path from the document, such as proof.type
	Rule     string // what the field must be
	TooLarge bool   // a size limit and not a form
}

// Error returns "field: rule".
func (e *ShapeError) Error() string { return e.Field + ": " + e.Rule }

// CheckShape returns the first rule of shape and size that the evidence breaks, or nil. It is the first of the steps of
// section 10; it says nothing about whether the evidence is valid.
func (e *Evidence) CheckShape() *ShapeError {
	return firstOf(e.checkNames(), e.checkAudience(), e.checkTimes(), e.checkContext(), e.checkProof(), e.checkSize())
}

// CheckReference is CheckShape for evidence of which only the subject, issuer and method were kept.
func (e *Evidence) CheckReference() *ShapeError {
	if found := firstOf(
		token("subject", e.Subject, maxIRIBytes, true),
		token("issuer", e.Issuer, maxIRIBytes, true),
		token("method", e.Method, maxNameBytes, true),
	); found != nil {
		return found
	}
	return e.checkSize()
}

func (e *Evidence) checkNames() *ShapeError {
	return firstOf(
		token("id", e.ID, maxIDBytes, e.Proof.Type == ProofSignedAttestation),
		token("subject", e.Subject, maxIRIBytes, true),
		token("issuer", e.Issuer, maxIRIBytes, true),
		token("method", e.Method, maxNameBytes, true),
		token("assurance", e.Assurance, maxNameBytes, true),
	)
}

func (e *Evidence) checkAudience() *ShapeError {
	if len(e.Audience) == 0 {
		return &ShapeError{Field: "audience", Rule: "must name whom the evidence is for"}
	}
	return firstOf(tokens("audience", e.Audience), tokens("on_behalf_of", e.OnBehalfOf))
}

func (e *Evidence) checkTimes() *ShapeError {
	switch {
	case e.IssuedAt.IsZero():
		return &ShapeError{Field: "issued_at", Rule: "is required"}
	case e.ExpiresAt != nil && e.ExpiresAt.Before(e.IssuedAt.Time):
		return &ShapeError{Field: "expires_at", Rule: "must not be before issued_at"}
	case e.ExpiresAt != nil && e.NotBefore != nil && e.ExpiresAt.Before(e.NotBefore.Time):
		return &ShapeError{Field: "expires_at", Rule: "must not be before not_before"}
	case e.ExpiresAt == nil && e.Proof.Type == ProofSignedAttestation:
		return &ShapeError{Field: "expires_at", Rule: "is required with a signed attestation"}
	}
	return nil
}

func (e *Evidence) checkContext() *ShapeError {
	if claims := bytes.TrimSpace(e.Claims); len(claims) > 0 && (claims[0] != '{' || !json.Valid(claims)) {
		return &ShapeError{Field: "claims", Rule: "must be a JSON object"}
	}
	if e.Source == nil {
		return nil
	}
	return firstOf(
		token("source.transport", e.Source.Transport, maxNameBytes, false),
		token("source.transport_module", e.Source.TransportModule, maxNameBytes, false),
		token("source.connector", e.Source.Connector, maxIRIBytes, false),
		token("source.channel", e.Source.Channel, maxIRIBytes, false),
	)
}

func (e *Evidence) checkProof() *ShapeError {
	vouched, signed := false, false
	switch e.Proof.Type {
	case ProofTransport, ProofBearerToken:
		vouched = true
	case ProofSignedAttestation:
		signed = true
	default:
		return &ShapeError{Field: "proof.type", Rule: "must be transport, signed-attestation or bearer-token"}
	}

	return firstOf(
		token("proof.verified_by", e.Proof.VerifiedBy, maxProofBytes, vouched),
		token("proof.addressed", e.Proof.Addressed, maxNameBytes, false),
		token("proof.key_id", e.Proof.KeyID, maxProofBytes, false),
		token("proof.alg", e.Proof.Alg, maxNameBytes, signed),
		token("proof.kid", e.Proof.Kid, maxProofBytes, signed),
		token("proof.value", e.Proof.Value, maxProofBytes, signed),
		token("proof.canonicalization", e.Proof.Canonicalization, maxNameBytes, false),
		token("proof.token_id", e.Proof.TokenID, maxProofBytes, false),
	)
}

func (e *Evidence) checkSize() *ShapeError {
	if e.Size() > MaxEvidenceBytes {
		return &ShapeError{Rule: "is over 32 KiB as JSON", TooLarge: true}
	}
	return nil
}

// Size returns the bytes of the evidence as JSON, or an upper bound when even that is small. Evidence that cannot be
// encoded counts as over every limit.
func (e *Evidence) Size() int {
	if bound := e.sizeBound(); bound <= smallEvidence {
		return bound
	}
	body, err := json.Marshal(e)
	if err != nil {
		return MaxEvidenceTotalBytes + 1
	}
	return len(body)
}

// smallEvidence is a size so far below the limits (even sixteen times) that it need not be known exactly.
const smallEvidence = MaxEvidenceTotalBytes / MaxEvidence

// sizeBound adds up what is written: every key, and every text as it is escaped at worst.
func (e *Evidence) sizeBound() int {
	if len(e.Extra) > 0 {
		return smallEvidence + 1
	}

	const keysAndTimes = 512
	size := keysAndTimes + len(e.Claims)
	for _, text := range [...]string{
		e.ID, e.Subject, e.Issuer, e.Method, e.Assurance, e.Proof.Type, e.Proof.VerifiedBy, e.Proof.KeyID, e.Proof.Alg, e.Proof.Kid,
		e.Proof.Value, e.Proof.Canonicalization, e.Proof.TokenID,
	} {
		size += escapedBound(text)
	}

	if e.Source != nil {
		const keys = 96
		size += keys + escapedBound(e.Source.Transport) + escapedBound(e.Source.TransportModule) +
			escapedBound(e.Source.Connector) + escapedBound(e.Source.Channel)
	}

	for _, list := range [...][]string{e.Audience, e.OnBehalfOf} {
		for _, text := range list {
			size += escapedBound(text) + len(`"",`)
		}
	}

	return size
}

// escapedBound is the most that a text measures in JSON: letters, digits and the usual marks as they are, everything
// else as \u00XX.
func escapedBound(text string) int {
	size := 0
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			size += 5
		}
	}
	return size + len(text)
}

func firstOf(found ...*ShapeError) *ShapeError {
	for _, f := range found {
		if f != nil {
			return f
		}
	}
	return nil
}

// token checks a short machine-readable text: its length, valid UTF-8 and no control characters.
func token(field, text string, limit int, required bool) *ShapeError {
	switch {
	case text == "" && required:
		return &ShapeError{Field: field, Rule: "is required"}
	case len(text) > limit:
		return &ShapeError{Field: field, Rule: "is too long"}
	case !utf8.ValidString(text):
		return &ShapeError{Field: field, Rule: "must be valid UTF-8"}
	case strings.ContainsFunc(text, unicode.IsControl):
		return &ShapeError{Field: field, Rule: "must not contain control characters"}
	}
	return nil
}

func tokens(field string, list []string) *ShapeError {
	if len(list) > maxListed {
		return &ShapeError{Field: field, Rule: "has more than 16 entries"}
	}
	for _, text := range list {
		if found := token(field, text, maxIRIBytes, true); found != nil {
			return found
		}
	}
	return nil
}
