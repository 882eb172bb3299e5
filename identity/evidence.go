package identity

import (
	"encoding/json"
	"time"
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
	MethodLocalAgent           = "urn:mentionable:auth:local-agent:v0.1" // an agent of this very server
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

// Evidence records what somebody already verified about a sender. It is not a login
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
