package identity

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxKeyDocumentBytes bounds a Connector Card or DID document.
const MaxKeyDocumentBytes = 256 << 10

const maxPublishedKeys = 64

// publishedKey is one verification method of a key document.
type publishedKey struct {
	controller string
	key        ed25519.PublicKey // nil when it is of another kind
	asserts    bool              // listed for assertions
	ends       time.Time         // zero = in rotation until it disappears
}

// keyDocument is what an issuer published, by key id: without the DID in front of the # in a DID document.
type keyDocument struct {
	issuer string
	owner  string // whom the document says that it belongs to
	keys   map[string]publishedKey
}

// writtenKey is a verification method as it is written (Controlled Identifiers 1.0, section 2.2).
type writtenKey struct {
	ID         string      `json:"id"`
	Type       string      `json:"type,omitempty"`
	Controller string      `json:"controller"`
	Multibase  string      `json:"publicKeyMultibase,omitempty"`
	JWK        *jsonWebKey `json:"publicKeyJwk,omitempty"`
	NotAfter   *Time       `json:"not_after,omitempty"` // Connector Card
	Expires    *Time       `json:"expires,omitempty"`   // DID document
	Revoked    *Time       `json:"revoked,omitempty"`   // DID document
}

// jsonWebKey is an Ed25519 public key (RFC 8037).
type jsonWebKey struct {
	Type      string `json:"kty"`
	Curve     string `json:"crv,omitempty"`
	X         string `json:"x,omitempty"`
	KeyID     string `json:"kid,omitempty"`
	Use       string `json:"use,omitempty"`
	Algorithm string `json:"alg,omitempty"`
}

// writtenDocument is a Connector Card or a DID document; each fills its own members.
type writtenDocument struct {
	Issuer          string            `json:"issuer"`
	Active          []writtenKey      `json:"active_keys"`
	Previous        []writtenKey      `json:"previous_keys"`
	CardAssertion   []json.RawMessage `json:"assertion_method"`
	ID              string            `json:"id"`
	Methods         []writtenKey      `json:"verificationMethod"`
	AssertionMethod []json.RawMessage `json:"assertionMethod"`
}

var documentNames = []string{
	"issuer", "active_keys", "previous_keys", "assertion_method", "id", "verificationMethod", "assertionMethod",
}

// parseKeyDocument reads the document of a canonical issuer strictly. Keys of other kinds are kept by name, so that
// their use can be told from the use of an unknown key.
func parseKeyDocument(issuer string, body []byte) (*keyDocument, error) {
	if len(body) > MaxKeyDocumentBytes {
		return nil, fmt.Errorf("the document is over %d bytes", MaxKeyDocumentBytes)
	}
	canonical, err := canonicalObject(body)
	if err != nil {
		return nil, err
	}
	var written writtenDocument
	if err := decodeExact(canonical, &written, documentNames...); err != nil {
		return nil, err
	}
	document := &keyDocument{issuer: issuer, owner: written.Issuer, keys: map[string]publishedKey{}}
	if strings.HasPrefix(issuer, didWeb) {
		document.owner = written.ID
		return document, document.fill(written.Methods, nil, written.AssertionMethod)
	}
	return document, document.fill(written.Active, written.Previous, written.CardAssertion)
}

func (d *keyDocument) fill(active, previous []writtenKey, assertions []json.RawMessage) error {
	if len(active)+len(previous) > maxPublishedKeys || len(assertions) > maxPublishedKeys {
		return fmt.Errorf("the document has over %d keys", maxPublishedKeys)
	}
	for _, written := range active {
		if err := d.add(written, written.ends()); err != nil {
			return err
		}
	}
	for _, written := range previous {
		if written.NotAfter == nil {
			continue // a previous key without an end has ended
		}
		if err := d.add(written, written.ends()); err != nil {
			return err
		}
	}
	for _, assertion := range assertions {
		if err := d.assert(assertion); err != nil {
			return err
		}
	}
	return nil
}

func (d *keyDocument) add(written writtenKey, ends time.Time) error {
	name := d.name(written.ID)
	if _, twice := d.keys[name]; twice || name == "" {
		return fmt.Errorf("the document names key %q twice or not at all", printable(written.ID))
	}
	d.keys[name] = publishedKey{controller: written.Controller, key: written.public(), ends: ends}
	return nil
}

// assert marks a key that is listed by name, or adds one that stands in the list itself.
func (d *keyDocument) assert(listed json.RawMessage) error {
	var id string
	if err := json.Unmarshal(listed, &id); err != nil {
		var written writtenKey
		if err := json.Unmarshal(listed, &written); err != nil {
			return errors.New("the document lists something else than keys for assertions")
		}
		if err := d.add(written, written.ends()); err != nil {
			return err
		}
		id = written.ID
	}
	if key, found := d.keys[d.name(id)]; found {
		key.asserts = true
		d.keys[d.name(id)] = key
	}
	return nil
}

// name returns the part of a key id that is the same in every way to write it: key-1, #key-1 and did:web:a.example#key-1.
func (d *keyDocument) name(id string) string {
	owner, fragment, found := strings.Cut(id, "#")
	if !found {
		return id
	}
	if canonical, err := CanonicalIssuer(owner); owner == "" || err == nil && canonical == d.issuer {
		return fragment
	}
	return id
}

// ends returns the earliest of the times after which the key must not be used.
func (w writtenKey) ends() time.Time {
	var first time.Time
	for _, end := range []*Time{w.NotAfter, w.Expires, w.Revoked} {
		if end != nil && (first.IsZero() || end.Before(first)) {
			first = end.Time
		}
	}
	return first
}

// public returns the Ed25519 key of a JsonWebKey or Multikey, nil for every other.
func (w writtenKey) public() ed25519.PublicKey {
	if w.JWK != nil && w.Multibase == "" {
		key, err := base64.RawURLEncoding.Strict().DecodeString(w.JWK.X)
		if err != nil || w.JWK.Type != "OKP" || w.JWK.Curve != "Ed25519" || len(key) != ed25519.PublicKeySize {
			return nil
		}
		return key
	}
	if key, err := decodeMultikey(w.Multibase); err == nil && w.JWK == nil {
		return key
	}
	return nil
}
