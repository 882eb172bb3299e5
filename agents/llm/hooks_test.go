package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/hook"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// hookProgram is a program of the operator that answers questions with one function.
type hookProgram struct {
	mu     sync.Mutex
	asked  []hook.Question
	events []hook.Event
	raw    []string
	hook   *hook.Hook
}

func startHook(t *testing.T, answer func(question hook.Question) (status int, body string)) *hookProgram {
	t.Helper()
	return startHookWithin(t, 300*time.Millisecond, answer)
}

// startHookWithin starts a hook that has that long to answer.
func startHookWithin(t *testing.T, timeout time.Duration, answer func(question hook.Question) (status int, body string)) *hookProgram {
	t.Helper()
	p := &hookProgram{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var question hook.Question
		var events hook.Events
		if json.Unmarshal(body, &question) != nil || json.Unmarshal(body, &events) != nil {
			t.Errorf("the hook was sent %s", body)
		}
		p.mu.Lock()
		p.raw = append(p.raw, string(body))
		if question.Hook == hook.KindEvents {
			p.events = append(p.events, events.Events...)
		} else {
			p.asked = append(p.asked, question)
		}
		p.mu.Unlock()
		status, text := answer(question)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	made, err := hook.New(hook.Options{URL: server.URL, Secret: "s", Client: newClient(t), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	p.hook = made
	return p
}

func (p *hookProgram) questions() []hook.Question {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// steps collects the timeline of a turn.
func steps(turn *agents.Turn) func() string {
	var mu sync.Mutex
	var rows []string
	turn.Steps = func(kind string, body any) {
		mu.Lock()
		defer mu.Unlock()
		encoded, _ := json.Marshal(body)
		rows = append(rows, kind+" "+string(encoded))
	}
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(rows, "\n")
	}
}

//contract:shows runtime-47 runtime-48 runtime-49 runtime-50
func TestMediatorOverHTTP(t *testing.T) {
	for name, test := range map[string]struct {
		status  int
		answer  string
		proceed bool
		called  int
		model   string // what the model read
		rows    string
	}{
		"proceeds":           {200, `{"action":" Proceed "}`, false, 1, `{"echo":{"q":"x"}}`, ""},
		"rejects":            {200, `{"action":"reject","error":"Not on Sundays."}`, false, 0, "Not on Sundays.", `hook.decided {"hook":"tool_call","action":"reject","tool":"find"`},
		"replaces":           {200, `{"action":"replace_result","result":{"success":true,"result":{"from":"cache"}}}`, false, 0, `{"from":"cache"}`, `"action":"replace_result"`},
		"replaces plainly":   {200, `{"action":"replace_result","result":"seven"}`, false, 0, `seven`, `"action":"replace_result"`},
		"completes":          {200, `{"action":"replace_result","result":"seven","complete":true}`, false, 0, `seven`, `"purpose":"conclude"`},
		"replaces a waiting": {200, `{"action":"replace_result","result":{"success":true,"result":{"type":"approval_required"}}}`, false, 0, sayUnchecked, "hook.failed"},
		"is down":            {503, ``, false, 0, sayUnchecked, `hook.failed {"hook":"tool_call","action":"reject","tool":"find"`},
		"is down, open":      {503, ``, true, 1, `{"echo":{"q":"x"}}`, `hook.failed {"hook":"tool_call","action":"proceed","tool":"find"`},
		"says nothing":       {200, `{}`, false, 0, sayUnchecked, "its answer has no action"},
		"says nonsense":      {200, `{"action":"allow"}`, false, 0, sayUnchecked, "its answer has no action"},
		"no approvals here":  {200, `{"action":"require_approval"}`, false, 0, "The tool needs approval, and no one can give it here.", `"action":"require_approval"`},
		"nobody outside":     {200, `{"action":"pending"}`, false, 0, "nothing outside can execute it here", `"action":"pending"`},
	} {
		t.Run(name, func(t *testing.T) {
			program := startHook(t, func(hook.Question) (int, string) { return test.status, test.answer })
			tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
			read := ""
			model := modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
				next := calls("find", `{"q":"x"}`)
				for _, message := range request.Messages {
					for _, block := range message.Blocks {
						if block.Kind == BlockResult {
							next, read = says("done"), block.Text
						}
					}
				}
				for _, delta := range next {
					if !yield(delta) {
						return nil
					}
				}
				return nil
			})
			agent := newAgent(t, Options{Provider: model, Tools: []Tools{tools}, Hooks: Hooks{Hook: program.hook, Mediator: true, Proceed: test.proceed}})
			turn := question("hooked")
			turn.Message.RecipientCapabilities.AgentChain = &normalized.AgentChain{Hop: 1, MaxHops: 3}
			rows := steps(&turn)
			response, _, err := fold(t.Context(), t, agent, turn)
			if err != nil || texts(response) != "done" {
				t.Fatalf("%s %v", texts(response), err)
			}
			if tools.count() != test.called || !strings.Contains(strings.Trim(read, `"`), test.model) {
				t.Errorf("%d calls, the model read %s", tools.count(), read)
			}
			if !strings.Contains(rows(), test.rows) {
				t.Errorf("the timeline is\n%s", rows())
			}
			first := program.questions()[0]
			if first.Run.ID != turn.ID || first.Run.Agent != turn.Agent || first.Principal.Address != turn.Message.Sender.Address.String() ||
				first.Principal.AgentChain == nil || first.Turn != 1 || first.Call.ToolName != "find" || fmt.Sprint(first.Call.Parameters) != "map[q:x]" ||
				fmt.Sprint(first.Call.PreparedToolCall["parameters"]) != "map[q:x]" || first.Call.ToolDeclaration["name"] != "find" || len(first.Call.Messages) == 0 {
				t.Errorf("the mediator saw %+v %+v", first, first.Call)
			}
		})
	}
}

// TestMediatorSeesTheRun: before each call the program gets the transcript with the call, the call as the model brought it and as it would be
// executed, its declaration, the context of the turn, and the results of earlier calls: of the run, and of this turn of the model.
//
//contract:shows runtime-46
func TestMediatorSeesTheRun(t *testing.T) {
	program := startHook(t, func(hook.Question) (int, string) { return 200, `{"action":"proceed"}` })

	tools := &toolbox{entries: []tool.Entry{declare("find", map[string]any{
		"parameters":         map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}, "pin": map[string]any{"type": "string", "x-sensitive": true}}},
		"parameter_defaults": map[string]any{"limit": 5},
	})}, run: func(_ context.Context, call tool.Call) (map[string]any, error) {
		if call.Parameters["q"] == "bad" {
			return map[string]any{"success": false, "error": "no"}, nil
		}
		return map[string]any{"success": true, "result": map[string]any{"found": call.Parameters["q"], "text": strings.Repeat("x", 20<<10)}}, nil
	}}
	turns := [][]Delta{calls("find", `{"q":"a","pin":"1234"}`, "find", `{"q":"bad"}`)}
	for i := range 14 {
		turns = append(turns, calls("find", fmt.Sprintf(`{"q":"c%d"}`, i)))
	}
	agent := newAgent(t, Options{
		Provider: scripted(append(turns, says("done"))...), Tools: []Tools{tools}, MaxTurns: 20, Hooks: Hooks{Hook: program.hook, Mediator: true},
	})
	turn := question("seen")
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}

	asked := program.questions()
	if len(asked) != 16 {
		t.Fatalf("%d questions", len(asked))
	}
	first, second, third, last := asked[0].Call, asked[1].Call, asked[2].Call, asked[15].Call

	if len(first.PriorToolResults) != 0 || len(first.PriorMediatedResults) != 0 || first.PriorToolResults == nil || first.PriorMediatedResults == nil {
		t.Errorf("before the first call: %+v", first)
	}
	raw := value.Assoc(first.RawToolCall["parameters"])
	if first.RawToolCall["name"] != "find" || first.RawToolCall["id"] != first.ToolCallID || raw["pin"] != "1234" {
		t.Errorf("raw call %v", first.RawToolCall)
	}
	prepared := value.Assoc(first.PreparedToolCall["parameters"])
	if !value.Equal(prepared["limit"], 5) || raw["limit"] != nil {
		t.Errorf("prepared %v, raw %v", first.PreparedToolCall, first.RawToolCall)
	}
	context := first.TurnContext
	if !value.Equal(context["turn"], 1) || context["run_id"] != turn.ID || context["thread_id"] != turn.Message.ThreadID ||
		value.Assoc(context["caller_context"])["address"] != turn.Message.Sender.Address.String() || !value.Equal(third.TurnContext["turn"], 2) {
		t.Errorf("context %v", context)
	}
	said := first.Messages[len(first.Messages)-1]
	if said.Type != "tool_call" || said.Payload["tool_name"] != "find" || said.Metadata["tool_call_id"] != first.ToolCallID {
		t.Errorf("the last message is %+v", said)
	}

	found := func(outcome hook.Outcome) any { return value.Assoc(outcome.Result["result"])["found"] }
	if prior := second.PriorToolResults; len(prior) != 1 || found(prior[0]) != "a" || !prior[0].Success || prior[0].TurnCount != 1 ||
		prior[0].ToolCallID != first.ToolCallID || prior[0].Parameters["pin"] != "[redacted]" || prior[0].Parameters["q"] != "a" {
		t.Errorf("before the second call: %+v", prior)
	}
	if mediated := second.PriorMediatedResults; len(mediated) != 1 || found(mediated[0]) != "a" {
		t.Errorf("before the second call, of its turn: %+v", mediated)
	}
	if prior := third.PriorToolResults; len(prior) != 2 || prior[1].Success || prior[1].Result["error"] != "no" || len(third.PriorMediatedResults) != 0 {
		t.Errorf("before the third call: %+v, of its turn %+v", prior, third.PriorMediatedResults)
	}

	left := 0
	for i, outcome := range last.PriorToolResults {
		if outcome.LeftOut {
			left++
		}
		if outcome.LeftOut != (outcome.Result == nil) || outcome.LeftOut && i > 0 && !last.PriorToolResults[i-1].LeftOut {
			t.Errorf("result %d: left out %t, although an older one is sent", i, outcome.LeftOut)
		}
	}
	if len(last.PriorToolResults) != 15 || left == 0 || left > 5 || found(last.PriorToolResults[14]) != "c12" {
		t.Errorf("%d results, %d without body", len(last.PriorToolResults), left)
	}
}

