package bridge

import (
	"encoding/json"
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
			if name != "type" {
				one[name] = member
			}
		}
		if one["type"] != string(envelope.Action) {
			one["content"] = value.Draw(t, "content")
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
			document = DocumentOf(one.Session, list)
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
	for _, document := range []Document{
		{Format: "other"}, {SessionID: strings.Repeat("x", 256)}, {Messages: []json.RawMessage{json.RawMessage(`{"type":"odd","content":""}`)}},
		{Messages: []json.RawMessage{json.RawMessage(`[]`)}}, {Messages: []json.RawMessage{json.RawMessage(`{"type":"user_message"}`)}},
	} {
		if _, err := Prepare("owner", "echo", document, 0); !fault.Is(err, fault.Malformed) {
			t.Errorf("%+v: %v", document, err)
		}
	}
}

func FuzzReadImport(f *testing.F) {
	f.Add([]byte(`[{"type":"user_message","content":"x"}]`))
	f.Add([]byte(`{"agent":"echo","messages":[{"type":"action","tool":"t","args":{}}],"session_map":{"k":"s"}}`))
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
			if _, err := DocumentOf(one.Session, document.Messages).Encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
