package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

var everything = Request{
	Model: "m", System: "Be kind.", MaxTokens: 100, Temperature: new(0.5),
	Tools: []Tool{{Name: "find", Description: "finds", Parameters: map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}}}, {Name: "bare"}},
	Messages: []Message{
		{Role: RoleUser, Blocks: []Block{{Kind: BlockText, Text: "one <b>"}}},
		{Role: RoleAssistant, Blocks: []Block{{Kind: BlockText, Text: "two"}}, CacheBreakpoint: true},
		{Role: RoleUser, Blocks: []Block{
			{Kind: BlockText, Text: "look"}, {Kind: BlockImage, MediaType: "image/png", Data: []byte("png")},
			{Kind: BlockImage, URL: "https://example.org/a.png"},
		}},
		{Role: RoleAssistant, Blocks: []Block{
			{Kind: BlockText, Text: "I look."}, {Kind: BlockCall, ID: "a", Name: "find", Arguments: json.RawMessage(`{"q":"x"}`)},
			{Kind: BlockCall, ID: "b", Name: "bare"},
		}},
		{Role: RoleUser, Blocks: []Block{
			{Kind: BlockResult, ID: "a", Text: "found"}, {Kind: BlockResult, ID: "b", Text: "broke", Failed: true},
			{Kind: BlockText, Text: "go on"},
		}},
	},
}

const wantOpenAI = `{
 "model":"m","temperature":0.5,"max_tokens":100,"stream":true,"stream_options":{"include_usage":true},
 "tools":[{"type":"function","function":{"name":"find","description":"finds","parameters":{"type":"object","properties":{"q":{"type":"string"}}}}},
  {"type":"function","function":{"name":"bare","parameters":{"type":"object","properties":{}}}}],
 "messages":[
  {"role":"system","content":"Be kind."},
  {"role":"user","content":"one <b>"},
  {"role":"assistant","content":"two"},
  {"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}},{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}]},
  {"role":"assistant","content":"I look.","tool_calls":[{"id":"a","type":"function","function":{"name":"find","arguments":"{\"q\":\"x\"}"}},{"id":"b","type":"function","function":{"name":"bare","arguments":"{}"}}]},
  {"role":"tool","tool_call_id":"a","content":"found"},
  {"role":"tool","tool_call_id":"b","content":"broke"},
  {"role":"user","content":"go on"}]}`

const wantAnthropic = `{
 "model":"m","temperature":0.5,"max_tokens":100,"stream":true,
 "system":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}],
 "tools":[{"name":"find","description":"finds","input_schema":{"type":"object","properties":{"q":{"type":"string"}}}},
  {"name":"bare","input_schema":{"type":"object","properties":{}}}],
 "messages":[
  {"role":"user","content":[{"type":"text","text":"one <b>"}]},
  {"role":"assistant","content":[{"type":"text","text":"two","cache_control":{"type":"ephemeral"}}]},
  {"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}},{"type":"image","source":{"type":"url","url":"https://example.org/a.png"}}]},
  {"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"find","input":{"q":"x"}},{"type":"tool_use","id":"b","name":"bare","input":{}}]},
  {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"found"},{"type":"tool_result","tool_use_id":"b","content":"broke","is_error":true},{"type":"text","text":"go on"}]}]}`

func TestRequestsOnTheWire(t *testing.T) {
	for api, want := range map[string]string{APIOpenAI: wantOpenAI, APIAnthropic: wantAnthropic} {
		t.Run(api, func(t *testing.T) {
			server := newScript(t, recorded{body: recordings[api+" text"].body})
			for _, err := range server.connect(t, api).Stream(t.Context(), everything) {
				if err != nil {
					t.Fatal(err)
				}
			}
			var wanted map[string]any
			if err := json.Unmarshal([]byte(want), &wanted); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted, server.asked[0]); diff != "" {
				t.Error(diff)
			}
			header := server.headers[0]
			switch api {
			case APIOpenAI:
				if server.paths[0] != "/v1/chat/completions" || header.Get("Authorization") != "Bearer sk-secret" {
					t.Errorf("%s %v", server.paths[0], header)
				}
			case APIAnthropic:
				if server.paths[0] != "/v1/messages" || header.Get("X-Api-Key") != "sk-secret" || header.Get("Anthropic-Version") != "2023-06-01" {
					t.Errorf("%s %v", server.paths[0], header)
				}
			}
		})
	}
}

func TestRequestVariants(t *testing.T) {
	whole := everything
	whole.Whole, whole.NoTools, whole.MaxTokens = true, true, 0
	if body := (&openAI{}).body(whole); body.Stream || body.StreamOptions != nil || body.ToolChoice != "none" || body.MaxTokens != 0 {
		t.Errorf("openai: %+v", body)
	}
	if body := (&openAI{vendor: true}).body(everything); body.MaxCompletionTokens != 100 || body.MaxTokens != 0 {
		t.Errorf("the vendor's own API: %+v", body)
	}
	if body := anthropicBody(whole); body.Stream || body.ToolChoice.Type != "none" || body.MaxTokens != DefaultMaxTokens {
		t.Errorf("anthropic: %+v", body)
	}
	many := Request{}
	for range 10 {
		many.Messages = append(many.Messages, Message{Role: RoleUser, CacheBreakpoint: true, Blocks: []Block{{Kind: BlockText, Text: "x"}}})
	}
	if count := strings.Count(string(jsonText(mustValue(t, anthropicBody(many)))), "ephemeral"); count > 3 {
		t.Errorf("%d breakpoints", count)
	}
}

