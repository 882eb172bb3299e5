package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// modelRequest is what a model is asked, in the form of chat completions.
type modelRequest struct {
	Model    string
	Messages []modelMessage
	Choice   any `json:"tool_choice"`
	Tools    []struct {
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		}
	}
}

type modelMessage struct {
	Role      string
	Content   string
	ToolCalls []struct {
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

// heard are the results of tools since the last word of a user.
func (r modelRequest) heard() (results []string) {
	for _, message := range r.Messages {
		switch message.Role {
		case "user":
			results = nil
		case "tool":
			results = append(results, message.Content)
		}
	}
	return results
}

// concludes tells that the model has to answer without tools.
func (r modelRequest) concludes() bool { return len(r.Tools) == 0 || r.Choice == "none" }

func (r modelRequest) offered() (names []string) {
	for _, tool := range r.Tools {
		names = append(names, tool.Function.Name)
	}
	return names
}

// turn is what a model says: a text, and calls as name and arguments by turns.
type turn struct {
	text  string
	calls []string
}

func says(text string) turn            { return turn{text: text} }
func calling(pairs ...string) turn     { return turn{calls: pairs} }
func (t turn) beside(text string) turn { t.text = text; return t }
func (t turn) frame(number int) (f string) {
	delta, finish := map[string]any{"role": "assistant", "content": t.text}, "stop"
	if len(t.calls) > 0 {
		calls := []any{}
		for i := 0; i < len(t.calls); i += 2 {
			calls = append(calls, map[string]any{
				"index": i / 2, "id": fmt.Sprintf("c%d-%d", number, i/2), "type": "function", "function": map[string]any{"name": t.calls[i], "arguments": t.calls[i+1]},
			})
		}
		delta["tool_calls"], finish = calls, "tool_calls"
	}
	chunk, _ := json.Marshal(map[string]any{
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		"usage":   map[string]any{"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
	})
	return fmt.Sprintf("data: %s\n\ndata: [DONE]\n\n", chunk)
}

// looped is a server with an agent of kind llm for each script. The script of an agent gets what its model was asked.
type looped struct {
	*inboxtest.Server

	token, admin string

	mu    sync.Mutex
	asked map[string][]modelRequest // by agent
	ran   map[string]int            // calls of the tools at the MCP server
}

// script is an agent: what its model says, and further lines of its table [agents.llm].
type script struct {
	model func(request modelRequest) turn
	top   string // lines of the agent's own table
	lines string // of [agents.llm]
	more  string // further tables of the agent
}

const deskRules = `purposes = ["tool:desk/echo", "tool:desk/fail", "tool:desk/large", "tool:desk/count", "tool:desk/pay", "tool:desk/plain", "tool:desk/sealed", "tool:desk/unusable", "tool:client/look"]`

// newLooped starts the server with its models and their tools.
func newLooped(t *testing.T, scripts map[string]script) *looped {
	t.Helper()
	l := &looped{asked: map[string][]modelRequest{}, ran: map[string]int{}}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request modelRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		l.mu.Lock()
		l.asked[request.Model] = append(l.asked[request.Model], request)
		number := len(l.asked[request.Model])
		l.mu.Unlock()

		said := scripts[request.Model].model(request)
		if said.text == "" && len(said.calls) == 0 {
			http.Error(w, `{"error":{"message":"I will not"}}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, said.frame(number))
	}))
	t.Cleanup(model.Close)

	desk := l.desk()
	t.Cleanup(desk.Close)

	var tables strings.Builder
	for name, one := range scripts {
		fmt.Fprintf(&tables, "[[agents]]\nname = %q\nkind = \"llm\"\nunverified = \"answer\"\naccess = \"public\"\n%s\n[[agents.rules]]\neffect = \"allow\"\n%s\n"+
			"[agents.llm]\nbase_url = %q\nmodel = %q\nattempts = 1\n%s\n[[agents.mcp]]\nname = \"desk\"\nurl = %q\nat_most_once = [\"pay\"]\npreview = [\"sealed\"]\n%s\n",
			name, one.top, deskRules, model.URL+"/v1", name, one.lines, desk.URL, one.more)
	}
	file := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte(tables.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	l.Server = inboxtest.New(t, file, "INBOX_FEDERATION_ALLOW_PRIVATE=true").Serve()
	l.token = l.Token("customer")
	admin, _, err := l.Operator().Tokens.CreateAdmin(t.Context(), "operator")
	if err != nil {
		t.Fatal(err)
	}
	l.admin = admin

	return l
}

// desk is the MCP server of the agents, over HTTP.
func (l *looped) desk() *httptest.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	count := func(name string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ran[name]++
	}
	said := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}

	type words struct {
		Text string `json:"text"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Says it again."}, func(_ context.Context, _ *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
		count("echo")
		return said("echo of " + in.Text), nil, nil
	})
	for _, name := range []string{"count", "pay", "sealed"} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "Counts."}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			count(name)
			return said("counted"), nil, nil
		})
	}
	mcp.AddTool(server, &mcp.Tool{Name: "fail", Description: "Fails."}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("the printer is on fire")
	})
	mcp.AddTool(server, &mcp.Tool{Name: "large", Description: "Says much."}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return said(strings.Repeat("größer ", 20_000)), nil, nil
	})
	plain := &mcp.Tool{Name: "plain", Description: "Takes nothing.", InputSchema: map[string]any{
		"type": "object", "properties": map[string]any{"pin": map[string]any{"type": "string", "x-sensitive": true}},
	}}
	server.AddTool(plain, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return said("plain"), nil })
	huge := map[string]any{"type": "object", "description": strings.Repeat("x", 65<<10)} // over the limit of a schema
	server.AddTool(&mcp.Tool{Name: "unusable", Description: "Has a schema that is too large.", InputSchema: huge}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return said("unusable"), nil
	})

	return httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
}

// post sends a document with the token of a customer and returns the answer.
func (l *looped) post(path string, body any, want int) (answer map[string]any) {
	l.Helper()
	return l.call(http.MethodPost, path, l.token, body, want)
}

