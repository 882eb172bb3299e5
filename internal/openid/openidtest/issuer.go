// Package openidtest is a small OpenID provider on loopback: it speaks real HTTP, signs ES256 and checks PKCE, and logs
// every login in as the user that the test says. It is for tests and keeps no secrets.
package openidtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Client ids and secret that every Issuer knows.
const (
	ClientID     = "inbox"
	ClientSecret = "s3cret/with+signs"
)

// Issuer is one running provider. Set its fields before or between requests, through Change.
type Issuer struct {
	URL string

	mutex  sync.Mutex
	key    *ecdsa.PrivateKey
	kid    string
	codes  map[string]request
	user   map[string]any              // claims about the user: sub, email, email_verified, name
	tamper func(claims map[string]any) // last change of the ID token
	forge  *ecdsa.PrivateKey           // signs in place of the published key
	asked  int                         // for the published keys
	more   map[string]any              // of the discovery document
	refuse string                      // error with which browsers are sent back; empty = users are logged in
}

// request is what the browser asked at the authorization endpoint.
type request struct{ nonce, challenge, redirect string }

// New starts a provider whose user is the subject; it stops with the test.
func New(t testing.TB, subject string) *Issuer {
	t.Helper()
	issuer := &Issuer{codes: map[string]request{}, user: map[string]any{"sub": subject}, more: map[string]any{}}
	issuer.Rotate()
	routes := http.NewServeMux()
	routes.HandleFunc("GET /.well-known/openid-configuration", issuer.discovery)
	routes.HandleFunc("GET /keys", issuer.keys)
	routes.HandleFunc("GET /authorize", issuer.authorize)
	routes.HandleFunc("POST /token", issuer.token)
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	issuer.URL = server.URL
	return issuer
}

// User sets a claim about the user, such as email.
func (i *Issuer) User(claim string, value any) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.user[claim] = value
}

// Tamper changes the ID tokens that follow; nil ends it.
func (i *Issuer) Tamper(change func(claims map[string]any)) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.tamper = change
}

// Forge signs the ID tokens that follow with a key that is not published.
func (i *Issuer) Forge() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.forge = newKey()
}

// Rotate publishes a new key under a new id and signs with it.
func (i *Issuer) Rotate() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.key, i.kid, i.forge = newKey(), rand.Text(), nil
}

// Publish adds a member to the discovery document. With authorization_response_iss_parameter_supported browsers bring iss back.
func (i *Issuer) Publish(member string, value any) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.more[member] = value
}

// Refuse sends browsers back with an error; empty logs users in again.
func (i *Issuer) Refuse(code string) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.refuse = code
}

// KeysAsked returns how often the published keys were fetched.
func (i *Issuer) KeysAsked() int {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.asked
}

// Visit is the browser: it opens the authorization address, is logged in, and returns the query that the provider's
// redirect brings back.
func (i *Issuer) Visit(t testing.TB, address string) url.Values {
	t.Helper()
	opened, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}

	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(opened)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()

	back, err := response.Location()
	if err != nil {
		t.Fatalf("status %d: %v", response.StatusCode, err)
	}

	return back.Query()
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	document := map[string]any{
		"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
		"id_token_signing_alg_values_supported": []string{"ES256"}, "response_types_supported": []string{"code"},
		"code_challenge_methods_supported": []string{"S256"},
	}
	maps.Copy(document, i.more)
	answer(w, http.StatusOK, document)
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.asked++
	public, err := i.key.PublicKey.Bytes()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	const half = 32
	answer(w, http.StatusOK, map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": i.kid,
		"x": encode(public[1 : 1+half]), "y": encode(public[1+half:]),
	}}})
}

func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("client_id") != ClientID || query.Get("response_type") != "code" || query.Get("code_challenge_method") != "S256" {
		http.Error(w, "unexpected request", http.StatusBadRequest)
		return
	}

	code := rand.Text()
	i.mutex.Lock()
	i.codes[code] = request{query.Get("nonce"), query.Get("code_challenge"), query.Get("redirect_uri")}
	back := url.Values{"code": {code}, "state": {query.Get("state")}}
	if i.refuse != "" {
		back = url.Values{"error": {i.refuse}, "state": {query.Get("state")}}
	}
	if names, _ := i.more["authorization_response_iss_parameter_supported"].(bool); names {
		back.Set("iss", i.URL)
	}
	i.mutex.Unlock()
	http.Redirect(w, r, query.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	} else {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	}

	begun, known := i.codes[r.PostFormValue("code")]
	delete(i.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	switch {
	case id != ClientID || secret != ClientSecret:
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
	case !known || begun.redirect != r.PostFormValue("redirect_uri") || begun.challenge != encode(sum[:]):
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
	default:
		answer(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 60, "id_token": i.sign(begun.nonce)})
	}
}

func (i *Issuer) sign(nonce string) string {
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "aud": ClientID, "nonce": nonce, "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()}
	maps.Copy(claims, i.user)

	if i.tamper != nil {
		i.tamper(claims)
	}

	signer := i.key
	if i.forge != nil {
		signer = i.forge
	}
	return sign(signer, i.kid, claims)
}

// sign makes a JWT with ES256 (RFC 7518, section 3.4).
func sign(key *ecdsa.PrivateKey, kid string, claims map[string]any) string {
	header, headerErr := json.Marshal(map[string]string{"alg": "ES256", "kid": kid})
	body, bodyErr := json.Marshal(claims)
	signed := encode(header) + "." + encode(body)
	sum := sha256.Sum256([]byte(signed))
	r, s, signErr := ecdsa.Sign(rand.Reader, key, sum[:])
	if headerErr != nil || bodyErr != nil || signErr != nil {
		panic("cannot sign in a test")
	}

	const half = 32
	signature := make([]byte, 2*half)
	r.FillBytes(signature[:half])
	s.FillBytes(signature[half:])
	return signed + "." + encode(signature)
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
