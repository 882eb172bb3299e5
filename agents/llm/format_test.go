package llm

import (
	"encoding/json"
	"testing"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// TestFormsOfAnswers: the provider is asked for the form, and an answer without it is none.
func TestFormsOfAnswers(t *testing.T) {
	schema := &exchange.Format{Kind: exchange.FormatSchema, Name: "count", Strict: true, Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}
	object := &exchange.Format{Kind: exchange.FormatObject}
	openAI := func(text, finish string) string {
		return `{"choices":[{"message":{"content":` + string(jsonText(text)) + `},"finish_reason":"` + finish + `"}]}`
	}
	for name, c := range map[string]struct {
		api, body string
		format    *exchange.Format
		member    string
		asked     string
		code      string
	}{
		"schema": {
			APIOpenAI, openAI(`{"n":1}`, "stop"), schema, "response_format",
			`{"json_schema":{"name":"count","schema":{"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"strict":true},"type":"json_schema"}`, "",
		},
		"object":         {APIOpenAI, openAI(`{"x":"y"}`, "stop"), object, "response_format", `{"type":"json_object"}`, ""},
		"prose":          {APIOpenAI, openAI("Sure! One.", "stop"), object, "response_format", `{"type":"json_object"}`, normalized.FailedInvalidAnswer},
		"no object":      {APIOpenAI, openAI(`[1]`, "stop"), object, "response_format", `{"type":"json_object"}`, normalized.FailedInvalidAnswer},
		"another schema": {APIOpenAI, openAI(`{"n":"one"}`, "stop"), schema, "", "", normalized.FailedInvalidAnswer},
		"cut":            {APIOpenAI, openAI(`{"n":`, "length"), schema, "", "", ""},
		"any":            {APIOpenAI, openAI("Sure!", "stop"), nil, "response_format", `null`, ""},
		"the other API": {
			APIAnthropic, `{"type":"message","role":"assistant","content":[{"type":"text","text":"{\"n\":1}"}],"stop_reason":"end_turn","usage":{}}`, schema, "output_config",
			`{"format":{"schema":{"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"type":"json_schema"}}`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			provider := newScript(t, recorded{body: c.body})
			turn := question("format")
			turn.Format = c.format
			agent := newAgent(t, Options{Provider: provider.connectRetrying(t, c.api)})
			if c.format != nil && !agent.Formats(c.format.Kind) {
				t.Error("the agent says that it cannot")
			}
			_, _, err := fold(t.Context(), t, agent, turn)
			code := ""
			if err != nil {
				code = fault.CodeOf(err)
			}
			if code != c.code {
				t.Errorf("%v, want %q", err, c.code)
			}
			if asked, _ := json.Marshal(provider.questions()[0][c.member]); c.member != "" && string(asked) != c.asked {
				t.Errorf("asked for %s", asked)
			}
		})
	}
	if newAgent(t, Options{Provider: newScript(t).connectRetrying(t, APIAnthropic)}).Formats(exchange.FormatObject) {
		t.Error("this API has no form without a schema")
	}
}
