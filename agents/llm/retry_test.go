package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/tool"
	"inbox/exchange"
	"inbox/internal/fault"
)

// failing is a model that fails some times and then answers.
func failing(times int, err error, before ...Delta) (provider Provider, asked *int) {
	asked = new(int)
	return modelFunc(func(_ context.Context, _ Request, yield func(Delta) bool) error {
		*asked++
		if *asked <= times {
			for _, delta := range before {
				if !yield(delta) {
					return nil
				}
			}
			return err
		}
		for _, delta := range says("ok") {
			if !yield(delta) {
				return nil
			}
		}
		return nil
	}), asked
}

func consume(ctx context.Context, provider Provider) (text string, err error) {
	collected := &reply{}
	for delta, err := range Retrying(provider, Retry{}).Stream(ctx, Request{}) {
		if err != nil {
			return "", err
		}
		if err := collected.add(delta); err != nil {
			return "", err
		}
	}
	return collected.text.String(), nil
}

func TestRetries(t *testing.T) {
	busy := (&refusal{status: 503, repeat: true}).fault(0)
	for name, c := range map[string]struct {
		err      error
		times    int
		before   []Delta
		asked    int
		ok       bool
		min, max time.Duration
	}{
		"once":                {busy, 1, nil, 2, true, 1500 * time.Millisecond, 2 * time.Second},
		"four times":          {busy, 4, nil, 5, true, 22 * time.Second, 30 * time.Second},
		"five times":          {busy, 5, nil, 5, false, 22 * time.Second, 30 * time.Second},
		"as asked":            {(&refusal{status: 429, repeat: true}).fault(40 * time.Second), 1, nil, 2, true, 40 * time.Second, 40 * time.Second},
		"asked for too long":  {(&refusal{status: 429, repeat: true}).fault(10 * time.Minute), 1, nil, 1, false, 0, 0},
		"refused":             {(&refusal{status: 400}).fault(0), 1, nil, 1, false, 0, 0},
		"cut":                 {cut(errStreamCut), 1, nil, 1, false, 0, 0},
		"after a delta":       {busy, 1, []Delta{{Kind: DeltaText, Text: "a"}}, 1, false, 0, 0},
		"after a tool call":   {busy, 1, []Delta{{Kind: DeltaToolCall}}, 1, false, 0, 0},
		"after counts alone":  {busy, 1, []Delta{{Kind: DeltaUsage}}, 2, true, 1500 * time.Millisecond, 2 * time.Second},
		"never got there":     {fault.RetryIn(0, "x", &unsentError{errors.New("refused")}), 1, nil, 2, true, 1500 * time.Millisecond, 2 * time.Second},
		"the context is over": {context.Canceled, 1, nil, 1, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider, asked := failing(c.times, c.err, c.before...)
				started := time.Now()
				text, err := consume(t.Context(), provider)
				if took := time.Since(started); took < c.min || took > c.max {
					t.Errorf("took %v, want %v to %v", took, c.min, c.max)
				}
				if *asked != c.asked || (err == nil) != c.ok || c.ok && text != "ok" {
					t.Errorf("asked %d times: %q %v", *asked, text, err)
				}
			})
		})
	}
}

func TestRetriesEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("the server stops")
		time.AfterFunc(time.Second, func() { cancel(stop) })
		provider, asked := failing(9, (&refusal{status: 500, repeat: true}).fault(0))
		if _, err := consume(ctx, provider); !errors.Is(err, stop) || *asked != 1 {
			t.Errorf("asked %d times: %v", *asked, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a pause that the deadline cuts is not begun
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		provider, _ := failing(9, (&refusal{status: 429, repeat: true}).fault(30*time.Second))
		started := time.Now()
		_, err := consume(ctx, provider)
		if fault.Of(err).RetryAfter != 30*time.Second || time.Since(started) != 0 {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "Sat, 21 Nov 2026 12:00:09 GMT", 9 * time.Second},
		{"Retry-After", "Sat, 21 Nov 2026 11:00:00 GMT", 0},
		{"Retry-After", "99999999999999999999", maxRetryAfter},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "-3", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
	} {
		if got := retryAfter(http.Header{c.name: {c.value}}, now); got != c.want {
			t.Errorf("%s: %s is %v, want %v", c.name, c.value, got, c.want)
		}
	}
}

func TestRefusalsOverHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		answer    recorded
		permanent bool
		after     time.Duration
		says      string
	}{
		"rate":     {recorded{status: 429, header: map[string]string{"Retry-After": "3"}, body: `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`}, false, 3 * time.Second, `429 rate_limit_error: "slow down"`},
		"overload": {recorded{status: 529, body: `{"error":{"type":"overloaded_error","message":"Overloaded"}}`}, false, 0, "529"},
		"server":   {recorded{status: 500, body: "<html>"}, false, 0, "500"},
		"stop it":  {recorded{status: 500, header: map[string]string{"X-Should-Retry": "false"}, body: "x"}, true, 0, "500"},
		"key":      {recorded{status: 401, body: `{"error":{"code":"invalid_api_key","message":"Incorrect API key provided: sk-secret."}}`}, true, 0, "check api_key"},
		"model":    {recorded{status: 404, body: `{"error":"model not found"}`}, true, 0, "check base_url and model"},
		"detail":   {recorded{status: 400, body: `{"message":"bad role"}`}, true, 0, "bad role"},
		"redirect": {recorded{status: 302, header: map[string]string{"Location": "https://elsewhere.example/"}}, true, 0, "elsewhere.example"},
		"page":     {recorded{header: map[string]string{"Content-Type": "text/html"}, body: "<html>"}, true, 0, "text/html"},
	} {
		for _, api := range []string{APIOpenAI, APIAnthropic} {
			t.Run(name+" "+api, func(t *testing.T) {
				var failed error
				for _, err := range newScript(t, c.answer).connect(t, api).Stream(t.Context(), Request{}) {
					failed = err
				}
				carried := fault.Of(failed)
				if carried.Permanent != c.permanent || carried.RetryAfter != c.after {
					t.Errorf("%+v", carried)
				}
				if text := carried.Error(); !strings.Contains(text, c.says) || strings.Contains(text, "sk-secret") {
					t.Errorf("the operator reads %s", text)
				}
				if strings.Contains(carried.Public, "http") || carried.Public == "" {
					t.Errorf("the sender reads %q", carried.Public)
				}
			})
		}
	}
}

func TestLimitsOfTimeAndSize(t *testing.T) {
	half := openAIHello[:len(openAIHello)/2]
	for name, c := range map[string]struct {
		answer     recorded
		connection Connection
		want       error
	}{
		"idle":  {recorded{body: half, stall: true}, Connection{IdleLimit: 30 * time.Millisecond}, errIdleLimit},
		"time":  {recorded{body: half, stall: true}, Connection{TimeLimit: 60 * time.Millisecond}, errTimeLimit},
		"size":  {recorded{body: openAIHello}, Connection{MaxResponseBytes: 300}, nil},
		"short": {recorded{body: half}, Connection{}, errStreamCut},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, c.answer)
			c.connection.API, c.connection.BaseURL, c.connection.Client = APIOpenAI, server.address, newClient(t)
			provider, err := Connect(c.connection)
			if err != nil {
				t.Fatal(err)
			}
			defer closeIdle(provider)
			var failed error
			for _, err := range provider.Stream(t.Context(), Request{}) {
				failed = err
			}
			carried := fault.Of(failed)
			if failed == nil || c.want != nil && !errors.Is(failed, c.want) || carried.Permanent != (c.want == nil) {
				t.Errorf("%v, permanent %v", failed, carried.Permanent)
			}
		})
	}
}

// A server that is not there is asked again, and then the engine is told to come back.
func TestUnreachableServer(t *testing.T) {
	server := newScript(t, recorded{})
	provider := server.connect(t, APIOpenAI).(*openAI)
	provider.endpoint.address = "http://127.0.0.1:1/v1"
	provider.endpoint.client = newClient(t).Trusting("127.0.0.1:1")
	var failed error
	for _, err := range provider.Stream(t.Context(), Request{}) {
		failed = err
	}
	if _, unsent := errors.AsType[*unsentError](failed); !unsent || fault.Of(failed).Permanent {
		t.Errorf("%v", failed)
	}
}

// timed keeps the steps of a turn as the timeline would, without times.
func timed(turn *agents.Turn) *[]string {
	var steps []string
	turn.Steps = func(kind string, body any) {
		switch step := body.(type) {
		case exchange.ModelStep:
			step.Millis = 0
			body = step
		case exchange.ToolStep:
			step.Millis = 0
			body = step
		}
		text, err := json.Marshal(body)
		steps = append(steps, fmt.Sprintf("%s %s %v", kind, text, err))
	}
	return &steps
}

