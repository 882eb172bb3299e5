package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
)

// chatAnswer is how an endpoint of the chat answered.
type chatAnswer struct {
	status    int
	challenge string
	body      string
}

// shown sends a request of the chat with an Authorization header and proofs of possession.
func (s *server) shown(method, path, body, authorization string, header ...string) chatAnswer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return chatAnswer{response.StatusCode, strings.Join(response.Header.Values("WWW-Authenticate"), " | "), string(content)}
}

func startChatWithIssuer(t *testing.T) (*server, *oauthServer) {
	t.Helper()
	issuer := startOAuth(t)
	return start(t, instance.Settings{
		Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\naccess = \"public\"\n[[agents]]\nname = \"other\"\nkind = \"echo\"\naccess = \"public\"\n",
		More:   fmt.Sprintf("[[a2a.issuers]]\nissuer = %q\njwks_url = %q\n", issuer.URL, issuer.URL+"/jwks"),
	}), issuer
}

// TestChatTakesTokensOfIssuers: the same tokens as A2A, on each way into the chat, and none that A2A refuses.
func TestChatTakesTokensOfIssuers(t *testing.T) {
	t.Parallel()
	s, issuer := startChatWithIssuer(t)
	const rpc = `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"hi"}]}}}`
	const rest = `{"agent":"echo","message":"hi"}`
	const openAI = `{"model":"echo","messages":[{"role":"user","content":"hi"}]}`
	ways := map[string]func(authorization string, header ...string) chatAnswer{
		"JSON-RPC": func(shown string, more ...string) chatAnswer {
			return s.shown("POST", "/v1/agent/echo", rpc, shown, more...)
		},
		"REST": func(shown string, more ...string) chatAnswer {
			return s.shown("POST", "/v1/chat", rest, shown, more...)
		},
		"OpenAI": func(shown string, more ...string) chatAnswer {
			return s.shown("POST", "/v1/chat/completions", openAI, shown, more...)
		},
	}
	here, chat := s.URL()+"/a2a/echo", s.URL()+"/v1/agent/echo"
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	bound := newHolder()
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"good":                    {issuer.token("k1", here, nil, nil), 200},
		"made out to the chat":    {issuer.token("k1", chat, nil, nil), 200},
		"alg none":                {issuer.token("k1", here, jsonObject{"alg": "none"}, nil), 401},
		"HS256 with public key":   {issuer.token("k1", here, jsonObject{"alg": "HS256"}, nil), 401},
		"unknown key":             {issuer.token("k1", here, jsonObject{"kid": "k9"}, nil), 401},
		"another agent's":         {issuer.token("k1", s.URL()+"/a2a/other", nil, nil), 401},
		"another agent's chat":    {issuer.token("k1", s.URL()+"/v1/agent/other", nil, nil), 401},
		"aud of the server":       {issuer.token("k1", s.URL(), nil, nil), 401},
		"no aud":                  {issuer.token("k1", here, nil, jsonObject{"aud": nil}), 401},
		"another issuer":          {issuer.token("k1", here, nil, jsonObject{"iss": "https://login.example"}), 401},
		"expired":                 {issuer.token("k1", here, nil, jsonObject{"iat": at(-time.Hour), "exp": at(-time.Minute)}), 401},
		"not yet":                 {issuer.token("k1", here, nil, jsonObject{"nbf": at(time.Minute)}), 401},
		"ID token":                {issuer.token("k1", here, nil, jsonObject{"nonce": "n"}), 401},
		"changed":                 {issuer.token("k1", here, nil, nil) + "A", 401},
		"bound to a key, as such": {issuer.token("k1", here, nil, jsonObject{"cnf": jsonObject{"jkt": bound.thumbprint()}}), 401},
		"only to read":            {issuer.token("k1", here, nil, jsonObject{"scope": "a2a:read"}), 403},
	} {
		for way, send := range ways {
			got := send("Bearer " + c.token)
			if got.status != c.want {
				t.Errorf("%s by %s: %d %s, want %d", name, way, got.status, got.body, c.want)
			}
			want := map[int]string{200: "", 401: `error="invalid_token"`, 403: `error="insufficient_scope", scope="a2a:send"`}[c.want]
			if !strings.Contains(got.challenge, want) || c.want != 200 && !strings.Contains(got.challenge, "resource_metadata=") {
				t.Errorf("%s by %s: challenge %q", name, way, got.challenge)
			}
		}
	}
	if got := s.shown("POST", "/v1/agent/nobody", rpc, "Bearer "+issuer.token("k1", here, nil, nil)); got.status != 401 {
		t.Errorf("a token at an agent that is not there: %d %s", got.status, got.body)
	}
	token := issuer.token("k1", here, nil, jsonObject{"cnf": jsonObject{"jkt": bound.thumbprint()}})
	proof := bound.proof(token, "POST", chat, nil)
	if got := ways["JSON-RPC"]("DPoP "+token, "DPoP", proof); got.status != 200 {
		t.Errorf("with a proof: %d %s", got.status, got.body)
	}
	if got := ways["JSON-RPC"]("DPoP "+token, "DPoP", proof); got.status != 401 || !strings.Contains(got.challenge, "invalid_dpop_proof") {
		t.Errorf("the proof again: %d %s", got.status, got.challenge)
	}
	if got := ways["REST"]("Bearer "+issuer.token("k1", here, nil, nil), "Authorization", "Bearer x"); got.status != 401 {
		t.Errorf("two tokens: %d %s", got.status, got.body)
	}
}

// TestSessionsOfIssuedTokens belong to the subject, whichever token it shows, and to nobody else.
func TestSessionsOfIssuedTokens(t *testing.T) {
	t.Parallel()
	s, issuer := startChatWithIssuer(t)
	here := s.URL() + "/a2a/echo"
	shown := func(sub, scope string) string {
		return "Bearer " + issuer.token("k1", here, nil, jsonObject{"sub": sub, "scope": scope})
	}
	const both = "a2a:send a2a:read"
	if got := s.shown("POST", "/v1/chat", `{"agent":"echo","message":"hi","session":"mine"}`, shown("cy", both)); got.status != 200 {
		t.Fatal(got)
	}
	for name, c := range map[string]struct {
		authorization string
		want          int
	}{
		"its owner": {shown("cy", "a2a:read"), 200}, "somebody else": {shown("di", both), 404}, "who may only send": {shown("cy", "a2a:send"), 403}, "a guest": {"", 403},
	} {
		if got := s.shown("GET", "/v1/chat?agent=echo", "", c.authorization, "Chat-Session", "mine"); got.status != c.want {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, c.want)
		}
	}
}
