package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/e2e/instance"
)

// TestOpenAIClient talks to an agent with OpenAI's own SDK for JavaScript.
func TestOpenAIClient(t *testing.T) {
	t.Parallel()
	model := startChatModel(t)
	s := start(t, model.agents())
	key := lastLine(s.inbox("tokens", "create", "app"))
	input, output := node(t, "openai/client.mjs", s.URL()+"/v1", key, "counter")
	type usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
	type refusal struct {
		Type, Code string
		Status     int
	}
	var seen struct {
		Models []string
		Model  string
		Whole  struct {
			Text, Finish, ID string
			Usage            usage
		}
		Stream struct {
			Text, Finish string
			Chunks       int
			Usage        usage
		}
		Helper, Address string
		Repeated        struct {
			Text string
			Sent int
		}
		Refused struct{ Key, Model, Failed, FailedStream, Two refusal }
	}
	readJSON(t, output, &seen)
	const said = "One, two, three."
	if strings.Join(seen.Models, " ") != "counter echo closed" || seen.Model != "counter" {
		t.Errorf("models %q, %q", seen.Models, seen.Model)
	}
	if seen.Whole.Text != said || seen.Whole.Finish != "stop" || (seen.Whole.Usage != usage{11, 4, 15}) || !strings.HasPrefix(seen.Whole.ID, "chatcmpl-") {
		t.Errorf("whole answer %+v", seen.Whole)
	}
	if seen.Stream.Text != said || seen.Stream.Finish != "stop" || (seen.Stream.Usage != usage{11, 4, 15}) || seen.Stream.Chunks < 3 {
		t.Errorf("streamed answer %+v", seen.Stream)
	}
	if seen.Repeated.Text != said || seen.Repeated.Sent != 2 || seen.Address != "counter" {
		t.Errorf("repeated %+v, address %q", seen.Repeated, seen.Address)
	}
	if seen.Helper != said {
		t.Errorf("the SDK's helper has %q", seen.Helper)
	}
	for what, test := range map[string]struct {
		got    refusal
		kind   string
		status int
		code   string
	}{
		"key": {seen.Refused.Key, "AuthenticationError", 401, "invalid_api_key"}, "model": {seen.Refused.Model, "NotFoundError", 404, "model_not_found"},
		"failed":      {seen.Refused.Failed, "InternalServerError", 500, "model:rejected"},
		"two answers": {seen.Refused.Two, "BadRequestError", 400, "malformed"}, "failed stream": {seen.Refused.FailedStream, "APIError", 0, "model:rejected"},
	} {
		if test.got.Type != test.kind || test.got.Status != test.status || test.got.Code != test.code {
			t.Errorf("%s: %+v", what, test.got)
		}
	}
	if asked := model.asked.Load(); asked != 7 { // whole, streamed, the helper, two failures, one that is repeated, one that is left
		t.Errorf("the model was asked %d times", asked)
	}
	model.release()
	if _, err := io.WriteString(input, "back\n"); err != nil {
		t.Fatal(err)
	}
	var back struct{ Text string }
	if readJSON(t, output, &back); back.Text != said || model.asked.Load() != 7 {
		t.Errorf("who comes back hears %q after %d questions to the model", back.Text, model.asked.Load())
	}
	// Each request brings its whole conversation, and nothing of it is told twice.
	model.mu.Lock()
	defer model.mu.Unlock()
	for _, conversation := range model.heard[:3] {
		for _, said := range []string{"first question", "first answer", "second question"} {
			if count := strings.Count(conversation, said); count != 1 {
				t.Errorf("the model hears %q %d times: %s", said, count, conversation)
			}
		}
	}
}

