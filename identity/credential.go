package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// CredentialExtension is the URI of the credential form of evidence, v0.2 (message contract, section 10).
const CredentialExtension = "https://mentionable.dev/ns/identity/v0.2" //nolint:gosec // an address, no secret

// Limits of credentials; one piece and all pieces are bounded like evidence.
const (
	MaxCredentials         = 4
	maxCredentialIDBytes   = 512
	maxCredentialNameBytes = 256
)

// Credential is a believed verifiable credential: context for presentation, never a principal and never a right.
type Credential struct {
	Issuer     string          `json:"issuer"` // canonical did:web
	Subject    string          `json:"subject"`
	Method     string          `json:"method"`
	Claims     json.RawMessage `json:"claims"` // credentialSubject without id and method, an object
	ValidUntil Time            `json:"valid_until"`
}

// The profile, in canonical form. No context is ever fetched: these two are known, and others are refused.
//
//nolint:gosec // addresses and names of types hold no secret
const (
	credentialContexts = `["https://www.w3.org/ns/credentials/v2","https://mentionable.dev/ns/identity/v0.2/context.jsonld"]`
	credentialTypes    = `["VerifiableCredential","PlatformIdentityCredential"]`
)

// writtenCredential is a credential as it is written (Verifiable Credentials Data Model 2.0).
type writtenCredential struct {
	Context    json.RawMessage `json:"@context"`
	ID         string          `json:"id"`
	Type       json.RawMessage `json:"type"`
	Issuer     json.RawMessage `json:"issuer"`
	ValidFrom  *Time           `json:"validFrom"`
	ValidUntil *Time           `json:"validUntil"`
	Subject    json.RawMessage `json:"credentialSubject"`
	Status     json.RawMessage `json:"credentialStatus"`
	Proof      json.RawMessage `json:"proof"`
}

// writtenProof is its proof (Verifiable Credential Data Integrity 1.0, section 2.1).
type writtenProof struct {
	Context            json.RawMessage `json:"@context"`
	Type               string          `json:"type"`
	Cryptosuite        string          `json:"cryptosuite"`
	Purpose            string          `json:"proofPurpose"`
	VerificationMethod string          `json:"verificationMethod"`
	Created            *Time           `json:"created"`
	Expires            *Time           `json:"expires"`
	Domain             string          `json:"domain"`
	Challenge          string          `json:"challenge"`
	Value              string          `json:"proofValue"`
}

type writtenSubject struct {
	ID     string `json:"id"`
	Method string `json:"method"`
	Name   string `json:"name"`
}

// presented is one credential on its way through the steps.
type presented struct {
	canonical []byte
	document  writtenCredential
	proof     writtenProof
	subject   writtenSubject
	claims    json.RawMessage
	issuer    string // as written, canonical once it is known to be a did:web
	name      string // of the issuer
}

var (
	credentialNames = []string{
		"@context", "id", "type", "issuer", "validFrom", "validUntil", "credentialSubject", "credentialStatus", "proof",
	}
	credentialProofNames = []string{
		"@context", "type", "cryptosuite", "proofPurpose", "verificationMethod", "created", "expires", "domain", "challenge", "proofValue",
	}
	credentialSubjectNames = []string{"id", "method", "name"}
)

func readCredential(raw []byte) (*presented, error) {
	canonical, err := canonicalObject(raw)
	if err != nil {
		return nil, err
	}
	p := &presented{canonical: canonical}
	if err := decodeExact(canonical, &p.document, credentialNames...); err != nil {
		return nil, err
	}
	if err := decodeExact(p.document.Proof, &p.proof, credentialProofNames...); err != nil {
		return nil, fmt.Errorf("proof: %w", err)
	}
	if err := decodeExact(p.document.Subject, &p.subject, credentialSubjectNames...); err != nil {
		return nil, fmt.Errorf("credentialSubject: %w", err)
	}
	if err := p.readIssuer(); err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	return p, p.readClaims()
}

// readIssuer takes the id alone or an object with id and name.
func (p *presented) readIssuer() error {
	if json.Unmarshal(p.document.Issuer, &p.issuer) == nil {
		return nil
	}
	var object struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	err := decodeExact(p.document.Issuer, &object, "id", "name")
	p.issuer, p.name = object.ID, object.Name
	return err
}

func (p *presented) readClaims() error {
	claims, err := withoutMember(p.document.Subject, "", "id")
	if err != nil {
		return err
	}
	p.claims, err = withoutMember(claims, "", "method")
	return err
}

// checkForm returns what a required member lacks.
func (p *presented) checkForm() *ShapeError {
	d, proof := &p.document, &p.proof
	if d.ValidFrom == nil || d.ValidUntil == nil || d.ValidUntil.Before(d.ValidFrom.Time) {
		return &ShapeError{Field: "validUntil", Rule: "must be there and not before validFrom"}
	}
	return firstOf(
		token("id", d.ID, maxIRIBytes, false),
		token("issuer", p.issuer, maxIRIBytes, true),
		token("credentialSubject.id", p.subject.ID, maxIRIBytes, true),
		token("credentialSubject.method", p.subject.Method, maxIRIBytes, true),
		token("proof.verificationMethod", proof.VerificationMethod, MaxEvidenceBytes, true),
		token("proof.domain", proof.Domain, MaxEvidenceBytes, true),
		token("proof.challenge", proof.Challenge, MaxEvidenceBytes, true),
		token("proof.proofValue", proof.Value, MaxEvidenceBytes, true),
	)
}

// tooLong returns the first member over its length (message contract, section 10).
func (p *presented) tooLong() string {
	for _, text := range []struct {
		name, value string
		limit       int
	}{
		{"id", p.document.ID, maxCredentialIDBytes},
		{"issuer", p.issuer, maxCredentialIDBytes},
		{"credentialSubject.id", p.subject.ID, maxCredentialIDBytes},
		{"credentialSubject.method", p.subject.Method, maxCredentialNameBytes},
		{"credentialSubject.name", p.subject.Name, maxCredentialNameBytes},
		{"issuer.name", p.name, maxCredentialNameBytes},
		{"proof.verificationMethod", p.proof.VerificationMethod, maxProofBytes},
		{"proof.domain", p.proof.Domain, maxProofBytes},
		{"proof.challenge", p.proof.Challenge, maxProofBytes},
		{"proof.proofValue", p.proof.Value, maxProofBytes},
	} {
		if len(text.value) > text.limit {
			return text.name
		}
	}
	return ""
}

// fitsProfile says what of contexts, types and status is not that of the profile. A status list cannot be asked, so a
// credential that wants it asked is none for us.
func (p *presented) fitsProfile() (problem string) {
	switch {
	case string(p.document.Context) != credentialContexts:
		return "@context"
	case !bytes.Equal(p.proof.Context, p.document.Context):
		return "proof.@context"
	case string(p.document.Type) != credentialTypes:
		return "type"
	case len(p.document.Status) > 0 && string(p.document.Status) != "null":
		return "credentialStatus"
	}
	return ""
}

// controller returns the DID of the verification method.
func (p *presented) controller() string {
	did, _, found := strings.Cut(p.proof.VerificationMethod, "#")
	if !found {
		return ""
	}
	return did
}
