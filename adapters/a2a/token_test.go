package a2a

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	grpccodes "google.golang.org/grpc/codes"

	"inbox/identity"
	"inbox/internal/webtoken"
)

const loginIssuer = "https://login.test"

// issuing is an issuer with its keys, and the memory of what was used.
type issuing struct {
	key  ed25519.PrivateKey
	card identity.SigningKey // of this server, for cards

	mu   sync.Mutex
	used map[string]bool
}

func (i *issuing) Fetch(_ context.Context, address string) ([]byte, error) {
	public, _ := i.key.Public().(ed25519.PublicKey)
	if !strings.HasPrefix(address, loginIssuer) && address != "https://peer.test/.well-known/jwks.json" {
		return nil, errors.New("404")
	}
	return identity.KeySet([]identity.PublicKey{{Kid: "k1", Key: public}}), nil
}

func (i *issuing) Once(_ context.Context, key string, _ time.Time) (bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	again := i.used[key]
	i.used[key] = true
	return !again, nil
}

func (i *issuing) token(changes map[string]any) string {
	claims := map[string]any{
		"iss": loginIssuer, "sub": "cy", "aud": "https://agents.test/a2a/echo", "client_id": "app", "jti": rand.Text(),
		"scope": "a2a:send a2a:read a2a:cancel a2a:push", "iat": time.Now().Unix(), "exp": time.Now().Unix() + 300,
	}
	maps.Copy(claims, changes)
	header, _ := json.Marshal(map[string]string{"alg": "EdDSA", "kid": "k1", "typ": "at+jwt"})
	if claims["iss"] != loginIssuer {
		header, _ = json.Marshal(map[string]string{"alg": "EdDSA", "kid": "k1"})
	}
	body, _ := json.Marshal(claims)
	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(body)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(i.key, []byte(signed)))
}

func withIssuer(t *testing.T, change ...func(*Options)) (*bundle, *issuing) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuing{key: private, used: map[string]bool{}}
	if i.card, err = identity.NewSigningKey("agents.test"); err != nil {
		t.Fatal(err)
	}
	verifier, err := webtoken.New(webtoken.Options{
		Issuers: []webtoken.Issuer{{Issuer: loginIssuer, JWKSURL: loginIssuer + "/keys"}}, Documents: i, Replays: i, Domain: "agents.test",
	})
	if err != nil {
		t.Fatal(err)
	}
	return setup(t, append(change, func(o *Options) {
		o.Verifier, o.Issuers = verifier, []IssuerCard{{Name: loginIssuer, Discovery: loginIssuer + "/.well-known/openid-configuration"}}
		o.Peers = func(_ string, peer identity.Address) bool { return peer.Domain == "peer.test" }
		o.CardKeys = func(context.Context) ([]identity.SigningKey, error) { return []identity.SigningKey{i.card}, nil }
	})...), i
}

func TestIssuedTokensOnEveryBinding(t *testing.T) {
	b, issuer := withIssuer(t)
	token, other := issuer.token(nil), issuer.token(map[string]any{"aud": "https://agents.test/a2a/other"})
	weak := issuer.token(map[string]any{"scope": "a2a:read"})
	client := b.dial()
	bindings := map[string]func(token string) int{
		"JSON-RPC": func(token string) int { return b.rpc(token, "SendMessage", message(rand.Text(), "hello")).status },
		"REST": func(token string) int {
			return b.do("POST", "/a2a/echo/rest/message:send", token, message(rand.Text(), "hello")).status
		},
		"stream": func(token string) int {
			return b.rpc(token, "SendStreamingMessage", message(rand.Text(), "hello")).status
		},
		"0.3": func(token string) int {
			return b.rpc(token, "message/send", `{"message":{"kind":"message","messageId":"`+rand.Text()+`","role":"user","parts":[{"kind":"text","text":"x"}]}}`).status
		},
		"0.3 REST": func(token string) int {
			return b.do("POST", "/a2a/echo/v1/message:send", token, `{"message":{"messageId":"`+rand.Text()+`","role":"ROLE_USER","content":[{"text":"x"}]}}`).status
		},
	}
	for name, send := range bindings {
		for want, shown := range map[int]string{200: token, 401: other, 403: weak} {
			if status := send(shown); status != want {
				t.Errorf("%s: %d, want %d", name, status, want)
			}
		}
	}
	if _, err := client.SendMessage(calling(token), grpcMessage("g1", "echo")); err != nil {
		t.Errorf("gRPC: %v", err)
	}
	_, err := client.SendMessage(calling(other), grpcMessage("g2", "echo"))
	wantStatus(t, err, grpccodes.Unauthenticated, "UNAUTHENTICATED")
	_, err = client.SendMessage(calling(weak), grpcMessage("g3", "echo"))
	wantStatus(t, err, grpccodes.PermissionDenied, "UNAUTHORIZED")
	if _, err := client.ListTasks(calling(weak), &pb.ListTasksRequest{Tenant: "echo"}); err != nil {
		t.Errorf("gRPC with a2a:read: %v", err)
	}
}

