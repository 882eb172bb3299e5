package identity

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// How long key documents are kept. A key that its issuer withdraws is accepted for keepDocument at most.
const (
	keepDocument   = 10 * time.Minute
	keepFailure    = time.Minute
	refreshPause   = 30 * time.Second // between two refreshes of one issuer for a key that it does not list, of one caller
	fetchTimeout   = 10 * time.Second
	maxKeptIssuers = 256
)

// Documents fetches key documents: at most MaxKeyDocumentBytes, without redirects, through the guarded client.
type Documents interface {
	Fetch(ctx context.Context, url string) ([]byte, error)
}

// keyCache holds the key documents of trusted issuers. At most one fetch an issuer is on its way at a time, and no one
// but the callers who need it waits for it.
type keyCache struct {
	documents Documents
	now       func() time.Time
	allowHTTP bool

	mu      sync.Mutex
	issuers map[string]*issuerKeys
}

// issuerKeys is guarded by keyCache.mu.
type issuerKeys struct {
	document *keyDocument // with err: the last outcome
	err      error
	expires  time.Time
	looks    Looks   // refreshes for unknown keys
	flight   *flight // nil = no fetch on its way
}

// flight is one fetch; its outcome is written before done is closed.
type flight struct {
	done     chan struct{}
	document *keyDocument
	err      error
}

// find returns a key of a canonical issuer. A key that a kept document does not list causes one refresh, which counts for the caller.
func (c *keyCache) find(ctx context.Context, caller, issuer, kid string) (key publishedKey, owner string, found bool, err error) {
	document, kept, err := c.current(ctx, issuer)
	if err != nil {
		return publishedKey{}, "", false, err
	}

	key, found = document.keys[document.name(kid)]
	if found || !kept {
		return key, document.owner, found, nil
	}
	if document, err = c.refresh(ctx, caller, issuer, document.name(kid), document); err != nil {
		return publishedKey{}, "", false, err
	}

	key, found = document.keys[document.name(kid)]
	return key, document.owner, found, nil
}

// current returns the document that is kept, or waits for a fetch.
func (c *keyCache) current(ctx context.Context, issuer string) (document *keyDocument, kept bool, err error) {
	c.mu.Lock()
	keys := c.entry(issuer)
	if c.now().Before(keys.expires) {
		defer c.mu.Unlock()
		return keys.document, true, keys.err
	}

	flight := c.fly(ctx, issuer, keys)
	c.mu.Unlock()
	document, err = flight.wait(ctx)
	return document, false, err
}

// refresh fetches the issuer's document again because seen lacks a key. It returns what is there when the caller may not cause a fetch.
func (c *keyCache) refresh(ctx context.Context, caller, issuer, kid string, seen *keyDocument) (*keyDocument, error) {
	c.mu.Lock()
	keys, now := c.entry(issuer), c.now()
	switch {
	case keys.document != nil && keys.document != seen: // another caller was faster
		defer c.mu.Unlock()
		return keys.document, nil
	case keys.flight == nil:
		if may, _ := keys.looks.May(caller, kid, now, refreshPause); !may {
			c.mu.Unlock()
			return seen, nil
		}
		keys.looks.Note(caller, kid, now)
	}

	flight := c.fly(ctx, issuer, keys)
	c.mu.Unlock()
	return flight.wait(ctx)
}

// entry returns the room of an issuer and makes one when needed. The lock is held.
func (c *keyCache) entry(issuer string) *issuerKeys {
	keys, found := c.issuers[issuer]
	if !found {
		if len(c.issuers) >= maxKeptIssuers {
			c.forgetOne()
		}
		keys = &issuerKeys{}
		c.issuers[issuer] = keys
	}
	return keys
}

// forgetOne removes the issuer whose document ends first.
func (c *keyCache) forgetOne() {
	first := ""
	for issuer, keys := range c.issuers {
		if first == "" || keys.expires.Before(c.issuers[first].expires) {
			first = issuer
		}
	}
	delete(c.issuers, first)
}

// fly joins the fetch on its way or starts one, which does not end with the caller: others may wait for it, too. The
// lock is held.
func (c *keyCache) fly(ctx context.Context, issuer string, keys *issuerKeys) *flight {
	if keys.flight == nil {
		keys.flight = &flight{done: make(chan struct{})}
		go c.run(context.WithoutCancel(ctx), issuer, keys, keys.flight)
	}
	return keys.flight
}

func (c *keyCache) run(ctx context.Context, issuer string, keys *issuerKeys, flight *flight) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	flight.document, flight.err = c.fetch(ctx, issuer)
	c.mu.Lock()
	c.keep(keys, flight)
	c.mu.Unlock()
	close(flight.done)
}

