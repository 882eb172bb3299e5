package identity

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const didIssuer = "did:web:connector.test"

// credentialFor writes an unsigned credential for the echo agent and message m-1.
func credentialFor(b *bench, now time.Time) map[string]any {
	contexts := []any{"https://www.w3.org/ns/credentials/v2", "https://mentionable.dev/ns/identity/v0.2/context.jsonld"}
	return map[string]any{
		"@context": contexts, "id": "urn:uuid:1", "type": []any{"VerifiableCredential", "PlatformIdentityCredential"},
		"issuer": didIssuer, "validFrom": At(now), "validUntil": At(now.Add(5 * time.Minute)),
		"credentialSubject": map[string]any{"id": slackUser, "method": slackWay, "name": "Alice", "team": map[string]any{"id": "T123"}},
		"proof": map[string]any{
			"@context": contexts, "type": "DataIntegrityProof", "cryptosuite": "eddsa-jcs-2022", "proofPurpose": "assertionMethod",
			"verificationMethod": b.did.reference(), "created": At(now), "domain": agentHere, "challenge": "m-1",
		},
	}
}

// seal signs a credential and writes it.
func seal(t testing.TB, document map[string]any, private ed25519.PrivateKey) json.RawMessage {
	t.Helper()
	canonical, err := encodeCanonical(document)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := integrityHash(canonical)
	if err != nil {
		t.Fatal(err)
	}
	document["proof"].(map[string]any)["proofValue"] = encodeMultibase(ed25519.Sign(private, hash))
	return encode(t, document)
}

func (b *bench) present(t testing.TB, credentials ...json.RawMessage) Validation {
	t.Helper()
	return b.validator.Validate(t.Context(), Offered{Credentials: credentials, Challenge: "m-1"}, Recipient{Address: agentHere})
}

func TestCredentialIsBelieved(t *testing.T) {
	b := newBench(t, nil)
	validation := b.present(t, seal(t, credentialFor(b, time.Now()), b.did.Private))
	if len(validation.Credentials) != 1 || len(validation.Rejected) != 0 {
		t.Fatalf("%+v", validation.Rejected)
	}
	got := validation.Credentials[0]
	if got.Issuer != didIssuer || got.Subject != slackUser || got.Method != slackWay || string(got.Claims) != `{"name":"Alice","team":{"id":"T123"}}` {
		t.Errorf("%+v %s", got, got.Claims)
	}
	if len(validation.Evidence) != 0 {
		t.Error("a credential became evidence")
	}
}

func TestCredentialIssuerMayBeAnObject(t *testing.T) {
	b := newBench(t, nil)
	document := credentialFor(b, time.Now())
	document["issuer"] = map[string]any{"id": didIssuer, "name": "Connector"}
	if validation := b.present(t, seal(t, document, b.did.Private)); len(validation.Credentials) != 1 {
		t.Error(validation.Rejected)
	}
}

func credentialWith(change func(document, proof map[string]any)) func(*testing.T, *bench) json.RawMessage {
	return func(t *testing.T, b *bench) json.RawMessage {
		document := credentialFor(b, time.Now())
		change(document, document["proof"].(map[string]any))
		return seal(t, document, b.did.Private)
	}
}

func credentialUnder(document func(*bench) []byte) func(*testing.T, *bench) json.RawMessage {
	return func(t *testing.T, b *bench) json.RawMessage {
		b.shelf.publish(didURL, document(b))
		return seal(t, credentialFor(b, time.Now()), b.did.Private)
	}
}

func inSubject(name string, value any) func(*testing.T, *bench) json.RawMessage {
	return credentialWith(func(d, _ map[string]any) { d["credentialSubject"].(map[string]any)[name] = value })
}

func inDocument(name string, value any) func(*testing.T, *bench) json.RawMessage {
	return credentialWith(func(d, _ map[string]any) { d[name] = value })
}

func inProof(name string, value any) func(*testing.T, *bench) json.RawMessage {
	return credentialWith(func(_, p map[string]any) { p[name] = value })
}

