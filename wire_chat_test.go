package inbox

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/exchange"
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
		token, _, err := s.server.operator().CreateToken(t.Context(), name, "")
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
		<-s.goOn
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
	response, err := http.DefaultClient.Do(request)
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

func TestChatOverJSONRPC(t *testing.T) {
	s := newChatServer(t)
	for _, method := range []string{"message/send", "tasks/send"} {
		got := s.post("/v1/agent/helper", "", rpcBody(method, "t1", "", "ping")).rpc(t)
		if got.ID != float64(7) || got.Result.ID != "t1" || got.Result.Status.State != "completed" || got.text() != "pong" ||
			got.Result.Status.Message.MessageID != "t1-message" || got.Result.SessionID == "" {
			t.Errorf("%s: %+v", method, got)
		}
	}
	for _, method := range []string{"message/stream", "tasks/sendSubscribe"} {
		response := s.open(http.MethodPost, "/v1/agent/helper", "", rpcBody(method, "t1", "", "ping"))
		if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Errorf("%s: %s", method, kind)
		}
		events := allEvents(response)
		if len(events) != 1 || !strings.Contains(events[0].data, `"text":"pong"`) || events[0].id == "" || events[0].name != "" {
			t.Errorf("%s: %v", method, events)
		}
	}
}

// TestChatRefusals goes through the checks in their order.
func TestChatRefusals(t *testing.T) {
	s := newChatServer(t)
	ada, own := s.token("ada"), ""
	if token, _, err := s.server.operator().CreateToken(t.Context(), "own", "helper"); err == nil {
		own = token
	}
	ping := rpcBody("message/send", "", "", "ping")
	for name, test := range map[string]struct {
		agent, token, body string
		status, code       int
	}{
		"no JSON":                     {"helper", ada, `{`, 200, -32700},
		"no version":                  {"helper", ada, `{"id":1,"method":"message/send"}`, 200, -32600},
		"params before method":        {"helper", ada, `{"jsonrpc":"2.0","id":1,"method":"no","params":{}}`, 200, -32602},
		"method":                      {"helper", ada, rpcBody("no", "", "", "x"), 200, -32601},
		"agent":                       {"nobody", ada, ping, 200, -32603},
		"wrong token":                 {"helper", ada + "x", ping, 401, 0},
		"unknown token":               {"helper", "inbox_" + strings.Repeat("x", 43), ping, 401, 0},
		"token before the body":       {"helper", "x", `{`, 401, 0},
		"guest at a closed agent":     {"closed", "", `{`, 403, 0},
		"token for another agent":     {"closed", own, ping, 403, 0},
		"too large":                   {"helper", ada, rpcBody("message/send", "", "", strings.Repeat("x", 1<<20)), 413, 0},
		"a control character in ids":  {"helper", ada, rpcBody("message/send", "a\x01b", "", "x"), 200, -32602},
		"a session of somebody else":  {"helper", ada, rpcBody("message/send", "", "01a2008f-1168-77f8-8482-9c57098e1a11.0123456789abcdef", "x"), 200, -32603},
		"a file that is nowhere":      {"helper", ada, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"x"},{"type":"file","file":{}}]}}}`, 200, -32602},
		"an event of nobody":          {"helper", ada, rpcBody("message/stream", "", "", "x"), 200, -32603},
		"a file that is not base64":   {"helper", ada, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"x"},{"type":"file","file":{"bytes":"§"}}]}}}`, 200, -32602},
		"a file that may not be read": {"helper", ada, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"x"},{"type":"file","file":{"uri":"file:///etc/passwd"}}]}}}`, 200, -32602},
	} {
		header := []string{}
		if name == "an event of nobody" {
			header = []string{"Last-Event-ID", "01a2008f-1168-77f8-8482-9c57098e1a11.3"}
		}
		got := s.post("/v1/agent/"+test.agent, test.token, test.body, header...)
		if got.status != test.status {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, test.status)
			continue
		}
		if answer := got; test.code != 0 {
			if refused := answer.rpc(t).Error; refused == nil || refused.Code != test.code {
				t.Errorf("%s: %s, want %d", name, got.body, test.code)
			}
		}
		if test.status == 401 && got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: nothing says how to authenticate", name)
		}
	}
	if asked := s.asked.Load(); asked != 0 {
		t.Errorf("%d of the refused messages reached an agent", asked)
	}
}

func TestChatSessions(t *testing.T) {
	s := newChatServer(t)
	ada, bob := s.token("ada"), s.token("bob")
	told := func(want ...string) {
		t.Helper()
		if got := <-s.history; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the agent was told %q, want %q", got, want)
		}
	}
	for _, token := range []string{ada, ""} {
		first := s.post("/v1/agent/remembers", token, rpcBody("message/send", "", "", "one")).rpc(t)
		told()
		session := first.Result.SessionID
		if again := s.post("/v1/agent/remembers", token, rpcBody("message/send", "", session, "two")).rpc(t); again.Result.SessionID != session {
			t.Errorf("session %q becomes %q", session, again.Result.SessionID)
		}
		told("user: one", "assistant: yes")
		for _, other := range []string{bob, ada, ""} {
			if other == token {
				continue
			}
			refused := s.post("/v1/agent/remembers", other, rpcBody("message/send", "", session, "three")).rpc(t).Error
			if refused == nil || refused.Code != -32603 || refused.Message != "The session was not found." {
				t.Errorf("somebody else's session: %+v", refused)
			}
			read := s.open(http.MethodGet, "/v1/chat?agent=remembers", other, "", "Chat-Session", session)
			if read.StatusCode != http.StatusNotFound {
				t.Errorf("somebody else's session reads %d", read.StatusCode)
			}
			_ = read.Body.Close()
		}
	}
	// One name that two choose is two conversations; a guest who brings a name that others guess gets a session of its own.
	for _, token := range []string{ada, bob, "", ""} {
		answer := s.post("/v1/agent/remembers", token, rpcBody("message/send", "", "mine", "x")).rpc(t)
		told()
		if same := answer.Result.SessionID == "mine"; same != (token != "") {
			t.Errorf("session %q", answer.Result.SessionID)
		}
	}
	const id = "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11" // random: whoever knows it made it
	for range 2 {
		if answer := s.post("/v1/agent/remembers", "", rpcBody("message/send", "", id, "x")).rpc(t); answer.Result.SessionID != id {
			t.Errorf("session %q", answer.Result.SessionID)
		}
	}
	told()
	told("user: x", "assistant: yes")
}

// TestChatHistoryOfTheClient is used until the session is kept here, and then never again.
func TestChatHistoryOfTheClient(t *testing.T) {
	s := newChatServer(t)
	body := func(session string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"sessionId":"` + session + `","message":{"parts":[
			{"type":"data","data":{"role":"user","text":"old question"}},{"type":"data","data":{"role":"agent","text":"old answer"}},{"type":"text","text":"new"}]}}}`
	}
	token := s.token("ada")
	for _, want := range [][]string{
		{"user: old question", "assistant: old answer"},
		{"user: old question", "assistant: old answer", "user: new", "assistant: yes"},
	} {
		s.post("/v1/agent/remembers", token, body("s")).rpc(t)
		if got := <-s.history; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the agent was told %q, want %q", got, want)
		}
	}
}

