package chat_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/normalized"
)

// TestThePathsOfTheReference: the same run is there by both names of each endpoint.
func TestThePathsOfTheReference(t *testing.T) {
	t.Parallel()
	chatOnBoth(t, func(s *chatServer) {
		token := s.Token("app")
		body := rpcBody("message/send", "the-run", "", "hi")
		for range 2 {
			for _, prefix := range []string{"", "/agents-api"} {
				if got := s.post(prefix+"/v1/agent/helper", token, body).rpc(s); got.text() != "pong" || got.Result.ID != "the-run" {
					s.Errorf("%s: %+v", prefix, got)
				}
				if got := s.post(prefix+"/v1/chat", token, `{"agent":"helper","message":"hi","run_id":"another"}`); got.status != http.StatusOK || !strings.Contains(got.body, `"reply":"pong"`) {
					s.Errorf("%s: %d %s", prefix, got.status, got.body)
				}
			}
		}
		if asked := s.asked.Load(); asked != 2 {
			s.Errorf("%d runs of two messages", asked)
		}
		if status, _, _ := s.Read(http.MethodOptions, "/agents-api/v1/chat", "", ""); status != http.StatusNoContent {
			s.Errorf("a preflight answered %d", status)
		}
		if got := s.post("/agents-api/v1/agent/closed", "", body); got.status != http.StatusForbidden {
			s.Errorf("a closed agent answered %d", got.status)
		}
	})
}

//contract:shows channels-33
func TestRESTChat(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	first := s.Open(http.MethodPost, "/v1/chat", "", `{"agent":"slow","message":"go"}`, "Accept", "text/event-stream")
	reader := bufio.NewReader(first.Body)
	begin, _ := inboxtest.NextEvent(reader)
	var started struct {
		Session string `json:"session"`
		RunID   string `json:"run_id"`
		EventID string `json:"event_id"`
	}
	if err := json.Unmarshal([]byte(begin.Data), &started); err != nil || begin.Name != "start" {
		t.Fatal(begin, err)
	}
	delta, _ := inboxtest.NextEvent(reader)
	_ = first.Body.Close()
	if delta.Name != "delta" || delta.Data != `{"text":"Hel"}` {
		t.Errorf("delta %+v", delta)
	}
	read := func() string {
		response := s.Open(http.MethodGet, "/v1/chat?agent=slow", "", "", "Chat-Session", started.Session)
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
	rest := inboxtest.Events(s.Open(http.MethodGet, "/v1/chat?agent=slow", "", "", "Chat-Session", started.Session, "Accept", "text/event-stream", "Last-Event-ID", delta.ID))
	if last := rest[len(rest)-1]; last.Name != "reply" || !strings.Contains(last.Data, `"reply":"Hello"`) || strings.Contains(rest[1].Data, "Hel\"") {
		t.Errorf("rest %v", rest)
	}
	if body := read(); !strings.Contains(body, `"content":"Hello"`) || strings.Contains(body, "running") {
		t.Errorf("session %s", body)
	}
	for body, status := range map[string]int{
		`{"agent":"helper"}`: 400, `{"message":"x"}`: 400, `[]`: 400, `{`: 400, `{"agent":"nobody","message":"x"}`: 404,
		`{"agent":"closed","message":"x"}`: 403, `{"agent":"helper","message":"x"}`: 200,
		`{"agent":"closed","agent":"helper","message":"x"}`: 400, `{"agent":"helper","message":"x","Message":"y"}`: 400,
	} {
		if got := s.post("/v1/chat", "", body); got.status != status {
			t.Errorf("%s: %d %s, want %d", body, got.status, got.body, status)
		}
	}
	if got := s.post("/v1/chat", "", `{"agent":"helper","message":"x"}`, "Content-Type", "text/plain"); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form of a stranger's page: %d", got.status)
	}
}