var wrongCredentials = []wrong{
	{CodeCredentialMalformed, "not JSON", literal(`x`)},
	{CodeCredentialMalformed, "null", literal(`null`)},
	{CodeCredentialMalformed, "no members", literal(`{}`)},
	{CodeCredentialMalformed, "equal names", literal(`{"proof":{"type":"a","type":"b"}}`)},
	{CodeCredentialMalformed, "several proofs", literal(`{"proof":[]}`)},
	{CodeCredentialMalformed, "several subjects", inDocument("credentialSubject", []any{map[string]any{"id": slackUser}})},
	{CodeCredentialMalformed, "no issuer", inDocument("issuer", nil)},
	{CodeCredentialMalformed, "other case", inDocument("Issuer", "did:web:other.test")},
	{CodeCredentialMalformed, "no end", inDocument("validUntil", nil)},
	{CodeCredentialMalformed, "time without zone", inDocument("validUntil", "2026-11-21T12:00:00")},
	{CodeCredentialMalformed, "no method", inSubject("method", "")},
	{CodeCredentialMalformed, "control characters", inSubject("id", "slack:T123/\n")},
	{CodeCredentialLimitExceeded, "33 KiB", inSubject("x", strings.Repeat("x", 33<<10))},
	{CodeCredentialLimitExceeded, "id", inSubject("id", "slack:T123/"+strings.Repeat("x", 512))},
	{CodeCredentialLimitExceeded, "method", inSubject("method", strings.Repeat("x", 257))},
	{CodeCredentialLimitExceeded, "name", inSubject("name", strings.Repeat("x", 257))},
	{CodeCredentialLimitExceeded, "challenge", inProof("challenge", strings.Repeat("x", 2049))},
	{CodeCredentialLimitExceeded, "lifetime", inDocument("validUntil", "2000-01-01T00:10:01Z")},
	{CodeCredentialProfile, "context", inDocument("@context", []any{"https://www.w3.org/ns/credentials/v2"})},
	{CodeCredentialProfile, "context in the proof", inProof("@context", []any{"https://www.w3.org/ns/credentials/v2"})},
	{CodeCredentialProfile, "type", inDocument("type", []any{"VerifiableCredential"})},
	{CodeCredentialProfile, "status list", inDocument("credentialStatus", map[string]any{"id": "https://connector.test/status"})},
	{CodeCredentialIssuerMethod, "host", inDocument("issuer", "https://connector.test")},
	{CodeCredentialIssuerMethod, "did:key", inDocument("issuer", "did:key:z6Mk")},
	{CodeCredentialUntrustedIssuer, "stranger", inDocument("issuer", "did:web:stranger.test")},
	{CodeCredentialUntrustedIssuer, "method", inSubject("method", MethodEmailDKIM)},
	{CodeCredentialUntrustedIssuer, "subject", inSubject("id", "slack:T9/U1")},
	{CodeCredentialUntrustedIssuer, "ourselves", inDocument("issuer", "did:web:here.test")},
	{CodeCredentialKeyFetchFailed, "no document", func(t *testing.T, b *bench) json.RawMessage {
		delete(b.shelf.documents, didURL)
		return seal(t, credentialFor(b, time.Now()), b.did.Private)
	}},
	{CodeCredentialKeyFetchFailed, "unknown key", inProof("verificationMethod", didIssuer+"#other")},
	{CodeCredentialKeyFetchFailed, "key out of rotation", credentialUnder(func(b *bench) []byte {
		key := b.did.Public()
		key.NotAfter = time.Now()
		return DIDDocument(connector, []PublicKey{key})
	})},
	{CodeCredentialControllerMismatch, "proof by another", inProof("verificationMethod", "did:web:other.test#key-1")},
	{CodeCredentialControllerMismatch, "no DID", inProof("verificationMethod", "key-1")},
	{CodeCredentialControllerMismatch, "document of another", credentialUnder(func(b *bench) []byte {
		return DIDDocument("other.test", []PublicKey{b.did.Public()})
	})},
	{CodeCredentialControllerMismatch, "not for assertions", credentialUnder(func(b *bench) []byte {
		return []byte(strings.Replace(string(DIDDocument(connector, []PublicKey{b.did.Public()})), `"assertionMethod"`, `"authentication"`, 1))
	})},
	{CodeCredentialCryptosuite, "suite", inProof("cryptosuite", "eddsa-rdfc-2022")},
	{CodeCredentialCryptosuite, "type", inProof("type", "Ed25519Signature2020")},
	{CodeCredentialCryptosuite, "purpose", inProof("proofPurpose", "authentication")},
	{CodeCredentialInvalidSignature, "other name", func(t *testing.T, b *bench) json.RawMessage {
		text := string(seal(t, credentialFor(b, time.Now()), b.did.Private))
		return json.RawMessage(strings.Replace(text, `"Alice"`, `"Mallory"`, 1))
	}},
	{CodeCredentialInvalidSignature, "other key", func(t *testing.T, b *bench) json.RawMessage {
		return seal(t, credentialFor(b, time.Now()), b.host.Private)
	}},
	{CodeCredentialDomainMismatch, "other agent", inProof("domain", "@other@here.test")},
	{CodeCredentialChallengeMismatch, "other message", inProof("challenge", "m-2")},
	{CodeCredentialNotYetValid, "later", func(t *testing.T, b *bench) json.RawMessage {
		return seal(t, credentialFor(b, time.Now().Add(2*time.Minute)), b.did.Private)
	}},
	{CodeCredentialExpired, "yesterday", func(t *testing.T, b *bench) json.RawMessage {
		return seal(t, credentialFor(b, time.Now().Add(-time.Hour)), b.did.Private)
	}},
	{CodeCredentialExpired, "proof that ended", inProof("expires", "1999-12-31T23:58:00Z")},
	{CodeCredentialReplayStoreFailed, "store", func(t *testing.T, b *bench) json.RawMessage {
		b.used.err = errors.New("disk is full")
		return seal(t, credentialFor(b, time.Now()), b.did.Private)
	}},
	{CodeCredentialReplayed, "again", func(t *testing.T, b *bench) json.RawMessage {
		if first := b.present(t, seal(t, credentialFor(b, time.Now()), b.did.Private)); len(first.Credentials) != 1 {
			t.Fatal(first.Rejected)
		}
		document := credentialFor(b, time.Now())
		document["id"] = "urn:uuid:2"
		return seal(t, document, b.did.Private)
	}},
}

