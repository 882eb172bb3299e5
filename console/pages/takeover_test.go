package pages_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// TestAnswersOfOperatorsHaveTheirName: what an operator wrote as an agent is shown as theirs, in the conversation, at the message and by the
// API; what the agent said is the agent's.
func TestAnswersOfOperatorsHaveTheirName(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	token, _, err := s.Operator().Tokens.CreateAdmin(t.Context(), "anna")
	if err != nil {
		t.Fatal(err)
	}
	app := s.Token("app")
	if status, _, body := s.Read(http.MethodPost, "/v1/chat", app, `{"agent":"echo","message":"hi","session":"one"}`); status != http.StatusOK {
		t.Fatalf("the message: %d %s", status, body)
	}
	var list exchange.List[exchange.TurnRecord]
	_, _, listed := s.Read(http.MethodGet, "/api/v1/turns", token, "")
	if err := json.Unmarshal([]byte(listed), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%v in %s", err, listed)
	}
	id, thread := list.Items[0].ID, list.Items[0].ThreadID
	desk := overviewSignIn(s, exchange.RoleRead)
	pages := []string{"/console/messages/" + id, "/console/thread?" + url.Values{"agent": {"echo"}, "id": {thread}}.Encode()}
	for _, page := range pages {
		if content := desk.get(page); strings.Contains(content, "anna") {
			t.Errorf("%s names an operator who wrote nothing", page)
		}
	}

	if status, _, body := s.Read(http.MethodPut, "/api/v1/threads/"+url.PathEscape(thread)+"/takeover?agent=echo", token, ""); status >= http.StatusMultipleChoices {
		t.Fatalf("the takeover: %d %s", status, body)
	}
	if status, _, body := s.Read(http.MethodPost, "/v1/chat", app, `{"agent":"echo","message":"is there a person?","session":"one"}`); status >= http.StatusMultipleChoices {
		t.Fatalf("the second message: %d %s", status, body)
	}
	_, _, listed = s.Read(http.MethodGet, "/api/v1/turns", token, "")
	if err := json.Unmarshal([]byte(listed), &list); err != nil || len(list.Items) != 2 {
		t.Fatalf("%v in %s", err, listed)
	}
	pages[0], id = "/console/messages/"+list.Items[0].ID, list.Items[0].ID
	if status, _, body := s.Read(http.MethodPost, "/api/v1/turns/"+id+"/reply", token, `{"text":"a person answers"}`); status >= http.StatusMultipleChoices {
		t.Fatalf("the reply: %d %s", status, body)
	}
	await.Until(t, "the answer of the operator", func() bool {
		_, _, shown := s.Read(http.MethodGet, "/api/v1/turns/"+id, token, "")
		return strings.Contains(shown, `"answered_by":"operator:anna"`)
	})
	desk.get(pages[0], "Written by anna, not by the agent", "a person answers")
	desk.get(pages[1], "anna for echo", "a person answers")
}
