package peer

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

const testToken = "the-token-of-the-test"

// sdkAgent is an agent on the A2A SDK's own server: other software than the client that is tested.
type sdkAgent struct{ asMessage bool }

func (s sdkAgent) Execute(_ context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	text := upper(exec.Message.Parts[0].Text())
	return func(yield func(a2a.Event, error) bool) {
		if s.asMessage {
			yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(text)), nil)
			return
		}
		_ = yield(a2a.NewSubmittedTask(exec, exec.Message), nil) &&
			yield(a2a.NewStatusUpdateEvent(exec, a2a.TaskStateWorking, nil), nil) &&
			yield(a2a.NewArtifactEvent(exec, a2a.NewTextPart(text)), nil) &&
			yield(a2a.NewStatusUpdateEvent(exec, a2a.TaskStateCompleted, nil), nil)
	}
}

func (s sdkAgent) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// startSDKServer serves card and JSON-RPC behind the bearer check of guard.
func startSDKServer(t *testing.T, agent sdkAgent, guard func(http.Handler) http.Handler) (cardURL string) {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.Handle("/rpc", guard(a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(agent))))
	mux.HandleFunc("/card.json", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":"sdk","supportedInterfaces":[
			{"url":"`+server.URL+`/old","protocolBinding":"JSONRPC","protocolVersion":"0.3"},
			{"url":"`+server.URL+`/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`)
	})
	return server.URL + "/card.json"
}

func demandToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+testToken {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func open(next http.Handler) http.Handler { return next }

func startA2A(t *testing.T, token string) *A2A {
	t.Helper()
	client, err := NewA2A(A2AOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestA2AAsksTheSDK(t *testing.T) {
	t.Parallel()
	for name, agent := range map[string]sdkAgent{"task": {}, "message": {asMessage: true}} {
		t.Run(name, func(t *testing.T) {
			card := startSDKServer(t, agent, demandToken)
			got, err := startA2A(t, testToken).Ask(limited(t, 10*time.Second), card, "hello")
			if err != nil {
				t.Fatal(err)
			}
			if got.Answer != upper("hello") || got.To != "sdk" || got.MessageID == "" || len(got.Evidence) < 2 {
				t.Errorf("conversation = %+v", got)
			}
		})
	}
}

func TestA2ARefusesUnprovenAnswers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		token string
		guard func(http.Handler) http.Handler
		want  string
	}{
		"wrong token":        {"another", demandToken, "401"},
		"open to everybody":  {testToken, open, "without a token want 401"},
		"other id":           {testToken, replying(`{"jsonrpc":"2.0","id":"1","result":{}}`), "another request"},
		"no JSON-RPC":        {testToken, replying(`hello`), "not JSON-RPC"},
		"neither of the two": {testToken, echoing(`{}`), "either a task or a message"},
		"failed task":        {testToken, echoing(`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_FAILED"}}}`), "TASK_STATE_FAILED"},
		"task without id":    {testToken, echoing(`{"task":{"status":{"state":"TASK_STATE_COMPLETED"}}}`), "no id"},
		"empty answer":       {testToken, echoing(`{"message":{"parts":[]}}`), "the text \"\""},
		"never ready":        {testToken, echoing(`{"id":"t","task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}},"status":{"state":"TASK_STATE_WORKING"}}`), "is still TASK_STATE_WORKING"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			card := startSDKServer(t, sdkAgent{}, test.guard)
			_, err := startA2A(t, test.token).Ask(limited(t, 3*time.Second), card, "hello")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
}

func replying(body string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	}
}

// echoing answers with the request's id and the given result.
func echoing(result string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, after, _ := strings.Cut(string(body), `"id":"`)
			id, _, _ := strings.Cut(after, `"`)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"`+id+`","result":`+result+`}`)
		})
	}
}

func TestA2AReadsCardsOfOneServerOnly(t *testing.T) {
	t.Parallel()
	for name, card := range map[string]string{
		"elsewhere": `{"supportedInterfaces":[{"url":"https://elsewhere.example/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`,
		"old only":  `{"supportedInterfaces":[{"url":"/","protocolBinding":"JSONRPC","protocolVersion":"0.3"}]}`,
		"no card":   `not JSON`,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(replying(card)(nil))
			t.Cleanup(server.Close)
			if _, err := startA2A(t, testToken).Ask(limited(t, 10*time.Second), server.URL, "hello"); err == nil {
				t.Error("the card was believed")
			}
		})
	}
}
