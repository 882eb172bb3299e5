package a2a

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	a2apb0 "github.com/a2aproject/a2a-go/a2apb"
	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/sealing"
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
		o.Verifier = verifier
		o.Issuers = func() []IssuerCard {
			return []IssuerCard{{Name: loginIssuer, Discovery: loginIssuer + "/.well-known/openid-configuration"}}
		}
		o.Peers = func(_ string, peer identity.Address) bool { return peer.Domain == "peer.test" }
		o.CardKeys = func(context.Context) ([]identity.SigningKey, error) { return []identity.SigningKey{i.card}, nil }
	})...), i
}

func TestIssuedTokensOnEveryBinding(t *testing.T) {
	b, issuer := withIssuer(t)
	token, other := issuer.token(nil), issuer.token(map[string]any{"aud": "https://agents.test/a2a/other"})
	for _, audience := range []any{"https://agents.test/a2a/echo/", "https://agents.test:443/a2a/echo", "https://AGENTS.test/a2a/echo", []string{"https://agents.test/a2a/echo/", "x"}} {
		if status := b.rpc(issuer.token(map[string]any{"aud": audience}), "SendMessage", message(rand.Text(), "hello")).status; status != 401 {
			t.Errorf("aud %v: %d", audience, status)
		}
	}
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

//contract:shows message-50
func TestPrincipalOfIssuedTokens(t *testing.T) {
	b, issuer := withIssuer(t)
	b.rpc(issuer.token(nil), "SendMessage", message("m1", "hello"))
	sender := b.engine.last().Message.Sender
	proof := sender.Identities[0]
	if proof.Issuer != "agents.test" || proof.Subject != loginIssuer+"#cy" || proof.Method != identity.MethodA2AOAuth || proof.Proof.TokenID == "" ||
		sender.AuthMethod != "a2a-oauth" || sender.Address.String() != "@cy@login.test" {
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
	if sender.Address.String() != "@pat@peer.test" || sender.AuthMethod != "a2a-jwt" || !sender.Identities[0].Vouches("@pat@peer.test") {
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

// scopeRig is a server with an issuer, webhooks and every binding.
type scopeRig struct {
	*bundle
	issuer *issuing
	table  *watchTable
	grpc1  pb.A2AServiceClient
	grpc0  a2apb0.A2AServiceClient
}

func newScopeRig(t *testing.T) *scopeRig {
	box, err := sealing.New(sealing.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	table, hook := &watchTable{}, newReceiver(t)
	b, issuer := withIssuer(t, func(o *Options) { o.Push = Push{Watches: table, Sealer: boxSealer{box}, Web: openWeb{hook.Client()}} })
	connection := b.connect()
	return &scopeRig{bundle: b, issuer: issuer, table: table, grpc1: pb.NewA2AServiceClient(connection), grpc0: a2apb0.NewA2AServiceClient(connection)}
}

func (r *scopeRig) token(scopes ...string) string {
	return r.issuer.token(map[string]any{"scope": strings.Join(scopes, " ")})
}

// sending are all ways to send a message; each reports whether the caller was refused for what its token lacks.
func (r *scopeRig) sending() map[string]func(token, id, hook string) bool {
	http := func(path, body string, header ...string) func(token, id, hook string) bool {
		return func(token, id, hook string) bool {
			filled := strings.NewReplacer("ID", id, "HOOK", hook).Replace(body)
			return r.do("POST", path, token, filled, header...).status == 403
		}
	}
	rpc := func(method, params string) func(token, id, hook string) bool {
		return http("/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	}
	one := `{"message":{"messageId":"ID","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{HOOK}}`
	old := `{"message":{"kind":"message","messageId":"ID","role":"user","parts":[{"kind":"text","text":"x"}]},"configuration":{HOOK}}`
	oldREST := `{"message":{"messageId":"ID","role":"ROLE_USER","content":[{"text":"x"}]},"configuration":{HOOK}}`
	refused := func(err error) bool { return status.Code(err) == grpccodes.PermissionDenied }
	return map[string]func(token, id, hook string) bool{
		"1.0 JSON-RPC":            rpc("SendMessage", one),
		"1.0 JSON-RPC stream":     rpc("SendStreamingMessage", one),
		"1.0 JSON-RPC snake_case": rpc("SendMessage", strings.Replace(one, "messageId", "message_id", 1)),
		"0.3 JSON-RPC":            rpc("message/send", old),
		"0.3 JSON-RPC stream":     rpc("message/stream", old),
		"1.0 REST":                http("/a2a/echo/rest/message:send", one),
		"1.0 REST stream":         http("/a2a/echo/rest/message:stream", one),
		"0.3 REST":                http("/a2a/echo/v1/message:send", oldREST),
		"0.3 REST stream":         http("/a2a/echo/v1/message:stream", oldREST),
		"1.0 gRPC": func(token, id, hook string) bool {
			_, err := r.grpc1.SendMessage(calling(token), request1(id, hook))
			return refused(err)
		},
		"1.0 gRPC stream": func(token, id, hook string) bool {
			stream, err := r.grpc1.SendStreamingMessage(calling(token), request1(id, hook))
			for err == nil {
				_, err = stream.Recv()
			}
			return refused(err)
		},
		"0.3 gRPC": func(token, id, hook string) bool {
			_, err := r.grpc0.SendMessage(calling(token), request0(id, hook))
			return refused(err)
		},
		"0.3 gRPC stream": func(token, id, hook string) bool {
			stream, err := r.grpc0.SendStreamingMessage(calling(token), request0(id, hook))
			for err == nil {
				_, err = stream.Recv()
			}
			if err != io.EOF && !refused(err) { //nolint:errorlint // the end of a stream
				r.Errorf("0.3 gRPC stream: %v", err)
			}
			return refused(err)
		},
	}
}

func request1(id, hook string) *pb.SendMessageRequest {
	request := grpcMessage(id, "echo")
	if hook != "" {
		request.Configuration = &pb.SendMessageConfiguration{TaskPushNotificationConfig: &pb.TaskPushNotificationConfig{Url: "https://peer.example/h"}}
	}
	return request
}

func request0(id, hook string) *a2apb0.SendMessageRequest {
	request := &a2apb0.SendMessageRequest{Request: &a2apb0.Message{
		MessageId: id, Role: a2apb0.Role_ROLE_USER, Parts: []*a2apb0.Part{{Part: &a2apb0.Part_Text{Text: "x"}}},
	}}
	if hook != "" {
		request.Configuration = &a2apb0.SendMessageConfiguration{PushNotification: &a2apb0.PushNotificationConfig{Url: "https://peer.example/h"}}
	}
	return request
}

// hooks are the spellings of a webhook in the configuration of a message, by binding.
func hooks(binding string) []string {
	const hook = `{"url":"https://peer.example/h"}`
	switch {
	case strings.HasPrefix(binding, "0.3 JSON-RPC"):
		return []string{`"pushNotificationConfig":` + hook}
	case strings.HasPrefix(binding, "0.3 REST"):
		return []string{`"pushNotification":` + hook, `"push_notification":` + hook}
	}
	return []string{`"taskPushNotificationConfig":` + hook, `"task_push_notification_config":` + hook, `"TaskPushNotificationConfig":` + hook}
}

// TestScopesOfWhatAMessageAsksFor: a webhook that comes with a message needs a2a:push beside a2a:send, by every binding, in
// every spelling, and nothing of a refused request is kept.
func TestScopesOfWhatAMessageAsksFor(t *testing.T) {
	r := newScopeRig(t)
	sets := [][]string{{}, {scopeSend}, {scopePush}, {scopeRead}, {scopeCancel}, {scopeSend, scopePush}, {scopeSend, scopeRead, scopeCancel}, {scopeRead, scopePush, scopeCancel}}
	for binding, send := range r.sending() {
		for _, scopes := range sets {
			may := slices.Contains(scopes, scopeSend)
			if refused := send(r.token(scopes...), rand.Text(), ""); refused == may {
				t.Errorf("%s with %v: refused %v", binding, scopes, refused)
			}
			for _, hook := range hooks(binding) {
				received, kept := r.engine.receives, len(r.table.rows)
				may := may && slices.Contains(scopes, scopePush)
				if refused := send(r.token(scopes...), rand.Text(), hook); refused == may {
					t.Errorf("%s with %v and %s: refused %v", binding, scopes, hook, refused)
				}
				if !may && (r.engine.receives != received || len(r.table.rows) != kept) {
					t.Errorf("%s with %v and %s: the refused request left something", binding, scopes, hook)
				}
			}
		}
	}
}

// TestScopeChallengeNamesAll: the client learns every scope that the request needs (RFC 6750, section 3).
func TestScopeChallengeNamesAll(t *testing.T) {
	r := newScopeRig(t)
	refused := r.rpc(r.token(scopeSend), "SendMessage", `{"message":`+hello("m1")+`,"configuration":{"taskPushNotificationConfig":{"url":"https://peer.example/h"}}}`)
	if challenge := strings.Join(refused.header.Values("WWW-Authenticate"), " "); !strings.Contains(challenge, `scope="a2a:send a2a:push"`) {
		t.Errorf("challenge %q", challenge)
	}
}

// TestSendingReadsNothingElse: a token for sending gets the answer to its own message, nothing that was said in the task
// before, and a token for cancelling gets the state alone.
func TestSendingReadsNothingElse(t *testing.T) {
	r := newScopeRig(t)
	r.engine.agent = asking
	first := r.rpc(r.token(scopeSend, scopeRead), "SendMessage", message("m1", "the secret of the first turn"))
	task := first.text(t, "result.task.id")
	next := r.rpc(r.token(scopeSend), "SendMessage", `{"configuration":{"historyLength":10},`+follow("m2", task, "")[1:])
	if strings.Contains(next.body, "the secret of the first turn") || next.text(t, "result.task.id") != task {
		t.Errorf("sending showed what was said before: %s", next.body)
	}
	if repeat := r.rpc(r.token(scopeSend), "SendMessage", message("m1", "the secret of the first turn")); strings.Contains(repeat.body, "m2") {
		t.Errorf("a repeat showed what was said later: %s", repeat.body)
	}
	if full := r.rpc(r.token(scopeSend, scopeRead), "SendMessage", follow("m2", task, "")); !strings.Contains(full.body, "the secret of the first turn") {
		t.Errorf("with a2a:read: %s", full.body)
	}
	task = r.rpc(r.token(scopeSend), "SendMessage", message("m3", "one more secret")).text(t, "result.task.id")
	cancelled := r.rpc(r.token(scopeCancel), "CancelTask", `{"id":"`+task+`"}`)
	if cancelled.text(t, "result.status.state") != "TASK_STATE_CANCELED" || cancelled.at(t, "result.history") != nil || cancelled.at(t, "result.artifacts") != nil {
		t.Errorf("cancelling showed the task: %s", cancelled.body)
	}
}

// connect serves the bundle by gRPC and returns a connection.
func (b *bundle) connect() *grpc.ClientConn {
	b.Helper()
	connection, err := grpc.NewClient(b.serveGRPC(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(boundedCall), grpc.WithStreamInterceptor(b.boundedStream))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = connection.Close() })
	return connection
}

// boundedCall lets no call wait for ever.
func boundedCall(
	ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	ctx, cancel := context.WithTimeout(ctx, 2*await.Patience)
	defer cancel()
	return call(ctx, method, request, answer, connection, options...)
}

// boundedStream lets no stream wait for ever.
func (b *bundle) boundedStream(
	ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*await.Patience)
	b.Cleanup(cancel)
	return open(ctx, description, connection, method, options...)
}
