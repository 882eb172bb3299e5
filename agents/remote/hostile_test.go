package remote

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// call is one request of JSON-RPC as a scripted server sees it.
type call struct {
	Method string          `json:"method"`
	ID     string          `json:"id"`
	Params json.RawMessage `json:"params"`

	w http.ResponseWriter
	r *http.Request
}

// scripted is a server whose answers a test writes by hand.
type scripted struct {
	*httptest.Server
	mu    sync.Mutex
	calls []string
	ids   []string // of the messages that were sent
}

func startScripted(t *testing.T, streaming bool, answer func(*call)) *scripted {
	t.Helper()
	s := &scripted{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `{"supportedInterfaces":[{"url":"%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{"streaming":%t}}`, s.URL, streaming)
			return
		}
		c := &call{w: w, r: r}
		if err := json.NewDecoder(r.Body).Decode(c); err != nil {
			t.Error(err)
		}
		var params struct {
			Message struct {
				ID string `json:"messageId"`
			} `json:"message"`
		}
		_ = json.Unmarshal(c.Params, &params)
		s.mu.Lock()
		s.calls = append(s.calls, c.Method)
		if params.Message.ID != "" {
			s.ids = append(s.ids, params.Message.ID)
		}
		s.mu.Unlock()
		answer(c)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) seen() (methods []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// sent returns the ids of the messages that came.
func (s *scripted) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// result answers whole.
func (c *call) result(document string) {
	c.w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(c.w, `{"jsonrpc":"2.0","id":%q,"result":%s}`, c.ID, document)
}

func (c *call) fails(status, code int, said string) {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	fmt.Fprintf(c.w, `{"jsonrpc":"2.0","id":%q,"error":{"code":%d,"message":%q}}`, c.ID, code, said)
}

// event sends one event of a stream.
func (c *call) event(document string) {
	c.w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(c.w, "data: {\"jsonrpc\":\"2.0\",\"id\":%q,\"result\":%s}\n\n", c.ID, document)
	c.w.(http.Flusher).Flush()
}

// cut ends the connection in the middle.
func (c *call) cut() {
	connection, _, err := c.w.(http.Hijacker).Hijack()
	if err == nil {
		_ = connection.Close()
	}
}

func taskJSON(state, rest string) string {
	return `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_` + state + `"}` + rest + `}`
}

func wrapped(task string) string { return `{"task":` + task + `}` }

func chunk(text string, appended bool) string {
	return fmt.Sprintf(`{"artifactUpdate":{"taskId":"t1","contextId":"c1","append":%t,"artifact":{"artifactId":"a","parts":[{"text":%q}]}}}`, appended, text)
}

const (
	completedUpdate = `{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"}}}`
	answerArtifact  = `,"artifacts":[{"artifactId":"a","parts":[{"text":"the whole answer"}]}]`
)

func TestCutStreamIsTakenUpAgain(t *testing.T) {
	server := startScripted(t, true, nil)
	var subscriptions atomic.Int32
	server.Config.Handler = scriptOf(server, t, func(c *call) {
		switch c.Method {
		case "SendStreamingMessage":
			c.event(wrapped(taskJSON("WORKING", "")))
			c.event(chunk("the who", false))
			c.cut()
		case "SubscribeToTask":
			if subscriptions.Add(1) == 1 {
				c.cut()
				return
			}
			c.event(wrapped(taskJSON("WORKING", `,"artifacts":[{"artifactId":"a","parts":[{"text":"the whole"}]}]`)))
			c.event(chunk(" answer", true))
			c.event(completedUpdate)
		case "GetTask":
			c.result(taskJSON("COMPLETED", answerArtifact))
		}
	})
	out := mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x"))
	if got := textOf(out.response); got != "the whole answer" {
		t.Errorf("got %q", got)
	}
	if want := []string{"SendStreamingMessage", "SubscribeToTask", "SubscribeToTask", "GetTask"}; !slices.Equal(server.seen(), want) {
		t.Errorf("calls %v, want %v", server.seen(), want)
	}
}

// scriptOf replaces the answers of a scripted server.
func scriptOf(s *scripted, t *testing.T, answer func(*call)) http.Handler {
	t.Helper()
	card := s.Config.Handler
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			card.ServeHTTP(w, r)
			return
		}
		c := &call{w: w, r: r}
		_ = json.NewDecoder(r.Body).Decode(c)
		s.mu.Lock()
		s.calls = append(s.calls, c.Method)
		s.mu.Unlock()
		answer(c)
	})
}

