package webtoken

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"inbox/identity"
	"inbox/internal/fault"
)

func mustJSON(v any) []byte {
	body, _ := json.Marshal(v)
	return body
}

func TestAssertionsOfPeers(t *testing.T) {
	r := newRig(t)
	key, err := identity.NewSigningKey("peer.test")
	if err != nil {
		t.Fatal(err)
	}
	r.pages["https://peer.test/.well-known/jwks.json"] = identity.KeySet([]identity.PublicKey{key.Public()})
	token, err := Assert(key, "@ada@peer.test", "@echo@agents.test", r.now)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := r.verifier.Verify(t.Context(), shown(token))
	if err != nil || claims.Peer.String() != "@ada@peer.test" || !claims.Unscoped || claims.Subject != "acct:ada@peer.test" {
		t.Errorf("%+v, %v", claims, err)
	}
	if _, err := r.verifier.Verify(t.Context(), shown(token)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("replay: %v", err)
	}
	for name, c := range map[string]struct{ subject, audience string }{
		"audience": {"@ada@peer.test", "@other@agents.test"},
		"subject":  {"@ada@elsewhere.test", "@echo@agents.test"},
		"no name":  {"ada", "@echo@agents.test"},
	} {
		token, _ := Assert(key, c.subject, c.audience, r.now)
		if _, err := r.verifier.Verify(t.Context(), shown(token)); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	old, _ := Assert(key, "@ada@peer.test", "@echo@agents.test", r.now.Add(-3*time.Minute))
	if _, err := r.verifier.Verify(t.Context(), shown(old)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("expired: %v", err)
	}
}

// TestNotificationsAreNoLogins: a webhook whose address is that of an agent gets a token of its caller's choice of audience, which opens nothing
// there, although a key of the sender's server signed it.
func TestNotificationsAreNoLogins(t *testing.T) {
	r := newRig(t)
	key, err := identity.NewSigningKey("peer.test")
	if err != nil {
		t.Fatal(err)
	}
	r.pages["https://peer.test/.well-known/jwks.json"] = identity.KeySet([]identity.PublicKey{key.Public()})
	notice, err := SignNotification(key, Notification{URL: resource, Task: "@ada@peer.test", Body: []byte("{}")}, r.now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.verifier.Verify(t.Context(), shown(notice)); !fault.Is(err, fault.Unauthenticated) || len(r.fetches) > 0 {
		t.Errorf("a notification as a login: %v, fetched %v", err, r.fetches)
	}
	// Its audience and issuer would do: an assertion with both is accepted.
	token, err := Assert(key, "@ada@peer.test", resource, r.now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.verifier.Verify(t.Context(), shown(token)); err != nil {
		t.Errorf("an assertion with the same issuer and audience: %v", err)
	}
}

// TestNothingIsFetchedOfStrangers: policy comes before the network.
func TestNothingIsFetchedOfStrangers(t *testing.T) {
	r, key := newRig(t), newSigner(t, "k1", jose.EdDSA)
	assertion := func(change object) string {
		claims := object{
			"iss": "https://peer.test", "sub": "@ada@peer.test", "aud": "@echo@agents.test", "jti": "1",
			"iat": r.now.Unix(), "exp": r.now.Unix() + 60,
		}
		maps.Copy(claims, change)
		return key.sign(t, object{"alg": "EdDSA", "kid": "k1"}, claims)
	}
	for name, c := range map[string]struct {
		change object
		policy func(identity.Address) bool
	}{
		"no peers":       {nil, nil},
		"not trusted":    {nil, func(identity.Address) bool { return false }},
		"path":           {object{"iss": "https://peer.test/x"}, yes},
		"slash":          {object{"iss": "https://peer.test/"}, yes},
		"no scheme":      {object{"iss": "peer.test"}, yes},
		"plain http":     {object{"iss": "http://peer.test:80"}, yes},
		"ours":           {object{"iss": "https://agents.test", "sub": "@ada@agents.test"}, yes},
		"our DID":        {object{"iss": "did:web:agents.test", "sub": "@ada@agents.test"}, yes},
		"DID with path":  {object{"iss": "did:web:peer.test:x"}, yes},
		"other DID":      {object{"iss": "did:key:z6Mk"}, yes},
		"wrong audience": {object{"aud": "@other@agents.test"}, yes},
		"two audiences":  {object{"aud": []string{"@echo@agents.test", "https://elsewhere.test"}}, yes},
		"user info":      {object{"iss": "https://a@peer.test"}, yes},
	} {
		_, err := r.verifier.Verify(t.Context(), shown(assertion(c.change), func(p *Presented) { p.Peer = c.policy }))
		if !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(r.fetches) > 0 {
		t.Errorf("fetched %v", r.fetches)
	}
	if _, err := r.verifier.Verify(t.Context(), shown(assertion(nil))); !fault.Is(err, fault.Unauthenticated) || len(r.fetches) != 1 {
		t.Errorf("keys that are not there: %v, %v", err, r.fetches)
	}
}

func yes(identity.Address) bool { return true }

func FuzzRead(f *testing.F) {
	f.Add("a.b.c")
	f.Add(piece(object{"alg": "none"}) + "." + piece(object{"iss": "x", "aud": []string{"a"}, "exp": 1e300}) + ".AA")
	f.Add(piece(object{"alg": "ES256", "crit": []string{"x"}}) + "." + piece(object{"cnf": object{"jkt": "x"}}) + ".AA")
	f.Fuzz(func(t *testing.T, text string) {
		if read, err := read(text); err == nil && (len(text) > MaxTokenBytes || read.header.Crit != nil) {
			t.Errorf("%q is taken", text)
		}
	})
}

func FuzzReadKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AAAA","kid":"a"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		keys, err := readKeys(body)
		for _, key := range keys {
			if err != nil || key.raw == nil || key.fits("HS256") || key.fits("none") {
				t.Errorf("%s gives %+v", body, key)
			}
		}
	})
}
