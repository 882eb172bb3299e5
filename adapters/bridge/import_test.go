package bridge

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// message draws a message of the older framework, with members that it does not know.
func message() *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		one := map[string]any{"type": string(rapid.SampledFrom(envelope.FrameworkTypes()).Draw(t, "type"))}
		value := rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }), rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			rapid.Map(rapid.Float64(), func(n float64) any { return n }), rapid.Just[any](nil), rapid.Just[any](map[string]any{"a": []any{true}}),
		)
		for name, member := range rapid.MapOfN(rapid.StringN(1, 8, -1), value, 0, 4).Draw(t, "members") {
			one["x_"+name] = member
		}

		held := map[string]any{"error_message": "no", "operation": "show", "plan": map[string]any{}, "steps": []any{}, "more": value.Draw(t, "more")}
		switch envelope.FrameworkType(one["type"].(string)) {
		case envelope.Action:
			one["tool"], one["args"] = "list", held
		case envelope.Observation:
			one["content"] = rapid.OneOf(rapid.Just[any](held), rapid.Just[any]("text"), rapid.Just[any](json.Number("1.50"))).Draw(t, "content")
		case envelope.UserMessage, envelope.Task:
			one["content"] = rapid.String().Draw(t, "content")
		default:
			one["content"] = held
		}

		if envelope.ExecutionTrace.Has(envelope.FrameworkType(one["type"].(string))) {
			one["agent_key"] = "analyzer"
		}
		return one
	})
}

// TestExportAfterImportIsIdentity: what a document says is what it said, however often it goes there and back.
func TestExportAfterImportIsIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := []json.RawMessage{}
		for _, one := range rapid.SliceOfN(message(), 0, 6).Draw(t, "messages") {
			encoded, err := json.MarshalIndent(one, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, encoded)
		}
		document := Document{Agent: "echo", Title: "t", SessionID: "s", Messages: messages}
		var before []string
		for range 3 {
			encoded, err := document.Encode()
			if err != nil {
				t.Fatal(err)
			}
			documents, _, err := ReadImport(encoded)
			if err != nil || len(documents) != 1 {
				t.Fatalf("%d documents, %v", len(documents), err)
			}
			one, err := Prepare("owner", "echo", documents[0], 0)
			if err != nil {
				t.Fatal(err)
			}
			if before != nil && !slices.Equal(before, one.Messages) {
				t.Fatalf("got %q, want %q", one.Messages, before)
			}
			before = one.Messages
			for i, text := range one.Messages {
				if !value.Equal(decoded([]byte(text)), decoded(messages[i])) {
					t.Fatalf("message %d is %s, was %s", i, text, messages[i])
				}
			}
			var list []json.RawMessage
			for _, text := range one.Messages {
				list = append(list, json.RawMessage(text))
			}
			document = documentOf(one.Session, FormatFramework, list)
		}
	})
}

func TestNumbersStayAsTheyWere(t *testing.T) {
	const raw = `{"type":"task","content":{"a":1.0,"b":1e2,"c":12345678901234567890.5,"d":"\u003cA\ud83d\ude00"},"agent_key":"x"}`
	one, err := Prepare("owner", "echo", Document{Messages: []json.RawMessage{json.RawMessage(raw)}}, 0)
	if err != nil || one.Messages[0] != raw {
		t.Errorf("%q, %v", one.Messages, err)
	}
}