// TestMediatorSeesEveryQuestionToAgents: the questions that are asked together with the first one, which the loop does not reach, do not pass it by.
func TestMediatorSeesEveryQuestionToAgents(t *testing.T) {
	program := startHook(t, func(question hook.Question) (int, string) {
		if question.Call.Parameters["agent"] == "@b@x.example" {
			return 200, `{"action":"reject"}`
		}
		return 200, `{"action":"proceed"}`
	})
	asking, err := Asking([]string{"@a@x.example", "@b@x.example"})
	if err != nil {
		t.Fatal(err)
	}
	model := scripted(calls(AskTool, `{"agent":"@a@x.example","message":"one"}`, AskTool, `{"agent":"@b@x.example","message":"two"}`))
	agent := newAgent(t, Options{Provider: model, Tools: []Tools{asking}, Hooks: Hooks{Hook: program.hook, Mediator: true}})
	turn := question("asks")
	turn.Memory = &memory{}
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || len(response.Dispatch) != 1 || len(program.questions()) != 2 {
		t.Errorf("%d questions are asked after %d checks: %v", len(response.Dispatch), len(program.questions()), err)
	}
}

//contract:shows runtime-36
func TestCompletionOverHTTP(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
	t.Run("stops after a tool", func(t *testing.T) {
		program := startHook(t, func(hook.Question) (int, string) { return 200, `{"complete":true}` })
		model := scripted(calls("find", `{}`), says("that is all"))
		turn := question("stops")
		rows := steps(&turn)
		response, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: model, Tools: []Tools{tools}, Hooks: Hooks{Hook: program.hook, Completion: true}}), turn)
		if err != nil || texts(response) != "that is all" || response.Metadata["model_calls"] != "2" {
			t.Errorf("%s %v %v", texts(response), response.Metadata, err)
		}
		if asked := program.questions(); len(asked) != 1 || asked[0].Hook != hook.KindResult || asked[0].Result.ToolCallID != "call_find0" || !succeeded(asked[0].Result.Result) {
			t.Errorf("the policy was asked %+v", asked)
		}
		if !strings.Contains(rows(), `hook.decided {"hook":"tool_result","action":"complete","tool":"find"`) || !strings.Contains(rows(), `"purpose":"conclude"`) {
			t.Errorf("the timeline is\n%s", rows())
		}
	})
	for name, sources := range map[string][]Tools{"with tools": {tools}, "without tools": nil} {
		t.Run("goes on with words, "+name, func(t *testing.T) {
			program := startHook(t, func(question hook.Question) (int, string) {
				if question.Answer.Content == "too short" {
					return 200, `{"complete":false,"message":" Say more. "}`
				}
				return 200, `{"complete":true}`
			})
			var read []string
			model := modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
				blocks := request.Messages[len(request.Messages)-1].Blocks
				read = append(read, blocks[len(blocks)-1].Text)
				next := says("too short")
				if len(read) > 1 {
					next = says("long enough")
				}
				for _, delta := range next {
					if !yield(delta) {
						return nil
					}
				}
				return nil
			})
			response, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: model, Tools: sources, Hooks: Hooks{Hook: program.hook, Completion: true}}), question("more"))
			if err != nil || texts(response) != "long enough" || len(read) != 2 || read[1] != "Say more." {
				t.Errorf("%s %v, the model read %q", texts(response), err, read)
			}
			if asked := program.questions(); len(asked) != 2 || asked[0].ID == asked[1].ID {
				t.Errorf("the policy was asked %+v", asked)
			}
		})
	}
	t.Run("fails", func(t *testing.T) {
		program := startHook(t, func(hook.Question) (int, string) { return 500, "" })
		options := Options{Provider: scripted(says("hello")), Hooks: Hooks{Hook: program.hook, Completion: true}}
		_, _, err := fold(t.Context(), t, newAgent(t, options), question("closed"))
		if got := fault.Of(err); err == nil || got.Permanent || got.Public != sayHookDown {
			t.Errorf("a policy that is down: %v", err)
		}
		options.Hooks.Proceed = true
		if response, _, err := fold(t.Context(), t, newAgent(t, options), question("open")); err != nil || texts(response) != "hello" {
			t.Errorf("a policy that is down and may be: %s %v", texts(response), err)
		}
	})
}