// TestOpenAIClientTools: the tool runner of OpenAI's SDK executes a tool for an agent.
func TestOpenAIClientTools(t *testing.T) {
	t.Parallel()
	s := start(t, instance.Settings{Agents: shelf(startModel(t, looksUp), "1h", "") + "asker = true\n"})
	key := lastLine(s.inbox("tokens", "create", "app"))
	_, output := node(t, "openai/tools.mjs", s.URL()+"/v1", key, "memory")
	var seen struct {
		Whole, Streamed string
		Asked           []string
	}
	if readJSON(t, output, &seen); seen.Whole != "Well: Yes, there are three." || seen.Streamed != seen.Whole || strings.Join(seen.Asked, "+") != "milk+milk" {
		t.Errorf("the SDK saw %+v", seen)
	}
}

// chatAnswer is how an endpoint of the chat answered.
type chatAnswer struct {
	status    int
	challenge string
	body      string
}

// shown sends a request of the chat with an Authorization header and proofs of possession.
func (s *server) shown(method, path, body, authorization string, header ...string) chatAnswer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return chatAnswer{response.StatusCode, strings.Join(response.Header.Values("WWW-Authenticate"), " | "), string(content)}
}

func startChatWithIssuer(t *testing.T) (*server, *oauthServer) {
	t.Helper()
	issuer := startOAuth(t)
	return start(t, instance.Settings{
		Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\naccess = \"public\"\n[[agents]]\nname = \"other\"\nkind = \"echo\"\naccess = \"public\"\n",
		More:   fmt.Sprintf("[[a2a.issuers]]\nissuer = %q\njwks_url = %q\n", issuer.URL, issuer.URL+"/jwks"),
	}), issuer
}

// TestChatTakesTokensOfIssuers: the same tokens as A2A, on each way into the chat, and none that A2A refuses.
func TestChatTakesTokensOfIssuers(t *testing.T) {
	t.Parallel()
	s, issuer := startChatWithIssuer(t)
	const rpc = `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"hi"}]}}}`
	const rest = `{"agent":"echo","message":"hi"}`
	const openAI = `{"model":"echo","messages":[{"role":"user","content":"hi"}]}`
	ways := map[string]func(authorization string, header ...string) chatAnswer{
		"JSON-RPC": func(shown string, more ...string) chatAnswer {
			return s.shown("POST", "/v1/agent/echo", rpc, shown, more...)
		},
		"REST": func(shown string, more ...string) chatAnswer {
			return s.shown("POST", "/v1/chat", rest, shown, more...)
		},
		"OpenAI": func(shown string, more ...string) chatAnswer {
			return s.shown("POST", "/v1/chat/completions", openAI, shown, more...)
		},
	}
	here, chat := s.URL()+"/a2a/echo", s.URL()+"/v1/agent/echo"
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	bound := newHolder()
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"good":                    {issuer.token("k1", here, nil, nil), 200},
		"made out to the chat":    {issuer.token("k1", chat, nil, nil), 200},
		"alg none":                {issuer.token("k1", here, jsonObject{"alg": "none"}, nil), 401},
		"HS256 with public key":   {issuer.token("k1", here, jsonObject{"alg": "HS256"}, nil), 401},
		"unknown key":             {issuer.token("k1", here, jsonObject{"kid": "k9"}, nil), 401},
		"another agent's":         {issuer.token("k1", s.URL()+"/a2a/other", nil, nil), 401},
		"another agent's chat":    {issuer.token("k1", s.URL()+"/v1/agent/other", nil, nil), 401},
		"aud of the server":       {issuer.token("k1", s.URL(), nil, nil), 401},
		"no aud":                  {issuer.token("k1", here, nil, jsonObject{"aud": nil}), 401},
		"another issuer":          {issuer.token("k1", here, nil, jsonObject{"iss": "https://login.example"}), 401},
		"expired":                 {issuer.token("k1", here, nil, jsonObject{"iat": at(-time.Hour), "exp": at(-time.Minute)}), 401},
		"not yet":                 {issuer.token("k1", here, nil, jsonObject{"nbf": at(time.Minute)}), 401},
		"ID token":                {issuer.token("k1", here, nil, jsonObject{"nonce": "n"}), 401},
		"changed":                 {issuer.token("k1", here, nil, nil) + "A", 401},
		"bound to a key, as such": {issuer.token("k1", here, nil, jsonObject{"cnf": jsonObject{"jkt": bound.thumbprint()}}), 401},
		"only to read":            {issuer.token("k1", here, nil, jsonObject{"scope": "a2a:read"}), 403},
	} {
		for way, send := range ways {
			got := send("Bearer " + c.token)
			if got.status != c.want {
				t.Errorf("%s by %s: %d %s, want %d", name, way, got.status, got.body, c.want)
			}
			want := map[int]string{200: "", 401: `error="invalid_token"`, 403: `error="insufficient_scope", scope="a2a:send"`}[c.want]
			if !strings.Contains(got.challenge, want) || c.want != 200 && !strings.Contains(got.challenge, "resource_metadata=") {
				t.Errorf("%s by %s: challenge %q", name, way, got.challenge)
			}
		}
	}
	if got := s.shown("POST", "/v1/agent/nobody", rpc, "Bearer "+issuer.token("k1", here, nil, nil)); got.status != 401 {
		t.Errorf("a token at an agent that is not there: %d %s", got.status, got.body)
	}
	token := issuer.token("k1", here, nil, jsonObject{"cnf": jsonObject{"jkt": bound.thumbprint()}})
	proof := bound.proof(token, "POST", chat, nil)
	if got := ways["JSON-RPC"]("DPoP "+token, "DPoP", proof); got.status != 200 {
		t.Errorf("with a proof: %d %s", got.status, got.body)
	}
	if got := ways["JSON-RPC"]("DPoP "+token, "DPoP", proof); got.status != 401 || !strings.Contains(got.challenge, "invalid_dpop_proof") {
		t.Errorf("the proof again: %d %s", got.status, got.challenge)
	}
	if got := ways["REST"]("Bearer "+issuer.token("k1", here, nil, nil), "Authorization", "Bearer x"); got.status != 401 {
		t.Errorf("two tokens: %d %s", got.status, got.body)
	}
}