func (l *looped) call(method, path, token string, body any, want int, header ...string) (answer map[string]any) {
	l.Helper()
	encoded := ""
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			l.Fatal(err)
		}
		encoded = string(text)
	}
	status, _, content := l.Read(method, path, token, encoded, header...)
	if status != want {
		l.Fatalf("%s %s: %d %s, want %d", method, path, status, content, want)
	}
	if content != "" {
		if err := json.Unmarshal([]byte(content), &answer); err != nil {
			l.Fatalf("%s %s: %v in %s", method, path, err, content)
		}
	}
	return answer
}

// isTrue reads a flag of a document; what is not there is false.
func isTrue(member any) bool {
	flag, _ := member.(bool)
	return flag
}

// ask writes to an agent by chat and returns the answer.
func (l *looped) ask(agent, text string) map[string]any {
	l.Helper()
	return l.post("/v1/chat", map[string]any{"agent": agent, "message": text}, http.StatusOK)
}

// questions are what the model of an agent was asked so far.
func (l *looped) questions(agent string) []modelRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked[agent])
}

func (l *looped) calls(tool string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ran[tool]
}

// record is what the operator reads of the newest turn of an agent.
func (l *looped) record(agent string) string {
	l.Helper()
	turns, err := l.Store().Turns(l.Context(), exchange.TurnFilter{Agent: agent, Limit: 1})
	if err != nil || len(turns) != 1 {
		l.Fatal(turns, err)
	}
	status, _, content := l.Read(http.MethodGet, "/api/v1/turns/"+turns[0].ID, l.admin, "")
	if status != http.StatusOK {
		l.Fatal(status, content)
	}
	return content
}

// step returns the next of some turns, by the number of results that the model heard.
func step(request modelRequest, turns ...turn) turn {
	return turns[min(len(request.heard()), len(turns)-1)]
}

// TestRuntimeContractOfTheLoop shows the loop by what a model over HTTP is asked, what a tool server over HTTP is called with, and what a
// customer and the operator read.
func TestRuntimeContractOfTheLoop(t *testing.T) {
	t.Parallel()
	l := newLooped(t, map[string]script{
		"steps": {model: func(r modelRequest) turn {
			return step(r, calling("desk__echo", `{"text":"hush"}`).beside("Let me look."), calling("desk__plain", `{}`), says("Done."))
		}},
		"wrong": {model: func(r modelRequest) turn {
			return step(r, calling("desk__nothing", `{}`, "desk__echo", `{}`, "desk__fail", `{}`), says("Sorry."))
		}},
		"short": {lines: "max_turns = 3", model: func(r modelRequest) turn {
			if r.concludes() {
				return says("I stop.")
			}
			return calling("desk__echo", fmt.Sprintf(`{"text":"%d"}`, len(r.Messages)))
		}},
		"circle": {model: func(r modelRequest) turn {
			if r.concludes() {
				return says("Enough.")
			}
			return calling("desk__count", `{}`)
		}},
		"once": {model: func(r modelRequest) turn {
			return step(r, calling("desk__pay", `{}`), calling("desk__pay", `{}`, "desk__plain", `{}`, "desk__plain", `{}`), says("Paid."), says("Paid."), says("Paid."))
		}},
		"big": {model: func(r modelRequest) turn { return step(r, calling("desk__large", `{}`), says("Read.")) }},
	})

	//contract:shows envelope-12 envelope-13 envelope-18 envelope-24 runtime-14 runtime-22 runtime-23 runtime-34 runtime-35 runtime-40 runtime-65 runtime-66 runtime-67 runtime-86 runtime-94
	t.Run("steps", func(t *testing.T) {
		answer := l.ask("steps", "go")
		if answer["reply"] != "Done." || !isTrue(answer["completed"]) {
			t.Errorf("the answer is %v", answer)
		}

		asked := l.questions("steps")
		if len(asked) != 3 {
			t.Fatalf("the model was asked %d times", len(asked))
		}
		last := asked[2].Messages[len(asked[2].Messages)-4:]
		if first := last[0]; first.Role != "assistant" || first.Content != "Let me look." || len(first.ToolCalls) != 1 || first.ToolCalls[0].Function.Name != "desk__echo" {
			t.Errorf("the first call is %+v", first)
		}
		if result := last[1]; result.Role != "tool" || result.ToolCallID != last[0].ToolCalls[0].ID || !strings.Contains(result.Content, "echo of hush") {
			t.Errorf("the first result is %+v of the call %+v", result, last[0])
		}
		if last[2].Role != "assistant" || last[3].Role != "tool" || last[3].ToolCallID != last[2].ToolCalls[0].ID {
			t.Errorf("the second pair is %+v", last[2:])
		}

		for _, tool := range asked[0].Tools {
			described := tool.Function.Description != "" && strings.Contains(string(tool.Function.Parameters), `"object"`)
			if !described || !strings.HasPrefix(tool.Function.Name, "desk__") {
				t.Errorf("offered %+v", tool)
			}
			if tool.Function.Name == "desk__plain" && strings.Contains(string(tool.Function.Parameters), `"required"`) {
				t.Errorf("a tool without parameters: %s", tool.Function.Parameters)
			}
		}

		status, _, session := l.Read(http.MethodGet, fmt.Sprintf("/v1/sessions/%v/messages", answer["session_id"]), l.token, "")
		if status != http.StatusOK || !strings.Contains(session, "Done.") || strings.Contains(session, "tool_calls") || strings.Contains(session, "desk__echo") {
			t.Errorf("the session reads %d %s", status, session)
		}

		record := l.record("steps")
		for _, want := range []string{`"desk/echo"`, `"desk/plain"`, `"tool.called"`, `"model.called"`, `21`} { // 3 calls of 7 tokens
			if !strings.Contains(record, want) {
				t.Errorf("the record lacks %s: %s", want, record)
			}
		}
		var rows struct{ Events []json.RawMessage }
		if err := json.Unmarshal([]byte(record), &rows); err != nil || len(rows.Events) < 5 {
			t.Fatal(rows, err)
		}
		for _, row := range rows.Events {
			if strings.Contains(string(row), "hush") {
				t.Errorf("a row shows an argument or a result: %s", row)
			}
		}
	})

	//contract:shows runtime-78 runtime-79 runtime-80
	t.Run("wrong", func(t *testing.T) {
		if answer := l.ask("wrong", "go"); answer["reply"] != "Sorry." {
			t.Errorf("the answer is %v", answer)
		}
		heard := l.questions("wrong")[1].heard()
		for i, want := range []string{"Tool 'desk__nothing' not found", "requires the following parameters: text", "the printer is on fire"} {
			if !strings.Contains(heard[i], want) {
				t.Errorf("result %d is %q, want %q", i, heard[i], want)
			}
		}
	})

	//contract:shows runtime-30
	t.Run("short", func(t *testing.T) {
		if answer := l.ask("short", "go"); answer["reply"] != "I stop." || len(l.questions("short")) != 3 {
			t.Errorf("%v after %d questions", answer, len(l.questions("short")))
		}
	})

	//contract:shows runtime-107
	t.Run("circle", func(t *testing.T) {
		if answer := l.ask("circle", "go"); answer["reply"] != "Enough." || l.calls("count") != 3 {
			t.Errorf("%v after %d calls", answer, l.calls("count"))
		}
	})

	//contract:shows runtime-68
	t.Run("once", func(t *testing.T) {
		if answer := l.ask("once", "go"); answer["reply"] != "Paid." || l.calls("pay") != 1 {
			t.Errorf("%v after %d payments", answer, l.calls("pay"))
		}
		asked := l.questions("once")
		if heard := asked[len(asked)-1].heard(); len(heard) != 4 || heard[0] != heard[1] {
			t.Errorf("the model heard %q", heard)
		}
	})

	//contract:shows runtime-108
	t.Run("big", func(t *testing.T) {
		l.ask("big", "go")
		heard := l.questions("big")[1].heard()[0]
		if len(heard) > 40<<10 || !utf8.ValidString(heard) || !strings.Contains(heard, "truncated") || strings.ContainsRune(heard, utf8.RuneError) {
			t.Errorf("the model heard %d bytes: %.200s", len(heard), heard)
		}
	})
}

