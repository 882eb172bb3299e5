// Package signature signs and verifies what ActivityPub servers send each other: HTTP signatures (draft-cavage and RFC 9421)
// with the digests of bodies, object integrity proofs (FEP-8b32), and the key material of both. It fetches and stores nothing:
// a caller looks keys up by their ids (Keys) and decides whose word a key is.
//
// go-fed/httpsig makes our draft-cavage signatures and verifies those of peers. Our own code does what a test shows the library to get wrong:
// the tests named TestLibrary… each show one such thing, and the code names them (decision 0179). Structured fields are read and written by
// dunglas/httpsfv. RFC 9421 is own code: no library for Go covers what this network needs covered.
package signature

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"inbox/internal/fault"
)

// Signature schemes as they are written into evidence.
const (
	Cavage  = "draft-cavage"
	RFC9421 = "rfc9421"
	None    = "none" // the request is not signed
)

// Bounds of a signature header and of what it covers.
const (
	maxSignatureBytes = 8 << 10
	maxCovered        = 32
)

// Request is what a signature can cover, taken from the wire before anything rewrote it.
type Request struct {
	Method string
	Target string // request target as received: path and query, undecoded
	Host   string
	Origin string // our public scheme://host, as the sender saw it
	Header http.Header
	Body   []byte

	AnyHost bool // do not demand that a draft-cavage signature covers the host
}

// Claim is a signature that passed every check that needs no key.
type Claim struct {
	KeyID   string
	Scheme  string
	ForHost bool // it covers the host: the request was made for the one that got it, and cannot be repeated at another
	Verify  func(key crypto.PublicKey) error
}

// SchemeOf names the scheme by which a request is signed. A request with both is judged by RFC 9421 alone: when the
// present one fails, the other is never tried.
func SchemeOf(header http.Header) string {
	switch {
	case len(header["Signature-Input"]) > 0:
		return RFC9421
	case len(header["Signature"]) > 0:
		return Cavage
	}
	return None
}

// Check applies the policy of the scheme (decision 0004). It judges everything that needs no key, so that a bad request never
// makes a caller fetch one.
func Check(r Request, now time.Time) (Claim, error) {
	if SchemeOf(r.Header) == RFC9421 {
		return checkMessageSignature(r, now)
	}
	return checkCavage(r, now)
}

// Keys finds keys by their ids. Its errors are faults.
type Keys[K any] interface {
	// Find returns a key and whether it was known before, in which case it may be out of date.
	Find(ctx context.Context, keyID string) (key K, known bool, err error)
	// Refresh finds a known key again with which nothing verified; see VerifyWith.
	Refresh(ctx context.Context, keyID string, tried K) (K, error)
	// Settle is told of a key with which something verified.
	Settle(ctx context.Context, keyID string, key K)
}

// VerifyWith checks something with a key, and once more with a fresh copy where the known one does not fit: its owner may
// have a new one.
func VerifyWith[K any](ctx context.Context, keys Keys[K], keyID string, verify func(K) error) (found K, err error) {
	var none K
	found, known, err := keys.Find(ctx, keyID)
	if err != nil {
		return none, err
	}

	err = verify(found)
	if err != nil && known {
		fresh, failed := keys.Refresh(ctx, keyID, found)
		switch {
		case fault.Is(failed, fault.Unavailable), fault.Is(failed, fault.RateLimited):
			return none, failed // the new key may be right
		case failed != nil:
			return none, err
		}
		found, err = fresh, verify(fresh)
	}
	if err != nil {
		return none, err
	}

	keys.Settle(ctx, keyID, found)
	return found, nil
}

// Time window of a signature: Mastodon's, which all peers keep to.
const (
	clockSkew     = time.Hour
	defaultLife   = 5 * time.Minute
	maxLife       = 12 * time.Hour
	errTimeFuture = "signature is dated in the future"
	errTimePast   = "signature is too old"
)

func checkWindow(made, expires, now time.Time) error {
	if made.After(now.Add(clockSkew)) {
		return errors.New(errTimeFuture)
	}

	if expires.IsZero() {
		expires = made.Add(defaultLife)
	}

	if latest := made.Add(maxLife); expires.After(latest) {
		expires = latest
	}
	if now.After(expires.Add(clockSkew)) {
		return errors.New(errTimePast)
	}

	return nil
}

var errWrongSignature = errors.New("signature does not verify with the key")

// digestKind is a hash over bodies.
type digestKind struct {
	name string
	size int
	sum  func(body []byte) []byte
}

// digestKinds are those that bind a body (RFC 9530, section 5), the one that counts first. Others may stand beside them.
var digestKinds = []digestKind{
	{"sha-256", sha256.Size, func(body []byte) []byte { sum := sha256.Sum256(body); return sum[:] }},
	{"sha-512", sha512.Size, func(body []byte) []byte { sum := sha512.Sum512(body); return sum[:] }},
}

func (k digestKind) match(given, body []byte) error {
	if subtle.ConstantTimeCompare(k.sum(body), given) != 1 {
		return errors.New("digest does not match the body")
	}
	return nil
}

// matchDigest compares a Digest header (RFC 3230) with the raw body: every SHA-256, or without one every SHA-512. Neither
// go-fed/httpsig (TestLibraryComparesNoDigest) nor several servers compare it (Owncast GHSA-2xf4-24vg-253p).
func matchDigest(headers []string, body []byte) error {
	header := strings.Join(headers, ",")
	for _, kind := range digestKinds {
		found := false
		for entry := range strings.SplitSeq(header, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(entry), "=") // the first =; the others pad the base64
			if !strings.EqualFold(name, kind.name) {
				continue
			}

			given, err := base64.StdEncoding.DecodeString(value)
			if err != nil || len(given) != kind.size {
				return fmt.Errorf("digest is not the base64 of %d bytes", kind.size)
			}
			if err := kind.match(given, body); err != nil {
				return err
			}
			found = true
		}

		if found {
			return nil
		}
	}

	return errors.New("digest header has neither SHA-256 nor SHA-512")
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

// joined returns repeated header lines as one value.
func joined(values []string) string {
	if len(values) == 1 {
		return strings.TrimSpace(values[0])
	}
	trimmed := make([]string, len(values))
	for i, value := range values {
		trimmed[i] = strings.TrimSpace(value)
	}
	return strings.Join(trimmed, ", ")
}