func mustValue(t *testing.T, given any) any {
	t.Helper()
	encoded, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := value.Decode(encoded, value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func TestConnectionsAreChecked(t *testing.T) {
	client := newClient(t)
	for name, c := range map[string]Connection{
		"no api":     {Client: client},
		"no client":  {API: APIOpenAI},
		"no host":    {API: APIOpenAI, Client: client, BaseURL: "https:///v1"},
		"scheme":     {API: APIOpenAI, Client: client, BaseURL: "ftp://example.org"},
		"user":       {API: APIAnthropic, Client: client, BaseURL: "https://u:p@example.org"},
		"fragment":   {API: APIAnthropic, Client: client, BaseURL: "https://example.org/#x"},
		"key":        {API: APIOpenAI, Client: client, APIKey: "sk-1\n"},
		"time limit": {API: APIOpenAI, Client: client, TimeLimit: -1},
	} {
		if _, err := Connect(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for base, want := range map[string]string{
		"": "https://api.anthropic.com/v1/messages", "http://127.0.0.1:1/v1/": "http://127.0.0.1:1/v1/messages",
		"http://[::1]:8080/proxy": "http://[::1]:8080/proxy/v1/messages",
	} {
		provider, err := Connect(Connection{API: APIAnthropic, Client: client, BaseURL: base})
		if err != nil {
			t.Fatal(err)
		}
		if got := provider.(retrying).provider.(*anthropic).endpoint.address; got != want {
			t.Errorf("%q: %s, want %s", base, got, want)
		}
	}
}

// The transcript has every result right after its call; providers want the calls of a turn together.
func TestConversationGroupsCalls(t *testing.T) {
	ids := func(id string) map[string]any { return map[string]any{"tool_call_id": id} }
	ok := map[string]any{"success": true, "result": "r"}
	transcript := []envelope.Envelope{
		envelope.AssistantText("I began.", nil),
		envelope.UserText("question", map[string]any{markBreakpoint: true}),
		envelope.AssistantText("thinking", nil),
		envelope.NewToolCall("", "find", map[string]any{"q": "1"}, 1, ids("a")),
		envelope.NewToolResult("ra", "find", ok, ids("a")),
		envelope.NewToolCall("", "find", nil, 1, ids("b")),
		envelope.NewToolResult("rb", "find", map[string]any{"success": false, "error": "e"}, ids("b")),
		envelope.AssistantText("Try something else.", map[string]any{"type": nudge}),
		envelope.NewToolCall("", "find", nil, 2, ids("c")),
		envelope.NewToolResult("rc", "find", ok, ids("c")),
		envelope.NewToolCall("", "find", nil, 2, ids("orphan")),
	}
	c := &conversation{pictures: &images{}}
	c.write(transcript)
	var got []string
	for _, message := range c.finish() {
		line := message.Role + ":"
		for _, block := range message.Blocks {
			line += " " + block.Kind + "(" + block.ID + block.Text + string(block.Arguments) + ")"
		}
		if message.CacheBreakpoint {
			line += " breakpoint"
		}
		got = append(got, line)
	}
	want := []string{
		"user: text((You began this conversation.))",
		"assistant: text(I began.)",
		"user: text(question) breakpoint",
		`assistant: text(thinking) tool_call(a{"q":"1"}) tool_call(b{})`,
		"user: tool_result(ara) tool_result(brb) text(Try something else.)",
		"assistant: tool_call(c{})",
		"user: tool_result(crc)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPicturesReachTheWire(t *testing.T) {
	png, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	asked := askedWith(t, pictureTurn(png))
	last := asked.Messages[len(asked.Messages)-1]
	if kinds := blockKinds(last); kinds != "text image" {
		t.Errorf("the request has %s", kinds)
	}
	if last.Blocks[1].MediaType != "image/png" || string(last.Blocks[1].Data) != string(png) {
		t.Error("the picture changed on its way")
	}
	asked = askedWith(t, pictureTurn([]byte("no picture at all")))
	if kinds := blockKinds(asked.Messages[len(asked.Messages)-1]); kinds != "text" {
		t.Errorf("a text that calls itself a picture gave %s", kinds)
	}
}

func blockKinds(message Message) string {
	kinds := make([]string, 0, len(message.Blocks))
	for _, block := range message.Blocks {
		kinds = append(kinds, block.Kind)
	}
	return strings.Join(kinds, " ")
}

// listening is a model that keeps what it was asked and says one thing.
func listening(asked *[]Request) Provider {
	return modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
		*asked = append(*asked, request)
		for _, delta := range says("ok") {
			if !yield(delta) {
				return nil
			}
		}
		return nil
	})
}
