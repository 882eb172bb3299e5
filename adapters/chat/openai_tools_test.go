package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/chat"
	"inbox/agents"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/normalized"
)

// newToolServer is a server with agents that call client tools, see [inboxtest.NewWithTools].
func newToolServer(t *testing.T, settings ...string) (s *chatServer, asked *atomic.Int32) {
	t.Helper()
	server, asked := inboxtest.NewWithTools(t, settings...)
	return withAgents(server), asked
}

// toolBody is a conversation in which the client executes tools.
func toolBody(model, more string, messages ...any) string {
	said, _ := json.Marshal(messages)
	return fmt.Sprintf(`{"model":%q,"tools":[{"type":"function","function":{"name":"look"}},{"type":"function","function":{"name":"client__weigh"}},
		{"type":"function","function":{"name":"vault"}}]%s,"messages":%s}`, model, more, said)
}

type said map[string]any

var question1 = said{"role": "user", "content": "is there milk?"}

func result(call, content string) said {
	return said{"role": "tool", "tool_call_id": call, "content": content}
}

const heard = `{"in_stock":3}, {"value":"heavy"}`

// TestCompletionTools pauses a run for the client's own tools, one after the other, and goes on with their results.
func TestCompletionTools(t *testing.T) {
	t.Parallel()
	s, asked := newToolServer(t)
	token := s.Token("app")
	first := s.post("/v1/chat/completions", token, toolBody("asks", "", question1)).completion(t).Choices[0]
	if first.FinishReason != "tool_calls" || len(first.Message.ToolCalls) != 1 || first.Message.Content != nil {
		t.Fatalf("first %+v", first)
	}
	call := first.Message.ToolCalls[0]
	if call.Function.Name != "look" || call.Function.Arguments != `{"item":"milk"}` || call.Type != "function" {
		t.Errorf("call %+v", call)
	}
	messages := []any{question1, first.Message, result(call.ID, `{"in_stock":3}`)}
	second := s.post("/v1/chat/completions", token, toolBody("asks", "", messages...)).completion(t).Choices[0]
	if second.FinishReason != "tool_calls" || len(second.Message.ToolCalls) != 1 || second.Message.ToolCalls[0].Function.Name != "client__weigh" {
		t.Fatalf("second %+v", second)
	}
	messages = append(messages, second.Message, result(second.Message.ToolCalls[0].ID, "heavy"))
	for range 2 { // a repeat, as SDKs do it, changes nothing
		last := s.post("/v1/chat/completions", token, toolBody("asks", "", messages...))
		if said := last.said(t); said != heard {
			t.Errorf("last %q", said)
		}
	}
	if asked := asked.Load(); asked != 3 {
		t.Errorf("the model was asked %d times, want 3", asked)
	}
	streamed := inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", token, toolBody("asks", `,"stream":true`, messages...)))
	if text := streamedText(t, streamed); text != heard {
		t.Errorf("streamed %q: %v", text, streamed)
	}
}

// tinyPNG is a picture of one pixel.
var tinyPNG = func() []byte {
	var made bytes.Buffer
	if err := png.Encode(&made, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		panic(err)
	}
	return made.Bytes()
}()

