package identity

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.FixedZone("", 3600))

func transportEvidence() Evidence {
	return Transport(TransportProof{
		Domain: "here.test", Subject: "mailto:alice@a.test", Method: MethodEmailDMARC, Assurance: AssuranceDomain,
		Recipient: "@echo@here.test", KeyID: "s1._domainkey.a.test", IssuedAt: noon,
	})
}

func TestTransportEvidence(t *testing.T) {
	body, err := json.Marshal(transportEvidence())
	const want = `{"subject":"mailto:alice@a.test","issuer":"here.test","method":"urn:mentionable:auth:email-dmarc:v0.1",` +
		`"assurance":"domain","audience":"@echo@here.test","issued_at":"2026-11-21T11:00:00.123Z",` +
		`"proof":{"type":"transport","verified_by":"here.test","key_id":"s1._domainkey.a.test"}}`
	if err != nil || string(body) != want {
		t.Errorf("%v\n%s\n%s", err, body, want)
	}
	e := transportEvidence()
	if found := e.CheckShape(); found != nil {
		t.Error(found)
	}
}

func attestation() Evidence {
	e := transportEvidence()
	expires := At(noon.Add(5 * time.Minute))
	e.ID, e.ExpiresAt, e.Issuer = "jti-1", &expires, "did:web:connector.test"
	e.Proof = Proof{Type: ProofSignedAttestation, Alg: "EdDSA", Kid: "did:web:connector.test#1", Value: "c2ln"}
	return e
}

