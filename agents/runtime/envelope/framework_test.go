package envelope_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// examples has one message of every type and what its envelope must be: type, role, content, payload.
var examples = []struct{ message, kind, role, content, payload string }{
	{`{"type":"user_message","content":"List all tables","timestamp":"2024-01-15T10:30:00Z","metadata":{"user_id":"u"}}`,
		"text", "user", "List all tables", `{}`},
	{`{"type":"assistant_message","content":"Found 5 tables","timestamp":"2024-01-15T10:30:05Z"}`,
		"text", "assistant", "Found 5 tables", `{}`},
	{`{"type":"task","content":"Analyze","agent_key":"analyzer"}`,
		"text", "user", "Analyze", `{"agent_key":"analyzer","task":"Analyze"}`},
	{`{"type":"action","tool":"list_tables","args":{"schema":"public"},"agent_key":"analyzer"}`,
		"tool_call", "assistant", "", `{"tool_name":"list_tables","parameters":{"schema":"public"},"turn":0}`},
	{`{"type":"observation","content":{"count":3,"human_readable_summary":"Found 3 tables"},"agent_key":"analyzer"}`,
		"tool_result", "user", "Found 3 tables", `{"success":true,"result":{"count":3,"human_readable_summary":"Found 3 tables"}}`},
	{`{"type":"observation","content":{"count":3},"agent_key":"analyzer"}`,
		"tool_result", "user", `{"count":3}`, `{"success":true,"result":{"count":3}}`},
	{`{"type":"error","content":{"error_message":"Connection refused","error_type":"ConnectionError","tool":"query"},"agent_key":"a"}`,
		"error", "assistant", "Connection refused", `{"error_message":"Connection refused","error_type":"ConnectionError","tool":"query"}`},
	{`{"type":"final","content":{"operation":"display_message","payload":{"message":"done"},"human_readable_summary":"Analyzed"}}`,
		"final_result", "assistant", "Analyzed", `{"operation":"display_message","payload":{"message":"done"},"human_readable_summary":"Analyzed"}`},
	{`{"type":"synthesis","content":"Combined","phase_id":1,"from_manager":"m","is_global":true,"extra":[1]}`,
		"final_result", "assistant", "Combined", `{"synthesis":true,"phase_id":1,"from_manager":"m","is_global":true}`},
	{`{"type":"strategic_plan","content":{"refined_intent":"i","plan":{"phases":[],"primary_worker":"w","rationale":"r"}}}`,
		"text", "assistant", `{"plan":{"phases":[],"primary_worker":"w","rationale":"r"},"refined_intent":"i"}`,
		`{"refined_intent":"i","plan":{"phases":[],"primary_worker":"w","rationale":"r"}}`},
	{`{"type":"suggested_plan","content":{"steps":[{"name":"n","tool":"t"}]},"agent_key":"a"}`,
		"text", "system", `{"steps":[{"name":"n","tool":"t"}]}`, `{"steps":[{"name":"n","tool":"t"}]}`},
	{`{"type":"script_plan","content":"do this"}`, "text", "assistant", "do this", `{"script":"do this"}`},
	{`{"type":"director_context","content":"context"}`, "text", "system", "context", `{"context":"context"}`},
	{`{"type":"injected_context","content":["a"]}`, "text", "system", `["a"]`, `{"context":["a"]}`},
	{`{"type":"delegation","content":"please","agent_key":"worker"}`, "text", "assistant", "please", `{"delegate_to":"worker","task":"please"}`},
}

func TestImportOfEveryType(t *testing.T) {
	seen := map[envelope.FrameworkType]bool{}
	for _, example := range examples {
		message := value.Assoc(decode(t, example.message))
		seen[envelope.FrameworkType(value.Text(message["type"]))] = true
		e, err := envelope.Import(message)
		if err != nil {
			t.Fatalf("%s: %v", example.message, err)
		}
		if string(e.Type) != example.kind || e.Role != example.role || e.Content != example.content || e.CreatedAt != value.Text(message["timestamp"]) {
			t.Errorf("%s: %s / %s: %v", example.message, e.Type, e.Role, e.Content)
		}
		if !value.Equal(e.Payload, decode(t, example.payload)) {
			t.Errorf("%s: payload %s", example.message, value.EncodeText(e.Payload))
		}
		if diff := cmp.Diff(message, envelope.Export(e, "")); diff != "" {
			t.Errorf("%s: %s", example.message, diff)
		}
		if err := envelope.ValidateFramework(message); err != nil {
			t.Errorf("%s: %v", example.message, err)
		}
	}
	for _, kind := range envelope.FrameworkTypes() {
		if !seen[kind] || !kind.Known() {
			t.Errorf("%s has no example", kind)
		}
	}
}

