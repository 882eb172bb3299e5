package identity

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// wrong makes a piece of evidence that one step refuses.
type wrong struct {
	code string
	name string
	make func(*testing.T, *bench) json.RawMessage
}

// evidenceWith changes the evidence before it is signed.
func evidenceWith(change func(*Evidence)) func(*testing.T, *bench) json.RawMessage {
	return func(t *testing.T, b *bench) json.RawMessage {
		e := unsigned()
		change(&e)
		return signed(t, e, b.host, time.Now())
	}
}

// tampered changes the evidence after it was signed.
func tampered(change func(*Evidence)) func(*testing.T, *bench) json.RawMessage {
	return func(t *testing.T, b *bench) json.RawMessage {
		e, err := Sign(unsigned(), b.host, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		change(&e)
		return encode(t, e)
	}
}

// signedAt signs with a clock that is off.
func signedAt(off time.Duration, change func(*Evidence, time.Time)) func(*testing.T, *bench) json.RawMessage {
	return func(t *testing.T, b *bench) json.RawMessage {
		e := unsigned()
		change(&e, time.Now())
		return signed(t, e, b.host, time.Now().Add(off))
	}
}

// published puts another document where the connector's card is.
func published(card func(*bench) []byte) func(*testing.T, *bench) json.RawMessage {
	return func(t *testing.T, b *bench) json.RawMessage {
		b.shelf.publish(cardURL, card(b))
		return signed(t, unsigned(), b.host, time.Now())
	}
}

// resigned signs a document that Sign would not write.
func resigned(t *testing.T, b *bench, change func(map[string]any)) json.RawMessage {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal(signed(t, unsigned(), b.host, time.Now()), &document); err != nil {
		t.Fatal(err)
	}
	change(document)
	var e Evidence
	if err := json.Unmarshal(encode(t, document), &e); err != nil {
		t.Fatal(err)
	}
	value, err := signature(e, b.host.Private)
	if err != nil {
		t.Fatal(err)
	}
	document["proof"].(map[string]any)["value"] = value
	return encode(t, document)
}

func literal(text string) func(*testing.T, *bench) json.RawMessage {
	return func(*testing.T, *bench) json.RawMessage { return json.RawMessage(text) }
}

func transported(t *testing.T, _ *bench) json.RawMessage { return encode(t, transportEvidence()) }

var wrongs = []wrong{
	{CodeMalformed, "not JSON", literal(`{`)},
	{CodeMalformed, "nothing", literal(``)},
	{CodeMalformed, "null", literal(`null`)},
	{CodeMalformed, "a list", literal(`[]`)},
	{CodeMalformed, "a signed token", literal(`"eyJ"`)},
	{CodeMalformed, "no members", literal(`{}`)},
	{CodeMalformed, "equal names", literal(`{"subject":"a","subject":"b"}`)},
	{CodeMalformed, "equal names by escape", literal(`{"subject":"a","s\u0075bject":"b"}`)},
	{CodeMalformed, "equal names deep inside", literal(`{"claims":{"a":[{"b":1,"b":2}]}}`)},
	{CodeMalformed, "other case", func(t *testing.T, b *bench) json.RawMessage {
		return json.RawMessage(`{"Subject":"slack:T123/ROOT",` + string(signed(t, unsigned(), b.host, time.Now())[1:]))
	}},
	{CodeMalformed, "other case in proof", func(t *testing.T, b *bench) json.RawMessage {
		text := string(signed(t, unsigned(), b.host, time.Now()))
		return json.RawMessage(strings.Replace(text, `"kid":`, `"Kid":"other","kid":`, 1))
	}},
	{CodeMalformed, "broken UTF-8", literal("{\"subject\":\"\xff\"}")},
	{CodeMalformed, "lone surrogate", literal(`{"subject":"\ud800"}`)},
	{CodeMalformed, "no subject", tampered(func(e *Evidence) { e.Subject = "" })},
	{CodeMalformed, "no id", tampered(func(e *Evidence) { e.ID = "" })},
	{CodeMalformed, "no end", tampered(func(e *Evidence) { e.ExpiresAt = nil })},
	{CodeMalformed, "time without zone", literal(`{"subject":"s","issuer":"i","method":"m","issued_at":"2026-11-21T12:00:00"}`)},
	{CodeMalformed, "unknown proof", tampered(func(e *Evidence) { e.Proof.Type = "vibes" })},
	{CodeLimitExceeded, "33 KiB", tampered(func(e *Evidence) {
		e.Claims = json.RawMessage(`{"x":"` + strings.Repeat("x", 33<<10) + `"}`)
	})},
	{CodeOwnProofFromPeer, "transport", transported},
	{CodeOwnProofFromPeer, "bearer", tampered(func(e *Evidence) { e.Proof = Proof{Type: ProofBearerToken, VerifiedBy: connector} })},
	{CodeSelfIssued, "host", tampered(func(e *Evidence) { e.Issuer = "here.test" })},
	{CodeSelfIssued, "other spelling", tampered(func(e *Evidence) { e.Issuer = "https://HERE.test/" })},
	{CodeSelfIssued, "did", tampered(func(e *Evidence) { e.Issuer = "did:web:here.test" })},
	{CodeUntrustedIssuer, "stranger", tampered(func(e *Evidence) { e.Issuer = "stranger.test" })},
	{CodeUntrustedIssuer, "subdomain", tampered(func(e *Evidence) { e.Issuer = "x.connector.test" })},
	{CodeUntrustedIssuer, "path of a trusted did", tampered(func(e *Evidence) { e.Issuer = "did:web:connector.test:x" })},
	{CodeUntrustedIssuer, "other port", tampered(func(e *Evidence) { e.Issuer = "connector.test:8443" })},
	{CodeUntrustedIssuer, "no host at all", tampered(func(e *Evidence) { e.Issuer = "urn:x" })},
	{CodeUntrustedIssuer, "entry that ended", tampered(func(e *Evidence) { e.Issuer = "ended.test" })},
	{CodeWrongAudience, "other agent", evidenceWith(func(e *Evidence) { e.Audience = Audience{"@other@here.test"} })},
	{CodeWrongAudience, "only alike", evidenceWith(func(e *Evidence) { e.Audience = Audience{"echo@here.test", agentHere + "x", "*"} })},
	{CodeNotYetValid, "issued tomorrow", signedAt(2*time.Minute, func(*Evidence, time.Time) {})},
	{CodeNotYetValid, "begins later", evidenceWith(func(e *Evidence) { later := At(time.Now().Add(2 * time.Minute)); e.NotBefore = &later })},
	{CodeExpired, "yesterday", signedAt(-time.Hour, func(*Evidence, time.Time) {})},
	{CodeLifetimeExceeded, "eleven minutes", func(t *testing.T, b *bench) json.RawMessage {
		return resigned(t, b, func(d map[string]any) { d["expires_at"] = At(time.Now().Add(11 * time.Minute)) })
	}},
	{CodeUnsupportedAlgorithm, "none", tampered(func(e *Evidence) { e.Proof.Alg = "none" })},
	{CodeUnsupportedAlgorithm, "HS256", tampered(func(e *Evidence) { e.Proof.Alg = "HS256" })},
	{CodeUnsupportedAlgorithm, "canonical form", tampered(func(e *Evidence) { e.Proof.Canonicalization = "URDNA2015" })},
	{CodeUnsupportedAlgorithm, "key of another kind", published(func(b *bench) []byte {
		return cardWith(b, func(k *writtenKey) { k.JWK.Curve = "X25519" })
	})},
	{CodeUnsupportedAlgorithm, "two keys in one", published(func(b *bench) []byte {
		return cardWith(b, func(k *writtenKey) { k.Multibase = encodeMultikey(b.did.public()) })
	})},
	{CodeKeyFetchFailed, "no card", func(t *testing.T, b *bench) json.RawMessage {
		delete(b.shelf.documents, cardURL)
		return signed(t, unsigned(), b.host, time.Now())
	}},
	{CodeKeyFetchFailed, "card of 257 KiB", published(func(*bench) []byte { return make([]byte, MaxKeyDocumentBytes+1) })},
	{CodeKeyFetchFailed, "card with equal names", published(func(*bench) []byte { return []byte(`{"issuer":"a","issuer":"b"}`) })},
	{CodeKeyFetchFailed, "card with one name twice", published(func(b *bench) []byte {
		return ConnectorCard(connector, nil, []PublicKey{b.host.Public(), b.host.Public()}, nil)
	})},
	{CodeControllerMismatch, "card of another", published(func(b *bench) []byte {
		return ConnectorCard("other.test", nil, []PublicKey{b.host.Public()}, nil)
	})},
	{CodeControllerMismatch, "key of another", published(func(b *bench) []byte {
		return cardWith(b, func(k *writtenKey) { k.Controller = "other.test" })
	})},
	{CodeControllerMismatch, "nobody's key", published(func(b *bench) []byte {
		return cardWith(b, func(k *writtenKey) { k.Controller = "" })
	})},
	{CodeUnknownKey, "not published", published(func(b *bench) []byte { return ConnectorCard(connector, nil, nil, nil) })},
	{CodeUnknownKey, "previous without end", published(func(b *bench) []byte {
		return ConnectorCard(connector, nil, nil, []PublicKey{b.host.Public()})
	})},
	{CodeUnknownKey, "named by another DID", tampered(func(e *Evidence) { e.Proof.Kid = "did:web:other.test#" + e.Proof.Kid })},
	{CodeKeyRetired, "previous key that ended", published(func(b *bench) []byte {
		key := b.host.Public()
		key.NotAfter = time.Now().Add(-time.Second)
		return ConnectorCard(connector, nil, nil, []PublicKey{key})
	})},
	{CodeWrongKeyPurpose, "not for assertions", published(func(b *bench) []byte {
		return []byte(strings.Replace(string(ConnectorCard(connector, nil, []PublicKey{b.host.Public()}, nil)),
			`"assertion_method"`, `"authentication"`, 1))
	})},
	{CodeInvalidSignature, "other subject", tampered(func(e *Evidence) { e.Subject = "slack:T123/ROOT" })},
	{CodeInvalidSignature, "other assurance", tampered(func(e *Evidence) { e.Assurance = AssuranceAgent })},
	{CodeInvalidSignature, "claims", tampered(func(e *Evidence) { e.Claims = json.RawMessage(`{"admin":true}`) })},
	{CodeInvalidSignature, "new member", tampered(func(e *Evidence) { e.Extra["y"] = json.RawMessage(`1`) })},
	{CodeInvalidSignature, "not base64", tampered(func(e *Evidence) { e.Proof.Value = "!!" })},
	{CodeInvalidSignature, "short", tampered(func(e *Evidence) { e.Proof.Value = e.Proof.Value[:20] })},
	{CodeInvalidSignature, "key of the same issuer's did", func(t *testing.T, b *bench) json.RawMessage {
		stolen := b.did
		stolen.Issuer, stolen.Kid = connector, b.host.Kid
		return signed(t, unsigned(), stolen, time.Now())
	}},
	{CodeNotCovered, "method", evidenceWith(func(e *Evidence) { e.Method = MethodEmailDMARC })},
	{CodeNotCovered, "assurance", evidenceWith(func(e *Evidence) { e.Assurance = AssuranceWallet })},
	{CodeNotCovered, "subject", evidenceWith(func(e *Evidence) { e.Subject = "slack:T1234/U456" })},
	{CodeDelegation, "on behalf of somebody", evidenceWith(func(e *Evidence) { e.OnBehalfOf = []string{"acct:alice@a.test"} })},
	{CodeReplayStoreFailed, "store", func(t *testing.T, b *bench) json.RawMessage {
		b.used.err = errors.New("disk is full")
		return signed(t, unsigned(), b.host, time.Now())
	}},
	{CodeReplayed, "again", func(t *testing.T, b *bench) json.RawMessage {
		piece := signed(t, unsigned(), b.host, time.Now())
		if first := b.validate(t, piece); len(first.Evidence) != 1 {
			t.Fatal(first.Rejected)
		}
		return piece
	}},
}

// cardWith writes the connector's card with a change to its key.
func cardWith(b *bench, change func(*writtenKey)) []byte {
	var card connectorCard
	_ = json.Unmarshal(ConnectorCard(connector, nil, []PublicKey{b.host.Public()}, nil), &card)
	change(&card.Active[0])
	return encodeDocument(card)
}

func endedEntry(o *ValidatorOptions) {
	ended := trusted("ended.test")
	ended.Expires = time.Now().Add(-time.Second)
	o.Trust = append(o.Trust, ended)
}

func TestWrongEvidence(t *testing.T) {
	for _, c := range wrongs {
		t.Run(c.code+" "+c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, endedEntry)
				piece := c.make(t, b)
				before := len(b.used.seen)
				validation := b.validate(t, piece)
				if len(validation.Evidence) != 0 || !slices.Equal(codes(validation), []string{c.code}) {
					t.Fatalf("%+v", validation)
				}
				if validation.Rejected[0].Reason == "" || len(validation.Rejected[0].Reason) > 600 {
					t.Errorf("reason %q", validation.Rejected[0].Reason)
				}
				if len(b.used.seen) != before && c.code != CodeReplayed {
					t.Error("what was refused is remembered as used")
				}
			})
		})
	}
}