// TestRuntimeContractOfPolicies shows which tools a model is offered, and which calls wait.
func TestRuntimeContractOfPolicies(t *testing.T) {
	t.Parallel()
	calls := func(name string) func(modelRequest) turn {
		return func(r modelRequest) turn { return step(r, calling(name, `{"text":"milk"}`), says("It is done.")) }
	}
	opens := func(r modelRequest) turn { return step(r, calling("desk__sealed", `{}`), says("It is done.")) }
	l := newLooped(t, map[string]script{
		"open":     {model: func(modelRequest) turn { return says("Well.") }},
		"bare":     {model: func(modelRequest) turn { return says("Well.") }, lines: "[agents.llm.tool_policy]\nmode = \"allow\"\n"},
		"strict":   {model: func(modelRequest) turn { return says("Well.") }, lines: "[agents.llm.tool_policy]\nmandatory_tools = [\"desk/echo\"]\ndeny = [\"desk/echo\", \"desk/count\"]\n[agents.llm.actions]\nforbidden = [\"desk/*\"]\ndirect = [\"desk/plain\", \"desk/echo\"]\n"},
		"sealed":   {model: opens},
		"unsealed": {model: opens, lines: "[agents.llm.actions]\npreview = [\"desk/*\"]\ndirect = [\"desk/sealed\"]\n"},
		"outside": {model: calls("client__look"), more: `[[agents.client_tools]]
name = "look"
description = "Looks at the shelf."
parameters = '{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}'
[[agents.client_tools]]
name = "closed"
description = "No rule opens it."
`},
		"bound": {model: func(r modelRequest) turn {
			return step(r, calling("client__unbound", `{"text":"milk"}`), calling("client__look", `{"text":"milk","customer":"@eve@elsewhere.example"}`), says("It is done."))
		}, more: `[[agents.client_tools]]
name = "look"
description = "Looks at the shelf."
parameters = '{"type":"object","properties":{"text":{"type":"string"},"customer":{"type":"string"},"agent":{"type":"string"}},"required":["text","customer","agent"]}'
parameter_bindings = '{"customer":{"source":"caller_context","path":"address","authoritative":true},"agent":"context.agent"}'
parameter_defaults = '{"limit":10,"shelf_token":"t0p"}'
[[agents.client_tools]]
name = "unbound"
description = "Has parameters with the names of what is known."
parameters = '{"type":"object","properties":{"text":{"type":"string"},"agent":{"type":"string"}},"required":["text","agent"]}'
[[agents.rules]]
effect = "allow"
purposes = ["tool:client/unbound"]
`},
		"careful": {model: calls("desk__echo"), lines: "[agents.llm.actions]\npreview = [\"desk/*\"]\ndirect = [\"desk/count\"]\n"},
	})

	//contract:shows runtime-42 runtime-87 runtime-88 channels-40
	t.Run("what a caller declares", func(t *testing.T) {
		declared := []any{map[string]any{"name": "client/mine", "description": "d", "source": "client", "executor": "client", "scope": "run"}}
		l.post("/v1/chat", map[string]any{
			"agent": "open", "message": "go", "principal": map[string]any{"user_id": 1}, "tool_policy": map[string]any{"allow_only": []any{"client/mine"}}, "allow_only": []any{"client/mine"},
			"client_context": map[string]any{"runtime_tools": declared, "runtime_tool_declarations": declared, "tool_declarations": declared, "runtime_tool_callback": "x"},
		}, http.StatusOK)

		want := []string{"desk__count", "desk__echo", "desk__fail", "desk__large", "desk__pay", "desk__plain", "desk__sealed"}
		if offered := l.questions("open")[0].offered(); !slices.Equal(slices.Sorted(slices.Values(offered)), want) {
			t.Errorf("offered are %q, want %q", offered, want)
		}
	})

	//contract:shows runtime-41
	t.Run("no tools", func(t *testing.T) {
		answer := l.ask("bare", "go")
		if asked := l.questions("bare"); answer["reply"] != "Well." || len(asked) != 1 || len(asked[0].Tools) != 0 {
			t.Errorf("%v after %+v", answer, asked)
		}
	})

	//contract:shows runtime-90 runtime-93
	t.Run("denied and forbidden", func(t *testing.T) {
		l.ask("strict", "go")
		if offered := l.questions("strict")[0].offered(); !slices.Equal(offered, []string{"desk__plain"}) {
			t.Errorf("offered are %q", offered)
		}
	})

	//contract:shows runtime-93
	t.Run("what a tool's server says", func(t *testing.T) {
		if answer := l.ask("sealed", "go"); answer["status"] != "approval_required" || l.calls("sealed") != 0 {
			t.Errorf("without a policy of the agent: %v after %d calls", answer, l.calls("sealed"))
		}
		if answer := l.ask("unsealed", "go"); answer["reply"] != "It is done." || l.calls("sealed") != 1 {
			t.Errorf("with a policy of the agent: %v after %d calls", answer, l.calls("sealed"))
		}
	})

	//contract:shows runtime-31 runtime-52 runtime-60 runtime-61 runtime-62 runtime-63 runtime-89
	t.Run("tools of programs outside", func(t *testing.T) {
		tools, _, err := l.Operator().Tokens.CreateTools(t.Context(), "desk", "outside")
		if err != nil {
			t.Fatal(err)
		}
		session := l.post("/v1/sessions", map[string]any{"agent": "outside"}, http.StatusCreated)["session_id"]
		run := l.post(fmt.Sprintf("/v1/sessions/%v/messages", session), map[string]any{"message": "look"}, http.StatusAccepted)
		l.Waits(fmt.Sprint(run["run_id"]))

		first := l.questions("outside")[0]
		if offered := first.offered(); !slices.Contains(offered, "client__look") || slices.Contains(offered, "client__closed") {
			t.Errorf("offered are %q", offered)
		}
		for _, one := range first.Tools {
			if one.Function.Name == "client__look" && (one.Function.Description != "Looks at the shelf." || !strings.Contains(string(one.Function.Parameters), `"required":["text"]`)) {
				t.Errorf("offered is %+v", one.Function)
			}
		}

		open, _ := l.call(http.MethodGet, "/v1/tools/outside/requests", tools, nil, http.StatusOK)["requests"].([]any)
		if len(open) != 1 {
			t.Fatalf("requests %v", open)
		}
		request, _ := json.Marshal(open[0])
		for _, want := range []string{`"client/look"`, `"runtime_tool_pending"`, `"tool_call_id"`, `"parameters":{"text":"milk"}`, fmt.Sprintf(`"run_id":%q`, run["run_id"]), `"timeout_at"`, `"address":"@customer@`} {
			if !strings.Contains(string(request), want) {
				t.Errorf("the request lacks %s: %s", want, request)
			}
		}
	})

	//contract:shows runtime-70 runtime-79 runtime-91
	t.Run("bindings", func(t *testing.T) {
		tools, _, err := l.Operator().Tokens.CreateTools(t.Context(), "shelf", "bound")
		if err != nil {
			t.Fatal(err)
		}
		session := l.post("/v1/sessions", map[string]any{"agent": "bound"}, http.StatusCreated)["session_id"]
		run := l.post(fmt.Sprintf("/v1/sessions/%v/messages", session), map[string]any{"message": "look"}, http.StatusAccepted)
		l.Waits(fmt.Sprint(run["run_id"]))

		asked := l.questions("bound")
		if heard := asked[len(asked)-1].heard(); len(heard) != 1 || !strings.Contains(heard[0], "requires the following parameters: agent") {
			t.Errorf("without a binding: %q", heard)
		}
		for _, one := range asked[0].Tools {
			if one.Function.Name == "client__look" && (strings.Contains(string(one.Function.Parameters), "customer") || !strings.Contains(string(one.Function.Parameters), `"agent"`)) {
				t.Errorf("offered is %+v", one.Function)
			}
		}

		open, _ := l.call(http.MethodGet, "/v1/tools/bound/requests", tools, nil, http.StatusOK)["requests"].([]any)
		request, _ := json.Marshal(open)
		parameters, _ := json.Marshal(open[0].(map[string]any)["parameters"])
		if want := `{"agent":"bound","customer":"@customer@`; !strings.HasPrefix(string(parameters), want) ||
			!strings.HasSuffix(string(parameters), `,"limit":10,"shelf_token":"[redacted]","text":"milk"}`) || strings.Contains(string(request), "eve@") {
			t.Errorf("the program is asked with %s", request)
		}
	})

	for _, c := range []struct{ decision, status, reply string }{{"approve", "completed", "It is done."}, {"deny", "failed", "it was not given"}} {
		//contract:shows runtime-92 runtime-95 runtime-96 runtime-102
		t.Run(c.decision, func(t *testing.T) {
			before := l.calls("echo")
			answer := l.ask("careful", c.decision)
			if answer["status"] != "approval_required" || isTrue(answer["completed"]) || l.calls("echo") != before {
				t.Fatalf("the answer is %v after %d calls", answer, l.calls("echo"))
			}
			run := fmt.Sprintf("/v1/runs/%v", answer["run_id"])
			if got := l.call(http.MethodGet, run, l.token, nil, http.StatusOK); got["status"] != "approval_required" || isTrue(got["completed"]) {
				t.Errorf("the run is %v", got)
			}

			listed, _ := l.call(http.MethodGet, "/api/v1/approvals?agent=careful", l.admin, nil, http.StatusOK)["items"].([]any)
			if len(listed) != 1 {
				t.Fatalf("approvals %v", listed)
			}
			approval := listed[0].(map[string]any)
			staged, _ := json.Marshal(approval)
			for _, want := range []string{"desk/echo", "milk"} {
				if !strings.Contains(string(staged), want) {
					t.Errorf("the approval lacks %s: %s", want, staged)
				}
			}

			l.call(http.MethodPost, fmt.Sprintf("/api/v1/approvals/%v/%s", approval["id"], c.decision), l.admin, nil, http.StatusOK)
			var ended map[string]any
			await.Until(t, "the run ends", func() bool {
				ended = l.call(http.MethodGet, run, l.token, nil, http.StatusOK)
				return ended["status"] == c.status
			})
			if !strings.Contains(fmt.Sprint(ended["reply"]), c.reply) {
				t.Errorf("the run ended as %v", ended)
			}
			if ran := l.calls("echo") - before; ran != map[string]int{"approve": 1, "deny": 0}[c.decision] {
				t.Errorf("the tool ran %d times", ran)
			}
		})
	}
}

