package contract_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/value"
)

func TestMessageForm(t *testing.T) {
	message, err := contract.NormalizeMessage(map[string]any{
		"text": " hi\n", "connector_id": " My_Conn ", "external_provider": "SLACK", "external_conversation_id": 42,
		"external_message_id": " ", "sender_id": true, "from_self": "0", "room_kind": nil,
		"attachments": map[string]any{"b": 2, "a": 1}, "raw": []any{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := contract.Message{
		Text: "hi", ConnectorID: "my-conn", Provider: "slack", ConversationID: "42", SenderID: "1",
		Attachments: []any{1, 2}, Raw: map[string]any{},
	}
	if difference := cmp.Diff(want, message); difference != "" {
		t.Error(difference)
	}
}

func TestRefusedMessages(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"connector_id must be a non-empty slug.":         {"connector_id": "-a"},
		"external_provider must be a non-empty slug.":    {"external_provider": "\u212aik"},
		"room_kind must be dm, group, channel, or null.": {"room_kind": "DM"},
	} {
		value := map[string]any{"connector_id": "a", "external_provider": "b"}
		maps.Copy(value, changes)
		_, err := contract.NormalizeMessage(value)
		var refused *contract.Error
		if !errors.As(err, &refused) || refused.Code != contract.CodeInvalid || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func FuzzNormalizeMessage(f *testing.F) {
	f.Add([]byte(`{"connector_id":"a","external_provider":"b"}`))
	f.Add([]byte(`{"text":" t ","connector_id":"My_Conn","external_provider":"slack","external_conversation_id":1.5,"room_kind":" dm ","attachments":[{}],"raw":{"a":null},"from_self":1e-9}`))
	f.Add([]byte(`{"connector_id":"\u212a","external_provider":"b","attachments":{"2":1,"10":2}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		given, err := value.Decode(data, value.Limits{Bytes: 1 << 20, Depth: 64})
		if err != nil {
			return
		}
		message, err := contract.NormalizeMessage(value.Assoc(given))
		if err != nil {
			return
		}
		again, err := contract.NormalizeMessage(message.Value())
		if err != nil {
			t.Fatal(err)
		}
		if difference := cmp.Diff(message, again); difference != "" {
			t.Fatal(difference)
		}
		if message.ClientContext("")["source"] != contract.SourceChannel {
			t.Fatal("no source")
		}
	})
}
