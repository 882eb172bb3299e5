package pipeline_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// TestWordsBeforeASilenceAreHeard: an agent that says something and then thinks for long is heard before it goes on.
func TestWordsBeforeASilenceAreHeard(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		goOn := make(chan struct{})
		agent := func(ctx context.Context, _ agents.Turn) iter.Seq2[normalized.Delta, error] {
			return func(yield func(normalized.Delta, error) bool) {
				if !yield(normalized.Delta{Kind: normalized.DeltaText, Text: "Let me think. "}, nil) {
					return
				}
				select {
				case <-goOn:
				case <-ctx.Done():
					return
				}
				yield(normalized.Delta{Kind: normalized.DeltaText, Text: "It is seven."}, nil)
			}
		}
		e := start(t, url, agent, agents.Settings{})
		receipt := e.receive(t, message("m1"))
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		for event, err := range e.pipeline.Follow(ctx, receipt.TurnID, 0) {
			if err != nil {
				t.Fatal("while it was waited for the end of the turn: ", err)
			}
			if event.Kind == exchange.EventDelta && strings.Contains(string(event.Body), "Let me think.") {
				close(goOn) // nothing else lets the agent end
			}
		}
		if said := e.said(t); said != "Let me think. It is seven." {
			t.Errorf("said %q", said)
		}
	})
}
