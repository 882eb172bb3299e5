package chat_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/fault"
	"inbox/normalized"
)

// breaks adds an agent whose first run of a message breaks off after some words, when the reader has them.
func (s *chatServer) breaks(name, first, second string, read <-chan struct{}) {
	s.Helper()
	agent := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			heard := func() {
				select {
				case <-read:
				case <-s.Context().Done():
				}
			}
			if turn.Attempt > 1 {
				yield(normalized.Delta{Kind: normalized.DeltaText, Text: second}, nil)
				if normalized.PlainText(turn.Message.Parts) == "wait" {
					heard()
				}
				return
			}
			if yield(normalized.Delta{Kind: normalized.DeltaText, Text: first}, nil) {
				heard()
				yield(normalized.Delta{}, fault.RetryIn(0, "The agent cannot be reached right now.", errors.New("the stream broke")))
			}
		}
	})
	if err := s.Register(exchange.AgentProfile{Name: name, DisplayName: name}, agent, agents.Settings{Unverified: agents.UnverifiedAnswer}); err != nil {
		s.Fatal(err)
	}
}

// eventsOf are the events of a stream as they come.
func eventsOf(response *http.Response) iter.Seq[inboxtest.Event] {
	return func(yield func(inboxtest.Event) bool) {
		defer func() { _ = response.Body.Close() }()
		reader := bufio.NewReader(response.Body)
		for {
			event, is := inboxtest.NextEvent(reader)
			if !is || !yield(event) {
				return
			}
		}
	}
}

// TestTwoAttemptsAreNotOneAnswer: where the stream of an agent breaks and its second attempt says other words, a client of OpenAI's form gets an
// error, and a reader of chat hears that the text begins again.
func TestTwoAttemptsAreNotOneAnswer(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("ann")
	const first = "one two three four five six"
	for name, c := range map[string]struct {
		second string
		openai string // the text, or the code of the error
		chat   string // the text of the delta events
		resets int
	}{
		"other": {"seven eight", "answer_restarted", "seven eight", 1},
		"more":  {first + " seven", first + " seven", first + " seven", 0},
		"less":  {"one two", "answer_restarted", first, 0}, // the event reply has the whole text
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := make(chan struct{}, 3)
			s.breaks("breaks-"+name, first, c.second, read)
			got, all, failed := "", "", false
			for event := range eventsOf(s.Open(http.MethodPost, "/v1/chat/completions", token,
				`{"model":"breaks-`+name+`","stream":true,"messages":[{"role":"user","content":"x"}]}`)) {
				var chunk struct {
					Choices []struct {
						Delta struct{ Content string }
					}
					Error *struct{ Code string }
				}
				if all += event.Data + "\n"; event.Data == "[DONE]" {
					continue
				}
				if err := json.Unmarshal([]byte(event.Data), &chunk); err != nil {
					t.Fatal(err)
				}
				for _, choice := range chunk.Choices {
					if got += choice.Delta.Content; got == first {
						read <- struct{}{}
					}
				}
				if chunk.Error != nil {
					got, failed = chunk.Error.Code, true
				}
			}
			if finished := strings.Contains(all, `"finish_reason":"stop"`); finished == failed || got != c.openai {
				t.Errorf("OpenAI's form: %q, want %q\n%s", got, c.openai, all)
			}

			text, resets, reply := "", 0, ""
			message := "wait"
			if c.chat == first {
				message = "do not wait"
			}
			for event := range eventsOf(s.Open(http.MethodPost, "/v1/chat", token,
				`{"agent":"breaks-`+name+`","message":"`+message+`"}`, "Accept", "text/event-stream")) {
				var data struct{ Text, Reply string }
				if err := json.Unmarshal([]byte(event.Data), &data); err != nil {
					t.Fatal(err)
				}
				switch event.Name {
				case "delta":
					if text += data.Text; text == first || text == c.chat {
						read <- struct{}{}
					}
				case "reset":
					text, resets = "", resets+1
				case "reply":
					reply = data.Reply
				}
			}
			if text != c.chat || resets != c.resets || reply != strings.TrimSpace(c.second) {
				t.Errorf("chat: %q after %d resets, then %q; want %q after %d", text, resets, reply, c.chat, c.resets)
			}
		})
	}
}
