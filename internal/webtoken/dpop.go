package webtoken

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/url"
	"strings"
	"time"
)

const proofWindow = 60 * time.Second

// ProofAlgorithms are those of DPoP proofs.
func ProofAlgorithms() []string { return DefaultAlgorithms() }

// possessed checks that who shows a bound token has its key (RFC 9449, section 7.1). A bound token is never taken as
// Bearer, an unbound one never as DPoP, and one that is bound to a certificate not at all.
func (v *Verifier) possessed(ctx context.Context, shown Presented, t *token) error {
	bound, confirm := strings.EqualFold(shown.Scheme, "DPoP"), t.claims.Confirm
	switch {
	case confirm == nil && !bound && len(shown.Proofs) == 0:
		return nil
	case confirm == nil && !bound:
		return refused("the token is not bound to a key, but comes with a proof", nil)
	case confirm == nil || confirm.Thumbprint == "":
		return refused("the token is not bound to a key that can be proven here", nil)
	case len(confirm.Other) > 0:
		return refused("the token is bound to a certificate, which cannot be seen here", nil)
	case !bound:
		return refused("the token is bound to a key: show it as DPoP with a proof", nil)
	}

	return v.proof(ctx, shown, t)
}

// proof makes the checks of RFC 9449, section 4.3.
func (v *Verifier) proof(ctx context.Context, shown Presented, bound *token) error {
	if len(shown.Proofs) != 1 {
		return badProof("there must be one DPoP header")
	}

	t, err := read(shown.Proofs[0])
	if err != nil {
		return badProof(err.Error())
	}
	if !t.typed("dpop+jwt") {
		return badProof("typ is not dpop+jwt")
	}

	_, key, err := readKey(t.header.JWK)
	if err != nil {
		return badProof("jwk: " + err.Error())
	}
	if err := t.verify(key, ProofAlgorithms()); err != nil {
		return badProof(err.Error())
	}

	c, now := &t.claims, v.now()
	switch {
	case c.Method != shown.Method:
		return badProof("htm is of another method")
	case !sameURL(c.URL, shown.URL):
		return badProof("htu is of another address")
	case c.IssuedAt.IsZero() || c.IssuedAt.Before(now.Add(-proofWindow)) || c.IssuedAt.After(now.Add(proofWindow)):
		return badProof("iat is not of now")
	case c.ID == "":
		return badProof("jti is missing")
	case !equal(c.Hash, digest(shown.Token)):
		return badProof("ath is of another token")
	}

	thumbprint, err := thumbprintOf(t.header.JWK)
	if err != nil || !equal(thumbprint, bound.claims.Confirm.Thumbprint) {
		return badProof("its key is not that of the token")
	}

	first, err := v.once(ctx, "dpop", thumbprint, c.ID, c.IssuedAt.Add(2*proofWindow))
	switch {
	case err != nil:
		return err
	case !first:
		return badProof("it was used before")
	}

	return nil
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func thumbprintOf(written []byte) (string, error) {
	key, err := parseKey(written)
	if err != nil {
		return "", err
	}
	sum, err := key.Thumbprint(crypto.SHA256)
	return base64.RawURLEncoding.EncodeToString(sum), err
}

// sameURL compares scheme, host and path; query and fragment do not count (RFC 9449, section 4.3).
func sameURL(claimed, asked string) bool {
	a, err := url.Parse(claimed)
	b, bad := url.Parse(asked)
	return err == nil && bad == nil && a.Host != "" && a.User == nil &&
		strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(authority(a), authority(b)) && orRoot(a.EscapedPath()) == orRoot(b.EscapedPath())
}

// authority is the host without the port that the scheme has anyway.
func authority(u *url.URL) string {
	if port := u.Port(); port == "443" && strings.EqualFold(u.Scheme, "https") || port == "80" && strings.EqualFold(u.Scheme, "http") {
		return u.Hostname()
	}
	return u.Host
}

func orRoot(path string) string {
	if path == "" {
		return "/"
	}
	return path
}
