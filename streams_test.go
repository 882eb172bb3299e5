package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/agents"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/normalized"
)

// talker says two words, the second one when its gate opens.
type talker struct {
	begun chan string // message ids
	gate  chan struct{}
}

func (a talker) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		if !yield(normalized.Delta{Kind: normalized.DeltaText, Text: "earlier "}, nil) {
			return
		}
		a.begun <- turn.Message.ID
		select {
		case <-a.gate:
		case <-ctx.Done():
			yield(normalized.Delta{}, ctx.Err())
			return
		}
		yield(normalized.Delta{Kind: normalized.DeltaText, Text: "afterwards"}, nil)
	}
}

// reader opens a stream, or a request that waits for the answer.
type reader struct {
	name string
	open func(s *inboxtest.Server, token, said string) *http.Response
}

func rpc(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
}

func sends(said string) string {
	return fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"go on"}]}}`, said)
}

var readers = []reader{
	{"SendStreamingMessage", func(s *inboxtest.Server, token, said string) *http.Response {
		return s.Open(http.MethodPost, "/a2a/talker", token, rpc("SendStreamingMessage", sends(said)), "A2A-Version", "1.0")
	}},
	{"SendMessage", func(s *inboxtest.Server, token, said string) *http.Response {
		return s.Open(http.MethodPost, "/a2a/talker", token, rpc("SendMessage", sends(said)), "A2A-Version", "1.0")
	}},
	{"chat stream", func(s *inboxtest.Server, token, said string) *http.Response {
		return s.Open(http.MethodPost, "/v1/chat", token, fmt.Sprintf(`{"agent":"talker","message":"go on","run_id":%q}`, said), "Accept", "text/event-stream")
	}},
	{"chat wait", func(s *inboxtest.Server, token, said string) *http.Response {
		return s.Open(http.MethodPost, "/v1/chat", token, fmt.Sprintf(`{"agent":"talker","message":"go on","run_id":%q}`, said))
	}},
	{"OpenAI stream", func(s *inboxtest.Server, token, _ string) *http.Response {
		return s.Open(http.MethodPost, "/v1/chat/completions", token, `{"model":"talker","stream":true,"messages":[{"role":"user","content":"go on"}]}`)
	}},
	{"SubscribeToTask", func(s *inboxtest.Server, token, said string) *http.Response {
		_, _, body := s.Read(http.MethodPost, "/a2a/talker", token, rpc("SendMessage", fmt.Sprintf(
			`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"go on"}]},"configuration":{"returnImmediately":true}}`, said)), "A2A-Version", "1.0")
		var answer struct {
			Result struct{ Task struct{ ID string } }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Result.Task.ID == "" {
			s.Fatalf("%s, %v", body, err)
		}
		return s.Open(http.MethodPost, "/a2a/talker", token, rpc("SubscribeToTask", fmt.Sprintf(`{"id":%q}`, answer.Result.Task.ID)), "A2A-Version", "1.0")
	}},
	{"run events", func(s *inboxtest.Server, token, said string) *http.Response {
		return s.Open(http.MethodGet, "/v1/runs/"+begin(s, token, said)+"/events", token, "", "Accept", "text/event-stream")
	}},
	{"run long poll", func(s *inboxtest.Server, token, said string) *http.Response {
		return s.Open(http.MethodGet, "/v1/runs/"+begin(s, token, said)+"?wait=50s", token, "")
	}},
}

// begin sends a message without waiting for its answer.
func begin(s *inboxtest.Server, token, said string) (turn string) {
	s.Helper()
	status, _, body := s.Read(http.MethodPost, "/a2a/talker", token, rpc("SendMessage", fmt.Sprintf(
		`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"go on"}]},"configuration":{"returnImmediately":true}}`, said)), "A2A-Version", "1.0")
	if status != http.StatusOK || strings.Contains(body, `"error"`) {
		s.Fatalf("%d %s", status, body)
	}
	turns, err := s.Store().Turns(s.Context(), exchange.TurnFilter{Agent: "talker", MessageID: said, Limit: 1})
	if err != nil || len(turns) != 1 {
		s.Fatalf("%d turns, %v", len(turns), err)
	}
	return turns[0].ID
}

// TestStreamsEndWithTheirSender: whatever reads an answer as it grows, or waits for it, ends soon after its token was revoked or its sender blocked or
// erased by another process, and gets no words from then on.
func TestStreamsEndWithTheirSender(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]string{"sqlite": "sqlite", "postgres": storetest.Postgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := talker{begun: make(chan string, 1), gate: make(chan struct{})}
			server := inboxtest.New(t, "", "INBOX_DATABASE_URL="+database)
			if err := server.Register(exchange.AgentProfile{Name: "talker"}, agent, agents.Settings{}); err != nil {
				t.Fatal(err)
			}
			server.Serve()
			for way, end := range ends {
				for _, one := range readers {
					t.Run(way+" "+one.name, func(t *testing.T) {
						secret, token, err := server.Operator().Tokens.Create(t.Context(), uuid.NewString(), "")
						if err != nil {
							t.Fatal(err)
						}

						answers := make(chan *http.Response, 1)
						go func() { answers <- one.open(server, secret, uuid.NewString()) }()
						await.Receive(t, agent.begun, "the first word")
						var response *http.Response
						if strings.Contains(one.name, "tream") || strings.Contains(one.name, "Task") || strings.Contains(one.name, "events") {
							response = await.Receive(t, answers, "the head of the stream")
						}
						if err := end(t.Context(), server.Store(), token.ID, server.Config().Domain); err != nil {
							t.Fatal(err)
						}
						if response == nil {
							response = await.Receive(t, answers, "the end of the wait")
						}

						read := make(chan string, 1)
						go func() {
							body, _ := io.ReadAll(response.Body) // a connection that is cut is an end, too
							_ = response.Body.Close()
							read <- string(body)
						}()
						body := await.Receive(t, read, "the end of the stream")
						if strings.Contains(body, "afterwards") || way != "revoked" && !strings.Contains(strings.ToLower(body), "cancel") && !strings.Contains(body, "error") {
							t.Errorf("%d %s", response.StatusCode, body)
						}
						if way == "revoked" {
							agent.gate <- struct{}{} // the run goes on
						}
					})
				}
			}
		})
	}
}

// ends are what another process does about the holder of a token.
var ends = map[string]func(ctx context.Context, opened *store.Store, tokenID, domain string) error{
	"revoked": func(ctx context.Context, opened *store.Store, tokenID, _ string) error {
		return opened.RevokeToken(ctx, tokenID)
	},
	"blocked": func(ctx context.Context, opened *store.Store, tokenID, domain string) error {
		return opened.PutListEntries(ctx, exchange.ListEntry{
			ID: uuid.Must(uuid.NewV7()).String(), List: exchange.ListBlock, Kind: exchange.TargetPrincipal, Target: domain + " token:" + tokenID,
			Effect: exchange.EffectRefuse, CreatedAt: time.Now(),
		})
	},
	"erased": func(ctx context.Context, opened *store.Store, tokenID, domain string) error {
		_, err := opened.BeginErasure(ctx, store.PersonNames{Principals: []string{domain + " token:" + tokenID}}, nil, "a test")
		return err
	},
}

// TestProgramsThatWaitEndWithTheirToken: a long poll or a stream of a program that waits for work is refused or ends when its token is revoked.
func TestProgramsThatWaitEndWithTheirToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte("federation = { allow_private = true }\n[[agents]]\nname = \"worker\"\nkind = \"pull\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := inboxtest.New(t, file).Serve()
	tokens := server.Operator().Tokens
	bridge := func(name string) (string, exchange.Token, error) {
		return tokens.CreateBridge(t.Context(), name, "", []string{exchange.BridgePending})
	}
	worker := func(name string) (string, exchange.Token, error) {
		return tokens.CreatePull(t.Context(), name, "worker")
	}
	for name, c := range map[string]struct {
		token        func(name string) (string, exchange.Token, error)
		method, path string
		stream       bool
	}{
		"long poll of a bridge": {bridge, http.MethodGet, "/v1/bridge/pending?wait=50s", false},
		"stream of a bridge":    {bridge, http.MethodGet, "/v1/bridge/events", true},
		"long poll for turns":   {worker, http.MethodPost, "/v1/pull/worker/take?wait=50s", false},
		"stream of turns":       {worker, http.MethodGet, "/v1/pull/worker/events", true},
	} {
		t.Run(name, func(t *testing.T) {
			secret, token, err := c.token(strings.ReplaceAll(name, " ", "-"))
			if err != nil {
				t.Fatal(err)
			}
			answers := make(chan *http.Response, 1)
			go func() { answers <- server.Open(c.method, c.path, secret, "") }()
			var response *http.Response
			if c.stream {
				response = await.Receive(t, answers, "the head of the stream")
			}
			if err := server.Store().RevokeToken(t.Context(), token.ID); err != nil {
				t.Fatal(err)
			}
			if response == nil {
				if response = await.Receive(t, answers, "the end of the wait"); response.StatusCode != http.StatusUnauthorized {
					t.Errorf("status %d", response.StatusCode)
				}
			}
			await.Done(t, func() { _, _ = io.Copy(io.Discard, response.Body) }, "the end of the stream")
			if err := response.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
