package bridge

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/internal/fault"
)

// TestRowsThatTheFrameworkStores: the import keeps the values and numbers of rows as the framework writes them, shows their text, and lists
// the broken rules in the metadata. A strict import refuses these rows.
func TestRowsThatTheFrameworkStores(t *testing.T) {
	for row, want := range map[string]struct {
		kind   envelope.Type
		text   string
		at     string
		broken []string
	}{
		`{"type":"observation","content":{"a":1},"timestamp":1234567890.0,"turn_id":"t1"}`: {
			envelope.TypeToolResult, `{"a":1}`, "2009-02-13T23:31:30Z", []string{"agent_key must be a non-empty string", "timestamp must be an ISO 8601 time"},
		},
		`{"type":"error","content":"no","error_type":"x"}`: {envelope.TypeError, "no", "", []string{"content.error_message must be a non-empty string", "agent_key must be a non-empty string"}},
		`{"type":"final","content":"done"}`:                {envelope.TypeFinalResult, "done", "", []string{"content.operation must be a non-empty string"}},
		`{"type":"delegation","worker":"w","task":"t"}`:    {envelope.TypeText, "t", "", []string{"content is required"}},
		`{"type":"global_observation","from_worker":"w","summary":"s"}`: {
			envelope.TypeToolResult, "s", "", []string{"type is not known", "content is required", "agent_key must be a non-empty string"},
		},
		`{"type":"action","tool":"list","args":null,"turn_id":"t1","timestamp":1700000000123}`: {
			envelope.TypeToolCall, "", "2023-11-14T22:13:20.123Z", []string{"args must be an object", "agent_key must be a non-empty string", "timestamp must be an ISO 8601 time"},
		},
		`{"type":"task","content":"look","agent_key":null,"metadata":null}`:  {envelope.TypeText, "look", "", []string{"agent_key must be a non-empty string", "metadata must be an object"}},
		`{"type":"synthesis","phase_id":1,"summary":"all","is_global":true}`: {envelope.TypeFinalResult, "all", "", []string{"content is required"}},
		`{"type":"strategic_plan","content":"first this"}`:                   {envelope.TypeText, "first this", "", []string{"content.plan must be an object"}},
		`{"type":"suggested_plan","content":{"todo":"x"}}`:                   {envelope.TypeText, `{"todo":"x"}`, "", []string{"content.steps must be a list"}},
		`{"type":"script_plan","script":"a b"}`:                              {envelope.TypeText, "a b", "", []string{"content is required"}},
		`{"type":"phase_started","phase":2}`:                                 {envelope.TypeText, `{"phase":2}`, "", []string{"type is not known", "content is required"}},
		`{"type":"user_message","content":"Hello","timestamp":null}`:         {envelope.TypeText, "Hello", "", []string{"timestamp must be an ISO 8601 time"}},
	} {
		document := Document{Messages: []json.RawMessage{json.RawMessage(row)}}
		one, err := Prepare("owner", "echo", document, 0)
		if err != nil || one.Lenient != 1 || one.Messages[0] != row {
			t.Errorf("%s: kept as %q, %d lenient, %v", row, one.Messages, one.Lenient, err)
			continue
		}

		lines, err := readKept(one.Messages)
		if err != nil {
			t.Fatal(err)
		}
		message := lines[0].message
		mark, _ := message.Metadata["agent_framework"].(map[string]any)
		if got := fmt.Sprint(mark["lenient"]); got != fmt.Sprint(want.broken) {
			t.Errorf("%s: breaks %s, want %q", row, got, want.broken)
		}
		if message.Type != want.kind || message.Text() != want.text || message.CreatedAt != want.at {
			t.Errorf("%s: is %s %q at %q", row, message.Type, message.Text(), message.CreatedAt)
		}
		if lines[0].kept != row || lines[0].format != FormatFramework {
			t.Errorf("%s: would be exported as %s", row, lines[0].kept)
		}

		document.Strict = true
		if _, err := Prepare("owner", "echo", document, 0); !fault.Is(err, fault.Malformed) {
			t.Errorf("%s: a strict import says %v", row, err)
		}
	}

	const kept = `{"type":"observation","content":1,"agent_key":"a","timestamp":"2024-01-15T10:30:00Z"}`
	one, err := Prepare("owner", "echo", Document{Messages: []json.RawMessage{json.RawMessage(kept)}}, 0)
	if err != nil || one.Lenient != 0 || !slices.Equal(one.Messages, []string{kept}) {
		t.Errorf("a row that keeps the rules: %+v, %v", one, err)
	}
}
