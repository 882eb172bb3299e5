package identity

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
// section 10; it says nothing about whether the evidence may be believed.
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
