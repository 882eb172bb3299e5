package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/chat"
	"inbox/agents"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/normalized"
)

func TestCompletions(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	body := `{"model":"remembers","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"one"},{"role":"assistant","content":"yes"},
		{"role":"user","content":[{"type":"text","text":"two"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]}`
	for range 2 { // the client sends everything each time, and nothing of an earlier time is added
		got := s.post("/v1/chat/completions", s.Token("app"), body)
		if got.status != http.StatusOK || !strings.Contains(got.body, `"object":"chat.completion"`) || !strings.Contains(got.body, `"content":"yes"`) ||
			!strings.Contains(got.body, `"finish_reason":"stop"`) || !strings.Contains(got.body, `"usage":{`) {
			t.Errorf("%d %s", got.status, got.body)
		}
		if told := s.wasTold(); fmt.Sprint(told) != fmt.Sprint([]string{"user: Be kind.\n\none", "assistant: yes"}) {
			t.Errorf("the agent was told %q", told)
		}
	}
	close(s.goOn)
	events := inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", "",
		`{"model":"slow","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"go"}]}`))
	var text strings.Builder
	for _, event := range events {
		if _, rest, is := strings.Cut(event.Data, `"content":"`); is {
			said, _, _ := strings.Cut(rest, `"`)
			text.WriteString(said)
		}
	}
	if last := events[len(events)-1].Data; last != "[DONE]" || text.String() != "Hello" || !strings.Contains(events[len(events)-2].Data, `"choices":[],"usage":{`) {
		t.Errorf("%q in %v", text.String(), events)
	}
	key := `{"model":"helper","messages":[{"role":"user","content":"x"}]}`
	s.asked.Store(0)
	token := s.Token("retries")
	for range 3 {
		s.post("/v1/chat/completions", token, key, "Idempotency-Key", "k1")
	}
	if asked := s.asked.Load(); asked != 1 {
		t.Errorf("one key makes %d runs", asked)
	}
}

func TestCompletionRefusals(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
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
	if models := s.Open(http.MethodGet, "/v1/models/closed", "", ""); models.StatusCode != http.StatusUnauthorized {
		t.Errorf("a closed model: %d", models.StatusCode)
	}
}

// told is an agent that says what it was told: history, parts of the message, and what the client says about itself.
func (s *chatServer) told() {
	s.Helper()
	s.register("told", agents.UnverifiedAnswer, func(turn agents.Turn, _ func(string) bool) string {
		var lines []string
		for _, said := range turn.Message.History {
			lines = append(lines, said.Role+": "+normalized.PlainText(said.Parts))
		}
		for _, part := range turn.Message.Parts {
			switch part.Kind {
			case normalized.PartFile:
				lines = append(lines, fmt.Sprintf("file %s %q %d", part.MIME, part.Name, part.Size))
			default:
				lines = append(lines, "new: "+part.Content)
			}
		}
		return strings.Join(lines, "\n")
	})
}

func (r chatReply) completion(t testing.TB) (whole chat.Completion) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	decoder := json.NewDecoder(strings.NewReader(r.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&whole); err != nil || len(whole.Choices) != 1 {
		t.Fatalf("%s: %v", r.body, err)
	}
	return whole
}

func (r chatReply) said(t testing.TB) string {
	t.Helper()
	content := r.completion(t).Choices[0].Message.Content
	if content == nil {
		t.Fatalf("no content: %s", r.body)
	}
	return *content
}