// keep writes the outcome down. A refresh that failed does not take away what is known.
func (c *keyCache) keep(keys *issuerKeys, flight *flight) {
	keys.flight = nil
	now := c.now()
	switch {
	case flight.err == nil:
		keys.document, keys.err, keys.expires = flight.document, nil, now.Add(keepDocument)
	case keys.document == nil || !now.Before(keys.expires):
		keys.document, keys.err, keys.expires = nil, flight.err, now.Add(keepFailure)
	}
}

func (c *keyCache) fetch(ctx context.Context, issuer string) (*keyDocument, error) {
	address, err := keyDocumentURL(issuer, c.allowHTTP)
	if err != nil {
		return nil, err
	}

	body, err := c.documents.Fetch(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", address, err)
	}

	document, err := parseKeyDocument(issuer, body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", address, err)
	}
	return document, nil
}

func (f *flight) wait(ctx context.Context) (*keyDocument, error) {
	select {
	case <-f.done:
		return f.document, f.err
	case <-ctx.Done():
		return nil, errors.New("no answer in time")
	}
}

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

// keyProblem says why a key cannot be used; evidence and credentials have their own codes for it.
type keyProblem int

const (
	keyGood keyProblem = iota
	keyNotFetched
	keyDocumentForeign
	keyUnknown
	keyForeign
	keyEnded
	keyWrongKind
	keyWrongPurpose
)

var evidenceKeyCodes = map[keyProblem]string{
	keyNotFetched:      CodeKeyFetchFailed,
	keyDocumentForeign: CodeControllerMismatch,
	keyUnknown:         CodeUnknownKey,
	keyForeign:         CodeControllerMismatch,
	keyEnded:           CodeKeyRetired,
	keyWrongKind:       CodeUnsupportedAlgorithm,
	keyWrongPurpose:    CodeWrongKeyPurpose,
}

var credentialKeyCodes = map[keyProblem]string{
	keyNotFetched:      CodeCredentialKeyFetchFailed,
	keyDocumentForeign: CodeCredentialControllerMismatch,
	keyUnknown:         CodeCredentialKeyFetchFailed,
	keyForeign:         CodeCredentialControllerMismatch,
	keyEnded:           CodeCredentialKeyFetchFailed,
	keyWrongKind:       CodeCredentialCryptosuite,
	keyWrongPurpose:    CodeCredentialControllerMismatch,
}

// keyOf returns the key with which a trusted issuer may have signed.
func (v *Validator) keyOf(ctx context.Context, caller, issuer, kid string) (key ed25519.PublicKey, problem keyProblem, detail string) {
	published, owner, found, err := v.keys.find(ctx, caller, issuer, kid)
	switch {
	case err != nil:
		return nil, keyNotFetched, err.Error()
	case !sameIssuer(owner, issuer):
		return nil, keyDocumentForeign, "the document is that of " + owner
	case !found:
		return nil, keyUnknown, kid
	case !sameIssuer(published.controller, issuer):
		return nil, keyForeign, "the key's controller is " + published.controller
	case !published.ends.IsZero() && !v.now().Before(published.ends):
		return nil, keyEnded, kid
	case published.key == nil:
		return nil, keyWrongKind, "the key is not Ed25519"
	case !published.asserts:
		return nil, keyWrongPurpose, kid
	}

	return published.key, keyGood, ""
}

func sameIssuer(text, canonical string) bool {
	issuer, err := CanonicalIssuer(text)
	return err == nil && issuer == canonical
}

// TransportProof is what one of our own adapters verified on the wire. All fields but KeyID are required.
type TransportProof struct {
	Domain    string    // our domain: issuer of the evidence and verifier of the proof
	Subject   string    // actor IRI, mailto:user@domain, token:<id>
	Method    string    // one of the Method constants
	Assurance string    // one of the Assurance constants
	Recipient string    // the agent that the message is for, @agent@domain
	KeyID     string    // key URL, DKIM selector and domain, JWT kid
	Addressed string    // one of the Addressed constants
	IssuedAt  time.Time // when we checked, our clock
}

// Transport makes the evidence of a proof that was checked inside our own boundary. Never call it for something that a
// peer claims: evidence with a transport proof that arrives from outside is dropped (message contract, section 10).
func Transport(proof TransportProof) Evidence {
	return Evidence{
		Subject: proof.Subject, Issuer: proof.Domain, Method: proof.Method, Assurance: proof.Assurance,
		Audience: Audience{proof.Recipient}, IssuedAt: At(proof.IssuedAt),
		Proof: Proof{Type: ProofTransport, VerifiedBy: proof.Domain, Addressed: proof.Addressed, KeyID: proof.KeyID},
	}
}
