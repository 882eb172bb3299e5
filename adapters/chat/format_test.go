package chat_test

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// former is an agent that can hold its answers to schemas.
type former struct{ asked chan *exchange.Format }

func (f former) Handle(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	f.asked <- turn.Format
	return normalized.Whole(normalized.Response{Parts: []normalized.Part{
		normalized.Text(`{"n":1}`), {Kind: normalized.PartLink, URL: "https://a.example/", Title: "A", Citation: &normalized.Citation{Source: "tool", SourceTitle: "A", SourceURL: "https://a.example/"}},
	}})
}

func (former) Formats(kind string) bool { return kind == exchange.FormatSchema }

// TestFormsOfAnswers: an agent that can hold its answers to a form gets it, and for others the request is refused.
func TestFormsOfAnswers(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	agent := former{make(chan *exchange.Format, 1)}
	if err := s.Register(exchange.AgentProfile{Name: "former", DisplayName: "former"}, agent, agents.Settings{Unverified: agents.UnverifiedAnswer}); err != nil {
		t.Fatal(err)
	}

	const schema = `"name":"count","strict":true,"schema":{"type":"object","properties":{"n":{"type":"number"}}}`
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"former","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{` + schema + `}}}`,
		"/v1/responses":        `{"model":"former","input":"x","text":{"format":{"type":"json_schema",` + schema + `}}}`,
	} {
		got := s.post(path, token, body)
		format := await.Receive(t, agent.asked, "a run of the agent")
		if format == nil || format.Kind != exchange.FormatSchema || format.Name != "count" || !format.Strict || !strings.Contains(string(format.Schema), `"number"`) {
			t.Errorf("%s: the agent is asked for %+v", path, format)
		}
		if got.status != http.StatusOK || !strings.Contains(got.body, `"{\"n\":1}"`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}

	for _, body := range []string{`"response_format":{"type":"text"}`, `"response_format":null`} {
		s.post("/v1/chat/completions", token, `{"model":"former","messages":[{"role":"user","content":"x"}],`+body+`}`)
		if format := await.Receive(t, agent.asked, "a run of the agent"); format != nil {
			t.Errorf("%s: the agent is asked for %+v", body, format)
		}
	}
}

// TestSchemaThatCannotBeChecked: it is refused before the model is asked.
func TestSchemaThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	agent := former{make(chan *exchange.Format, 1)}
	if err := s.Register(exchange.AgentProfile{Name: "former", DisplayName: "former"}, agent, agents.Settings{Unverified: agents.UnverifiedAnswer}); err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100)
	token, long := s.Token("app"), `{"items":{"enum":[`+strings.Repeat("1,", 1000)+`2]}}`
	for name, schema := range map[string]string{"deep": deep, "a long list": long} {
		got := s.post("/v1/responses", token, `{"model":"former","input":"x","text":{"format":{"type":"json_schema","name":"a","schema":`+schema+`}}}`)
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, `"param":"text.format"`) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if len(agent.asked) > 0 {
		t.Error("the agent was asked")
	}
}

// TestUnsupportedParameters: what would change the answer, and no agent can follow, is refused by its name.
func TestUnsupportedParameters(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	for _, c := range []struct{ path, more, member string }{
		{"/v1/chat/completions", `"response_format":{"type":"json_object"}`, "response_format"},
		{"/v1/chat/completions", `"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}}`, "response_format"},
		{"/v1/chat/completions", `"logprobs":true`, "logprobs"},
		{"/v1/chat/completions", `"top_logprobs":2`, "top_logprobs"},
		{"/v1/chat/completions", `"stop":["\n"]`, "stop"},
		{"/v1/chat/completions", `"modalities":["text","audio"]`, "modalities"},
		{"/v1/chat/completions", `"audio":{"voice":"x"}`, "audio"},
		{"/v1/chat/completions", `"logit_bias":{"1":2}`, "logit_bias"},
		{"/v1/chat/completions", `"functions":[{"name":"f"}]`, "functions"},
		{"/v1/chat/completions", `"function_call":{"name":"f"}`, "function_call"},
		{"/v1/chat/completions", `"web_search_options":{"user_location":null}`, "web_search_options"},
		{"/v1/chat/completions", `"tool_choice":"required"`, "tool_choice"},
		{"/v1/chat/completions", `"tool_choice":{"type":"function","function":{"name":"f"}}`, "tool_choice"},
		{"/v1/responses", `"text":{"format":{"type":"json_object"}}`, "text.format"},
		{"/v1/responses", `"background":true`, "background"},
		{"/v1/responses", `"conversation":"conv_1"`, "conversation"},
		{"/v1/responses", `"prompt":{"id":"p"}`, "prompt"},
		{"/v1/responses", `"top_logprobs":1`, "top_logprobs"},
		{"/v1/responses", `"include":["message.output_text.logprobs"]`, "include"},
		{"/v1/responses", `"tool_choice":"required"`, "tool_choice"},
	} {
		body := `{"model":"helper","messages":[{"role":"user","content":"x"}],"input":"x",` + c.more + `}`
		got := s.post(c.path, token, body)
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, `"code":"unsupported_parameter"`) || !strings.Contains(got.body, `"param":"`+c.member+`"`) {
			t.Errorf("%s %s: %d %s", c.path, c.more, got.status, got.body)
		}
	}
	if asked := s.asked.Load(); asked != 0 {
		t.Errorf("%d runs of agents", asked)
	}
	for _, body := range []string{`"response_format":{"type":"poem"}`, `"response_format":7`, `"response_format":{"type":"json_schema","json_schema":{"name":"a"}}`} {
		got := s.post("/v1/chat/completions", token, `{"model":"helper","messages":[{"role":"user","content":"x"}],`+body+`}`)
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, `"code":"malformed"`) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	// What changes nothing is no reason to refuse.
	const harmless = `"logprobs":false,"stop":null,"modalities":["text"],"logit_bias":{},"tool_choice":"auto","response_format":{"type":"text"},"temperature":1,"max_tokens":5`
	if got := s.post("/v1/chat/completions", token, `{"model":"helper","messages":[{"role":"user","content":"x"}],`+harmless+`}`); got.status != http.StatusOK {
		t.Errorf("harmless: %d %s", got.status, got.body)
	}
}
