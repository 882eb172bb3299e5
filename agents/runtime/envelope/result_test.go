package envelope_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

func TestResultErrors(t *testing.T) {
	const audit = `"type":"a","tool_name":"t","tool_call_id":"c","parameters_sha256":"p","result_sha256":"r"`
	for text, want := range map[string]string{
		`"x"`:                           "result must be an array",
		`{}`:                            "messages must be an array",
		`{"messages":"x"}`:              "messages must be an array",
		`{"messages":[],"version":"1"}`: "version must be 1",
		`{"messages":[],"version":2}`:   "version must be 1",
		`{"messages":[],"schema":"x"}`:  "schema must be agents-api.conversation-result",
		`{"messages":[{"role":"a"},{"role":"","content":""}]}`:                                    "messages[1] invalid_ai_message_envelope: role must be a non-empty string",
		`{"messages":[],"tool_events":null}`:                                                      "tool_events must be an array",
		`{"messages":[],"tool_audit_events":[7]}`:                                                 "tool_audit_events[0] must be an array",
		`{"messages":[],"tool_audit_events":[{}]}`:                                                "tool_audit_events[0].type must be a non-empty string",
		`{"messages":[],"tool_audit_events":[{` + audit + `}]}`:                                   "tool_audit_events[0].schema_version must be an integer",
		`{"messages":[],"tool_audit_events":[{` + audit + `,"schema_version":1}]}`:                "tool_audit_events[0].turn_count must be an integer",
		`{"messages":[],"tool_execution_results":[{"tool_name":"t","result":"x"}]}`:               "tool_execution_results[0].result must be an array",
		`{"messages":[],"tool_events":[{"type":"t","tool_name":"t","tool_call_id":"c"}]}`:         "tool_events[0].turn_count must be an integer",
		`{"messages":[],"status":null}`:                                                           "status must be a string when present",
		`{"messages":[],"completed":1}`:                                                           "completed must be a boolean when present",
		`{"messages":[],"turn_count":"1"}`:                                                        "turn_count must be an integer when present",
		`{"messages":[],"failure":"x"}`:                                                           "failure must be an array when present",
		`{"messages":[],"failure":{"type":"a","message":"m","turn_count":1.5}}`:                   "failure.turn_count must be an integer when present",
		`{"messages":[],"runtime_tool_pending":false}`:                                            "runtime_tool_pending must be an array when present",
		`{"messages":[],"structured_output":null,"events":1,"structured_output_diagnostics":"x"}`: "structured_output_diagnostics must be an array when present",
	} {
		_, err := envelope.NormalizeResult(decode(t, text))
		if err == nil || err.Error() != "invalid_agent_conversation_result: "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		problem, is := errors.AsType[*envelope.Error](err)
		if !is || problem.ErrorCode() != envelope.CodeResult || problem.Path == "" {
			t.Errorf("%s: %#v", text, err)
		}
	}
}

func TestRunOutcome(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                 `{"status":"completed","completed":true,"stop_reason":"natural","retryable":false}`,
		`{"completed":false}`:                `{"status":"incomplete","completed":false,"stop_reason":"incomplete","retryable":false}`,
		`{"completed":false,"status":"odd"}`: `{"status":"incomplete","completed":false,"stop_reason":"odd","retryable":false}`,
		`{"status":" CANCELLED "}`:           `{"status":"cancelled","completed":false,"stop_reason":"cancelled","retryable":false}`,
		`{"status":"budget_exceeded","budget":"tool_calls"}`:          `{"status":"budget_exceeded","completed":false,"stop_reason":"budget_exceeded","retryable":true}`,
		`{"failure":{"type":"a"}}`:                                    `{"status":"failed","completed":false,"stop_reason":"provider_error","retryable":true,"failure":{"type":"a"},"provider_error":{"type":"a"}}`,
		`{"status":"failed","run_outcome":{"stop_reason":" Odd "}}`:   `{"status":"failed","completed":false,"stop_reason":"odd","retryable":true}`,
		`{"run_outcome":{"status":"completed","completed":0}}`:        `{"status":"completed","completed":false,"stop_reason":"completed","retryable":false}`,
		`{"run_outcome":{"retryable":1,"metadata":{"a":1}}}`:          `{"status":"completed","completed":true,"stop_reason":"natural","retryable":true,"metadata":{"a":1}}`,
		`{"run_outcome":{"status":"Stalled","assertions":{"x":[]}}}`:  `{"status":"stalled","completed":false,"stop_reason":"stalled","retryable":false,"assertions":{"x":[]}}`,
		`{"run_outcome":"odd"}`:                                       `{"status":"completed","completed":true,"stop_reason":"natural","retryable":false}`,
		`{"run_outcome":{"completed":null,"provider_error":"x"}}`:     `{"status":"incomplete","completed":false,"stop_reason":"incomplete","retryable":false}`,
		`{"run_outcome":{"status":"interrupted","retryable":"0"}}`:    `{"status":"interrupted","completed":false,"stop_reason":"interrupted","retryable":false}`,
		`{"status":"budget_exceeded","budget":" Turns ","failure":1}`: `{"status":"budget_exceeded","completed":false,"stop_reason":"max_turns","retryable":true}`,
	} {
		result := value.Assoc(decode(t, text))
		wanted := value.Assoc(decode(t, want))
		wanted["schema"], wanted["version"] = envelope.OutcomeSchema, envelope.OutcomeVersion
		if got := envelope.RunOutcome(result); !value.Equal(got, wanted) {
			t.Errorf("%s:\ngot  %s\nwant %s", text, value.EncodeText(got), want)
		}
	}
	if got := envelope.RunControlStatus(map[string]any{"completed": false}); got != "running" {
		t.Errorf("an incomplete run is %s", got)
	}
	if got := envelope.RunControlStatus(map[string]any{"status": "stalled"}); got != envelope.StatusStalled {
		t.Errorf("a stalled run is %s", got)
	}
}

