package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CredentialExtension is the URI of the credential form of evidence, v0.2 (message contract, section 10).
const CredentialExtension = "https://mentionable.dev/ns/identity/v0.2" //nolint:gosec // an address, no secret

// Limits of credentials; one piece and all pieces are bounded like evidence.
const (
	MaxCredentials         = 4
	maxCredentialIDBytes   = 512
	maxCredentialNameBytes = 256
)

// Credential is a valid verifiable credential: context for presentation, never a principal and never a right.
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

// fitsProfile returns what of contexts, types and status is not that of the profile. A status list cannot be asked, so a
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

func (v *Validator) validateCredentials(ctx context.Context, offered Offered, recipient Recipient, validation *Validation) {
	if len(offered.Credentials) > MaxCredentials || totalBytes(offered.Credentials) > MaxEvidenceTotalBytes {
		validation.Rejected = append(validation.Rejected, refuse(CodeCredentialLimitExceeded, "").rejection("", "", ""))
		return
	}
	for _, raw := range offered.Credentials {
		p, refused := v.present(ctx, raw, offered, recipient)
		if refused != nil {
			validation.Rejected = append(validation.Rejected, refused.rejection(p.issuer, p.subject.ID, p.subject.Method))
			continue
		}
		validation.Credentials = append(validation.Credentials, Credential{
			Issuer: p.issuer, Subject: p.subject.ID, Method: p.subject.Method, Claims: p.claims, ValidUntil: *p.document.ValidUntil,
		})
	}
}

// present runs the steps of evidence in their order with the codes of the credential profile. Its result is never
// nil; of a credential without the right form it is empty.
func (v *Validator) present(ctx context.Context, raw json.RawMessage, offered Offered, recipient Recipient) (*presented, *refusal) {
	p, refused := v.checkCredentialShape(raw)
	if refused != nil {
		return &presented{}, refused
	}

	for _, step := range []func() *refusal{
		func() *refusal { return v.checkCredentialProfile(p) },
		func() *refusal { return v.checkCredentialTrust(p) },
		func() *refusal { return p.checkAddressee(recipient.Address, offered.Challenge) },
		func() *refusal { return p.checkCredentialTimes(v.now()) },
		func() *refusal { return v.checkCredentialProof(ctx, offered.Caller, p) },
		func() *refusal { return v.checkCredentialReplay(ctx, p) },
	} {
		if refused := step(); refused != nil {
			return p, refused
		}
	}

	return p, nil
}

func (v *Validator) checkCredentialShape(raw json.RawMessage) (*presented, *refusal) {
	if len(raw) > MaxEvidenceBytes {
		return nil, refuse(CodeCredentialLimitExceeded, "")
	}

	p, err := readCredential(raw)
	if err != nil {
		return nil, refuse(CodeCredentialMalformed, err.Error())
	}
	if name := p.tooLong(); name != "" {
		return nil, refuse(CodeCredentialLimitExceeded, name)
	}
	if found := p.checkForm(); found != nil {
		return nil, refuse(CodeCredentialMalformed, found.Error())
	}

	return p, nil
}

func (v *Validator) checkCredentialProfile(p *presented) *refusal {
	if problem := p.fitsProfile(); problem != "" {
		return refuse(CodeCredentialProfile, problem)
	}

	issuer, err := CanonicalIssuer(p.issuer)
	if err != nil || !strings.HasPrefix(issuer, didWeb) {
		return refuse(CodeCredentialIssuerMethod, p.issuer)
	}

	p.issuer = issuer
	proof := &p.proof
	if proof.Type != "DataIntegrityProof" || proof.Cryptosuite != "eddsa-jcs-2022" || proof.Purpose != "assertionMethod" {
		return refuse(CodeCredentialCryptosuite, proof.Type+", "+proof.Cryptosuite+", "+proof.Purpose)
	}
	return nil
}

