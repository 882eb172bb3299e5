package llm

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// anthropicOverloaded is an answer that breaks off before a piece of it came, after its tokens were counted.
var anthropicOverloaded = until(anthropicHello, "event: content_block_start") +
	"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"

func until(body, mark string) string {
	before, _, _ := strings.Cut(body, mark)
	return before
}

// spentOf returns the tokens in a note.
func spentOf(t *testing.T, kept *memory) (input, output int64) {
	t.Helper()
	if kept.note == nil {
		return 0, 0
	}
	given, err := value.Decode(kept.note, value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	usage := value.Assoc(value.Assoc(given)["usage"])
	input, _ = value.Integer(usage["prompt_tokens"])
	output, _ = value.Integer(usage["completion_tokens"])
	return input, output
}

// TestBrokenAttemptsAreInTheBudget: the tokens of an answer that broke off are in the note of the turn, as the provider counted them or as they
// are estimated, and the next run is stopped by them.
func TestBrokenAttemptsAreInTheBudget(t *testing.T) {
	long := strings.Repeat("word ", 400)
	begun := func(body string) string { return strings.Replace(body, "Grüße, ", long, 1) }
	half := func(body string) string { return until(begun(body), "*Welt*") }
	for name, test := range map[string]struct {
		api        string
		answer     recorded
		connection Connection
		cancel     bool
		input      int64 // 0 = an estimate of at least 100
		output     int64 // at least
	}{
		"openai, cut":               {api: APIOpenAI, answer: recorded{body: half(openAIHello)}, output: 500},
		"anthropic, cut":            {api: APIAnthropic, answer: recorded{body: half(anthropicHello)}, input: 19, output: 500},
		"openai, idle":              {api: APIOpenAI, answer: recorded{body: half(openAIHello), stall: true}, connection: Connection{IdleLimit: 30 * time.Millisecond}, output: 500},
		"openai, over its time":     {api: APIOpenAI, answer: recorded{body: half(openAIHello), stall: true}, connection: Connection{TimeLimit: 100 * time.Millisecond}, output: 500},
		"openai, nothing came":      {api: APIOpenAI, answer: recorded{body: ":\n\n", stall: true}, connection: Connection{IdleLimit: 30 * time.Millisecond}},
		"openai, run out of time":   {api: APIOpenAI, answer: recorded{body: half(openAIHello), stall: true}, cancel: true, output: 500},
		"openai, document cut":      {api: APIOpenAI, answer: recorded{body: begun(openAIWhole), header: map[string]string{"Content-Length": "9999"}}, output: 500},
		"anthropic, error after it": {api: APIAnthropic, answer: recorded{body: half(anthropicHello) + "\"}}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"}, input: 19, output: 500},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, test.answer, recorded{body: openAIHello})
			test.connection.API, test.connection.BaseURL, test.connection.Client = test.api, server.address, newClient(t)
			test.connection.Retry = Retry{Attempts: 1}
			provider, err := Connect(test.connection)
			if err != nil {
				t.Fatal(err)
			}
			defer closeIdle(provider)
			ctx, kept := t.Context(), &memory{}
			if test.cancel {
				limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				ctx = limited
			}
			turn := question("broken")
			turn.Memory = kept
			steps := timed(&turn)
			agent := newAgent(t, Options{Provider: provider, Budgets: Budgets{Tokens: 100}})
			if _, _, err := fold(ctx, t, agent, turn); err == nil {
				t.Fatal("no failure: the test does not test")
			}
			input, output := spentOf(t, kept)
			if test.input != 0 && input != test.input || test.input == 0 && input < 100 || output < test.output || output > 2*test.output+20 {
				t.Errorf("%d and %d tokens are counted", input, output)
			}
			if last := (*steps)[len(*steps)-1]; strings.Contains(last, `"prompt_tokens":0`) {
				t.Errorf("the timeline says %s", last)
			}

			response, _, err := fold(t.Context(), t, agent, turn)
			if err != nil || len(server.questions()) != 1 || texts(response) != sayStopped("tokens") {
				t.Errorf("asked %d times: %q, %v", len(server.questions()), texts(response), err)
			}
		})
	}
}

// TestRefusedRequestsCostNothing: a provider that is busy or not there spends no tokens.
func TestRefusedRequestsCostNothing(t *testing.T) {
	for name, answer := range map[string]recorded{
		"busy":                  {status: 529, body: `{"error":{"type":"overloaded_error","message":"Overloaded"}}`},
		"refused":               {status: 400, body: `{"error":{"message":"no"}}`},
		"refused in the stream": {body: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			kept := &memory{}
			turn := question("free")
			turn.Memory = kept
			if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: newScript(t, answer).connect(t, APIAnthropic)}), turn); err == nil {
				t.Fatal("no failure: the test does not test")
			}
			if input, output := spentOf(t, kept); input+output != 0 {
				t.Errorf("%d and %d tokens are counted", input, output)
			}
		})
	}
}

