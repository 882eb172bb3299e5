package inbox

import (
	"fmt"
	"net/http"
	"testing"
)

func TestSessionsOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	made := b.call(relay, http.MethodPost, "/v1/sessions", map[string]any{"agent": "echo", "title": "plans"}, http.StatusCreated)
	id := made["session_id"].(string)
	run := b.call(relay, http.MethodPost, "/v1/sessions/"+id+"/messages", map[string]any{"message": "first", "wait": true}, http.StatusOK)
	if run["session_id"] != id {
		t.Errorf("the run is %v", run)
	}
	path := "/v1/sessions/" + id
	for method, body := range map[string]any{http.MethodGet: nil, http.MethodPatch: map[string]any{"title": "x"}, http.MethodDelete: nil} {
		b.call(other, method, path, body, http.StatusNotFound)
		b.call("", method, path, body, http.StatusUnauthorized)
	}
	b.call(other, http.MethodGet, path+"/messages", nil, http.StatusNotFound)
	b.call(other, http.MethodPost, path+"/messages", map[string]any{"message": "x"}, http.StatusNotFound)
	b.call(other, http.MethodGet, path+"/export", nil, http.StatusNotFound)
	b.call(relay, http.MethodPatch, path, map[string]any{"title": "other plans"}, http.StatusOK)
	if got := b.call(relay, http.MethodGet, path, nil, http.StatusOK); got["title"] != "other plans" || got["status"] != "completed" {
		t.Errorf("the session is %v", got)
	}
	messages, _ := b.call(relay, http.MethodGet, path+"/messages", nil, http.StatusOK)["messages"].([]any)
	if len(messages) != 2 || messages[0].(map[string]any)["content"] != "first" {
		t.Errorf("messages %v", messages)
	}
	list, _ := b.call(relay, http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any)
	if len(list) != 1 {
		t.Errorf("sessions %v", list)
	}
	if list, _ := b.call(other, http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any); len(list) != 0 {
		t.Errorf("another owner lists %v", list)
	}
	if refused, _ := b.call(relay, http.MethodGet, "/v1/sessions?cursor=x", nil, http.StatusBadRequest)["error"].(map[string]any); refused["field"] != "cursor" {
		t.Errorf("a cursor that is none: %v", refused)
	}
	b.call(relay, http.MethodDelete, path, nil, http.StatusOK)
	b.call(relay, http.MethodGet, path, nil, http.StatusNotFound)
	b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x", "session_id": id}, http.StatusNotFound)
}

func TestRunControlOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	made := b.call(relay, http.MethodPost, "/v1/sessions", map[string]any{"agent": "stuck"}, http.StatusCreated)
	path := "/v1/sessions/" + made["session_id"].(string) + "/messages"
	first := b.call(relay, http.MethodPost, path, map[string]any{"message": "one"}, http.StatusAccepted)
	second := b.call(relay, http.MethodPost, path, map[string]any{"message": "two"}, http.StatusAccepted)
	if first["position"] != 1.0 || second["position"] != 2.0 || second["status"] != "queued" || second["queued_message_id"] == nil {
		t.Errorf("queued %v, %v", first, second)
	}
	run := "/v1/runs/" + first["run_id"].(string)
	b.call(other, http.MethodPost, run+"/cancel", nil, http.StatusNotFound)
	b.call(relay, http.MethodPost, run+"/cancel", map[string]any{"session_id": "another"}, http.StatusNotFound)
	if got := b.call(relay, http.MethodPost, run+"/cancel", nil, http.StatusOK); got["status"] != "cancelled" || !isTrue(got["cancelled"]) {
		t.Errorf("the cancelled run is %v", got)
	}
	if got := b.call(relay, http.MethodGet, run, nil, http.StatusOK); got["status"] != "cancelled" {
		t.Errorf("the run is %v", got)
	}
	b.call(relay, http.MethodPost, "/v1/runs/"+second["run_id"].(string)+"/stop", nil, http.StatusOK)
	done := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x", "wait": true}, http.StatusOK)
	if got := b.call(relay, http.MethodPost, "/v1/runs/"+done["run_id"].(string)+"/cancel", nil, http.StatusOK); got["status"] != "completed" || isTrue(got["cancelled"]) {
		t.Errorf("a run that has ended: %v", got)
	}
}

// TestChatsAreSessions finds the conversation of a chat again, by the token with which it was held, and by no other.
func TestChatsAreSessions(t *testing.T) {
	b := newBridged(t, "")
	operator := b.server.Operator()
	var tokens []string
	for _, name := range []string{"ann", "ben"} {
		token, _, err := operator.Tokens.Create(t.Context(), name, "")
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	for i := range 2 {
		answer := b.call(tokens[0], http.MethodPost, "/v1/chat", map[string]any{"agent": "echo", "message": fmt.Sprint("line ", i), "session_id": "my-session"}, http.StatusOK)
		if answer["session_id"] != "my-session" {
			t.Fatalf("the chat is %v", answer)
		}
	}
	list, _ := b.call(tokens[0], http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["title"] != "line 0" {
		t.Errorf("sessions %v", list)
	}
	messages, _ := b.call(tokens[0], http.MethodGet, "/v1/sessions/my-session/messages", nil, http.StatusOK)["messages"].([]any)
	if len(messages) != 4 {
		t.Errorf("messages %v", messages)
	}
	b.call(tokens[1], http.MethodGet, "/v1/sessions/my-session", nil, http.StatusNotFound)
	run := b.call(tokens[0], http.MethodPost, "/v1/sessions/my-session/messages", map[string]any{"message": "by the session", "wait": true}, http.StatusOK)
	if run["reply"] != "by the session" {
		t.Errorf("the run is %v", run)
	}
	b.call(tokens[1], http.MethodGet, "/v1/runs/"+run["run_id"].(string), nil, http.StatusNotFound)
	b.call(tokens[0], http.MethodGet, "/v1/bridge/pending", nil, http.StatusUnauthorized)
}
