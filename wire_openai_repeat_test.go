package inbox

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"inbox/exchange"
)

const sameBody = `{"model":"helper","messages":[{"role":"user","content":"x"}]}`

// TestCompletionRepeats: what an SDK sends again by itself is not run again, what a person sends again is.
func TestCompletionRepeats(t *testing.T) {
	s := newChatServer(t)
	token := s.token("app")
	send := func(token, body string, header ...string) chatReply {
		t.Helper()
		return s.post("/v1/chat/completions", token, body, header...)
	}
	runs := func(want int32, what string) {
		t.Helper()
		if asked := s.asked.Swap(0); asked != want {
			t.Errorf("%s: %d runs, want %d", what, asked, want)
		}
	}
	first := send(token, sameBody, "X-Stainless-Retry-Count", "0").completion(t)
	runs(1, "a request")
	for _, count := range []string{"1", "2"} {
		if again := send(token, sameBody, "X-Stainless-Retry-Count", count).completion(t); again.ID != first.ID {
			t.Errorf("repeat %s is another answer", count)
		}
	}
	runs(0, "repeats of an SDK")
	if second := send(token, sameBody, "X-Stainless-Retry-Count", "0").completion(t); second.ID == first.ID {
		t.Error("the same question gets the same answer")
	}
	runs(1, "the same question")
	send(token, strings.Replace(sameBody, `"x"`, `"y"`, 1), "X-Stainless-Retry-Count", "1").completion(t)
	runs(1, "a repeat of what never came")
	send(s.token("other"), sameBody, "X-Stainless-Retry-Count", "1").completion(t)
	runs(1, "a repeat of somebody else")
	send(token, sameBody, "Idempotency-Key", "k1").completion(t)
	send(token, sameBody, "Idempotency-Key", "k1").completion(t)
	runs(1, "a key")
	other := send(token, strings.Replace(sameBody, `[`, `[{"role":"user","content":"before"},`, 1), "Idempotency-Key", "k1")
	if other.status != http.StatusConflict || other.header.Get("X-Should-Retry") != "false" || !strings.Contains(other.body, `"code":"conflict"`) {
		t.Errorf("a used key: %d %s", other.status, other.body)
	}
	runs(0, "a used key")
	for range 2 {
		send("", sameBody, "Idempotency-Key", "0b7f1b0e-7c0d-4b57-9a5e-0a8f2d7a3c11").completion(t)
	}
	runs(1, "a guest's key")
}

// TestCompletionReaderLeaves: the run goes on without its reader, and the repeat finds it.
func TestCompletionReaderLeaves(t *testing.T) {
	s := newChatServer(t)
	token := s.token("app")
	const body = `{"model":"slow","stream":true,"messages":[{"role":"user","content":"go"}]}`
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := bounded.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	_ = response.Body.Close()
	close(s.goOn)
	events := allEvents(s.open(http.MethodPost, "/v1/chat/completions", token, body, "X-Stainless-Retry-Count", "1"))
	if text := streamedText(t, events); text != "Hello" || s.asked.Load() != 1 {
		t.Errorf("%q after %d runs", text, s.asked.Load())
	}
	turns, err := s.server.store.Turns(t.Context(), exchange.TurnFilter{Agent: "slow", Limit: 10})
	if err != nil || len(turns) != 1 || turns[0].State != exchange.StateAnswered {
		t.Errorf("%d turns, %v", len(turns), err)
	}
}
