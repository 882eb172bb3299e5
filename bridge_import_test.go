package inbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"inbox/adapters/bridge/contract"
)

// TestImportOverTheWire brings in what seed messages say and finds it again, in the history of the agent too.
func TestImportOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	raw := `{"agent":"teller","title":"old talk","connector_id":"tg","external_conversation_id":"42","messages":[
		{"type":"user_message","content":"List <all> tables","timestamp":"2024-01-15T10:30:00Z","metadata":{"n":1.0,"big":12345678901234567890}},
		{"type":"action","tool":"list_tables","args":{"schema":"public"},"agent_key":"analyzer","timestamp":"2024-01-15T10:30:01Z"},
		{"type":"observation","content":{"count":3},"agent_key":"analyzer"},
		{"type":"final","content":{"operation":"display_message","payload":{"message":"x"},"human_readable_summary":"Found 3"},"agent_key":"analyzer"},
		{"type":"synthesis","content":"all","phase_id":1,"from_manager":"m","is_global":true,"odd":[null]}]}`
	done := b.call(relay, http.MethodPost, "/v1/import", []byte(raw), http.StatusOK)
	session := done["sessions"].([]any)[0].(map[string]any)
	id := session["session_id"].(string)
	exported := b.export(relay, id)
	var want, got struct{ Messages []json.RawMessage }
	for text, into := range map[string]any{raw: &want, exported: &got} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	for i := range want.Messages {
		var flat bytes.Buffer
		if err := json.Compact(&flat, want.Messages[i]); err != nil || flat.String() != string(got.Messages[i]) {
			t.Errorf("message %d came back as %s, want %s", i, got.Messages[i], flat.String())
		}
	}
	b.call(relay, http.MethodPost, "/v1/import", []byte(exported), http.StatusOK)
	if again := b.export(relay, id); again != exported {
		t.Errorf("exported again:\n%s\nwant\n%s", again, exported)
	}
	b.call(relay, http.MethodPost, "/v1/import", []byte(strings.Replace(exported, "Found 3", "Found 4", 1)), http.StatusConflict)
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","messages":[{"type":"unheard","content":"x"}]}`), http.StatusBadRequest)
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"nobody","messages":[]}`), http.StatusNotFound)
	b.call(other, http.MethodGet, "/v1/sessions/"+id+"/export", nil, http.StatusNotFound)
	key := contract.NewSessionKey("old-bot", "7", "teller").Imported()
	b.call(other, http.MethodPost, "/v1/import", map[string]any{"session_map": map[string]string{key: id}}, http.StatusNotFound)
	b.call(relay, http.MethodPost, "/v1/import", map[string]any{"session_map": map[string]string{key: id}}, http.StatusOK)
	for connector, conversation := range map[string]string{"old_bot": "7", "tg": "42"} {
		run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{
			"agent": "teller", "message": "go on", "connector_id": connector, "external_conversation_id": conversation, "wait": true,
		}, http.StatusOK)
		reply := fmt.Sprint(run["reply"])
		if run["session_id"] != id || !strings.HasPrefix(reply, "history: user=List <all> tables|assistant=[called list_tables") || !strings.Contains(reply, "Found 3") {
			t.Errorf("%s goes on with %v", connector, run)
		}
	}
}

// export returns the bytes of an exported session.
func (b *bridged) export(token, session string) string {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+b.server.HTTPAddr().String()+"/v1/sessions/"+session+"/export", nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := bounded.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatalf("export answered %d, %v: %s", response.StatusCode, err, body)
	}
	return string(body)
}