// TestSessionsOfIssuedTokens belong to the subject, whichever token it shows, and to no one else.
func TestSessionsOfIssuedTokens(t *testing.T) {
	t.Parallel()
	s, issuer := startChatWithIssuer(t)
	here := s.URL() + "/a2a/echo"
	shown := func(sub, scope string) string {
		return "Bearer " + issuer.token("k1", here, nil, jsonObject{"sub": sub, "scope": scope})
	}
	const both = "a2a:send a2a:read"
	if got := s.shown("POST", "/v1/chat", `{"agent":"echo","message":"hi","session":"mine"}`, shown("cy", both)); got.status != 200 {
		t.Fatal(got)
	}
	for name, c := range map[string]struct {
		authorization string
		want          int
	}{
		"its owner": {shown("cy", "a2a:read"), 200}, "somebody else": {shown("di", both), 404}, "who may only send": {shown("cy", "a2a:send"), 403}, "a guest": {"", 403},
	} {
		if got := s.shown("GET", "/v1/chat?agent=echo", "", c.authorization, "Chat-Session", "mine"); got.status != c.want {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, c.want)
		}
	}
}

const chatRun = "0f6c3b1e-58b3-4c52-9a57-9d0f2f0c3a11"

// openChat sends a streaming request to the agent "counter" and returns its events.
func openChat(ctx context.Context, t *testing.T, s *server, lastEvent string) (*bufio.Reader, func()) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"id":"` + chatRun + `","message":{"parts":[{"type":"text","text":"count slowly"}]}}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/v1/agent/counter", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if lastEvent != "" {
		request.Header.Set("Last-Event-ID", lastEvent)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("stream: %d", response.StatusCode)
	}
	return bufio.NewReader(response.Body), func() { _ = response.Body.Close() }
}