// desk decides about every call once it has a result.
type desk struct{ result map[string]any }

func (d *desk) Ask(context.Context, agents.Turn, loop.Proposal) (map[string]any, error) {
	return envelope.NewApprovalRequired("May it?", map[string]any{"action_id": "a1"}, nil).Value(), nil
}

func (d *desk) Settle(context.Context, agents.Turn, Waiting) (map[string]any, error) {
	return d.result, nil
}

// TestCompletionJudgesWhatARunWaitedFor: a result of a program outside comes while no loop runs.
func TestCompletionJudgesWhatARunWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		answers []string
		want    string
		fails   int
	}{
		"complete":       {[]string{`{"complete":true}`}, "answered (No more tools", 0},
		"words":          {[]string{`{"complete":false,"message":"Be brief."}`, `{"complete":true}`}, "answered Be brief.", 0},
		"down for a run": {[]string{``, ``, ``, `{"complete":false,"message":"Be brief."}`, `{"complete":true}`}, "answered Be brief.", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			asked := 0
			program := startHook(t, func(hook.Question) (int, string) {
				mu.Lock()
				defer mu.Unlock()
				next := test.answers[min(asked, len(test.answers)-1)]
				asked++
				return map[bool]int{true: 503, false: 200}[next == ""], next
			})
			approvals := &desk{}
			tools := &toolbox{entries: []tool.Entry{declare("find", map[string]any{"action_policy": "preview"})}}
			model := modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
				blocks, next := request.Messages[len(request.Messages)-1].Blocks, calls("find", `{}`)
				for _, block := range blocks {
					if block.Kind == BlockResult {
						next = says("answered " + blocks[len(blocks)-1].Text)
					}
				}
				for _, delta := range next {
					if !yield(delta) {
						return nil
					}
				}
				return nil
			})
			agent := newAgent(t, Options{Provider: model, Tools: []Tools{tools}, Approvals: approvals, Hooks: Hooks{Hook: program.hook, Completion: true}})
			turn := question("settled")
			turn.Memory = &memory{}
			if response, _, err := fold(t.Context(), t, agent, turn); err != nil || response.Status != normalized.StatusInputRequired {
				t.Fatal(response, err)
			}
			approvals.result = map[string]any{"success": true, "result": "found", "runtime": map[string]any{"completion_signal": "progress"}}
			for range test.fails {
				if _, _, err := fold(t.Context(), t, agent, turn); err == nil {
					t.Fatal("a policy without answer let the run go on")
				}
				approvals.result = nil // the call is made once
			}
			response, _, err := fold(t.Context(), t, agent, turn)
			if err != nil || !strings.HasPrefix(texts(response), test.want) {
				t.Errorf("%s %v", texts(response), err)
			}
			if first := program.questions()[0]; first.Hook != hook.KindResult || first.Result.ToolCallID != "call_find0" ||
				fmt.Sprint(first.Result.Result["runtime"]) != "map[completion_signal:progress]" {
				t.Errorf("the policy was asked %+v %+v", first, first.Result)
			}
		})
	}
}

