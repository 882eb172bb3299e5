package contract

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/value"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	given, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return value.Assoc(given)
}

func TestRESTInput(t *testing.T) {
	input, err := RESTInput(object(t, `{"agent":"My.Agent","message":" x ","session_id":5,"workspace_id":"w","principal":{"owner_type":"user"},"run_id":"r","client_context":{"source":"jsonrpc","page":"/a","tool_declarations":[1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{"agent":"my-agent","message":" x ","session_id":"5","run_id":null,"history":[],"attachments":[],"workspace_id":"w","client_context":{"source":"rest","client_name":"frontend-chat","page":"/a"}}`)
	if difference := cmp.Diff(want, input.value()); difference != "" {
		t.Error(difference)
	}
	named, _ := RESTInput(object(t, `{"agent":"a","message":"x","client_context":{"client_name":"kiosk"}}`))
	if named.ClientContext["client_name"] != "kiosk" {
		t.Errorf("client name %v", named.ClientContext["client_name"])
	}
	for _, body := range []string{`{"agent":"a"}`, `{"message":"x"}`, `{"agent":".","message":"x"}`, `{"agent":"a","message":"\n"}`} {
		_, err := RESTInput(object(t, body))
		var refused *Error
		if !errors.As(err, &refused) || refused.Code != CodeInvalidREST {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func request(method, parts string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"id":"r","message":{"parts":%s}}}`, method, parts)
}

func TestFrames(t *testing.T) {
	for want, delta := range map[string]Delta{
		`{"content":"Hel","deltaType":"content"}`: {Kind: DeltaContent, Text: "Hel"},
		`{"content":"search","deltaType":"tool_name","toolCallId":"t1","toolCallIndex":2,"toolCallName":"search"}`: {Kind: DeltaCall, ToolCallID: "t1", ToolName: "search", Index: 2},
		`{"content":"{}","deltaType":"tool_argument","toolCallId":"t1","toolCallIndex":0}`:                         {Kind: DeltaArgument, ToolCallID: "t1", Text: "{}"},
	} {
		want = `{"jsonrpc":"2.0","method":"message/delta","params":{"delta":` + want + `,"id":"r"}}`
		if got := value.EncodeText(DeltaFrame("r", delta)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	task := TaskOf(Output{RunID: "r", SessionID: "s", Reply: "Hello"})
	if got := value.EncodeText(ResultFrame(1, task)); !strings.Contains(got, `"input-required"`) {
		t.Errorf("frame %s", got)
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
		"too large":         {"a", `"` + strings.Repeat("x", MaxInputBytes) + `"`, `{"error":{"code":-32600,"message":"The request is too large or too deep."},"id":null,"jsonrpc":"2.0"}`},
		"too deep":          {"a", strings.Repeat("[", 70) + strings.Repeat("]", 70), `{"error":{"code":-32600,"message":"The request is too large or too deep."},"id":null,"jsonrpc":"2.0"}`},
	} {
		_, refused := ReadRequest(test.agent, []byte(test.body))
		if refused == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		if got := value.EncodeText(refused.Frame()); got != test.want {
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
		_, refused := ReadRequest("a", []byte(request(MethodSend, parts)))
		if refused == nil || refused.Number != InvalidParams || refused.Text != want {
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
	read, refused := ReadRequest("My.Agent", []byte(body))
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
	if !value.Equal(want, read.Input.value()) {
		t.Error(cmp.Diff(want, read.Input.value()))
	}
	if messages, err := read.Input.Messages(); err != nil || len(messages) != 5 {
		t.Errorf("%d messages, %v", len(messages), err)
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add("helper", []byte(request(MethodSend, `[{"type":"text","text":"x"}]`)))
	f.Add("My.Agent", []byte(request(MethodStream, `[{"type":"data","data":{"toolCallId":"1","toolId":"t","arguments":[1]}},{"type":"data","data":{"toolCallId":"1","result":1e400}}]`)))
	f.Add("é", []byte(request("no", `{"0":{"type":"data","data":{"clientContext":{"a":{"runtime_tools":1}},"role":"agent","text":"t"}}}`)))
	f.Add("a", []byte(`{"jsonrpc":"2.0","id":99999999999999999999,"params":{"message":{"parts":[]}}}`))
	f.Fuzz(func(t *testing.T, agent string, data []byte) {
		read, refused := ReadRequest(agent, data)
		if refused != nil {
			if _, err := value.Encode(refused.Frame()); err != nil || refused.Number > -32600 || refused.Text == "" {
				t.Fatal(refused, err)
			}
			return
		}
		messages, err := read.Input.Messages()
		if err != nil || len(messages) == 0 {
			t.Fatal("a checked request has no messages", err)
		}
		for _, member := range []string{"runtime_tools", "tool_declarations", "runtime_tool_callback"} {
			if _, is := read.Input.ClientContext[member]; is {
				t.Fatal(member + " came in")
			}
		}
		if read.Input.ClientContext["source"] != SourceJSONRPC {
			t.Fatal("the caller says where it comes from")
		}
	})
}
