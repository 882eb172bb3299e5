package bridge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestFrameworkMessagesOverTheWire brings in one message of each type of the agent framework. The export gives it back as it was, and the
// agent reads it in its history by the role and the text that its type stands for.
//
//contract:shows format-1 format-2 format-3 format-4 format-5 format-6 format-7 format-8 format-9 format-10 format-11 format-12 format-13
//contract:shows format-14 format-15 format-16 format-17 format-18 format-19 format-20 format-21 format-22
func TestFrameworkMessagesOverTheWire(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	relay := b.token("relay")

	for kind, c := range map[string]struct{ members, reads string }{
		"user_message":      {`"content":"List all tables"`, "user=begin\n\nList all tables"},
		"assistant_message": {`"content":"Found 5 tables"`, "user=begin|assistant=Found 5 tables"},
		"task":              {`"content":"Analyze it","agent_key":"analyzer"`, "user=begin\n\nAnalyze it"},
		"action":            {`"tool":"list_tables","args":{"schema":"public"},"agent_key":"analyzer"`, `user=begin|assistant=[called list_tables {"schema":"public"}]`},
		"observation":       {`"content":{"count":3,"human_readable_summary":"Found 3 tables"},"agent_key":"analyzer"`, "user=begin|assistant=[result: Found 3 tables]"},
		"error":             {`"content":{"error_message":"Connection refused","error_type":"ConnectionError","tool":"q"},"agent_key":"analyzer"`, "user=begin|assistant=Connection refused"},
		"final":             {`"content":{"operation":"display_message","payload":{"message":"x"},"human_readable_summary":"All done"},"agent_key":"analyzer"`, "user=begin|assistant=All done"},
		"synthesis":         {`"content":"Combined","phase_id":1,"from_manager":"m","is_global":true`, "user=begin|assistant=Combined"},
		"strategic_plan":    {`"content":{"refined_intent":"Analyze","plan":{"phases":[]}}`, `user=begin|assistant={"plan":{"phases":[]},"refined_intent":"Analyze"}`},
		"suggested_plan":    {`"content":{"steps":[{"name":"List"}]},"agent_key":"analyzer"`, "user=begin\n\n{\"steps\":[{\"name\":\"List\"}]}"},
		"script_plan":       {`"content":"first this"`, "user=begin|assistant=first this"},
		"director_context":  {`"content":"be brief"`, "user=begin\n\nbe brief"},
		"injected_context":  {`"content":"it is Monday"`, "user=begin\n\nit is Monday"},
		"delegation":        {`"content":{"delegate_to":"checker","task":"check it"}`, `user=begin|assistant={"delegate_to":"checker","task":"check it"}`},
	} {
		message := fmt.Sprintf(`{"type":%q,%s,"timestamp":"2024-01-15T10:30:00Z","metadata":{"n":1.0}}`, kind, c.members)
		body := fmt.Sprintf(`{"agent":"teller","session_id":%q,"messages":[{"type":"user_message","content":"begin"},%s]}`, kind, message)
		b.call(relay, http.MethodPost, "/v1/import", []byte(body), http.StatusOK)

		var exported struct{ Messages []json.RawMessage }
		if err := json.Unmarshal([]byte(b.export(relay, kind)), &exported); err != nil || len(exported.Messages) != 2 || string(exported.Messages[1]) != message {
			t.Errorf("%s came back as %s, %v; want %s", kind, exported.Messages, err, message)
		}

		run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "teller", "session_id": kind, "message": "go on", "wait": true}, http.StatusOK)
		if reads := strings.TrimPrefix(fmt.Sprint(run["reply"]), "history: "); reads != c.reads {
			t.Errorf("%s is read as %q, want %q", kind, reads, c.reads)
		}
	}

	// What was said here has the same form.
	run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "wait": true}, http.StatusOK)
	var own struct {
		Messages []struct{ Type, Content, Timestamp string }
	}
	if err := json.Unmarshal([]byte(b.export(relay, fmt.Sprint(run["session_id"]))), &own); err != nil || len(own.Messages) != 2 {
		t.Fatal(own, err)
	}
	for i, kind := range []string{"user_message", "assistant_message"} {
		if one := own.Messages[i]; one.Type != kind || one.Content != "hello" || one.Timestamp == "" {
			t.Errorf("message %d is exported as %+v", i, one)
		}
	}

	// The collections are filters of an export.
	var all []string
	for _, kind := range []string{
		"user_message", "assistant_message", "task", "action", "observation", "error", "final", "synthesis", "strategic_plan", "suggested_plan", "script_plan",
		"director_context", "injected_context", "delegation",
	} {
		all = append(all, fmt.Sprintf(`{"type":%q,"tool":"t","args":{},"agent_key":"a","content":{"error_message":"x","operation":"x","plan":{},"steps":[]}}`, kind))
	}
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","session_id":"all","messages":[`+strings.Join(all, ",")+`]}`), http.StatusOK)
	for collection, want := range map[string]string{
		"conversation": "[user_message assistant_message]", "EXECUTION_TRACE": "[task action observation error]", "completion": "[final synthesis]",
		"planning": "[strategic_plan suggested_plan script_plan]",
	} {
		var types []string
		list, _ := b.call(relay, http.MethodGet, "/v1/sessions/all/export?collection="+collection, nil, http.StatusOK)["messages"].([]any)
		for _, one := range list {
			types = append(types, fmt.Sprint(one.(map[string]any)["type"]))
		}
		if fmt.Sprint(types) != want {
			t.Errorf("%s has %v, want %s", collection, types, want)
		}
	}
	b.call(relay, http.MethodGet, "/v1/sessions/all/export?collection=poems", nil, http.StatusBadRequest)

	for name, c := range map[string]struct{ message, names string }{
		"no type":         {`{"content":"x"}`, "type"},
		"an unknown type": {`{"type":"unheard","content":"x"}`, "type"},
		"no content":      {`{"type":"user_message"}`, "content"},
	} {
		refused := b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","strict":true,"messages":[`+c.message+`]}`), http.StatusBadRequest)
		if told := fmt.Sprint(refused["error"]); !strings.Contains(told, c.names) {
			t.Errorf("%s is refused with %s", name, told)
		}
	}
}