// TestRuntimeContractOfDeclarations starts a server with tools that cannot be, and one with a tool that can.
func TestRuntimeContractOfDeclarations(t *testing.T) {
	t.Parallel()
	table := func(tool string) string {
		file := filepath.Join(t.TempDir(), "inbox.toml")
		text := "[[agents]]\nname = \"a\"\nkind = \"llm\"\n[agents.llm]\nmodel = \"m\"\n[[agents.client_tools]]\n" + tool
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const good = "name = \"look\"\ndescription = \"d\"\nparameters = '{\"type\":\"object\"}'\n"

	//contract:shows runtime-60 runtime-62 runtime-63 runtime-64
	t.Run("refused", func(t *testing.T) {
		for bad, field := range map[string]string{
			strings.Replace(good, "look", "desk/look", 1): "client_tools[0].name", strings.Replace(good, `"d"`, `" "`, 1): "client_tools[0].description",
			strings.Replace(good, `{"type":"object"}`, `[1]`, 1): "client_tools[0].parameters",
		} {
			_, err := inbox.LoadConfig(table(bad), []string{"INBOX_FEDERATION_ALLOW_PRIVATE=true"})
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s: %v, want the field %s", bad, err, field)
			}
		}
	})

	server := inboxtest.New(t, table(good), "INBOX_FEDERATION_ALLOW_PRIVATE=true").Serve()
	if status, _, body := server.Read(http.MethodGet, "/v1/tools/a/requests", server.Token("nobody"), ""); status != http.StatusUnauthorized {
		t.Errorf("the tools of the agent: %d %s", status, body)
	}
}

