package e2e

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"inbox/e2e/instance"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/webtoken"
)

type jsonObject = map[string]any

func jsonOf(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps of texts and numbers can be written
	}
	return encoded
}

func base64url(content []byte) string { return base64.RawURLEncoding.EncodeToString(content) }

func compactJWS(header, claims jsonObject, sign func([]byte) []byte) string {
	signed := base64url(jsonOf(header)) + "." + base64url(jsonOf(claims))
	return signed + "." + base64url(sign([]byte(signed)))
}

// oauthServer is a small authorization server: metadata, keys, tokens. It counts who asks for its keys.
type oauthServer struct {
	*httptest.Server
	mu      sync.Mutex
	keys    map[string]ed25519.PrivateKey
	fetches int
}

func startOAuth(t *testing.T) *oauthServer {
	t.Helper()
	o := &oauthServer{keys: map[string]ed25519.PrivateKey{}}
	o.rotate("k1")
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(jsonOf(jsonObject{"issuer": o.URL, "jwks_uri": o.URL + "/jwks"}))
	})
	mux.HandleFunc("/jwks", func(w http.ResponseWriter, _ *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.fetches++
		_, _ = w.Write(o.set())
	})
	o.Server = httptest.NewServer(mux)
	t.Cleanup(o.Close)
	return o
}

func (o *oauthServer) set() []byte {
	var keys []jsonObject
	for kid, key := range o.keys {
		public, _ := key.Public().(ed25519.PublicKey)
		keys = append(keys, jsonObject{"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": kid, "x": base64url(public)})
	}
	return jsonOf(jsonObject{"keys": keys})
}

// rotate makes a key the only one.
func (o *oauthServer) rotate(kid string) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keys = map[string]ed25519.PrivateKey{kid: private}
}

func (o *oauthServer) asked() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fetches
}

func (o *oauthServer) key(kid string) ed25519.PrivateKey {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys[kid]
}

// token is a good access token for an audience, after changes of header and claims; nil removes a member.
func (o *oauthServer) token(kid, audience string, header, claims jsonObject) string {
	h := jsonObject{"alg": "EdDSA", "kid": kid, "typ": "at+jwt"}
	now := time.Now()
	c := jsonObject{
		"iss": o.URL, "sub": "cy", "aud": audience, "client_id": "app", "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
		"scope": "a2a:send a2a:read a2a:cancel a2a:push",
	}
	for into, changes := range map[*jsonObject]jsonObject{&h: header, &c: claims} {
		maps.Copy(*into, changes)
		maps.DeleteFunc(*into, func(_ string, value any) bool { return value == nil })
	}
	private := o.key(kid)
	return compactJWS(h, c, func(text []byte) []byte {
		switch h["alg"] {
		case "none":
			return nil
		case "HS256": // with what everybody knows as the secret
			public, _ := private.Public().(ed25519.PublicKey)
			sum := hmac.New(sha256.New, public)
			_, _ = sum.Write(text)
			return sum.Sum(nil)
		}
		return ed25519.Sign(private, text)
	})
}

// holder has the key of bound tokens (RFC 9449).
type holder struct{ private ed25519.PrivateKey }

func newHolder() holder {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return holder{private}
}

func (h holder) jwk() jsonObject {
	public, _ := h.private.Public().(ed25519.PublicKey)
	return jsonObject{"crv": "Ed25519", "kty": "OKP", "x": base64url(public)}
}

// thumbprint is that of RFC 7638: the members in this order are those of the map in JSON.
func (h holder) thumbprint() string {
	sum := sha256.Sum256(jsonOf(h.jwk()))
	return base64url(sum[:])
}

func (h holder) proof(token, method, address string, claims jsonObject) string {
	sum := sha256.Sum256([]byte(token))
	c := jsonObject{"htm": method, "htu": address, "iat": time.Now().Unix(), "jti": rand.Text(), "ath": base64url(sum[:])}
	maps.Copy(c, claims)
	maps.DeleteFunc(c, func(_ string, value any) bool { return value == nil })
	return compactJWS(jsonObject{"alg": "EdDSA", "typ": "dpop+jwt", "jwk": h.jwk()}, c, func(text []byte) []byte { return ed25519.Sign(h.private, text) })
}

// refusal is how a binding answered, the same for all: the HTTP status, and the challenges.
type refusal struct {
	status    int
	challenge string
}