// chatEvent reads one event: its id and its data.
func chatEvent(t *testing.T, reader *bufio.Reader) (id, data string) {
	t.Helper()
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ends: %v", err)
		}
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case field == "id":
			id = value
		case field == "data":
			data = value
		case field == "" && data != "":
			return id, data
		}
	}
}

// TestChatOutlivesACrash kills the server amid an answer. The client asks for the rest, gets no word twice and one answer,
// and the message is there once.
//
//contract:shows channels-28
func TestChatOutlivesACrash(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		model := startChatModel(t)
		settings := model.agents()
		settings.Database, settings.Lease = database, "1s"
		s := start(t, settings)
		reader, leave := openChat(t.Context(), t, s, "")
		id, data := chatEvent(t, reader)
		if !strings.Contains(data, `"content":"One, two"`) || id == "" {
			t.Fatalf("first event %q %s", id, data)
		}
		s.killed()
		leave()
		reader, leave = openChat(t.Context(), t, s, id)
		defer leave()
		eventually(t, "the model is asked again", func() bool { return model.asked.Load() == 2 })
		model.release()
		for !strings.Contains(data, `"result"`) {
			if _, data = chatEvent(t, reader); strings.Contains(data, "message/delta") && strings.Contains(data, "One") {
				t.Errorf("the reader gets again %s", data)
			}
		}
		if !strings.Contains(data, `"text":"One, two, three."`) || !strings.Contains(data, `"completed"`) {
			t.Errorf("last event %s", data)
		}
		if rows := s.rows(); rows["turns"] != 1 || rows["replies"] != 1 {
			t.Errorf("rows %v", rows)
		}
	})
}

// chatModel is a model that says "One, two" at once, and "three." when it is let go or was not asked to wait. To a
// message with the word "fail" it has no answer.
type chatModel struct {
	URL   string
	asked atomic.Int64

	mu      sync.Mutex
	waiting chan struct{}
	heard   []string // the texts of its conversations, joined
}

func startChatModel(t *testing.T) *chatModel {
	t.Helper()
	model := &chatModel{waiting: make(chan struct{})}
	server := httptest.NewServer(model)
	t.Cleanup(func() {
		model.release()
		server.Close()
	})
	model.URL = server.URL
	return model
}

// release lets all answers go on, and those that come later wait anew.
func (m *chatModel) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.waiting)
	m.waiting = make(chan struct{})
}

func (m *chatModel) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	content, _ := io.ReadAll(request.Body)
	var body struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	_ = json.Unmarshal(content, &body)
	last := string(body.Messages[len(body.Messages)-1].Content)
	m.mu.Lock()
	m.heard = append(m.heard, string(content))
	waiting := m.waiting
	m.mu.Unlock()
	m.asked.Add(1)
	if strings.Contains(last, "fail") {
		http.Error(writer, `{"error":{"message":"no"}}`, http.StatusBadRequest)
		return
	}
	writer.Header().Set("Content-Type", "text/event-stream")
	say := func(text string) {
		_, _ = fmt.Fprintf(writer, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
		_ = http.NewResponseController(writer).Flush()
	}
	say("One, two")
	if strings.Contains(last, "slowly") {
		select {
		case <-waiting:
		case <-request.Context().Done():
			return
		}
	}
	say(", three.")
	_, _ = io.WriteString(writer, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":4,\"total_tokens\":15}}\n\ndata: [DONE]\n\n")
}

// agents are one that counts, one that echoes, and one that takes no guests.
func (m *chatModel) agents() instance.Settings {
	return instance.Settings{Agents: fmt.Sprintf("[[agents]]\nname = \"counter\"\nkind = \"llm\"\ndisplay_name = \"Counter\"\naccess = \"public\"\nunverified = \"answer\"\n"+
		"[agents.llm]\nbase_url = %q\nmodel = \"scripted\"\n"+
		"[[agents]]\nname = \"echo\"\nkind = \"echo\"\nunverified = \"answer\"\n[[agents]]\nname = \"closed\"\nkind = \"echo\"\n", m.URL+"/v1")}
}
