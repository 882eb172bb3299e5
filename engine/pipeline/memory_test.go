package pipeline_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/pipeline"
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

// eightDays is a store in which all documents were written eight days ago.
type eightDays struct{ pipeline.Store }

func (s eightDays) InTx(ctx context.Context, work func(pipeline.Tx) error) error {
	return s.Store.InTx(ctx, func(tx pipeline.Tx) error { return work(eightDaysTx{tx}) })
}

type eightDaysTx struct{ pipeline.Tx }

const earlier = -8 * 24 * time.Hour

func (t eightDaysTx) PutDocument(ctx context.Context, namespace, key string, value []byte, expires time.Time) error {
	return t.Tx.PutDocument(ctx, namespace, key, value, expires.Add(earlier))
}

func (t eightDaysTx) KeepDocument(ctx context.Context, namespace, key string, until time.Time) error {
	return t.Tx.KeepDocument(ctx, namespace, key, until.Add(earlier))
}

// TestMemoryOutlivesALongWait: what a run noted before its turn waited for an approval is there when the agent goes on
// after eight days. Otherwise it would do again what it did before.
func TestMemoryOutlivesALongWait(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		remembered := make(chan string, 8)
		agent := &script{answer: func(turn agents.Turn) normalized.Response {
			note, err := turn.Memory.Load(t.Context())
			if err != nil {
				t.Error(err)
			}
			remembered <- string(note)
			if turn.Message.PolicyResolution == nil {
				if err := turn.Memory.Save(t.Context(), []byte("step one is done")); err != nil {
					t.Error(err)
				}
			}
			return refunds(turn)
		}}
		agent.name = "echo"
		agent.settings.Approvers = append(agent.settings.Approvers, owner)
		e := composed(t, url, func(o *pipeline.Options) { o.Store, o.Approvers = eightDays{o.Store}, &doors{} }, agent)

		turn := e.waits(t, message("1"), "approval (refund)")
		if first := await.Receive(t, remembered, "the first run"); first != "" {
			t.Errorf("the first run remembers %q", first)
		}
		e.told(t)
		e.answered(t, decision("owner", "o1", "approve "+e.open(t).Code))
		e.ends(t, turn.ID, exchange.StateAnswered)
		if second := await.Receive(t, remembered, "the second run"); second != "step one is done" {
			t.Errorf("the second run remembers %q", second)
		}
	})
}
