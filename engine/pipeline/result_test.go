package pipeline_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

func conversationResult(status, padding string) []byte {
	return fmt.Appendf(nil, `{"run_outcome":{"status":%q},"final_content":%q}`, status, padding)
}

// Each run has the result that it gave last, written with the note or the end; a larger one is in the blob store, and what cannot be kept
// leaves its row.
func TestResultsOfRunsAreKept(t *testing.T) {
	documents := map[int][]byte{
		2: conversationResult("failed", "short"), 3: conversationResult("failed", strings.Repeat("x", 100<<10)), 4: []byte("no JSON"),
		5: make([]byte, agents.MaxResult+1), 6: conversationResult("completed", "the end"),
	}
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if turn.Attempt == 1 {
				return normalized.Failing(fault.RetryIn(0, "later", nil))
			}
			turn.KeepResult(conversationResult("incomplete", "replaced"))
			turn.KeepResult(documents[turn.Attempt])
			if turn.Attempt == 2 {
				if err := turn.Memory.Save(ctx, []byte("note")); err != nil {
					return normalized.Failing(err)
				}
			}
			if turn.Attempt < 6 {
				return normalized.Failing(fault.RetryIn(0, "later", nil))
			}
			return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("done")}})
		}, agents.Settings{Unverified: agents.UnverifiedAnswer, Retry: agents.RetryPolicy{Schedule: slices.Repeat([]time.Duration{time.Millisecond}, 9)}})

		turn := e.settled(t, e.receive(t, message("m1")).TurnID)
		found, err := e.store.RunResults(t.Context(), turn.ID)
		if err != nil || len(found) != 5 {
			t.Fatalf("%s (%s): %+v, %v", turn.State, turn.Reason, found, err)
		}
		for i, one := range found {
			given := documents[i+2]
			if one.Run != i+2 || one.Bytes != len(given) || (one.LeftOut != "") != (one.Run == 4 || one.Run == 5) || (one.Digest != "") != (one.Run == 3) {
				t.Errorf("%+v", one)
			}
			kept, err := e.store.RunResult(t.Context(), turn.ID, one.Run)
			if inline := one.Run == 2 || one.Run == 6; err != nil || inline && string(kept.Body) != string(given) || !inline && kept.Body != nil {
				t.Errorf("run %d: %s, %v", one.Run, kept.Body, err)
			}
		}
		if found[0].Status != "failed" || found[4].Status != "completed" {
			t.Errorf("%+v", found)
		}
	})
}

// A result that no note and no end followed is that of a lost run.
func TestPiecesOfAnAnswerKeepNoResult(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		streamed, gate := make(chan struct{}), make(chan struct{})
		e := start(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			return func(yield func(normalized.Delta, error) bool) {
				turn.KeepResult(conversationResult("completed", ""))
				begun := normalized.Markdown("")
				for _, delta := range []normalized.Delta{{Kind: normalized.DeltaPartBegin, Part: &begun}, {Kind: normalized.DeltaText, Text: "piece"}} {
					if !yield(delta, nil) {
						return
					}
				}
				close(streamed)
				hold(ctx, gate)
				if yield(normalized.Delta{Kind: normalized.DeltaPartEnd}, nil) {
					yield(normalized.Delta{Kind: normalized.DeltaStatus, Response: &normalized.Response{}}, nil)
				}
			}
		}, agents.Settings{Unverified: agents.UnverifiedAnswer})

		id := e.receive(t, message("m1")).TurnID
		<-streamed
		for event, err := range e.pipeline.Follow(t.Context(), id, 0) { // the piece is written by then
			if err != nil {
				t.Fatal(err)
			}
			if event.Kind == exchange.EventDelta {
				break
			}
		}
		if found, err := e.store.RunResults(t.Context(), id); err != nil || len(found) != 0 {
			t.Errorf("%+v, %v", found, err)
		}
		close(gate)
		e.settled(t, id)
		if found, err := e.store.RunResults(t.Context(), id); err != nil || len(found) != 1 {
			t.Errorf("%+v, %v", found, err)
		}
	})
}
