package inbox

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestCompletions(t *testing.T) {
	s := newChatServer(t)
	body := `{"model":"remembers","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"one"},{"role":"assistant","content":"yes"},
		{"role":"user","content":[{"type":"text","text":"two"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]}`
	for range 2 { // the client sends everything each time, and nothing of an earlier time is added
		got := s.post("/v1/chat/completions", s.token("app"), body)
		if got.status != http.StatusOK || !strings.Contains(got.body, `"object":"chat.completion"`) || !strings.Contains(got.body, `"content":"yes"`) ||
			!strings.Contains(got.body, `"finish_reason":"stop"`) || !strings.Contains(got.body, `"usage":{`) {
			t.Errorf("%d %s", got.status, got.body)
		}
		if told := s.wasTold(); fmt.Sprint(told) != fmt.Sprint([]string{"user: Be kind.\n\none", "assistant: yes"}) {
			t.Errorf("the agent was told %q", told)
		}
	}
	close(s.goOn)
	events := allEvents(s.open(http.MethodPost, "/v1/chat/completions", "",
		`{"model":"slow","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"go"}]}`))
	var text strings.Builder
	for _, event := range events {
		if _, rest, is := strings.Cut(event.data, `"content":"`); is {
			said, _, _ := strings.Cut(rest, `"`)
			text.WriteString(said)
		}
	}
	if last := events[len(events)-1].data; last != "[DONE]" || text.String() != "Hello" || !strings.Contains(events[len(events)-2].data, `"choices":[],"usage":{`) {
		t.Errorf("%q in %v", text.String(), events)
	}
	key := `{"model":"helper","messages":[{"role":"user","content":"x"}]}`
	s.asked.Store(0)
	token := s.token("retries")
	for range 3 {
		s.post("/v1/chat/completions", token, key, "Idempotency-Key", "k1")
	}
	if asked := s.asked.Load(); asked != 1 {
		t.Errorf("one key makes %d runs", asked)
	}
}

func TestCompletionRefusals(t *testing.T) {
	s := newChatServer(t)
	token := s.token("app")
	for name, test := range map[string]struct {
		token, body string
		status      int
		code        string
	}{
		"no JSON":            {token, `{`, 400, "malformed"},
		"no model":           {token, `{"model":"nobody","messages":[{"role":"user","content":"x"}]}`, 404, "model_not_found"},
		"no messages":        {token, `{"model":"helper","messages":[]}`, 400, "malformed"},
		"the agent's turn":   {token, `{"model":"helper","messages":[{"role":"assistant","content":"x"}]}`, 400, "malformed"},
		"nothing said":       {token, `{"model":"helper","messages":[{"role":"user","content":" "}]}`, 400, "malformed"},
		"a sound":            {token, `{"model":"helper","messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`, 400, "malformed"},
		"two answers":        {token, `{"model":"helper","n":2,"messages":[{"role":"user","content":"x"}]}`, 400, "malformed"},
		"no answers":         {token, `{"model":"helper","n":0,"messages":[{"role":"user","content":"x"}]}`, 400, "malformed"},
		"answers below none": {token, `{"model":"helper","n":-1,"messages":[{"role":"user","content":"x"}]}`, 400, "malformed"},
		"a wrong key":        {"sk-1", `{"model":"helper","messages":[{"role":"user","content":"x"}]}`, 401, "invalid_api_key"},
		"no key":             {"", `{"model":"closed","messages":[{"role":"user","content":"x"}]}`, 401, "invalid_api_key"},
		"more than it takes": {token, `{"model":"helper","messages":[{"role":"user","content":"` + strings.Repeat("x", 1<<20+1) + `"}]}`, 413, "too_large"},
		"more than is read":  {token, `{"model":"helper","messages":[{"role":"user","content":"` + strings.Repeat("x", 8<<20) + `"}]}`, 413, "too_large"},
		"an unknown role":    {token, `{"model":"helper","messages":[{"role":"robot","content":"x"}]}`, 400, "malformed"},
		"a list":             {token, `[]`, 400, "malformed"},
		"a wrong type":       {token, `{"model":"helper","stream":"yes","messages":[{"role":"user","content":"x"}]}`, 400, "malformed"},
		"no name":            {token, `{"messages":[{"role":"user","content":"x"}]}`, 400, "malformed"},
		"a foreign domain":   {token, `{"model":"@helper@elsewhere.example","messages":[{"role":"user","content":"x"}]}`, 404, "model_not_found"},
		"an uploaded file":   {token, `{"model":"helper","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}]}`, 400, "malformed"},
		"no base64":          {token, `{"model":"helper","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}]}]}`, 400, "malformed"},
		"a number":           {token, `{"model":"helper","messages":[{"role":"user","content":7}]}`, 400, "malformed"},
		"no such call":       {token, `{"model":"helper","messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"call_1","content":"x"}]}`, 400, "malformed"},
		"a guest's result":   {"", `{"model":"helper","messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"call_1","content":"x"}]}`, 400, "malformed"},
	} {
		got := s.post("/v1/chat/completions", test.token, test.body)
		if got.status != test.status || !strings.Contains(got.body, `"code":"`+test.code+`"`) || !strings.Contains(got.body, `"param":`) {
			t.Errorf("%s: %d %s, want %d %s", name, got.status, got.body, test.status, test.code)
		}
	}
	if got := s.post("/v1/chat/completions", token, `{"model":"helper","n":"1","messages":[]}`); !strings.Contains(got.body, `"param":"n"`) {
		t.Errorf("a wrong type: %s", got.body)
	}
	if models := s.open(http.MethodGet, "/v1/models/closed", "", ""); models.StatusCode != http.StatusUnauthorized {
		t.Errorf("a closed model: %d", models.StatusCode)
	}
}
