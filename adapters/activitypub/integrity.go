package activitypub

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gowebpki/jcs"
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
	members, err := splitMembers(activity)
	if err != nil {
		return nil, fmt.Errorf("split activity: %w", err)
	}
	context, _ := member(members, "@context")
	proof := proofDocument{
		Context: json.RawMessage(context.value), Type: proofType, Cryptosuite: proofSuite, VerificationMethod: a.proofKeyIRI(agent),
		Purpose: proofPurpose, Created: created.UTC().Format(time.RFC3339),
	}
	options, err := encode(proof)
	if err != nil {
		return nil, err
	}
	digest, err := integrityDigest(options, activity)
	if err != nil {
		return nil, err
	}
	proof.Value = encodeMultibase(ed25519.Sign(key.Proof, digest))
	encoded, err := encode(proof)
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
func integrityDigest(options, document []byte) ([]byte, error) {
	one, err := canonicalHash(options)
	if err != nil {
		return nil, err
	}
	other, err := canonicalHash(document)
	if err != nil {
		return nil, err
	}
	return append(one, other...), nil
}

func canonicalHash(document []byte) ([]byte, error) {
	canonical, err := jcs.Transform(document)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return sum[:], nil
}

// rawMember is a member of a JSON object as it stands in the text.
type rawMember struct {
	name  string
	text  string // name and value
	value string
}

// splitMembers cuts an object into its members without touching their bytes: a number or an escape that is written anew
// would not have the hash that was signed.
func splitMembers(document []byte) ([]rawMember, error) {
	s := scanner{text: string(document)}
	if s.blanks(); s.at >= len(s.text) || s.text[s.at] != '{' {
		return nil, s.fail("want a JSON object")
	}
	s.at++
	var members []rawMember
	for first := true; ; first = false {
		if done, err := s.next('}', first); err != nil || done {
			return members, err
		}
		start := s.at
		name, err := s.name()
		if err != nil {
			return nil, err
		}
		from := s.at
		if _, err := s.value(2, false); err != nil {
			return nil, err
		}
		members = append(members, rawMember{name, s.text[start:s.at], s.text[from:s.at]})
	}
}

// splitItems cuts a list into its items in the same way.
func splitItems(list string) ([]string, error) {
	s := scanner{text: list, at: 1}
	var items []string
	for first := true; ; first = false {
		if done, err := s.next(']', first); err != nil || done {
			return items, err
		}
		start := s.at
		if _, err := s.value(2, false); err != nil {
			return nil, err
		}
		items = append(items, s.text[start:s.at])
	}
}

func member(members []rawMember, name string) (rawMember, bool) {
	for _, one := range members {
		if one.name == name {
			return one, true
		}
	}
	return rawMember{}, false
}

// joinMembers writes an object of all members except the named ones.
func joinMembers(members []rawMember, without ...string) []byte {
	kept := make([]string, 0, len(members))
	for _, one := range members {
		if !slices.Contains(without, one.name) {
			kept = append(kept, one.text)
		}
	}
	return []byte("{" + strings.Join(kept, ",") + "}")
}