// TestRuntimeContractOfCompaction shows that a long conversation is summarized, that the record tells it, and that a summary that fails
// loses nothing.
func TestRuntimeContractOfCompaction(t *testing.T) {
	t.Parallel()
	answering := func(fails bool) func(modelRequest) turn {
		return func(r modelRequest) turn {
			if r.Messages[len(r.Messages)-1].Role == "user" && strings.Contains(r.Messages[0].Content, "ummar") && len(r.Tools) == 0 {
				if fails {
					return turn{}
				}
				return says("They counted to many.")
			}
			return says("Yes.")
		}
	}
	const settings = "[agents.llm.tool_policy]\nmode = \"allow\"\n[agents.llm.compaction]\nthreshold = \"8KiB\"\nkeep_messages = 2\nenabled = %t\n"
	l := newLooped(t, map[string]script{
		"packs": {model: answering(false), lines: fmt.Sprintf(settings, true)},
		"fails": {model: answering(true), lines: fmt.Sprintf(settings, true)},
		"keeps": {model: answering(false), lines: fmt.Sprintf(settings, false)},
	})

	talk := func(agent string) (last string) {
		for i := range 5 {
			l.post("/v1/chat", map[string]any{"agent": agent, "session_id": "long", "message": fmt.Sprintf("number %d %s", i, strings.Repeat("word ", 500))}, http.StatusOK)
		}
		asked := l.questions(agent)
		text, err := json.Marshal(asked[len(asked)-1].Messages)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	//contract:shows runtime-33 runtime-99
	t.Run("summarized", func(t *testing.T) {
		if last := talk("packs"); !strings.Contains(last, "They counted to many.") || strings.Contains(last, "number 0") || !strings.Contains(last, "number 4") {
			t.Errorf("the model was asked %s", last)
		}
		if record := l.record("packs"); !strings.Contains(record, `"run.compacted"`) {
			t.Errorf("the record is %s", record)
		}
	})

	//contract:shows runtime-98
	t.Run("fails", func(t *testing.T) {
		if last := talk("fails"); !strings.Contains(last, "number 0") || !strings.Contains(last, "number 4") {
			t.Errorf("the model was asked %s", last)
		}
	})

	//contract:shows runtime-97
	t.Run("off", func(t *testing.T) {
		if last := talk("keeps"); !strings.Contains(last, "number 0") || !strings.Contains(last, "number 4") {
			t.Errorf("the model was asked %s", last)
		}
		if record := l.record("keeps"); strings.Contains(record, "run.compacted") {
			t.Errorf("the record is %s", record)
		}
	})
}

// result reads the conversation result of the newest turn of an agent.
func (l *looped) result(agent string) (document map[string]any) {
	l.Helper()
	turns, err := l.Store().Turns(l.Context(), exchange.TurnFilter{Agent: agent, Limit: 1})
	if err != nil || len(turns) != 1 {
		l.Fatal(turns, err)
	}
	document, _ = l.call(http.MethodGet, "/api/v1/turns/"+turns[0].ID+"/result", l.admin, nil, http.StatusOK)["result"].(map[string]any)
	return document
}

// stopsEverywhere asks an agent whose run stops before its work is done over every way, and compares what each says of the outcome with the
// conversation result that is kept of the run.
func (l *looped) stopsEverywhere(t *testing.T, agent string) {
	t.Helper()
	bridge, _, err := l.Operator().Tokens.CreateBridge(t.Context(), "bridge-"+agent, "", exchange.AllBridgeScopes())
	if err != nil {
		t.Fatal(err)
	}
	member := func(document any, path ...string) any {
		for _, name := range path {
			object, _ := document.(map[string]any)
			document = object[name]
		}
		return document
	}
	saying := func(way string, document map[string]any, said map[string]any, expected map[string]any) {
		t.Helper()
		for name, want := range expected {
			if said[name] != want {
				t.Errorf("%s says %s: %v, want %v, in %v", way, name, said[name], want, document)
			}
		}
	}
	outcome := func() map[string]any {
		kept, _ := member(l.result(agent), "run_outcome").(map[string]any)
		return kept
	}
	question := map[string]any{"role": "user", "content": "go"}

	chat := l.ask(agent, "go")
	kept := outcome()
	if kept["status"] == "completed" || isTrue(kept["completed"]) {
		t.Fatalf("the kept result of %s is %v", agent, kept)
	}
	said := map[string]any{"status": kept["status"], "completed": false}
	saying("chat", chat, chat, said)
	told, _ := member(chat, "metadata", "agents_api", "run_outcome").(map[string]any)
	saying("run_outcome in chat", chat, told, map[string]any{"status": kept["status"], "completed": false, "stop_reason": kept["stop_reason"]})

	sent := l.call(http.MethodPost, "/v1/bridge/send", bridge, map[string]any{"agent": agent, "message": "go", "wait": true}, http.StatusOK)
	saying("bridge", sent, sent, map[string]any{"completed": false})
	run := l.call(http.MethodGet, fmt.Sprint("/v1/runs/", sent["run_id"]), bridge, nil, http.StatusOK)
	saying("run", run, run, said)
	pending := l.call(http.MethodGet, "/v1/bridge/pending", bridge, nil, http.StatusOK)
	for _, item := range entries(pending, "items") {
		saying("pending item", item, item, map[string]any{"completed": false})
		about, _ := item["metadata"].(map[string]any)
		saying("metadata of a pending item", item, about, map[string]any{"status": kept["status"]})
	}

	task := l.call(http.MethodPost, "/a2a/"+agent, l.token, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
		"message": map[string]any{"messageId": "stops", "role": "ROLE_USER", "parts": []any{map[string]any{"text": "go"}}},
	}}, http.StatusOK, "A2A-Version", "1.0")
	if state := member(task, "result", "task", "status", "state"); state != "TASK_STATE_INPUT_REQUIRED" {
		t.Errorf("the task is %v: %v", state, task)
	}

	rpc := l.post("/v1/agent/"+agent, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": map[string]any{
		"message": map[string]any{"role": "user", "parts": []any{map[string]any{"type": "text", "text": "go"}}},
	}}, http.StatusOK)
	if text := fmt.Sprint(rpc); !strings.Contains(text, fmt.Sprint(kept["status"])) || strings.Contains(text, "state:completed") {
		t.Errorf("JSON-RPC says %v", rpc)
	}
	response := l.post("/v1/responses", map[string]any{"model": agent, "input": "go"}, http.StatusOK)
	if response["status"] != "incomplete" || member(response, "incomplete_details", "reason") != kept["status"] {
		t.Errorf("the response is %v", response)
	}
	completion := l.post("/v1/chat/completions", map[string]any{"model": agent, "messages": []any{question}}, http.StatusOK)
	if choices := entries(completion, "choices"); len(choices) != 1 || choices[0]["finish_reason"] != "length" {
		t.Errorf("the completion is %v", completion)
	}

	turns, err := l.Store().Turns(t.Context(), exchange.TurnFilter{Agent: agent, Limit: 1})
	if err != nil || len(turns) != 1 || turns[0].Response.Stopped() != kept["status"] {
		t.Error("the turn has another outcome", turns, err)
	}
	browser := newBrowser(t)
	signIn(t, browser, l.URL, l.admin)
	page, err := browser.Get(l.URL + "/console/messages/" + turns[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = page.Body.Close() }()
	if shown, err := io.ReadAll(page.Body); err != nil || !strings.Contains(string(shown), fmt.Sprint(kept["status"])) {
		t.Errorf("the console does not show %v: %v", kept["status"], err)
	}
}

