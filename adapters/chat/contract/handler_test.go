package contract

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// frames answers a request and returns every frame as JSON, up to the limit.
func frames(t *testing.T, body string, handler Handler, limit int) []string {
	t.Helper()
	request, refused := ReadRequest("a", []byte(body))
	if refused != nil {
		return []string{value.EncodeText(refused.Frame())}
	}
	var sent []string
	Answer(t.Context(), request, handler, func(frame any) bool {
		sent = append(sent, value.EncodeText(frame))
		return len(sent) < limit
	})
	return sent
}

func streaming(_ context.Context, input Input, emit func(map[string]any) bool) (any, error) {
	if emit != nil {
		for _, delta := range []map[string]any{
			{"type": "content", "text": "Hel"},
			{"type": "tool_call", "tool_call_id": "t1", "tool_name": "search", "index": "2.9"},
			{"type": "tool_argument", "tool_call_id": "t1", "text": "{}", "index": nil},
			{"type": "thought", "content": "lo"},
		} {
			emit(delta)
		}
	}
	return map[string]any{"session_id": "s", "reply": "Hello", "completed": input.Message != "more", "run_id": "of the handler"}, nil
}

// TestAnswer: a streamed request has its deltas and one last frame, another one the last frame alone.
func TestAnswer(t *testing.T) {
	text := `[{"type":"text","text":"x"}]`
	terminal := `{"id":1,"jsonrpc":"2.0","result":{"id":"r","sessionId":"s","status":{"message":{"kind":"message","messageId":"r-message","parts":[{"text":"Hello","type":"text"}],"role":"agent"},"state":"completed"}}}`
	stream := []string{
		`{"jsonrpc":"2.0","method":"message/delta","params":{"delta":{"content":"Hel","deltaType":"content"},"id":"r"}}`,
		`{"jsonrpc":"2.0","method":"message/delta","params":{"delta":{"content":"search","deltaType":"tool_name","toolCallId":"t1","toolCallIndex":2,"toolCallName":"search"},"id":"r"}}`,
		`{"jsonrpc":"2.0","method":"message/delta","params":{"delta":{"content":"{}","deltaType":"tool_argument","toolCallId":"t1","toolCallIndex":0},"id":"r"}}`,
		`{"jsonrpc":"2.0","method":"message/delta","params":{"delta":{"content":"lo","deltaType":"content"},"id":"r"}}`, terminal,
	}
	for method, want := range map[string][]string{
		MethodSend: {terminal}, MethodTasksSend: {terminal}, MethodStream: stream, MethodTasksSubscribe: stream,
	} {
		if difference := cmp.Diff(want, frames(t, request(method, text), streaming, 99)); difference != "" {
			t.Errorf("%s: %s", method, difference)
		}
	}

	if cut := frames(t, request(MethodStream, text), streaming, 2); len(cut) != 2 {
		t.Errorf("%d frames to a reader who left after two", len(cut))
	}
	if more := frames(t, request(MethodSend, `[{"type":"text","text":"more"}]`), streaming, 9); len(more) != 1 || !strings.Contains(more[0], `"input-required"`) {
		t.Errorf("frames %s", more)
	}
}

// TestGeneratedRunID: deltas and the result of a run without an id have the same new one, which the handler gets.
func TestGeneratedRunID(t *testing.T) {
	for _, id := range []string{`"id":" ",`, `"id":null,`, ""} {
		var named string
		body := `{"jsonrpc":"2.0","id":null,"method":"message/stream","params":{` + id + `"message":{"parts":[{"type":"text","text":"x"}]}}}`
		sent := frames(t, body, func(ctx context.Context, input Input, emit func(map[string]any) bool) (any, error) {
			named = input.RunID
			return streaming(ctx, input, emit)
		}, 99)
		var delta struct{ Params struct{ ID string } }
		var last struct {
			Result struct {
				ID     string
				Status struct{ Message struct{ MessageID string } }
			}
		}
		if json.Unmarshal([]byte(sent[0]), &delta) != nil || json.Unmarshal([]byte(sent[len(sent)-1]), &last) != nil {
			t.Fatalf("frames %s", sent)
		}
		if !strings.HasPrefix(named, "run_") || delta.Params.ID != named || last.Result.ID != named || last.Result.Status.Message.MessageID != named+"-message" {
			t.Errorf("%q: the handler got %q: %s, %s", id, named, sent[0], sent[len(sent)-1])
		}
	}
}

// TestHandlersThatFail: the error of a handler is the last frame, and says no more than it may.
func TestHandlersThatFail(t *testing.T) {
	const noObject = "agents/chat handler returned an unexpected result type. Handlers must return an array matching the canonical output shape or a WP_Error."
	for name, test := range map[string]struct {
		output any
		err    error
		want   string
	}{
		"a text":       {"Hello", nil, noObject},
		"nothing":      {nil, nil, noObject},
		"a number":     {json.Number("5"), nil, noObject},
		"a list":       {[]any{"Hello"}, nil, noObject},
		"a code":       {nil, refuse("boom", "Runtime failed"), "Runtime failed"},
		"a fault":      {nil, fault.Wrap(fault.Unavailable, "try later", errors.New("password wrong")), "try later"},
		"its insides":  {nil, errors.New("password wrong"), "The agent could not answer."},
		"beside words": {map[string]any{"reply": "no"}, errors.New("x"), "The agent could not answer."},
	} {
		handler := func(context.Context, Input, func(map[string]any) bool) (any, error) { return test.output, test.err }
		for _, method := range []string{MethodSend, MethodStream} {
			sent := frames(t, request(method, `[{"type":"text","text":"x"}]`), handler, 9)
			want := `{"error":{"code":-32603,"message":` + value.EncodeText(test.want) + `},"id":1,"jsonrpc":"2.0"}`
			if len(sent) != 1 || sent[0] != want {
				t.Errorf("%s, %s: %s, want %s", name, method, sent, want)
			}
		}
	}
}

