package signature

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gowebpki/jcs"

	"inbox/adapters/activitypub/document"
)

// Object integrity proofs: FEP-8b32 with the cryptosuite eddsa-jcs-2022 (Data Integrity EdDSA Cryptosuites 1.0,
// section 3.3). They travel inside the activity, so they stay true when another actor forwards it.
const (
	IntegrityContext = "https://w3id.org/security/data-integrity/v1"
	proofType        = "DataIntegrityProof"
	ProofSuite       = "eddsa-jcs-2022"
	proofPurpose     = "assertionMethod"
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

// Prove returns an encoded activity with a proof as its last member. The same activity and time make the same bytes, so
// a repeated delivery is recognised by a receiver that compares. The activity's @context must name integrityContext. method
// is the id of the key.
func Prove(activity []byte, key ed25519.PrivateKey, method string, created time.Time) ([]byte, error) {
	members, err := document.SplitMembers(activity)
	if err != nil {
		return nil, fmt.Errorf("split activity: %w", err)
	}

	context, _ := members.Get("@context")
	proof := proofDocument{
		Context: json.RawMessage(context.Value), Type: proofType, Cryptosuite: ProofSuite, VerificationMethod: method,
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

	proof.Value = encodeMultibase(ed25519.Sign(key, digest))
	encoded, err := document.Encode(proof)
	if err != nil {
		return nil, err
	}
	return append(append(bytes.TrimSuffix(bytes.Clone(activity), []byte("}")), `,"proof":`...), append(encoded, '}')...), nil
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

// maxProofs is how many proofs of one activity are looked at.
const maxProofs = 4

// Proof is a proof that passed every check that needs no key.
type Proof struct {
	KeyID   string
	Created time.Time // zero = it does not say
	value   []byte
	digests [][]byte // what may have been signed; producers differ in how they hash @context
}

// ReadProofs returns the proofs of an activity by its actor. Proofs of other types and suites are passed over; an error
// means that there are proofs that we understand and that not one of them can be the actor's.
func ReadProofs(body []byte, activity document.Object, actor string, now time.Time) ([]Proof, error) {
	if activity["proof"] == nil {
		return nil, nil
	}
	whole, err := document.SplitMembers(body)
	if err != nil {
		return nil, err
	}

	raw, _ := whole.Get("proof")
	texts := []string{raw.Value}
	if raw.Value[0] == '[' {
		if texts, err = document.SplitItems(raw.Value); err != nil {
			return nil, err
		}
	}

	var proofs []Proof
	var problem error
	for i, entry := range document.List(activity["proof"])[:min(len(texts), maxProofs)] {
		options, _ := entry.(document.Object)
		if !document.IsA(options, proofType) || document.Text(options, "cryptosuite") != ProofSuite {
			continue
		}

		proof, err := readProof(whole, texts[i], options, actor, now)
		if err == nil {
			proofs = append(proofs, proof)
		} else if problem == nil {
			problem = fmt.Errorf("object proof: %w", err)
		}
	}
	if len(proofs) > 0 {
		return proofs, nil
	}
	return nil, problem
}

func readProof(whole document.Members, text string, options document.Object, actor string, now time.Time) (Proof, error) {
	proof := Proof{KeyID: document.Text(options, "verificationMethod")}
	if proof.KeyID == "" {
		proof.KeyID = document.Reference(options["verificationMethod"])
	}

	value, ok := decodeMultibase(document.Text(options, "proofValue"))
	switch {
	case document.Text(options, "proofPurpose") != proofPurpose:
		return proof, errors.New("its purpose is not assertionMethod")
	case !ok || len(value) != ed25519.SignatureSize:
		return proof, errors.New("its value is not 64 bytes of base58btc")
	case !document.SameOrigin(proof.KeyID, actor):
		return proof, errors.New("its key is not on the actor's server")
	}

	if err := checkProofTimes(options, now); err != nil {
		return proof, err
	}
	proof.Created, _ = time.Parse(time.RFC3339, document.Text(options, "created"))
	proof.value = value
	members, err := document.SplitMembers([]byte(text))
	if err != nil {
		return proof, err
	}

	proof.digests, err = proofDigests(whole, members)
	return proof, err
}

// checkProofTimes knows no upper age: a forwarded note may be old, and its id keeps it from being taken twice. Deeds that
// are remembered for a while only have one (freshDeed).
func checkProofTimes(options document.Object, now time.Time) error {
	for _, name := range []string{"created", "expires"} {
		if options[name] == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339, document.Text(options, name))
		switch {
		case err != nil:
			return errors.New("its time " + name + " cannot be read")
		case name == "created" && at.After(now.Add(clockSkew)):
			return errors.New("it is dated in the future")
		case name == "expires" && now.After(at.Add(clockSkew)):
			return errors.New("it has expired")
		}
	}

	return nil
}

// proofDigests returns what the proof may sign. The suite hashes the document with the context of the options, which the
// document's own must begin with; some producers (FEP-8b32 before 2024) leave the context out of the options on the wire
// but hash it, so that is the second try.
func proofDigests(whole, proof document.Members) ([][]byte, error) {
	options := proof.Without("proofValue")
	unsecured := whole.Without("proof", "signature")
	outer, hasOuter := whole.Get("@context")
	inner, hasInner := proof.Get("@context")
	candidates := [][2][]byte{{options, unsecured}}
	switch {
	case hasInner && !beginsWith(outer.Value, inner.Value):
		return nil, errors.New("the document's @context does not begin with that of the proof")
	case hasInner && inner.Value != outer.Value:
		candidates = append(candidates, [2][]byte{options, withContext(inner, whole)})
	case !hasInner && hasOuter:
		candidates = append(candidates, [2][]byte{append(slices.Clone(proof), outer).Without("proofValue"), unsecured})
	}

	var digests [][]byte
	for _, one := range candidates {
		digest, err := integrityDigest(one[0], one[1])
		if err != nil {
			return nil, err
		}
		digests = append(digests, digest)
	}

	return digests, nil
}

// withContext writes the document with another @context.
func withContext(context document.Member, whole document.Members) []byte {
	changed := slices.Clone(whole)
	for i := range changed {
		if changed[i].Name == context.Name {
			changed[i] = context
		}
	}
	return changed.Without("proof", "signature")
}

// beginsWith compares contexts item by item; a single one counts as a list of one.
func beginsWith(outer, inner string) bool {
	all, err := contextItems(outer)
	if err != nil {
		return false
	}

	start, err := contextItems(inner)
	if err != nil || len(start) > len(all) {
		return false
	}

	for i := range start {
		if !bytes.Equal(start[i], all[i]) {
			return false
		}
	}
	return true
}

func contextItems(value string) ([][]byte, error) {
	if value == "" {
		return nil, nil
	}
	texts := []string{value}
	if value[0] == '[' {
		var err error
		if texts, err = document.SplitItems(value); err != nil {
			return nil, err
		}
	}

	items := make([][]byte, len(texts))
	for i, text := range texts {
		var err error
		if items[i], err = jcs.Transform([]byte("[" + text + "]")); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// Verify checks the proof with an Ed25519 key.
func (p *Proof) Verify(public crypto.PublicKey) error {
	key, isEd25519 := public.(ed25519.PublicKey)
	if !isEd25519 {
		return ErrNoProofKey
	}

	for _, digest := range p.digests {
		if verifyBytes(key, digest, p.value) == nil {
			return nil
		}
	}
	return errWrongSignature
}

// ErrNoProofKey is the answer to a key that may not prove objects.
var ErrNoProofKey = errors.New("the actor does not list this key as a Multikey of assertionMethod")
