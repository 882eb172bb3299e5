package loop_test

import (
	"context"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

const benchTurns = 100

// BenchmarkTurn measures what the loop costs for one turn with one tool call, without a model: b.N runs of 100 turns
// each, all guards on, reported per turn.
func BenchmarkTurn(b *testing.B) {
	runner := loop.RunnerFunc(func(_ context.Context, _ []envelope.Envelope, turn map[string]any) (any, error) {
		if turn["turn"] == benchTurns {
			return map[string]any{"content": "Done", "tool_calls": []any{}}, nil
		}
		return map[string]any{
			"content": "Let me look",
			"tool_calls": []any{map[string]any{
				"name": "wiki/read", "parameters": map[string]any{"title": "Home", "page": turn["turn"]},
			}},
			"usage": map[string]any{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
		}, nil
	})
	declared, err := value.Decode([]byte(`[{"name": "wiki/read", "description": "reads", "parameters": {"type": "object",
		"properties": {"title": {"type": "string"}, "page": {"type": "integer"}}, "required": ["title"]}}]`), value.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	tools, _ := tool.Declare(tool.Entries(declared))
	executor := tool.ExecutorFunc(func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": map[string]any{"text": "a page of the wiki"}}, nil
	})
	b.ReportAllocs()
	for b.Loop() {
		_, err := loop.Run(b.Context(), []any{map[string]any{"role": "user", "content": "Hi"}}, runner, loop.Options{
			MaxTurns: benchTurns, Tools: tools, Executors: tool.Executors{Default: executor},
			Budgets:      []*loop.Budget{loop.NewBudget(loop.BudgetToolCalls, 1000, 0), loop.NewBudget(loop.BudgetWallClock, 60, 0)},
			SpinDetector: loop.NewConsecutiveSpin(0), FailureTracker: loop.NewConsecutiveFailures(0),
			Truncator: loop.NewByteTruncator(0), Observer: loop.ObserverFunc(func(string, map[string]any) {}),
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/benchTurns, "µs/turn")
}
