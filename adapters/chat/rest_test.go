package chat_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"inbox/inboxtest"
)

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