func TestCutStreamIsPolledWhereItCannotBeTakenUp(t *testing.T) {
	var looks atomic.Int32
	server := startScripted(t, true, func(c *call) {
		switch c.Method {
		case "SendStreamingMessage":
			c.event(wrapped(taskJSON("WORKING", "")))
		case "SubscribeToTask":
			c.fails(http.StatusOK, -32004, "no")
		case "GetTask":
			switch looks.Add(1) {
			case 1:
				c.w.WriteHeader(http.StatusBadGateway)
			case 2:
				c.result(taskJSON("WORKING", ""))
			default:
				c.result(taskJSON("COMPLETED", answerArtifact))
			}
		}
	})
	if got := textOf(mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x")).response); got != "the whole answer" {
		t.Errorf("got %q", got)
	}
}

func TestWaysThatAreNotOffered(t *testing.T) {
	tests := map[string]func(*call){
		"no stream, said in the protocol": func(c *call) { c.fails(http.StatusOK, -32004, "no streams here") },
		"no such method":                  func(c *call) { c.fails(http.StatusOK, -32601, "what?") },
		"no such method, with a status":   func(c *call) { c.fails(http.StatusBadRequest, -32601, "what?") },
		"nothing there":                   func(c *call) { http.NotFound(c.w, c.r) },
	}
	for name, refuse := range tests {
		t.Run(name, func(t *testing.T) {
			server := startScripted(t, true, func(c *call) {
				switch c.Method {
				case "SendMessage":
					c.result(wrapped(taskJSON("SUBMITTED", "")))
				case "GetTask":
					c.result(taskJSON("COMPLETED", answerArtifact))
				default:
					refuse(c)
				}
			})
			agent := newAgent(t, server.URL, nil)
			for _, id := range []string{"1", "2"} {
				if got := textOf(mustHandle(t, agent, turnOf(id, "x")).response); got != "the whole answer" {
					t.Errorf("got %q", got)
				}
			}
			if want := []string{"SendStreamingMessage", "SendMessage", "GetTask", "SendMessage", "GetTask"}; !slices.Equal(server.seen(), want) {
				t.Errorf("calls %v, want %v", server.seen(), want)
			}
		})
	}
}

func TestOldVersionIsFound(t *testing.T) {
	server := startScripted(t, true, func(c *call) {
		if c.Method != "message/stream" {
			c.fails(http.StatusOK, -32601, "what?")
			return
		}
		c.event(`{"kind":"task","id":"t1","contextId":"c1","status":{"state":"working"}}`)
		c.event(`{"kind":"artifact-update","taskId":"t1","contextId":"c1","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"the whole answer"}]}}`)
		c.event(`{"kind":"status-update","taskId":"t1","contextId":"c1","status":{"state":"completed"},"final":true}`)
	})
	agent := newAgent(t, server.URL, nil)
	for _, id := range []string{"1", "2"} {
		if got := textOf(mustHandle(t, agent, turnOf(id, "x")).response); got != "the whole answer" {
			t.Errorf("got %q", got)
		}
	}
	if got := server.seen(); len(got) != 4 {
		t.Errorf("calls %v, want the old version remembered", got)
	}
}

func TestAgentThatShowsNoTasksIsAskedForTheEnd(t *testing.T) {
	server := startScripted(t, false, func(c *call) {
		switch {
		case c.Method == "GetTask":
			c.fails(http.StatusOK, -32001, "no such task")
		case strings.Contains(string(c.Params), "returnImmediately"):
			c.result(wrapped(taskJSON("WORKING", "")))
		default:
			c.result(wrapped(taskJSON("COMPLETED", answerArtifact)))
		}
	})
	if got := textOf(mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x")).response); got != "the whole answer" {
		t.Errorf("got %q", got)
	}
	if len(server.sent()) != 2 || server.sent()[0] != server.sent()[1] {
		t.Errorf("message ids %v, want the same twice", server.sent())
	}
}

