package webtoken

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"inbox/identity"
	"inbox/internal/fault"
)

// assertionType is the typ of our assertions; those of others may also say JWT or nothing.
const assertionType = "JWT"

// fromPeer checks the assertion of an agent elsewhere: iss is its domain, sub its address on that domain, the key the
// domain's own. Nothing is fetched before the policy of the agent wants to know.
func (v *Verifier) fromPeer(ctx context.Context, shown Presented, t *token) (Claims, error) {
	address, source, err := v.claimed(shown, t)
	if err != nil {
		return Claims{}, refused("the token is not valid here: "+err.Error(), err)
	}
	if !shown.Peer(address) {
		return Claims{}, refused("the token is not valid here: its issuer is not trusted", nil)
	}

	key, found, err := v.peers.find(ctx, shown.Source, source, t.header.Kid)
	switch {
	case fault.Is(err, fault.Unavailable):
		return Claims{}, err
	case err != nil:
		return Claims{}, refused("the token is not valid here: the keys of its issuer cannot be had", fmt.Errorf("keys of %s: %w", source, err))
	case !found:
		return Claims{}, refused("the token is not valid here: its issuer has no such key", nil)
	}

	if err := t.verify(key, peerAlgorithms); err != nil {
		return Claims{}, refused("the token is not valid here: "+err.Error(), err)
	}
	if err := v.used(ctx, t, true); err != nil {
		return Claims{}, err
	}

	return Claims{
		Issuer: t.claims.Issuer, Subject: address.Acct(), Method: identity.MethodA2AJWT, Unscoped: true, TokenID: t.claims.ID,
		KeyID: t.header.Kid, ExpiresAt: t.claims.ExpiresAt.Time, Peer: address,
	}, nil
}

var peerAlgorithms = []string{"EdDSA", "ES256"}

// claimed reads who an assertion says that it is from, and which canonical issuer has the key.
func (v *Verifier) claimed(shown Presented, t *token) (address identity.Address, source string, err error) {
	c := &t.claims
	source, err = identity.CanonicalIssuer(c.Issuer)
	domain := strings.TrimPrefix(source, "did:web:")
	if decoded, bad := url.PathUnescape(domain); bad == nil && source != domain {
		domain = decoded
	}
	switch {
	case shown.Peer == nil, err != nil, !v.plainIssuer(c.Issuer, source):
		return address, "", errors.New("its issuer is not known")
	case domain == v.own:
		return address, "", errors.New("no one else speaks for this server")
	case !strings.EqualFold(shown.Scheme, "Bearer"):
		return address, "", errors.New("assertions are shown as Bearer")
	case t.header.Alg != "EdDSA" && t.header.Alg != "ES256":
		return address, "", fmt.Errorf("algorithm %q is not accepted", t.header.Alg)
	case t.header.Kid == "" || c.ID == "":
		return address, "", errors.New("kid or jti is missing")
	case t.header.Typ != "" && !t.typed("jwt"):
		return address, "", errors.New("typ is not JWT")
	case c.Nonce != nil || c.Confirm != nil:
		return address, "", errors.New("it is no assertion")
	case !v.addressed(shown, c.Audience, nil, true):
		return address, "", errors.New("aud does not name this agent alone")
	}

	if err := v.times(c, MaxOneTimeLife); err != nil {
		return address, "", err
	}

	address, err = identity.ParseAddress(strings.TrimPrefix(c.Subject, "acct:"))
	if err != nil || trimmed(address.Domain) != domain {
		return address, "", errors.New("sub is no address on the domain of iss")
	}
	if did, is := keyName(t.header.Kid, source); is && !did {
		return address, "", errors.New("kid is of another issuer")
	}

	return address, source, nil
}

func trimmed(domain string) string { return strings.TrimSuffix(domain, ":443") }

// keyName says of a kid with a DID in it whether that is the issuer's.
func keyName(kid, source string) (same, is bool) {
	did, _, has := strings.Cut(kid, "#")
	if !has || did == "" {
		return false, false
	}
	canonical, err := identity.CanonicalIssuer(did)
	return err == nil && canonical == source, true
}

// plainIssuer wants the one spelling of an issuer: https://domain without anything behind it, or the DID of the domain.
func (v *Verifier) plainIssuer(written, canonical string) bool {
	if strings.HasPrefix(canonical, "did:web:") {
		return written == canonical && strings.Count(canonical, ":") == 2
	}
	return written == "https://"+canonical || v.options.AllowHTTP && written == "http://"+canonical
}

// fetchPeer reads the keys of a domain at its own origin, or those of its did:web that are for assertions.
func (v *Verifier) fetchPeer(ctx context.Context, source string) (map[string]publicKey, error) {
	if strings.HasPrefix(source, "did:web:") {
		return v.fetchDID(ctx, source)
	}
	body, err := v.options.Documents.Fetch(ctx, v.scheme(source)+"://"+source+"/.well-known/jwks.json")
	if err != nil {
		return nil, err
	}
	return readKeys(body)
}

func (v *Verifier) fetchDID(ctx context.Context, did string) (map[string]publicKey, error) {
	address, err := identity.KeyDocumentURL(did, v.options.AllowHTTP)
	if err != nil {
		return nil, err
	}

	body, err := v.options.Documents.Fetch(ctx, address)
	if err != nil {
		return nil, err
	}

	listed, err := identity.AssertionKeys(did, body, v.now())
	if err != nil {
		return nil, err
	}

	keys := map[string]publicKey{}
	for _, key := range listed {
		for _, name := range []string{key.Kid, "#" + key.Kid, did + "#" + key.Kid} {
			keys[name] = publicKey{raw: key.Key, alg: "EdDSA"}
		}
	}

	return keys, nil
}

// scheme is http only in development, and only where a port says that no public server is meant.
func (v *Verifier) scheme(domain string) string {
	if v.options.AllowHTTP && identity.HostOf(domain) != domain {
		return "http"
	}
	return "https"
}

// sameStrength reports whether an address out of a document is as safe as the document's own.
func sameStrength(document, address string) bool {
	from, err := url.Parse(document)
	to, bad := url.Parse(address)
	return err == nil && bad == nil && to.Host != "" && to.User == nil && (to.Scheme == "https" || to.Scheme == "http" && from.Scheme == "http" && to.Host == from.Host)
}

// Assert writes an assertion of one of our agents for an agent elsewhere: for one request, for two minutes. Subject is the
// address of ours, audience the name of the other.
func Assert(key identity.SigningKey, subject, audience string, now time.Time) (string, error) {
	if len(key.Private) != ed25519.PrivateKeySize || subject == "" || audience == "" {
		return "", errors.New("assert: a key, a subject and an audience are needed")
	}

	header, err := json.Marshal(map[string]string{"alg": "EdDSA", "typ": assertionType, "kid": key.Kid})
	if err != nil {
		return "", err
	}

	claims, err := json.Marshal(map[string]any{
		"iss": "https://" + key.Issuer, "sub": subject, "aud": audience, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(oneTimeLife).Unix(),
	})
	if err != nil {
		return "", err
	}

	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key.Private, []byte(signed))), nil
}
