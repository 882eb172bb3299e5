package activitypub

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gowebpki/jcs"

	"inbox/adapters/activitypub/document"
)

// maxProofs is how many proofs of one activity are looked at.
const maxProofs = 4

// objectProof is a proof that passed every check that needs no key.
type objectProof struct {
	keyID   string
	created time.Time // zero = it does not say
	value   []byte
	digests [][]byte // what may have been signed; producers differ in how they hash @context
}

// readProofs gives the proofs of an activity by its actor. Proofs of other types and suites are passed over; an error
// means that there are proofs that we understand and that not one of them can be the actor's.
func readProofs(body []byte, activity document.Object, actor string, now time.Time) ([]objectProof, error) {
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
	var proofs []objectProof
	var problem error
	for i, entry := range document.List(activity["proof"])[:min(len(texts), maxProofs)] {
		options, _ := entry.(document.Object)
		if !document.IsA(options, proofType) || document.Text(options, "cryptosuite") != proofSuite {
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

func readProof(whole document.Members, text string, options document.Object, actor string, now time.Time) (objectProof, error) {
	proof := objectProof{keyID: document.Text(options, "verificationMethod")}
	if proof.keyID == "" {
		proof.keyID = document.Reference(options["verificationMethod"])
	}
	value, ok := decodeMultibase(document.Text(options, "proofValue"))
	switch {
	case document.Text(options, "proofPurpose") != proofPurpose:
		return proof, errors.New("its purpose is not assertionMethod")
	case !ok || len(value) != ed25519.SignatureSize:
		return proof, errors.New("its value is not 64 bytes of base58btc")
	case !document.SameOrigin(proof.keyID, actor):
		return proof, errors.New("its key is not on the actor's server")
	}
	if err := checkProofTimes(options, now); err != nil {
		return proof, err
	}
	proof.created, _ = time.Parse(time.RFC3339, document.Text(options, "created"))
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

// proofDigests gives what the proof may sign. The suite hashes the document with the context of the options, which the
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

// verifyProofs demands one proof by the actor that is right. alone: nothing but the proof says that the actor did it.
func (a *Adapter) verifyProofs(ctx context.Context, proofs []objectProof, in *incoming, alone bool) (proven, error) {
	var problem error
	for _, proof := range proofs {
		var found *remoteKey
		var err error
		if alone {
			err = proof.freshDeed(in, a.now())
		}
		if err == nil {
			found, err = a.verifyWith(ctx, proof.keyID, func(found *remoteKey) error { return proof.verify(found, in.actor) })
		}
		if err == nil {
			return proven{actor: found.actor, keyID: proof.keyID, scheme: proofSuite}, nil
		}
		if problem == nil {
			problem = fmt.Errorf("object proof: %w", err)
		}
	}
	return proven{}, problem
}

func (p *objectProof) verify(found *remoteKey, actor string) error {
	if found.actor.ID != actor {
		return errOtherOwner
	}
	key, isEd25519 := found.key.(ed25519.PublicKey)
	if !isEd25519 || !found.assertion {
		return errors.New("the actor does not list this key as a Multikey of assertionMethod")
	}
	for _, digest := range p.digests {
		if verifyBytes(crypto.PublicKey(key), digest, p.value) == nil {
			return nil
		}
	}
	return errWrongSignature
}
