package chat_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/history"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/normalized"
)

// chatServer is a whole server with agents whose words a test writes.
type chatServer struct {
	*inboxtest.Server

	asked    atomic.Int32     // runs of all agents
	goOn     chan struct{}    // lets the agent "slow" say the rest
	history  chan []string    // what the agent "remembers" was told, one entry for each run
	requests chan agents.Turn // what the agent "tools" got
}

func newChatServer(t *testing.T, settings ...string) *chatServer {
	t.Helper()
	return withAgents(inboxtest.New(t, "", settings...))
}

// withAgents adds the agents to a server and runs it.
func withAgents(server *inboxtest.Server) *chatServer {
	server.Helper()
	s := &chatServer{Server: server, goOn: make(chan struct{}), history: make(chan []string, 8), requests: make(chan agents.Turn, 8)}

	s.register("helper", agents.UnverifiedAnswer, func(agents.Turn, func(string) bool) string { return "pong" })
	s.register("a", agents.UnverifiedAnswer, func(agents.Turn, func(string) bool) string { return "pong" })
	s.register("closed", agents.UnverifiedHold, func(agents.Turn, func(string) bool) string { return "secret" })
	s.register("slow", agents.UnverifiedAnswer, func(_ agents.Turn, say func(string) bool) string {
		say("Hel")
		select {
		case <-s.goOn:
		case <-s.Context().Done(): // before the server stops, which waits for its runs
		}
		return "lo"
	})
	remembers := func(turn agents.Turn, _ func(string) bool) string {
		lines := []string{}
		for _, said := range turn.Message.History {
			lines = append(lines, said.Role+": "+normalized.PlainText(said.Parts))
		}
		s.history <- lines
		return "yes"
	}
	s.register("remembers", agents.UnverifiedAnswer, remembers)
	s.registerWith("odd", agents.Settings{Unverified: agents.UnverifiedAnswer, History: history.Policy{KeepHead: 1, Window: 4, Slide: 2}}, remembers)
	s.register("tools", agents.UnverifiedAnswer, func(turn agents.Turn, _ func(string) bool) string {
		s.requests <- turn
		return "thanks"
	})
	s.Serve()

	return s
}

// chatOnBoth runs a test with a server on each database.
func chatOnBoth(t *testing.T, test func(s *chatServer)) {
	t.Helper()
	for name, url := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newChatServer(t, "INBOX_DATABASE_URL="+url(t)))
		})
	}
}

// wasTold returns what the agent "remembers" was told in its next run.
func (s *chatServer) wasTold() []string {
	s.Helper()
	return await.Receive(s, s.history, "a run of the agent that remembers")
}

// register adds an agent: what its words say and then return is the answer.
func (s *chatServer) register(name, unverified string, words func(agents.Turn, func(string) bool) string) {
	s.Helper()
	s.registerWith(name, agents.Settings{Unverified: unverified}, words)
}

func (s *chatServer) registerWith(name string, settings agents.Settings, words func(agents.Turn, func(string) bool) string) {
	s.Helper()
	agent := agents.Func(func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			s.asked.Add(1)
			say := func(text string) bool { return yield(normalized.Delta{Kind: normalized.DeltaText, Text: text}, nil) }
			say(words(turn, say))
		}
	})
	if err := s.Register(exchange.AgentProfile{Name: name, DisplayName: name}, agent, settings); err != nil {
		s.Fatal(err)
	}
}

type chatReply struct {
	status int
	header http.Header
	body   string
}

// post sends a body; header holds names and values by turns.
func (s *chatServer) post(path, token, body string, header ...string) chatReply {
	s.Helper()
	status, received, content := s.Read(http.MethodPost, path, token, body, header...)
	return chatReply{status, received, content}
}

// rpcAnswer is a JSON-RPC response.
type rpcAnswer struct {
	ID     any
	Result struct {
		ID, SessionID string
		Status        struct {
			State   string
			Message struct {
				MessageID string
				Parts     []struct{ Type, Text string }
			}
		}
	}
	Error *struct {
		Code    int
		Message string
	}
}

func (r chatReply) rpc(t testing.TB) (answer rpcAnswer) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return answer
}

func (a rpcAnswer) text() string {
	if len(a.Result.Status.Message.Parts) == 0 {
		return ""
	}
	return a.Result.Status.Message.Parts[0].Text
}

func rpcBody(method, run, session, text string) string {
	params := map[string]any{"message": map[string]any{"role": "user", "parts": []any{map[string]any{"type": "text", "text": text}}}}
	if run != "" {
		params["id"] = run
	}
	if session != "" {
		params["sessionId"] = session
	}
	body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
	return string(body)
}
