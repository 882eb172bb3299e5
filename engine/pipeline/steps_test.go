package pipeline_test

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// kindsOf returns the timeline without what is not about the run.
func (e *engine) kindsOf(t *testing.T, turnID string) (kinds []string, events []exchange.Event) {
	t.Helper()
	events, err := e.store.Events(t.Context(), turnID, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		if !strings.HasPrefix(event.Kind, "delivery.") {
			kinds = append(kinds, event.Kind)
		}
	}
	return kinds, events
}

func TestStepsAreOnTheTimeline(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			turn.Did(exchange.EventModelCalled, exchange.ModelStep{Number: turn.Attempt, Input: 10, Cost: 0.25, Currency: "EUR"})
			if turn.Attempt == 1 {
				if err := turn.Memory.Save(ctx, []byte("note")); err != nil {
					return normalized.Failing(err)
				}
				turn.Did(exchange.EventToolCalled, exchange.ToolStep{Name: "look"})
				return normalized.Failing(fault.RetryIn(0, "later", nil))
			}
			turn.Did("broken", func() {})
			turn.Did("large", strings.Repeat("x", 10_000))
			return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("done")}})
		}, agents.Settings{Unverified: agents.UnverifiedAnswer})
		turn := e.settled(t, e.receive(t, message("m1")).TurnID)
		kinds, events := e.kindsOf(t, turn.ID)
		want := []string{
			"turn.accepted", "turn.running", "model.called", "tool.called", "turn.running", "turn.restarted", "model.called", "broken", "large", "turn.answered",
		}
		if !slices.Equal(kinds, want) {
			t.Fatalf("the timeline is %v; want %v", kinds, want)
		}
		for _, event := range events {
			if event.Kind == "broken" || event.Kind == "large" {
				if string(event.Body) != `{"left_out":true}` {
					t.Errorf("%s: %s", event.Kind, event.Body)
				}
			}
		}
		spent := exchange.SpentBy(events)
		if spent == nil || spent.ModelCalls != 2 || spent.ToolCalls != 1 || spent.Input != 20 || spent.Cost != 0.5 || spent.Currency != "EUR" {
			t.Errorf("spent %+v", spent)
		}
	})
}

// An agent that writes too much about itself is cut, and its answer goes out.
func TestStepsAreBounded(t *testing.T) {
	e := start(t, "sqlite", func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		for range 600 {
			turn.Did(exchange.EventToolCalled, exchange.ToolStep{Name: "look"})
		}
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("done")}})
	}, agents.Settings{Unverified: agents.UnverifiedAnswer})
	turn := e.settled(t, e.receive(t, message("m1")).TurnID)
	if turn.State != exchange.StateAnswered {
		t.Fatalf("the turn is %s (%s)", turn.State, turn.Reason)
	}
	_, events := e.kindsOf(t, turn.ID)
	if spent := exchange.SpentBy(events); spent.ToolCalls != 500 {
		t.Errorf("%d steps are on the timeline; want 500", spent.ToolCalls)
	}
	if exchange.SpentBy([]exchange.Event{{Kind: exchange.EventDelta, Body: json.RawMessage(`{}`)}}) != nil {
		t.Error("a turn without steps spent something")
	}
}