func TestForgottenConversationBeginsAnew(t *testing.T) {
	var turns atomic.Int32
	server := startScripted(t, false, func(c *call) {
		turns.Add(1)
		if strings.Contains(string(c.Params), `"taskId"`) || strings.Contains(string(c.Params), `"contextId"`) {
			c.fails(http.StatusOK, -32001, "no such task")
			return
		}
		c.result(wrapped(taskJSON("INPUT_REQUIRED", "")))
	})
	agent := newAgent(t, server.URL, nil)
	for _, id := range []string{"1", "2"} {
		if got := mustHandle(t, agent, turnOf(id, "x")).response; got.Status != normalized.StatusInputRequired || textOf(got) != sayInput {
			t.Errorf("got %s %q", got.Status, textOf(got))
		}
	}
	if turns.Load() != 4 { // once; with the task, with the context, with neither
		t.Errorf("%d requests, want 4", turns.Load())
	}
}

func TestErrorsAreClassed(t *testing.T) {
	tests := map[string]struct {
		answer    func(*call)
		permanent bool
		public    string
		after     time.Duration
	}{
		"busy": {func(c *call) {
			c.w.Header().Set("Retry-After", "7")
			c.w.WriteHeader(http.StatusTooManyRequests)
		}, false, upstream.Busy, 7 * time.Second},
		"down":                {func(c *call) { c.w.WriteHeader(http.StatusBadGateway) }, false, upstream.Unreachable, 0},
		"defect":              {func(c *call) { c.fails(http.StatusOK, -32603, "oops") }, false, upstream.Unreachable, 0},
		"cut at once":         {(*call).cut, false, upstream.Unreachable, 0},
		"stream of nothing":   {func(c *call) { c.w.Header().Set("Content-Type", "text/event-stream") }, false, upstream.Unreachable, 0},
		"login":               {func(c *call) { http.Error(c.w, "who?", http.StatusUnauthorized) }, true, upstream.Refused, 0},
		"login in JSON":       {func(c *call) { c.fails(http.StatusForbidden, -31403, "no") }, true, upstream.Refused, 0},
		"wrong params":        {func(c *call) { c.fails(http.StatusOK, -32602, "no") }, true, upstream.Refused, 0},
		"wrong type":          {func(c *call) { fmt.Fprint(c.w, "<html>hello</html>") }, true, upstream.Unusable, 0},
		"redirect":            {func(c *call) { http.Redirect(c.w, c.r, "http://127.0.0.1:1/", http.StatusFound) }, true, upstream.Unreachable, 0},
		"event of no kind":    {func(c *call) { c.event(`{"surprise":{}}`) }, true, upstream.Unusable, 0},
		"two events in one":   {func(c *call) { c.event(`{"task":` + taskJSON("WORKING", "") + `,"message":{"parts":[]}}`) }, true, upstream.Unusable, 0},
		"event of wrong type": {func(c *call) { c.event(`{"task":"t1"}`) }, true, upstream.Unusable, 0},
		"part of no kind":     {func(c *call) { c.event(`{"message":{"messageId":"m","parts":[{"smell":"roses"}]}}`) }, true, upstream.Unusable, 0},
		"empty part":          {func(c *call) { c.event(wrapped(taskJSON("COMPLETED", `,"artifacts":[null]`))) }, true, upstream.Unusable, 0},
		"no id":               {func(c *call) { c.event(`{"task":{"status":{"state":"TASK_STATE_WORKING"}}}`) }, true, upstream.Unusable, 0},
		"another task": {func(c *call) {
			c.event(wrapped(taskJSON("WORKING", "")))
			c.event(strings.ReplaceAll(completedUpdate, "t1", "t2"))
		}, true, upstream.Unusable, 0},
		"update without artifact": {func(c *call) {
			c.event(wrapped(taskJSON("WORKING", "")))
			c.event(`{"artifactUpdate":{"taskId":"t1","contextId":"c1"}}`)
		}, true, upstream.Unusable, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := startScripted(t, true, func(c *call) {
				if c.Method == "CancelTask" {
					c.result(taskJSON("CANCELED", ""))
					return
				}
				test.answer(c)
			})
			_, err := handle(t.Context(), t, newAgent(t, server.URL, func(o *Options) { o.MaxResponseBytes = 4 << 20 }), turnOf("1", "x"))
			got := fault.Of(err)
			if err == nil || got.Permanent != test.permanent || got.Public != test.public || got.RetryAfter != test.after {
				t.Errorf("got permanent=%t %q after %v: %v", got.Permanent, got.Public, got.RetryAfter, err)
			}
		})
	}
}