func TestChatToolResults(t *testing.T) {
	s := newChatServer(t)
	s.post("/v1/agent/tools", "", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"metadata":{"page":"/a"},"message":{"parts":[
		{"type":"data","data":{"toolCallId":"c1","toolId":"map","arguments":{"q":"Rome"}}},{"type":"data","data":{"toolCallId":"c1","result":null}},
		{"type":"data","data":{"clientContext":{"room":"blue"}}},{"type":"file","file":{"name":"a.txt","mimeType":"text/plain","bytes":"aGk="}}]}}}`).rpc(t)
	turn := <-s.requests
	call, file := turn.Message.Parts[0], turn.Message.Parts[1]
	if call.Kind != normalized.PartToolCall || call.ID != "c1" || call.Name != "map" || string(call.Args) != `{"q":"Rome"}` {
		t.Errorf("call %+v", call)
	}
	if content, err := file.BytesRef.Bytes(); file.Name != "a.txt" || string(content) != "hi" || err != nil {
		t.Errorf("file %+v, %v", file, err)
	}
	said := string(turn.Message.Sender.Profile.Extensions["dev.inbox.chat"])
	for _, want := range []string{`"room":"blue"`, `"source":"jsonrpc"`, `"page":"/a"`} {
		if !strings.Contains(said, want) {
			t.Errorf("context %s lacks %s", said, want)
		}
	}
	if turn.Message.ReceivedVia != normalized.ViaA2A || turn.Message.Sender.Verified || len(turn.Message.Sender.Identities) > 0 {
		t.Errorf("sender %+v", turn.Message.Sender)
	}
}

// TestChatRepeats sends one message often, at once and after its answer: one run.
func TestChatRepeats(t *testing.T) {
	s := newChatServer(t)
	token := s.token("ada")
	named := `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"messageId":"m1","parts":[{"type":"text","text":"ping"}]}}}`
	for name, test := range map[string]struct{ token, body string }{
		"run of a token":     {token, rpcBody("message/send", "r1", "", "ping")},
		"run of a guest":     {"", rpcBody("message/send", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11", "", "ping")},
		"message of a token": {token, named},
	} {
		s.asked.Store(0)
		var answers sync.Map
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() { answers.Store(s.post("/v1/agent/helper", test.token, test.body).body, true) })
		}
		group.Wait()
		different := 0
		answers.Range(func(any, any) bool { different++; return true })
		if s.asked.Load() != 1 || different != 1 {
			t.Errorf("%s: %d runs, %d different answers", name, s.asked.Load(), different)
		}
	}
	if refused := s.post("/v1/agent/helper", token, rpcBody("message/send", "r1", "", "other")).rpc(t).Error; refused == nil || refused.Code != -32603 {
		t.Errorf("a run with another message: %+v", refused)
	}
}

// TestChatResume cuts a stream off after its first words and goes on where it ended.
func TestChatResume(t *testing.T) {
	s := newChatServer(t)
	body := rpcBody("message/stream", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11", "", "go")
	first := s.open(http.MethodPost, "/v1/agent/slow", "", body)
	event, ok := nextEvent(bufio.NewReader(first.Body))
	if !ok || !strings.Contains(event.data, `"content":"Hel"`) || !strings.Contains(event.data, `"method":"message/delta"`) {
		t.Fatalf("first event %+v", event)
	}
	_ = first.Body.Close()
	close(s.goOn)
	rest := allEvents(s.open(http.MethodPost, "/v1/agent/slow", "", body, "Last-Event-ID", event.id))
	last := rest[len(rest)-1]
	for _, one := range rest[:len(rest)-1] {
		if strings.Contains(one.data, "Hel") || !strings.Contains(one.data, `"lo"`) {
			t.Errorf("the rest has %s", one.data)
		}
	}
	if !strings.Contains(last.data, `"text":"Hello"`) || !strings.Contains(last.data, `"completed"`) || s.asked.Load() != 1 {
		t.Errorf("last event %+v after %d runs", last, s.asked.Load())
	}
	whole := allEvents(s.open(http.MethodPost, "/v1/agent/slow", "", body))
	if len(whole) < 2 || !strings.Contains(whole[0].data, "Hel") || whole[len(whole)-1] != last {
		t.Errorf("from the beginning: %v", whole)
	}
	silent := strings.Replace(body, `"jsonrpc"`, `"tokenStreaming":false,"jsonrpc"`, 1)
	if events := allEvents(s.open(http.MethodPost, "/v1/agent/slow", "", silent)); len(events) != 1 {
		t.Errorf("without tokens: %v", events)
	}
}

func TestRESTChat(t *testing.T) {
	s := newChatServer(t)
	first := s.open(http.MethodPost, "/v1/chat", "", `{"agent":"slow","message":"go"}`, "Accept", "text/event-stream")
	reader := bufio.NewReader(first.Body)
	begin, _ := nextEvent(reader)
	var started struct {
		Session string `json:"session"`
		RunID   string `json:"run_id"`
		EventID string `json:"event_id"`
	}
	if err := json.Unmarshal([]byte(begin.data), &started); err != nil || begin.name != "start" {
		t.Fatal(begin, err)
	}
	delta, _ := nextEvent(reader)
	_ = first.Body.Close()
	if delta.name != "delta" || delta.data != `{"text":"Hel"}` {
		t.Errorf("delta %+v", delta)
	}
	read := func() string {
		response := s.open(http.MethodGet, "/v1/chat?agent=slow", "", "", "Chat-Session", started.Session)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.StatusCode, err, string(body))
		}
		return string(body)
	}
	if body := read(); !strings.Contains(body, `"content":"go"`) || !strings.Contains(body, `"event_id":"`+started.EventID+`"`) {
		t.Errorf("session %s", body)
	}
	close(s.goOn)
	rest := allEvents(s.open(http.MethodGet, "/v1/chat?agent=slow", "", "", "Chat-Session", started.Session, "Accept", "text/event-stream", "Last-Event-ID", delta.id))
	if last := rest[len(rest)-1]; last.name != "reply" || !strings.Contains(last.data, `"reply":"Hello"`) || strings.Contains(rest[1].data, "Hel\"") {
		t.Errorf("rest %v", rest)
	}
	if body := read(); !strings.Contains(body, `"content":"Hello"`) || strings.Contains(body, "running") {
		t.Errorf("session %s", body)
	}
	for body, status := range map[string]int{
		`{"agent":"helper"}`: 400, `{"message":"x"}`: 400, `[]`: 400, `{`: 400, `{"agent":"nobody","message":"x"}`: 404,
		`{"agent":"closed","message":"x"}`: 403, `{"agent":"helper","message":"x"}`: 200,
	} {
		if got := s.post("/v1/chat", "", body); got.status != status {
			t.Errorf("%s: %d %s, want %d", body, got.status, got.body, status)
		}
	}
	if got := s.post("/v1/chat", "", `{"agent":"helper","message":"x"}`, "Content-Type", "text/plain"); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form of a stranger's page: %d", got.status)
	}
}

func TestChatOrigins(t *testing.T) {
	s := newChatServer(t, "INBOX_CHAT_ALLOWED_ORIGINS=https://www.example.com")
	for origin, want := range map[string]string{"https://www.example.com": "https://www.example.com", "https://evil.example": ""} {
		asked := s.open(http.MethodOptions, "/v1/agent/helper", "", "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,content-type")
		_ = asked.Body.Close()
		if got := asked.Header.Get("Access-Control-Allow-Origin"); got != want || asked.StatusCode != http.StatusNoContent {
			t.Errorf("preflight from %s: %d %q", origin, asked.StatusCode, got)
		}
		if got := s.post("/v1/agent/helper", "", rpcBody("message/send", "", "", "x"), "Origin", origin); got.header.Get("Access-Control-Allow-Origin") != want ||
			got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("answer to %s: %v", origin, got.header)
		}
	}
}