func TestScopesOfMethods(t *testing.T) {
	b, issuer := withIssuer(t)
	task := b.rpc(issuer.token(nil), "SendMessage", message("m1", "hello")).text(t, "result.task.id")
	for _, c := range []struct{ method, params, scope string }{
		{"SendMessage", message("m2", "x"), "a2a:send"},
		{"SendStreamingMessage", message("m3", "x"), "a2a:send"},
		{"GetTask", `{"id":"` + task + `"}`, "a2a:read"},
		{"ListTasks", `{}`, "a2a:read"},
		{"SubscribeToTask", `{"id":"` + task + `"}`, "a2a:read"},
		{"CancelTask", `{"id":"` + task + `"}`, "a2a:cancel"},
		{"ListTaskPushNotificationConfigs", `{"taskId":"` + task + `"}`, "a2a:push"},
		{"DeleteTaskPushNotificationConfig", `{"taskId":"` + task + `","id":"x"}`, "a2a:push"},
		{"GetExtendedAgentCard", `{}`, "a2a:read"},
	} {
		for _, scope := range allScopes {
			r := b.rpc(issuer.token(map[string]any{"scope": scope}), c.method, c.params)
			if refused := r.status == 403; refused != (scope != c.scope) {
				t.Errorf("%s with %s: %d %s", c.method, scope, r.status, r.body)
			}
			challenge := strings.Join(r.header.Values("WWW-Authenticate"), " ")
			if r.status == 403 && (!strings.Contains(challenge, `error="insufficient_scope"`) || !strings.Contains(challenge, `scope="`+c.scope+`"`)) {
				t.Errorf("%s with %s: challenge %q", c.method, scope, challenge)
			}
		}
	}
}

func TestPrincipalOfIssuedTokens(t *testing.T) {
	b, issuer := withIssuer(t)
	b.rpc(issuer.token(nil), "SendMessage", message("m1", "hello"))
	sender := b.engine.last().Message.Sender
	proof := sender.Identities[0]
	if proof.Issuer != "agents.test" || proof.Subject != loginIssuer+"#cy" || proof.Method != identity.MethodA2AOAuth || proof.Proof.TokenID == "" ||
		sender.AuthMethod != "a2a-oauth" || sender.Address != "@cy@login.test" {
		t.Errorf("sender %+v", sender)
	}
	task := b.rpc(issuer.token(nil), "SendMessage", message("m2", "hello")).text(t, "result.task.id")
	for name, token := range map[string]string{"case": issuer.token(map[string]any{"sub": "CY"}), "other": issuer.token(map[string]any{"sub": "di"}), "operator's": b.ada} {
		if r := b.rpc(token, "GetTask", `{"id":"`+task+`"}`); r.decode(t).Error == nil {
			t.Errorf("%s: reads the task of another principal", name)
		}
	}
	peer := issuer.token(map[string]any{"iss": "https://peer.test", "sub": "@pat@peer.test", "aud": "@echo@agents.test"})
	if r := b.rpc(peer, "SendMessage", message("m3", "hello")); r.status != 200 {
		t.Fatalf("peer: %d %s", r.status, r.body)
	}
	sender = b.engine.last().Message.Sender
	if sender.Address != "@pat@peer.test" || sender.AuthMethod != "a2a-jwt" || !sender.Identities[0].Vouches("@pat@peer.test") {
		t.Errorf("peer %+v", sender)
	}
	if r := b.rpc(peer, "ListTasks", "{}"); r.status != 401 {
		t.Errorf("replay: %d", r.status)
	}
}