// TestAnswersThatAreTooLargeAreCut: the other agent did its work, so the size of its answer is no failure. What has come is the answer, and
// the answer says that there was more.
func TestAnswersThatAreTooLargeAreCut(t *testing.T) {
	const none = "(The answer is too large to be shown.)"
	huge := strings.Repeat("x", 1<<20)
	parts := func(count int, part string) string {
		return `,"artifacts":[{"artifactId":"a","parts":[` + strings.TrimSuffix(strings.Repeat(part+",", count), ",") + `]}]`
	}
	tests := map[string]struct {
		answer func(*call)
		says   string
		parts  int
	}{
		"endless stream": {func(c *call) {
			if c.Method == "GetTask" {
				c.fails(http.StatusOK, -32001, "gone")
				return
			}
			c.event(wrapped(taskJSON("WORKING", "")))
			for c.r.Context().Err() == nil {
				c.event(chunk(huge, true))
			}
		}, " more bytes and the rest of the answer are not shown.)", 2},
		"endless line": {func(c *call) {
			c.w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(c.w, "data: ")
			for c.r.Context().Err() == nil {
				_, _ = io.WriteString(c.w, huge)
			}
		}, none, 1},
		"endless document": {func(c *call) {
			c.w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(c.w, "[")
			for c.r.Context().Err() == nil {
				_, _ = io.WriteString(c.w, huge)
			}
		}, none, 1},
		"too many artifacts": {func(c *call) {
			c.event(wrapped(taskJSON("WORKING", "")))
			for i := range maxArtifacts + 1 {
				c.event(strings.Replace(chunk("x", false), `"a"`, fmt.Sprintf(`"a%d"`, i), 1))
			}
			c.event(completedUpdate)
		}, "(1 more byte is not shown.)", 2},
		"too many files": {func(c *call) {
			c.event(wrapped(taskJSON("COMPLETED", parts(100, `{"raw":"eA==","filename":"a.bin"}`))))
		}, "(37 more parts are not shown.)", 64},
		"too many pieces": {func(c *call) {
			c.event(wrapped(taskJSON("COMPLETED", parts(maxPieces+5, `{"raw":"eA=="}`))))
		}, fmt.Sprintf("(%d more parts are not shown.)", maxPieces+5-63), 64},
		"too much text": {func(c *call) {
			c.event(wrapped(taskJSON("COMPLETED", parts(3, `{"text":"`+huge+`"}`))))
		}, "", 3},
		"one text too long": {func(c *call) {
			c.event(wrapped(taskJSON("COMPLETED", parts(1, `{"text":"`+huge+`12345"}`))))
		}, "(5 more bytes are not shown.)", 2},
		"a message": {func(c *call) {
			c.event(`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"` + huge + `12345"}]}}`)
		}, "(5 more bytes are not shown.)", 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := startScripted(t, true, func(c *call) {
				if c.Method == "CancelTask" {
					c.result(taskJSON("CANCELED", ""))
					return
				}
				test.answer(c)
			})
			got := mustHandle(t, newAgent(t, server.URL, func(o *Options) { o.MaxResponseBytes = 4 << 20 }), turnOf("1", "x")).response
			said := textOf(got)
			if len(got.Parts) != test.parts || !strings.HasSuffix(said, test.says) || got.Outcome() != normalized.StatusCompleted {
				t.Errorf("%s in %d parts ends with %q, want %q in %d", got.Outcome(), len(got.Parts), said[max(0, len(said)-100):], test.says, test.parts)
			}
		})
	}
}

// TestLongStreamsAreReadFromTheTask: a stream repeats its frame with every word, so it is over the limit where the task is not.
func TestLongStreamsAreReadFromTheTask(t *testing.T) {
	server := startScripted(t, true, func(c *call) {
		if c.Method == "GetTask" {
			c.result(taskJSON("COMPLETED", answerArtifact))
			return
		}
		c.event(wrapped(taskJSON("WORKING", "")))
		for c.r.Context().Err() == nil {
			c.event(chunk("word ", true))
		}
	})
	got := mustHandle(t, newAgent(t, server.URL, func(o *Options) { o.MaxResponseBytes = 64 << 10 }), turnOf("1", "x")).response
	if textOf(got) != "the whole answer" {
		t.Errorf("got %.200q", textOf(got))
	}
}

