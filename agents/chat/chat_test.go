package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/chat"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/task"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	value, err := envelope.Decode([]byte(text), envelope.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return envelope.Assoc(value)
}

func code(err error) string {
	if coded, is := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); is {
		return coded.ErrorCode()
	}
	return ""
}

const (
	call   = `{"type":"tool_call","role":"assistant","content":"","version":1,"payload":{"tool_name":"map","parameters":{}},"metadata":{"tool_call_id":"c1"}}`
	result = `{"type":"tool_result","role":"user","content":"1","version":1,"payload":{"tool_name":"map","result":1},"metadata":{"tool_call_id":"c1"}}`
)

func TestInputs(t *testing.T) {
	for name, test := range map[string]struct{ body, code string }{
		"a message":              {`{"agent":"a","message":"x"}`, ""},
		"continuations":          {`{"agent":"a","input_messages":[` + call + `,` + result + `]}`, ""},
		"nothing":                {`{"agent":"a","message":" "}`, chat.CodeEmptyMessage},
		"no text":                {`{"agent":"a","message":7}`, chat.CodeEmptyMessage},
		"no agent":               {`{"message":"x"}`, chat.CodeAgentNotFound},
		"a principal in text":    {`{"agent":"a","message":"x","principal":"root"}`, chat.CodeInvalidPrincipal},
		"no envelope":            {`{"agent":"a","message":"x","input_messages":["x"]}`, chat.CodeInvalidMessages},
		"a text as continuation": {`{"agent":"a","input_messages":[{"role":"user","content":"x"}]}`, chat.CodeInvalidMessageType},
		"a call without result":  {`{"agent":"a","message":"x","input_messages":[` + call + `]}`, chat.CodeUnpairedMessages},
		"a result before it":     {`{"agent":"a","message":"x","input_messages":[` + result + `,` + call + `]}`, chat.CodeUnpairedMessages},
	} {
		_, err := chat.ReadInput([]byte(test.body))
		if code(err) != test.code || (err == nil) != (test.code == "") {
			t.Errorf("%s: %v, want %q", name, err, test.code)
		}
	}
	if _, err := chat.ReadInput([]byte(strings.Repeat("[", 99))); err == nil {
		t.Error("too deep a text was read")
	}
}

