package inbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/chat"
	"inbox/agents"
	"inbox/normalized"
)

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

func (r chatReply) completion(t *testing.T) (whole chat.Completion) {
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

func (r chatReply) said(t *testing.T) string {
	t.Helper()
	content := r.completion(t).Choices[0].Message.Content
	if content == nil {
		t.Fatalf("no content: %s", r.body)
	}
	return *content
}

// TestCompletionShapes sends what clients are documented to send.
func TestCompletionShapes(t *testing.T) {
	s := newChatServer(t)
	s.told()
	token := s.token("app")
	for name, test := range map[string]struct{ body, want string }{
		"OpenAI's SDK, all parts": {
			`"temperature":0.2,"top_p":1,"max_completion_tokens":100,"max_tokens":100,"stop":["\n"],"seed":1,"logprobs":false,"response_format":{"type":"text"},"user":"u1",
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
			"user: Be brief.\n\none\n\nResult of find: found\nassistant: there\nuser: Result of old: done\nnew: two",
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
	s := newChatServer(t)
	messages := []map[string]string{{"role": "system", "content": "Be kind."}}
	for i := range 300 {
		messages = append(messages, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": fmt.Sprint("line ", i)})
	}
	body, err := json.Marshal(map[string]any{"model": "remembers", "messages": append(messages, map[string]string{"role": "user", "content": "now"})})
	if err != nil {
		t.Fatal(err)
	}
	s.post("/v1/chat/completions", s.token("app"), string(body)).said(t)
	told := strings.Join(s.wasTold(), "\n")
	if !strings.Contains(told, "Be kind.") || !strings.Contains(told, "line 299") || strings.Contains(told, "line 100\n") {
		t.Errorf("the agent was told %q", told)
	}
}

func TestModels(t *testing.T) {
	s := newChatServer(t)
	token, domain := s.token("app"), s.server.config.Domain
	for _, name := range []string{"helper", "HELPER", "@helper", "%40helper", "helper@" + domain, "%40helper%40" + domain} {
		response := s.open(http.MethodGet, "/v1/models/"+name, token, "")
		var model chat.Model
		err := json.NewDecoder(response.Body).Decode(&model)
		_ = response.Body.Close()
		if err != nil || model.ID != "helper" || model.Object != "model" || model.OwnedBy != domain {
			t.Errorf("%s: %d %+v, %v", name, response.StatusCode, model, err)
		}
	}
	for path, want := range map[string]int{"/v1/models/nobody": 404, "/v1/models/helper@elsewhere.example": 404} {
		response := s.open(http.MethodGet, path, token, "")
		var refused chat.OpenAIErrorBody
		err := json.NewDecoder(response.Body).Decode(&refused)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != want || refused.Error.Code != "model_not_found" || refused.Error.Message == "" {
			t.Errorf("%s: %d %+v, %v", path, response.StatusCode, refused, err)
		}
	}
	response := s.open(http.MethodGet, "/v1/models", "", "")
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
	s := newChatServer(t)
	close(s.goOn)
	for _, usage := range []bool{true, false} {
		events := allEvents(s.open(http.MethodPost, "/v1/chat/completions", "",
			fmt.Sprintf(`{"model":"@slow","stream":true,"stream_options":{"include_usage":%t},"messages":[{"role":"user","content":"go"}]}`, usage)))
		if last := events[len(events)-1]; last.data != "[DONE]" {
			t.Fatalf("%v", events)
		}
		var chunks []chat.CompletionChunk
		for _, event := range events[:len(events)-1] {
			var chunk chat.CompletionChunk
			decoder := json.NewDecoder(strings.NewReader(event.data))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&chunk); err != nil || chunk.Object != "chat.completion.chunk" || chunk.Model != "slow" || chunk.ID != chunks0(chunks, chunk).ID {
				t.Errorf("%s: %v", event.data, err)
			}
			if has := strings.Contains(event.data, `"usage":`); has != usage {
				t.Errorf("usage %t: %s", usage, event.data)
			}
			chunks = append(chunks, chunk)
		}
		if usage {
			last := events[len(events)-2].data
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