// The clock of a synctest bubble begins at midnight of 1 January 2000, UTC.
func TestWrongCredentials(t *testing.T) {
	for _, c := range wrongCredentials {
		t.Run(c.code+" "+c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				validation := b.present(t, c.make(t, b))
				if len(validation.Credentials) != 0 || !slices.Equal(codes(validation), []string{c.code}) {
					t.Errorf("%+v", validation)
				}
			})
		})
	}
}

func TestLimitsOfCredentials(t *testing.T) {
	b := newBench(t, nil)
	one := seal(t, credentialFor(b, time.Now()), b.did.Private)
	if validation := b.present(t, one, one, one, one, one); !slices.Equal(codes(validation), []string{CodeCredentialLimitExceeded}) {
		t.Error(codes(validation))
	}
	validation := b.validator.Validate(t.Context(), Offered{Credentials: []json.RawMessage{one}}, Recipient{Address: agentHere})
	if !slices.Equal(codes(validation), []string{CodeCredentialChallengeMismatch}) {
		t.Error("a message without id is no challenge:", codes(validation))
	}
}

// The example of Data Integrity EdDSA Cryptosuites 1.0, appendix B (representation eddsa-jcs-2022).
func TestPublishedVector(t *testing.T) {
	const document = `{"@context":["https://www.w3.org/ns/credentials/v2","https://www.w3.org/ns/credentials/examples/v2"],
		"id":"urn:uuid:58172aac-d8ba-11ed-83dd-0b3aef56cc33","type":["VerifiableCredential","AlumniCredential"],
		"name":"Alumni Credential","description":"A minimum viable example of an Alumni Credential.",
		"issuer":"https://vc.example/issuers/5678","validFrom":"2023-01-01T00:00:00Z",
		"credentialSubject":{"id":"did:example:abcdefgh","alumniOf":"The School of Examples"},
		"proof":{"type":"DataIntegrityProof","cryptosuite":"eddsa-jcs-2022","created":"2023-02-24T23:36:38Z",
		"verificationMethod":"did:key:z6MkrJVnaZkeFzdQyMZu1cgjg7k1pZZ6pvBQ7XJPt4swbTQ2#z6MkrJVnaZkeFzdQyMZu1cgjg7k1pZZ6pvBQ7XJPt4swbTQ2",
		"proofPurpose":"assertionMethod",
		"@context":["https://www.w3.org/ns/credentials/v2","https://www.w3.org/ns/credentials/examples/v2"],
		"proofValue":"z2HnFSSPPBzR36zdDgK8PbEHeXbR56YF24jwMpt3R1eHXQzJDMWS93FCzpvJpwTWd3GAVFuUfjoJdcnTMuVor51aX"}}`
	const want = "66ab154f5c2890a140cb8388a22a160454f80575f6eae09e5a097cabe539a1db" +
		"59b7cb6251b8991add1ce0bc83107e3db9dbbab5bd2c28f687db1a03abc92f19"
	hash, err := integrityHash([]byte(document))
	if err != nil || hex.EncodeToString(hash) != want {
		t.Fatalf("%x %v", hash, err)
	}
	key, err := decodeMultikey("z6MkrJVnaZkeFzdQyMZu1cgjg7k1pZZ6pvBQ7XJPt4swbTQ2")
	if err != nil {
		t.Fatal(err)
	}
	signature, err := decodeMultibase("z2HnFSSPPBzR36zdDgK8PbEHeXbR56YF24jwMpt3R1eHXQzJDMWS93FCzpvJpwTWd3GAVFuUfjoJdcnTMuVor51aX")
	if err != nil || !verifies(key, hash, signature) {
		t.Error(err)
	}
}