func TestToolObservability(t *testing.T) {
	result, err := envelope.NormalizeResult(decode(t, `{
		"messages": [],
		"tool_events": [
			{"type":"tool_call","tool_name":"alias","tool_call_id":"c","turn_count":1,"metadata":{"parameters":{"z":1,"a":{"x":2},"z":3}}},
			{"type":"tool_call","tool_name":"b","tool_call_id":"c","turn_count":2,"metadata":{"parameters":["x","y"]}},
			{"type":"tool_result","tool_name":"alias","tool_call_id":"c","turn_count":2,"metadata":{"success":true}},
			{"type":"tool_result","tool_name":"b","tool_call_id":"c","turn_count":2,"metadata":{"success":false,"rejected":true}},
			{"type":"tool_result","tool_name":"b","tool_call_id":"c","turn_count":2,"metadata":{"success":true}},
			{"type":"tool_call","tool_name":"p","tool_call_id":"d","turn_count":3}
		],
		"tool_execution_results": [
			{"tool_name":"alias","tool_call_id":"c","turn_count":1,"parameters":{},"result":{"tool_name":"real/a","result":"four"}},
			{"tool_name":"b","tool_call_id":"c","turn_count":1,"parameters":{},"result":{"tool_name":"real/b"}}
		]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := decode(t, `{"version":1,"calls":[
		{"sequence":1,"turn":1,"tool_call_id":"c","tool_name":"real/a","status":"succeeded","arguments":{"keys":["a","z"],"count":2,"redacted":true},"result":{"type":"string","size":4}},
		{"sequence":2,"turn":2,"tool_call_id":"c","tool_name":"real/b","status":"rejected","arguments":{"keys":["0","1"],"count":2,"redacted":true},"error":{"code":"agents_api_tool_call_rejected","message":"Tool call was rejected."}},
		{"sequence":3,"turn":3,"tool_call_id":"d","tool_name":"p","status":"pending","arguments":{"keys":[],"count":0,"redacted":true}}]}`)
	if !value.Equal(result["tool_observability"], want) {
		t.Errorf("got  %s\nwant %s", value.EncodeText(result["tool_observability"]), value.EncodeText(want))
	}
}

func TestObservedShapes(t *testing.T) {
	for given, want := range map[string]string{
		`{"a":1}`: `{"type":"object","count":1}`, `{}`: `{"type":"array","count":0}`, `[1,2]`: `{"type":"array","count":2}`,
		`"é"`: `{"type":"string","size":2}`, `1`: `{"type":"integer"}`, `1.5`: `{"type":"double"}`, `true`: `{"type":"boolean"}`,
		`null`: `{"type":"null"}`,
	} {
		result, err := envelope.NormalizeResult(decode(t, `{"messages":[],
			"tool_events":[{"type":"tool_call","tool_name":"a","tool_call_id":"c","turn_count":1},
				{"type":"tool_result","tool_name":"a","tool_call_id":"c","turn_count":1,"metadata":{"success":true}}],
			"tool_execution_results":[{"tool_name":"a","tool_call_id":"c","turn_count":1,"parameters":{},"result":{"result":`+given+`}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		calls, _ := value.List(value.Assoc(result["tool_observability"])["calls"])
		if got := value.Assoc(calls[0])["result"]; !value.Equal(got, decode(t, want)) {
			t.Errorf("%s: %s, want %s", given, value.EncodeText(got), want)
		}
	}
}

func TestResultTakesEnvelopes(t *testing.T) {
	list := []envelope.Envelope{envelope.UserText("q", nil)}
	result, err := envelope.NormalizeResult(map[string]any{"messages": list})
	if err != nil || !value.Equal(result["messages"], envelope.Values(list)) {
		t.Errorf("%v: %v", err, result["messages"])
	}
}

func TestResultKeepsWhatItDoesNotKnow(t *testing.T) {
	given := value.Assoc(decode(t, `{"messages":[],"warning":"w","provider_diagnostics":[{"a":1}],"structured_output":null}`))
	result, err := envelope.NormalizeResult(given)
	if err != nil || result["warning"] != "w" {
		t.Fatalf("%v: %v", err, result)
	}
	if _, kept := result["structured_output"]; !kept || len(given) != 4 {
		t.Errorf("result %v, given %v", result, given)
	}
}

func TestCitations(t *testing.T) {
	given, err := value.Decode([]byte(`[7,{},{"source":" ","score":"high"},{"source":" web ","score":"0.5","own":true,"item_id":7},{"score":"1e999","x":null},{"score":2}]`), value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []any{map[string]any{"source": "web", "score": 0.5, "own": true, "item_id": "7"}, map[string]any{"x": nil}, map[string]any{"score": 2.0}}
	if difference := cmp.Diff(want, envelope.Citations(given)); difference != "" {
		t.Error(difference)
	}
	if none := envelope.Citations("x"); none == nil || len(none) != 0 {
		t.Error(none)
	}
}