func TestSilentStreamIsGivenUp(t *testing.T) {
	var silent atomic.Int64
	server := startScripted(t, true, func(c *call) {
		switch {
		case c.Method == "GetTask":
			c.result(taskJSON("COMPLETED", answerArtifact))
		case silent.Add(1) > 2: // one stream of the message, one of its task
			c.fails(http.StatusOK, -32004, "no streams any more")
		default:
			c.event(wrapped(taskJSON("WORKING", "")))
			<-c.r.Context().Done()
		}
	})
	agent := newAgent(t, server.URL, func(o *Options) { o.IdleLimit = time.Second }) // long enough for an event that comes
	if got := textOf(mustHandle(t, agent, turnOf("1", "x")).response); got != "the whole answer" {
		t.Errorf("got %q", got)
	}
}

func TestTimeLimitKeepsTheTaskForTheNextAttempt(t *testing.T) {
	var over atomic.Bool
	server := startScripted(t, false, func(c *call) {
		switch {
		case c.Method == "SendMessage":
			c.result(wrapped(taskJSON("WORKING", "")))
		case c.Method == "CancelTask":
			t.Error("the task was cancelled")
		case over.Load():
			c.result(taskJSON("COMPLETED", answerArtifact))
		default:
			c.result(taskJSON("WORKING", ""))
		}
	})
	state, turn := newMemory(), turnOf("1", "x")
	var err error
	for limit := 100 * time.Millisecond; !slices.Contains(server.seen(), "GetTask"); limit *= 2 { // until the task is known
		hasty := newAgent(t, server.URL, func(o *Options) { o.TimeLimit, o.State = limit, state })
		if limit > time.Minute {
			t.Fatal("no attempt came as far as to ask for the task")
		}
		_, err = handle(t.Context(), t, hasty, turn)
		turn.Attempt++
	}
	if got := fault.Of(err); got.Permanent || got.Public != upstream.Late {
		t.Fatalf("got %v", err)
	}
	sent := len(server.sent())
	over.Store(true)
	agent := newAgent(t, server.URL, func(o *Options) { o.State = state })
	if got := textOf(mustHandle(t, agent, turn).response); got != "the whole answer" {
		t.Errorf("got %q", got)
	}
	if again := len(server.sent()) - sent; again > 0 {
		t.Errorf("%d messages were sent again", again)
	}
}