func TestChallengesAndMetadata(t *testing.T) {
	b, issuer := withIssuer(t)
	const metadata = `resource_metadata="https://agents.test/.well-known/oauth-protected-resource/a2a/echo"`
	challenge := b.rpc("", "ListTasks", "{}").header.Values("WWW-Authenticate")
	if len(challenge) != 2 || !strings.HasPrefix(challenge[0], "Bearer ") || !strings.Contains(challenge[0], metadata) || strings.Contains(challenge[0], "error=") ||
		!strings.HasPrefix(challenge[1], "DPoP algs=") {
		t.Errorf("without token: %q", challenge)
	}
	challenge = b.rpc(issuer.token(map[string]any{"exp": 1}), "ListTasks", "{}").header.Values("WWW-Authenticate")
	if !strings.Contains(challenge[0], `error="invalid_token"`) || !strings.Contains(challenge[0], metadata) {
		t.Errorf("expired: %q", challenge)
	}
	r := b.do("GET", "/.well-known/oauth-protected-resource/a2a/echo", "", "", "Host", "evil.test")
	if r.text(t, "resource") != "https://agents.test/a2a/echo" || r.text(t, "authorization_servers.0") != loginIssuer ||
		r.text(t, "bearer_methods_supported.0") != "header" || r.at(t, "scopes_supported.#") != 4.0 || r.at(t, "dpop_signing_alg_values_supported.#") == nil {
		t.Errorf("metadata %s", r.body)
	}
	if r := b.do("GET", "/.well-known/oauth-protected-resource/a2a/nobody", "", ""); r.status != 404 {
		t.Errorf("nobody: %d", r.status)
	}
}

func TestCardsAreSigned(t *testing.T) {
	b, issuer := withIssuer(t)
	keys := identity.KeySet([]identity.PublicKey{issuer.card.Public()})
	card := b.do("GET", "/a2a/echo/.well-known/agent-card.json", "", "")
	if err := webtoken.VerifyCard([]byte(card.body), keys); err != nil {
		t.Errorf("card: %v\n%s", err, card.body)
	}
	if again := b.do("GET", "/a2a/echo/.well-known/agent-card.json", "", ""); again.header.Get("Etag") != card.header.Get("Etag") {
		t.Error("the same card has another ETag")
	}
	forged := strings.ReplaceAll(card.body, "https://agents.test/a2a/echo", "https://evil.test/a2a/echo")
	if err := webtoken.VerifyCard([]byte(forged), keys); !errors.Is(err, webtoken.ErrCardForged) {
		t.Errorf("forged card: %v", err)
	}
	stranger, _ := identity.NewSigningKey("evil.test")
	if err := webtoken.VerifyCard([]byte(card.body), identity.KeySet([]identity.PublicKey{stranger.Public()})); !errors.Is(err, webtoken.ErrCardUnsigned) {
		t.Errorf("keys of another origin: %v", err)
	}
	extended := b.rpc(issuer.token(nil), "GetExtendedAgentCard", "{}").decode(t)
	if err := webtoken.VerifyCard(extended.Result, keys); err != nil {
		t.Errorf("extended card: %v\n%s", err, extended.Result)
	}
	if r := b.rpc("", "GetExtendedAgentCard", "{}"); r.status != 401 {
		t.Errorf("extended card without token: %d", r.status)
	}
	catalog := b.do("GET", "/.well-known/api-catalog", "", "")
	if catalog.text(t, "linkset.0.anchor") != "https://agents.test/a2a/echo" || !strings.HasPrefix(catalog.header.Get("Content-Type"), "application/linkset+json") {
		t.Errorf("catalog %s %s", catalog.header.Get("Content-Type"), catalog.body)
	}
}