// No address is asked for evidence that fails before the sixth step.
func TestNothingIsFetchedForStrangers(t *testing.T) {
	early := []string{
		CodeMalformed, CodeLimitExceeded, CodeOwnProofFromPeer, CodeSelfIssued, CodeUntrustedIssuer, CodeWrongAudience, CodeNotYetValid,
		CodeExpired, CodeLifetimeExceeded,
	}
	for _, c := range wrongs {
		if !slices.Contains(early, c.code) {
			continue
		}
		b := newBench(t, endedEntry)
		if b.validate(t, c.make(t, b)); b.shelf.count() != 0 {
			t.Errorf("%s %s: %v", c.code, c.name, b.shelf.fetched)
		}
	}
}

func TestEveryCodeIsReached(t *testing.T) {
	reached := map[string]bool{}
	for _, c := range wrongs {
		reached[c.code] = true
	}
	for _, c := range wrongCredentials {
		reached[c.code] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(meanings)), slices.Sorted(maps.Keys(reached))); diff != "" {
		t.Error(diff)
	}
	for code, meaning := range meanings {
		if meaning == "" {
			t.Errorf("%s means nothing", code)
		}
	}
	for _, problem := range []keyProblem{keyNotFetched, keyDocumentForeign, keyUnknown, keyForeign, keyEnded, keyWrongKind, keyWrongPurpose} {
		if evidenceKeyCodes[problem] == "" || credentialKeyCodes[problem] == "" {
			t.Errorf("key problem %d has no code", problem)
		}
	}
}

func TestLimitsOfAll(t *testing.T) {
	b := newBench(t, nil)
	piece := signed(t, unsigned(), b.host, time.Now())
	if validation := b.validate(t, slices.Repeat([]json.RawMessage{piece}, 17)...); !slices.Equal(codes(validation), []string{CodeLimitExceeded}) {
		t.Error(codes(validation))
	}
	large := json.RawMessage(strings.Repeat(" ", 22<<10) + string(piece))
	if validation := b.validate(t, large, large, large); !slices.Equal(codes(validation), []string{CodeLimitExceeded}) {
		t.Error(codes(validation))
	}
	if validation := b.validate(t, large, large); len(validation.Evidence) != 1 || !slices.Equal(codes(validation), []string{CodeReplayed}) {
		t.Error(codes(validation))
	}
}

// A reason quotes a peer: no line breaks, no terminal sequences, not endless.
func TestReasonsAreOneLine(t *testing.T) {
	got := refuse(CodeMalformed, "a\r\nb\x1b[2J"+strings.Repeat("é", 400)).rejection("", "", "").Reason
	if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' }) || len(got) > 600 {
		t.Errorf("%q", got)
	}
}
