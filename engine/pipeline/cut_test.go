package pipeline_test

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// cuts returns what the timeline of a turn says about its answer that was cut.
func (e *engine) cuts(t *testing.T, turnID string) (list []normalized.Left) {
	t.Helper()
	_, events := e.kindsOf(t, turnID)
	for _, event := range events {
		if event.Kind != exchange.EventAnswerCut {
			continue
		}
		var left normalized.Left
		if err := json.Unmarshal(event.Body, &left); err != nil {
			t.Fatal(err)
		}
		list = append(list, left)
	}
	return list
}

// TestCutAnswersAreOnTheTimeline: the reader sees a line, and the operator sees the same on the timeline and once in the log, whether the
// answer came whole or grew.
func TestCutAnswersAreOnTheTimeline(t *testing.T) {
	text := strings.Repeat("x", 1<<20+7)
	for name, test := range map[string]struct {
		deltas iter.Seq2[normalized.Delta, error]
		want   []normalized.Left
	}{
		"whole": {normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text(text)}}), []normalized.Left{{Bytes: 7}}},
		"grown": {func(yield func(normalized.Delta, error) bool) {
			_ = yield(normalized.Delta{Kind: normalized.DeltaText, Text: text}, nil) && yield(normalized.Delta{Kind: normalized.DeltaText, Text: "more"}, nil)
		}, []normalized.Left{{Bytes: 11}}},
		"with room": {normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("short")}}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var lines logLines
			e := startSeen(t, "sqlite", func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] { return test.deltas },
				agents.Settings{Unverified: agents.UnverifiedAnswer}, slog.New(slog.NewJSONHandler(&lines, nil)), nil)
			turn := e.settled(t, e.receive(t, message("1")).TurnID)
			if got := e.cuts(t, turn.ID); !slices.Equal(got, test.want) {
				t.Errorf("the timeline says %+v, want %+v", got, test.want)
			}
			steps := lines.steps(t, 3+len(test.want)) // accepted, run, answered
			if got := slices.DeleteFunc(slices.Clone(steps), func(step string) bool { return !strings.HasPrefix(step, "answer cut") }); len(got) != len(test.want) {
				t.Errorf("the log has %q", steps)
			}
		})
	}
}