func TestCheckShape(t *testing.T) {
	before := At(noon.Add(-time.Hour))
	long := strings.Repeat("x", 2049)
	for name, c := range map[string]struct {
		change func(*Evidence)
		field  string
	}{
		"subject":          {func(e *Evidence) { e.Subject = "" }, "subject"},
		"long subject":     {func(e *Evidence) { e.Subject = long }, "subject"},
		"subject control":  {func(e *Evidence) { e.Subject = "a\r\nb" }, "subject"},
		"subject UTF-8":    {func(e *Evidence) { e.Subject = "\xff" }, "subject"},
		"issuer":           {func(e *Evidence) { e.Issuer = "" }, "issuer"},
		"method":           {func(e *Evidence) { e.Method = strings.Repeat("m", 257) }, "method"},
		"assurance":        {func(e *Evidence) { e.Assurance = "" }, "assurance"},
		"audience":         {func(e *Evidence) { e.Audience = nil }, "audience"},
		"empty audience":   {func(e *Evidence) { e.Audience = Audience{""} }, "audience"},
		"many audiences":   {func(e *Evidence) { e.Audience = make(Audience, 17) }, "audience"},
		"delegation":       {func(e *Evidence) { e.OnBehalfOf = []string{long} }, "on_behalf_of"},
		"issued_at":        {func(e *Evidence) { e.IssuedAt = Time{} }, "issued_at"},
		"expires first":    {func(e *Evidence) { e.ExpiresAt = &before }, "expires_at"},
		"claims":           {func(e *Evidence) { e.Claims = json.RawMessage(`[]`) }, "claims"},
		"broken claims":    {func(e *Evidence) { e.Claims = json.RawMessage(`{`) }, "claims"},
		"source":           {func(e *Evidence) { e.Source = &Source{Transport: "a\x00"} }, "source.transport"},
		"proof type":       {func(e *Evidence) { e.Proof.Type = "trust-me" }, "proof.type"},
		"verifier":         {func(e *Evidence) { e.Proof = Proof{Type: ProofBearerToken} }, "proof.verified_by"},
		"unsigned":         {func(e *Evidence) { e.Proof.Value = "" }, "proof.value"},
		"attested, no id":  {func(e *Evidence) { e.ID = "" }, "id"},
		"attested, no end": {func(e *Evidence) { e.ExpiresAt = nil }, "expires_at"},
		"large": {func(e *Evidence) {
			e.Extra = map[string]json.RawMessage{"x": json.RawMessage(`"` + strings.Repeat("x", 33<<10) + `"`)}
		}, ""},
	} {
		e := attestation()
		if found := e.CheckShape(); found != nil {
			t.Fatal(found)
		}
		c.change(&e)
		found := e.CheckShape()
		if found == nil || found.Field != c.field || found.Rule == "" || found.TooLarge != (name == "large") {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

func TestReferenceNeedsOnlyThree(t *testing.T) {
	e := Evidence{Subject: "s", Issuer: "i", Method: "m"}
	if found := e.CheckReference(); found != nil {
		t.Error(found)
	}
	body, err := json.Marshal(e)
	if err != nil || string(body) != `{"subject":"s","issuer":"i","method":"m"}` {
		t.Error(string(body), err)
	}
	e.Method = ""
	if e.CheckReference() == nil {
		t.Error("no method")
	}
}

func TestEvidenceKeepsUnknownKeys(t *testing.T) {
	const document = `{"subject":"s","issuer":"i","method":"m","audience":["a","b"],"x_new":{"a":[1]},"proof":{"type":"transport","verified_by":"v"}}`
	var e Evidence
	if err := json.Unmarshal([]byte(document), &e); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(e)
	if err != nil || !strings.Contains(string(body), `"x_new":{"a":[1]}`) {
		t.Error(string(body), err)
	}
	var again Evidence
	if err := json.Unmarshal(body, &again); err != nil || cmp.Diff(e, again) != "" {
		t.Error(cmp.Diff(e, again), err)
	}
	e.Extra["x_new"] = json.RawMessage("{")
	if _, err := json.Marshal(e); err == nil {
		t.Error("broken JSON was written")
	}
}

func TestSizeIsAnUpperBound(t *testing.T) {
	for _, e := range []Evidence{transportEvidence(), attestation(), {Subject: strings.Repeat("\x01", 900)}} {
		body, err := json.Marshal(e)
		if err != nil || e.Size() < len(body) {
			t.Errorf("Size() = %d, JSON has %d", e.Size(), len(body))
		}
	}
}

func TestAudienceForms(t *testing.T) {
	for text, want := range map[string]Audience{`"a"`: {"a"}, `["a"]`: {"a"}, `["a","b"]`: {"a", "b"}, `null`: nil} {
		var a Audience
		if err := json.Unmarshal([]byte(text), &a); err != nil || cmp.Diff(want, a) != "" {
			t.Errorf("%s: %v %v", text, a, err)
		}
	}
	var a Audience
	if json.Unmarshal([]byte(`[1]`), &a) == nil || json.Unmarshal([]byte(`{}`), &a) == nil {
		t.Error("accepted")
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-21T12:00:00.000Z":       `"2026-11-21T12:00:00.000Z"`,
		"2026-11-21T12:00:00Z":           `"2026-11-21T12:00:00.000Z"`,
		"2026-11-21T12:00:00.123456789Z": `"2026-11-21T12:00:00.123Z"`,
		"2026-11-21T12:00:00+02:00":      `"2026-11-21T10:00:00.000Z"`,
		"2026-11-21T00:30:00.5-11:30":    `"2026-11-21T12:00:00.500Z"`,
		"0000-01-01T00:00:00Z":           `"0000-01-01T00:00:00.000Z"`,
	} {
		got, err := ParseTime(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if body, _ := json.Marshal(got); string(body) != want {
			t.Errorf("%s: %s", text, body)
		}
	}
	for _, text := range []string{
		"", "2026-11-21", "2026-11-21T12:00:00", "2026-11-21 12:00:00Z", "2026-11-21T12:00Z", "2026-11-21T1:00:00Z", "2026-11-21T12:00:00,5Z",
		"2026-13-01T00:00:00Z", "2026-11-21T12:00:00+0200", "9999-12-31T23:59:59-00:01", "0000-01-01T00:00:00+00:01", "1763726400",
	} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	f.Add("2026-11-21T12:00:00.000Z")
	f.Add("9999-12-31T23:59:59.9999-00:00")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := ParseTime(text)
		if err != nil {
			return
		}
		body, _ := first.AppendText(nil)
		if again, err := ParseTime(string(body)); err != nil || !again.Equal(first.Time) {
			t.Fatalf("%q: %v %v", text, again, err)
		}
	})
}

func FuzzEvidence(f *testing.F) {
	for _, e := range []Evidence{transportEvidence(), attestation()} {
		body, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"audience":[],"claims":null,"x":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Evidence
		if json.Unmarshal(data, &e) != nil {
			return
		}
		_ = e.CheckShape()
		body, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var again Evidence
		if err := json.Unmarshal(body, &again); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
	})
}

// A piece that is wrong in every way is mended one step at a time: each refusal is that of the next step.
func TestOrderOfSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		at := func(d time.Duration) *Time { moment := At(time.Now().Add(d)); return &moment }
		e := unsigned()
		e.ID, e.Issuer, e.IssuedAt, e.ExpiresAt = "", "stranger.test", *at(-time.Hour), at(-time.Minute-time.Second)
		e.Audience, e.Method = Audience{"@else@else.test"}, "other"
		e.Proof = Proof{Type: ProofTransport, VerifiedBy: "x", Alg: "none", Kid: "unknown", Value: "AA"}
		b.used.seen[replayKey("evidence", connector, "i-1")] = time.Now()
		sign := func() {
			value, err := signature(e, b.host.Private)
			if err != nil {
				t.Fatal(err)
			}
			e.Proof.Value = value
		}
		for _, step := range []struct {
			mend func()
			code string
		}{
			{func() { e.Subject = "" }, CodeMalformed},
			{func() { e.Subject = "slack:T9/U1" }, CodeOwnProofFromPeer},
			{func() { e.Proof.Type, e.ID = ProofSignedAttestation, "i-1" }, CodeUntrustedIssuer},
			{func() { e.Issuer = connector }, CodeWrongAudience},
			{func() { e.Audience = Audience{agentHere} }, CodeExpired},
			{func() { e.ExpiresAt = at(time.Minute) }, CodeLifetimeExceeded},
			{func() { e.IssuedAt = *at(0) }, CodeUnsupportedAlgorithm},
			{func() { e.Proof.Alg = "EdDSA" }, CodeUnknownKey},
			{func() { e.Proof.Kid = b.host.Kid }, CodeInvalidSignature},
			{sign, CodeNotCovered},
			{func() { e.Subject, e.Method = slackUser, slackWay; sign() }, CodeReplayed},
		} {
			step.mend()
			if got := codes(b.validate(t, encode(t, e))); !slices.Equal(got, []string{step.code}) {
				t.Fatalf("%v, want %s", got, step.code)
			}
		}
		e.ID = "i-2"
		sign()
		if validated := b.validate(t, encode(t, e)); len(validated.Evidence) != 1 {
			t.Error(validated.Rejected)
		}
	})
}

