package identity

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

func (v *Validator) believeCredentials(ctx context.Context, offered Offered, recipient Recipient, belief *Belief) {
	if len(offered.Credentials) > MaxCredentials || totalBytes(offered.Credentials) > MaxEvidenceTotalBytes {
		belief.Rejected = append(belief.Rejected, refuse(CodeCredentialLimitExceeded, "").rejection("", "", ""))
		return
	}
	for _, raw := range offered.Credentials {
		p, refused := v.present(ctx, raw, offered.Challenge, recipient)
		if refused != nil {
			belief.Rejected = append(belief.Rejected, refused.rejection(p.issuer, p.subject.ID, p.subject.Method))
			continue
		}
		belief.Credentials = append(belief.Credentials, Credential{
			Issuer: p.issuer, Subject: p.subject.ID, Method: p.subject.Method, Claims: p.claims, ValidUntil: *p.document.ValidUntil,
		})
	}
}

// present runs the steps of evidence in their order with the codes of the credential profile. What it gives is never
// nil; of a credential without the right form it is empty.
func (v *Validator) present(ctx context.Context, raw json.RawMessage, challenge string, recipient Recipient) (*presented, *refusal) {
	p, refused := v.checkCredentialShape(raw)
	if refused != nil {
		return &presented{}, refused
	}
	for _, step := range []func() *refusal{
		func() *refusal { return v.checkCredentialProfile(p) },
		func() *refusal { return v.checkCredentialTrust(p) },
		func() *refusal { return p.checkAddressee(recipient.Address, challenge) },
		func() *refusal { return p.checkCredentialTimes(v.now()) },
		func() *refusal { return v.checkCredentialProof(ctx, p) },
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

func (v *Validator) checkCredentialProof(ctx context.Context, p *presented) *refusal {
	key, problem, detail := v.keyOf(ctx, p.issuer, p.proof.VerificationMethod)
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
