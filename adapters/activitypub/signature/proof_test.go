package signature

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
)

// TestProofVectors are the examples of FEP-8b32 itself: the one of today, and the one from before the context belonged
// into the options.
func TestProofVectors(t *testing.T) {
	seed, ok := decodeMultibase("z3u2en7t5LR2WtQH5PfFqMqwVHBeXouLzo6haApm8XHqvjxq")
	if !ok {
		t.Fatal("the key cannot be read")
	}
	public := ed25519.NewKeyFromSeed(seed[2:]).Public().(ed25519.PublicKey)
	contexts := `"@context":["https://www.w3.org/ns/activitystreams","https://w3id.org/security/data-integrity/v1"]`
	tail := `"type":"DataIntegrityProof","cryptosuite":"eddsa-jcs-2022","verificationMethod":"https://server.example/users/alice#ed25519-key","proofPurpose":"assertionMethod","created":"2023-02-24T23:36:38Z","proofValue":`
	for name, example := range map[string]string{
		"of today": `{` + contexts + `,"id":"https://server.example/activities/1","type":"Create","actor":"https://server.example/users/alice",
			"object":{"id":"https://server.example/objects/1","type":"Note","attributedTo":"https://server.example/users/alice","content":"Hello world",
			"location":{"type":"Place","longitude":-71.184902,"latitude":25.273962}},
			"proof":{` + contexts + `,` + tail + `"zLaewdp4H9kqtwyrLatK4cjY5oRHwVcw4gibPSUDYDMhi4M49v8pcYk3ZB6D69dNpAPbUmY8ocuJ3m9KhKJEEg7z"}}`,
		"without context in the options": `{` + contexts + `,"type":"Create","actor":"https://server.example/users/alice","object":{"type":"Note","content":"Hello world"},
			"proof":{` + tail + `"z3sXaxjKs4M3BRicwWA9peyNPJvJqxtGsDmpt1jjoHCjgeUf71TRFz56osPSfDErszyLp5Ks1EhYSgpDaNM977Rg2"}}`,
	} {
		activity, err := document.Parse([]byte(example))
		if err != nil {
			t.Fatal(err)
		}
		actor := "https://server.example/users/alice"
		for text, right := range map[string]bool{example: true, strings.Replace(example, "Hello", "Hullo", 1): false} {
			proofs, err := ReadProofs([]byte(text), activity, actor, time.Now())
			if err != nil || len(proofs) != 1 {
				t.Fatalf("%s: %d proofs, %v", name, len(proofs), err)
			}
			if err := proofs[0].Verify(public); (err == nil) != right {
				t.Errorf("%s: %v, want right: %v", name, err, right)
			}
		}
	}
}

func FuzzReadProofs(f *testing.F) {
	f.Add([]byte(`{"@context":"a","actor":"https://m.example/u","proof":{"@context":["a"],"type":"DataIntegrityProof","cryptosuite":"eddsa-jcs-2022","verificationMethod":"https://m.example/u#k","proofPurpose":"assertionMethod","proofValue":"zLaewdp4H9kqtwyrLatK4cjY5oRHwVcw4gibPSUDYDMhi4M49v8pcYk3ZB6D69dNpAPbUmY8ocuJ3m9KhKJEEg7z"}}`))
	f.Add([]byte(`{"proof":[{},1,"x",null,[]],"n":1e400}`))
	f.Add([]byte(`{"proof":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		activity, err := document.Parse(body)
		if err != nil {
			return
		}
		proofs, err := ReadProofs(body, activity, "https://m.example/u", time.Now())
		if err == nil && len(proofs) > maxProofs {
			t.Errorf("%d proofs", len(proofs))
		}
		for _, proof := range proofs {
			if proof.Verify(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public()) == nil {
				t.Errorf("a proof verifies that nobody made: %s", body)
			}
		}
	})
}
