package loop_test

import (
	"context"
	"fmt"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// oneTool is a model that asks for one tool and then answers. A real program calls a model here.
type oneTool struct{}

func (oneTool) ProviderTurn(_ context.Context, request loop.ProviderRequest) (any, error) {
	if last := request.Messages[len(request.Messages)-1]; last.Type == envelope.TypeToolResult {
		return map[string]any{"content": "It is " + last.Text()}, nil
	}
	return map[string]any{"tool_calls": []any{map[string]any{"id": "1", "name": "clock/now"}}}, nil
}

func ExampleRun() {
	tools, _ := tool.Declare(tool.Entries([]any{map[string]any{
		"name": "clock/now", "description": "Tells the time.",
	}}))
	clock := tool.ExecutorFunc(func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": "noon"}, nil
	})
	result, err := loop.Run(context.Background(), []any{map[string]any{"role": "user", "content": "What time is it?"}}, nil,
		loop.Options{
			MaxTurns: 5, Provider: oneTool{}, Tools: tools, Executors: tool.Executors{Default: clock},
			Budgets: []*loop.Budget{loop.NewBudget(loop.BudgetToolCalls, 10, 0)}, SpinDetector: loop.NewConsecutiveSpin(0),
			Observer: loop.ObserverFunc(func(name string, _ map[string]any) { fmt.Println(name) }),
		})
	if err != nil {
		panic(err)
	}
	fmt.Println(result["final_content"], value.Assoc(result["run_outcome"])["status"])
	// Output:
	// turn_started
	// tool_call
	// tool_result
	// turn_started
	// completed
	// It is "noon" completed
}
