package llm

import (
	"fmt"
	"strings"
	"testing"

	"inbox/agents/runtime/tool"
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
	a := &answer{limits: limits, room: newMeter(limits), yield: func(d normalized.Delta, _ error) bool {
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
