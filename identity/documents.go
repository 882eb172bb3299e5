package identity

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// PublicKey is a key as it is published.
type PublicKey struct {
	Kid      string
	Key      ed25519.PublicKey
	NotAfter time.Time // the key is out of rotation from then on; zero = it is in use
}

// connectorCard is the document at /.well-known/adapter-card.
type connectorCard struct {
	Issuer          string       `json:"issuer"`
	CallbackURLs    []string     `json:"callback_urls"`
	Active          []writtenKey `json:"active_keys"`
	Previous        []writtenKey `json:"previous_keys"`
	AssertionMethod []string     `json:"assertion_method"`
}

// ConnectorCard writes the Connector Card of a host issuer, for /.well-known/adapter-card (message contract, section 10).
// A previous key without NotAfter counts as ended for everybody who reads the card.
func ConnectorCard(issuer string, callbacks []string, active, previous []PublicKey) []byte {
	card := connectorCard{
		Issuer: issuer, CallbackURLs: append([]string{}, callbacks...), Active: []writtenKey{}, Previous: []writtenKey{},
		AssertionMethod: []string{},
	}
	for _, key := range active {
		card.Active = append(card.Active, cardKey(issuer, key))
		card.AssertionMethod = append(card.AssertionMethod, key.Kid)
	}
	for _, key := range previous {
		card.Previous = append(card.Previous, cardKey(issuer, key))
		card.AssertionMethod = append(card.AssertionMethod, key.Kid)
	}
	return encodeDocument(card)
}

func cardKey(issuer string, key PublicKey) writtenKey {
	return writtenKey{ID: key.Kid, Type: "JsonWebKey", Controller: issuer, JWK: webKey(key), NotAfter: ending(key)}
}

// didDocument is a DID document (Decentralized Identifiers 1.0) of did:web.
type didDocument struct {
	Context         []string     `json:"@context"`
	ID              string       `json:"id"`
	Methods         []writtenKey `json:"verificationMethod"`
	AssertionMethod []string     `json:"assertionMethod"`
}

// DIDDocument writes the did.json of a domain, or of a did:web, with Multikey verification methods for assertions.
func DIDDocument(issuer string, keys []PublicKey) []byte {
	if !strings.HasPrefix(issuer, didWeb) {
		issuer = didOf(issuer)
	}
	document := didDocument{
		Context: []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"},
		ID:      issuer, Methods: []writtenKey{}, AssertionMethod: []string{},
	}
	for _, key := range keys {
		id := issuer + "#" + key.Kid
		document.Methods = append(document.Methods, writtenKey{
			ID: id, Type: "Multikey", Controller: issuer, Multibase: encodeMultikey(key.Key), Expires: ending(key),
		})
		document.AssertionMethod = append(document.AssertionMethod, id)
	}
	return encodeDocument(document)
}

// KeySet writes a JWK Set (RFC 7517) for /.well-known/jwks.json. It has no place for an end: leave out what has ended.
func KeySet(keys []PublicKey) []byte {
	set := struct {
		Keys []*jsonWebKey `json:"keys"`
	}{Keys: []*jsonWebKey{}}
	for _, key := range keys {
		written := webKey(key)
		written.KeyID, written.Use, written.Algorithm = key.Kid, "sig", "EdDSA"
		set.Keys = append(set.Keys, written)
	}
	return encodeDocument(set)
}

func webKey(key PublicKey) *jsonWebKey {
	return &jsonWebKey{Type: "OKP", Curve: "Ed25519", X: base64.RawURLEncoding.EncodeToString(key.Key)}
}

func ending(key PublicKey) *Time {
	if key.NotAfter.IsZero() {
		return nil
	}
	end := At(key.NotAfter)
	return &end
}

// encodeDocument cannot fail: the documents hold nothing but texts and times.
func encodeDocument(document any) []byte {
	body, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil
	}
	return append(body, '\n')
}