// entries returns the objects of a list of a document.
func entries(document map[string]any, list string) (all []map[string]any) {
	given, _ := document[list].([]any)
	for _, one := range given {
		object, _ := one.(map[string]any)
		all = append(all, object)
	}
	return all
}

// TestRuntimeContractOfResults reads what a run leaves for those who replay it.
func TestRuntimeContractOfResults(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	taken, cancelled := newGate(), newGate()
	l := newLooped(t, map[string]script{
		"taken":     {model: taken.script},
		"cancelled": {model: cancelled.script},
		"works": {model: func(r modelRequest) turn {
			return step(r, calling("desk__plain", `{"text":"hush","api_key":"hunter1","pin":"1"}`).beside("Let me look."),
				calling("desk__plain", `{"text":"hush","api_key":"hunter2","pin":"2"}`, "desk__pay", `{}`), says("Done."), says("Done."))
		}},
		"errs": {model: func(r modelRequest) turn {
			return step(r, calling("desk__nothing", `{}`, "desk__echo", `{}`, "desk__fail", `{}`), says("Sorry."))
		}},
		"circles": {model: func(r modelRequest) turn {
			if r.concludes() {
				return says("Enough.")
			}
			return calling("desk__count", `{}`)
		}},
		"spends": {lines: "max_tool_calls = 1", model: func(r modelRequest) turn {
			if r.concludes() {
				return says("Spent.")
			}
			return calling("desk__echo", fmt.Sprintf(`{"text":"%d"}`, len(r.Messages)))
		}},
		"reads": {model: func(r modelRequest) turn { return step(r, calling("desk__large", `{}`), says("Read.")) }},
		"hangs": {top: `timeout = "2s"`, model: func(r modelRequest) turn {
			if len(r.heard()) > 0 {
				<-over
			}
			return calling("desk__echo", `{"text":"a"}`)
		}},
	})

	//contract:shows envelope-9 envelope-10 envelope-11 envelope-19 envelope-20 runtime-15 runtime-16 runtime-17 runtime-18 runtime-19 runtime-21 runtime-24 runtime-73 runtime-82 runtime-84 runtime-85
	t.Run("works", func(t *testing.T) {
		l.ask("works", "go")
		got := l.result("works")
		if got["schema"] != "agents-api.conversation-result" || got["version"] != 1.0 || got["final_content"] != "Done." || got["turn_count"] != 3.0 || !isTrue(got["completed"]) {
			t.Errorf("the result is %v", got)
		}

		var kinds []string
		ids := map[string]int{}
		for _, message := range entries(got, "messages") {
			metadata, _ := message["metadata"].(map[string]any)
			if message["schema"] != "agents-api.message" || message["version"] != 1.0 || message["payload"] == nil {
				t.Errorf("%v is no envelope", message)
			}
			kinds = append(kinds, fmt.Sprint(message["type"]))
			if id, is := metadata["tool_call_id"].(string); is {
				ids[id]++
			}
		}
		if want := "[text text tool_call tool_result tool_call tool_result tool_call tool_result text]"; fmt.Sprint(kinds) != want || len(ids) != 3 {
			t.Errorf("the messages are %v with calls %v, want %s", kinds, ids, want)
		}
		for id, count := range ids {
			if count != 2 {
				t.Errorf("the call %s stands in %d messages", id, count)
			}
		}

		executed, audited := entries(got, "tool_execution_results"), entries(got, "tool_audit_events")
		if len(executed) != 3 || len(audited) != 3 {
			t.Fatalf("%d results, %d audit events", len(executed), len(audited))
		}
		for _, member := range []string{"tool_name", "tool_call_id", "parameters", "result", "turn_count"} {
			if executed[0][member] == nil {
				t.Errorf("a result of a tool lacks %s: %v", member, executed[0])
			}
		}
		if runtime, _ := executed[2]["runtime"].(map[string]any); runtime["duplicate_policy"] != "at_most_once" {
			t.Errorf("the runtime of a payment is %v", executed[2])
		}
		for _, member := range []string{"schema_version", "tool_name", "tool_call_id", "tool_source", "parameters_sha256", "result_sha256", "result_status", "success"} {
			if audited[0][member] == nil {
				t.Errorf("an audit event lacks %s: %v", member, audited[0])
			}
		}
		if audited[0]["parameters_sha256"] != audited[1]["parameters_sha256"] || audited[0]["parameters_sha256"] == audited[2]["parameters_sha256"] {
			t.Errorf("calls that differ in secrets alone have the hashes %v", audited)
		}
		whole, _ := json.Marshal(got)
		audits, _ := json.Marshal(audited)
		if strings.Contains(string(whole), "hunter") || strings.Contains(string(audits), "hush") {
			t.Errorf("the result shows a secret, or an audit event parameters: %s", whole)
		}

		used, _ := got["usage"].(map[string]any)
		about, _ := got["request_metadata"].(map[string]any)
		if used["total_tokens"] != 27.0 || about["agent"] != "works" || about["model"] != "works" || about["run_id"] == nil || about["budgets"] == nil {
			t.Errorf("usage %v, request %v", used, about)
		}
	})

	//contract:shows runtime-83
	t.Run("errs", func(t *testing.T) {
		l.ask("errs", "go")
		var classes []string
		for _, event := range entries(l.result("errs"), "tool_audit_events") {
			classes = append(classes, fmt.Sprint(event["error_type"]))
		}
		if len(classes) != 3 || classes[0] != "tool_not_found" || classes[1] != "missing_required_parameters" || classes[2] == "<nil>" {
			t.Errorf("the errors are classed as %q", classes)
		}
	})

	//contract:shows envelope-21 runtime-25 runtime-26 runtime-104
	t.Run("circles", func(t *testing.T) {
		l.ask("circles", "go")
		if got := l.result("circles"); got["status"] != "stalled" || isTrue(got["completed"]) {
			t.Errorf("the result is %v", got)
		}
		if record := l.record("circles"); !strings.Contains(record, `"loop_stalled"`) {
			t.Errorf("the record is %s", record)
		}
		l.stopsEverywhere(t, "circles")
	})

	//contract:shows envelope-21 runtime-25 runtime-26 runtime-28 runtime-104
	t.Run("spends", func(t *testing.T) {
		l.ask("spends", "go")
		if got := l.result("spends"); got["status"] != "budget_exceeded" || got["budget"] != "tool_calls" || isTrue(got["completed"]) {
			t.Errorf("the result is %v", got)
		}
		if record := l.record("spends"); !strings.Contains(record, `"budget_exceeded"`) {
			t.Errorf("the record is %s", record)
		}
		l.stopsEverywhere(t, "spends")
	})

	//contract:shows runtime-20
	t.Run("reads", func(t *testing.T) {
		l.ask("reads", "go")
		if events := entries(l.result("reads"), "events"); len(events) != 1 || events[0]["type"] != "tool_result_truncated" {
			t.Errorf("the events are %v", events)
		}
	})

	//contract:shows runtime-25 runtime-26 runtime-27
	t.Run("taken", func(t *testing.T) {
		answered := l.askBeside("taken")
		await.Receive(t, taken.begun, "the first question to the model")
		thread := "/api/v1/threads/" + url.PathEscape(l.newest("taken").ThreadID) + "/takeover?agent=taken"
		l.call(http.MethodPut, thread, l.admin, nil, http.StatusOK)
		close(taken.gate)

		var got map[string]any
		await.Until(t, "the result of the run is kept", func() bool {
			_, _, content := l.Read(http.MethodGet, "/api/v1/turns/"+l.newest("taken").ID+"/result", l.admin, "")
			return strings.Contains(content, `"interrupted"`)
		})
		got = l.result("taken")
		interrupted, _ := got["interrupted"].(map[string]any)
		message, _ := interrupted["message"].(map[string]any)
		if got["status"] != "interrupted" || isTrue(got["completed"]) || interrupted["action"] != "cancel" || interrupted["source"] != "takeover" || message["role"] != "user" {
			t.Errorf("the result is %v", got)
		}
		if events := entries(got, "events"); len(events) != 1 || events[0]["type"] != "interrupt_received" {
			t.Errorf("the events are %v", events)
		}

		l.call(http.MethodDelete, thread, l.admin, nil, http.StatusOK)
		if reply := await.Receive(t, answered, "the answer"); reply["reply"] != "Done." {
			t.Errorf("handed back it answers %v", reply)
		}
		if results := l.questions("taken"); len(results) != 2 || len(results[1].heard()) != 1 {
			t.Errorf("the model was asked %d times", len(results))
		}
	})

	//contract:shows runtime-27
	t.Run("cancelled", func(t *testing.T) {
		answered := l.askBeside("cancelled")
		await.Receive(t, cancelled.begun, "the first question to the model")
		turn := l.newest("cancelled")
		l.post("/v1/runs/"+turn.ID+"/cancel", map[string]any{}, http.StatusOK)
		await.Receive(t, answered, "the end of the run")
		close(cancelled.gate)

		path := "/api/v1/turns/" + turn.ID + "/result"
		await.Until(t, "the end of the run is kept", func() bool {
			status, _, _ := l.Read(http.MethodGet, path, l.admin, "")
			return status == http.StatusOK
		})
		if got := l.call(http.MethodGet, path, l.admin, nil, http.StatusOK); got["status"] != "interrupted" || got["result"] != nil {
			t.Errorf("the result is %v", got)
		}
		if record := l.record("cancelled"); !strings.Contains(record, `"source":"cancel"`) {
			t.Errorf("the record is %s", record)
		}
	})

	//contract:shows envelope-21 runtime-25 runtime-26 runtime-27 runtime-104
	t.Run("hangs", func(t *testing.T) {
		defer close(over)
		l.ask("hangs", "go")
		got := l.result("hangs")
		interrupted, _ := got["interrupted"].(map[string]any)
		if got["status"] != "interrupted" || isTrue(got["completed"]) || interrupted["action"] != "cancel" || interrupted["type"] != "run_stopped" ||
			interrupted["reason"] != "deadline_exceeded" || interrupted["turn"] != 2.0 {
			t.Errorf("the result is %v", got)
		}
		if executed := entries(got, "tool_execution_results"); len(executed) != 1 {
			t.Errorf("the tools that ran are %v", executed)
		}
		if record := l.record("hangs"); !strings.Contains(record, `"interrupt_received"`) {
			t.Errorf("the record is %s", record)
		}
	})
}