// TestRetriedAttemptsAreInTheBudget: the tokens of attempts that are made again are added up, and used up they end the attempts.
func TestRetriedAttemptsAreInTheBudget(t *testing.T) {
	connect := func(t *testing.T, server *script) Provider {
		t.Helper()
		provider, err := Connect(Connection{API: APIAnthropic, BaseURL: server.address, Client: newClient(t), Retry: Retry{Base: time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeIdle(provider) })
		return provider
	}
	t.Run("added up", func(t *testing.T) {
		server := newScript(t, recorded{body: anthropicOverloaded}, recorded{body: anthropicOverloaded}, recorded{body: anthropicHello})
		response, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: connect(t, server)}), question("twice"))
		if err != nil || response.Metadata["prompt_tokens"] != "57" || response.Metadata["completion_tokens"] != "12" || response.Metadata["cache_read_tokens"] != "12" {
			t.Errorf("%v, %v", response.Metadata, err)
		}
	})
	t.Run("used up", func(t *testing.T) {
		server := newScript(t, recorded{body: anthropicOverloaded})
		_, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: connect(t, server), Budgets: Budgets{Tokens: 35}}), question("used up"))
		if len(server.questions()) != 2 || fault.Of(err).Public != sayStopped("tokens") || !fault.Of(err).Permanent {
			t.Errorf("asked %d times: %v", len(server.questions()), err)
		}
	})
}

// TestThoughtsOfBrokenAttemptsAreInTheBudget: a model that thinks writes for minutes before the first word of its answer. It costs as much,
// and the attempt may be made again, because no one has read a piece of it.
func TestThoughtsOfBrokenAttemptsAreInTheBudget(t *testing.T) {
	long := strings.Repeat("word ", 400)
	openAI := func(delta string) string { return `data: {"choices":[{"index":0,"delta":` + delta + "}]}\n\n" }
	anthropic := func(block, delta string) string {
		return until(anthropicHello, "event: content_block_start") + `data: {"type":"content_block_start","index":0,"content_block":` + block + "}\n\n" +
			`data: {"type":"content_block_delta","index":0,"delta":` + delta + "}\n\n"
	}
	for name, test := range map[string]struct{ api, begin string }{
		"openai, reasoning_content": {APIOpenAI, openAI(`{"content":null,"reasoning_content":"` + long + `"}`)},
		"openai, reasoning":         {APIOpenAI, openAI(`{"content":"","reasoning":"` + long + `"}`)},
		"openai, both":              {APIOpenAI, openAI(`{"reasoning":"` + long + `","reasoning_content":"` + long + `"}`)},
		"openai, parts":             {APIOpenAI, openAI(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"` + long + `"}]}]}`)},
		"anthropic":                 {APIAnthropic, anthropic(`{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"`+long+`"}`)},
		"anthropic, sealed":         {APIAnthropic, anthropic(`{"type":"redacted_thinking","data":"`+strings.ReplaceAll(long, " ", "+")+`"}`, `{}`)},
		"anthropic, its own tool":   {APIAnthropic, anthropic(`{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`, `{"type":"input_json_delta","partial_json":"`+long+`"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			kept, turn := &memory{}, question("thinks")
			turn.Memory = kept
			if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: newScript(t, recorded{body: test.begin}).connect(t, test.api)}), turn); err == nil {
				t.Fatal("no failure: the test does not test")
			}
			if _, output := spentOf(t, kept); output < 500 || output > 600 {
				t.Errorf("%d tokens are counted", output)
			}

			overloaded := test.begin + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"
			whole := map[string]string{APIOpenAI: openAIHello, APIAnthropic: anthropicHello}[test.api]
			server := newScript(t, recorded{body: overloaded}, recorded{body: whole})
			provider, err := Connect(Connection{API: test.api, BaseURL: server.address, Client: newClient(t), Retry: Retry{Base: time.Millisecond}})
			if err != nil {
				t.Fatal(err)
			}
			defer closeIdle(provider)
			response, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: provider}), question("thinks again"))
			if spent, _ := strconv.Atoi(response.Metadata["completion_tokens"]); err != nil || spent < 510 || spent > 620 || strings.Contains(texts(response), "word") {
				t.Errorf("%d tokens, %v: %.100s", spent, err, texts(response))
			}
		})
	}
}