func TestInputKeepsTheContract(t *testing.T) {
	body := `{"agent":" a ","message":"x","session_id":"s","run_id":7,"token_streaming":true,"structured_output":{"format":"json_schema"},
		"workspace":{"workspace_type":"site"},"allow_only":["t"],"unknown":1,"attachments":[{"u":1}],"principal":null,
		"history":[{"role":"user","content":"q"},{"role":"system","content":"no"},{"role":"assistant","content":" "}],
		"client_context":{"source":"block","opaque":{"id":1},"runtime_tools":[1],"runtime_tool_declarations":[1],"tool_declarations":[1],"runtime_tool_callback":"x","runtime_tool_timeout":9}}`
	input, err := chat.ReadInput([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{"agent":"a","message":"x","session_id":"s","run_id":"7","token_streaming":true,"structured_output":{"format":"json_schema"},
		"workspace":{"workspace_type":"site"},"allow_only":["t"],"attachments":[{"u":1}],"history":[{"role":"user","content":"q"}],
		"client_context":{"source":"block","opaque":{"id":1}}}`)
	if difference := cmp.Diff(want, input.Value()); difference != "" {
		t.Error(difference)
	}
	again, err := chat.NormalizeInput(input.Value())
	if difference := cmp.Diff(input, again); difference != "" || err != nil {
		t.Error(err, difference)
	}
}

func TestRESTInput(t *testing.T) {
	input, err := chat.RESTInput(object(t, `{"agent":"My.Agent","message":" x ","session_id":5,"workspace_id":"w","principal":{"owner_type":"user"},"run_id":"r","client_context":{"source":"jsonrpc","page":"/a","tool_declarations":[1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{"agent":"my-agent","message":" x ","session_id":"5","run_id":null,"history":[],"attachments":[],"workspace_id":"w","client_context":{"source":"rest","client_name":"frontend-chat","page":"/a"}}`)
	if difference := cmp.Diff(want, input.Value()); difference != "" {
		t.Error(difference)
	}
	named, _ := chat.RESTInput(object(t, `{"agent":"a","message":"x","client_context":{"client_name":"kiosk"}}`))
	if named.ClientContext["client_name"] != "kiosk" {
		t.Errorf("client name %v", named.ClientContext["client_name"])
	}
	for _, body := range []string{`{"agent":"a"}`, `{"message":"x"}`, `{"agent":".","message":"x"}`, `{"agent":"a","message":"\n"}`} {
		_, err := chat.RESTInput(object(t, body))
		var refused *chat.Error
		if !errors.As(err, &refused) || refused.Code != chat.CodeInvalidREST || refused.HTTPStatus() != 400 {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestOutputOf(t *testing.T) {
	normalized, err := envelope.NormalizeResult(object(t, `{"messages":[{"role":"user","content":"q"},`+call+`,`+result+`,{"role":"assistant","content":"a"},{"role":"assistant","content":[{"type":"x"}]}],
		"final_content":"a","turn_count":2,"usage":{"total_tokens":3},"status":"runtime_tool_pending","runtime_tool_pending":{"request_id":"r"},"completed":false,
		"structured_output":null,"structured_output_diagnostics":{"schema":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	output := chat.OutputOf("s1", normalized)
	about := envelope.Assoc(envelope.Assoc(output["metadata"])["agents_api"])
	for _, member := range []string{"status", "turn_count", "usage", "run_outcome", "tool_observability", "structured_output"} {
		if about[member] == nil {
			t.Errorf("metadata.agents_api.%s is missing", member)
		}
	}
	structured, said := output["structured_output"]
	if !said || structured != nil || output["status"] != "runtime_tool_pending" || envelope.Truthy(output["completed"]) || output["run_outcome"] == nil {
		t.Errorf("output %v", output)
	}
	want := []any{map[string]any{"role": "user", "content": "q"}, map[string]any{"role": "assistant", "content": "a"}}
	if difference := cmp.Diff(want, output["messages"]); difference != "" {
		t.Error(difference)
	}
}

func TestOrderOfHandlers(t *testing.T) {
	answer := func(name string) chat.Handler {
		return func(context.Context, chat.Input, chat.Emit) (any, error) { return map[string]any{"reply": name}, nil }
	}
	handlers := &chat.Handlers{}
	if handlers.Of("a") != nil {
		t.Error("nobody registered")
	}
	handlers.Register(chat.FallbackPriority, "", answer("built in"))
	handlers.Register(10, "b", answer("of b"))
	handlers.Register(10, "", answer("second"))
	handlers.Register(5, "c", answer("of c"))
	handlers.Register(1, "", nil)
	for agent, want := range map[string]string{"a": "second", "b": "of b", "c": "of c"} {
		output, _ := handlers.Of(agent)(t.Context(), chat.Input{}, nil)
		if got := envelope.Assoc(output)["reply"]; got != want {
			t.Errorf("%s is answered by %v, want %s", agent, got, want)
		}
	}
}

func dispatcher(handler chat.Handler, runs chat.Runs) chat.Dispatcher {
	handlers := &chat.Handlers{}
	handlers.Register(0, "", handler)
	return chat.Dispatcher{Handlers: handlers, Runs: runs}
}

func TestRunsAreClaimedOnce(t *testing.T) {
	control := task.NewControl(0, 0)
	alice, bob := control.As(task.Caller{OwnerType: "user", OwnerKey: "a"}), control.As(task.Caller{OwnerType: "user", OwnerKey: "b"})
	calls := 0
	count := func(_ context.Context, input chat.Input, _ chat.Emit) (any, error) {
		calls++
		return map[string]any{"reply": "x", "run_id": "another", "status": "runtime_tool_pending", "completed": false}, nil
	}
	input := chat.Input{Agent: "a", Message: "x", RunID: " r1 ", SessionID: "s1"}
	output, err := dispatcher(count, alice).Dispatch(t.Context(), input, nil)
	if err != nil || output["run_id"] != "r1" {
		t.Errorf("output %v, %v", output, err)
	}
	if _, err := dispatcher(count, alice).Dispatch(t.Context(), input, nil); code(err) != chat.CodeRunAlreadyStarted {
		t.Errorf("the second: %v", err)
	}
	if _, err := dispatcher(count, bob).Dispatch(t.Context(), input, nil); code(err) != chat.CodeRunOwnerForbidden {
		t.Errorf("somebody else's: %v", err)
	}
	run, err := alice.Get(t.Context(), "r1")
	if err != nil || run["status"] != "runtime_tool_pending" || calls != 1 {
		t.Errorf("run %v, %v, %d calls", run, err, calls)
	}
	made, err := dispatcher(count, alice).Dispatch(t.Context(), chat.Input{Agent: "a", Message: "x"}, nil)
	if id := envelope.Text(made["run_id"]); err != nil || !strings.HasPrefix(id, "run_") {
		t.Errorf("made %v, %v", made, err)
	}
}

func TestFailedRuns(t *testing.T) {
	for name, handler := range map[string]chat.Handler{
		"an error":      func(context.Context, chat.Input, chat.Emit) (any, error) { return nil, errors.New("inside") },
		"no object":     func(context.Context, chat.Input, chat.Emit) (any, error) { return "text", nil },
		"nothing":       func(context.Context, chat.Input, chat.Emit) (any, error) { return nil, nil },
		"a panic":       func(context.Context, chat.Input, chat.Emit) (any, error) { panic("inside") },
		"end of caller": func(ctx context.Context, _ chat.Input, _ chat.Emit) (any, error) { return nil, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			alice := task.NewControl(0, 0).As(task.Caller{OwnerType: "user", OwnerKey: "a"})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			func() {
				defer func() { _ = recover() }()
				if _, err := dispatcher(handler, alice).Dispatch(ctx, chat.Input{Agent: "a", Message: "x", RunID: "r"}, nil); err == nil {
					t.Error("no error")
				}
			}()
			if run, err := alice.Get(t.Context(), "r"); err != nil || run["status"] != "failed" {
				t.Errorf("run %v, %v", run, err)
			}
		})
	}
	if _, err := (chat.Dispatcher{Handlers: &chat.Handlers{}}).Dispatch(t.Context(), chat.Input{Agent: "a"}, nil); code(err) != chat.CodeNoHandler {
		t.Errorf("without handler: %v", err)
	}
}

// frames sends a request and gives every frame as JSON, up to the limit.
func frames(t *testing.T, d chat.Dispatcher, agent, body string, limit int) []string {
	t.Helper()
	request, refused := chat.ReadRequest(agent, []byte(body))
	if refused != nil {
		return []string{envelope.EncodeText(refused.Frame())}
	}
	var sent []string
	d.Answer(t.Context(), request, func(frame map[string]any) bool {
		sent = append(sent, envelope.EncodeText(frame))
		return len(sent) < limit
	})
	return sent
}

func request(method, parts string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"id":"r","message":{"parts":%s}}}`, method, parts)
}

func streaming(_ context.Context, input chat.Input, emit chat.Emit) (any, error) {
	if emit != nil {
		emit(chat.Delta{"type": "content", "text": "Hel"})
		emit(chat.Delta{"type": "tool_call", "tool_call_id": "t1", "tool_name": "search", "index": "2.9"})
		emit(chat.Delta{"type": "tool_argument", "tool_call_id": "t1", "text": "{}", "index": nil})
		emit(chat.Delta{"type": "thought", "content": "lo"})
	}
	return map[string]any{"session_id": "s", "reply": "Hello", "completed": input.Message != "more"}, nil
}

func TestFrames(t *testing.T) {
	text := `[{"type":"text","text":"x"}]`
	terminal := `{"id":1,"jsonrpc":"2.0","result":{"id":"r","sessionId":"s","status":{"message":{"kind":"message","messageId":"r-message","parts":[{"text":"Hello","type":"text"}],"role":"agent"},"state":"completed"}}}`
	stream := []string{
		`{"jsonrpc":"2.0","method":"message/delta","params":{"delta":{"content":"Hel","deltaType":"content"},"id":"r"}}`,
		`{"jsonrpc":"2.0","method":"message/delta","params":{"delta":{"content":"search","deltaType":"tool_name","toolCallId":"t1","toolCallIndex":2,"toolCallName":"search"},"id":"r"}}`,
		`{"jsonrpc":"2.0","method":"message/delta","params":{"delta":{"content":"{}","deltaType":"tool_argument","toolCallId":"t1","toolCallIndex":0},"id":"r"}}`,
		`{"jsonrpc":"2.0","method":"message/delta","params":{"delta":{"content":"lo","deltaType":"content"},"id":"r"}}`, terminal,
	}
	for method, want := range map[string][]string{
		chat.MethodSend: {terminal}, chat.MethodTasksSend: {terminal}, chat.MethodStream: stream, chat.MethodTasksSubscribe: stream,
	} {
		if difference := cmp.Diff(want, frames(t, dispatcher(streaming, nil), "a", request(method, text), 99)); difference != "" {
			t.Errorf("%s: %s", method, difference)
		}
	}
	if cut := frames(t, dispatcher(streaming, nil), "a", request(chat.MethodStream, text), 2); len(cut) != 2 {
		t.Errorf("%d frames to a reader who left after two", len(cut))
	}
	more := frames(t, dispatcher(streaming, nil), "a", request(chat.MethodSend, `[{"type":"text","text":"more"}]`), 9)
	if len(more) != 1 || !strings.Contains(more[0], `"input-required"`) {
		t.Errorf("frames %s", more)
	}
	silent := dispatcher(func(context.Context, chat.Input, chat.Emit) (any, error) { return nil, errors.New("password wrong") }, nil)
	failed := frames(t, silent, "a", request(chat.MethodStream, text), 9)
	if len(failed) != 1 || failed[0] != `{"error":{"code":-32603,"message":"The agent could not answer."},"id":1,"jsonrpc":"2.0"}` {
		t.Errorf("frames %s", failed)
	}
}

func TestStreamsOfRunsWithoutID(t *testing.T) {
	body := `{"jsonrpc":"2.0","id":null,"method":"message/stream","params":{"message":{"parts":[{"type":"text","text":"x"}]}}}`
	sent := frames(t, dispatcher(streaming, nil), "a", body, 99)
	var delta struct{ Params struct{ ID string } }
	var last struct{ Result struct{ ID string } }
	if json.Unmarshal([]byte(sent[0]), &delta) != nil || json.Unmarshal([]byte(sent[len(sent)-1]), &last) != nil ||
		delta.Params.ID == "" || delta.Params.ID != last.Result.ID {
		t.Errorf("the deltas are of another task: %s, %s", sent[0], sent[len(sent)-1])
	}
}

func TestRefusedRequests(t *testing.T) {
	message := `"params":{"message":{"parts":[{"type":"text","text":"x"}]}}`
	for name, test := range map[string]struct{ agent, body, want string }{
		"no JSON":           {"a", `{"id":1`, `{"error":{"code":-32700,"message":"Request must be JSON."},"id":null,"jsonrpc":"2.0"}`},
		"a list":            {"a", `[{"jsonrpc":"2.0","id":1,` + message + `}]`, `{"error":{"code":-32600,"message":"Request must be JSON-RPC 2.0."},"id":null,"jsonrpc":"2.0"}`},
		"version as number": {"a", `{"jsonrpc":2.0,"id":"x","method":"no","params":1}`, `{"error":{"code":-32600,"message":"Request must be JSON-RPC 2.0."},"id":"x","jsonrpc":"2.0"}`},
		"params before method": {"a", `{"jsonrpc":"2.0","id":1,"method":"no","params":[]}`,
			`{"error":{"code":-32602,"message":"params.message must contain non-empty text or paired tool call/results."},"id":1,"jsonrpc":"2.0"}`},
		"method last":       {"a", `{"jsonrpc":"2.0","id":1.5,"method":"no",` + message + `}`, `{"error":{"code":-32601,"message":"Unknown JSON-RPC method \"no\"."},"id":null,"jsonrpc":"2.0"}`},
		"method of no text": {"a", `{"jsonrpc":"2.0","id":{},"method":["x"],` + message + `}`, `{"error":{"code":-32601,"message":"Unknown JSON-RPC method \"\"."},"id":null,"jsonrpc":"2.0"}`},
		"no agent":          {"..", `{"jsonrpc":"2.0","id":0,"method":"no"}`, `{"error":{"code":-32602,"message":"A non-empty agent id is required."},"id":0,"jsonrpc":"2.0"}`},
		"too large":         {"a", `"` + strings.Repeat("x", chat.MaxInputBytes) + `"`, `{"error":{"code":-32600,"message":"The request is too large or too deep."},"id":null,"jsonrpc":"2.0"}`},
		"too deep":          {"a", strings.Repeat("[", 70) + strings.Repeat("]", 70), `{"error":{"code":-32600,"message":"The request is too large or too deep."},"id":null,"jsonrpc":"2.0"}`},
	} {
		if got := frames(t, dispatcher(streaming, nil), test.agent, test.body, 9); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestRefusedPairs(t *testing.T) {
	for want, parts := range map[string]string{
		"Inbound tool calls must have unique toolCallId values.":   `[{"type":"data","data":{"toolCallId":"1","toolId":"t"}},{"type":"data","data":{"toolCallId":1,"toolId":"t"}}]`,
		"Inbound tool results must have unique toolCallId values.": `[{"type":"data","data":{"toolCallId":"1","result":null}},{"type":"data","data":{"toolCallId":"1","result":1}}]`,
		"Every inbound tool call must have one matching result.":   `[{"type":"data","data":{"toolCallId":"1","toolId":"t"}},{"type":"text","text":"x"}]`,
		"Inbound tool calls require toolId.":                       `[{"type":"data","data":{"toolCallId":"1"}},{"type":"data","data":{"toolCallId":"1","result":1}}]`,
		"Inbound tool call and result toolId values must match.":   `[{"type":"data","data":{"toolCallId":"1","toolId":"t"}},{"type":"data","data":{"toolCallId":"1","toolId":"u","result":1}}]`,
	} {
		_, refused := chat.ReadRequest("a", []byte(request(chat.MethodSend, parts)))
		if refused == nil || refused.Number != chat.InvalidParams || refused.Text != want {
			t.Errorf("%v, want %s", refused, want)
		}
	}
}

func TestParts(t *testing.T) {
	body := `{"jsonrpc":"2.0","id":1,"method":"message/send","tokenStreaming":"0","params":{"sessionId":"","metadata":{"m":1},"message":{"parts":[
		{"type":"text","text":" a"},{"type":"text","text":"secret","contentType":"context"},{"type":"text","text":1.0},{"type":"text","text":["x"]},"x",
		{"type":"file","file":{"name":"n"}},{"type":"file","file":"x"},
		{"type":"data","data":{"clientContext":{"a":1,"source":"root","b":1,"runtime_tools":[1]}}},{"type":"data","data":{"clientContext":{"a":2}}},
		{"type":"data","data":{"toolCallId":"c1","toolId":"map","arguments":{"q":"é/"}}},
		{"type":"data","data":{"toolCallId":"c2","toolId":"map","arguments":"no"}},
		{"type":"data","data":{"toolCallId":"c2","result":null}},{"type":"data","data":{"toolCallId":"c1","toolId":"map","result":"é/𝄞"}}]}}}`
	read, refused := chat.ReadRequest("My.Agent", []byte(body))
	if refused != nil {
		t.Fatal(refused)
	}
	pair := func(id, parameters, content, result string) string {
		return `{"schema":"agents-api.message","version":1,"type":"tool_call","role":"assistant","content":"","payload":{"tool_name":"map","parameters":` + parameters + `,"turn":0},"metadata":{"tool_call_id":"` + id + `"}},
			{"schema":"agents-api.message","version":1,"type":"tool_result","role":"user","content":` + content + `,"payload":{"tool_name":"map","result":` + result + `},"metadata":{"tool_call_id":"` + id + `"}}`
	}
	want := object(t, `{"agent":"my-agent","message":"a1","history":[],"session_id":null,"run_id":null,"token_streaming":false,
		"attachments":[{"name":"n"},{}],"client_context":{"a":2,"b":1,"source":"jsonrpc","client_name":"jsonrpc-chat","metadata":{"m":1}},
		"input_messages":[`+pair("c1", `{"q":"é/"}`, `"\"\\u00e9\\/\\ud834\\udd1e\""`, `"é/𝄞"`)+`,`+pair("c2", `{}`, `"null"`, `null`)+`]}`)
	if !envelope.Equal(want, read.Input.Value()) {
		t.Error(cmp.Diff(want, read.Input.Value()))
	}
	if messages, err := read.Input.Messages(); err != nil || len(messages) != 5 {
		t.Errorf("%d messages, %v", len(messages), err)
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add("helper", []byte(request(chat.MethodSend, `[{"type":"text","text":"x"}]`)))
	f.Add("My.Agent", []byte(request(chat.MethodStream, `[{"type":"data","data":{"toolCallId":"1","toolId":"t","arguments":[1]}},{"type":"data","data":{"toolCallId":"1","result":1e400}}]`)))
	f.Add("é", []byte(request("no", `{"0":{"type":"data","data":{"clientContext":{"a":{"runtime_tools":1}},"role":"agent","text":"t"}}}`)))
	f.Add("a", []byte(`{"jsonrpc":"2.0","id":99999999999999999999,"params":{"message":{"parts":[]}}}`))
	f.Fuzz(func(t *testing.T, agent string, data []byte) {
		read, refused := chat.ReadRequest(agent, data)
		if refused != nil {
			if _, err := envelope.Encode(refused.Frame()); err != nil || refused.Number > -32600 || refused.Text == "" {
				t.Fatal(refused, err)
			}
			return
		}
		messages, err := read.Input.Messages()
		if err != nil || len(messages) == 0 {
			t.Fatal("a checked request has no messages", err)
		}
		again, err := chat.NormalizeInput(read.Input.Value())
		if err != nil || !envelope.Equal(read.Input.Value(), again.Value()) {
			t.Fatal("the input changes", err, cmp.Diff(read.Input.Value(), again.Value()))
		}
		for _, member := range []string{"runtime_tools", "tool_declarations", "runtime_tool_callback"} {
			if _, is := read.Input.ClientContext[member]; is {
				t.Fatal(member + " came in")
			}
		}
		if read.Input.ClientContext["source"] != chat.SourceJSONRPC {
			t.Fatal("the caller says where it comes from")
		}
	})
}

func FuzzReadInput(f *testing.F) {
	f.Add([]byte(`{"agent":"a","message":"x","input_messages":[` + call + `,` + result + `],"history":[{"role":"user","content":"q"}]}`))
	f.Add([]byte(`{"agent":1,"message":" x","session_id":1e9,"run_id":true,"principal":{},"token_streaming":1,"allow_only":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		input, err := chat.ReadInput(data)
		if err != nil {
			return
		}
		again, err := chat.NormalizeInput(input.Value())
		if err != nil || !envelope.Equal(input.Value(), again.Value()) {
			t.Fatal("the input changes", err, cmp.Diff(input.Value(), again.Value()))
		}
	})
}