// TestToolResultFiles: files of the results that a client hands in reach the model, those of an earlier call again with each later one. What
// is broken is refused before any result counts, and a result names no file by its digest.
func TestToolResultFiles(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, asked := newToolServer(t, "INBOX_DATABASE_URL="+url(t))
			token, picture := s.Token("app"), dataURL("image/png", tinyPNG)
			hand := func(call chat.CompletionToolCall, content any, before ...any) (messages []any, got chatReply) {
				t.Helper()
				messages = append(append([]any{question1}, before...), said{"role": "assistant", "tool_calls": []any{call}}, said{"role": "tool", "tool_call_id": call.ID, "content": content})
				return messages[1:], s.post("/v1/chat/completions", token, toolBody("asks", "", messages...))
			}

			first := s.post("/v1/chat/completions", token, toolBody("asks", "", question1)).completion(t).Choices[0].Message.ToolCalls[0]
			_, refused := hand(first, []any{textPiece("look"), picturePiece("data:image/png;base64,???")})
			if refused.status != http.StatusBadRequest || !strings.Contains(refused.body, `"param":"messages[2].content[1]"`) || asked.Load() != 1 {
				t.Errorf("a broken picture: %d %s", refused.status, refused.body)
			}

			named := fmt.Sprintf(`{"in_stock":3,"metadata":{"files":[{"kind":"file","mime":"image/png","bytes_ref":{"kind":"content_addressed","algo":"sha256","digest":"%064d"}}]}}`, 7)
			before, paused := hand(first, []any{textPiece(named), picturePiece(picture), filePiece("old.csv", []byte("no"))})
			second := paused.completion(t).Choices[0].Message.ToolCalls[0]
			if _, err := s.Store().SweepOrphans(t.Context(), s.blobs(), -1); err != nil {
				t.Error(err)
			}
			_, last := hand(second, "heavy", before...)
			if said := last.said(t); strings.Count(said, picture) != 1 || !strings.Contains(said, `"in_stock":3`) || !strings.Contains(said, "heavy") {
				t.Errorf("the model saw %s", said)
			}
		})
	}
}

// TestCompletionToolStream pauses streams; the second goes on to the answer.
func TestCompletionToolStream(t *testing.T) {
	t.Parallel()
	s, _ := newToolServer(t)
	token := s.Token("app")
	messages := []any{question1}
	for _, tool := range []string{"look", "client__weigh", ""} {
		events := inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", token, toolBody("asks", `,"stream":true,"stream_options":{"include_usage":true}`, messages...)))
		var calls []chat.CompletionToolCall
		finish, tokens := "", int64(0)
		for _, chunk := range chunksOf(t, events) {
			for _, choice := range chunk.Choices {
				calls = append(calls, choice.Delta.ToolCalls...)
				if choice.FinishReason != nil {
					finish = *choice.FinishReason
				}
			}
			if chunk.Usage != nil && *chunk.Usage != nil {
				tokens += (*chunk.Usage).Total
			}
		}
		if events[len(events)-1].Data != "[DONE]" {
			t.Fatalf("%v", events)
		}
		if tool == "" {
			if text := streamedText(t, events); text != `{"value":"3"}, {"value":"3"}` || finish != "stop" || tokens != 9 {
				t.Errorf("%q, %s, %d tokens in %v", text, finish, tokens, events)
			}
			return
		}
		if finish != "tool_calls" || len(calls) != 1 || *calls[0].Index != 0 || calls[0].Function.Name != tool || calls[0].Function.Arguments != `{"item":"milk"}` {
			t.Fatalf("%s: %v", tool, events)
		}
		if tokens != 9 {
			t.Errorf("%s: %d tokens, want 9", tool, tokens)
		}
		messages = append(messages, said{"role": "assistant", "tool_calls": calls}, result(calls[0].ID, "3"))
	}
}

