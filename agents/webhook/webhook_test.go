package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/agents/upstream"
	"inbox/internal/children"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

const testSecret = "a secret of the test"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter)) }

// startAgent makes an agent whose webhook is the handler.
func startAgent(t *testing.T, handler http.HandlerFunc, change func(*Options)) *Agent {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return newAgent(t, server.URL, change)
}

func newAgent(t *testing.T, url string, change func(*Options)) *Agent {
	t.Helper()
	options := Options{URL: url, Secret: testSecret, Client: safehttp.New(safehttp.Options{})}
	if change != nil {
		change(&options)
	}
	agent, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	return agent
}

// question is the message of most tests.
func question() normalized.Message { return agenttest.Messages()["text"] }

// run returns the deltas of one turn and the error that ended it.
func run(ctx context.Context, agent agents.Agent, message normalized.Message) (deltas []normalized.Delta, err error) {
	for delta, err := range agent.Handle(ctx, agenttest.Turn("t", message)) {
		if err != nil {
			return deltas, err
		}
		deltas = append(deltas, delta)
	}
	return deltas, nil
}

// folded returns the response that the deltas grow to.
func folded(t *testing.T, deltas []normalized.Delta) normalized.Response {
	t.Helper()
	fold := normalized.NewFold(normalized.DefaultLimits())
	for _, delta := range deltas {
		if err := fold.Add(delta); err != nil {
			t.Fatal(err)
		}
	}
	response, err := fold.Response()
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// repeat is a webhook that answers with the text of the message.
func repeat(w http.ResponseWriter, r *http.Request) {
	var request Request
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(normalized.Response{
		InReplyTo: request.Message.ID, Parts: []normalized.Part{normalized.Text("got it: " + normalized.PlainText(request.Message.Parts))},
	})
}

func stuck(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client went away
	<-r.Context().Done()
}

func TestConformance(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{"document": repeat, "stream": stream("delta")} {
		t.Run(name, func(t *testing.T) {
			agenttest.Suite{
				New:      func(t *testing.T) agents.Agent { return startAgent(t, handler, nil) },
				NewStuck: func(t *testing.T) agents.Agent { return startAgent(t, stuck, nil) },
			}.Run(t)
		})
	}
}

// stream answers with two pieces of text as events of the name.
func stream(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, text := range []string{"Hello, ", "world"} {
			fmt.Fprintf(w, ": wait\n\nevent: %s\ndata: {\"kind\":\"text\",\"text\":%q}\n\n", name, text)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

//contract:shows message-31 message-56
func TestRequest(t *testing.T) {
	message := agenttest.Messages()["with history"]
	var got *http.Request
	var body []byte
	agent := startAgent(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	}, nil)
	before := time.Now().Add(-time.Second)
	if _, err := run(t.Context(), agent, message); err != nil {
		t.Fatal(err)
	}
	if got.Method != http.MethodPost || got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Idempotency-Key") != "turn t" {
		t.Errorf("%s with header %v", got.Method, got.Header)
	}
	if !webhooksignature.Verify(testSecret, body, got.Header.Get(SignatureHeader), webhooksignature.Form{}) {
		t.Errorf("signature %q does not fit", got.Header.Get(SignatureHeader))
	}
	var request Request
	if err := json.Unmarshal(body, &request); err != nil {
		t.Fatal(err)
	}
	if sent := request.SentAt.Time; sent.Before(before) || sent.After(time.Now()) {
		t.Errorf("sent_at = %v", sent)
	}
	prefix := `{"version":1,"turn":{"id":"turn t","attempt":1,"agent":"echo","idempotency_key":"turn t"},"message":{"id":`
	if !bytes.HasPrefix(body, []byte(prefix)) || !bytes.Contains(body, []byte(`,"history_cache_breakpoint_after":1,`)) {
		t.Errorf("body = %s", body)
	}
	if !request.Message.Equal(message) {
		t.Errorf("message = %+v", request.Message)
	}
}

//contract:shows message-56
func TestAnswers(t *testing.T) {
	hello := []normalized.Part{normalized.Text("Hello, world")}
	ids := `"in_reply_to":"` + question().ID + `",`
	asking := `{"dispatch":[{"to":"@b@b.test","parts":[{"kind":"text","mime":"text/plain","content":"Hello, world"}]}]}`
	asked := []normalized.Dispatch{{To: "@b@b.test", Parts: hello}}
	tests := map[string]struct {
		contentType, body string
		status            int
		want              normalized.Response // ids are filled in
		deltas            int
	}{
		"document":         {"application/json", `{` + ids + `"parts":[{"kind":"text","mime":"text/plain","content":"Hello, world"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"without ids":      {"application/json; charset=utf-8", `{"parts":[{"kind":"text","mime":"text/plain","content":"Hello, world"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"plain text":       {"text/plain", "Hello, world", 200, normalized.Response{Parts: hello}, 1},
		"text with mark":   {"text/plain; charset=utf-8", "\ufeffHello, world", 200, normalized.Response{Parts: hello}, 1},
		"markdown":         {"text/markdown", "*Hello*", 200, normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartText, MIME: "text/markdown", Content: "*Hello*"}}}, 1},
		"JSON as text":     {"text/plain; charset=utf-8", `{"parts":[{"kind":"text","mime":"text/plain","content":"Hello, world"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"text like JSON":   {"text/plain", `{"hello":1}`, 200, normalized.Response{Parts: []normalized.Part{normalized.Text(`{"hello":1}`)}}, 1},
		"other JSON type":  {"application/vnd.api+json", `{"parts":[{"kind":"text","mime":"text/plain","content":"Hello, world"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"text JSON":        {"text/json", `{"parts":[{"kind":"text","mime":"text/plain","content":"Hello, world"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"byte order mark":  {"application/json", "\ufeff" + `{"parts":[{"kind":"text","mime":"text/plain","content":"Hello, world"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"no mime":          {"application/json", `{"parts":[{"kind":"text","content":"Hello, world"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"null mime":        {"application/json", `{"parts":[{"content":"Hello, world","mime":null,"kind":"text"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"no mime in part":  {"text/event-stream", delta(`{"kind":"part_begin","part":{"kind":"text","content":"Hello, world"}}`), 200, normalized.Response{Parts: hello}, 2},
		"no mime at last":  {"text/event-stream", "event: response\ndata: {\"parts\":[{\"kind\":\"text\",\"content\":\"Hello, world\"}]}\n\n", 200, normalized.Response{Parts: hello}, 1},
		"silent document":  {"application/json", `{"silent":true}`, 200, normalized.Response{Silent: true}, 1},
		"no content":       {"", "", 204, normalized.Response{Silent: true}, 1},
		"failed":           {"application/json", `{"status":"failed","error":{"code":"x","message":"Hello, world"}}`, 200, normalized.Response{Status: "failed", Error: &normalized.ResponseError{Code: "x", Message: "Hello, world"}, Parts: hello}, 1},
		"control removed":  {"application/json", `{"parts":[{"kind":"text","mime":"text/plain","content":"Hello,\u0007 world"}]}`, 200, normalized.Response{Parts: hello}, 1},
		"deltas":           {"text/event-stream", delta(`{"kind":"text","text":"Hello, "}`) + ": wait\n\n" + delta(`{"kind":"text","text":"world"}`), 200, normalized.Response{Parts: hello}, 3},
		"deltas with ids":  {"text/event-stream", delta(`{"kind":"text","text":"Hello, world"}`) + delta(`{"kind":"status","response":{`+ids+`"thread_id":"`+question().ThreadID+`"}}`), 200, normalized.Response{Parts: hello}, 2},
		"unnamed events":   {"text/event-stream", "data: {\"kind\":\"text\",\ndata: \"text\":\"Hello, world\"}\n\n", 200, normalized.Response{Parts: hello}, 2},
		"unknown events":   {"text/event-stream", "event: weather\ndata: rain\n\n" + delta(`{"kind":"text","text":"Hello, world"}`), 200, normalized.Response{Parts: hello}, 2},
		"final response":   {"text/event-stream", delta(`{"kind":"text","text":"Hel"}`) + "event: response\ndata: {\"parts\":[{\"kind\":\"text\",\"mime\":\"text/plain\",\"content\":\"Hello, world\"}]}\n\n", 200, normalized.Response{Parts: hello}, 2},
		"ended":            {"text/event-stream", delta(`{"kind":"text","text":"Hello, world"}`) + "event: end\ndata: {}\n\n" + delta(`nonsense`), 200, normalized.Response{Parts: hello}, 2},
		"dispatch":         {"application/json", asking, 200, normalized.Response{Dispatch: asked}, 1},
		"dispatch by step": {"text/event-stream", delta(`{"kind":"status","response":` + asking + `}`), 200, normalized.Response{Dispatch: asked}, 2},
		"dispatch at last": {"text/event-stream", delta(`{"kind":"text","text":"I ask."}`) + "event: response\ndata: " + asking + "\n\n", 200, normalized.Response{Dispatch: asked}, 2},
		"carriage returns": {"text/event-stream", "\ufeffevent: delta\r\ndata: {\"kind\":\"text\",\"text\":\"Hello, world\"}\r\r\n", 200, normalized.Response{Parts: hello}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			agent := startAgent(t, answering(test.status, test.contentType, test.body), nil)
			deltas, err := run(t.Context(), agent, question())
			if err != nil {
				t.Fatal(err)
			}
			test.want.InReplyTo, test.want.ThreadID = question().ID, question().ThreadID
			got := folded(t, deltas)
			got.Clean()
			if !got.Equal(test.want) || len(deltas) != test.deltas {
				t.Errorf("%d deltas:\n got %+v\nwant %+v", len(deltas), got, test.want)
			}
		})
	}
}

func delta(data string) string { return "event: delta\ndata: " + data + "\n\n" }

func answering(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestUnusableAnswers(t *testing.T) {
	tests := map[string]struct{ contentType, body, why string }{
		"no type":           {"", `{}`, "parts"},
		"bytes":             {"application/octet-stream", `{}`, "Content-Type"},
		"html":              {"text/html", `<p>`, "Content-Type"},
		"other charset":     {"text/plain; charset=iso-8859-1", "caf\xe9", "UTF-8"},
		"bad JSON as text":  {"text/plain", `{"parts":[{"kind":"hologram"}]}`, "parts[0]"},
		"empty text":        {"text/plain", ``, "parts"},
		"no JSON":           {"application/json", `hello`, "document"},
		"two documents":     {"application/json", `{"silent":true}{"silent":true}`, "after its end"},
		"no parts":          {"application/json", `{}`, "parts"},
		"other message":     {"application/json", `{"in_reply_to":"x","parts":[{"kind":"text","mime":"text/plain","content":"x"}]}`, "in_reply_to"},
		"unknown part":      {"application/json", `{"parts":[{"kind":"hologram"}]}`, "parts[0]"},
		"duplicate key":     {"application/json", `{"silent":true,"silent":false}`, "silent"},
		"text and dispatch": {"application/json", `{"parts":[{"kind":"text","mime":"text/plain","content":"x"}],"dispatch":[{"to":"@b@b.test","parts":[]}]}`, "empty with dispatch"},
		"deep":              {"application/json", `{"metadata":` + strings.Repeat(`[`, 5000), "nested"},
		"empty stream":      {"text/event-stream", ``, "parts"},
		"no delta":          {"text/event-stream", delta(`{}`), "kind"},
		"wrong delta":       {"text/event-stream", delta(`{"kind":"tool_call_end","part":{"kind":"tool_call","id":"1","name":"x","result":1}}`), "no tool call"},
		"cut event":         {"text/event-stream", delta(`{"kind":"text","text":"x"}`) + `data: {"kind":`, "empty line"},
		"unfinished tool":   {"text/event-stream", delta(`{"kind":"tool_call_start","part":{"kind":"tool_call","id":"1","name":"x","args":{}}}`), "never ended"},
		"final other reply": {"text/event-stream", "event: response\ndata: {\"in_reply_to\":\"x\",\"silent\":true}\n\n", "in_reply_to"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			agent := startAgent(t, answering(http.StatusOK, test.contentType, test.body), func(o *Options) { o.MaxResponseBytes = 2 << 20 })
			_, err := run(t.Context(), agent, question())
			got := fault.Of(err)
			if !got.Permanent || got.Public != upstream.Unusable || !strings.Contains(err.Error(), test.why) {
				t.Errorf("permanent %v, public %q, error %v; want %q in it", got.Permanent, got.Public, err, test.why)
			}
		})
	}
}

// TestAnswersThatAreTooLargeAreCut: the work is done, so the size of an answer is no failure.
func TestAnswersThatAreTooLargeAreCut(t *testing.T) {
	long := func(size int) string {
		return `{"kind":"text","mime":"text/plain","content":"` + strings.Repeat("x", size) + `"}`
	}
	many := strings.Repeat(`{"kind":"link","url":"https://a.test/"},`, 99) + long(1)
	tests := map[string]struct{ contentType, body, says string }{
		"document over what is read": {"application/json", `{"parts":[` + long(3<<20), "(The answer is too large to be shown.)"},
		"text":                       {"application/json", `{"parts":[` + long(1<<20+7) + `]}`, "(7 more bytes are not shown.)"},
		"parts":                      {"application/json", `{"parts":[` + many + `]}`, "(36 more parts and 1 more byte are not shown.)"},
		"event":                      {"text/event-stream", delta(`{"kind":"text","text":"so far"}`) + "data: " + strings.Repeat("x", maxEventBytes), "so far\n\n(The rest of the answer is not shown.)"},
		"stream over what is read":   {"text/event-stream", strings.Repeat(delta(`{"kind":"text","text":"x"}`), 100_000), "x\n\n(The rest of the answer is not shown.)"},
		"streamed text":              {"text/event-stream", strings.Repeat(delta(`{"kind":"text","text":"`+strings.Repeat("x", 512<<10)+`"}`), 3), "(524288 more bytes are not shown.)"},
		"streamed parts":             {"text/event-stream", strings.Repeat(delta(`{"kind":"part_begin","part":{"kind":"link","url":"https://a.test/"}}`), 70), "(7 more parts are not shown.)"},
		"streamed tool calls": {"text/event-stream", delta(`{"kind":"text","text":"x"}`) + strings.Join(slices.Collect(func(yield func(string) bool) {
			for i := range 70 {
				call := fmt.Sprintf(`{"kind":"tool_call","id":"%d","name":"n"`, i)
				yield(delta(`{"kind":"tool_call_start","part":`+call+`}}`) + delta(`{"kind":"tool_call_end","part":`+call+`,"result":1}}`))
			}
		}), ""), "(8 more tool calls are not shown.)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			agent := startAgent(t, answering(http.StatusOK, test.contentType, test.body), func(o *Options) { o.MaxResponseBytes = 2 << 20 })
			deltas, err := run(t.Context(), agent, question())
			if err != nil {
				t.Fatal(err)
			}
			response := folded(t, deltas).Answering(question())
			if err := normalized.ValidateResponse(response, question(), normalized.DefaultLimits()); err != nil {
				t.Error(err)
			}
			if said := normalized.PlainText(response.Parts); !strings.Contains(said, test.says) {
				t.Errorf("%d parts say %q, want %q", len(response.Parts), said[max(0, len(said)-200):], test.says)
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	tests := map[int]struct {
		permanent bool
		public    string
	}{
		201: {true, upstream.Unusable}, 202: {true, upstream.Unusable}, 206: {true, upstream.Unusable}, 501: {true, upstream.Unusable},
		301: {true, upstream.Unreachable}, 307: {true, upstream.Unreachable},
		400: {true, upstream.Refused}, 401: {true, upstream.Refused}, 404: {true, upstream.Refused}, 410: {true, upstream.Refused}, 422: {true, upstream.Refused},
		408: {false, upstream.Unreachable}, 425: {false, upstream.Unreachable}, 429: {false, upstream.Busy},
		500: {false, upstream.Unreachable}, 502: {false, upstream.Unreachable}, 503: {false, upstream.Busy}, 504: {false, upstream.Unreachable},
	}
	for status, want := range tests {
		t.Run(http.StatusText(status), func(t *testing.T) {
			agent := startAgent(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Location", "/elsewhere")
				answering(status, "text/plain", "panic at\r\nline 7: secret")(w, r)
			}, nil)
			_, err := run(t.Context(), agent, question())
			got := fault.Of(err)
			if got.Permanent != want.permanent || got.Public != want.public || got.Kind != fault.Unavailable {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if wait := got.RetryAfter; !want.permanent && wait != 7*time.Second {
				t.Errorf("retry after %v", wait)
			}
			if !strings.Contains(err.Error(), fmt.Sprint(status)) || !strings.Contains(err.Error(), "line 7: secret") {
				t.Errorf("the operator reads %q", err)
			}
		})
	}
}

func TestInterruptions(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, delta(`{"kind":"text","text":"Hello"}`))
		_ = http.NewResponseController(w).Flush()
		stuck(w, r)
	}
	cut := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, delta(`{"kind":"text","text":"Hello"}`))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	drop := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	short := func(o *Options) { o.TimeLimit = 100 * time.Millisecond }
	impatient := func(o *Options) { o.IdleLimit = 100 * time.Millisecond }
	tests := map[string]struct {
		handler http.HandlerFunc
		change  func(*Options)
		public  string
		deltas  int
	}{
		"late":               {stuck, short, upstream.Late, 0},
		"late stream":        {hang, short, upstream.Late, 1},
		"idle stream":        {hang, impatient, upstream.Late, 1},
		"cut stream":         {cut, nil, upstream.Unreachable, 1},
		"dropped":            {drop, nil, upstream.Unreachable, 0},
		"closed by HTTP/1.0": {oldProtocol(delta(`{"kind":"text","text":"Hello"}`)), nil, upstream.Unreachable, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			agent := startAgent(t, test.handler, test.change)
			deltas, err := run(t.Context(), agent, question())
			got := fault.Of(err)
			if err == nil || got.Permanent || got.Public != test.public || len(deltas) != test.deltas {
				t.Errorf("%d deltas, permanent %v, error %v", len(deltas), got.Permanent, err)
			}
		})
	}
}

// oldProtocol answers as Python's http.server does: the end of the body is the end of the connection.
func oldProtocol(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+body)
		_ = conn.Close()
	}
}

func TestOldProtocolMayEndItsStream(t *testing.T) {
	agent := startAgent(t, oldProtocol(delta(`{"kind":"text","text":"Hello"}`)+"event: end\ndata: {}\n\n"), nil)
	deltas, err := run(t.Context(), agent, question())
	if err != nil || folded(t, deltas).Parts[0].Content != "Hello" {
		t.Errorf("%v, %v", deltas, err)
	}
}

func TestUnreachable(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = run(t.Context(), newAgent(t, "http://"+address, nil), question())
	if got := fault.Of(err); got.Permanent || got.Public != upstream.Unreachable {
		t.Errorf("error = %v", err)
	}
}

// TestEndOfContextIsNoFault lets the engine see that its own context ended: that is no one's failure.
func TestEndOfContextIsNoFault(t *testing.T) {
	agent := startAgent(t, stuck, nil)
	reason := errors.New("the server stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(reason) })
	if _, err := run(ctx, agent, question()); !errors.Is(err, reason) || fault.Is(err, fault.Unavailable) {
		t.Errorf("error = %v", err)
	}
}

func TestSlowEngineIsNotTheAgentsFault(t *testing.T) {
	agent := startAgent(t, stream("delta"), func(o *Options) { o.IdleLimit = 50 * time.Millisecond })
	for _, err := range agent.Handle(t.Context(), agenttest.Turn("t", question())) {
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond) // a database that is slow
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	followed := false
	agent := startAgent(t, func(w http.ResponseWriter, r *http.Request) {
		followed = followed || r.URL.Path != "/"
		http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
	}, nil)
	if _, err := run(t.Context(), agent, question()); err == nil || followed {
		t.Errorf("error %v, followed %v", err, followed)
	}
}

func TestNewRefuses(t *testing.T) {
	client := safehttp.New(safehttp.Options{})
	tests := map[string]struct {
		options Options
		field   string
	}{
		"no url":       {Options{Secret: "s", Client: client}, "url"},
		"relative":     {Options{URL: "/hook", Secret: "s", Client: client}, "url"},
		"other scheme": {Options{URL: "ftp://a.example/", Secret: "s", Client: client}, "url"},
		"password":     {Options{URL: "https://u:p@a.example/", Secret: "s", Client: client}, "url"},
		"fragment":     {Options{URL: "https://a.example/#x", Secret: "s", Client: client}, "url"},
		"no secret":    {Options{URL: "https://a.example/", Client: client}, "secret"},
		"same secret":  {Options{URL: "https://a.example/", Secret: "s", PreviousSecret: "s", Client: client}, "previous_secret"},
		"no client":    {Options{URL: "https://a.example/", Secret: "s"}, "client"},
		"negative":     {Options{URL: "https://a.example/", Secret: "s", Client: client, TimeLimit: -1}, "time_limit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := New(test.options); fault.Of(err).Field != test.field {
				t.Errorf("error = %v, want field %s", err, test.field)
			}
		})
	}
}
