package identity

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"slices"
	"strings"
)

// canonicalizations are the names under which RFC 8785 is written; left out, it is meant.
var canonicalizations = []string{"", "rfc8785", "jcs"}

func (v *Validator) checkKey(ctx context.Context, c *candidate) *refusal {
	proof := &c.evidence.Proof
	if proof.Alg != "EdDSA" && proof.Alg != "Ed25519" { // RFC 8037, RFC 9864
		return refuse(CodeUnsupportedAlgorithm, proof.Alg)
	}
	if !slices.Contains(canonicalizations, strings.ToLower(proof.Canonicalization)) {
		return refuse(CodeUnsupportedAlgorithm, proof.Canonicalization)
	}
	key, problem, detail := v.keyOf(ctx, c.issuer, proof.Kid)
	if problem != keyGood {
		return refuse(evidenceKeyCodes[problem], detail)
	}
	c.key = key
	return nil
}

func (v *Validator) checkSignature(_ context.Context, c *candidate) *refusal {
	signed, err := withoutMember(c.canonical, "proof", "value")
	if err != nil {
		return refuse(CodeMalformed, err.Error())
	}
	signature, err := decodeBase64URL(c.evidence.Proof.Value)
	if err != nil || !verifies(c.key, signed, signature) {
		return refuse(CodeInvalidSignature, "")
	}
	return nil
}

// decodeBase64URL takes padding or none; no second way to write the same bytes.
func decodeBase64URL(text string) ([]byte, error) {
	encoding := base64.RawURLEncoding
	if strings.HasSuffix(text, "=") {
		encoding = base64.URLEncoding
	}
	if strings.ContainsAny(text, "\r\n") { // encoding/base64 skips them
		return nil, base64.CorruptInputError(0)
	}
	return encoding.Strict().DecodeString(text)
}

func verifies(key ed25519.PublicKey, message, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && len(signature) == ed25519.SignatureSize && ed25519.Verify(key, message, signature)
}
