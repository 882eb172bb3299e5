package inbox

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestChatIsForgotten: what was said in a session is gone with it, for guests and for holders of tokens, and nobody else can
// do it. A repeat does not bring it back.
func TestChatIsForgotten(t *testing.T) {
	s := newChatServer(t)
	for name, token := range map[string]string{"a guest": "", "a token": s.token("ada")} {
		const run = "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11"
		body := rpcBody("message/send", run, "", "my-secret")
		session := s.post("/v1/agent/helper", token, body).rpc(t).Result.SessionID
		remove := func(token, session string) int {
			response := s.open(http.MethodDelete, "/v1/chat?agent=helper", token, "", "Chat-Session", session)
			_ = response.Body.Close()
			return response.StatusCode
		}
		for who, status := range map[string]int{
			"no session": remove(token, ""), "another token": remove(s.token("bob-"+name[2:]), session), "another session": remove("", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c12"),
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
		read := s.open(http.MethodGet, "/v1/chat?agent=helper", token, "", "Chat-Session", session)
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
	s := newChatServer(t)
	token := s.token("ada")
	for range 2 {
		s.post("/v1/agent/remembers", token, rpcBody("message/send", "", "mine", "x")).rpc(t)
		if told := s.wasTold(); len(told) > 0 {
			t.Errorf("the agent is told %q", told)
		}
		response := s.open(http.MethodDelete, "/v1/chat?agent=remembers", token, "", "Chat-Session", "mine")
		_ = response.Body.Close()
	}
}

// TestRunsOfChatAreFound by the id that chat gave them, by their owner.
func TestRunsOfChatAreFound(t *testing.T) {
	s := newChatServer(t)
	ada, bob := s.token("ada"), s.token("bob")
	named := `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"messageId":"m1","parts":[{"type":"text","text":"ping"}]}}}`
	for _, body := range []string{rpcBody("message/send", "r1", "", "ping"), named, rpcBody("message/send", "", "", "ping"), rpcBody("message/send", strings.Repeat("r", 300), "", "ping")} {
		task := s.post("/v1/agent/helper", ada, body).rpc(t).Result
		get := func(token string) (int, map[string]any) {
			response := s.open(http.MethodGet, "/v1/runs/"+task.ID, token, "")
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
