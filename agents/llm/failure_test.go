package llm

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"inbox/internal/fault"
	"inbox/normalized"
)

// TestReasonsOfFailures: what a provider answers has one code, which says whether it may pass.
func TestReasonsOfFailures(t *testing.T) {
	for name, c := range map[string]struct {
		answer recorded
		code   string
	}{
		"wrong key":       {recorded{status: 401, body: `{"error":{"message":"Incorrect API key provided: sk-secret","code":"invalid_api_key"}}`}, normalized.FailedModelAuth},
		"forbidden model": {recorded{status: 403, body: `{"error":{"message":"no"}}`}, normalized.FailedModelAuth},
		"no balance":      {recorded{status: 402, body: `{}`}, normalized.FailedModelAuth},
		"too long":        {recorded{status: 400, body: `{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}`}, normalized.FailedContextTooLong},
		"no such model":   {recorded{status: 404, body: `{"error":{"message":"no model"}}`}, normalized.FailedModelRejected},
		"rate":            {recorded{status: 429, body: `{}`}, normalized.FailedModelRateLimited},
		"overloaded":      {recorded{status: 529, body: `{}`}, normalized.FailedModelRateLimited},
		"down":            {recorded{status: 502, body: `{}`}, normalized.FailedModelUnreachable},
		"cut":             {recorded{body: "data: {\"choices\":[{\"delta\":{\"content\":\"Hal\"}}]}\n\n"}, normalized.FailedModelUnreachable},
		"nonsense":        {recorded{body: "data: {\n\ndata: [DONE]\n\n"}, normalized.FailedInvalidAnswer},
		"error in stream": {recorded{body: "data: {\"error\":{\"type\":\"authentication_error\",\"message\":\"x\"}}\n\n"}, normalized.FailedModelAuth},
	} {
		t.Run(name, func(t *testing.T) {
			agent := newAgent(t, Options{Provider: newScript(t, c.answer).connect(t, APIOpenAI), MaxTurns: 1})
			_, _, err := fold(t.Context(), t, agent, question("reasons"))
			if got := fault.CodeOf(err); got != c.code || strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("%s, want %s: %v", got, c.code, err)
			}
		})
	}

	late, err := Connect(Connection{
		API: APIOpenAI, BaseURL: newScript(t, recorded{body: ": wait\n\n", stall: true}).address, Client: newClient(t), TimeLimit: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIdle(late)
	_, _, err = fold(t.Context(), t, newAgent(t, Options{Provider: late}), question("late"))
	if got := fault.CodeOf(err); got != normalized.FailedTimeout {
		t.Errorf("late: %s %v", got, err)
	}
	if code := fault.CodeOf(errors.Join(err, errors.New(http.StatusText(500)))); code != normalized.FailedTimeout {
		t.Errorf("joined: %s", code)
	}
}

// TestAnswerThatTheModelDidNotFinish: the response carries why the model stopped, and a line for its readers, also when it was streamed.
func TestAnswerThatTheModelDidNotFinish(t *testing.T) {
	for name, c := range map[string]struct{ api, body string }{
		"whole":                {APIOpenAI, `{"choices":[{"message":{"content":"Once upon a"},"finish_reason":"length"}]}`},
		"streamed":             {APIOpenAI, "data: {\"choices\":[{\"delta\":{\"content\":\"Once upon a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n"},
		"of the other API":     {APIAnthropic, `{"type":"message","role":"assistant","content":[{"type":"text","text":"Once upon a"}],"stop_reason":"max_tokens","usage":{}}`},
		"of the window's size": {APIAnthropic, `{"type":"message","role":"assistant","content":[{"type":"text","text":"Once upon a"}],"stop_reason":"model_context_window_exceeded","usage":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			agent := newAgent(t, Options{Provider: newScript(t, recorded{body: c.body}).connect(t, c.api), MaxTokens: 3})
			response, _, err := fold(t.Context(), t, agent, question("length"))
			if err != nil || !response.Unfinished() || texts(response) != "Once upon a\n\n"+normalized.Cut {
				t.Errorf("%q %v %v", texts(response), response.Metadata, err)
			}
		})
	}

	response, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: scripted(says("All of it."))}), question("whole"))
	if err != nil || response.Unfinished() || texts(response) != "All of it." {
		t.Errorf("a whole answer: %q %v %v", texts(response), response.Metadata, err)
	}
}