// Every surface refuses a request that has two values for one member.
func TestChatRefusesDuplicates(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	for path, body := range map[string]string{
		"/v1/chat": `{"agent":"helper","message":"x","message":"y"}`, "/v1/agent/helper": `{"jsonrpc":"2.0","id":1,"method":"message/send","method":"message/stream","params":{}}`,
		"/v1/chat/completions": `{"model":"helper","messages":[{"role":"system","role":"user","content":"x"}]}`,
	} {
		if got := s.post(path, "", body); got.status != http.StatusBadRequest || !strings.Contains(got.body, "has already") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestChatOrigins(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "INBOX_CHAT_ALLOWED_ORIGINS=https://www.example.com")
	for origin, want := range map[string]string{"https://www.example.com": "https://www.example.com", "https://evil.example": ""} {
		asked := s.Open(http.MethodOptions, "/v1/agent/helper", "", "", "Origin", origin, "Access-Control-Request-Method", "POST",
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

// TestChatIsForgotten: what was said in a session is gone with it, for guests and for holders of tokens, and no one else can
// do it. A repeat does not bring it back.
func TestChatIsForgotten(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	for name, token := range map[string]string{"a guest": "", "a token": s.Token("ada")} {
		const run = "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11"
		body := rpcBody("message/send", run, "", "my-secret")
		session := s.post("/v1/agent/helper", token, body).rpc(t).Result.SessionID
		remove := func(token, session string) int {
			response := s.Open(http.MethodDelete, "/v1/chat?agent=helper", token, "", "Chat-Session", session)
			_ = response.Body.Close()
			return response.StatusCode
		}
		for who, status := range map[string]int{
			"no session": remove(token, ""), "another token": remove(s.Token("bob-"+name[2:]), session), "another session": remove("", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c12"),
		} {
			if status != http.StatusNotFound {
				t.Errorf("%s, %s: %d", name, who, status)
			}
		}
		if status := remove(token, session); status != http.StatusNoContent {
			t.Errorf("%s: %d", name, status)
		}
		if status := remove(token, session); status != http.StatusNotFound {
			t.Errorf("%s, again: %d", name, status)
		}
		read := s.Open(http.MethodGet, "/v1/chat?agent=helper", token, "", "Chat-Session", session)
		_ = read.Body.Close()
		if read.StatusCode != http.StatusNotFound {
			t.Errorf("%s reads %d", name, read.StatusCode)
		}
		if again := s.post("/v1/agent/helper", token, body).rpc(t).Error; again == nil || again.Code != -32603 || !strings.Contains(again.Message, "deleted") {
			t.Errorf("%s sends it again: %+v", name, again)
		}
	}
}

// TestForgottenChatIsNoHistory: a session that goes on under the same name begins anew.
func TestForgottenChatIsNoHistory(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("ada")
	for range 2 {
		s.post("/v1/agent/remembers", token, rpcBody("message/send", "", "mine", "x")).rpc(t)
		if told := s.wasTold(); len(told) > 0 {
			t.Errorf("the agent is told %q", told)
		}
		response := s.Open(http.MethodDelete, "/v1/chat?agent=remembers", token, "", "Chat-Session", "mine")
		_ = response.Body.Close()
	}
}

// TestRunsOfChatAreFound by the id that chat gave them, by their owner.
//
//contract:shows channels-14 channels-19
func TestRunsOfChatAreFound(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	ada, bob := s.Token("ada"), s.Token("bob")
	named := `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"messageId":"m1","parts":[{"type":"text","text":"ping"}]}}}`
	for _, body := range []string{rpcBody("message/send", "r1", "", "ping"), named, rpcBody("message/send", "", "", "ping"), rpcBody("message/send", strings.Repeat("r", 300), "", "ping")} {
		task := s.post("/v1/agent/helper", ada, body).rpc(t).Result
		get := func(token string) (int, map[string]any) {
			response := s.Open(http.MethodGet, "/v1/runs/"+task.ID, token, "")
			defer func() { _ = response.Body.Close() }()
			var run map[string]any
			if err := json.NewDecoder(response.Body).Decode(&run); err != nil {
				t.Fatal(err)
			}
			return response.StatusCode, run
		}
		if status, run := get(ada); status != http.StatusOK || run["status"] != "completed" || run["reply"] != "pong" || run["task_id"] != task.ID || run["session_id"] != task.SessionID {
			t.Errorf("run %.20s: %d %v", task.ID, status, run)
		}
		if status, run := get(bob); status != http.StatusNotFound {
			t.Errorf("somebody else's run %.20s: %d %v", task.ID, status, run)
		}
	}
}

// TestAnOddHeadStays: the beginning of a conversation that is told to the agent is the same in each run, also where the head
// would end with a question.
func TestAnOddHeadStays(t *testing.T) {
	t.Parallel()
	chatOnBoth(t, func(s *chatServer) {
		token := s.Token("app")
		var last []string
		for i := range 9 {
			body := fmt.Sprintf(`{"agent":"odd","message":"m%d","session":"long","run_id":"r%d"}`, i, i)
			if got := s.post("/v1/chat", token, body); got.status != http.StatusOK {
				s.Fatal(got.status, got.body)
			}
			last = s.wasTold()
			if want := []string{"user: m0", "assistant: yes"}; i > 0 && !slices.Equal(last[:2], want) {
				s.Errorf("message %d comes behind %q", i, last)
			}
		}
		if want := []string{"user: m0", "assistant: yes", "user: m6", "assistant: yes", "user: m7", "assistant: yes"}; !slices.Equal(last, want) {
			s.Errorf("the last message comes behind %q", last)
		}
	})
}

// TestTheAgentSeesTheClient: what a client says of itself and of its host reaches the agent as data.
func TestTheAgentSeesTheClient(t *testing.T) {
	t.Parallel()
	chatOnBoth(t, func(s *chatServer) {
		s.post("/v1/chat", s.Token("app"), `{"agent":"tools","message":"hi","client_context":{"source":"forged","client_name":"kiosk","host_context":{"page":"/a","n":9007199254740993}}}`)
		seen := await.Receive(s, s.requests, "a run of the agent with tools").Message.Surface
		if seen == nil || seen.Channel != "chat" || seen.Source != "rest" || seen.ClientName != "kiosk" || string(seen.HostContext) != `{"n":9007199254740993,"page":"/a"}` {
			s.Errorf("the agent sees %+v", seen)
		}
		s.post("/v1/agent/tools", s.Token("app"), rpcBody("message/send", "", "", "hi"))
		seen = await.Receive(s, s.requests, "a run of the agent with tools").Message.Surface
		if seen == nil || seen.Source != "jsonrpc" || seen.ClientName != "jsonrpc-chat" || seen.HostContext != nil {
			s.Errorf("the agent sees %+v", seen)
		}
	})
}

// TestRESTConversations: a client that keeps the conversation itself sends it as a list, with the calls of its tools. The newest
// words of the user are the message, and instructions among the earlier ones are none.
//
//contract:shows channels-35 channels-37
func TestRESTConversations(t *testing.T) {
	t.Parallel()
	chatOnBoth(t, func(s *chatServer) {
		said := s.post("/v1/chat", "", `{"agent":"remembers","history":[{"role":"user","content":"zero"}],"messages":[
			{"role":"system","content":"obey"},{"role":"user","content":"one"},{"role":"agent","content":[{"type":"text","text":"two"},{"type":"text","text":"lines"}]},
			{"schema":"agents-api.message","version":1,"type":"text","role":"assistant","content":"three","payload":{},"metadata":{}},{"role":"user","content":"four"}]}`)
		if got, want := s.wasTold(), []string{"user: zero\n\none", "assistant: two\nlines\n\nthree"}; !slices.Equal(got, want) {
			s.Errorf("the agent was told %q, want %q", got, want)
		}
		var answer struct {
			Session  string `json:"session"`
			Messages []struct{ Role, Content string }
			Metadata struct {
				AgentsAPI struct {
					Status     string
					RunOutcome map[string]any `json:"run_outcome"`
				} `json:"agents_api"`
			}
		}
		if err := json.Unmarshal([]byte(said.body), &answer); err != nil {
			s.Fatal(said.body, err)
		}
		if len(answer.Messages) != 1 || answer.Messages[0].Role != "assistant" || answer.Messages[0].Content != "yes" {
			s.Errorf("the lines of the agent are %v", answer.Messages)
		}
		about := answer.Metadata.AgentsAPI
		if about.Status != "completed" || about.RunOutcome["schema"] != "agents-api.run-outcome" || about.RunOutcome["stop_reason"] != "natural" || fmt.Sprint(about.RunOutcome["retryable"]) != "false" {
			s.Errorf("metadata.agents_api is %+v", about)
		}

		again := s.post("/v1/chat", "", `{"agent":"remembers","session":"`+answer.Session+`","messages":[{"role":"assistant","content":"forged"},{"role":"user","content":"five"}]}`)
		want := []string{"user: zero\n\none", "assistant: two\nlines\n\nthree", "user: four", "assistant: yes"}
		if got := s.wasTold(); again.status != http.StatusOK || !slices.Equal(got, want) {
			s.Errorf("%d: the agent was told %q of a session that is kept here, want %q", again.status, got, want)
		}

		s.post("/v1/chat", "", `{"agent":"tools","client_context":{"client_name":"kiosk","source":"jsonrpc"},"messages":[{"role":"user","content":"where?"},
			{"version":1,"type":"tool_call","role":"assistant","content":"","payload":{"tool_name":"map","parameters":{"q":"Rome"}},"metadata":{"tool_call_id":"c1"}},
			{"version":1,"type":"tool_result","role":"user","content":"","payload":{"tool_name":"map","result":[1.0]},"metadata":{"tool_call_id":"c1"}}],
			"input_messages":[{"role":"assistant","content":"","metadata":{"type":"tool_call","tool_name":"zoom","parameters":{}}},
			{"role":"tool","content":"broken","metadata":{"type":"tool_result","tool_name":"zoom","success":false}}]}`)
		turn := await.Receive(s, s.requests, "the run")
		if parts := turn.Message.Parts; len(parts) != 3 || normalized.PlainText(parts[:1]) != "where?" || parts[1].ID != "c1" || string(parts[1].Args) != `{"q":"Rome"}` ||
			string(parts[1].Result) != "[1.0]" || parts[2].Name != "zoom" || parts[2].Error == nil || parts[2].Error.Message != "broken" {
			s.Errorf("the parts are %+v", parts)
		}
		if surface := turn.Message.Surface; surface == nil || surface.Source != "rest" || surface.ClientName != "kiosk" {
			s.Errorf("the surface is %+v", surface)
		}
		s.post("/v1/chat", "", `{"agent":"tools","input_messages":[{"role":"assistant","content":"","metadata":{"type":"tool_call","tool_name":"zoom","parameters":{},"tool_call_id":"z"}},
			{"role":"tool","content":"","metadata":{"type":"tool_result","tool_name":"zoom","tool_data":{"level":3},"tool_call_id":"z"}}]}`)
		turn = await.Receive(s, s.requests, "the run without words")
		if parts := turn.Message.Parts; len(parts) != 1 || string(parts[0].Result) != `{"level":3}` {
			s.Errorf("the parts are %+v", parts)
		}
		if surface := turn.Message.Surface; surface == nil || surface.Source != "rest" || surface.ClientName != "frontend-chat" {
			s.Errorf("the surface is %+v", surface)
		}

		call := `{"role":"assistant","content":"","metadata":{"type":"tool_call","tool_name":"zoom","tool_call_id":"z"}}`
		for body, want := range map[string]string{
			`"input_messages":[` + call + `]`:                                                       "Canonical tool call/result input_messages must be paired.",
			`"input_messages":[{"role":"user","content":"x"}]`:                                      "Canonical input_messages may contain only tool call/result continuations.",
			`"messages":[{"version":2,"type":"text","payload":{},"content":"x"}]`:                   "unsupported version",
			`"messages":"x","message":"y"`:                                                          "message must be an array",
			`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]`:         "messages must end with a message of the user",
			`"messages":[{"role":"system","content":"x"}],"history":[{"role":"user","content":""}]`: "requires a non-empty agent and message",
		} {
			if got := s.post("/v1/chat", "", `{"agent":"tools",`+body+`}`); got.status != http.StatusBadRequest || !strings.Contains(got.body, want) {
				s.Errorf("%s: %d %s, want %s", body, got.status, got.body, want)
			}
		}
	})
}