// listing asks for the tasks by one binding with an Authorization header and DPoP proofs, which get the method and the
// address of the request.
type listing func(authorization string, proofs ...string) refusal

func (w *a2aWays) listings(agent string) map[string]struct {
	method, address string
	list            listing
} {
	overHTTP := func(method, path, body string) listing {
		return func(authorization string, proofs ...string) refusal {
			request, err := http.NewRequestWithContext(w.t.Context(), method, w.URL()+path, strings.NewReader(body))
			if err != nil {
				w.t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			if authorization != "" {
				request.Header.Set("Authorization", authorization)
			}
			for _, proof := range proofs {
				request.Header.Add("DPoP", proof)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				w.t.Fatal(err)
			}
			_ = response.Body.Close()
			return refusal{response.StatusCode, strings.Join(response.Header.Values("WWW-Authenticate"), " | ")}
		}
	}
	overGRPC := func(authorization string, proofs ...string) refusal {
		pairs := metadata.MD{"dpop": proofs}
		if authorization != "" {
			pairs.Set("authorization", authorization)
		}
		ctx := metadata.NewOutgoingContext(w.t.Context(), pairs)
		var trailer metadata.MD
		_, err := w.grpc.ListTasks(ctx, &pb.ListTasksRequest{Tenant: agent}, grpcTrailer(&trailer))
		found := map[grpccodes.Code]int{grpccodes.OK: 200, grpccodes.Unauthenticated: 401, grpccodes.PermissionDenied: 403}[status.Code(err)]
		return refusal{found, strings.Join(trailer.Get("www-authenticate"), " | ")}
	}
	type row = struct {
		method, address string
		list            listing
	}
	return map[string]row{
		"JSON-RPC":  {"POST", w.URL() + "/a2a/" + agent, overHTTP("POST", "/a2a/"+agent, `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`)},
		"HTTP+JSON": {"GET", w.URL() + "/a2a/" + agent + "/rest/tasks", overHTTP("GET", "/a2a/"+agent+"/rest/tasks?pageSize=1", "")},
		"gRPC":      {"POST", "http://" + w.grpcAddress + "/lf.a2a.v1.A2AService/ListTasks", overGRPC},
	}
}

func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	issuer := startOAuth(t)
	w := startWays(t, "", "[[agents]]\nname = \"memory\"\nkind = \"echo\"\naccess = \"public\"\n[[agents]]\nname = \"other\"\nkind = \"echo\"\naccess = \"public\"\n",
		fmt.Sprintf("[[a2a.issuers]]\nissuer = %q\ndiscovery = %q\n", issuer.URL, issuer.URL+"/.well-known/openid-configuration"))
	here, other := w.URL()+"/a2a/memory", w.URL()+"/a2a/other"
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	good := func() string { return issuer.token("k1", here, nil, nil) }
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"good":                  {good(), 200},
		"alg none":              {issuer.token("k1", here, jsonObject{"alg": "none"}, nil), 401},
		"HS256 with public key": {issuer.token("k1", here, jsonObject{"alg": "HS256"}, nil), 401},
		"RS256 with such a key": {issuer.token("k1", here, jsonObject{"alg": "RS256"}, nil), 401},
		"no kid":                {issuer.token("k1", here, jsonObject{"kid": nil}, nil), 401},
		"kid as a path":         {issuer.token("k1", here, jsonObject{"kid": "../jwks#k1"}, nil), 401},
		"kid as SQL":            {issuer.token("k1", here, jsonObject{"kid": "k1' OR '1'='1"}, nil), 401},
		"jku":                   {issuer.token("k1", here, jsonObject{"kid": "own", "jku": "http://127.0.0.1:1/jwks"}, nil), 401},
		"crit":                  {issuer.token("k1", here, jsonObject{"crit": []string{"x"}, "x": 1}, nil), 401},
		"typ JWT":               {issuer.token("k1", here, jsonObject{"typ": "JWT"}, nil), 401},
		"ID token":              {issuer.token("k1", here, nil, jsonObject{"nonce": "n"}), 401},
		"aud of another agent":  {issuer.token("k1", other, nil, nil), 401},
		"aud of the server":     {issuer.token("k1", w.URL(), nil, nil), 401},
		"no aud":                {issuer.token("k1", here, nil, jsonObject{"aud": nil}), 401},
		"another issuer":        {issuer.token("k1", here, nil, jsonObject{"iss": "https://login.example"}), 401},
		"issuer with a slash":   {issuer.token("k1", here, nil, jsonObject{"iss": issuer.URL + "/"}), 401},
		"expired":               {issuer.token("k1", here, nil, jsonObject{"iat": at(-time.Hour), "exp": at(-time.Minute)}), 401},
		"not yet":               {issuer.token("k1", here, nil, jsonObject{"nbf": at(4 * time.Minute)}), 401},
		"iat in the future":     {issuer.token("k1", here, nil, jsonObject{"iat": at(4 * time.Minute)}), 401},
		"no exp":                {issuer.token("k1", here, nil, jsonObject{"exp": nil}), 401},
		"lasts for years":       {issuer.token("k1", here, nil, jsonObject{"exp": at(9000 * time.Hour)}), 401},
		"no client_id":          {issuer.token("k1", here, nil, jsonObject{"client_id": nil}), 401},
		"other scopes":          {issuer.token("k1", here, nil, jsonObject{"scope": "a2a:send"}), 403},
		"no scope":              {issuer.token("k1", here, nil, jsonObject{"scope": nil}), 403},
		"bound, as Bearer":      {issuer.token("k1", here, nil, jsonObject{"cnf": jsonObject{"jkt": newHolder().thumbprint()}}), 401},
		"changed":               {good()[:40] + "A" + good()[41:], 401},
		"huge":                  {issuer.token("k1", here, nil, jsonObject{"x": strings.Repeat("x", 12<<10)}), 401},
	} {
		for binding, way := range w.listings("memory") {
			got := way.list("Bearer " + c.token)
			if name == "huge" && got.status == http.StatusRequestHeaderFieldsTooLarge {
				continue // the header as a whole is bounded before
			}
			if got.status != c.want {
				t.Errorf("%s by %s: %d, want %d", name, binding, got.status, c.want)
			}
			want := map[int]string{200: "", 401: `error="invalid_token"`, 403: `error="insufficient_scope", scope="a2a:read"`}[c.want]
			if !strings.Contains(got.challenge, want) || c.want != 200 && !strings.Contains(got.challenge, "resource_metadata=") {
				t.Errorf("%s by %s: challenge %q", name, binding, got.challenge)
			}
		}
	}
	t.Run("possession", func(t *testing.T) { checkPossession(t, w, issuer, here) })
	t.Run("metadata", func(t *testing.T) { checkResourceMetadata(t, w, issuer) })
	t.Run("flood", func(t *testing.T) { checkFlood(t, w, issuer, here, begun) })
}

