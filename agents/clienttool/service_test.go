package clienttool

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/tool/request/requesttest"
	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/await"
	"inbox/internal/httpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testToken = "inbox_test-token-of-helper"

// requests keeps those of the agent helper in memory.
type requests struct {
	store request.Store
	mu    sync.Mutex
	by    []string
}

func (r *requests) ToolRequests(agent, by string) request.Lifecycle {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by = append(r.by, agent+" "+by)
	return request.Lifecycle{Store: r.store}
}

func (r *requests) ToolCancels(agent, by string) request.Lifecycle {
	return r.ToolRequests(agent, by+" cancels")
}

type bench struct {
	t        *testing.T
	service  *Service
	tokens   *exchangetest.Tokens
	requests *requests
	url      string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, tokens: exchangetest.NewTokens(map[string]exchange.Token{
		testToken:     {ID: "1", Name: "desk", Agent: "Helper", Scope: exchange.TokenTools},
		"inbox_peer":  {ID: "2", Name: "peer", Agent: "helper"},
		"inbox_other": {ID: "3", Name: "other", Agent: "other", Scope: exchange.TokenTools},
		"inbox_gone":  {ID: "4", Name: "gone", Agent: "helper", Scope: exchange.TokenTools, RevokedAt: time.Now()},
		"inbox_all":   {ID: "5", Name: "all", Scope: exchange.TokenTools},
		"inbox_none":  {ID: "6", Name: "none", Agent: "nobody", Scope: exchange.TokenTools},
	}), requests: &requests{store: new(requesttest.Memory)}}
	b.service = New(b.tokens)
	b.service.Bind(b.requests)
	b.service.Open(map[string]*Source{"helper": nil, "other": nil})
	server, err := httpserver.New(httpserver.Options{
		Listen: "127.0.0.1:0", Routes: b.service.Routes(), WithoutHealth: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	b.url = listener.URL
	return b
}

func (b *bench) ask(id string) {
	b.t.Helper()
	_, err := request.Lifecycle{Store: b.requests.store}.Create(b.t.Context(), map[string]any{
		"request_id": id, "tool_name": "client/pick", "tool_call_id": "c", "parameters": map[string]any{"n": id}, "run_id": "r",
	}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.service.Requested(exchange.ToolRequest{ID: id, Agent: "HELPER"})
}

func (b *bench) open(ctx context.Context, method, path, token, body string) *http.Response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, b.url+"/v1/tools/helper/requests"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return response
}

func (b *bench) call(method, path, token, body string) (int, map[string]any) {
	b.t.Helper()
	response := b.open(b.t.Context(), method, path, token, body)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(content, &answer); err != nil {
		b.t.Fatalf("%s %s: %d %s", method, path, response.StatusCode, content)
	}
	return response.StatusCode, answer
}

//contract:shows runtime-52 runtime-53 runtime-54 runtime-55 runtime-57 runtime-81
func TestOperations(t *testing.T) {
	b := newBench(t)
	b.ask("one")
	b.ask("two")
	b.ask("three")
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "", "", 200, `"request_id":"one"`},
		{"GET", "?limit=1&tool_name=client/pick", "", 200, `{"requests":[{`},
		{"GET", "?tool_name=client/other", "", 200, `{"requests":[]}`},
		{"GET", "?before=tomorrow", "", 400, `invalid_runtime_tool_query`},
		{"GET", "?wait=long", "", 400, `"field":"wait"`},
		{"GET", "/one", "", 200, `"status":"runtime_tool_pending"`},
		{"GET", "/none", "", 404, `request not found`},
		{"POST", "/one/submit", `{"result":7,"tool_name":"client/forged","metadata":{"files":[{"kind":"file"}],"own":1}}`, 200, `"metadata":{"own":1},"request_id":"one","result":{"value":7},"status":"runtime_tool_submitted","success":true,"tool_name":"client/pick"`},
		{"POST", "/one/submit", `{"result":8}`, 200, `"duplicate":true`},
		{"GET", "/one", "", 200, `"result":{"value":7}`},
		{"POST", "/one/timeout", "", 200, `"status":"runtime_tool_completed"`},
		{"POST", "/two/submit", `{"request_id":"three"}`, 400, `invalid_runtime_tool_result`},
		{"POST", "/two/submit", `[1]`, 400, `"code":"malformed"`},
		{"POST", "/two/submit", `{"result":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, 400, `32 levels`},
		{"POST", "/two/submit", `{"result":"` + strings.Repeat("x", MaxBodyBytes) + `"}`, 413, `too_large`},
		{"POST", "/two/submit", ``, 400, `malformed`},
		{"POST", "/two/timeout", "", 200, `Runtime tool request timed out.`},
		{"POST", "/two/submit", `{"result":1}`, 409, `request is not pending`},
		{"POST", "/three/cancel", "", 200, `"cancelled":true`},
		{"POST", "/three/cancel", "", 200, `"duplicate":true`},
		{"POST", "/none/submit", `{}`, 404, `invalid_runtime_tool_result`},
		{"POST", "/none/cancel", ``, 404, `invalid_runtime_tool_timeout`},
		{"GET", "?wait=10ms", "", 200, `{"requests":[]}`},
	} {
		status, answer := b.call(step.method, step.path, testToken, step.body)
		text, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		if status != step.status || !strings.Contains(string(text), step.want) {
			t.Errorf("%s %s %.60s: %d %s; want %d with %s", step.method, step.path, step.body, status, text, step.status, step.want)
		}
	}
	for _, by := range b.requests.by {
		if !strings.HasPrefix(by, "helper token:desk") {
			t.Errorf("called by %q", by)
		}
	}
}

//contract:shows runtime-72
func TestTokens(t *testing.T) {
	b := newBench(t)
	b.ask("one")
	for name, token := range map[string]string{
		"none": "", "unknown": "inbox_unknown", "a peer's": "inbox_peer", "another agent's": "inbox_other", "revoked": "inbox_gone",
		"for all agents": "inbox_all", "too long": strings.Repeat("x", 600),
	} {
		for _, path := range []string{"", "/events", "/one", "/none"} {
			response := b.open(t.Context(), http.MethodGet, path, token, "")
			if response.StatusCode != http.StatusUnauthorized || response.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s token opens %q: %d", name, path, response.StatusCode)
			}
			_ = response.Body.Close()
		}
	}
	r := httptest.NewRequest(http.MethodGet, b.url+"/v1/tools/nobody/requests", nil)
	r.Header.Set("Authorization", "Bearer inbox_none")
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("an agent without client tools: %d", response.StatusCode)
	}
}

func TestLongPollHearsOfANewRequest(t *testing.T) {
	b := newBench(t)
	answers := make(chan string, 3)
	for range 3 {
		go func() {
			_, answer := b.call(http.MethodGet, "?wait=30s", testToken, "")
			answers <- fmt.Sprint(answer["requests"])
		}()
	}
	b.waiting(3)
	b.ask("one")
	for range 3 {
		if answer := await.Receive(t, answers, "the answers of all long polls"); !strings.Contains(answer, "request_id:one") {
			t.Errorf("heard %s", answer)
		}
	}
}

// waiting waits until so many programs wait.
func (b *bench) waiting(count int) {
	b.t.Helper()
	agent, _ := b.service.find("helper")
	await.Until(b.t, fmt.Sprintf("%d programs wait", count), func() bool {
		agent.mu.Lock()
		defer agent.mu.Unlock()
		return len(agent.waiting) == count
	})
}

func TestStreamTellsEveryRequestOnceAndItsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("one")
	ctx, leave := context.WithTimeout(t.Context(), 2*await.Patience)
	defer leave()
	response := b.open(ctx, http.MethodGet, "/events", testToken, "")
	defer func() { _ = response.Body.Close() }()
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("content type %s", kind)
	}
	lines := bufio.NewScanner(response.Body)
	next := func() (event string) {
		for lines.Scan() {
			switch line := lines.Text(); {
			case line == "" && event != "":
				return event
			case line != "" && !strings.HasPrefix(line, ":"):
				event += line + "\n"
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return ""
	}
	if event := next(); !strings.HasPrefix(event, "id: one\nevent: request\ndata: {") {
		t.Errorf("first event: %s", event)
	}
	b.ask("two")
	if event := next(); !strings.HasPrefix(event, "id: two\nevent: request\n") {
		t.Errorf("second event: %s", event)
	}
	b.call(http.MethodPost, "/one/submit", testToken, `{"result":1}`)
	if event := next(); event != "id: one\nevent: ended\ndata: {\"request_id\":\"one\"}\n" {
		t.Errorf("third event: %s", event)
	}
	b.tokens.Revoke(testToken)
	for lines.Scan() { // it ends by itself
		if line := lines.Text(); strings.HasPrefix(line, "event") {
			t.Errorf("after the token was revoked: %s", line)
		}
	}
	b.waiting(0)
}

func TestRevokedTokenEndsALongPoll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	answered := make(chan int, 1)
	go func() {
		status, _ := b.call(http.MethodGet, "?wait=30s", testToken, "")
		answered <- status
	}()
	b.waiting(1)
	b.tokens.Revoke(testToken)
	if status := await.Receive(t, answered, "the end of the long poll"); status != http.StatusUnauthorized {
		t.Errorf("the poll ended with %d", status)
	}
}

func TestOnlySoManyWait(t *testing.T) {
	b := newBench(t)
	agent, _ := b.service.find("helper")
	var leave []func()
	for range MaxWaiting {
		_, left, err := agent.listen()
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, left)
	}
	if status, _ := b.call(http.MethodGet, "?wait=1s", testToken, ""); status != http.StatusTooManyRequests {
		t.Errorf("one more waits: %d", status)
	}
	for _, left := range leave {
		left()
	}
	b.waiting(0)
}

func FuzzReadBody(f *testing.F) {
	f.Add(`{"success":false,"error":"no","metadata":{"citations":[{}]}}`)
	f.Add(`{"result":{"a":[1.5e400,null]},"request_id":"one"}`)
	f.Fuzz(func(t *testing.T, body string) {
		raw, err := readBody(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if err != nil {
			return
		}
		if !json.Valid([]byte(body)) {
			t.Errorf("took %q for JSON", body)
		}
		raw["request_id"], raw["tool_name"] = "one", "client/pick"
		result, err := request.NormalizeResult(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(result); err != nil {
			t.Errorf("the result of %q cannot be written: %v", body, err)
		}
	})
}
