package inbox

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// chatServer is a whole server with agents whose words a test writes.
type chatServer struct {
	*testing.T
	server   *Server
	url      string
	asked    atomic.Int32        // runs of all agents
	goOn     chan struct{}       // lets the agent "slow" say the rest
	history  chan []string       // what the agent "remembers" was told, one entry for each run
	requests chan agents.Turn    // what the agent "tools" got
	token    func(string) string // mints one by name
}

func newChatServer(t *testing.T, settings ...string) *chatServer {
	t.Helper()
	return chatServerOf(t, startServer(t, settings...))
}

func chatServerOf(t *testing.T, server *Server) *chatServer {
	t.Helper()
	s := &chatServer{T: t, goOn: make(chan struct{}), history: make(chan []string, 8), requests: make(chan agents.Turn, 8), server: server}
	s.url = "http://" + s.server.HTTPAddr().String()
	s.token = func(name string) string {
		token, _, err := s.server.Operator().Tokens.Create(t.Context(), name, "")
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	s.register("helper", agents.UnverifiedAnswer, func(agents.Turn, func(string) bool) string { return "pong" })
	s.register("a", agents.UnverifiedAnswer, func(agents.Turn, func(string) bool) string { return "pong" })
	s.register("closed", agents.UnverifiedHold, func(agents.Turn, func(string) bool) string { return "secret" })
	s.register("slow", agents.UnverifiedAnswer, func(_ agents.Turn, say func(string) bool) string {
		say("Hel")
		select {
		case <-s.goOn:
		case <-t.Context().Done(): // before the server stops, which waits for its runs
		}
		return "lo"
	})
	s.register("remembers", agents.UnverifiedAnswer, func(turn agents.Turn, _ func(string) bool) string {
		lines := []string{}
		for _, said := range turn.Message.History {
			lines = append(lines, said.Role+": "+normalized.PlainText(said.Parts))
		}
		s.history <- lines
		return "yes"
	})
	s.register("tools", agents.UnverifiedAnswer, func(turn agents.Turn, _ func(string) bool) string {
		s.requests <- turn
		return "thanks"
	})
	return s
}

// wasTold returns what the agent "remembers" was told in its next run.
func (s *chatServer) wasTold() []string {
	s.Helper()
	return await.Receive(s, s.history, "a run of the agent that remembers")
}

// register adds an agent: what its words say and then give is the answer.
func (s *chatServer) register(name, unverified string, words func(agents.Turn, func(string) bool) string) {
	s.Helper()
	agent := agents.Func(func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			s.asked.Add(1)
			say := func(text string) bool { return yield(normalized.Delta{Kind: normalized.DeltaText, Text: text}, nil) }
			say(words(turn, say))
		}
	})
	err := s.server.Register(exchange.AgentProfile{Name: name, DisplayName: name}, agent, agents.Settings{Unverified: unverified})
	if err != nil {
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
	response := s.open(http.MethodPost, path, token, body, header...)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return chatReply{response.StatusCode, response.Header, string(content)}
}

func (s *chatServer) open(method, path, token, body string, header ...string) *http.Response {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := bounded.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	return response
}

// answer is a JSON-RPC response.
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

func (r chatReply) rpc(t *testing.T) (answer rpcAnswer) {
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

// sseEvent is one server-sent event.
type sseEvent struct{ id, name, data string }

// nextEvent reads one event; ok = false at the end of the stream.
func nextEvent(reader *bufio.Reader) (event sseEvent, ok bool) {
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return event, false
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			event.id = value
		case "event":
			event.name = value
		case "data":
			event.data = value
		case "":
			if event.data != "" {
				return event, true
			}
		}
	}
}

func allEvents(response *http.Response) (list []sseEvent) {
	defer func() { _ = response.Body.Close() }()
	reader := bufio.NewReader(response.Body)
	for {
		event, ok := nextEvent(reader)
		if !ok {
			return list
		}
		list = append(list, event)
	}
}
