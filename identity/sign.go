package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

const didWeb = "did:web:"

// ErrIssuer is what every refused issuer wraps.
var ErrIssuer = errors.New("invalid issuer")

// CanonicalIssuer returns the one form under which an issuer is compared: a lower-case host name, with its port unless that
// is 443, or a did:web with a lower-case host. "https://A.example/" and "a.example" are the same issuer; a host and its
// did:web are two. Errors wrap ErrIssuer.
func CanonicalIssuer(text string) (string, error) {
	if len(text) > maxIRIBytes {
		return "", fmt.Errorf("%w: over %d bytes", ErrIssuer, maxIRIBytes)
	}
	if strings.HasPrefix(text, didWeb) {
		did, err := parseDIDWeb(text)
		if err != nil {
			return "", err
		}
		return did.String(), nil
	}

	host := strings.TrimSuffix(trimScheme(text), "/")
	domain, err := ParseDomain(host)
	if err != nil {
		return "", fmt.Errorf("%w: want a host, https://host or did:web:host, got %q", ErrIssuer, text)
	}

	return trimPort(domain), nil
}

// trimPort takes the port of https off.
func trimPort(domain string) string {
	if host, port, err := net.SplitHostPort(domain); err == nil && port == "443" {
		return host
	}
	return domain
}

// trimScheme takes https:// off, and http:// where a port says that a development server is meant.
func trimScheme(text string) string {
	const secure, plain = "https://", "http://"
	switch lower := strings.ToLower(text[:min(len(text), len(secure))]); {
	case lower == secure:
		return text[len(secure):]
	case strings.HasPrefix(lower, plain) && strings.Contains(text[len(plain):], ":"):
		return text[len(plain):]
	}
	return text
}

// webDID is a DID of the did:web method: a host, with a port written %3A, and path segments.
type webDID struct {
	domain string
	path   []string // decoded
}

func parseDIDWeb(text string) (webDID, error) {
	invalid := func(reason string) (webDID, error) {
		return webDID{}, fmt.Errorf("%w: %q: %s", ErrIssuer, printable(text), reason)
	}

	segments := strings.Split(strings.TrimPrefix(text, didWeb), ":")
	host, err := url.PathUnescape(segments[0])
	if err != nil {
		return invalid("broken percent-encoding")
	}

	domain, err := ParseDomain(host)
	if err != nil {
		return invalid("want did:web:host or did:web:host%3Aport")
	}

	did := webDID{domain: trimPort(domain)}
	for _, segment := range segments[1:] {
		decoded, err := url.PathUnescape(segment)
		if err != nil || !didSegment(decoded) {
			return invalid("a path segment has characters that it must not have")
		}
		did.path = append(did.path, decoded)
	}

	return did, nil
}

// didSegment allows what stands for itself in a DID and in a path, so that no two DIDs share an address.
func didSegment(segment string) bool {
	return segment != "" && segment != "." && segment != ".." && !strings.ContainsFunc(segment, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-~", r)
	})
}

// String writes did:web:host%3Aport:segment.
func (d webDID) String() string {
	host := strings.NewReplacer(":", "%3A", "[", "%5B", "]", "%5D").Replace(d.domain)
	return didWeb + strings.Join(append([]string{host}, d.path...), ":")
}

// didOf returns the did:web of a domain.
func didOf(domain string) string { return webDID{domain: domain}.String() }

// keyDocumentURL returns where a canonical issuer publishes its keys: the Connector Card of a host, or did.json (did:web
// method specification, section 2.5.2). A host with a port is a development server when plain http is allowed.
func keyDocumentURL(issuer string, allowHTTP bool) (string, error) {
	domain, path := issuer, "/.well-known/adapter-card"
	if strings.HasPrefix(issuer, didWeb) {
		did, err := parseDIDWeb(issuer)
		if err != nil {
			return "", err
		}
		domain, path = did.domain, "/.well-known/did.json"
		if len(did.path) > 0 {
			path = "/" + strings.Join(did.path, "/") + "/did.json"
		}
	}
	return (&url.URL{Scheme: schemeOf(domain, allowHTTP), Host: bracketed(domain), Path: path}).String(), nil
}

func schemeOf(domain string, allowHTTP bool) string {
	if allowHTTP && HostOf(domain) != domain {
		return "http"
	}
	return "https"
}

// bracketed writes a bare IPv6 literal as a URL wants it.
func bracketed(domain string) string {
	if ip := net.ParseIP(domain); ip != nil && ip.To4() == nil {
		return "[" + domain + "]"
	}
	return domain
}

// attestationLife is the life of what Sign makes when the evidence has no end of its own.
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

// Vouches reports whether the evidence proves an address (in canonical form). It must be accepted evidence.
func (e *Evidence) Vouches(address string) bool {
	stated, err := ParseAddress(address)
	if err != nil {
		return false
	}
	proven, is := e.vouched()
	return is && proven == stated
}

// Proven returns the address for which the evidence vouches; empty = it vouches for none. It must be accepted evidence.
func (e *Evidence) Proven() ProvenAddress {
	proven, is := e.vouched()
	if !is {
		return ""
	}
	return ProvenAddress(proven.String())
}

// vouched returns the one address that the evidence proves: its subject is the acct: or mailto: form of it, or our own ActivityPub
// transport saw an actor whom WebFinger of that address names (the claim account). The user name that an actor chooses itself proves
// nothing: any account on its host may take any name that is free there.
func (e *Evidence) vouched() (Address, bool) {
	if proven, is := e.provenAddress(); is {
		return proven, true
	}
	if !e.fromActivityPub() {
		return Address{}, false
	}

	var claims struct {
		Account string `json:"account"`
	}
	if json.Unmarshal(e.Claims, &claims) != nil {
		return Address{}, false
	}

	account, err := ParseAddress(claims.Account)
	return account, err == nil
}

// Local reports whether an agent of this server speaks: the server made the message itself.
func (e *Evidence) Local() bool {
	return e.Proof.Type == ProofTransport && e.Method == MethodLocalAgent
}

// Domain returns the domain that answers for what the evidence is about: that of an address, the host of an actor, or else the
// issuer's; empty = the evidence names none.
func (e *Evidence) Domain() string {
	if proven, is := e.provenAddress(); is {
		return proven.Domain
	}
	for _, name := range [...]string{e.Subject, e.Issuer} {
		if host := hostOfIRI(name); host != "" {
			return host
		}
	}

	if strings.HasPrefix(e.Issuer, didWeb) {
		did, _ := parseDIDWeb(e.Issuer)
		return did.domain
	}
	domain, _ := ParseDomain(e.Issuer)
	return domain
}

// provenAddress reads a subject that is an address.
func (e *Evidence) provenAddress() (Address, bool) {
	text, ok := strings.CutPrefix(e.Subject, "acct:")
	if !ok {
		text, ok = strings.CutPrefix(e.Subject, "mailto:")
	}
	if !ok || strings.HasPrefix(text, "@") || strings.HasPrefix(text, "acct:") {
		return Address{}, false
	}
	address, err := ParseAddress(text)
	return address, err == nil
}

func (e *Evidence) fromActivityPub() bool {
	return e.Proof.Type == ProofTransport && (e.Method == MethodActivityPubSignature || e.Method == MethodActivityPubProof)
}

// hostOfIRI returns the domain of an actor as addresses have it.
func hostOfIRI(subject string) string {
	parsed, err := url.Parse(subject)
	if err != nil || parsed.User != nil || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return ""
	}
	domain, err := ParseDomain(parsed.Host)
	if err != nil {
		return ""
	}
	return trimPort(domain)
}
