package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

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

// TestCardsAreVerifiedByOthers: the signatures of our cards fit for jose and canonicalize and for the SDK, and for nobody after
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
