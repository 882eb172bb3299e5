package chat_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// TestOneContinuation: of several requests at the same time that continue one response, one is stored, and a repeat finds its run.
func TestOneContinuation(t *testing.T) {
	t.Parallel()
	chatOnBoth(t, func(s *chatServer) {
		token := s.Token("app")
		first := s.post("/v1/responses", token, `{"model":"helper","input":"one"}`).response(s)
		next := func(text string) chatReply {
			return s.post("/v1/responses", token, `{"model":"helper","input":"`+text+`","previous_response_id":"`+first.ID+`"}`)
		}

		var wait sync.WaitGroup
		replies := make([]chatReply, 8)
		for i := range replies {
			wait.Go(func() { replies[i] = next(fmt.Sprintf("branch %d", i)) })
		}
		wait.Wait()
		won := -1
		for i, reply := range replies {
			switch {
			case reply.status == http.StatusOK && won < 0:
				won = i
			case reply.status != http.StatusBadRequest || !strings.Contains(reply.body, `"previous_response_not_newest"`):
				s.Errorf("request %d: %d %s", i, reply.status, reply.body)
			}
		}
		if won < 0 {
			s.Fatal("none was accepted")
		}
		if again := next(fmt.Sprintf("branch %d", won)).response(s); again.ID != replies[won].response(s).ID {
			s.Errorf("a repeat without a header is another response: %s", again.ID)
		}
	})
}

// TestConversationGoesOnAfterAFailure: the client got no id of the message that failed.
func TestConversationGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	chatOnBoth(t, func(s *chatServer) {
		token := s.Token("app")
		fragile := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			return func(yield func(normalized.Delta, error) bool) {
				if strings.HasPrefix(normalized.PlainText(turn.Message.Parts), "fail") {
					yield(normalized.Delta{}, fault.GiveUp("no", nil))
					return
				}
				yield(normalized.Delta{Kind: normalized.DeltaText, Text: "fine"}, nil)
			}
		})
		if err := s.Register(exchange.AgentProfile{Name: "fragile", DisplayName: "fragile"}, fragile, agents.Settings{Unverified: agents.UnverifiedAnswer}); err != nil {
			s.Fatal(err)
		}
		first := s.post("/v1/responses", token, `{"model":"fragile","input":"one"}`).response(s)
		for _, text := range []string{"fail", "fail", "fail again"} {
			if failed := s.post("/v1/responses", token, `{"model":"fragile","input":"`+text+`","previous_response_id":"`+first.ID+`"}`); failed.status != http.StatusInternalServerError {
				s.Errorf("%s: %d %s", text, failed.status, failed.body)
			}
		}
		if next := s.post("/v1/responses", token, `{"model":"fragile","input":"four","previous_response_id":"`+first.ID+`"}`).response(s); textOf(next) != "fine" {
			s.Errorf("%+v", next)
		}
		if branch := s.post("/v1/responses", token, `{"model":"fragile","input":"five","previous_response_id":"`+first.ID+`"}`); branch.status != http.StatusBadRequest {
			s.Errorf("a branch: %d %s", branch.status, branch.body)
		}
	})
}

// TestCostlyRequests: what a small body would cost to decode, to copy or to look up is bounded.
func TestCostlyRequests(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	words := strings.Repeat("x", 600<<10)
	s.register("long", agents.UnverifiedAnswer, func(agents.Turn, func(string) bool) string { return words })
	long := s.post("/v1/responses", token, `{"model":"long","input":"x"}`).response(t)
	if textOf(long) != words {
		t.Fatalf("the answer has %d bytes", len(textOf(long)))
	}

	refer := func(times int) string {
		item := `{"type":"item_reference","id":"` + long.Output[0].ID + `"}`
		return `{"model":"long","input":[` + strings.Join(slices.Repeat([]string{item}, times), ",") + `,{"role":"user","content":"x"}]}`
	}
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for name, c := range map[string]struct {
		body   string
		status int
		told   string
	}{
		"a reference":          {refer(1), http.StatusOK, ""},
		"many references":      {refer(900), http.StatusRequestEntityTooLarge, "over 1 MiB"},
		"a name behind depths": {`{"x":` + deep(1100) + `,"model":"nobody","model":"helper","input":"x"}`, http.StatusBadRequest, "nests too deeply"},
		"very many values":     {`{"model":"helper","input":[` + strings.Repeat("{},", 120_000) + `{}]}`, http.StatusBadRequest, "too many values"},
	} {
		if got := s.post("/v1/responses", token, c.body); got.status != c.status || !strings.Contains(got.body, c.told) {
			t.Errorf("%s: %d %.300s", name, got.status, got.body)
		}
	}

	// Joined one by one these copy 25 GB.
	part := `{"type":"text","text":"` + strings.Repeat("x", 19) + `"}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := s.post("/v1/chat/completions", token, `{"model":"helper","messages":[{"role":"user","content":[`+strings.Join(slices.Repeat([]string{part}, 33_000), ",")+`]}]}`)
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; got.status != http.StatusOK || made > 1<<30 {
		t.Errorf("many texts: %d, %d MB of garbage: %.300s", got.status, made>>20, got.body)
	}
}
