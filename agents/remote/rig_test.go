package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"go.uber.org/goleak"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/exchange/exchangetest"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a State that demands that everything is kept for an hour at least.
type memory struct{ *exchangetest.Documents }

func newMemory() *memory { return &memory{exchangetest.NewDocuments()} }

func (m *memory) Put(ctx context.Context, space, key string, value []byte, expires time.Time) error {
	if time.Until(expires) < time.Hour {
		return errors.New("kept for less than an hour")
	}
	return m.Documents.Put(ctx, space, key, value, expires)
}

// shelf is a Blobs.
type shelf struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (s *shelf) Put(_ context.Context, r io.Reader) (string, int64, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = map[string][]byte{}
	}
	s.files[normalized.Digest(content)] = content
	return normalized.Digest(content), int64(len(content)), nil
}

func (s *shelf) Open(_ context.Context, digest string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok := s.files[digest]
	if !ok {
		return nil, errors.New("no such file")
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// script is an agent of the SDK.
type script func(ctx context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool)

func (s script) Execute(ctx context.Context, call *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) { s(ctx, call, yield) }
}

func (s script) Cancel(_ context.Context, call *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, nil), nil)
	}
}

// Ways of reaching the server of the SDK.
const (
	wayRPC     = "JSON-RPC 1.0"
	wayREST    = "HTTP+JSON 1.0"
	wayOldRPC  = "JSON-RPC 0.3"
	wayOldREST = "HTTP+JSON 0.3"
)

var ways = []string{wayRPC, wayREST, wayOldRPC, wayOldREST}

// otherServer is a server of the SDK with a card that names one way.
type otherServer struct {
	*httptest.Server
	mu       sync.Mutex
	messages []*a2a.Message
	tokens   []string
	card     map[string]any
	refuse   func(*http.Request) bool
}

func startUpstream(t *testing.T, way string, streaming bool, do script) *otherServer {
	t.Helper()
	u := &otherServer{}
	life, end := context.WithCancel(context.Background())
	handler := a2asrv.NewHandler(script(func(ctx context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
		u.mu.Lock()
		message := *call.Message
		message.ContextID, message.TaskID = call.ContextID, call.TaskID
		u.messages = append(u.messages, &message)
		u.mu.Unlock()
		ctx, stop := context.WithCancel(ctx) // the SDK lets an agent run on after its server is closed
		defer context.AfterFunc(life, stop)()
		defer stop()
		left := false
		do(ctx, call, func(event a2a.Event, err error) bool {
			left = !yield(event, err)
			return !left
		})
		if life.Err() != nil && !left { // the SDK waits for ever for the end of a task whose agent has left
			yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, nil), nil)
		}
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/agent-card.json", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(u.card)
	})
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(handler)))
	mux.Handle("/old", a2av0.NewJSONRPCHandler(handler))
	mux.Handle("/oldrest/", http.StripPrefix("/oldrest", a2av0.NewRESTHandler(handler)))
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.tokens = append(u.tokens, r.Header.Get("Authorization"))
		refuse := u.refuse
		u.mu.Unlock()
		if refuse != nil && refuse(r) {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { end(); u.Close() })
	u.card = u.document(way, streaming)
	return u
}

func (u *otherServer) document(way string, streaming bool) map[string]any {
	document := map[string]any{
		"name": "upstream", "capabilities": map[string]any{"streaming": streaming}, "defaultOutputModes": []string{"text/markdown"},
		"securitySchemes": map[string]any{"odd": map[string]any{"type": "carrier pigeon"}},
	}
	switch way {
	case wayRPC:
		document["supportedInterfaces"] = []any{
			map[string]any{"url": "grpc.example.org:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
			map[string]any{"url": u.URL + "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
		}
	case wayREST:
		document["supportedInterfaces"] = []any{map[string]any{"url": u.URL + "/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}}
	case wayOldRPC:
		document["url"], document["protocolVersion"] = u.URL+"/old", "0.3.0" // JSON-RPC is the default transport
	case wayOldREST:
		document["url"], document["protocolVersion"], document["preferredTransport"] = u.URL+"/oldrest", "0.3.0", "HTTP+JSON"
	}
	return document
}

func (u *otherServer) received() []*a2a.Message {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*a2a.Message(nil), u.messages...)
}

func newAgent(t *testing.T, address string, change func(*Options)) *Agent {
	t.Helper()
	options := Options{
		CardURL: address, Client: safehttp.New(safehttp.Options{}), State: newMemory(), PollInterval: time.Millisecond,
		TimeLimit: 20 * time.Second,
	}
	if change != nil {
		change(&options)
	}
	agent, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	t.Cleanup(options.Client.Close)
	return agent
}

// turnOf makes a turn of one thread.
func turnOf(id, text string) agents.Turn {
	message := agenttest.Messages()["text"]
	message.ID, message.Parts = "https://peer.example/messages/"+id, []normalized.Part{normalized.Text(text)}
	turn := agenttest.Turn(id, message)
	turn.ID = "0199-" + id
	return turn
}

type outcomeOf struct {
	deltas   []normalized.Delta
	response normalized.Response
}

// handle runs a turn to its end and folds it as the engine does.
func handle(ctx context.Context, t *testing.T, agent *Agent, turn agents.Turn) (outcomeOf, error) {
	t.Helper()
	var out outcomeOf
	fold := normalized.NewFold(normalized.DefaultLimits())
	for delta, err := range agent.Handle(ctx, turn) {
		if err != nil {
			return out, err
		}
		out.deltas = append(out.deltas, delta)
		if err := fold.Add(delta); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if out.response, err = fold.Response(); err != nil {
		t.Fatal(err)
	}
	if err := normalized.ValidateResponse(out.response.Answering(turn.Message), turn.Message, normalized.DefaultLimits()); err != nil {
		t.Fatalf("the response is not valid: %v", err)
	}
	return out, nil
}

func mustHandle(t *testing.T, agent *Agent, turn agents.Turn) outcomeOf {
	t.Helper()
	out, err := handle(t.Context(), t, agent, turn)
	if err != nil {
		t.Fatalf("the agent failed: %v", err)
	}
	return out
}

func textOf(response normalized.Response) string { return normalized.PlainText(response.Parts) }

// spoken is the text of what the script received.
func spoken(message *a2a.Message) string {
	var text string
	for _, part := range message.Parts {
		text += part.Text()
	}
	return text
}

func say(text string) *a2a.Message {
	return a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(text))
}

// growing answers with a task whose answer comes in three chunks.
func growing(_ context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
	first := a2a.NewArtifactEvent(call, a2a.NewTextPart("You **said**"))
	rest := func(text string) *a2a.TaskArtifactUpdateEvent {
		return a2a.NewArtifactUpdateEvent(call, first.Artifact.ID, a2a.NewTextPart(text))
	}
	events := []a2a.Event{
		a2a.NewStatusUpdateEvent(call, a2a.TaskStateWorking, say("Let me think.")),
		first, rest(": "), rest(spoken(call.Message)),
		a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, nil),
	}
	if call.StoredTask == nil {
		events = append([]a2a.Event{a2a.NewSubmittedTask(call, call.Message)}, events...)
	}
	for _, event := range events {
		if !yield(event, nil) {
			return
		}
	}
}

func mustURL(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
