package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSignFillsTheRest(t *testing.T) {
	key := fixedKey(t, "here.test", 1)
	now := noon
	one, err := Sign(unsigned(), key, now)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Sign(unsigned(), key, now)
	if err != nil || one.ID == two.ID || len(one.ID) < 16 {
		t.Error("ids are not fresh:", one.ID, two.ID, err)
	}
	if one.Issuer != "here.test" || !one.IssuedAt.Equal(At(now).Time) || one.ExpiresAt.Sub(one.IssuedAt.Time) != attestationLife || one.Proof.Kid != key.Kid {
		t.Errorf("%+v", one)
	}
	if did, err := Sign(unsigned(), fixedKey(t, didIssuer, 1), now); err != nil || did.Proof.Kid != didIssuer+"#"+key.Kid {
		t.Error(did.Proof, err)
	}
}

func TestSignRefuses(t *testing.T) {
	key := fixedKey(t, "here.test", 1)
	for name, change := range map[string]func(*Evidence){
		"no subject":   func(e *Evidence) { e.Subject = "" },
		"no method":    func(e *Evidence) { e.Method = "" },
		"no assurance": func(e *Evidence) { e.Assurance = "" },
		"no audience":  func(e *Evidence) { e.Audience = nil },
		"long":         func(e *Evidence) { end := At(noon.Add(MaxAttestationLife + time.Second)); e.ExpiresAt = &end },
		"over":         func(e *Evidence) { end := At(noon); e.ExpiresAt = &end },
		"broken":       func(e *Evidence) { e.Claims = json.RawMessage(`{`) },
		"large":        func(e *Evidence) { e.Claims = json.RawMessage(`{"x":"` + strings.Repeat("x", 40<<10) + `"}`) },
	} {
		e := unsigned()
		change(&e)
		if _, err := Sign(e, key, noon); err == nil {
			t.Error(name)
		}
	}
	if _, err := Sign(unsigned(), SigningKey{Issuer: "here.test"}, noon); err == nil {
		t.Error("signed without a key")
	}
	if _, err := SigningKeyOf("here.test", nil); err == nil {
		t.Error("half a key")
	}
	if _, err := NewSigningKey("a b"); err == nil {
		t.Error("no issuer")
	}
}

func TestKeyPrintsWithoutItsPrivateHalf(t *testing.T) {
	key := fixedKey(t, "here.test", 1)
	body, err := json.Marshal(key)
	text := fmt.Sprintf("%v %+v %#v %s %s", key, key, key, key, body)
	if err != nil || strings.Contains(text, "Private") || strings.Contains(text, "1 1 1") || strings.Contains(text, "AQEB") {
		t.Error(text, err)
	}
}

// Whatever Sign makes is believed by the one who reads the documents that we publish.
func TestRoundTrip(t *testing.T) {
	b := newBench(t, nil)
	text := rapid.StringN(0, 40, 200)
	rapid.Check(t, func(rt *rapid.T) {
		e := unsigned()
		e.Subject = "slack:T123/" + rapid.StringMatching(`[^\x00-\x1f\x{7f}-\x{9f}]{0,30}`).Draw(rt, "subject")
		e.Claims = encode(t, rapid.MapOf(text, rapid.OneOf(text.AsAny(), rapid.Float64().AsAny(), rapid.Bool().AsAny())).Draw(rt, "claims"))
		e.Extra = map[string]json.RawMessage{"x_" + rapid.StringMatching(`[a-z"\\<é]{0,8}`).Draw(rt, "name"): encode(t, text.Draw(rt, "extra"))}
		key := rapid.SampledFrom([]SigningKey{b.host, b.did}).Draw(rt, "key")
		if validation := b.validate(t, signed(t, e, key, time.Now())); len(validation.Evidence) != 1 || validation.Evidence[0].Subject != e.Subject {
			rt.Fatalf("%+v", validation.Rejected)
		}
	})
}

