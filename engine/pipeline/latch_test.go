package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/queue"
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

// TestNoticeToTheOperatorIsStoredOnce: the job of a notice runs again after its node died, under the lease that is over and under a new one.
func TestNoticeToTheOperatorIsStoredOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, newWorking().handle, soon)
		leased := func(id string) queue.Job {
			err := e.store.InTx(t.Context(), func(tx *store.Tx) error {
				return tx.EnqueueLeased(t.Context(), queue.NewJob{ID: id, Kind: "of the test", Payload: "{}"}, "a node", time.Hour)
			})
			if err != nil {
				t.Fatal(err)
			}
			return queue.Job{ID: id, Lease: queue.Lease{JobID: id, Fence: 1}}
		}
		notice := pipeline.Notice{ID: "0197f3a0-0000-7000-8000-000000000001", Agent: "echo", To: "@ana@peer.test", Subject: "s", Text: "the disk is full"}
		opening := exchange.Opening{Channel: normalized.ViaEmail, ReceivedVia: normalized.ViaEmail, Route: json.RawMessage(`{}`)}

		first, second := leased("0197f3a0-0000-7000-8000-00000000000a"), leased("0197f3a0-0000-7000-8000-00000000000b")
		if err := e.pipeline.Notify(t.Context(), first, notice, opening); !errors.Is(err, queue.ErrSettled) {
			t.Fatal(err)
		}
		if err := e.pipeline.Notify(t.Context(), first, notice, opening); err == nil || errors.Is(err, queue.ErrSettled) {
			t.Errorf("under a lease that is over: %v", err)
		}
		if err := e.pipeline.Notify(t.Context(), second, notice, opening); !errors.Is(err, queue.ErrSettled) {
			t.Errorf("under another lease: %v", err)
		}

		e.peer.next(t)
		turns, err := e.store.Turns(t.Context(), exchange.TurnFilter{Agent: "echo", Limit: 10})
		if err != nil || len(turns) != 1 || e.peer.count() != 1 {
			t.Errorf("%d notices are stored and %d left, %v", len(turns), e.peer.count(), err)
		}
	})
}