// checkPossession tries proofs on each binding (RFC 9449, section 4.3).
func checkPossession(t *testing.T, w *a2aWays, issuer *oauthServer, audience string) {
	owner, thief := newHolder(), newHolder()
	bound := issuer.token("k1", audience, nil, jsonObject{"cnf": jsonObject{"jkt": owner.thumbprint()}})
	for binding, way := range w.listings("memory") {
		proof := func(claims jsonObject) string { return owner.proof(bound, way.method, way.address, claims) }
		used := proof(nil)
		if got := way.list("DPoP "+bound, used); got.status != 200 {
			t.Errorf("%s: a good proof: %d %s", binding, got.status, got.challenge)
		}
		for name, proofs := range map[string][]string{
			"missing": nil, "replayed": {used}, "two": {proof(nil), proof(nil)}, "of a thief": {thief.proof(bound, way.method, way.address, nil)},
			"htu": {proof(jsonObject{"htu": way.address + "x"})}, "htm": {proof(jsonObject{"htm": "PUT"})}, "ath": {proof(jsonObject{"ath": "x"})},
			"old": {proof(jsonObject{"iat": time.Now().Add(-2 * time.Minute).Unix()})}, "no jti": {proof(jsonObject{"jti": nil})},
		} {
			if got := way.list("DPoP "+bound, proofs...); got.status != 401 || !strings.Contains(got.challenge, `error="invalid_dpop_proof"`) {
				t.Errorf("%s, %s: %d %q", binding, name, got.status, got.challenge)
			}
		}
		if got := way.list("Bearer "+bound, proof(nil)); got.status != 401 {
			t.Errorf("%s: a bound token as Bearer: %d", binding, got.status)
		}
		if got := way.list("DPoP "+issuer.token("k1", audience, nil, nil), proof(nil)); got.status != 401 {
			t.Errorf("%s: an unbound token as DPoP: %d", binding, got.status)
		}
	}
}

