package pipeline_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// lookForLost is what a node does once a minute: twice, because a row is queued again only if it was seen before.
func (e *engine) lookForLost(t *testing.T, want int) {
	t.Helper()
	for _, want := range []int{0, want} {
		if queued, err := e.store.LookForLost(t.Context()); err != nil || queued != want {
			t.Fatalf("%d rows were queued, want %d, %v", queued, want, err)
		}
	}
}

// TestMessageWhoseJobIsGoneIsAnsweredOnce: the job of an accepted message is removed and nothing else knows.
func TestMessageWhoseJobIsGoneIsAnsweredOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var runs atomic.Int64
		begun, goOn := make(chan string, 10), make(chan struct{})
		e := start(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			runs.Add(1)
			begun <- turn.ID
			<-goOn
			return repeats(ctx, turn)
		}, patientAgent)

		first := e.receive(t, from("ana", "1", "talk"))
		await.Receive(t, begun, "the first run")
		second := e.receive(t, from("ana", "2", "talk"))
		if err := e.store.CancelJob(t.Context(), second.TurnID); err != nil {
			t.Fatal(err)
		}

		close(goOn)
		e.ended(t, first.TurnID)
		if turn := e.turn(t, second.TurnID); turn.State != exchange.StateAccepted {
			t.Fatalf("without its job the message is %s", turn.State)
		}

		e.lookForLost(t, 1)
		if turn := e.ended(t, second.TurnID); turn.State != exchange.StateAnswered {
			t.Errorf("the message is %s", turn.State)
		}
		for _, want := range []string{"hello 1", "hello 2"} {
			if got := said(e.peer.next(t)); got != want {
				t.Errorf("delivered %q, want %q", got, want)
			}
		}
		e.lookForLost(t, 0)
		if ran, sent := runs.Load(), e.peer.count(); ran != 2 || sent != 2 {
			t.Errorf("%d runs and %d answers to two messages", ran, sent)
		}
	})
}

// TestDeliveryWhoseJobIsGoneIsMadeOnce: it waits behind an earlier one of its thread, and its job is removed.
func TestDeliveryWhoseJobIsGoneIsMadeOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		_, second, release := e.behind(t)
		if err := e.store.CancelJob(t.Context(), second.ID); err != nil {
			t.Fatal(err)
		}
		release()
		e.peer.next(t)

		e.lookForLost(t, 1)
		e.peer.next(t)
		e.waitState(t, second.TurnID, delivery.StateDelivered)
		e.lookForLost(t, 0)
		if sent := e.peer.count(); sent != 2 {
			t.Errorf("%d deliveries of two answers", sent)
		}
	})
}