// gate holds the first answer of a model back.
type gate struct{ begun, gate chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 1), make(chan struct{})} }

// script calls a tool once the gate is open, and is done afterwards.
func (g gate) script(r modelRequest) turn {
	if len(r.heard()) > 0 {
		return says("Done.")
	}
	g.begun <- struct{}{}
	<-g.gate
	return calling("desk__echo", `{"text":"a"}`)
}

// askBeside is ask while the test goes on.
func (l *looped) askBeside(agent string) <-chan map[string]any {
	answered := make(chan map[string]any, 1)
	go func() {
		var answer map[string]any
		_, _, content := l.Read(http.MethodPost, "/v1/chat", l.token, fmt.Sprintf(`{"agent":%q,"message":"go"}`, agent))
		_ = json.Unmarshal([]byte(content), &answer)
		answered <- answer
	}()
	return answered
}

// newest returns the newest turn of an agent.
func (l *looped) newest(agent string) exchange.TurnRecord {
	l.Helper()
	turns, err := l.Store().Turns(l.Context(), exchange.TurnFilter{Agent: agent, Limit: 1})
	if err != nil || len(turns) != 1 {
		l.Fatal(turns, err)
	}
	return turns[0]
}

// TestPolicyOfClientToolsAndMediator: an agent with client tools and a mediator lists both kinds of tools, those that programs execute and
// those of which its mediator may hand them calls, whichever setting is read last.
//
//contract:shows runtime-71
func TestPolicyOfClientToolsAndMediator(t *testing.T) {
	t.Parallel()
	const hooks = "[agents.llm.hooks]\nurl = \"http://127.0.0.1:9/\"\nsecret = \"0123456789abcdef0123456789abcdef\"\nmediator = true\n"
	const tools = "[[agents.client_tools]]\nname = \"look_up\"\ndescription = \"Looks up.\"\n"
	silent := func(modelRequest) turn { return says("Hello.") }
	l := newLooped(t, map[string]script{
		"both":      {model: silent, lines: hooks, more: tools},
		"tools":     {model: silent, more: tools},
		"mediating": {model: silent, lines: hooks},
	})
	for agent, want := range map[string][2]string{"both": {"client/look_up", "desk/echo"}, "tools": {"client/look_up", ""}, "mediating": {"", "desk/echo"}} {
		token, _, err := l.Operator().Tokens.CreateTools(t.Context(), "runtime-of-"+agent, agent)
		if err != nil {
			t.Fatal(err)
		}
		var own, mediated []string
		policy := l.call(http.MethodGet, "/v1/tools/"+agent+"/policy", token, nil, http.StatusOK)
		for _, one := range entries(policy, "tools") {
			if isTrue(one["mediated"]) {
				mediated = append(mediated, fmt.Sprint(one["id"]))
			} else {
				own = append(own, fmt.Sprint(one["id"]))
			}
		}
		if slices.Contains(own, "client/look_up") != (want[0] != "") || slices.Contains(mediated, "desk/echo") != (want[1] != "") {
			t.Errorf("the policy of %s lists %q and of its mediator %q, want %q", agent, own, mediated, want)
		}
	}
}