func TestExportOfForeignEnvelopes(t *testing.T) {
	for text, want := range map[string]string{
		`{"role":"user","content":"x","created_at":"2026-04-28 12:00:00"}`:                                          `{"type":"user_message","content":"x","timestamp":"2026-04-28T12:00:00"}`,
		`{"role":"system","content":"x"}`:                                                                           `{"type":"injected_context","content":"x"}`,
		`{"version":1,"type":"text","role":"user","content":"x","payload":{"task":"do","agent_key":"worker"}}`:      `{"type":"task","content":"do","agent_key":"worker"}`,
		`{"role":"tool","content":"x","metadata":{"a":1}}`:                                                          `{"type":"assistant_message","content":"x","metadata":{"a":1}}`,
		`{"version":1,"type":"tool_call","payload":{"tool_name":"t","parameters":{"a":1}}}`:                         `{"type":"action","tool":"t","args":{"a":1},"agent_key":"me"}`,
		`{"version":1,"type":"tool_result","content":"{\"n\":1}","payload":{"tool_name":"t","success":true}}`:       `{"type":"observation","content":{"n":1},"agent_key":"me"}`,
		`{"version":1,"type":"tool_result","content":"c","payload":{"success":true,"result":{"n":2}}}`:              `{"type":"observation","content":{"n":2},"agent_key":"me"}`,
		`{"version":1,"type":"tool_result","content":"c","payload":{"tool_name":"t","success":false,"error":"no"}}`: `{"type":"error","content":{"error_message":"no","tool":"t"},"agent_key":"me"}`,
		`{"version":1,"type":"error","content":"boom","payload":{"error_type":"E"}}`:                                `{"type":"error","content":{"error_message":"boom","error_type":"E"},"agent_key":"me"}`,
		`{"version":1,"type":"final_result","content":"done","payload":{}}`:                                         `{"type":"final","content":{"operation":"display_message","payload":{"message":"done"},"human_readable_summary":"done"}}`,
		`{"version":1,"type":"final_result","content":"all","payload":{"synthesis":true,"phase_id":2}}`:             `{"type":"synthesis","content":"all","phase_id":2}`,
		`{"version":1,"type":"delta","content":"d","payload":{}}`:                                                   `{"type":"assistant_message","content":"d","metadata":{"envelope":{"schema":"agents-api.message","version":1,"type":"delta","role":"assistant","content":"d","payload":{},"metadata":{}}}}`,
		`{"role":"assistant","content":"x","metadata":{"agent_framework":{"type":"unheard"}}}`:                      `{"type":"assistant_message","content":"x","metadata":{"agent_framework":{"type":"unheard"}}}`,
		`{"version":1,"type":"tool_result","content":"c","payload":{"error":null},"metadata":{}}`:                   `{"type":"observation","content":"c","agent_key":"me"}`,
		`{"version":1,"type":"error","content":[{"a":1}],"payload":{}}`:                                             `{"type":"error","content":{"error_message":"[{\"a\":1}]"},"agent_key":"me"}`,
	} {
		e, err := envelope.Normalize(decode(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if got := envelope.Export(e, "me"); !value.Equal(got, decode(t, want)) {
			t.Errorf("%s:\ngot  %s\nwant %s", text, value.EncodeText(got), want)
		}
	}
}

func TestReadManyPairsObservations(t *testing.T) {
	list, err := envelope.ReadMany(decode(t, `[
		{"type":"action","tool":"a","args":{},"agent_key":"x"},
		{"type":"action","tool":"b","args":{},"agent_key":"y"},
		{"type":"observation","content":"from b","agent_key":"y"},
		{"type":"observation","content":"from a","agent_key":"x"},
		{"type":"observation","content":"from nobody","agent_key":"x"}]`))
	if err != nil {
		t.Fatal(err)
	}
	if list[2].ToolName() != "b" || list[3].ToolName() != "a" || list[4].ToolName() != "" {
		t.Errorf("%s", value.EncodeText(envelope.Values(list)))
	}
	if orphans := envelope.Orphans(list); len(orphans) != 1 || orphans[0].Index != 4 {
		t.Errorf("orphans %v", orphans)
	}
	for text, want := range map[string]string{
		`[{"type":"final","content":""},{"type":"x"}]`:                                        "invalid_agent_framework_message: messages[1].type is not known; want one of user_message,",
		`[{"type":"final","content":""},7]`:                                                   "invalid_agent_framework_message: messages[1] must be an object",
		`[{"version":1,"payload":{},"type":"text"},{"version":2,"payload":{},"type":"text"}]`: "invalid_ai_message_envelope: messages[1].version unsupported version",
		`{"a":1}`: "invalid_agent_framework_message: messages must be a list",
	} {
		if _, err := envelope.ReadMany(decode(t, text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	mixed, err := envelope.ReadMany(decode(t, `[{"type":"user_message","content":"a"},{"version":1,"payload":{},"type":"tool_call"}]`))
	if err != nil || mixed[0].Role != "user" || mixed[1].Type != envelope.TypeToolCall {
		t.Errorf("%s, %v", value.EncodeText(envelope.Values(mixed)), err)
	}
}

func TestCollections(t *testing.T) {
	if !envelope.ExecutionTrace.Has(envelope.Observation) || envelope.Planning.Has(envelope.Delegation) {
		t.Error("the collections are wrong")
	}
	total := 0
	for _, kind := range envelope.FrameworkTypes() {
		for _, c := range []envelope.Collection{envelope.Conversation, envelope.ExecutionTrace, envelope.Completion, envelope.Planning} {
			if c.Has(kind) {
				total++
			}
		}
	}
	if total != 11 {
		t.Errorf("%d types are in collections", total)
	}
}

func TestFrameworkValidation(t *testing.T) {
	for text, want := range map[string]string{
		`[]`: "message must be an object",
		`{"type":"odd"}`: "type is not known; want one of user_message, assistant_message, task, action, observation, error, final, synthesis, " +
			"strategic_plan, suggested_plan, script_plan, director_context, injected_context, delegation",
		`{"type":"user_message"}`:                                       "content is required",
		`{"type":"user_message","content":7}`:                           "content must be a string, a list or an object",
		`{"type":"task","content":"x"}`:                                 "agent_key must be a non-empty string",
		`{"type":"final","content":"x"}`:                                "content.operation must be a non-empty string",
		`{"type":"error","content":{"tool":"t"},"agent_key":"a"}`:       "content.error_message must be a non-empty string",
		`{"type":"action","args":{},"agent_key":"a"}`:                   "tool must be a non-empty string",
		`{"type":"action","tool":"t","args":"x","agent_key":"a"}`:       "args must be an object",
		`{"type":"strategic_plan","content":{"plan":"x"}}`:              "content.plan must be an object",
		`{"type":"suggested_plan","content":{}}`:                        "content.steps must be a list",
		`{"type":"user_message","content":"x","agent_key":7}`:           "agent_key must be a non-empty string",
		`{"type":"user_message","content":"x","timestamp":"yesterday"}`: "timestamp must be an ISO 8601 time",
		`{"type":"user_message","content":"x","timestamp":null}`:        "timestamp must be an ISO 8601 time",
		`{"type":"user_message","content":"x","metadata":"y"}`:          "metadata must be an object",
	} {
		err := envelope.ValidateFramework(decode(t, text))
		if err == nil || err.Error() != "invalid_agent_framework_message: "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, stamp := range []string{"2024-01-15T10:30:00Z", "2024-01-15T10:30:00.123456", "2024-01-15T10:30:00+02:00", "2024-01-15"} {
		message := map[string]any{"type": "user_message", "content": "x", "timestamp": stamp}
		if err := envelope.ValidateFramework(message); err != nil {
			t.Errorf("%s: %v", stamp, err)
		}
	}
}

// TestBuiltMessagesKeepTheRules: the seven builders make what the framework's own rules accept, and what import reads back.
func TestBuiltMessagesKeepTheRules(t *testing.T) {
	about := envelope.About{AgentKey: "analyzer", Timestamp: "2024-01-15T10:30:00Z", Metadata: map[string]any{"n": "1"}}
	const rest = `"agent_key":"analyzer","timestamp":"2024-01-15T10:30:00Z","metadata":{"n":"1"}}`
	for want, message := range map[string]map[string]any{
		`{"type":"user_message","content":"hello",` + rest:                  envelope.NewUserMessage("hello", about),
		`{"type":"assistant_message","content":["hello"],` + rest:           envelope.NewAssistantMessage([]any{"hello"}, about),
		`{"type":"task","content":"Analyze",` + rest:                        envelope.NewTask("Analyze", about),
		`{"type":"action","tool":"list","args":{},` + rest:                  envelope.NewAction("list", nil, about),
		`{"type":"observation","content":{"result":"success"},` + rest:      envelope.NewObservation(map[string]any{"result": "success"}, about),
		`{"type":"error","content":{"error_message":"refused"},` + rest:     envelope.NewError(map[string]any{"error_message": "refused"}, about),
		`{"type":"final","content":{"operation":"display_message"},` + rest: envelope.NewFinal(map[string]any{"operation": "display_message"}, about),
	} {
		if !value.Equal(message, decode(t, want)) {
			t.Errorf("got %s, want %s", value.EncodeText(message), want)
		}
		if err := envelope.ValidateFramework(message); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if e, err := envelope.Import(message); err != nil || !value.Equal(envelope.Export(e, ""), message) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if bare := envelope.NewUserMessage("x", envelope.About{}); len(bare) != 2 {
		t.Errorf("%v", bare)
	}
}

func FuzzImport(f *testing.F) {
	for _, example := range examples {
		f.Add([]byte(example.message))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		given, err := value.Decode(data, value.Limits{Bytes: 1 << 16})
		if err != nil {
			return
		}
		_ = envelope.ValidateFramework(given)
		e, err := envelope.Import(given)
		if err != nil {
			return
		}
		stored, err := envelope.Normalize(e.Value())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(given, any(envelope.Export(stored, "nobody"))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func decode(t *testing.T, text string) any {
	t.Helper()
	given, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return given
}
