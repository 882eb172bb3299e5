package pipeline_test

import (
	"context"
	"iter"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// An agent that fails once finds its note in the next run.
func TestMemoryOutlivesARun(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		remembered := make(chan string, 8)
		e := start(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			note, err := turn.Memory.Load(ctx)
			if err != nil {
				return normalized.Failing(err)
			}
			remembered <- string(note)
			if len(note) == 0 {
				if err := turn.Memory.Save(ctx, []byte("step one is done")); err != nil {
					return normalized.Failing(err)
				}
				return normalized.Failing(fault.RetryIn(0, "the model is busy", nil))
			}
			if err := turn.Memory.Save(ctx, make([]byte, agents.MaxMemory+1)); !fault.Is(err, fault.TooLarge) {
				return normalized.Failing(err)
			}
			return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("done")}})
		}, agents.Settings{Unverified: agents.UnverifiedAnswer})
		turn := e.settled(t, e.receive(t, message("m1")).TurnID)
		if turn.State != exchange.StateAnswered {
			t.Fatalf("the turn is %s: %s", turn.State, turn.Reason)
		}
		first, second := await.Receive(t, remembered, "the first run"), await.Receive(t, remembered, "the second run")
		if first != "" || second != "step one is done" {
			t.Errorf("the runs remembered %q and %q", first, second)
		}
	})
}
