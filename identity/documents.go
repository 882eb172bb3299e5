package identity

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
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
// A previous key without NotAfter counts as ended for all readers of the card.
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

const base58Alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// maxBase58 bounds what is decoded: the work grows with the square, and a signature has 88 characters.
const maxBase58 = 128

var (
	errMultibase = errors.New("must be multibase base58btc (z…)")
	errMultikey  = errors.New("is not an Ed25519 multikey")
)

// multikeyEd25519 is the multicodec prefix of an Ed25519 public key (Controlled Identifiers 1.0, section 2.2.2).
var multikeyEd25519 = []byte{0xed, 0x01}

// encodeMultibase writes base58btc with its multibase letter z.
func encodeMultibase(data []byte) string {
	number, base, digit := new(big.Int).SetBytes(data), big.NewInt(58), new(big.Int)
	var reversed []byte
	for number.Sign() > 0 {
		number.DivMod(number, base, digit)
		reversed = append(reversed, base58Alphabet[digit.Int64()])
	}

	var text strings.Builder
	text.WriteByte('z')

	for _, b := range data {
		if b != 0 {
			break
		}
		text.WriteByte(base58Alphabet[0])
	}

	for _, letter := range slices.Backward(reversed) {
		text.WriteByte(letter)
	}

	return text.String()
}

// decodeMultibase reads what encodeMultibase writes and nothing else.
func decodeMultibase(text string) ([]byte, error) {
	digits, ok := strings.CutPrefix(text, "z")
	if !ok || digits == "" || len(digits) > maxBase58 {
		return nil, errMultibase
	}

	number, base := new(big.Int), big.NewInt(58)
	for i := range len(digits) {
		value := strings.IndexByte(base58Alphabet, digits[i])
		if value < 0 {
			return nil, errMultibase
		}
		number.Add(number.Mul(number, base), big.NewInt(int64(value)))
	}

	zeros := len(digits) - len(strings.TrimLeft(digits, base58Alphabet[:1]))
	return append(make([]byte, zeros), number.Bytes()...), nil
}

func encodeMultikey(key ed25519.PublicKey) string {
	return encodeMultibase(append(bytes.Clone(multikeyEd25519), key...))
}

func decodeMultikey(text string) (ed25519.PublicKey, error) {
	data, err := decodeMultibase(text)
	if err != nil {
		return nil, err
	}
	key, ok := bytes.CutPrefix(data, multikeyEd25519)
	if !ok || len(key) != ed25519.PublicKeySize {
		return nil, errMultikey
	}
	return key, nil
}

// KeyDocumentURL returns where a canonical issuer publishes its keys: the Connector Card of a host, or did.json of a did:web.
// With allowHTTP a host with a port is a development server.
func KeyDocumentURL(issuer string, allowHTTP bool) (string, error) {
	return keyDocumentURL(issuer, allowHTTP)
}

// AssertionKeys reads the document of a canonical issuer (KeyDocumentURL) and returns the Ed25519 keys that are its own, for
// assertions and in rotation at a time. Kid is the name without the DID. The document must name its issuer.
func AssertionKeys(issuer string, body []byte, now time.Time) ([]PublicKey, error) {
	document, err := parseKeyDocument(issuer, body)
	if err != nil {
		return nil, err
	}
	if !sameIssuer(document.owner, issuer) {
		return nil, refuse(CodeControllerMismatch, document.owner)
	}

	var keys []PublicKey
	for kid, key := range document.keys {
		if key.key == nil || !key.asserts || !sameIssuer(key.controller, issuer) || !key.ends.IsZero() && !now.Before(key.ends) {
			continue
		}
		keys = append(keys, PublicKey{Kid: kid, Key: key.key, NotAfter: key.ends})
	}

	return keys, nil
}

// DIDOf returns the did:web of a domain.
func DIDOf(domain string) string { return didOf(domain) }
