package webtoken

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"inbox/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	login    = "https://login.test"
	resource = "https://agents.test/a2a/echo"
)

// rig is a verifier with the web that it may read.
type rig struct {
	*testing.T
	verifier *Verifier
	now      time.Time

	mu      sync.Mutex
	pages   map[string][]byte
	fetches map[string]int
	used    map[string]time.Time
	broken  bool // the memory of used tokens
}

func (r *rig) Fetch(_ context.Context, url string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetches[url]++
	body, found := r.pages[url]
	if !found {
		return nil, errors.New("404")
	}
	return body, nil
}

func (r *rig) Once(_ context.Context, key string, expires time.Time) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return false, errors.New("down")
	}
	_, again := r.used[key]
	r.used[key] = expires
	return !again, nil
}

func newRig(t *testing.T, issuers ...Issuer) *rig {
	t.Helper()
	r := &rig{
		T: t, now: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), pages: map[string][]byte{}, fetches: map[string]int{}, used: map[string]time.Time{},
	}
	if issuers == nil {
		issuers = []Issuer{{Issuer: login, JWKSURL: login + "/keys"}}
	}
	var err error
	if r.verifier, err = New(Options{
		Issuers: issuers, Documents: r, Replays: r, Domain: "agents.test", Now: func() time.Time { return r.now },
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

// signer is a key of someone.
type signer struct {
	kid     string
	alg     jose.SignatureAlgorithm
	private any
	public  map[string]any // JWK
}

func newSigner(t *testing.T, kid string, alg jose.SignatureAlgorithm) signer {
	t.Helper()
	var private any
	var err error
	switch alg {
	case jose.ES256:
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.EdDSA:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signerOf(t, kid, alg, private)
}

func signerOf(t *testing.T, kid string, alg jose.SignatureAlgorithm, private any) signer {
	t.Helper()
	holder, is := private.(crypto.Signer)
	if !is {
		t.Fatalf("%T signs nothing", private)
	}
	encoded, err := json.Marshal(&jose.JSONWebKey{Key: holder.Public()})
	if err != nil {
		t.Fatal(err)
	}
	public := map[string]any{}
	if err := json.Unmarshal(encoded, &public); err != nil {
		t.Fatal(err)
	}
	public["kid"] = kid
	return signer{kid, alg, private, public}
}

func keySetOf(signers ...signer) []byte {
	list := make([]map[string]any, len(signers))
	for i, s := range signers {
		list[i] = s.public
	}
	body, _ := json.Marshal(map[string]any{"keys": list})
	return body
}

func piece(v any) string {
	body, _ := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(body)
}

// sign makes a token of any header and claims.
func (s signer) sign(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	return s.signPieces(t, piece(header)+"."+piece(claims))
}

func (s signer) signPieces(t *testing.T, signing string) string {
	t.Helper()
	var signature []byte
	var err error
	switch key := s.private.(type) {
	case ed25519.PrivateKey:
		signature = ed25519.Sign(key, []byte(signing))
	case *rsa.PrivateKey:
		sum := sha256.Sum256([]byte(signing))
		if s.alg == jose.PS256 {
			signature, err = rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
			break
		}
		signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	case *ecdsa.PrivateKey:
		sum := sha256.Sum256([]byte(signing))
		a, b, failed := ecdsa.Sign(rand.Reader, key, sum[:])
		if err = failed; err == nil {
			signature = append(a.FillBytes(make([]byte, 32)), b.FillBytes(make([]byte, 32))...)
		}
	case []byte:
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(signing))
		signature = mac.Sum(nil)
	default:
		t.Fatalf("%T signs nothing", key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signing + "." + base64.RawURLEncoding.EncodeToString(signature)
}

type object = map[string]any

// access makes an access token as it must be, changed.
func (r *rig) access(s signer, change func(header, claims object)) string {
	r.Helper()
	header := object{"alg": string(s.alg), "kid": s.kid, "typ": "at+jwt"}
	claims := object{
		"iss": login, "sub": "ada", "aud": resource, "client_id": "app", "jti": rand.Text(), "scope": "a2a:send a2a:read",
		"iat": r.now.Unix(), "exp": r.now.Add(time.Hour).Unix(),
	}
	if change != nil {
		change(header, claims)
	}
	return s.sign(r.T, header, claims)
}

func shown(token string, change ...func(*Presented)) Presented {
	p := Presented{
		Scheme: "Bearer", Token: token, Method: "POST", URL: resource, Audiences: []string{resource, "@echo@agents.test"},
		Peer: func(identity.Address) bool { return true },
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func set(values object) func(header, claims object) {
	return func(_, claims object) { maps.Copy(claims, values) }
}

func without(names ...string) func(header, claims object) {
	return func(header, claims object) {
		for _, name := range names {
			delete(header, name)
			delete(claims, name)
		}
	}
}

func heading(values object) func(header, claims object) {
	return func(header, _ object) { maps.Copy(header, values) }
}
