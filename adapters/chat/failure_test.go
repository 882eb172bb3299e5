package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/fault"
	"inbox/normalized"
)

// yielding adds an agent that answers with a response, or fails.
func (s *chatServer) yielding(name string, response normalized.Response, err error) {
	s.Helper()
	agent := agents.Func(func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			if err != nil {
				yield(normalized.Delta{}, err)
				return
			}
			for _, part := range response.Parts {
				if part.Content == normalized.Cut { // comes with the whole
					break
				}
				yield(normalized.Delta{Kind: normalized.DeltaPartBegin, Part: &part}, nil)
			}
			yield(normalized.Delta{Kind: normalized.DeltaResponse, Response: &response}, nil)
		}
	})
	if err := s.Register(exchange.AgentProfile{Name: name, DisplayName: name}, agent, agents.Settings{Unverified: agents.UnverifiedAnswer}); err != nil {
		s.Fatal(err)
	}
}

// TestWhyThereIsNoAnswer: each surface names the reason of a failure by the same code, and none shows its cause.
func TestWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	private := errors.New("dial tcp 10.0.0.7:9000 with sk-secret: refused")
	for name, c := range map[string]struct {
		err       error
		code      string
		retryable bool
		status    int
	}{
		"moved":   {upstream.Misconfigured(private), "agent:unreachable", true, http.StatusInternalServerError},
		"broken":  {upstream.NotUsable(private), "agent:invalid_answer", false, http.StatusInternalServerError},
		"long":    {fault.GiveUp("no", private).Coded(normalized.FailedContextTooLong), "model:context_too_long", false, http.StatusBadRequest},
		"keyless": {fault.GiveUp("no", private).Coded(normalized.FailedModelAuth), "model:auth", false, http.StatusInternalServerError},
		"crashes": {private, "internal", false, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			s.yielding(name, normalized.Response{}, c.err)
			type reason struct {
				Code      string
				Retryable bool
			}
			want := reason{c.code, c.retryable}
			seen := map[string]string{}

			var rest struct {
				Status string
				Error  reason
			}
			got := s.post("/v1/chat", token, `{"agent":"`+name+`","message":"hi"}`)
			seen["rest"] = got.body
			if err := json.Unmarshal([]byte(got.body), &rest); err != nil || rest.Status != "failed" || rest.Error != want {
				t.Errorf("REST: %s %v", got.body, err)
			}

			events := inboxtest.Events(s.Open(http.MethodPost, "/v1/chat", token, `{"agent":"`+name+`","message":"hi"}`, "Accept", "text/event-stream"))
			last := events[len(events)-1]
			seen["events"] = last.Data
			rest.Error = reason{}
			if err := json.Unmarshal([]byte(last.Data), &rest); err != nil || last.Name != "reply" || rest.Error != want {
				t.Errorf("events of REST: %+v %v", events, err)
			}

			var rpc struct {
				Result struct {
					Metadata struct{ Inbox struct{ Error reason } }
				}
			}
			got = s.post("/v1/agent/"+name, token, rpcBody("message/send", "", "", "hi"))
			seen["rpc"] = got.body
			if err := json.Unmarshal([]byte(got.body), &rpc); err != nil || rpc.Result.Metadata.Inbox.Error != want {
				t.Errorf("JSON-RPC: %s %v", got.body, err)
			}

			var openai struct{ Error reason }
			got = s.post("/v1/chat/completions", token, `{"model":"`+name+`","messages":[{"role":"user","content":"hi"}]}`)
			seen["openai"] = got.body
			if err := json.Unmarshal([]byte(got.body), &openai); err != nil || openai.Error != want || got.status != c.status || got.header.Get("X-Should-Retry") != "false" {
				t.Errorf("OpenAI's form: %d %s %v", got.status, got.body, err)
			}

			events = inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", token, `{"model":"`+name+`","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
			seen["openai events"], openai.Error = events[len(events)-1].Data, reason{}
			if err := json.Unmarshal([]byte(events[len(events)-1].Data), &openai); err != nil || openai.Error != want {
				t.Errorf("events of OpenAI's form: %+v %v", events, err)
			}

			for surface, body := range seen {
				if strings.Contains(body, "10.0.0.7") || strings.Contains(body, "sk-") {
					t.Errorf("%s shows the cause: %s", surface, body)
				}
			}
		})
	}
}

// TestAnswerThatIsCut: a model reached its limit of tokens. OpenAI's clients get its words and the finish reason, all others a line that says so.
func TestAnswerThatIsCut(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	s.yielding("brief", normalized.Response{
		Parts:    []normalized.Part{normalized.Markdown("Once upon a"), normalized.Text(normalized.Cut)},
		Metadata: map[string]string{normalized.MetadataStop: normalized.StopLength},
	}, nil)

	const question = `"model":"brief","messages":[{"role":"user","content":"Tell me a tale"}]}`
	var whole struct {
		Choices []struct {
			Message struct{ Content string }
			Finish  string `json:"finish_reason"`
		}
	}
	got := s.post("/v1/chat/completions", token, "{"+question)
	if err := json.Unmarshal([]byte(got.body), &whole); err != nil || len(whole.Choices) != 1 || whole.Choices[0].Finish != "length" || whole.Choices[0].Message.Content != "Once upon a" {
		t.Errorf("whole: %s %v", got.body, err)
	}

	text, finish := "", ""
	for _, event := range inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", token, `{"stream":true,`+question)) {
		var chunk struct {
			Choices []struct {
				Delta  struct{ Content string }
				Finish string `json:"finish_reason"`
			}
		}
		if event.Data == "[DONE]" {
			continue
		}
		if err := json.Unmarshal([]byte(event.Data), &chunk); err != nil {
			t.Fatal(event.Data, err)
		}
		for _, choice := range chunk.Choices {
			text, finish = text+choice.Delta.Content, finish+choice.Finish
		}
	}
	if text != "Once upon a" || finish != "length" {
		t.Errorf("streamed: %q %q", text, finish)
	}

	var rest struct{ Reply, Stop string }
	got = s.post("/v1/chat", token, `{"agent":"brief","message":"Tell me a tale"}`)
	if err := json.Unmarshal([]byte(got.body), &rest); err != nil || rest.Stop != "length" || rest.Reply != "Once upon a\n\n"+normalized.Cut {
		t.Errorf("REST: %s %v", got.body, err)
	}
}

var errBroken = upstream.NotUsable(errors.New("no such form"))
