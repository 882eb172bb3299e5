package webtoken

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func TestPossession(t *testing.T) {
	r, key, holder, thief := newRig(t), newSigner(t, "k1", jose.ES256), newSigner(t, "", jose.ES256), newSigner(t, "", jose.ES256)
	r.pages[login+"/keys"] = keySetOf(key)
	jwkOf := func(s signer) object {
		public := object{}
		for name, value := range s.public {
			if name != "kid" {
				public[name] = value
			}
		}
		return public
	}
	thumbprint, err := thumbprintOf([]byte(string(mustJSON(jwkOf(holder)))))
	if err != nil {
		t.Fatal(err)
	}
	bound := r.access(key, set(object{"cnf": object{"jkt": thumbprint}}))
	proof := func(s signer, change func(header, claims object)) string {
		header := object{"alg": "ES256", "typ": "dpop+jwt", "jwk": jwkOf(s)}
		claims := object{"htm": "POST", "htu": resource, "iat": r.now.Unix(), "jti": rand.Text(), "ath": digest(bound)}
		if change != nil {
			change(header, claims)
		}
		return s.sign(t, header, claims)
	}
	show := func(token, scheme string, proofs ...string) error {
		_, err := r.verifier.Verify(t.Context(), shown(token, func(p *Presented) { p.Scheme, p.Proofs = scheme, proofs }))
		return err
	}
	for name, good := range map[string]string{
		"plain":         proof(holder, nil),
		"query":         proof(holder, set(object{"htu": resource + "?a=b#c"})),
		"host case":     proof(holder, set(object{"htu": "https://AGENTS.test:443/a2a/echo"})),
		"a minute old":  proof(holder, set(object{"iat": r.now.Add(-time.Minute).Unix()})),
		"a minute fast": proof(holder, set(object{"iat": r.now.Add(time.Minute).Unix()})),
	} {
		if err := show(bound, "dpop", good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	used := proof(holder, nil)
	if err := show(bound, "DPoP", used); err != nil {
		t.Fatal(err)
	}
	private := object{"kty": "EC", "crv": "P-256", "d": "AAAA"}
	for name, bad := range map[string][]string{
		"none":          nil,
		"two":           {proof(holder, nil), proof(holder, nil)},
		"used":          {used},
		"of a thief":    {proof(thief, nil)},
		"other method":  {proof(holder, set(object{"htm": "GET"}))},
		"other address": {proof(holder, set(object{"htu": "https://agents.test/a2a/other"}))},
		"other host":    {proof(holder, set(object{"htu": "https://evil.test/a2a/echo"}))},
		"plain http":    {proof(holder, set(object{"htu": "http://agents.test/a2a/echo"}))},
		"old":           {proof(holder, set(object{"iat": r.now.Add(-61 * time.Second).Unix()}))},
		"future":        {proof(holder, set(object{"iat": r.now.Add(61 * time.Second).Unix()}))},
		"no iat":        {proof(holder, without("iat"))},
		"no jti":        {proof(holder, without("jti"))},
		"no ath":        {proof(holder, without("ath"))},
		"other token":   {proof(holder, set(object{"ath": digest("x")}))},
		"no jwk":        {proof(holder, without("jwk"))},
		"private jwk":   {proof(holder, heading(object{"jwk": private}))},
		"jwk of thief":  {proof(holder, heading(object{"jwk": jwkOf(thief)}))},
		"typ":           {proof(holder, heading(object{"typ": "JWT"}))},
		"alg none":      {proof(holder, heading(object{"alg": "none"}))},
		"no token":      {"x"},
	} {
		if err := show(bound, "DPoP", bad...); !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := show(bound, "Bearer"); !errors.Is(err, ErrToken) {
		t.Errorf("bound token as Bearer: %v", err)
	}
	if err := show(bound, "Bearer", proof(holder, nil)); !errors.Is(err, ErrToken) {
		t.Errorf("bound token as Bearer with proof: %v", err)
	}
	if err := show(r.access(key, nil), "DPoP", proof(holder, nil)); !errors.Is(err, ErrToken) {
		t.Errorf("unbound token as DPoP: %v", err)
	}
}
