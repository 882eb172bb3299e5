package envelope_test

import (
	"testing"

	"inbox/agents/runtime/envelope"
)

func BenchmarkNormalize(b *testing.B) {
	row := map[string]any{
		"role": "assistant", "content": "Executing", "metadata": map[string]any{
			"type": "tool_call", "tool_name": "wiki_upsert", "parameters": map[string]any{"title": "Example"}, "turn": 1,
		},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := envelope.Normalize(row); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNormalizeResult(b *testing.B) {
	var messages []any
	for range 40 {
		messages = append(messages, envelope.UserText("a question of some length", nil).Value())
	}
	result := map[string]any{"messages": messages, "completed": true, "turn_count": 3, "final_content": "done"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := envelope.NormalizeResult(result); err != nil {
			b.Fatal(err)
		}
	}
}