// TestFormsOfDeltas: a delta of any form makes a frame with the members of its type, each of one JSON type.
func TestFormsOfDeltas(t *testing.T) {
	for given, want := range map[string]string{
		`{"type":"content","text":"a"}`:              `{"content":"a","deltaType":"content"}`,
		`{"type":"content","content":"a"}`:           `{"content":"a","deltaType":"content"}`,
		`{"type":"content","text":"","content":"a"}`: `{"content":"","deltaType":"content"}`,
		`{"type":"content","text":null,"content":5}`: `{"content":"5","deltaType":"content"}`,
		`{"text":1.5}`:     `{"content":"1.5","deltaType":"content"}`,
		`{"type":"reset"}`: `{"content":"","deltaType":"content"}`,
		`{"type":"tool_result","text":"x","tool_call_id":"c"}`: `{"content":"x","deltaType":"content"}`,
		`{"type":7,"text":["x"]}`:                              `{"content":"","deltaType":"content"}`,
		`{"type":"tool_call"}`:                                 `{"content":"","deltaType":"tool_name","toolCallId":"","toolCallIndex":0,"toolCallName":""}`,
		`{"type":"tool_call","tool_call_id":7,"tool_name":true,"index":"3","text":"x"}`:         `{"content":"1","deltaType":"tool_name","toolCallId":"7","toolCallIndex":3,"toolCallName":"1"}`,
		`{"type":"tool_argument","tool_call_id":"c","text":"{","index":2.9,"content":"x"}`:      `{"content":"{","deltaType":"tool_argument","toolCallId":"c","toolCallIndex":2}`,
		`{"type":"tool_argument","tool_call_id":"c","content":"x","index":"x","tool_name":"t"}`: `{"content":"","deltaType":"tool_argument","toolCallId":"c","toolCallIndex":0}`,
	} {
		got := value.EncodeText(DeltaFrame("r", ReadDelta(object(t, given))))
		if want := `{"jsonrpc":"2.0","method":"message/delta","params":{"delta":` + want + `,"id":"r"}}`; got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		scalar := rapid.SampledFrom([]any{nil, "", "x", "tool_call", "tool_argument", "content", true, json.Number("1e99"), json.Number("-3"), []any{}, map[string]any{"a": "b"}})
		given := map[string]any{}
		for _, member := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"type", "text", "content", "tool_call_id", "tool_name", "index"}), rapid.ID).Draw(t, "members") {
			given[member] = scalar.Draw(t, member)
		}
		wire := DeltaFrame("r", ReadDelta(given)).Params.(TaskDelta).Delta //nolint:forcetypeassert // its type
		members := map[string][3]bool{"content": {}, "tool_argument": {true, true, false}, "tool_name": {true, true, true}}
		want, known := members[wire.DeltaType]
		if got := [3]bool{wire.ToolCallID != nil, wire.ToolCallIndex != nil, wire.ToolCallName != nil}; !known || got != want {
			t.Fatalf("%v makes %+v", given, wire)
		}
	})
}

// TestOutputs: missing and odd members of an output.
func TestOutputs(t *testing.T) {
	for given, want := range map[string]Output{
		`{}`:                                     {Completed: true},
		`{"reply":42,"run_id":7,"session_id":8}`: {Reply: "42", RunID: "7", SessionID: "8", Completed: true},
		`{"reply":["x"],"completed":"0"}`:        {},
		`{"completed":false}`:                    {},
		`{"completed":0}`:                        {},
		`{"completed":null}`:                     {},
		`{"completed":"yes","status":"failed","reply":"no"}`: {Reply: "no", Completed: true},
	} {
		if got, err := ReadOutput(object(t, given)); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", given, got, err, want)
		}
	}
}

// TestPartsWithKind: clients of A2A 0.3 name the type of a part kind. A part without a type that is read is named in the refusal.
func TestPartsWithKind(t *testing.T) {
	body := request(MethodSend, `[{"kind":"text","text":"a"},{"type":"text","kind":"file","text":"b"},{"kind":"file","file":{"name":"n"}},
		{"kind":"data","data":{"clientContext":{"a":1}}},{"type":null,"kind":"text","text":"c"},{"type":"odd","kind":"text","text":"no"}]`)
	read, refused := ReadRequest("a", []byte(body))
	if refused != nil || read.Input.Message != "abc" || len(read.Input.Attachments) != 1 || !value.Equal(read.Input.ClientContext["a"], 1) {
		t.Fatalf("read %+v, %v", read.Input, refused)
	}

	const contract = "params.message must contain non-empty text or paired tool call/results."
	for parts, more := range map[string]string{
		`[]`:                           "",
		`[{"type":"text","text":" "}]`: "",
		`[{"kind":"text","text":""}]`:  "",
		`[{"text":"x"}]`:               ` Part 1 has the type ""; want "text", "file" or "data".`,
		`[{"kind":"file","file":{}},{"kind":"TextPart","text":"x"}]`: ` Part 2 has the type "TextPart"; want "text", "file" or "data".`,
	} {
		_, refused := ReadRequest("a", []byte(request(MethodSend, parts)))
		if refused == nil || refused.Number != InvalidParams || refused.Text != contract+more {
			t.Errorf("%s: %v, want %q", parts, refused, more)
		}
	}
}