// TestCompletionToolOwners: no one answers another's call, and no one executes what the operator did not leave to askers.
// Streams are not cut off by the wait, however slow the machine is.
func TestCompletionToolOwners(t *testing.T) {
	t.Parallel()
	s, _ := newToolServer(t, "INBOX_CHAT_WAIT=1s")
	token, other := s.Token("app"), s.Token("other")
	first := s.streamedCalls(token, toolBody("asks", `,"stream":true`, question1))
	hand := func(more string) string {
		return toolBody("asks", more, question1, said{"role": "assistant", "tool_calls": first}, result(first[0].ID, "mine"))
	}
	for name, got := range map[string]chatReply{
		"another token": s.post("/v1/chat/completions", other, hand("")), "a guest": s.post("/v1/chat/completions", "", hand("")),
		"another agent": s.post("/v1/chat/completions", token, strings.Replace(hand(""), `"model":"asks"`, `"model":"keeps"`, 1)),
	} {
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, "no call of this agent") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if next := s.streamedCalls(token, hand(`,"stream":true`)); next[0].Function.Name != "client__weigh" {
		t.Errorf("the owner gets %+v", next)
	}
	for name, body := range map[string]string{
		"not of askers": toolBody("keeps", "", question1), "none": toolBody("asks", `,"tool_choice":"none"`, question1),
		"not offered": `{"model":"asks","messages":[{"role":"user","content":"is there milk?"}]}`,
	} {
		got := s.post("/v1/chat/completions", token, body)
		if got.status != http.StatusGatewayTimeout || got.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	turns, err := s.Store().Turns(t.Context(), exchange.TurnFilter{Agent: "keeps", Limit: 10})
	if err != nil || len(turns) != 1 {
		t.Fatalf("%d turns, %v", len(turns), err)
	}
	s.Waits(turns[0].ID)
	pending, err := s.Store().ToolRequests(t.Context(), exchange.ToolRequestFilter{Agent: "keeps", Limit: 10})
	if err != nil || len(pending) != 1 {
		t.Fatalf("%d pending, %v", len(pending), err)
	}
	turn := strings.ReplaceAll(turns[0].ID, "-", "")
	for _, id := range []string{pending[0].ID, "call_" + turn + "_c0", "call_" + turn, "call_", ""} {
		got := s.post("/v1/chat/completions", token, toolBody("keeps", "", question1, said{"role": "assistant", "content": ""}, result(id, "open")))
		if got.status != http.StatusBadRequest {
			t.Errorf("the vault by %q: %d %s", id, got.status, got.body)
		}
	}
}

// streamedCalls returns the one call with which a stream ends.
func (s *chatServer) streamedCalls(token, body string) (calls []chat.CompletionToolCall) {
	s.Helper()
	events := inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", token, body))
	for _, chunk := range chunksOf(s, events) {
		for _, choice := range chunk.Choices {
			calls = append(calls, choice.Delta.ToolCalls...)
		}
	}
	if len(calls) != 1 {
		s.Fatalf("the stream has %d calls: %v", len(calls), events)
	}
	return calls
}

// TestCompletionShownTools: a call that the agent made by itself never looks like one that the client has to execute.
//
//contract:shows message-21
func TestCompletionShownTools(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	part := normalized.Part{Kind: normalized.PartToolCall, ID: "m1", Name: "notes/list", Args: json.RawMessage(`{"n":1,"api_key":"hidden"}`)}
	agent := agents.Func(func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			s.asked.Add(1)
			ended := part
			ended.Result = json.RawMessage(`{"notes":2}`)
			ended.Metadata = json.RawMessage(`{"citations":[{"source_title":"Notes","source_url":"https://notes.test/"}]}`)
			_ = yield(normalized.Delta{Kind: normalized.DeltaToolCallStart, Part: &part}, nil) &&
				yield(normalized.Delta{Kind: normalized.DeltaToolCallEnd, Part: &ended}, nil) &&
				yield(normalized.Delta{Kind: normalized.DeltaText, Text: "Zwölf notes."}, nil)
		}
	})
	err := s.Register(exchange.AgentProfile{Name: "notes", DisplayName: "Notes"}, agent, agents.Settings{Unverified: agents.UnverifiedAnswer, ShowTools: agents.ShowToolsFull})
	if err != nil {
		t.Fatal(err)
	}
	token := s.Token("app")
	const (
		body  = `{"model":"notes","messages":[{"role":"user","content":"what is there?"}%s]%s}`
		reply = "Zwölf notes.\n\nSources:\n[1] Notes: https://notes.test/"
	)
	whole := s.post("/v1/chat/completions", token, fmt.Sprintf(body, "", "")).completion(t).Choices[0]
	message := whole.Message
	if len(message.ToolCalls) != 0 || whole.FinishReason != "stop" || *message.Content != reply {
		t.Fatalf("%+v", whole)
	}
	executed := chat.CompletionExecutedTool{ID: "m1", Type: "function", Name: "notes/list", Arguments: `{"api_key":"[redacted]","n":1}`, Status: "succeeded", Output: `{"notes":2}`}
	if difference := cmp.Diff([]chat.CompletionExecutedTool{executed}, message.ExecutedTools); difference != "" {
		t.Error(difference)
	}
	cited := []chat.CompletionAnnotation{{Type: "url_citation", URLCitation: chat.CompletionCitation{StartIndex: 23, EndIndex: 53, URL: "https://notes.test/", Title: "Notes"}}}
	if difference := cmp.Diff(cited, message.Annotations); difference != "" || string([]rune(reply)[23:53]) != "[1] Notes: https://notes.test/" {
		t.Error(difference, string([]rune(reply)[23:]))
	}
	more, _ := json.Marshal([]any{message, result("m1", "Error: no such tool")})
	if again := s.post("/v1/chat/completions", token, fmt.Sprintf(body, ","+strings.Trim(string(more), "[]"), "")); again.status != http.StatusBadRequest {
		t.Errorf("a result for a call of the agent: %d %s", again.status, again.body)
	}
	events := inboxtest.Events(s.Open(http.MethodPost, "/v1/chat/completions", token, fmt.Sprintf(body, "", `,"stream":true`)))
	var streamed []chat.CompletionExecutedTool
	var pointed []chat.CompletionAnnotation
	for _, chunk := range chunksOf(t, events) {
		for _, choice := range chunk.Choices {
			streamed, pointed = append(streamed, choice.Delta.ExecutedTools...), append(pointed, choice.Delta.Annotations...)
			if len(choice.Delta.ToolCalls) > 0 {
				t.Errorf("a call for the client: %+v", choice)
			}
		}
	}
	if streamedText(t, events) != reply || cmp.Diff(cited, pointed) != "" || len(streamed) == 0 || cmp.Diff(executed, streamed[len(streamed)-1]) != "" {
		t.Errorf("streamed %+v %+v %q", streamed, pointed, streamedText(t, events))
	}
}