func TestRefusedImports(t *testing.T) {
	for _, body := range []string{``, `{}`, `"x"`, `{"messages":{}}`, `[1`, `{"conversations":[]}`} {
		if _, _, err := ReadImport([]byte(body)); !fault.Is(err, fault.Malformed) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`{"schema":"agents-api/runtime-bundle/v1","agents":[]}`, `{"schema":"agents-api.agent-package"}`, `{"runtime_bundle":{}}`} {
		if _, _, err := ReadImport([]byte(body)); !errors.Is(err, errBundle) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for body, want := range map[string][2]string{
		`{"format":"other","messages":[]}`:                                                                {"format", "must be one of agent-framework, envelope"},
		`[{"type":"odd","content":""}]`:                                                                   {"messages[0].type", "conversation 1, message 1: type is not known; want one of user_message,"},
		`[{"type":"user_message","content":"x"},[]]`:                                                      {"messages[1]", "conversation 1, message 2: message must be an object"},
		`{"messages":[{"type":"user_message"}]}`:                                                          {"messages[0].content", "conversation 1, message 1: content is required"},
		`{"messages":[{"type":"final","content":{"operation":""}}]}`:                                      {"messages[0].content.operation", "conversation 1, message 1: content.operation must be a non-empty string"},
		`{"messages":[{"type":"task","content":"x"}]}`:                                                    {"messages[0].agent_key", "conversation 1, message 1: agent_key must be a non-empty string"},
		`{"messages":[{"role":"user","content":7}]}`:                                                      {"messages[0].content", "conversation 1, message 1: content must be a string or array"},
		`{"messages":[{"version":2,"type":"text","payload":{}}]}`:                                         {"messages[0].version", "conversation 1, message 1: unsupported version"},
		`{"messages":[{"version":1,"type":"odd","payload":{}}]}`:                                          {"messages[0].type", "conversation 1, message 1: unsupported type"},
		`{"format":"envelope","messages":[{"role":"","content":"x"}]}`:                                    {"messages[0].role", "conversation 1, message 1: role must be a non-empty string"},
		`{"format":"agent-framework","messages":[{"role":"user"}]}`:                                       {"messages[0].type", "conversation 1, message 1: type is not known; want one of user_message,"},
		`{"conversations":[{"messages":[]},{"messages":[{"type":"task"}]}]}`:                              {"conversations[1].messages[0].content", "conversation 2, message 1: content is required"},
		"{\"role\":\"user\",\"content\":\"x\"}\n\n{\"type\":\"strategic_plan\",\"content\":{\"plan\":1}}": {"content.plan", "line 3: content.plan must be an object"},
		"{\"role\":\"user\",\"content\":\"x\"}\n{\"role\":":                                               {"", "line 2 is not JSON: "},
		"{\"messages\":\n[{]}":                                                                            {"", "line 2 is not JSON: "},
	} {
		documents, _, err := ReadImport([]byte(body))
		for i := 0; err == nil && i < len(documents); i++ {
			documents[i].Strict = true
			_, err = Prepare("owner", "echo", documents[i], i)
		}
		if refused := fault.Of(err); refused.Kind != fault.Malformed || refused.Field != want[0] || !strings.HasPrefix(refused.Public, want[1]) {
			t.Errorf("%s: %s %q %q, want %q", body, refused.Kind, refused.Field, refused.Public, want)
		}
	}
	if _, err := Prepare("owner", "echo", Document{SessionID: strings.Repeat("x", 256)}, 0); !fault.Is(err, fault.Malformed) {
		t.Error(err)
	}
}

// TestMessagesAreWhatTheyLookLike: envelopes and rows are stored as canonical envelopes, those of the framework as they came.
func TestMessagesAreWhatTheyLookLike(t *testing.T) {
	const head = `"schema":"agents-api.message","type":`
	for given, want := range map[string]string{
		`{"role":"user", "content":"x"}`: `{"content":"x","metadata":{},"payload":{},"role":"user",` + head + `"text","version":1}`,
		`{"type":"error","role":"assistant","content":"x","metadata":{"type":"tool_call","tool_name":"t","turn":1}}`: `{"content":"x","metadata":{"tool_name":"t","turn":1,"type":"tool_call"},"payload":{"tool_name":"t","turn":1},"role":"assistant",` + head + `"tool_call","version":1}`,
		`{"version":"1","type":"final_result","data":{"a":1.0},"content":"y","id":"m"}`:                              `{"content":"y","id":"m","metadata":{},"payload":{"a":1.0},"role":"assistant",` + head + `"final_result","version":1}`,
		`{"type":"user_message", "content":"x", "b":1, "a":2}`:                                                       `{"type":"user_message","content":"x","b":1,"a":2}`,
	} {
		one, err := Prepare("owner", "echo", Document{Messages: []json.RawMessage{json.RawMessage(given)}}, 0)
		if err != nil || one.Messages[0] != want {
			t.Errorf("%s is kept as %s, %v", given, one.Messages, err)
			continue
		}
		lines, err := readKept(one.Messages)
		if err != nil || len(lines) != 1 {
			t.Fatal(lines, err)
		}
		for _, format := range Formats() {
			written, err := lines[0].write(format, "echo")
			if err != nil || lines[0].format == format && string(written) != want {
				t.Errorf("%s as %s is %s, %v", given, format, written, err)
			}
			again, err := Prepare("owner", "echo", Document{Format: format, Messages: []json.RawMessage{written}}, 0)
			if err != nil || again.Messages[0] != string(written) {
				t.Errorf("%s as %s is not taken again: %s, %v", given, format, again.Messages, err)
			}
		}
	}

	// A message of the framework with the members of an envelope is kept as one, so that it is read back as what it was.
	odd := `{"type":"error","content":{"error_message":"no"},"agent_key":"a","version":1,"payload":{}}`
	one, err := Prepare("owner", "echo", Document{Format: FormatFramework, Messages: []json.RawMessage{json.RawMessage(odd)}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := readKept(one.Messages)
	if err != nil {
		t.Fatal(err)
	}
	if written, err := lines[0].write(FormatFramework, "echo"); err != nil || !value.Equal(decoded(written), decoded([]byte(odd))) {
		t.Errorf("it came back as %s, %v", written, err)
	}
}

func FuzzReadImport(f *testing.F) {
	f.Add([]byte(`[{"type":"user_message","content":"x"}]`))
	f.Add([]byte(`{"agent":"echo","messages":[{"type":"action","tool":"t","args":{}}],"session_map":{"k":"s"}}`))
	f.Add([]byte("{\"role\":\"user\",\"content\":\"x\"}\n{\"version\":1,\"type\":\"delta\",\"data\":{}}\n"))
	f.Add([]byte(`{"conversations":[{"messages":[{"type":"final","content":{"operation":1e400}}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := value.Decode(raw, value.Limits{Bytes: maxImportBytes, Depth: maxDepth}); err != nil {
			return
		}
		documents, _, err := ReadImport(raw)
		if err != nil {
			return
		}
		for i, document := range documents {
			one, err := Prepare("owner", "echo", document, i)
			if err != nil {
				continue
			}
			again, err := Prepare("owner", "echo", document, i)
			if err != nil || !slices.Equal(one.Messages, again.Messages) {
				t.Fatalf("%q, %q, %v", one.Messages, again.Messages, err)
			}
			if _, err := readKept(one.Messages); err != nil {
				t.Fatal(err)
			}
			if _, err := documentOf(one.Session, FormatFramework, document.Messages).Encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
