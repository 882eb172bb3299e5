package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/internal/await"
)

// chatTask is an answer of JSON-RPC chat.
type chatTask struct {
	Result struct {
		ID, SessionID string
		Status        struct {
			State   string
			Message struct{ Parts []struct{ Text string } }
		}
		Metadata struct {
			Inbox struct {
				Status    string
				ToolCalls []struct {
					ToolCallID, ToolID, TimeoutAt string
					Arguments                     map[string]any
				}
			}
		}
	}
	Error struct {
		Code    int
		Message string
	}
}

func (s *server) chatTask(authorization string, params map[string]any) (task chatTask) {
	s.t.Helper()
	body := jsonOf(jsonObject{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params})
	answer := s.shown("POST", "/v1/agent/memory", string(body), authorization)
	if err := json.Unmarshal([]byte(answer.body), &task); err != nil || answer.status != 200 {
		s.t.Fatalf("%d %s", answer.status, answer.body)
	}
	return task
}

func saying(session, text string) map[string]any {
	params := map[string]any{"message": jsonObject{"parts": []any{jsonObject{"type": "text", "text": text}}}}
	if session != "" {
		params["sessionId"] = session
	}
	return params
}

func resulting(session, call, tool string, result any) map[string]any {
	return map[string]any{"sessionId": session, "message": jsonObject{"parts": []any{
		jsonObject{"type": "data", "data": jsonObject{"toolCallId": call, "toolId": tool, "arguments": jsonObject{"item": "milk"}}},
		jsonObject{"type": "data", "data": jsonObject{"toolCallId": call, "toolId": tool, "result": result}},
	}}}
}

func (t chatTask) text() string {
	if len(t.Result.Status.Message.Parts) == 0 {
		return ""
	}
	return t.Result.Status.Message.Parts[0].Text
}

var inStock = jsonObject{"in_stock": 3}

// TestChatClientExecutesATool: the run pauses, the server is killed, the client hands in the result, and the same run goes
// on, once.
//
//contract:shows channels-22 runtime-51 runtime-56 runtime-57
func TestChatClientExecutesATool(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		s := start(t, instance.Settings{Database: database, Lease: "1s", Agents: shelf(provider, "1h", `unverified = "answer"`) + "asker = true\n"})
		paused := s.chatTask("", saying("", "is there milk"))
		calls := paused.Result.Metadata.Inbox.ToolCalls
		if paused.Result.Status.State != "input-required" || paused.Result.Metadata.Inbox.Status != "runtime_tool_pending" || len(calls) != 1 ||
			calls[0].ToolID != "client/look_up" || calls[0].Arguments["item"] != "milk" || calls[0].TimeoutAt == "" {
			t.Fatalf("the paused run is %+v", paused)
		}
		session, call := paused.Result.SessionID, calls[0].ToolCallID
		stranger := s.chatTask("", saying("", "hello")).Result.SessionID
		for name, c := range map[string]struct {
			params map[string]any
			code   int
			text   string
		}{
			"an unknown call":         {resulting(session, "call_9", "client/look_up", inStock), -32603, "invalid_runtime_tool_result: request not found"},
			"a call of somebody else": {resulting(stranger, call, "client/look_up", inStock), -32603, "invalid_runtime_tool_result: request not found"},
			"no session":              {resulting("", call, "client__look_up", inStock), -32603, "invalid_runtime_tool_result: request not found"},
			"another tool":            {resulting(session, call, "client/other", inStock), -32602, ""},
		} {
			if got := s.chatTask("", c.params); got.Error.Code != c.code || c.text != "" && got.Error.Message != c.text {
				t.Errorf("%s: %+v", name, got)
			}
		}
		s.killed()
		for range 2 { // the second copy is as one that was sent again because its answer was lost
			done := s.chatTask("", resulting(session, call, "client__look_up", inStock))
			if done.Result.ID != paused.Result.ID || done.Result.Status.State != "completed" || !strings.Contains(done.text(), "Yes, there are three.") {
				t.Errorf("the run ends as %+v", done)
			}
		}
		if again := s.chatTask("", resulting(session, call, "look_up", jsonObject{"in_stock": 0})); !strings.Contains(again.text(), "three") {
			t.Errorf("another result for the same call: %+v", again)
		}
		if rows := s.rows(); rows["turns"] != 2 || rows["replies"] != 2 || rows["tool_requests"] != 1 {
			t.Errorf("rows %v", rows)
		}
	})
}