func TestObserverHearsEachEventOnce(t *testing.T) {
	program := startHook(t, func(hook.Question) (int, string) { return 200, "" })
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}, run: func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": strings.Repeat("x", 40<<10)}, nil
	}}
	store := &memory{}
	turn := question("observed")
	turn.Memory = store
	rows := steps(&turn)
	agent := newAgent(t, Options{Provider: scripted(calls("find", `{"q":"x","token":"t0p"}`), says("done")), Tools: []Tools{tools}, Hooks: Hooks{Hook: program.hook, Observer: true}})
	if response, _, err := fold(t.Context(), t, agent, turn); err != nil || texts(response) != "done" {
		t.Fatal(texts(response), err)
	}
	var heard []string
	for i, event := range program.events {
		if event.Sequence != int64(i+1) || event.ID != fmt.Sprintf("%s:%d", turn.ID, i+1) {
			t.Errorf("event %d is %d, %s", i+1, event.Sequence, event.ID)
		}
		heard = append(heard, event.Type)
	}
	if got := strings.Join(heard, " "); got != "turn_started tool_call tool_result_truncated tool_result turn_started completed" {
		t.Errorf("the observer heard %s", got)
	}
	if all := strings.Join(program.raw, ""); strings.Contains(all, "t0p") || strings.Contains(all, "original_result") {
		t.Errorf("the observer was sent %s", all)
	}
	if strings.Contains(rows(), exchange.EventHookFailed) {
		t.Errorf("the timeline is\n%s", rows())
	}
}

