package webtoken

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
)

func TestAccessTokens(t *testing.T) {
	for _, alg := range []jose.SignatureAlgorithm{jose.ES256, jose.EdDSA, jose.RS256, jose.PS256} {
		t.Run(string(alg), func(t *testing.T) {
			r, key := newRig(t), newSigner(t, "k1", alg)
			r.pages[login+"/keys"] = keySetOf(key)
			token := r.access(key, nil)
			for range 2 { // access tokens are good until they end
				claims, err := r.verifier.Verify(t.Context(), shown(token))
				if err != nil || claims.Issuer != login || claims.Subject != "ada" || strings.Join(claims.Scopes, ",") != "a2a:send,a2a:read" ||
					claims.Unscoped || claims.Method != identity.MethodA2AOAuth || claims.KeyID != "k1" || claims.ClientID != "app" {
					t.Errorf("%+v, %v", claims, err)
				}
			}
		})
	}
}

// TestPitfalls: each of these has let someone in somewhere.
func TestPitfalls(t *testing.T) {
	r, key, stranger := newRig(t), newSigner(t, "k1", jose.ES256), newSigner(t, "k1", jose.ES256)
	wide := newSigner(t, "rsa", jose.RS256)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	tiny := signer{"tiny", jose.RS256, small, object{
		"kty": "RSA", "kid": "tiny", "e": "AQAB", "n": base64.RawURLEncoding.EncodeToString(small.N.Bytes()),
	}}
	double, second := newSigner(t, "double", jose.ES256), newSigner(t, "double", jose.ES256)
	encrypts := newSigner(t, "enc", jose.ES256)
	encrypts.public["use"] = "enc"
	bound := newSigner(t, "bound", jose.RS256)
	bound.public["alg"] = "PS256"
	secret := keySetOf(key)
	r.pages[login+"/keys"] = []byte(strings.TrimSuffix(string(keySetOf(key, wide, tiny, double, second, encrypts, bound)), "]}") +
		`,{"kty":"oct","kid":"oct","k":"` + base64.RawURLEncoding.EncodeToString(secret) + `"}]}`)
	mac := func(kid string) signer { return signer{kid: kid, alg: jose.HS256, private: secret} }
	at := func(d time.Duration) int64 { return r.now.Add(d).Unix() }
	embedded := newSigner(t, "evil", jose.ES256)
	for name, token := range map[string]string{
		"alg none":              r.access(key, heading(object{"alg": "none"})),
		"alg None":              r.access(key, heading(object{"alg": "None"})),
		"HMAC with public key":  r.access(mac("k1"), nil),
		"HMAC with oct key":     r.access(mac("oct"), nil),
		"alg not in list":       r.access(wide, heading(object{"alg": "RS512"})),
		"alg of another kind":   r.access(key, heading(object{"kid": "rsa"})),
		"alg not of the key":    r.access(bound, nil),
		"small RSA":             r.access(tiny, nil),
		"no kid":                r.access(key, without("kid")),
		"unknown kid":           r.access(key, heading(object{"kid": "k2"})),
		"kid as path":           r.access(key, heading(object{"kid": "../../k1"})),
		"kid as SQL":            r.access(key, heading(object{"kid": "k1' OR 1=1--"})),
		"kid too long":          r.access(key, heading(object{"kid": strings.Repeat("k", 600)})),
		"kid is ambiguous":      r.access(double, nil),
		"key for encryption":    r.access(encrypts, nil),
		"somebody's key":        r.access(stranger, nil),
		"jku":                   r.access(embedded, heading(object{"jku": "https://evil.test/keys"})),
		"jwk":                   r.access(embedded, heading(object{"jwk": embedded.public})),
		"x5u":                   r.access(embedded, heading(object{"x5u": "https://evil.test/cert"})),
		"crit":                  r.access(key, heading(object{"crit": []string{"exp"}})),
		"b64":                   r.access(key, heading(object{"b64": false})),
		"aud missing":           r.access(key, without("aud")),
		"aud of another agent":  r.access(key, set(object{"aud": "https://agents.test/a2a/other"})),
		"aud longer":            r.access(key, set(object{"aud": resource + "/x"})),
		"aud with a slash":      r.access(key, set(object{"aud": resource + "/"})),
		"aud with a port":       r.access(key, set(object{"aud": "https://agents.test:443/a2a/echo"})),
		"aud, host in capitals": r.access(key, set(object{"aud": "https://AGENTS.test/a2a/echo"})),
		"aud percent encoded":   r.access(key, set(object{"aud": "https://agents.test/a2a/%65cho"})),
		"aud with a query":      r.access(key, set(object{"aud": resource + "?"})),
		"aud with a blank":      r.access(key, set(object{"aud": resource + " "})),
		"aud in a list in one":  r.access(key, set(object{"aud": []any{[]string{resource}}})),
		"aud as an object":      r.access(key, set(object{"aud": object{"aud": resource}})),
		"aud list of others":    r.access(key, set(object{"aud": []string{"x", resource + "/"}})),
		"cnf with a duplicate":  r.claimed(key, `"cnf":{"jkt":"a","jkt":"b"}`),
		"cnf in another case":   r.claimed(key, `"cnf":{"jkt":"a","JKT":"b"}`),
		"duplicate deep down":   r.claimed(key, `"x":[{"a":{"b":1,"b":2}}]`),
		"name in another case":  r.claimed(key, `"Aud":"x"`),
		"name with a long s":    r.claimed(key, `"\u017fub":"root"`),
		"aud other case":        r.access(key, set(object{"aud": strings.ToUpper(resource)})),
		"aud empty":             r.access(key, set(object{"aud": ""})),
		"aud is a number":       r.access(key, set(object{"aud": 1})),
		"ID token":              r.access(key, set(object{"nonce": "n"})),
		"typ JWT":               r.access(key, heading(object{"typ": "JWT"})),
		"no typ":                r.access(key, without("typ")),
		"no client_id":          r.access(key, without("client_id")),
		"no sub":                r.access(key, without("sub")),
		"no jti":                r.access(key, without("jti")),
		"no exp":                r.access(key, without("exp")),
		"no iat":                r.access(key, without("iat")),
		"expired":               r.access(key, set(object{"iat": at(-2 * time.Hour), "exp": at(-31 * time.Second)})),
		"not yet":               r.access(key, set(object{"nbf": at(31 * time.Second)})),
		"iat in the future":     r.access(key, set(object{"iat": at(31 * time.Second)})),
		"lasts for years":       r.access(key, set(object{"exp": at(1000 * time.Hour)})),
		"exp is a text":         r.access(key, set(object{"exp": "never"})),
		"control in sub":        r.access(key, set(object{"sub": "ada\x00bob"})),
		"long sub":              r.access(key, set(object{"sub": strings.Repeat("a", 600)})),
		"issuer with a slash":   r.access(key, set(object{"iss": login + "/"})),
		"issuer in upper case":  r.access(key, set(object{"iss": strings.ToUpper(login)})),
		"no issuer":             r.access(key, without("iss")),
		"huge":                  r.access(key, set(object{"x": strings.Repeat("x", MaxTokenBytes)})),
		"five pieces":           "a.b.c.d.e",
		"no signature":          strings.Join(strings.Split(r.access(key, nil), ".")[:2], ".") + ".",
		"padding":               r.access(key, nil) + "=",
		"claims twice":          twice(r, key),
		"certificate bound":     r.access(key, set(object{"cnf": object{"x5t#S256": "x"}})),
	} {
		if _, err := r.verifier.Verify(t.Context(), shown(token)); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for address := range r.fetches {
		if strings.Contains(address, "evil") {
			t.Errorf("%s was fetched", address)
		}
	}
	for name, token := range map[string]string{
		"skew of exp":  r.access(key, set(object{"iat": at(-2 * time.Hour), "exp": at(-29 * time.Second)})),
		"skew of nbf":  r.access(key, set(object{"nbf": at(29 * time.Second)})),
		"other claims": r.claimed(key, `"resource_access":{"app":{},"App":{}}`),
		"list of aud":  r.access(key, set(object{"aud": []string{"x", resource}})),
		"full typ":     r.access(key, heading(object{"typ": "application/at+jwt"})),
		"scp":          r.access(key, set(object{"scp": []string{"a2a:send"}})),
		"part seconds": r.access(key, set(object{"exp": float64(at(time.Minute)) + 0.5})),
	} {
		if _, err := r.verifier.Verify(t.Context(), shown(token)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// twice signs claims in which a name is a duplicate: readers disagree about which one counts.
func twice(r *rig, key signer) string { return r.claimed(key, `"sub":"root"`) }

// claimed signs claims as they must be, with one more that is written here.
func (r *rig) claimed(key signer, more string) string {
	header := piece(object{"alg": "ES256", "kid": "k1", "typ": "at+jwt"})
	claims := fmt.Sprintf(`{"iss":%q,"sub":"ada",%s,"aud":%q,"client_id":"a","jti":"1","iat":%d,"exp":%d}`, login, more, resource, r.now.Unix(), r.now.Unix()+60)
	return key.signPieces(r.T, header+"."+base64.RawURLEncoding.EncodeToString([]byte(claims)))
}

func TestRotationAndFloods(t *testing.T) {
	r, old, fresh := newRig(t), newSigner(t, "old", jose.ES256), newSigner(t, "new", jose.ES256)
	keys := login + "/keys"
	r.pages[keys] = keySetOf(old)
	accepted := func(key signer) bool {
		_, err := r.verifier.Verify(t.Context(), shown(r.access(key, nil)))
		return err == nil
	}
	if !accepted(old) || r.fetches[keys] != 1 {
		t.Fatalf("first: %d fetches", r.fetches[keys])
	}
	r.pages[keys] = keySetOf(old, fresh)
	if !accepted(fresh) || r.fetches[keys] != 2 {
		t.Errorf("rotated: %d fetches", r.fetches[keys])
	}
	flood := func() {
		var all sync.WaitGroup
		for i := range 200 {
			token := r.access(old, heading(object{"kid": fmt.Sprint("random-", i)}))
			all.Go(func() { _, _ = r.verifier.Verify(t.Context(), shown(token)) })
		}
		await.Done(t, all.Wait, "the answers about all tokens")
	}
	flood()
	if got := r.fetches[keys] - 1; got > identity.MaxLooksOne {
		t.Errorf("a flood in the same window: %d looks", got)
	}
	before := r.fetches[keys]
	r.now = r.now.Add(RefreshPause)
	flood()
	if got := r.fetches[keys] - before; got > identity.MaxLooksOne {
		t.Errorf("a flood in the next window: %d looks", got)
	}
	delete(r.pages, keys)
	r.now = r.now.Add(RefreshPause)
	if accepted(newSigner(t, "x", jose.ES256)) || !accepted(old) {
		t.Error("an issuer that is away for a moment lost its keys")
	}
	r.now = r.now.Add(keepKeys)
	if _, err := r.verifier.Verify(t.Context(), shown(r.access(old, nil))); !fault.Is(err, fault.Unavailable) {
		t.Errorf("an issuer that is away: %v", err)
	}
	at := r.fetches[keys]
	flood()
	if r.fetches[keys] != at {
		t.Errorf("an issuer that is away is asked %d times more", r.fetches[keys]-at)
	}
}

func TestDiscovery(t *testing.T) {
	metadata := login + "/.well-known/openid-configuration"
	for name, c := range map[string]struct {
		document string
		good     bool
	}{
		"right":          {`{"issuer":"` + login + `","jwks_uri":"https://keys.test/jwks"}`, true},
		"another issuer": {`{"issuer":"https://evil.test","jwks_uri":"https://keys.test/jwks"}`, false},
		"slash":          {`{"issuer":"` + login + `/","jwks_uri":"https://keys.test/jwks"}`, false},
		"plain http":     {`{"issuer":"` + login + `","jwks_uri":"http://keys.test/jwks"}`, false},
		"no keys":        {`{"issuer":"` + login + `"}`, false},
		"no JSON":        {`<html>`, false},
	} {
		r, key := newRig(t, Issuer{Issuer: login, Discovery: metadata}), newSigner(t, "k1", jose.ES256)
		r.pages[metadata], r.pages["https://keys.test/jwks"], r.pages["http://keys.test/jwks"] = []byte(c.document), keySetOf(key), keySetOf(key)
		if _, err := r.verifier.Verify(t.Context(), shown(r.access(key, nil))); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSettingsOfIssuers(t *testing.T) {
	key := newSigner(t, "k1", jose.ES256)
	verify := func(issuer Issuer, change func(header, claims object), seen ...func(*Presented)) (Claims, error) {
		issuer.Issuer, issuer.JWKSURL = login, login+"/keys"
		r := newRig(t, issuer)
		r.pages[login+"/keys"] = keySetOf(key)
		return r.verifier.Verify(t.Context(), shown(r.access(key, change), seen...))
	}
	plain := func(header, claims object) { without("typ", "client_id", "jti")(header, claims) }
	if _, err := verify(Issuer{Untyped: true}, plain); err != nil {
		t.Errorf("untyped: %v", err)
	}
	if claims, err := verify(Issuer{}, without("scope")); err != nil || claims.Unscoped {
		t.Errorf("without scopes: %+v, %v", claims, err)
	}
	if claims, err := verify(Issuer{Unscoped: true}, without("scope")); err != nil || !claims.Unscoped {
		t.Errorf("unscoped: %+v, %v", claims, err)
	}
	if claims, err := verify(Issuer{Unscoped: true}, nil); err != nil || claims.Unscoped {
		t.Errorf("unscoped with scopes: %+v, %v", claims, err)
	}
	if _, err := verify(Issuer{Algs: []string{"EdDSA"}}, nil); err == nil {
		t.Error("an algorithm that the operator did not list")
	}
	other := "https://agents.test/a2a/other"
	foreign := func(p *Presented) { p.Foreign = func(name string) bool { return name == other } }
	if _, err := verify(Issuer{Audiences: []string{"urn:us", other}}, set(object{"aud": "urn:us"}), foreign); err != nil {
		t.Errorf("configured audience: %v", err)
	}
	if _, err := verify(Issuer{Audiences: []string{"urn:us", other}}, set(object{"aud": other}), foreign); err == nil {
		t.Error("the token of one agent opens another")
	}
	for name, broken := range map[string]Issuer{
		"no keys": {Issuer: login}, "both": {Issuer: login, JWKSURL: "x", Discovery: "y"},
		"HMAC": {Issuer: login, JWKSURL: "x", Algs: []string{"HS256"}}, "no name": {JWKSURL: "x"},
	} {
		r := newRig(t)
		if _, err := New(Options{Issuers: []Issuer{broken}, Documents: r, Replays: r, Domain: "agents.test"}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTokensForOneRequest(t *testing.T) {
	r, key := newRig(t, Issuer{Issuer: login, JWKSURL: login + "/keys", Method: identity.MethodA2AJWT}), newSigner(t, "k1", jose.ES256)
	r.pages[login+"/keys"] = keySetOf(key)
	short := func(header, claims object) {
		delete(header, "typ")
		claims["exp"] = r.now.Add(5 * time.Minute).Unix()
	}
	token := r.access(key, short)
	if claims, err := r.verifier.Verify(t.Context(), shown(token)); err != nil || claims.Method != identity.MethodA2AJWT {
		t.Errorf("%+v, %v", claims, err)
	}
	if _, err := r.verifier.Verify(t.Context(), shown(token)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("replay: %v", err)
	}
	if _, err := r.verifier.Verify(t.Context(), shown(r.access(key, nil))); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("an hour: %v", err)
	}
	r.broken = true
	if _, err := r.verifier.Verify(t.Context(), shown(r.access(key, short))); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without a memory: %v", err)
	}
}