// TestResultOfAChatClientOutlivesACrash: the server dies after it took the result and before it answered. The client sends it
// again, and there is one answer.
func TestResultOfAChatClientOutlivesACrash(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		heard, dead := make(chan struct{}, 8), make(chan struct{})
		provider := startModel(t, func(request modelRequest) string {
			for _, message := range request.Messages {
				if strings.Contains(string(message), `"role":"tool"`) {
					heard <- struct{}{}
					<-dead
				}
			}
			return looksUp(request)
		})
		letGo := sync.OnceFunc(func() { close(dead) })
		t.Cleanup(letGo) // before the provider ends
		s := start(t, instance.Settings{Database: database, Lease: "1s", Agents: shelf(provider, "1h", `unverified = "answer"`) + "asker = true\n"})
		paused := s.chatTask("", saying("", "is there milk"))
		result := resulting(paused.Result.SessionID, paused.Result.Metadata.Inbox.ToolCalls[0].ToolCallID, "client/look_up", inStock)
		body := jsonOf(jsonObject{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": result})
		lost := make(chan struct{})
		go func() {
			defer close(lost)
			response, err := http.Post(s.URL()+"/v1/agent/memory", "application/json", bytes.NewReader(body))
			if err == nil {
				_ = response.Body.Close()
			}
		}()
		await.Receive(t, heard, "the model to hear the result")
		s.killed()
		letGo()
		await.Receive(t, lost, "the end of the request")
		if done := s.chatTask("", result); done.Result.ID != paused.Result.ID || !strings.Contains(done.text(), "Yes, there are three.") {
			t.Errorf("the run ends as %+v", done)
		}
		if rows := s.rows(); rows["turns"] != 1 || rows["replies"] != 1 || rows["tool_requests"] != 1 {
			t.Errorf("rows %v", rows)
		}
	})
}

// TestNobodyAnswersForAProgramOfTheOperator: what a guest says about the shelf is not believed.
func TestNobodyAnswersForAProgramOfTheOperator(t *testing.T) {
	t.Parallel()
	provider := startModel(t, looksUp)
	s := start(t, instance.Settings{Agents: shelf(provider, "1h", `unverified = "answer"`), More: "[chat]\nwait = \"1s\"\n"})
	waiting := saying("", "is there milk")
	waiting["id"] = chatRun
	if got := s.chatTask("", waiting); got.Error.Code != -32603 {
		t.Fatalf("the run waits for a program: %+v", got)
	}
	desk := s.desk("memory")
	desk.next()
	first := s.shown("POST", "/v1/chat", `{"agent":"memory","message":"is there milk","run_id":"`+chatRun+`"}`, "")
	var started struct{ Session string }
	if err := json.Unmarshal([]byte(first.body), &started); err != nil || started.Session == "" {
		t.Fatal(first)
	}
	for _, tool := range []string{"client/look_up", "client__look_up", "mine"} {
		if got := s.chatTask("", resulting(started.Session, "call_1", tool, inStock)); got.Error.Message != "invalid_runtime_tool_result: request not found" {
			t.Errorf("%s: %+v", tool, got)
		}
	}
	if id := desk.next(); !strings.HasPrefix(id, "runtime-tool-") {
		t.Errorf("the call is not open any more: %s", id)
	}
}

// TestChatStreamTellsCalls: deltas name the call and its arguments before the frame that ends the stream.
//
//contract:shows channels-25
func TestChatStreamTellsCalls(t *testing.T) {
	t.Parallel()
	provider := startModel(t, looksUp)
	s := start(t, instance.Settings{Agents: shelf(provider, "1h", `unverified = "answer"`) + "asker = true\n"})
	body := jsonOf(jsonObject{"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": saying("", "is there milk")})
	stream := s.shown("POST", "/v1/agent/memory", string(body), "").body
	for _, want := range []string{
		`"deltaType":"tool_name"`, `"toolCallName":"client/look_up"`, `"deltaType":"tool_argument"`, `{\"item\":\"milk\"}`, `"state":"input-required"`,
	} {
		if !strings.Contains(stream, want) {
			t.Errorf("the stream lacks %s:\n%s", want, stream)
		}
	}
	_, last, _ := strings.Cut(stream, `"sessionId":"`)
	session, _, _ := strings.Cut(last, `"`)
	_, id, _ := strings.Cut(stream, `"toolCallId":"`)
	call, _, _ := strings.Cut(id, `"`)
	body = jsonOf(jsonObject{"jsonrpc": "2.0", "id": 2, "method": "message/stream", "params": resulting(session, call, "client/look_up", inStock)})
	if rest := s.shown("POST", "/v1/agent/memory", string(body), "").body; !strings.Contains(rest, "Yes, there are three.") || !strings.Contains(rest, `"state":"completed"`) {
		t.Errorf("after the result: %s", fmt.Sprint(rest))
	}
}
