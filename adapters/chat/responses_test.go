package chat_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/chat"
	"inbox/inboxtest"
	"inbox/normalized"
)

func (r chatReply) response(t testing.TB) (got chat.ResponseObject) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return got
}

func (s *chatServer) get(path, token string) chatReply {
	s.Helper()
	status, header, content := s.Read(http.MethodGet, path, token, "")
	return chatReply{status, header, content}
}

func textOf(response chat.ResponseObject) string {
	if len(response.Output) != 1 || response.Output[0].Content == nil || len(*response.Output[0].Content) != 1 {
		return fmt.Sprintf("%+v", response.Output)
	}
	return (*response.Output[0].Content)[0].Text
}

// TestResponses: a client continues a conversation that the server keeps, on both databases.
func TestResponses(t *testing.T) {
	t.Parallel()
	chatOnBoth(t, func(s *chatServer) {
		token := s.Token("app")
		first := s.post("/v1/responses", token, `{"model":"remembers","input":"one","instructions":"Be kind.","metadata":{"ticket":"7"}}`).response(s)
		if first.Object != "response" || first.Status != "completed" || textOf(first) != "yes" || *first.Instructions != "Be kind." || first.Metadata["ticket"] != "7" || first.Previous != nil {
			t.Errorf("first: %+v", first)
		}
		if told := s.wasTold(); !slices.Equal(told, []string{"user: Be kind."}) {
			t.Errorf("the agent was told %q", told)
		}

		second := `{"model":"remembers","input":[{"role":"user","content":[{"type":"input_text","text":"two"}]}],"previous_response_id":"` + first.ID + `"}`
		got := s.post("/v1/responses", token, second).response(s)
		if textOf(got) != "yes" || got.Previous == nil || *got.Previous != first.ID {
			t.Errorf("second: %+v", got)
		}
		if told := s.wasTold(); !slices.Equal(told, []string{"user: Be kind.\n\none", "assistant: yes"}) {
			t.Errorf("the agent was told %q", told)
		}

		// An SDK repeats the request by itself: the first copy's run is found.
		again := s.post("/v1/responses", token, second, "X-Stainless-Retry-Count", "1").response(s)
		if again.ID != got.ID {
			t.Errorf("the repeat is another response: %s, %s", again.ID, got.ID)
		}
		branch := s.post("/v1/responses", token, strings.Replace(second, "two", "three", 1))
		if branch.status != http.StatusBadRequest || !strings.Contains(branch.body, `"previous_response_not_newest"`) {
			t.Errorf("a branch: %d %s", branch.status, branch.body)
		}

		read := s.get("/v1/responses/"+first.ID, token).response(s)
		if read.ID != first.ID || textOf(read) != "yes" || read.Metadata["ticket"] != "7" || !read.Store {
			t.Errorf("read: %+v", read)
		}
		referred := s.post("/v1/responses", token, `{"model":"remembers","input":[{"role":"user","content":"one"},{"type":"item_reference","id":"`+
			first.Output[0].ID+`"},{"type":"reasoning","id":"rs_1","summary":[]},{"type":"message","role":"user","content":"four"}]}`).response(s)
		if told := s.wasTold(); !slices.Equal(told, []string{"user: one", "assistant: yes"}) {
			t.Errorf("%s: the agent was told %q", referred.ID, told)
		}
	})
}

