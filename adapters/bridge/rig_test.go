package bridge_test

import (
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

	"inbox/agents"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

// bridged is a server with a connector, for tests over the wire.
type bridged struct {
	*inboxtest.Server

	calls chan call     // of the connector's callback
	named chan []string // whom each run of the agent "namer" was told to have named
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newBridgedOn(t, url(t), ""))
		})
	}
}

func newBridgedOn(t *testing.T, database, more string) *bridged {
	t.Helper()
	b := &bridged{calls: make(chan call, 64), named: make(chan []string, 8)}
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if !webhooksignature.Verify(inboxtest.ConnectorSecret, raw, r.Header.Get("X-Inbox-Signature"), webhooksignature.Form{}) {
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

	file := filepath.Join(t.TempDir(), "inbox.toml")
	settings := fmt.Sprintf(`
[federation]
allow_private = true
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
%s`, inboxtest.ConnectorSecret, callback.URL+"/answers", inboxtest.ConnectorSecret, more)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Server = inboxtest.New(t, file, "INBOX_DATABASE_URL="+database)

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
	namer := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		b.named <- turn.NotAddressed
		return normalized.Whole(normalized.Response{
			Parts: []normalized.Part{normalized.Text(normalized.PlainText(turn.Message.Parts))}, Metadata: map[string]string{"not_addressed": "@forged@elsewhere.example"},
		})
	})
	for name, agent := range map[string]agents.Agent{"teller": teller, "stuck": stuck, "namer": namer} {
		if err := b.Register(exchange.AgentProfile{Name: name}, agent, agents.Settings{}); err != nil {
			t.Fatal(err)
		}
	}
	b.Serve()

	return b
}

func (b *bridged) token(name string, scopes ...string) string {
	b.Helper()
	if len(scopes) == 0 {
		scopes = exchange.AllBridgeScopes()
	}
	token, _, err := b.Operator().Tokens.CreateBridge(b.Context(), name, "", scopes)
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
	var fields []string
	for name := range header {
		fields = append(fields, name, header.Get(name))
	}
	status, _, raw := b.Read(method, path, "", string(body), fields...)
	if status != want {
		b.Fatalf("%s %s answered %d, want %d: %s", method, path, status, want, raw)
	}

	answer := map[string]any{}
	_ = json.Unmarshal([]byte(raw), &answer)
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

func flag(value any) bool { flag, _ := value.(bool); return flag }
