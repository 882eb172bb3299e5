package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// attestationLife is what Sign gives when the evidence has no end of its own.
const attestationLife = 5 * time.Minute

// SigningKey signs the attestations of one issuer. It prints without its private half.
type SigningKey struct {
	Issuer  string             // our domain, or our did:web
	Kid     string             // "key-" and the RFC 7638 thumbprint
	Private ed25519.PrivateKey `json:"-"`
}

// NewSigningKey makes a key for an issuer.
func NewSigningKey(issuer string) (SigningKey, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return SigningKey{}, fmt.Errorf("generate signing key: %w", err)
	}
	return SigningKeyOf(issuer, private)
}

// SigningKeyOf names a key that was kept. Errors: the issuer is none, the key is not whole.
func SigningKeyOf(issuer string, private ed25519.PrivateKey) (SigningKey, error) {
	canonical, err := CanonicalIssuer(issuer)
	if err != nil {
		return SigningKey{}, err
	}
	if len(private) != ed25519.PrivateKeySize {
		return SigningKey{}, errors.New("not an Ed25519 private key")
	}
	key := SigningKey{Issuer: canonical, Private: private}
	key.Kid = KeyID(key.public())
	return key, nil
}

// KeyID returns the kid of a public key: "key-" and its JWK thumbprint (RFC 7638, RFC 8037 appendix A.3).
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(key) + `"}`))
	return "key-" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Public returns what the key documents publish while the key is in use.
func (k SigningKey) Public() PublicKey { return PublicKey{Kid: k.Kid, Key: k.public()} }

func (k SigningKey) public() ed25519.PublicKey {
	public, _ := k.Private.Public().(ed25519.PublicKey)
	return public
}

// String returns issuer#kid.
func (k SigningKey) String() string { return k.Issuer + "#" + k.Kid }

// GoString returns the same, so that %#v does not print the private half.
func (k SigningKey) GoString() string { return k.String() }

// Sign makes a signed attestation of the evidence: it fills id, issuer, issued_at, expires_at (in five minutes, unless
// the evidence ends earlier or at most ten minutes after now) and the proof, EdDSA over RFC 8785 without proof.value.
// Subject, method, assurance and audience must be there. The errors name what is missing or too long.
func Sign(e Evidence, key SigningKey, now time.Time) (Evidence, error) {
	if len(key.Private) != ed25519.PrivateKeySize {
		return Evidence{}, errors.New("sign evidence: no private key")
	}
	issued, expires := At(now), At(now.Add(attestationLife))
	if e.ExpiresAt != nil {
		expires = *e.ExpiresAt
	}
	if life := expires.Sub(issued.Time); life <= 0 || life > MaxAttestationLife {
		return Evidence{}, fmt.Errorf("sign evidence: expires_at must be within %s", MaxAttestationLife)
	}
	e.ID, e.Issuer, e.IssuedAt, e.ExpiresAt = rand.Text(), key.Issuer, issued, &expires
	e.Proof = Proof{Type: ProofSignedAttestation, Alg: "EdDSA", Kid: key.reference(), Canonicalization: "RFC8785"}
	value, err := signature(e, key.Private)
	if err != nil {
		return Evidence{}, fmt.Errorf("sign evidence: %w", err)
	}
	e.Proof.Value = value
	if found := e.CheckShape(); found != nil {
		return Evidence{}, fmt.Errorf("sign evidence: %w", found)
	}
	return e, nil
}

// reference is how the key is named in a proof: whole in the name of a DID.
func (k SigningKey) reference() string {
	if strings.HasPrefix(k.Issuer, didWeb) {
		return k.Issuer + "#" + k.Kid
	}
	return k.Kid
}

func signature(e Evidence, private ed25519.PrivateKey) (string, error) {
	canonical, err := encodeCanonical(e)
	if err != nil {
		return "", err
	}
	signed, err := withoutMember(canonical, "proof", "value")
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, signed)), nil
}
