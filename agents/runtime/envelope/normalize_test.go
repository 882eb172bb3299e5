package envelope_test

import (
	"math"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

func TestNormalizeErrors(t *testing.T) {
	const schema = `"schema":"agents-api.message","type":"text","role":"user","content":"hi"`
	for text, want := range map[string]string{
		`{` + schema + `,"version":2}`:                                         "unsupported version",
		`{` + schema + `,"version":0}`:                                         "unsupported version",
		`{` + schema + `,"version":1.0}`:                                       "unsupported version",
		`{` + schema + `,"version":"one"}`:                                     "unsupported version",
		`{` + schema + `,"version":"10"}`:                                      "unsupported version",
		`{` + schema + `,"version":true}`:                                      "unsupported version",
		`{` + schema + `,"version":[1]}`:                                       "unsupported version",
		`{"version":1,"type":"multimodal","payload":{},"role":"","content":1}`: "unsupported type",
		`{"version":1,"type":7,"payload":{}}`:                                  "unsupported type",
		`{"role":"","content":1}`:                                              "role must be a non-empty string",
		`{"role":7,"content":"x"}`:                                             "role must be a non-empty string",
		`{"role":["user"],"content":"x"}`:                                      "role must be a non-empty string",
		`{"role":"user","content":true}`:                                       "content must be a string or array",
		`{"role":"user","content":1.5}`:                                        "content must be a string or array",
		`"x"`:                                                                  "message must be an array",
		`null`:                                                                 "message must be an array",
	} {
		_, err := envelope.Normalize(decode(t, text))
		if err == nil || err.Error() != "invalid_ai_message_envelope: "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	loop := map[string]any{}
	loop["itself"] = loop
	for name, metadata := range map[string]map[string]any{
		"cycle": loop, "function": {"f": func() {}}, "not a number": {"n": math.NaN()},
	} {
		_, err := envelope.Normalize(map[string]any{"role": "user", "content": "x", "metadata": metadata})
		if err == nil || err.Error() != "invalid_ai_message_envelope: envelope must be JSON serializable" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNormalize(t *testing.T) {
	const head = `"schema":"agents-api.message","version":1,`
	for name, c := range map[string]struct{ in, want string }{
		"version as text":               {`{"schema":"x","version":" 1","type":"text"}`, `{"type":"text","role":"assistant","content":"","payload":{},"metadata":{}}`},
		"null schema and no payload":    {`{"schema":null,"version":1,"type":"error","role":"user","content":"x"}`, `{"type":"text","role":"user","content":"x","payload":{},"metadata":{}}`},
		"null data is evidence":         {`{"data":null,"version":1,"type":"delta","content":"x"}`, `{"type":"delta","role":"assistant","content":"x","payload":{},"metadata":{}}`},
		"draft with empty payload":      {`{"payload":{},"data":{"a":1},"version":1,"type":"delta"}`, `{"type":"delta","role":"assistant","content":"","payload":{"a":1},"metadata":{}}`},
		"typed text with blocks":        {`{"payload":{},"version":1,"type":"text","role":"user","content":[{"t":1}]}`, `{"type":"text","role":"user","content":[{"t":1}],"payload":{},"metadata":{}}`},
		"odd payload and metadata":      {`{"payload":"x","metadata":7,"version":1,"type":"input_required"}`, `{"type":"input_required","role":"tool","content":"","payload":{},"metadata":{}}`},
		"error false is an error":       {`{"role":"user","content":"x","metadata":{"error":false}}`, `{"type":"error","role":"user","content":"x","payload":{},"metadata":{"error":false}}`},
		"error null is none":            {`{"role":"user","content":"x","metadata":{"error":null}}`, `{"type":"text","role":"user","content":"x","payload":{},"metadata":{"error":null}}`},
		"multimodal before error":       {`{"role":"user","content":"x","metadata":{"type":"multimodal","error":1}}`, `{"type":"multimodal_part","role":"user","content":"x","payload":{},"metadata":{"type":"multimodal","error":1}}`},
		"default role of a tool result": {`{"content":"x","metadata":{"type":"tool_result","error":null}}`, `{"type":"tool_result","role":"tool","content":"x","payload":{"error":null},"metadata":{"type":"tool_result","error":null}}`},
		"empty and odd ids are dropped": {`{"role":"user","content":"x","id":"","created_at":7,"updated_at":"u"}`, `{"type":"text","role":"user","content":"x","payload":{},"metadata":{},"updated_at":"u"}`},
	} {
		got, err := envelope.Normalize(decode(t, c.in))
		if want := decode(t, "{"+head+c.want[1:]); err != nil || !value.Equal(got.Value(), want) {
			t.Errorf("%s: %v\ngot  %s\nwant %s", name, err, value.EncodeText(got.Value()), value.EncodeText(want))
		}
	}
}

func TestBuilders(t *testing.T) {
	payload := map[string]any{"success": true, "tool_name": "other"}
	result := envelope.NewToolResult("r", "t", payload, nil)
	if result.Role != "user" || result.ToolName() != "t" || payload["tool_name"] != "other" {
		t.Errorf("tool result %+v, payload given %v", result, payload)
	}
	approval := envelope.NewApprovalRequired("please", nil, nil)
	if approval.Role != "tool" || approval.Type != envelope.TypeApprovalRequired {
		t.Errorf("approval %+v", approval)
	}
	call, err := envelope.NewText("assistant", "c", map[string]any{"type": "tool_call", "tool_name": "t"})
	if err != nil || call.Type != envelope.TypeToolCall || len(call.Payload) != 0 {
		t.Errorf("text with a type of its own: %v %+v", err, call)
	}
	if _, err := envelope.NewText("", "c", nil); err == nil {
		t.Error("a text without role was built")
	}
	for _, e := range []envelope.Envelope{result, approval, call, envelope.UserText("x", nil), envelope.AssistantText("x", nil)} {
		again, err := envelope.Normalize(e.Value())
		if err != nil || !value.Equal(again.Value(), e.Value()) {
			t.Errorf("%v: %+v is not canonical", err, e)
		}
	}
}

func TestCoalesceKeepsBlocksWithoutParts(t *testing.T) {
	list, err := envelope.NormalizeMany(decode(t, `[
		{"role":"user","content":[{"image":1}],"metadata":{"m":1}},
		{"version":1,"type":"multimodal_part","role":"user","content":"ab","payload":{"parts":[{"type":"text","content":"a"},"x",{"type":"text","content":"b"}]}},
		{"role":"assistant","content":"c","id":"kept"}]`))
	if err != nil {
		t.Fatal(err)
	}
	merged := envelope.Coalesce(list)
	if len(merged) != 2 || merged[1].ID != "kept" || merged[0].Content != "a\n\nb" || merged[0].Metadata["m"] == nil {
		t.Fatalf("%+v", merged)
	}
	if parts, _ := value.List(merged[0].Payload["parts"]); len(parts) != 3 {
		t.Errorf("%d parts: %s", len(parts), value.EncodeText(parts))
	}
}

func TestPairs(t *testing.T) {
	row := func(kind, name, id string) map[string]any {
		metadata := map[string]any{"type": kind, "tool_name": name}
		if id != "" {
			metadata["tool_call_id"] = id
		}
		return map[string]any{"role": "x", "content": "", "metadata": metadata}
	}
	for name, c := range map[string]struct {
		rows []any
		want []int
	}{
		"names in order":                {[]any{row("tool_call", "a", ""), row("tool_call", "a", ""), row("tool_result", "a", "")}, []int{1}},
		"an id never matches a name":    {[]any{row("tool_call", "a", "1"), row("tool_result", "a", "")}, []int{0, 1}},
		"an id matches whatever name":   {[]any{row("tool_call", "a", "1"), row("tool_result", "b", "1")}, nil},
		"one call answers one result":   {[]any{row("tool_call", "a", "1"), row("tool_result", "a", "1"), row("tool_result", "a", "1")}, []int{2}},
		"texts between change nothing":  {[]any{row("tool_call", "a", "1"), row("text", "", ""), row("tool_result", "a", "1")}, nil},
		"an odd id counts as none":      {[]any{row("tool_call", "a", ""), map[string]any{"role": "x", "metadata": map[string]any{"type": "tool_result", "tool_name": "a", "tool_call_id": 7}}}, nil},
		"nothing":                       {[]any{}, nil},
		"a call after its result is an": {[]any{row("tool_result", "a", "1"), row("tool_call", "a", "1")}, []int{0, 1}},
	} {
		list, err := envelope.NormalizeMany(c.rows)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, o := range envelope.Prune(list).Removed {
			got = append(got, o.Index)
		}
		if !value.Equal(value.Plain(got), value.Plain(c.want)) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":"x","metadata":{"type":"tool_result","tool_name":"a"}}`))
	f.Add([]byte(`{"schema":"x","version":"1.9","type":"tool_call","data":{"a":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		given, err := value.Decode(data, value.Limits{Bytes: 1 << 16})
		if err != nil {
			return
		}
		once, err := envelope.Normalize(given)
		if err != nil {
			return
		}
		twice, err := envelope.Normalize(once.Value())
		if err != nil || !value.Equal(once.Value(), twice.Value()) {
			t.Fatalf("%v: %s", err, data)
		}
		once.Provider()
		envelope.Export(once, "agent")
		_, _ = envelope.NormalizeResult(map[string]any{"messages": []any{given}})
	})
}
