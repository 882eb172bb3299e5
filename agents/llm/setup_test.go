package llm

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/agents/runtime/tool"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a server that returns one recorded answer after the other and keeps what it was asked.
type script struct {
	mu      sync.Mutex
	answers []recorded
	asked   []map[string]any
	bodies  [][]byte
	headers []http.Header
	paths   []string
	address string
}

type recorded struct {
	status int
	header map[string]string
	body   string
	chunk  int // bytes written at once; 0 = all
	stall  bool
}

func newScript(t *testing.T, answers ...recorded) *script {
	t.Helper()
	s := &script{answers: answers}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.address = server.URL
	return s
}

func (s *script) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var asked map[string]any
	_ = json.Unmarshal(body, &asked)
	s.mu.Lock()
	s.asked, s.headers, s.paths = append(s.asked, asked), append(s.headers, r.Header), append(s.paths, r.URL.Path)
	s.bodies = append(s.bodies, body)
	next := s.answers[min(len(s.asked), len(s.answers))-1]
	s.mu.Unlock()
	next.write(w, r)
}

func (a recorded) write(w http.ResponseWriter, r *http.Request) {
	kind := "text/event-stream"
	if strings.HasPrefix(a.body, "{") {
		kind = "application/json"
	}
	w.Header().Set("Content-Type", kind)
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(max(a.status, http.StatusOK))
	size := a.chunk
	if size == 0 {
		size = max(1, len(a.body))
	}
	for piece := range slices.Chunk([]byte(a.body), size) {
		_, _ = w.Write(piece)
		_ = http.NewResponseController(w).Flush()
	}
	if a.stall {
		<-r.Context().Done()
	}
}

func (s *script) questions() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func newBenchClient(b *testing.B) *safehttp.Client {
	b.Helper()
	client := safehttp.New(safehttp.Options{})
	b.Cleanup(client.Close)
	return client
}

func newClient(t *testing.T) *safehttp.Client {
	t.Helper()
	client := safehttp.New(safehttp.Options{})
	t.Cleanup(client.Close)
	return client
}

// connect returns a provider that talks to the script without retries.
func (s *script) connect(t *testing.T, api string) Provider {
	t.Helper()
	provider := s.connectRetrying(t, api)
	retrying, is := provider.(retrying)
	if !is {
		t.Fatal("Connect gives a provider without retries")
	}
	return retrying.provider
}

func (s *script) connectRetrying(t *testing.T, api string) Provider {
	t.Helper()
	provider, err := Connect(Connection{API: api, BaseURL: s.address + "/v1", APIKey: "sk-secret", Client: newClient(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIdle(provider) })
	return provider
}

func closeIdle(provider Provider) {
	switch provider := provider.(type) {
	case retrying:
		closeIdle(provider.provider)
	case *openAI:
		provider.endpoint.client.Close()
	case *anthropic:
		provider.endpoint.client.Close()
	}
}

// modelFunc is a model in memory.
type modelFunc func(ctx context.Context, request Request, yield func(Delta) bool) error

func (f modelFunc) Stream(ctx context.Context, request Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		stopped := false
		err := f(ctx, request, func(delta Delta) bool {
			stopped = stopped || !yield(delta, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(Delta{}, err)
		}
	}
}

// scripted is a model that returns one turn after the other; the last one again and again.
func scripted(turns ...[]Delta) Provider {
	var mu sync.Mutex
	asked := 0
	return modelFunc(func(_ context.Context, _ Request, yield func(Delta) bool) error {
		mu.Lock()
		next := turns[min(asked, len(turns)-1)]
		asked++
		mu.Unlock()
		for _, delta := range next {
			if !yield(delta) {
				return nil
			}
		}
		return nil
	})
}

func says(texts ...string) []Delta {
	deltas := make([]Delta, 0, len(texts)+2)
	for _, text := range texts {
		deltas = append(deltas, Delta{Kind: DeltaText, Text: text})
	}
	return append(deltas, Delta{Kind: DeltaUsage, Usage: Usage{Input: 10, Output: 5}}, Delta{Kind: DeltaStop, Stop: StopEnd})
}

// calls is a turn that calls tools: name, arguments, name, arguments …
func calls(pairs ...string) []Delta {
	var deltas []Delta
	for i := 0; i+1 < len(pairs); i += 2 {
		deltas = append(deltas,
			Delta{Kind: DeltaToolCall, Index: i / 2, ID: "call_" + pairs[i] + strconv.Itoa(i), Name: pairs[i]},
			Delta{Kind: DeltaArguments, Index: i / 2, Text: pairs[i+1]})
	}
	return append(deltas, Delta{Kind: DeltaUsage, Usage: Usage{Input: 20, Output: 7}}, Delta{Kind: DeltaStop, Stop: StopToolCalls})
}

// toolbox is a source of tools that count.
type toolbox struct {
	mu      sync.Mutex
	entries []tool.Entry
	run     func(ctx context.Context, call tool.Call) (map[string]any, error)
	called  []string
}

func (b *toolbox) Declarations(context.Context, agents.Turn) ([]tool.Entry, error) {
	return b.entries, nil
}

func (b *toolbox) Execute(ctx context.Context, call tool.Call) (map[string]any, error) {
	b.mu.Lock()
	b.called = append(b.called, call.Name)
	b.mu.Unlock()
	if b.run != nil {
		return b.run(ctx, call)
	}
	return map[string]any{"success": true, "result": map[string]any{"echo": call.Parameters}}, nil
}

func (b *toolbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.called)
}

func declare(name string, more map[string]any) tool.Entry {
	declared := map[string]any{
		"name": name, "description": "does " + name,
		"parameters": map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}},
	}
	maps.Copy(declared, more)
	return tool.Entry{Value: declared}
}

func newAgent(t *testing.T, options Options) *Agent {
	t.Helper()
	if options.Model == "" {
		options.Model = "test-model"
	}
	if options.Secret == nil {
		options.Secret = testSecret
	}
	agent, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

func permitAll(string) bool { return true }

func question(name string) agents.Turn {
	turn := agenttest.Turn(name, agenttest.Messages()["text"])
	turn.Permits = permitAll
	return turn
}

// fold runs a turn as the engine does and gives all deltas, too.
func fold(ctx context.Context, t *testing.T, agent agents.Agent, turn agents.Turn) (normalized.Response, []normalized.Delta, error) {
	t.Helper()
	folded := normalized.NewFold(normalized.DefaultLimits())
	var deltas []normalized.Delta
	for delta, err := range agent.Handle(ctx, turn) {
		if err != nil {
			return normalized.Response{}, deltas, err
		}
		deltas = append(deltas, delta)
		if err := folded.Add(delta); err != nil {
			t.Fatalf("fold: %v", err)
		}
	}
	response, err := folded.Response()
	if err != nil {
		t.Fatalf("fold: %v", err)
	}
	response = response.Answering(turn.Message)
	if err := normalized.ValidateResponse(response, turn.Message, normalized.DefaultLimits()); err != nil {
		t.Errorf("the response is not valid: %v", err)
	}
	return response, deltas, nil
}

func texts(response normalized.Response) string { return normalized.PlainText(response.Parts) }