// Any changed byte breaks the signature, unless the document still says the same.
func TestChangedByteIsNotBelieved(t *testing.T) {
	b := newBench(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		e := unsigned()
		e.OnBehalfOf = rapid.SampledFrom([][]string{nil, {"acct:a@b.test"}}).Draw(rt, "delegation")
		piece := signed(t, e, b.did, time.Now())
		changed := bytes.Clone(piece)
		at := rapid.IntRange(0, len(changed)-1).Draw(rt, "at")
		changed[at] = rapid.Byte().Draw(rt, "byte")
		wantUnlessSame(rt, b.validate(t, changed), piece, changed)
	})
}

func wantUnlessSame(t interface{ Fatalf(string, ...any) }, validation Validation, piece, changed []byte) {
	if len(validation.Evidence) == 0 {
		return
	}
	before, err := canonicalObject(piece)
	after, bad := canonicalObject(changed)
	if err != nil || bad != nil || !bytes.Equal(before, after) {
		t.Fatalf("believed:\n%s\nsigned:\n%s", changed, piece)
	}
}

// The alphabet of base64url has a second way to write the last letter; it is not taken.
func TestSignatureHasOneForm(t *testing.T) {
	b := newBench(t, nil)
	e, err := Sign(unsigned(), b.host, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	value := e.Proof.Value
	for suffix, want := range map[string]int{"==": 1, "=": 0, "\n": 0, "A": 0} {
		e.Proof.Value = value + suffix
		b.used.seen = map[string]time.Time{}
		if validation := b.validate(t, encode(t, e)); len(validation.Evidence) != want {
			t.Errorf("%q: %v", suffix, codes(validation))
		}
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(letters, value[len(value)-1])
	e.Proof.Value = value[:len(value)-1] + string(letters[last|1])
	if validation := b.validate(t, encode(t, e)); len(validation.Evidence) != 0 {
		t.Error("believed with stray bits")
	}
}

func FuzzBelieve(f *testing.F) {
	b := newBench(f, func(o *ValidatorOptions) { o.Now = func() time.Time { return noon } })
	b.host, b.did = fixedKey(f, connector, 5), fixedKey(f, didIssuer, 6)
	b.publish()
	for _, key := range []SigningKey{b.host, b.did} {
		f.Add([]byte(signed(f, unsigned(), key, noon)))
	}
	f.Add([]byte(encode(f, transportEvidence())))
	for _, text := range []string{``, `{}`, `null`, `[]`, `{"proof":{"type":"signed-attestation"}}`, `{"a":1,"a":2}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, piece []byte) {
		b.used.seen = map[string]time.Time{}
		validation := b.validate(t, piece)
		if len(validation.Evidence)+len(validation.Rejected) != 1 {
			t.Fatalf("%+v", validation)
		}
		if len(validation.Evidence) == 1 && validation.Evidence[0].Subject != slackUser {
			t.Fatalf("believed %s", piece)
		}
	})
}

func FuzzCredential(f *testing.F) {
	b := newBench(f, func(o *ValidatorOptions) { o.Now = func() time.Time { return noon } })
	b.did = fixedKey(f, didIssuer, 6)
	b.publish()
	f.Add([]byte(seal(f, credentialFor(b, noon), b.did.Private)))
	document := credentialFor(b, noon)
	document["issuer"] = map[string]any{"id": didIssuer, "name": "C"}
	f.Add([]byte(seal(f, document, b.did.Private)))
	for _, text := range []string{``, `{}`, `{"proof":null,"credentialSubject":{}}`, `{"issuer":[],"proof":{}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, piece []byte) {
		b.used.seen = map[string]time.Time{}
		validation := b.present(t, piece)
		if len(validation.Credentials)+len(validation.Rejected) != 1 {
			t.Fatalf("%+v", validation)
		}
		if len(validation.Credentials) == 1 && validation.Credentials[0].Subject != slackUser {
			t.Fatalf("believed %s", piece)
		}
	})
}
