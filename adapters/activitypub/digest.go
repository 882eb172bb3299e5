package activitypub

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
)

// matchDigest compares a Digest header (RFC 3230) with the raw body. SHA-256 is needed; other algorithms may stand
// beside it. Neither httpsig nor several servers compare it (Owncast GHSA-2xf4-24vg-253p).
func matchDigest(headers []string, body []byte) error {
	found := false
	for entry := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(entry), "=") // the first =; the others pad the base64
		if !strings.EqualFold(name, "sha-256") {
			continue
		}
		if err := matchSHA256(value, body); err != nil {
			return err
		}
		found = true
	}
	if !found {
		return errors.New("digest header has no SHA-256")
	}
	return nil
}

func matchSHA256(encoded string, body []byte) error {
	given, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(given) != sha256.Size {
		return errors.New("digest is not the base64 of 32 bytes")
	}
	return matchSum(given, body)
}

func matchSum(given, body []byte) error {
	sum := sha256.Sum256(body)
	if subtle.ConstantTimeCompare(sum[:], given) != 1 {
		return errors.New("digest does not match the body")
	}
	return nil
}

// verifyBytes checks a signature with the algorithm that the key implies: RSASSA-PKCS1-v1_5 with SHA-256 (which is
// what hs2019 means in this network, whatever the draft says) or Ed25519.
func verifyBytes(key crypto.PublicKey, message, signature []byte) error {
	switch key := key.(type) {
	case *rsa.PublicKey:
		sum := sha256.Sum256(message)
		if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil {
			return nil
		}
	case ed25519.PublicKey:
		if len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, signature) {
			return nil
		}
	}
	return errWrongSignature
}

// opaqueTarget keeps path and query exactly as they stand in a request target: httpsig writes URL.Path and decodes
// nothing, so the whole target is put there.
func opaqueTarget(target string) *url.URL { return &url.URL{Path: target} }