// checkResourceMetadata follows the challenge as a client does (RFC 9728, section 5).
func checkResourceMetadata(t *testing.T, w *a2aWays, issuer *oauthServer) {
	for binding, way := range w.listings("memory") {
		_, after, _ := strings.Cut(way.list("").challenge, `resource_metadata="`)
		address, _, _ := strings.Cut(after, `"`)
		response, err := http.Get(address)
		if err != nil {
			t.Fatalf("%s: %v", binding, err)
		}
		var document struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
			Methods  []string `json:"bearer_methods_supported"`
			Algs     []string `json:"dpop_signing_alg_values_supported"`
		}
		err = json.NewDecoder(response.Body).Decode(&document)
		_ = response.Body.Close()
		if err != nil || document.Resource != w.URL()+"/a2a/memory" || len(document.Servers) != 1 || document.Servers[0] != issuer.URL ||
			len(document.Scopes) != 4 || document.Methods[0] != "header" || len(document.Algs) == 0 {
			t.Errorf("%s: %s has %+v (%v)", binding, address, document, err)
		}
	}
}

// checkFlood: however many names of keys one caller invents, it causes three fetches in each window.
func checkFlood(t *testing.T, w *a2aWays, issuer *oauthServer, audience string, begun time.Time) {
	list := w.listings("memory")["JSON-RPC"].list
	var flood sync.WaitGroup
	for i := range 8 {
		flood.Go(func() {
			for j := range 25 {
				if got := list("Bearer " + issuer.token("k1", audience, jsonObject{"kid": fmt.Sprint("random-", i, "-", j)}, nil)); got.status != 401 {
					t.Errorf("a random kid: %d", got.status)
				}
			}
		})
	}
	await.Done(t, flood.Wait, "the answers to the flood")
	most := 1 + identity.MaxLooksOne*(1+int(time.Since(begun)/webtoken.RefreshPause)) // the first keys, and those of the caller
	if n := issuer.asked(); n > most {
		t.Errorf("the keys were fetched %d times, want %d at most", n, most)
	}
}

// TestKeysOfAnIssuerChange: the first token with a new key is taken at once.
func TestKeysOfAnIssuerChange(t *testing.T) {
	t.Parallel()
	issuer := startOAuth(t)
	w := startWays(t, "", "[[agents]]\nname = \"memory\"\nkind = \"echo\"\naccess = \"public\"\n",
		fmt.Sprintf("[[a2a.issuers]]\nissuer = %q\ndiscovery = %q\n", issuer.URL, issuer.URL+"/.well-known/openid-configuration"))
	list := w.listings("memory")["HTTP+JSON"].list
	for i, kid := range []string{"k1", "k2"} {
		if i > 0 {
			issuer.rotate(kid)
		}
		if got := list("Bearer " + issuer.token(kid, w.URL()+"/a2a/memory", nil, nil)); got.status != 200 || issuer.asked() != i+1 {
			t.Errorf("%s: %d after %d fetches", kid, got.status, issuer.asked())
		}
	}
}