func (v *Validator) checkCredentialTrust(p *presented) *refusal {
	covers := func(entry TrustedIssuer) bool { return entry.coversSubject(p.subject.Method, p.subject.ID) }
	if v.own[p.issuer] || !slices.ContainsFunc(v.trust.of(p.issuer, v.now()), covers) {
		return refuse(CodeCredentialUntrustedIssuer, "")
	}
	if !sameIssuer(p.controller(), p.issuer) {
		return refuse(CodeCredentialControllerMismatch, "the proof was made by "+p.proof.VerificationMethod)
	}
	return nil
}

func (p *presented) checkAddressee(address, challenge string) *refusal {
	switch {
	case address == "" || p.proof.Domain != address:
		return refuse(CodeCredentialDomainMismatch, p.proof.Domain)
	case challenge == "" || p.proof.Challenge != challenge:
		return refuse(CodeCredentialChallengeMismatch, p.proof.Challenge)
	}
	return nil
}

func (p *presented) checkCredentialTimes(now time.Time) *refusal {
	d, latest := &p.document, now.Add(clockSkew)
	switch {
	case d.ValidFrom.After(latest), p.proof.Created != nil && p.proof.Created.After(latest):
		return refuse(CodeCredentialNotYetValid, "")
	case !now.Before(p.forgotten()):
		return refuse(CodeCredentialExpired, d.ValidUntil.Format(timeFormat))
	case d.ValidUntil.Sub(d.ValidFrom.Time) > MaxAttestationLife:
		return refuse(CodeCredentialLimitExceeded, "lasts longer than 10 minutes")
	}
	return nil
}

// forgotten is when a copy would be refused for its age alone.
func (p *presented) forgotten() time.Time {
	end := p.document.ValidUntil.Time
	if p.proof.Expires != nil && p.proof.Expires.Before(end) {
		end = p.proof.Expires.Time
	}
	return end.Add(clockSkew)
}

func (v *Validator) checkCredentialProof(ctx context.Context, caller string, p *presented) *refusal {
	key, problem, detail := v.keyOf(ctx, caller, p.issuer, p.proof.VerificationMethod)
	if problem != keyGood {
		return refuse(credentialKeyCodes[problem], detail)
	}

	signed, err := integrityHash(p.canonical)
	if err != nil {
		return refuse(CodeCredentialMalformed, err.Error())
	}

	signature, err := decodeMultibase(p.proof.Value)
	if err != nil || !verifies(key, signed, signature) {
		return refuse(CodeCredentialInvalidSignature, "")
	}
	return nil
}

// integrityHash returns what an eddsa-jcs-2022 proof signs: the hash of the proof without its value, then the hash of the
// document without its proof (Data Integrity EdDSA Cryptosuites 1.0, section 3.3.4).
func integrityHash(canonical []byte) ([]byte, error) {
	var secured struct {
		Proof json.RawMessage `json:"proof"`
	}

	if err := json.Unmarshal(canonical, &secured); err != nil {
		return nil, err
	}

	configuration, err := withoutMember(secured.Proof, "", "proofValue")
	if err != nil {
		return nil, err
	}

	document, err := withoutMember(canonical, "", "proof")
	if err != nil {
		return nil, err
	}

	first, second := sha256.Sum256(configuration), sha256.Sum256(document)
	return append(first[:], second[:]...), nil
}

func (v *Validator) checkCredentialReplay(ctx context.Context, p *presented) *refusal {
	key := replayKey("credential", p.issuer, p.proof.Domain, p.proof.Challenge)
	first, err := v.replays.Once(ctx, key, p.forgotten())
	switch {
	case err != nil:
		return refuse(CodeCredentialReplayStoreFailed, err.Error())
	case !first:
		return refuse(CodeCredentialReplayed, "")
	case !v.now().Before(p.forgotten()):
		return refuse(CodeCredentialExpired, "while it was checked")
	}
	return nil
}
