package pipeline_test

import (
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// TestGivenUpTurnIsNewAgain: a turn that has ended keeps its end and its answer, and is the newest of its lists; one that
// works is not given up.
func TestGivenUpTurnIsNewAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := newWorking()
		e := start(t, url, agent.handle, soon)
		receipt := e.receive(t, message("m1"))
		claim := exchange.Claim{Namespace: "test", Key: receipt.TurnID, Value: []byte("given up")}
		if err := e.pipeline.GiveUp(t.Context(), receipt.TurnID, claim, "too early", time.Now()); !fault.Is(err, fault.Conflict) {
			t.Errorf("while it works: %v", err)
		}
		close(agent.done)
		before := e.settled(t, receipt.TurnID)
		at := before.UpdatedAt.Add(time.Hour).Truncate(time.Microsecond)
		if err := e.pipeline.GiveUp(t.Context(), receipt.TurnID, claim, "not wanted any more", at); err != nil {
			t.Fatal(err)
		}
		if kept, found, err := e.store.State().Get(t.Context(), claim.Namespace, claim.Key); !found || string(kept) != "given up" || err != nil {
			t.Errorf("the claim is %q (%v)", kept, err)
		}
		second := exchange.Claim{Namespace: "test", Key: receipt.TurnID, Value: []byte("goes on")}
		if err := e.pipeline.GiveUp(t.Context(), receipt.TurnID, second, "again", at.Add(time.Hour)); !fault.Is(err, fault.Conflict) {
			t.Errorf("a place that is taken: %v", err)
		}
		after, err := e.store.Turn(t.Context(), receipt.TurnID)
		if err != nil {
			t.Fatal(err)
		}
		if after.State != before.State || !after.UpdatedAt.Equal(at) || after.Response == nil || after.ReplyID != before.ReplyID {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
		listed, err := e.store.Turns(t.Context(), exchange.TurnFilter{Agent: after.Agent, UpdatedAfter: at.Add(-time.Minute), Limit: 10})
		if err != nil || len(listed) != 1 {
			t.Errorf("listed %d turns: %v", len(listed), err)
		}
		if err := e.pipeline.GiveUp(t.Context(), "missing", claim, "", at); !fault.Is(err, fault.NotFound) {
			t.Errorf("a missing turn: %v", err)
		}
	})
}