// TestResponsesOfOthers: foreign, missing and unstored responses are answered alike.
func TestResponsesOfOthers(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	owner, other := s.Token("owner"), s.Token("other")
	mine := s.post("/v1/responses", owner, `{"model":"helper","input":"x"}`).response(t)
	unstored := s.post("/v1/responses", owner, `{"model":"helper","input":"x","store":false}`).response(t)
	guests := s.post("/v1/responses", "", `{"model":"helper","input":"x"}`).response(t)
	completion := s.post("/v1/chat/completions", owner, `{"model":"helper","messages":[{"role":"user","content":"x"}]}`)
	_, id, _ := strings.Cut(completion.body, `"id":"chatcmpl-`)
	id, _, _ = strings.Cut(id, `"`)
	if unstored.Store || !mine.Store {
		t.Errorf("store: %v %v", unstored.Store, mine.Store)
	}

	missing := "resp_" + strings.Repeat("0", 32)
	wantRead := s.get("/v1/responses/"+missing, other)
	ask := func(token, model, id string) chatReply {
		return s.post("/v1/responses", token, `{"model":"`+model+`","input":"y","previous_response_id":"`+id+`"}`)
	}
	wantAsk := ask(other, "helper", missing)
	if wantRead.status != http.StatusNotFound || !strings.Contains(wantRead.body, `"response_not_found"`) ||
		wantAsk.status != http.StatusBadRequest || !strings.Contains(wantAsk.body, `"previous_response_not_found"`) || !strings.Contains(wantAsk.body, `"param":"previous_response_id"`) {
		t.Fatalf("%d %s; %d %s", wantRead.status, wantRead.body, wantAsk.status, wantAsk.body)
	}
	for name, c := range map[string]struct{ token, id string }{
		"another owner's": {other, mine.ID}, "not stored": {owner, unstored.ID}, "a guest's by its sender": {"", guests.ID}, "a guest's by another": {owner, guests.ID},
		"a completion": {owner, "resp_" + strings.ReplaceAll(id, "-", "")}, "no id": {owner, "x"}, "an id with more": {owner, mine.ID + "_x"},
	} {
		if got := s.get("/v1/responses/"+c.id, c.token); got.status != wantRead.status || got.body != wantRead.body {
			t.Errorf("%s: read: %d %s", name, got.status, got.body)
		}
		if got := ask(c.token, "helper", c.id); got.status != wantAsk.status || got.body != wantAsk.body {
			t.Errorf("%s: continued: %d %s", name, got.status, got.body)
		}
	}
	if got := ask(owner, "a", mine.ID); got.status != wantAsk.status || got.body != wantAsk.body {
		t.Errorf("another agent: %d %s", got.status, got.body)
	}
	foreign := s.post("/v1/responses", other, `{"model":"helper","input":[{"type":"item_reference","id":"`+mine.Output[0].ID+`"},{"role":"user","content":"y"}]}`)
	if foreign.status != http.StatusBadRequest || !strings.Contains(foreign.body, `"param":"input[0].id"`) {
		t.Errorf("a foreign item: %d %s", foreign.status, foreign.body)
	}
}

func TestResponseRefusals(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	for name, c := range map[string]struct {
		token, body  string
		status       int
		code, member string
	}{
		"no JSON":          {token, `{`, 400, "malformed", ""},
		"no model":         {token, `{"model":"nobody","input":"x"}`, 404, "model_not_found", ""},
		"a wrong key":      {"sk-1", `{"model":"helper","input":"x"}`, 401, "invalid_api_key", ""},
		"no input":         {token, `{"model":"helper"}`, 400, "malformed", "input"},
		"an empty list":    {token, `{"model":"helper","input":[]}`, 400, "malformed", "input"},
		"nothing said":     {token, `{"model":"helper","input":" "}`, 400, "malformed", "input"},
		"the agent's turn": {token, `{"model":"helper","input":[{"role":"assistant","content":"x"}]}`, 400, "malformed", "input"},
		"an unknown role":  {token, `{"model":"helper","instructions":"i","input":[{"role":"user","content":"x"},{"role":"robot","content":"x"}]}`, 400, "malformed", "input[1].role"},
		"an unknown item":  {token, `{"model":"helper","input":[{"type":"computer_call"}]}`, 400, "unsupported_parameter", "input[0].type"},
		"an unknown part":  {token, `{"model":"helper","input":[{"role":"user","content":[{"type":"smell"}]}]}`, 400, "malformed", "input[0].content[0].type"},
		"an uploaded file": {token, `{"model":"helper","input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`, 400, "malformed", "input[0].content[0]"},
		"a hosted tool":    {token, `{"model":"helper","input":"x","tools":[{"type":"web_search"}]}`, 400, "unsupported_parameter", "tools[0].type"},
		"no such call":     {token, `{"model":"helper","input":[{"type":"function_call_output","call_id":"call_1","output":"x"}]}`, 400, "malformed", "input"},
		"no base64":        {token, `{"model":"helper","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,?"}]}]}`, 400, "malformed", "input[0].content[0]"},
	} {
		got := s.post("/v1/responses", c.token, c.body)
		param := `"param":"` + c.member + `"`
		if c.member == "" {
			param = `"param":`
		}
		if got.status != c.status || !strings.Contains(got.body, `"code":"`+c.code+`"`) || !strings.Contains(got.body, param) {
			t.Errorf("%s: %d %s, want %d %s %s", name, got.status, got.body, c.status, c.code, c.member)
		}
	}
}