func TestEndOfContext(t *testing.T) {
	tests := map[string]struct {
		cause   error
		cancels bool
	}{
		"the turn was cancelled": {nil, true},
		"the engine's deadline":  {context.DeadlineExceeded, true},
		"the server stops":       {errors.New("the server stops"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := startScripted(t, true, func(c *call) {
				if c.Method == "CancelTask" {
					c.result(taskJSON("CANCELED", ""))
					return
				}
				c.event(wrapped(taskJSON("WORKING", "")))
				c.event(chunk("half", false))
				<-c.r.Context().Done()
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var err error
			for _, failed := range newAgent(t, server.URL, nil).Handle(ctx, turnOf("1", "x")) {
				cancel(test.cause) // while it works
				err = failed
			}
			if !errors.Is(err, context.Cause(ctx)) {
				t.Errorf("got %v", err)
			}
			if got := slices.Contains(server.seen(), "CancelTask"); got != test.cancels {
				t.Errorf("cancelled there: %t, want %t", got, test.cancels)
			}
		})
	}
}

func TestCardLeadsOnlyWhereItMay(t *testing.T) {
	elsewhere := startUpstream(t, wayRPC, true, growing)
	lead := func(address string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"supportedInterfaces":[{"url":%q,"protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, address)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	otherHost := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) + "/rpc"
	tests := map[string]struct {
		address string
		change  func(*Options)
		works   bool
	}{
		"other port":                     {elsewhere.URL + "/rpc", nil, true},
		"other host, private":            {otherHost, nil, false},
		"other host, named":              {otherHost, func(o *Options) { o.EndpointHosts = []string{mustURL(t, otherHost).Host} }, true},
		"other host, with token":         {otherHost, func(o *Options) { o.Token, o.Client = "secret", safehttp.New(safehttp.Options{AllowPrivate: true}) }, false},
		"other host in a closed network": {otherHost, func(o *Options) { o.Client = safehttp.New(safehttp.Options{AllowPrivate: true}) }, true},
		"nonsense":                       {"file:///etc/passwd", nil, false},
		"user info":                      {"http://a:b@127.0.0.1/", nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := handle(t.Context(), t, newAgent(t, lead(test.address), test.change), turnOf("1", "x"))
			if (err == nil) != test.works || err != nil && !fault.Of(err).Permanent {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCardThatCannotBeRead(t *testing.T) {
	tests := map[string]struct {
		answer    http.HandlerFunc
		permanent bool
	}{
		"nothing there": {http.NotFound, true},
		"down":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, false},
		"no JSON":       {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, true},
		"no endpoint":   {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, true},
		"secret":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, true},
		"huge":          {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", maxCardBytes+1), "{}") }, true},
		"leads away": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost:1/card", http.StatusFound)
		}, true},
		"other version": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"supportedInterfaces":[{"url":"http://127.0.0.1/","protocolBinding":"JSONRPC","protocolVersion":"2.0"}]}`)
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			_, err := handle(t.Context(), t, newAgent(t, server.URL, nil), turnOf("1", "x"))
			if err == nil || fault.Of(err).Permanent != test.permanent {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestCardStaysWhereTheOperatorWroteIt: a redirect to another port of the host, or away from https, shows no credentials to anyone.
func TestCardStaysWhereTheOperatorWroteIt(t *testing.T) {
	followed := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	other, plain := httptest.NewTLSServer(followed), httptest.NewServer(followed)
	defer other.Close()
	defer plain.Close()

	for name, location := range map[string]func(host string) string{
		"another port":         func(string) string { return other.URL + "/card.json" },
		"http on its own port": func(host string) string { return "http://" + host + "/card.json" },
		"http on another port": func(string) string { return plain.URL + "/card.json" },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, location(r.Host), http.StatusFound)
			}))
			defer server.Close()
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())

			agent := newAgent(t, server.URL, func(o *Options) {
				o.Client.Close()
				o.Client = safehttp.New(safehttp.Options{RootCAs: roots, AllowPrivate: true})
				o.Token = "secret-of-the-operator"
			})
			if _, err := handle(t.Context(), t, agent, turnOf("1", "x")); !errors.Is(err, errMoved) {
				t.Errorf("got %v, want %v", err, errMoved)
			}
		})
	}
}

func TestTaskOfAnotherPathIsRefused(t *testing.T) {
	for _, id := range []string{"../../other/x", "a/b", "a?b", "a#b", "%2e", "..", "", "a\nb", strings.Repeat("x", maxIDBytes+1)} {
		if usableID(id, true) {
			t.Errorf("%q may stand in a path", id)
		}
	}
	if !usableID("urn:task:1/2", false) || !usableID(string(a2a.NewTaskID()), true) {
		t.Error("good ids are refused")
	}
}

func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		wrapped(taskJSON("COMPLETED", answerArtifact)), chunk("x", true), completedUpdate, `{"message":{"parts":[{"data":[1]}]}}`,
		`{"task":{"id":"t","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"parts":[null],"metadata":{"mentionable":{"policy":{"kind":"consent_required","message":"m"}}}}}}}`,
	} {
		f.Add(seed)
	}
	agent := newFuzzAgent(f)
	f.Fuzz(func(t *testing.T, document string) {
		var event a2a.StreamResponse
		if json.Unmarshal([]byte(document), &event) != nil {
			return
		}
		x := newExchange(agent, turnOf("1", "x"), func(normalized.Delta) bool { return true })
		x.peer = &peer{}
		if x.take(t.Context(), event.Event) != nil || !x.done() {
			return
		}
		response, _, err := x.answer(t.Context())
		if err != nil {
			return
		}
		if err := normalized.ValidateResponse(response, x.turn.Message, normalized.DefaultLimits()); err != nil {
			t.Error(err)
		}
	})
}

func newFuzzAgent(f *testing.F) *Agent {
	f.Helper()
	agent, err := New(Options{CardURL: "https://a.example/", Client: safehttp.New(safehttp.Options{}), State: newMemory()})
	if err != nil {
		f.Fatal(err)
	}
	return agent
}
