package identity

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/internal/golden"
)

// fixedKey is the same at each run.
func fixedKey(t testing.TB, issuer string, seed byte) SigningKey {
	t.Helper()
	key, err := SigningKeyOf(issuer, ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize))))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestGoldenDocuments(t *testing.T) {
	active, previous := fixedKey(t, "here.test", 1).Public(), fixedKey(t, "here.test", 2).Public()
	previous.NotAfter = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for name, body := range map[string][]byte{
		"connector-card": ConnectorCard("here.test", []string{"https://here.test/v1/connectors/slack/messages"}, []PublicKey{active}, []PublicKey{previous}),
		"empty-card":     ConnectorCard("here.test", nil, nil, nil),
		"did":            DIDDocument("here.test:8443", []PublicKey{active, previous}),
		"jwks":           KeySet([]PublicKey{active, previous}),
	} {
		golden.Compare(t, name+".golden.json", body)
	}
}

// RFC 8037, appendix A.3.
func TestThumbprint(t *testing.T) {
	key, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if err != nil || KeyID(key) != "key-kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Error(KeyID(key), err)
	}
}

// Each way to name the same key in a proof finds it, and none finds a key of someone else.
func TestKeyNames(t *testing.T) {
	for kid, want := range map[string]bool{
		"k": true, "#k": true, didIssuer + "#k": true, "did:web:Connector.test#k": true,
		"": false, "#": false, "K": false, "did:web:other.test#k": false, "did:web:connector.test:x#k": false, "k#k": false,
	} {
		key := fixedKey(t, didIssuer, 3)
		document, err := parseKeyDocument(didIssuer, DIDDocument(didIssuer, []PublicKey{{Kid: "k", Key: key.public()}}))
		if err != nil {
			t.Fatal(err)
		}
		if _, found := document.keys[document.name(kid)]; found != want {
			t.Errorf("%q: %v", kid, found)
		}
	}
}

// DID documents of others: JsonWebKey, a key that stands in the list, an end by revocation, other kinds beside it.
func TestForeignDIDDocument(t *testing.T) {
	key := fixedKey(t, didIssuer, 4)
	x := base64.RawURLEncoding.EncodeToString(key.public())
	body := fmt.Sprintf(`{"@context":"https://www.w3.org/ns/did/v1","id":"did:web:connector.test","service":[{"id":"#s"}],
		"verificationMethod":[
			{"id":"#jwk","type":"JsonWebKey2020","controller":"did:web:connector.test","publicKeyJwk":{"kty":"OKP","crv":"Ed25519","x":%q}},
			{"id":"#rsa","type":"JsonWebKey","controller":"did:web:connector.test","publicKeyJwk":{"kty":"RSA","n":"AQ","e":"AQAB"}},
			{"id":"#gone","type":"Multikey","controller":"did:web:connector.test","publicKeyMultibase":%q,"revoked":"2026-01-01T00:00:00Z"}],
		"assertionMethod":["#jwk","did:web:connector.test#gone","#nowhere",
			{"id":"#own","type":"Multikey","controller":"did:web:connector.test","publicKeyMultibase":%q}]}`,
		x, encodeMultikey(key.public()), encodeMultikey(key.public()))
	document, err := parseKeyDocument(didIssuer, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]publishedKey{
		"jwk":  {controller: didIssuer, key: key.public(), asserts: true},
		"rsa":  {controller: didIssuer},
		"gone": {controller: didIssuer, key: key.public(), asserts: true, ends: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		"own":  {controller: didIssuer, key: key.public(), asserts: true},
	} {
		if diff := cmp.Diff(want, document.keys[name], cmp.AllowUnexported(publishedKey{})); diff != "" {
			t.Error(name, diff)
		}
	}
}

func TestKeyDocumentRefused(t *testing.T) {
	var many []PublicKey
	for i := range maxPublishedKeys + 1 {
		many = append(many, PublicKey{Kid: fmt.Sprint("k", i), Key: fixedKey(t, "here.test", 1).public()})
	}
	for name, body := range map[string]string{
		"nothing": "", "null": "null", "list": "[]", "HTML": "<html>", "two": "{}{}", "many": string(DIDDocument("here.test", many)),
		"folded": `{"ID":"did:web:here.test"}`, "key without name": `{"verificationMethod":[{"controller":"a"}]}`,
		"no key in the list": `{"assertionMethod":[1]}`, "time": `{"verificationMethod":[{"id":"#a","expires":"tomorrow"}]}`,
	} {
		if document, err := parseKeyDocument("did:web:here.test", []byte(body)); err == nil {
			t.Errorf("%s: %+v", name, document)
		}
	}
}

func FuzzKeyDocument(f *testing.F) {
	keys := []PublicKey{fixedKey(f, "here.test", 1).Public()}
	f.Add(ConnectorCard("here.test", []string{"https://here.test/"}, keys, keys))
	f.Add(DIDDocument("here.test", keys))
	f.Add([]byte(`{"id":"did:web:here.test","assertionMethod":[{"id":"#a","publicKeyMultibase":"z1"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, issuer := range []string{"here.test", "did:web:here.test"} {
			document, err := parseKeyDocument(issuer, body)
			if err == nil && len(document.keys) > 2*maxPublishedKeys {
				t.Fatal(len(document.keys))
			}
		}
	})
}

func TestMultibase(t *testing.T) {
	for text, want := range map[string]string{
		"z": "", "zStV1DL6CwTryKyV": "hello world", "z2NEpo7TZRRrLZSi2U": "Hello World!", "z11233QC4": "\x00\x00\x28\x7f\xb4\xcd", "z1": "\x00",
	} {
		if got := encodeMultibase([]byte(want)); got != text {
			t.Errorf("%q is %s, want %s", want, got, text)
		}
		if got, err := decodeMultibase(text); text != "z" && (err != nil || string(got) != want) {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
	for _, text := range []string{"", "z", "StV1", "z0", "zO", "zI", "zl", "z é", "z" + strings.Repeat("z", maxBase58+1)} {
		if got, err := decodeMultibase(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 1, 80).Draw(t, "data")
		if got, err := decodeMultibase(encodeMultibase(data)); err != nil || string(got) != string(data) {
			t.Fatalf("%x %v", got, err)
		}
	})
}

func TestMultikeyRefuses(t *testing.T) {
	for _, text := range []string{"", "z", encodeMultibase([]byte{0xed, 1}), encodeMultibase(make([]byte, 34)), encodeMultibase(append([]byte{0xed, 1}, make([]byte, 33)...))} {
		if key, err := decodeMultikey(text); err == nil {
			t.Errorf("%q: %x", text, key)
		}
	}
}
