package llm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/normalized"
)

// chatty is a model that says a sentence before each of its calls.
func chatty(steps int, text string) Provider {
	var turns [][]Delta
	for i := range steps {
		call := calls("find", fmt.Sprintf(`{"q":"%d"}`, i))
		call[0].ID = fmt.Sprintf("call_%d", i)
		turns = append(turns, append([]Delta{{Kind: DeltaText, Text: text}}, call...))
	}
	return scripted(append(turns, says("The answer is 42."))...)
}

func TestLongRunEndsInItsAnswer(t *testing.T) {
	for _, test := range []struct {
		steps, shown int
		text         string
	}{
		{31, 31, "Let me look."}, {32, 32, "Let me look."}, {40, 40, "Let me look."}, {56, 56, "Let me look."},
		{60, 56, "Let me look."}, {100, 56, "Let me look."}, {100, 56, ""}, {6, 6, strings.Repeat("x", 1<<20)},
	} {
		t.Run(fmt.Sprint(test.steps, len(test.text)), func(t *testing.T) {
			tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
			agent := newAgent(t, Options{Provider: chatty(test.steps, test.text), Tools: []Tools{tools}, MaxTurns: 120, ToolCalls: 120})
			response, _, err := fold(t.Context(), t, agent, question("chatty"))
			if err != nil {
				t.Fatal(err)
			}

			shown := 0
			for _, part := range response.Parts {
				if part.Kind == normalized.PartToolCall {
					shown++
				}
			}
			said := texts(response)
			if tools.count() != test.steps || shown != test.shown || !strings.HasSuffix(said, "The answer is 42.") {
				t.Errorf("%d calls, %d shown: %q", tools.count(), shown, said)
			}
			missing := test.steps - test.shown
			if missing > 0 != strings.Contains(said, fmt.Sprintf("(%d more tool calls are not shown.)", missing)) {
				t.Errorf("%d calls are missing: %q", missing, said)
			}
			if response.Metadata["tool_calls"] != fmt.Sprint(test.steps) {
				t.Errorf("metadata: %v", response.Metadata)
			}
		})
	}
}

// Results that are within the limit of a call each are over that of a document together.
func TestLargeResultsLeaveRoomForTheAnswer(t *testing.T) {
	limits := normalized.DefaultLimits()
	limits.Document = 1 << 20
	var sent []normalized.Delta
	a := &answer{limits: limits, meter: normalized.NewMeter(limits), yield: func(d normalized.Delta, _ error) bool {
		sent = append(sent, d)
		return true
	}}
	large := strings.Repeat("r", 60<<10)
	for i := range 56 {
		id := fmt.Sprint("c", i)
		a.begin(id, "find", map[string]any{"q": large})
		a.finish(id, map[string]any{"success": true, "result": large})
	}
	a.text("Done.")
	a.close(normalized.Response{Status: normalized.StatusCompleted}, "Done.")

	folded := normalized.NewFold(limits)
	for _, delta := range sent {
		if err := folded.Add(delta); err != nil {
			t.Fatal(err)
		}
	}
	response, err := folded.Response()
	if err != nil {
		t.Fatal(err)
	}
	if message := question("large").Message; normalized.ValidateResponse(response.Answering(message), message, limits) != nil {
		t.Error("the answer is over its limits")
	}
	if texts(response) != "Done." || !strings.Contains(string(response.Parts[55].Result), "truncated") {
		t.Errorf("%q", texts(response))
	}
}

// TestLargeTurnsOfTheModelAreCut: a model that writes without end, or calls with endless arguments, ends no run.
func TestLargeTurnsOfTheModelAreCut(t *testing.T) {
	t.Run("text", func(t *testing.T) {
		agent := newAgent(t, Options{Provider: scripted(says(strings.Repeat("x", 1<<20), strings.Repeat("ä", 1<<20)))})
		response, _, err := fold(t.Context(), t, agent, question("long"))
		said := texts(response)
		if err != nil || response.Left.Bytes != 2097408 || len(said) > 1<<20 || !strings.HasSuffix(said, "xx\n\n(2097408 more bytes are not shown.)") {
			t.Errorf("%d bytes end with %q, %v", len(said), said[max(0, len(said)-60):], err)
		}
	})
	t.Run("arguments", func(t *testing.T) {
		tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
		long := calls("find", `{"q":"`+strings.Repeat("x", 1<<20)+`"}`, "find", `{"q":"short"}`)
		var asked []Request
		agent := newAgent(t, Options{Provider: recording(&asked, long, says("Done.")), Tools: []Tools{tools}})
		response, _, err := fold(t.Context(), t, agent, question("arguments"))
		if err != nil || texts(response) != "Done." || tools.count() != 1 {
			t.Errorf("%q, %d calls, %v", texts(response), tools.count(), err)
		}
		if told := allOf(asked[len(asked)-1]); !strings.Contains(told, "over 1 MiB") {
			t.Errorf("the model is told %.500q", told)
		}
	})
	t.Run("calls", func(t *testing.T) {
		tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
		var many []string
		for i := range 200 {
			many = append(many, "find", fmt.Sprintf(`{"q":"%d"}`, i))
		}
		var asked []Request
		agent := newAgent(t, Options{Provider: recording(&asked, calls(many...), says("Done.")), Tools: []Tools{tools}, ToolCalls: 500})
		response, _, err := fold(t.Context(), t, agent, question("calls"))
		if err != nil || !strings.HasSuffix(texts(response), "Done.") || tools.count() != maxCalls {
			t.Errorf("%q, %d calls, %v", texts(response), tools.count(), err)
		}
		if told := allOf(asked[len(asked)-1]); !strings.Contains(told, "(72 more tool calls were not made: there are at most 128 at once.)") {
			t.Errorf("the model is told %.500q", told)
		}
	})
}

// TestOddCallsAndResultsDoNotFailARun: a model may write any name, and a tool may return any JSON.
func TestOddCallsAndResultsDoNotFailARun(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth) }
	deep, err := value.Decode([]byte(nested(50)), value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	fine := map[string]any{"success": true, "result": "found"}
	for name, test := range map[string]struct {
		call   []Delta
		result map[string]any
	}{
		"name over the limit":         {calls(strings.Repeat("x", 5000), `{}`), fine},
		"name with a control":         {calls("a\x00b", `{}`), fine},
		"name that is not UTF-8":      {calls("a\xffb", `{}`), fine},
		"arguments nested deep":       {calls("look", nested(50)), fine},
		"result nested deep":          {calls("look", `{}`), map[string]any{"success": true, "result": deep}},
		"citations nested deep":       {calls("look", `{}`), map[string]any{"success": true, "result": "found", "metadata": map[string]any{"citations": []any{map[string]any{"url": "https://x.example/", "more": deep}}}}},
		"error that is not UTF-8":     {calls("look", `{}`), map[string]any{"success": false, "error": "\xff\x00"}},
		"error of a zero-width space": {calls("look", `{}`), map[string]any{"success": false, "error": "\u200b"}},
	} {
		t.Run(name, func(t *testing.T) {
			tools := &toolbox{entries: []tool.Entry{declare("look", nil)}}
			tools.run = func(context.Context, tool.Call) (map[string]any, error) { return test.result, nil }
			agent := newAgent(t, Options{Provider: scripted(calls("look", `{"q":"first"}`), test.call, says("The end.")), Tools: []Tools{tools}})
			response, _, err := fold(t.Context(), t, agent, question("odd"))
			if err != nil || !strings.HasSuffix(texts(response), "The end.") {
				t.Errorf("%q, %v", texts(response), err)
			}
		})
	}
}
