package contract_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/bridge/contract"
)

func item(members map[string]any) map[string]any {
	value := map[string]any{"client_id": "cli", "agent": "bot", "content": "hello"}
	for key, member := range members {
		if value[key] = member; member == "absent" {
			delete(value, key)
		}
	}
	return value
}

func TestItems(t *testing.T) {
	made, err := contract.NormalizeItem(item(map[string]any{
		"client_id": " My__Client.1 ", "connector_id": "!", "agent": "The Bot", "session_id": " s ", "role": " TOOL ",
		"content": " x ", "completed": "0", "created_at": nil, "metadata": []any{"no object"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(made.ID, "bridge_") || len(made.ID) != len("bridge_")+32 {
		t.Errorf("id %q", made.ID)
	}
	if _, err := time.Parse(time.RFC3339, made.CreatedAt); err != nil {
		t.Error(err)
	}
	made.ID, made.CreatedAt = "", ""
	want := contract.Item{ClientID: "my--client-1", Agent: "the-bot", SessionID: "s", Role: "tool", Content: "x", Status: contract.Pending, Metadata: map[string]any{}}
	if difference := cmp.Diff(want, made); difference != "" {
		t.Error(difference)
	}
}

func TestRefusedItems(t *testing.T) {
	for want, members := range map[string]map[string]any{
		"queue_id must be non-empty.":                            {"queue_id": " "},
		"client_id must be a non-empty slug.":                    {"client_id": "__"},
		"agent must be a non-empty slug.":                        {"agent": "absent"},
		"role must be assistant, system, or tool.":               {"role": "user"},
		"content must be non-empty.":                             {"content": []any{"x"}},
		"delivery_status must be pending, delivered, or failed.": {"delivery_status": "gone"},
		"content must not be longer than 1 MiB.":                 {"content": strings.Repeat("x", contract.MaxContentBytes+1)},
		"ids must not be longer than 255 bytes.":                 {"session_id": strings.Repeat("x", contract.MaxIDBytes+1)},
	} {
		_, err := contract.NormalizeItem(item(members))
		var refused *contract.Error
		if !errors.As(err, &refused) || refused.Code != contract.CodeInvalid || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := contract.ReadItem([]byte(`[1]`)); err == nil {
		t.Error("a list is an item")
	}
}

func TestStatusOfACopy(t *testing.T) {
	original, err := contract.NormalizeItem(item(map[string]any{"metadata": map[string]any{"a": "b"}}))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := original.WithStatus("Delivered")
	if err != nil || copied.Status != contract.Delivered || original.Status != contract.Pending {
		t.Errorf("%v, %+v, %+v", err, original, copied)
	}
	copied.Metadata["a"] = "c"
	if original.Metadata["a"] != "b" {
		t.Error("the copy shares its metadata")
	}
	if _, err := original.WithStatus("lost"); err == nil {
		t.Error("an unknown status was taken")
	}
}

func TestCallbackURLs(t *testing.T) {
	for address, valid := range map[string]bool{
		"https://ex.example/cb": true, "http://localhost": true, "http://127.0.0.1:80/x?y=z#f": true, "http://[::1]/": true,
		"https://user:pass@ex.example": true, "ftp://ex.example/": true, "https://ex.example.": true,
		"not a url": false, "//ex.example/": false, "/path": false, "https://": false, "https:///path": false, "ex.example": false,
		"https://ex ample/": false, "https://exämple.example/": false, "https://-ex.example/": false, "https://a_b.example/": false,
		"javascript:alert(1)": false, "https://ex.example/\x01": false, "https://ex..example/": false,
		"https://ex.example/" + strings.Repeat("x", 3000): false,
	} {
		client, err := contract.NormalizeClient(map[string]any{"client_id": "a", "callback_url": address})
		if (err == nil) != valid || valid && client.CallbackURL != address {
			t.Errorf("%.60q: %v", address, err)
		}
	}
	if client, err := contract.NormalizeClient(map[string]any{"client_id": "a", "callback_url": " ", "connector_id": nil}); err != nil || client.CallbackURL != "" {
		t.Errorf("a blank URL is none: %v", err)
	}
	if _, err := contract.NormalizeClient(map[string]any{}); err == nil {
		t.Error("a client without id was taken")
	}
}

func FuzzReadItem(f *testing.F) {
	f.Add([]byte(`{"queue_id":"q1","client_id":"My_Client 1!","agent":"bot","content":" x ","created_at":null,"metadata":{"a":[1]}}`))
	f.Add([]byte(`{"queue_id":17,"client_id":true,"agent":1.5e30,"content":0,"role":"system","completed":[],"session_id":false}`))
	f.Add([]byte(`{"client_id":"\u212a","agent":"é","content":"\u0000"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		item, err := contract.ReadItem(data)
		if err != nil {
			return
		}
		again, err := contract.NormalizeItem(item.Value())
		if err != nil {
			t.Fatal(err)
		}
		if difference := cmp.Diff(item, again); difference != "" {
			t.Fatal(difference)
		}
	})
}
