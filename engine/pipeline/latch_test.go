package pipeline_test

import (
	"context"
	"encoding/json"
	"iter"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// TestSecondOfOneClaimRunsNothing: of two messages that claim the same place, or begin the same run, one is stored with its job. That holds
// after a crash, too: the claim is stored with the message or not at all.
func TestSecondOfOneClaimRunsNothing(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var runs atomic.Int32
		agent := agents.Func(func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
			runs.Add(1)
			return normalized.Whole(texts("done"))
		})
		e := start(t, url, agent, soon)

		first, second := message("m1"), message("m2")
		first.Claim = &exchange.Claim{Namespace: "test", Key: "next step", Value: []byte("first")}
		second.Claim = &exchange.Claim{Namespace: "test", Key: "next step", Value: []byte("second")}
		stored := e.receive(t, first)
		if receipt := e.receive(t, second); string(receipt.Claimed) != "first" || receipt.New || receipt.TurnID != "" {
			t.Errorf("the second claim: %+v", receipt)
		}
		e.settled(t, stored.TurnID)

		first, second = message("m3"), message("m4")
		first.Task = &exchange.TaskRun{ID: "run", Owner: "token:1", Started: json.RawMessage(`{}`)}
		second.Task = &exchange.TaskRun{ID: "run", Owner: "token:1", Started: json.RawMessage(`{}`)}
		stored = e.receive(t, first)
		if receipt := e.receive(t, second); !receipt.TaskTaken || receipt.New || receipt.TurnID != "" {
			t.Errorf("the second begin of a run: %+v", receipt)
		}
		e.settled(t, stored.TurnID)

		turns, err := e.store.Turns(t.Context(), exchange.TurnFilter{Agent: "echo", Limit: 10})
		if err != nil || len(turns) != 2 || runs.Load() != 2 {
			t.Errorf("%d messages are stored and %d runs were made, %v", len(turns), runs.Load(), err)
		}
	})
}
