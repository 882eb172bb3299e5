package llm

import (
	"strings"
	"testing"

	"inbox/agents/runtime/tool"
	"inbox/internal/fault"
)

func TestBudgetsStopByName(t *testing.T) {
	call := calls("find", `{}`, "notes__add", `{"q":"1"}`)
	for name, test := range map[string]struct {
		options Options
		outcome string // of the answer
		row     string
		text    string
		models  string
	}{
		"tokens":         {Options{Budgets: Budgets{Tokens: 50}}, "budget_exceeded tokens", `budget_exceeded {"budget":"tokens","ceiling":50,"current":54,"dimension":"tokens"}`, sayStopped("tokens"), "2"},
		"cost":           {Options{Budgets: Budgets{Cost: 0.0001}, Price: Price{Input: 3, Output: 10}}, "budget_exceeded cost", `"budget":"cost","ceiling":100,"current":130`, sayStopped("cost"), "1"},
		"turns":          {Options{Budgets: Budgets{Turns: 2}}, "budget_exceeded turns", `"budget":"turns","ceiling":2,"current":2`, "done", "3"},
		"one tool":       {Options{Budgets: Budgets{Tools: map[string]int{"notes/add": 2}}}, "budget_exceeded tool_calls_notes__add", `"budget":"tool_calls_notes__add","ceiling":2,"current":2`, "done", "3"},
		"all tools":      {Options{ToolCalls: 3}, "budget_exceeded tool_calls", `"budget":"tool_calls","ceiling":3,"current":3`, "done", "3"},
		"none that trip": {Options{Budgets: Budgets{Turns: 3, Tokens: 1000, Cost: 1, Tools: map[string]int{"find": 9, "other": 1}}}, " ", "", "done", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			tools := &toolbox{entries: []tool.Entry{declare("find", nil), declare("notes/add", nil)}}
			test.options.Provider, test.options.Tools = scripted(call, call, says("done")), []Tools{tools}
			turn := question("budget")
			rows := steps(&turn)
			response, _, err := fold(t.Context(), t, newAgent(t, test.options), turn)
			if err != nil || !strings.Contains(texts(response), test.text) || response.Metadata["model_calls"] != test.models {
				t.Errorf("%s %v %v", texts(response), response.Metadata, err)
			}
			if outcome := response.Metadata["outcome"] + " " + response.Metadata["budget"]; outcome != test.outcome || !strings.Contains(rows(), test.row) {
				t.Errorf("%s\n%s", outcome, rows())
			}
		})
	}
}

// TestBudgetsCountEarlierRuns: a message that waited in between has no new budget.
func TestBudgetsCountEarlierRuns(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
	store := &memory{}
	turn := question("twice")
	turn.Memory = store
	options := Options{Tools: []Tools{tools}, Budgets: Budgets{Tokens: 6000, Tools: map[string]int{"find": 3}}}
	options.Provider = scripted(calls("find", `{}`), calls("find", `{"q":"2"}`), []Delta{{Kind: DeltaToolCall, Index: 7}})
	if _, _, err := fold(t.Context(), t, newAgent(t, options), turn); err == nil {
		t.Fatal("a broken answer did not end the run")
	}
	rows := steps(&turn)
	options.Provider = scripted(calls("find", `{"q":"3"}`))
	response, _, err := fold(t.Context(), t, newAgent(t, options), turn)
	if err != nil || tools.count() != 3 || !strings.Contains(rows(), `"budget":"tool_calls_find","ceiling":3,"current":3`) {
		t.Errorf("%d calls, %v, %s\n%s", tools.count(), err, texts(response), rows())
	}
}

func TestBudgetsAreChecked(t *testing.T) {
	for _, budgets := range []Budgets{{Turns: -1}, {Tokens: -1}, {Cost: -1}, {Tools: map[string]int{"a": 0}}} {
		if _, err := New(Options{Provider: scripted(says("x")), Model: "m", Budgets: budgets}); !fault.Is(err, fault.Malformed) {
			t.Errorf("%+v: %v", budgets, err)
		}
	}
}
