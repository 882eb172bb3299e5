package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

const connectorSecret = "a secret that only the tests know"

// bridged is a server with a connector, for tests over the wire.
type bridged struct {
	*testing.T
	server *Server
	config *Config
	calls  chan call // of the connector's callback
}

type call struct {
	header http.Header
	body   map[string]any
}

// newBridged starts a server whose agents are echo, stuck (never answers) and teller
// (says its history).
func newBridged(t *testing.T, more string) *bridged {
	t.Helper()
	return newBridgedOn(t, "sqlite", more)
}

// bridgedOnBoth runs a test with a server on each database.
func bridgedOnBoth(t *testing.T, test func(b *bridged)) {
	t.Helper()
	for name, url := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres} {
		t.Run(name, func(t *testing.T) { test(newBridgedOn(t, url(t), "")) })
	}
}

func newBridgedOn(t *testing.T, database, more string) *bridged {
	t.Helper()
	b := &bridged{T: t, calls: make(chan call, 64)}
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if !webhooksignature.Verify(connectorSecret, raw, r.Header.Get("X-Inbox-Signature"), webhooksignature.Form{}) {
			t.Errorf("a callback is not signed: %v", r.Header)
		}
		body := map[string]any{}
		_ = json.Unmarshal(raw, &body)
		b.calls <- call{r.Header, body}
		if r.Header.Get("X-Inbox-Attempt") == "1" && strings.Contains(fmt.Sprint(body["content"]), "again") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(callback.Close)
	directory := t.TempDir()
	file := filepath.Join(directory, "inbox.toml")
	settings := fmt.Sprintf(`
data_dir = %q
database_url = %q
public_url = "http://localhost:8080"
[federation]
allow_private = true
[http]
listen = "127.0.0.1:0"
[smtp]
listen = "off"
[log]
level = "error"
[bridges]
retry = ["100ms", "200ms"]
[[connectors]]
name = "slack"
secret = %q
issuer = "slack-bridge.example"
agents = ["echo"]
callback_url = %q
[[connectors]]
name = "plain"
secret = %q
agents = ["echo"]
[[agents]]
name = "echo"
kind = "echo"
unverified = "answer"
%s`, directory, database, connectorSecret, callback.URL+"/answers", connectorSecret, more)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.config, err = LoadConfig(file, nil); err != nil {
		t.Fatal(err)
	}
	b.config.ShutdownGrace = 5 * time.Second
	if b.server, err = New(t.Context(), b.config); err != nil {
		t.Fatal(err)
	}
	teller := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		said := []string{}
		for _, one := range turn.Message.History {
			said = append(said, one.Role+"="+normalized.PlainText(one.Parts))
		}
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("history: " + strings.Join(said, "|"))}})
	})
	stuck := agents.Func(func(ctx context.Context, _ agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			<-ctx.Done()
			yield(normalized.Delta{}, ctx.Err())
		}
	})
	for name, agent := range map[string]agents.Agent{"teller": teller, "stuck": stuck} {
		if err := b.server.Register(exchange.AgentProfile{Name: name}, agent, agents.Settings{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	if err := b.server.Listen(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := await.Receive(t, done, "the end of the server"); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bridged) token(name string, scopes ...string) string {
	b.Helper()
	operator, err := OpenOperator(b.Context(), b.config)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = operator.Close() }()
	if len(scopes) == 0 {
		scopes = exchange.AllBridgeScopes()
	}
	token, _, err := operator.Tokens.CreateBridge(b.Context(), name, "", scopes)
	if err != nil {
		b.Fatal(err)
	}
	return token
}

// call sends a request and demands a status.
func (b *bridged) call(token, method, path string, body any, want int) map[string]any {
	b.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		b.Fatal(err)
	}
	if raw, is := body.([]byte); is {
		encoded = raw
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return b.request(method, path, header, encoded, want)
}

func (b *bridged) request(method, path string, header http.Header, body []byte, want int) map[string]any {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), method, "http://"+b.server.HTTPAddr().String()+path, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	request.Header = header
	response, err := bounded.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	if response.StatusCode != want {
		b.Fatalf("%s %s answered %d, want %d: %s", method, path, response.StatusCode, want, raw)
	}
	answer := map[string]any{}
	_ = json.Unmarshal(raw, &answer)
	return answer
}

func (b *bridged) pending(token string, want int) []any {
	b.Helper()
	path := "/v1/bridge/pending"
	if want > 0 {
		path += "?wait=20s"
	}
	items, _ := b.call(token, http.MethodGet, path, nil, http.StatusOK)["items"].([]any)
	if len(items) != want {
		b.Fatalf("%d items wait, want %d: %v", len(items), want, items)
	}
	return items
}

func isTrue(value any) bool { flag, _ := value.(bool); return flag }