// One bad piece does not take the others with it, and both kinds are judged apart.
func TestPiecesAreJudgedApart(t *testing.T) {
	b := newBench(t, nil)
	good, other := b.fresh(t), signed(t, unsigned(), b.did, time.Now())
	credential := seal(t, credentialFor(b, time.Now()), b.did.Private)
	validated := b.validator.Validate(t.Context(), Offered{
		Evidence:    []json.RawMessage{json.RawMessage(`{`), good, good, other},
		Credentials: []json.RawMessage{credential, json.RawMessage(`{}`)}, Challenge: "m-1",
	}, Recipient{Address: agentHere})
	if len(validated.Evidence) != 2 || len(validated.Credentials) != 1 {
		t.Errorf("%+v", validated)
	}
	if got, want := codes(validated), []string{CodeMalformed, CodeReplayed, CodeCredentialMalformed}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if validated.Rejected[1].Issuer != connector || validated.Rejected[1].Subject != slackUser || validated.Rejected[1].Method != slackWay {
		t.Errorf("%+v", validated.Rejected[1])
	}
}

func BenchmarkBelieve(b *testing.B) {
	bench := newBench(b, nil)
	piece := bench.fresh(b)
	for b.Loop() {
		bench.used.seen = map[string]time.Time{}
		if validated := bench.validate(b, piece); len(validated.Evidence) != 1 {
			b.Fatal(validated.Rejected)
		}
	}
}