// TestCompletionShapes sends what clients are documented to send.
func TestCompletionShapes(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	s.told()
	token := s.Token("app")
	for name, test := range map[string]struct{ body, want string }{
		"OpenAI's SDK, all parts": {
			`"temperature":0.2,"top_p":1,"max_completion_tokens":100,"max_tokens":100,"stop":null,"seed":1,"logprobs":false,"response_format":{"type":"text"},"user":"u1",
			"metadata":{"a":"b"},"store":false,"reasoning_effort":"low","service_tier":"auto","parallel_tool_calls":true,"a_new_one":{"x":[1]},
			"messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"low"}},
			{"type":"input_audio","input_audio":{"data":"aGk=","format":"wav"}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,aGk="}}]}]`,
			"new: look\nfile image/png \"\" 2\nfile audio/wav \"\" 2\nfile application/pdf \"a.pdf\" 2",
		},
		"a picture alone": {
			`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://pictures.example/a.png"}}]}]`, "file image/png \"\" 0",
		},
		"all roles": {
			`"messages":[{"role":"developer","content":"Be brief."},{"role":"user","name":"ann","content":"one"},{"role":"assistant","content":null,"refusal":null,
			"tool_calls":[{"id":"c1","type":"function","function":{"name":"find","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"found"},
			{"role":"assistant","content":[{"type":"text","text":"there"}]},{"role":"function","name":"old","content":"done"},{"role":"user","content":"two"}]`,
			"user: Be brief.\n\none\nassistant: [called find {}]\nuser: Result of find: found\nassistant: there\nuser: Result of old: done\nnew: two",
		},
		"nulls": {
			`"n":null,"stream":null,"stream_options":null,"tools":null,"tool_choice":null,"user":null,"metadata":null,"messages":[{"role":"user","content":"x","name":null}]`, "new: x",
		},
		"an instruction alone": {`"messages":[{"role":"system","content":"Say hello."}]`, "new: Say hello."},
		"two of the user":      {`"messages":[{"role":"user","content":"one"},{"role":"user","content":"two"}]`, "user: one\nnew: two"},
		// js.langchain.com, ChatOpenAI: messages with lc names, n and stream_options.
		"LangChain": {
			`"temperature":1,"top_p":1,"frequency_penalty":0,"presence_penalty":0,"n":1,"stream":false,"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"hi"},
			{"role":"assistant","content":"hello","tool_calls":[]},{"role":"user","content":"bye"}]`,
			"user: Be kind.\n\nhi\nassistant: hello\nnew: bye",
		},
		// ai-sdk.dev, the OpenAI-compatible provider: parts in every message of the user, tools and a choice of them.
		"Vercel's AI SDK": {
			`"max_tokens":50,"tools":[{"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object","properties":{}},"strict":true}}],"tool_choice":"auto",
			"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":""},{"role":"user","content":[{"type":"text","text":"bye"}]}]`,
			"user: Be kind.\n\nhi\nnew: bye",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.post("/v1/chat/completions", token, `{"model":"told",`+test.body+`}`)
			if said := got.said(t); said != test.want {
				t.Errorf("the agent was told\n%s\nwant\n%s", said, test.want)
			}
		})
	}
}

// TestLongConversation: instructions at its begin are told, however long it is.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	messages := []map[string]string{{"role": "system", "content": "Be kind."}}
	for i := range 300 {
		messages = append(messages, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": fmt.Sprint("line ", i)})
	}
	body, err := json.Marshal(map[string]any{"model": "remembers", "messages": append(messages, map[string]string{"role": "user", "content": "now"})})
	if err != nil {
		t.Fatal(err)
	}
	s.post("/v1/chat/completions", s.Token("app"), string(body)).said(t)
	told := strings.Join(s.wasTold(), "\n")
	if !strings.Contains(told, "Be kind.") || !strings.Contains(told, "line 299") || strings.Contains(told, "line 100\n") {
		t.Errorf("the agent was told %q", told)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token, domain := s.Token("app"), s.Config().Domain
	for _, name := range []string{"helper", "HELPER", "@helper", "%40helper", "helper@" + domain, "%40helper%40" + domain} {
		response := s.Open(http.MethodGet, "/v1/models/"+name, token, "")
		var model chat.Model
		err := json.NewDecoder(response.Body).Decode(&model)
		_ = response.Body.Close()
		if err != nil || model.ID != "helper" || model.Object != "model" || model.OwnedBy != domain {
			t.Errorf("%s: %d %+v, %v", name, response.StatusCode, model, err)
		}
	}
	for path, want := range map[string]int{"/v1/models/nobody": 404, "/v1/models/helper@elsewhere.example": 404} {
		response := s.Open(http.MethodGet, path, token, "")
		var refused chat.OpenAIErrorBody
		err := json.NewDecoder(response.Body).Decode(&refused)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != want || refused.Error.Code != "model_not_found" || refused.Error.Message == "" {
			t.Errorf("%s: %d %+v, %v", path, response.StatusCode, refused, err)
		}
	}
	response := s.Open(http.MethodGet, "/v1/models", "", "")
	var list chat.ModelList
	err := json.NewDecoder(response.Body).Decode(&list)
	_ = response.Body.Close()
	closed := slices.ContainsFunc(list.Data, func(model chat.Model) bool { return model.ID == "closed" })
	if err != nil || list.Object != "list" || len(list.Data) == 0 || closed {
		t.Errorf("a guest sees %+v, %v", list, err)
	}
}

// TestChunks looks at each event of a stream.
func TestChunks(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	close(s.goOn)
	for _, usage := range []bool{true, false} {
		events := inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", "",
			fmt.Sprintf(`{"model":"@slow","stream":true,"stream_options":{"include_usage":%t},"messages":[{"role":"user","content":"go"}]}`, usage)))
		if last := events[len(events)-1]; last.Data != "[DONE]" {
			t.Fatalf("%v", events)
		}
		var chunks []chat.CompletionChunk
		for _, event := range events[:len(events)-1] {
			var chunk chat.CompletionChunk
			decoder := json.NewDecoder(strings.NewReader(event.Data))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&chunk); err != nil || chunk.Object != "chat.completion.chunk" || chunk.Model != "slow" || chunk.ID != chunks0(chunks, chunk).ID {
				t.Errorf("%s: %v", event.Data, err)
			}
			if has := strings.Contains(event.Data, `"usage":`); has != usage {
				t.Errorf("usage %t: %s", usage, event.Data)
			}
			chunks = append(chunks, chunk)
		}
		if usage {
			last := events[len(events)-2].Data
			if !strings.Contains(last, `"choices":[]`) || !strings.Contains(last, `"usage":{"prompt_tokens":0`) || strings.Count(last, "null") != 0 {
				t.Errorf("the last chunk %s", last)
			}
			chunks = chunks[:len(chunks)-1]
		}
		first, last := chunks[0].Choices[0], chunks[len(chunks)-1].Choices[0]
		if first.Delta.Role != "assistant" || first.FinishReason != nil || last.FinishReason == nil || *last.FinishReason != "stop" || last.Delta.Content != nil {
			t.Errorf("first %+v, last %+v", first, last)
		}
	}
}