// streamed reads the events of a response and checks the rules that hold for every stream.
func (s *chatServer) streamed(token, body string) (names []string, last chat.ResponseEvent, text string) {
	s.Helper()
	for i, one := range inboxtest.Events(s.Open(http.MethodPost, "/v1/responses", token, body)) {
		last = chat.ResponseEvent{}
		if err := json.Unmarshal([]byte(one.Data), &last); err != nil || last.Type != one.Name || last.Sequence != i {
			s.Errorf("event %d: %+v %v", i, one, err)
		}
		names = append(names, strings.TrimPrefix(one.Name, "response."))
		if last.Type == "response.output_text.delta" {
			text += *last.Delta
		}
	}
	return names, last, text
}

func TestStreamedResponses(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	close(s.goOn)
	names, last, text := s.streamed(token, `{"model":"slow","stream":true,"input":"go"}`)
	if first, end := strings.Join(names[:4], " "), strings.Join(names[len(names)-4:], " "); first != "created in_progress output_item.added content_part.added" ||
		end != "output_text.done content_part.done output_item.done completed" || text != "Hello" || textOf(*last.Response) != "Hello" || last.Response.Usage == nil {
		t.Errorf("%q %q %+v", names, text, last.Response)
	}

	s.yielding("brief", normalized.Response{
		Parts:    []normalized.Part{normalized.Markdown("Once upon a"), normalized.Text(normalized.Cut)},
		Metadata: map[string]string{normalized.MetadataStop: normalized.StopLength},
	}, nil)
	names, last, text = s.streamed(token, `{"model":"brief","stream":true,"input":"go"}`)
	if names[len(names)-1] != "incomplete" || text != "Once upon a" || last.Response.Status != "incomplete" || last.Response.IncompleteDetails.Reason != "max_output_tokens" {
		t.Errorf("%q %q %+v", names, text, last.Response)
	}
	whole := s.post("/v1/responses", token, `{"model":"brief","input":"go"}`).response(t)
	if whole.Status != "incomplete" || textOf(whole) != "Once upon a" {
		t.Errorf("whole: %+v", whole)
	}

	s.yielding("silent", normalized.Response{Silent: true}, nil)
	if names, last, text = s.streamed(token, `{"model":"silent","stream":true,"input":"go"}`); last.Type != "response.completed" || text != "" || textOf(*last.Response) != "" {
		t.Errorf("%q %q %+v", names, text, last.Response)
	}
	s.yielding("broken", normalized.Response{}, errBroken)
	if names, last, _ = s.streamed(token, `{"model":"broken","stream":true,"input":"go"}`); len(names) != 3 || last.Type != "response.failed" ||
		last.Response.Error.Code != "agent:invalid_answer" || last.Response.Status != "failed" {
		t.Errorf("%q %+v", names, last.Response)
	}
}