// TestObserverThatIsDownHoldsNothingUp: the answer stands, the timeline says what was not delivered, and the next run of the turn delivers it.
//
//contract:shows runtime-105
func TestObserverThatIsDownHoldsNothingUp(t *testing.T) {
	down := true
	program := startHookWithin(t, 2*time.Second, func(hook.Question) (int, string) { return map[bool]int{true: 500, false: 204}[down], "" })
	turn := question("unheard")
	turn.Memory = &memory{}
	rows := steps(&turn)
	agent := newAgent(t, Options{Provider: scripted(says("done")), Hooks: Hooks{Hook: program.hook, Observer: true}})
	if response, _, err := fold(t.Context(), t, agent, turn); err != nil || texts(response) != "done" {
		t.Fatal(texts(response), err)
	}
	if !strings.Contains(rows(), `hook.failed {"hook":"events","error":"the hook answered 500 Internal Server Error","undelivered":2}`) {
		t.Errorf("the timeline is\n%s", rows())
	}
	down, program.events = false, nil
	turn.Attempt = 2
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	heard := ""
	for _, event := range program.events {
		heard += fmt.Sprintf("%d:%d:%s ", event.Attempt, event.Sequence, event.Type)
	}
	if heard != "1:1:turn_started 1:2:completed 2:3:turn_started 2:4:completed " {
		t.Errorf("the observer heard %s", heard)
	}
}

func TestHooksSeeNoSecrets(t *testing.T) {
	program := startHook(t, func(hook.Question) (int, string) { return 200, `{"action":"proceed"}` })
	turn := question("private")
	turn.Message.Sender.Identities = []identity.Evidence{{
		Subject: "ann@x.example", Issuer: "x.example", Method: "email-dmarc", Assurance: "user",
		Claims: json.RawMessage(`{"secret":"claim"}`), Proof: identity.Proof{Value: "proof-of-ann"},
	}}
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
	agent := newAgent(t, Options{
		Provider: scripted(calls("find", `{}`), says("done")), Tools: []Tools{tools}, Hooks: Hooks{Hook: program.hook, Mediator: true, Observer: true},
	})
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(program.raw, "")
	if strings.Contains(all, "claim") || strings.Contains(all, "proof-of-ann") || !strings.Contains(all, `{"subject":"ann@x.example","issuer":"x.example","method":"email-dmarc","assurance":"user"}`) {
		t.Errorf("the hook was sent %s", all)
	}
}
