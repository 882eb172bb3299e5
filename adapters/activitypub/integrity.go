package activitypub

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gowebpki/jcs"

	"inbox/adapters/activitypub/document"
)

// Object integrity proofs: FEP-8b32 with the cryptosuite eddsa-jcs-2022 (Data Integrity EdDSA Cryptosuites 1.0,
// section 3.3). They travel inside the activity, so they stay true when somebody else forwards it.
const (
	integrityContext = "https://w3id.org/security/data-integrity/v1"
	proofType        = "DataIntegrityProof"
	proofSuite       = "eddsa-jcs-2022"
	proofPurpose     = "assertionMethod"
	proofKeyFragment = "#ed25519-key"
)

// proofDocument is a proof as we write it. It repeats the context of the document: some verifiers hash the options as
// they stand, others put the document's context into them first, and so both find the same.
type proofDocument struct {
	Context            json.RawMessage `json:"@context,omitempty"`
	Type               string          `json:"type"`
	Cryptosuite        string          `json:"cryptosuite"`
	VerificationMethod string          `json:"verificationMethod"`
	Purpose            string          `json:"proofPurpose"`
	Created            string          `json:"created"`
	Value              string          `json:"proofValue,omitempty"`
}

// prove gives an encoded activity of an agent with a proof as its last member. The same activity and time give the same
// bytes, so a repeated delivery is recognised by whoever compares. The activity's @context must name integrityContext.
func (a *Adapter) prove(ctx context.Context, agent string, activity []byte, created time.Time) ([]byte, error) {
	key, err := a.keys.key(ctx, agent)
	if err != nil {
		return nil, err
	}
	members, err := document.SplitMembers(activity)
	if err != nil {
		return nil, fmt.Errorf("split activity: %w", err)
	}
	context, _ := members.Get("@context")
	proof := proofDocument{
		Context: json.RawMessage(context.Value), Type: proofType, Cryptosuite: proofSuite, VerificationMethod: a.proofKeyIRI(agent),
		Purpose: proofPurpose, Created: created.UTC().Format(time.RFC3339),
	}
	options, err := document.Encode(proof)
	if err != nil {
		return nil, err
	}
	digest, err := integrityDigest(options, activity)
	if err != nil {
		return nil, err
	}
	proof.Value = encodeMultibase(ed25519.Sign(key.Proof, digest))
	encoded, err := document.Encode(proof)
	if err != nil {
		return nil, err
	}
	return append(append(bytes.TrimSuffix(bytes.Clone(activity), []byte("}")), `,"proof":`...), append(encoded, '}')...), nil
}

// proofKeyIRI names the key of an agent's proofs; an empty agent is the server itself.
func (a *Adapter) proofKeyIRI(agent string) string {
	if agent == "" {
		return a.instanceIRI() + proofKeyFragment
	}
	return a.actorIRI(agent) + proofKeyFragment
}

// integrityDigest is what a proof signs: the hash of its options, then the hash of the document without the proof, both
// in canonical form (RFC 8785).
func integrityDigest(options, whole []byte) ([]byte, error) {
	one, err := canonicalHash(options)
	if err != nil {
		return nil, err
	}
	other, err := canonicalHash(whole)
	if err != nil {
		return nil, err
	}
	return append(one, other...), nil
}

func canonicalHash(whole []byte) ([]byte, error) {
	canonical, err := jcs.Transform(whole)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return sum[:], nil
}