func TestEachStepIsOnTheTimeline(t *testing.T) {
	tools := &toolbox{
		entries: []tool.Entry{declare("find", nil), declare("fail", nil)},
		run: func(_ context.Context, call tool.Call) (map[string]any, error) {
			if call.Name == "fail" {
				return nil, errors.New("out of order")
			}
			return map[string]any{"success": true, "result": []any{"a", "b"}}, nil
		},
	}
	agent := newAgent(t, Options{
		Provider: scripted(calls("find", `{"q":"secret words","api_key":"k"}`, "fail", "{}", "find", "[]"), says("done")),
		Tools:    []Tools{tools}, Price: Price{Input: 1, Output: 100, Currency: "EUR"},
	})
	turn := question("steps")
	steps := timed(&turn)
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`model.called {"n":1,"model":"test-model","ms":0,"prompt_tokens":20,"completion_tokens":7,"cost":0.00072,"currency":"EUR","stop":"tool_calls","tool_calls":3} <nil>`,
		`tool.called {"tool":"find","tool_call_id":"call_find0","status":"succeeded","ms":0,"arguments":{"keys":["api_key","q"],"count":2,"redacted":true},"result":{"type":"array","count":2}} <nil>`,
		`tool.called {"tool":"fail","tool_call_id":"call_fail2","status":"failed","ms":0,"arguments":{"keys":[],"count":0,"redacted":true},"error_type":"executor_exception"} <nil>`,
		`tool.called {"tool":"find","tool_call_id":"call_find4","status":"rejected","ms":0,"arguments":{"keys":[],"count":0,"redacted":true},"error_type":"unreadable_arguments"} <nil>`,
		`model.called {"n":2,"model":"test-model","ms":0,"prompt_tokens":10,"completion_tokens":5,"cost":0.00051,"currency":"EUR","stop":"end"} <nil>`,
	}
	if got := strings.Join(*steps, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the timeline is\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if response.Metadata["cost"] != "0.001230" {
		t.Errorf("the turn cost %s", response.Metadata["cost"])
	}
}

func TestFailedModelCallIsOnTheTimeline(t *testing.T) {
	broken := modelFunc(func(_ context.Context, _ Request, _ func(Delta) bool) error {
		return fault.GiveUp(sayRefused, errors.New("no such model"))
	})
	turn := question("broken")
	steps := timed(&turn)
	if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: broken}), turn); err == nil {
		t.Fatal("no failure")
	}
	if len(*steps) != 1 || !strings.Contains((*steps)[0], "no such model") {
		t.Errorf("the timeline is %v", *steps)
	}
}

func TestWaitIsOnTheTimeline(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("find", map[string]any{"action_policy": "preview"})}}
	agent := newAgent(t, Options{
		Provider: scripted(calls("find", `{"q":"x"}`), says("done")), Tools: []Tools{tools}, Approvals: ByDemand{Tools: []Tools{tools}},
	})
	turn := question("waits")
	turn.Memory = &memory{}
	steps := timed(&turn)
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	if last := (*steps)[len(*steps)-1]; last != `run.waits {"for":"approval_required","tool":"find","tool_call_id":"call_find0"} <nil>` {
		t.Errorf("the last step is %s", last)
	}
}

// Streams as both APIs send them.
const (
	openAIHello = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Grüße, "},"finish_reason":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"*Welt* \u2013 \"ok\""},"finish_reason":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

`

	openAICalls = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"find","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"q\":"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"café\"}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"read","arguments":"{}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":null,"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}}

data: [DONE]

`

	openAIWhole = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Grüße, *Welt* – \"ok\"","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4}}}`

	openAIWholeCalls = `{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"find","arguments":"{\"q\":\"café\"}"}},{"id":"call_b","type":"function","function":{"name":"read","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":30,"completion_tokens":12}}`

	anthropicHello = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüße, "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"*Welt* \u2013 \"ok\""}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":10}}

event: message_stop
data: {"type":"message_stop"}

`

	anthropicCalls = `event: message_start
data: {"type":"message_start","message":{"type":"message","role":"assistant","content":[],"usage":{"input_tokens":30,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"secret thoughts"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"call_a","name":"find","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"q\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"café\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_b","name":"read","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":12}}

event: message_stop
data: {"type":"message_stop"}

`

	anthropicWhole = `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Grüße, *Welt* – \"ok\""}],"stop_reason":"end_turn","usage":{"input_tokens":15,"cache_read_input_tokens":4,"output_tokens":10}}`

	anthropicWholeCalls = `{"type":"message","role":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"tool_use","id":"call_a","name":"find","input":{"q":"café"}},{"type":"tool_use","id":"call_b","name":"read","input":{}}],"stop_reason":"tool_use","usage":{"input_tokens":30,"output_tokens":12}}`
)