func chunks0(chunks []chat.CompletionChunk, otherwise chat.CompletionChunk) chat.CompletionChunk {
	if len(chunks) > 0 {
		return chunks[0]
	}
	return otherwise
}

const sameBody = `{"model":"helper","messages":[{"role":"user","content":"x"}]}`

// TestCompletionRepeats: what an SDK sends again by itself is not run again, what a person sends again is.
func TestCompletionRepeats(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	send := func(token, body string, header ...string) chatReply {
		t.Helper()
		return s.post("/v1/chat/completions", token, body, header...)
	}
	runs := func(want int32, what string) {
		t.Helper()
		if asked := s.asked.Swap(0); asked != want {
			t.Errorf("%s: %d runs, want %d", what, asked, want)
		}
	}
	first := send(token, sameBody, "X-Stainless-Retry-Count", "0").completion(t)
	runs(1, "a request")
	for _, count := range []string{"1", "2"} {
		if again := send(token, sameBody, "X-Stainless-Retry-Count", count).completion(t); again.ID != first.ID {
			t.Errorf("repeat %s is another answer", count)
		}
	}
	runs(0, "repeats of an SDK")
	if second := send(token, sameBody, "X-Stainless-Retry-Count", "0").completion(t); second.ID == first.ID {
		t.Error("the same question gets the same answer")
	}
	runs(1, "the same question")
	send(token, strings.Replace(sameBody, `"x"`, `"y"`, 1), "X-Stainless-Retry-Count", "1").completion(t)
	runs(1, "a repeat of what never came")
	send(s.Token("other"), sameBody, "X-Stainless-Retry-Count", "1").completion(t)
	runs(1, "a repeat of somebody else")
	send(token, sameBody, "Idempotency-Key", "k1").completion(t)
	send(token, sameBody, "Idempotency-Key", "k1").completion(t)
	runs(1, "a key")
	other := send(token, strings.Replace(sameBody, `[`, `[{"role":"user","content":"before"},`, 1), "Idempotency-Key", "k1")
	if other.status != http.StatusConflict || other.header.Get("X-Should-Retry") != "false" || !strings.Contains(other.body, `"code":"conflict"`) {
		t.Errorf("a used key: %d %s", other.status, other.body)
	}
	runs(0, "a used key")
	for range 2 {
		send("", sameBody, "Idempotency-Key", "0b7f1b0e-7c0d-4b57-9a5e-0a8f2d7a3c11").completion(t)
	}
	runs(1, "a guest's key")
}

// TestCompletionReaderLeaves: the run goes on without its reader, and the repeat finds it.
func TestCompletionReaderLeaves(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	const body = `{"model":"slow","stream":true,"messages":[{"role":"user","content":"go"}]}`
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := inboxtest.Client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	_ = response.Body.Close()
	close(s.goOn)
	events := inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", token, body, "X-Stainless-Retry-Count", "1"))
	if text := streamedText(t, events); text != "Hello" || s.asked.Load() != 1 {
		t.Errorf("%q after %d runs", text, s.asked.Load())
	}
	turns, err := s.Store().Turns(t.Context(), exchange.TurnFilter{Agent: "slow", Limit: 10})
	if err != nil || len(turns) != 1 || turns[0].State != exchange.StateAnswered {
		t.Errorf("%d turns, %v", len(turns), err)
	}
}