func chunksOf(t testing.TB, events []inboxtest.Event) (chunks []chat.CompletionChunk) {
	t.Helper()
	for _, event := range events {
		if event.Data == "[DONE]" {
			continue
		}
		var chunk chat.CompletionChunk
		if err := json.Unmarshal([]byte(event.Data), &chunk); err != nil || chunk.ID == "" {
			t.Fatalf("%s: %v", event.Data, err)
		}
		chunks = append(chunks, chunk)
	}
	return chunks
}

func streamedText(t testing.TB, events []inboxtest.Event) string {
	t.Helper()
	var text strings.Builder
	for _, chunk := range chunksOf(t, events) {
		for _, choice := range chunk.Choices {
			if choice.Delta.Content != nil {
				text.WriteString(*choice.Delta.Content)
			}
		}
	}
	return text.String()
}

// TestCompletionToolNames: a client names a tool in any of three ways, and never two functions that are the same one.
func TestCompletionToolNames(t *testing.T) {
	t.Parallel()
	s, _ := newToolServer(t)
	token := s.Token("app")
	body := func(functions ...string) string {
		var tools []said
		for _, name := range functions {
			tools = append(tools, said{"type": "function", "function": said{"name": name}})
		}
		text, _ := json.Marshal(said{"model": "asks", "stream": true, "messages": []any{question1}, "tools": tools})
		return string(text)
	}
	for _, name := range []string{"look", "client__look"} {
		if calls := s.streamedCalls(token, body(name, "weigh")); calls[0].Function.Name != name {
			t.Errorf("the client's %s is called %s", name, calls[0].Function.Name)
		}
	}
	for _, pair := range [][2]string{{"look", "client__look"}, {"client__weigh", "weigh"}} {
		got := s.post("/v1/chat/completions", token, body(pair[0], pair[1]))
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, pair[0]+" and "+pair[1]) {
			t.Errorf("%v: %d %s", pair, got.status, got.body)
		}
	}
	if got := s.post("/v1/chat/completions", token, strings.Replace(body("vault", "client__vault", "Look", "look"), `"stream":true,`, "", 1)); strings.Contains(got.body, "vault") {
		t.Errorf("functions that are no client tools: %d %s", got.status, got.body)
	}
}
