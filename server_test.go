package inbox

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// bounded is the client of the tests: it waits for no answer for ever, and for no stream.
var bounded = &http.Client{Timeout: 2 * await.Patience}

func fetch(t *testing.T, server *Server, path, accept string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.HTTPAddr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: bounded.Timeout,
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// TestDiscoveryAgrees follows an address the way peers do: WebFinger, then each link.
func TestDiscoveryAgrees(t *testing.T) {
	server := startServer(t)
	response, body := fetch(t, server, "/.well-known/webfinger?resource=acct:ECHO@localhost:8080", "application/jrd+json")
	if response.StatusCode != http.StatusOK || !strings.Contains(body, `"subject":"acct:echo@localhost:8080"`) {
		t.Fatalf("WebFinger: %d %s", response.StatusCode, body)
	}
	order := []string{"self", "https://mentionable.dev/ns/rel/agent-card", "http://webfinger.net/rel/profile-page", "mailto"}
	last := 0
	for _, rel := range order {
		at := strings.Index(body, `"rel":"`+rel+`"`)
		if at < last {
			t.Fatalf("link %s is missing or out of order: %s", rel, body)
		}
		last = at
	}
	for path, accept := range map[string]string{
		"/agents/echo": "application/activity+json", "/.well-known/agent-card/echo": "application/json", "/@echo": "text/html",
		"/a2a/echo/.well-known/agent-card.json": "application/json", "/.well-known/agent-card.json": "application/json",
		"/.well-known/host-meta": "*/*", "/.well-known/nodeinfo": "*/*", "/nodeinfo/2.1": "*/*", "/healthz": "*/*", "/readyz": "*/*", "/metrics": "*/*",
	} {
		if response, body := fetch(t, server, path, accept); response.StatusCode != http.StatusOK || body == "" {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
	if response, _ := fetch(t, server, "/agents/echo", "text/html"); response.Header.Get("Location") != "http://localhost:8080/@echo" {
		t.Errorf("a browser at the actor gets %d to %q", response.StatusCode, response.Header.Get("Location"))
	}
}

// TestRegisteredAgentAnswers embeds the server with an agent of its own.
func TestRegisteredAgentAnswers(t *testing.T) {
	config, err := LoadConfig("", []string{
		"INBOX_DATA_DIR=" + t.TempDir(), "INBOX_HTTP_LISTEN=127.0.0.1:0", "INBOX_SMTP_LISTEN=off", "INBOX_LOG_LEVEL=error",
		"INBOX_PUBLIC_URL=http://localhost:8080",
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	shout := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		text := strings.ToUpper(normalized.PlainText(turn.Message.Parts))
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text(text)}})
	})
	if err := server.Register(exchange.AgentProfile{Name: "shout", DisplayName: "Shout"}, shout, agents.Settings{}); err != nil {
		t.Fatal(err)
	}
	if err := server.Register(exchange.AgentProfile{Name: "Shout"}, shout, agents.Settings{}); !fault.Is(err, fault.Conflict) {
		t.Fatalf("the same name again: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- server.Run(ctx) }()
	token, _, err := server.Operator().Tokens.Create(ctx, "peer", "")
	if err != nil {
		t.Fatal(err)
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+server.HTTPAddr().String()+"/a2a/shout", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "A2A-Version": {"1.0"}}
	response, err := bounded.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || !strings.Contains(string(answer), "HELLO") {
		t.Errorf("answer %s, %v", answer, err)
	}
	stop()
	if err := await.Receive(t, ended, "the end of the server"); err != nil {
		t.Error(err)
	}
}

// TestAgeOfAnAccount: other servers judge an account by its age, so the actor shows when its agent was first configured, and
// the same after a restart.
func TestAgeOfAnAccount(t *testing.T) {
	settings := []string{
		"INBOX_DATA_DIR=" + t.TempDir(), "INBOX_HTTP_LISTEN=127.0.0.1:0", "INBOX_SMTP_LISTEN=off", "INBOX_LOG_LEVEL=error",
		"INBOX_PUBLIC_URL=http://localhost:8080",
	}
	before := time.Now().Add(-time.Second)
	var first time.Time
	for range 2 {
		config, err := LoadConfig("", settings)
		if err != nil {
			t.Fatal(err)
		}
		server, err := New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		agent, _ := server.registry.Agent("echo")
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}

		if first.IsZero() {
			first = agent.CreatedAt
		}
		if agent.CreatedAt.Before(before) || agent.CreatedAt.After(time.Now()) || !agent.CreatedAt.Equal(first) {
			t.Errorf("the agent is here since %v, first %v", agent.CreatedAt, first)
		}
	}
}
