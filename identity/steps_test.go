package identity

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

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
			if got := codes(b.believe(t, encode(t, e))); !slices.Equal(got, []string{step.code}) {
				t.Fatalf("%v, want %s", got, step.code)
			}
		}
		e.ID = "i-2"
		sign()
		if belief := b.believe(t, encode(t, e)); len(belief.Evidence) != 1 {
			t.Error(belief.Rejected)
		}
	})
}

// One bad piece does not take the others with it, and both kinds are judged apart.
func TestPiecesAreJudgedApart(t *testing.T) {
	b := newBench(t, nil)
	good, other := b.fresh(t), signed(t, unsigned(), b.did, time.Now())
	credential := seal(t, credentialFor(b, time.Now()), b.did.Private)
	belief := b.validator.Believe(t.Context(), Offered{
		Evidence:    []json.RawMessage{json.RawMessage(`{`), good, good, other},
		Credentials: []json.RawMessage{credential, json.RawMessage(`{}`)}, Challenge: "m-1",
	}, Recipient{Address: agentHere})
	if len(belief.Evidence) != 2 || len(belief.Credentials) != 1 {
		t.Errorf("%+v", belief)
	}
	if got, want := codes(belief), []string{CodeMalformed, CodeReplayed, CodeCredentialMalformed}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if belief.Rejected[1].Issuer != connector || belief.Rejected[1].Subject != slackUser || belief.Rejected[1].Method != slackWay {
		t.Errorf("%+v", belief.Rejected[1])
	}
}

func BenchmarkBelieve(b *testing.B) {
	bench := newBench(b, nil)
	piece := bench.fresh(b)
	for b.Loop() {
		bench.used.seen = map[string]time.Time{}
		if belief := bench.believe(b, piece); len(belief.Evidence) != 1 {
			b.Fatal(belief.Rejected)
		}
	}
}
