package pull

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter)) }

const testToken = "inbox_test-token-of-helper"

func testTokens() *exchangetest.Tokens {
	return exchangetest.NewTokens(map[string]exchange.Token{testToken: {ID: "1", Name: "laptop", Agent: "Helper"}})
}

// refusesDigests takes no answer that names bytes by digest.
func refusesDigests(_ context.Context, turnID string, parts []normalized.Part) error {
	for _, part := range parts {
		if part.BytesRef != nil && part.BytesRef.Digest != "" {
			return fault.InField("parts[0].bytes_ref.digest", "names bytes that are not of turn "+turnID)
		}
	}
	return nil
}

// node is one node with the agent helper.
type node struct {
	service *Service
	agent   *Agent
	handler http.Handler
	server  *httpserver.Server
}

func newNode(t *testing.T, mailbox Mailbox, settings Settings) *node {
	t.Helper()
	service, err := New(Options{Tokens: testTokens(), Mailbox: mailbox, Files: refusesDigests})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := service.Agent("helper", settings)
	if err != nil {
		t.Fatal(err)
	}
	server, err := httpserver.New(httpserver.Options{
		Listen: "127.0.0.1:0", Routes: service.Routes(), WithoutHealth: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &node{service: service, agent: agent, handler: server.Handler(), server: server}
}

// listen serves the node until the end of the test and returns its URL.
func (n *node) listen(t *testing.T) string {
	t.Helper()
	if err := n.server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- n.server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := await.Receive(t, stopped, "the end of the server"); err != nil {
			t.Error(err)
		}
	})
	return "http://" + n.server.Addr().String()
}

// request makes a request with the token of helper.
func request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, "/v1/pull/helper"+path, body)
	r.Header.Set("Authorization", "Bearer "+testToken)
	return r
}

// ask sends a request straight to the handler and gives status and body.
func (n *node) ask(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	n.handler.ServeHTTP(recorder, request(t.Context(), method, path, strings.NewReader(body)))
	return recorder.Code, recorder.Body.String()
}

// want is ask with an expected status.
func (n *node) want(t *testing.T, status int, path, body string) string {
	t.Helper()
	got, said := n.ask(t, http.MethodPost, path, body)
	if got != status {
		t.Fatalf("%s: %d %s, want %d", path, got, said, status)
	}
	return said
}

// take returns the turn that a long poll brings.
func (n *node) take(t *testing.T) taken {
	t.Helper()
	var got taken
	got.read(t, []byte(n.want(t, http.StatusOK, "/take?wait=10s", "")))
	return got
}

// taken is a turn as a program gets it.
type taken struct{ Request }

func (k *taken) read(t *testing.T, document []byte) {
	t.Helper()
	if err := json.Unmarshal(document, &k.Request); err != nil {
		t.Fatalf("%v in %s", err, document)
	}
}

func (k *taken) path(action string) string {
	return "/" + url.PathEscape(k.Turn.ID) + "/" + action + "?lease=" + url.QueryEscape(k.Lease.ID)
}

// outcome is what the engine gets of a turn.
type outcome struct {
	deltas   []normalized.Delta
	response normalized.Response
	err      error
}

// run runs the turn in the background.
func (n *node) run(ctx context.Context, turn agents.Turn) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { done <- collect(ctx, n.agent, turn) }()
	return done
}

func collect(ctx context.Context, agent agents.Agent, turn agents.Turn) outcome {
	var got outcome
	fold := normalized.NewFold(normalized.DefaultLimits())
	for delta, err := range agent.Handle(ctx, turn) {
		if err != nil {
			got.err = err
			return got
		}
		got.deltas = append(got.deltas, delta)
		if got.err = fold.Add(delta); got.err != nil {
			return got
		}
	}
	got.response, got.err = fold.Response()
	return got
}

func question() agents.Turn {
	return agenttest.Turn("of the test", agenttest.Messages()["with history"])
}

const answerHello = `{"parts":[{"kind":"text","mime":"text/plain","content":"hello"}]}`

func text(r normalized.Response) string {
	var all strings.Builder
	for _, part := range r.Parts {
		all.WriteString(part.Content)
	}
	return all.String()
}

func mustAnswer(t *testing.T, done <-chan outcome, want string) outcome {
	t.Helper()
	got := await.Receive(t, done, "the end of the turn")
	if got.err != nil || text(got.response) != want {
		t.Fatalf("%q, %v, want %q", text(got.response), got.err, want)
	}
	return got
}

// program is a program that takes turns over a real connection until the end of the test.
type program struct {
	t      *testing.T
	ctx    context.Context
	base   string
	client *http.Client
	work   func(p *program, turn *taken) error
}

func startProgram(t *testing.T, base string, loop func(*program) error, work func(*program, *taken) error) {
	t.Helper()
	transport := &http.Transport{}
	ctx, stop := context.WithCancel(context.Background())
	p := &program{t: t, ctx: ctx, base: base + "/v1/pull/helper", client: &http.Client{Transport: transport}, work: work}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := loop(p); err != nil && ctx.Err() == nil {
				t.Logf("program: %v", err)
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		await.Receive(t, done, "the end of the program")
		transport.CloseIdleConnections()
	})
}

func (p *program) send(method, path, contentType string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(p.ctx, method, p.base+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Content-Type", contentType)
	return p.client.Do(r)
}

// post returns the body of a 200, and nil for a 204.
func (p *program) post(path, contentType string, body io.Reader) ([]byte, error) {
	response, err := p.send(http.MethodPost, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusNoContent:
		return nil, nil
	case response.StatusCode != http.StatusOK:
		return nil, errors.New(response.Status + ": " + string(content))
	}
	return content, nil
}

// poll takes one turn by long poll and works on it.
func poll(p *program) error {
	content, err := p.post("/take?wait=5s", "", nil)
	if err != nil || content == nil {
		return err
	}
	var turn taken
	if err := json.Unmarshal(content, &turn.Request); err != nil {
		return err
	}
	return p.work(p, &turn)
}

// replyWhole answers with a document.
func replyWhole(p *program, turn *taken) error {
	encoded, err := json.Marshal(normalized.Response{Parts: []normalized.Part{normalized.Text("Hello " + turn.Message.Sender.Address.String())}})
	if err != nil {
		return err
	}
	_, err = p.post(turn.path("answer"), "application/json", bytes.NewReader(encoded))
	return err
}

// replyStreaming answers with deltas.
func replyStreaming(p *program, turn *taken) error {
	lines := `{"kind":"text","text":"Hello "}` + "\n\n" + `{"kind":"text","text":"you"}` + "\r\n"
	if _, err := p.post(turn.path("deltas"), "application/x-ndjson", strings.NewReader(lines)); err != nil {
		return err
	}
	if _, err := p.post(turn.path("deltas"), "application/json", strings.NewReader("{\n\"kind\": \"part_end\"\n}")); err != nil {
		return err
	}
	_, err := p.post(turn.path("answer"), "application/json", nil)
	return err
}

// short settings for tests over real connections.
var quick = Settings{Lease: 5 * time.Second, MaxWait: 8 * time.Second}