// TestAgentsOfOtherServersSignForThemselves: by the keys of their domain or its DID, for one request, for one agent.
func TestAgentsOfOtherServersSignForThemselves(t *testing.T) {
	t.Parallel()
	w := startWays(t, "", "[[agents]]\nname = \"memory\"\nkind = \"echo\"\naccess = \"verified\"\n[[agents]]\nname = \"other\"\nkind = \"echo\"\naccess = \"verified\"\n"+
		"[[agents]]\nname = \"private\"\nkind = \"echo\"\naccess = \"rules\"\n", "")
	fetches := 0
	var key identity.SigningKey
	var mu sync.Mutex
	origin := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		fetches++
		public := key.Public()
		did := "did:web:" + strings.ReplaceAll(key.Issuer, ":", "%3A")
		switch request.URL.Path {
		case "/.well-known/jwks.json":
			_, _ = writer.Write(identity.KeySet([]identity.PublicKey{public}))
		case "/.well-known/did.json":
			method := jsonObject{"id": did + "#" + public.Kid, "type": "JsonWebKey2020", "controller": did, "publicKeyJwk": jsonObject{
				"kty": "OKP", "crv": "Ed25519", "x": base64url(public.Key), "kid": public.Kid,
			}}
			_, _ = writer.Write(jsonOf(jsonObject{"id": did, "verificationMethod": []any{method}, "assertionMethod": []string{did + "#" + public.Kid}}))
		default:
			http.NotFound(writer, request)
		}
	}))
	t.Cleanup(origin.Close)
	domain := strings.TrimPrefix(origin.URL, "http://")
	mu.Lock()
	key = newSigningKey(t, domain)
	mu.Unlock()
	assert := func(audience string) string {
		token, err := webtoken.Assert(key, "@pat@"+domain, audience, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	asDID := func(audience string) string {
		did := "did:web:" + strings.ReplaceAll(domain, ":", "%3A")
		claims := jsonObject{"iss": did, "sub": "@pat@" + domain, "aud": audience, "jti": rand.Text(), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()}
		return compactJWS(jsonObject{"alg": "EdDSA", "kid": did + "#" + key.Kid}, claims, func(text []byte) []byte { return ed25519.Sign(key.Private, text) })
	}
	if got := w.listings("private")["JSON-RPC"].list("Bearer " + assert("@private@"+w.Settings.HTTP)); got.status != 401 || fetches != 0 {
		t.Errorf("an agent that takes nobody: %d after %d fetches", got.status, fetches)
	}
	for form, sign := range map[string]func(string) string{"jwks.json": assert, "did:web": asDID} {
		for binding, way := range w.listings("memory") {
			token := sign("@memory@" + w.Settings.HTTP)
			if got := way.list("Bearer " + token); got.status != 200 {
				t.Errorf("%s, %s: %d %s", form, binding, got.status, got.challenge)
			}
			for again, second := range w.listings("memory") {
				if got := second.list("Bearer " + token); got.status != 401 {
					t.Errorf("%s: a token that was used by %s is taken by %s: %d", form, binding, again, got.status)
				}
			}
			if got := way.list("Bearer " + sign("@other@"+w.Settings.HTTP)); got.status != 401 {
				t.Errorf("%s, %s: a token for another agent: %d", form, binding, got.status)
			}
		}
	}
}

// callingAs is a context with a token for gRPC.
func callingAs(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// read gets a document with headers; the Host header is that of the request where it is among them.
func (s *server) read(t *testing.T, method, path string, header ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Settings.HTTP+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			request.Host = header[i+1]
			continue
		}
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// cardReport is what e2e/peers/a2a/card.mjs prints.
type cardReport struct {
	Name        string
	Skills      []string
	Signatures  int
	Whole       int
	SDK         *bool
	ForgedWhole int
	ForgedSDK   *bool
}

func verifyCard(t *testing.T, arguments ...string) cardReport {
	t.Helper()
	_, output := node(t, "a2a/card.mjs", arguments...)
	var report cardReport
	readJSON(t, output, &report)
	return report
}

// TestCardsAreVerifiedByOthers: the signatures of our cards fit for jose and canonicalize and for the SDK, and for no one after
// one character was changed; the Mentionable form is signed as a whole.
func TestCardsAreVerifiedByOthers(t *testing.T) {
	t.Parallel()
	issuer := startOAuth(t) // with scopes in the card
	s := start(t, instance.Settings{More: fmt.Sprintf("[[a2a.issuers]]\nissuer = %q\ndiscovery = %q\n", issuer.URL, issuer.URL+"/.well-known/openid-configuration")})
	yes := func(b *bool) bool { return b != nil && *b }
	no := func(b *bool) bool { return b != nil && !*b }
	for _, path := range []string{"/a2a/echo/.well-known/agent-card.json", "/.well-known/agent-card.json"} {
		if r := verifyCard(t, "--card", s.URL()+path); r.Whole != 1 || r.ForgedWhole != 0 || !yes(r.SDK) || !no(r.ForgedSDK) {
			t.Errorf("%s: %+v", path, r)
		}
	}
	if r := verifyCard(t, "--card", s.URL()+"/.well-known/agent-card/echo"); r.Signatures != 1 || r.Whole != 1 || r.ForgedWhole != 0 || r.SDK != nil {
		t.Errorf("the Mentionable card: %+v", r)
	}
	if r := verifyCard(t, "--endpoint", s.URL()+"/a2a/echo", "--token", s.mint("ann")); r.Name != "echo" || !yes(r.SDK) || !no(r.ForgedSDK) {
		t.Errorf("the extended card: %+v", r)
	}
}

// TestCardsDoNotBelieveTheirCaller: addresses in documents are the configured ones whatever a request says of hosts.
func TestCardsDoNotBelieveTheirCaller(t *testing.T) {
	t.Parallel()
	s := start(t, instance.Settings{})
	for _, path := range []string{
		"/a2a/echo/.well-known/agent-card.json", "/a2a/echo/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/agent.json",
		"/.well-known/agent-card/echo", "/.well-known/api-catalog", "/.well-known/oauth-protected-resource/a2a/echo",
	} {
		plain, body := s.read(t, http.MethodGet, path)
		tag := plain.Header.Get("ETag")
		if plain.StatusCode != http.StatusOK || !json.Valid([]byte(body)) || !strings.Contains(body, s.URL()) || tag == "" || strings.HasPrefix(tag, "W/") {
			t.Errorf("%s: %d %q %s", path, plain.StatusCode, tag, body)
			continue
		}
		for _, lie := range [][]string{
			{"Host", "evil.test"}, {"X-Forwarded-Host", "evil.test"}, {"Forwarded", "host=evil.test;proto=https"}, {"X-Forwarded-Proto", "https"},
			{"Host", "evil.test", "X-Forwarded-Host", "evil.test", "X-Original-URL", "https://evil.test/"},
		} {
			if forged, answer := s.read(t, http.MethodGet, path, lie...); answer != body || forged.Header.Get("ETag") != tag {
				t.Errorf("%s with %v: another document: %s", path, lie, answer)
			}
		}
		if same, answer := s.read(t, http.MethodGet, path, "If-None-Match", tag); same.StatusCode != http.StatusNotModified || answer != "" {
			t.Errorf("%s with its ETag: %d", path, same.StatusCode)
		}
		if same, _ := s.read(t, http.MethodGet, path, "If-Modified-Since", plain.Header.Get("Last-Modified")); same.StatusCode != http.StatusNotModified {
			t.Errorf("%s since its last change: %d", path, same.StatusCode)
		}
		if head, answer := s.read(t, http.MethodHead, path); head.StatusCode != http.StatusOK || answer != "" || head.Header.Get("ETag") != tag {
			t.Errorf("HEAD %s: %d", path, head.StatusCode)
		}
		cross, _ := s.read(t, http.MethodGet, path, "Origin", "https://evil.test")
		if cross.Header.Get("Access-Control-Allow-Origin") != "*" || cross.Header.Get("Access-Control-Allow-Credentials") != "" || cross.Header.Get("Cache-Control") == "" {
			t.Errorf("%s: headers %v", path, cross.Header)
		}
	}
	// A challenge leads to our own metadata, too.
	refused, _ := s.read(t, http.MethodGet, "/a2a/echo/rest/tasks", "Host", "evil.test")
	if challenge := refused.Header.Get("WWW-Authenticate"); refused.StatusCode != http.StatusUnauthorized || strings.Contains(challenge, "evil") || !strings.Contains(challenge, s.URL()) {
		t.Errorf("the challenge is %q", challenge)
	}
	s.stop()
	s.start()
	if _, body := s.read(t, http.MethodGet, "/a2a/echo/.well-known/agent-card.json", "Host", "evil.test"); strings.Contains(body, "evil") {
		t.Error("the first request after a start makes the card")
	}
}

// TestExtendedCardsNeedACaller: who shows nothing gets none.
func TestExtendedCardsNeedACaller(t *testing.T) {
	t.Parallel()
	s := start(t, instance.Settings{})
	for token, want := range map[string]int{"": http.StatusUnauthorized, "x": http.StatusUnauthorized, s.mint("ann"): http.StatusOK} {
		header := []string{"A2A-Version", "1.0"}
		if token != "" {
			header = append(header, "Authorization", "Bearer "+token)
		}
		if response, body := s.read(t, http.MethodGet, "/a2a/echo/rest/extendedAgentCard", header...); response.StatusCode != want || strings.Contains(body, "supportedInterfaces") != (want == http.StatusOK) {
			t.Errorf("%d %s, want %d", response.StatusCode, body, want)
		}
	}
}
