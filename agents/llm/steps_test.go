package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/runtime/tool"
	"inbox/exchange"
	"inbox/internal/fault"
)

// timed keeps the steps of a turn as the timeline would, without times.
func timed(turn *agents.Turn) *[]string {
	var steps []string
	turn.Steps = func(kind string, body any) {
		switch step := body.(type) {
		case exchange.ModelStep:
			step.Millis = 0
			body = step
		case exchange.ToolStep:
			step.Millis = 0
			body = step
		}
		text, err := json.Marshal(body)
		steps = append(steps, fmt.Sprintf("%s %s %v", kind, text, err))
	}
	return &steps
}

func TestEachStepIsOnTheTimeline(t *testing.T) {
	tools := &toolbox{
		entries: []tool.Entry{declare("find", nil), declare("fail", nil)},
		run: func(_ context.Context, call tool.Call) (map[string]any, error) {
			if call.Name == "fail" {
				return nil, errors.New("out of order")
			}
			return map[string]any{"success": true, "result": []any{"a", "b"}}, nil
		},
	}
	agent := newAgent(t, Options{
		Provider: scripted(calls("find", `{"q":"secret words","api_key":"k"}`, "fail", "{}", "find", "[]"), says("done")),
		Tools:    []Tools{tools}, Price: Price{Input: 1, Output: 100, Currency: "EUR"},
	})
	turn := question("steps")
	steps := timed(&turn)
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`model.called {"n":1,"model":"test-model","ms":0,"prompt_tokens":20,"completion_tokens":7,"cost":0.00072,"currency":"EUR","stop":"tool_calls","tool_calls":3} <nil>`,
		`tool.called {"tool":"find","tool_call_id":"call_find0","status":"succeeded","ms":0,"arguments":{"keys":["api_key","q"],"count":2,"redacted":true},"result":{"type":"array","count":2}} <nil>`,
		`tool.called {"tool":"fail","tool_call_id":"call_fail2","status":"failed","ms":0,"arguments":{"keys":[],"count":0,"redacted":true},"error_type":"executor_exception"} <nil>`,
		`tool.called {"tool":"find","tool_call_id":"call_find4","status":"rejected","ms":0,"arguments":{"keys":[],"count":0,"redacted":true},"error_type":"unreadable_arguments"} <nil>`,
		`model.called {"n":2,"model":"test-model","ms":0,"prompt_tokens":10,"completion_tokens":5,"cost":0.00051,"currency":"EUR","stop":"end"} <nil>`,
	}
	if got := strings.Join(*steps, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the timeline is\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if response.Metadata["cost"] != "0.001230" {
		t.Errorf("the turn cost %s", response.Metadata["cost"])
	}
}

func TestFailedModelCallIsOnTheTimeline(t *testing.T) {
	broken := modelFunc(func(_ context.Context, _ Request, _ func(Delta) bool) error {
		return fault.GiveUp(sayRefused, errors.New("no such model"))
	})
	turn := question("broken")
	steps := timed(&turn)
	if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: broken}), turn); err == nil {
		t.Fatal("no failure")
	}
	if len(*steps) != 1 || !strings.Contains((*steps)[0], "no such model") {
		t.Errorf("the timeline is %v", *steps)
	}
}

func TestWaitIsOnTheTimeline(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("find", map[string]any{"action_policy": "preview"})}}
	agent := newAgent(t, Options{
		Provider: scripted(calls("find", `{"q":"x"}`), says("done")), Tools: []Tools{tools}, Approvals: ByDemand{Tools: []Tools{tools}},
	})
	turn := question("waits")
	turn.Memory = &memory{}
	steps := timed(&turn)
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	if last := (*steps)[len(*steps)-1]; last != `run.waits {"for":"approval_required","tool":"find","tool_call_id":"call_find0"} <nil>` {
		t.Errorf("the last step is %s", last)
	}
}
