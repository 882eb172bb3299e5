package operator

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/await"
)

// TestOpenMessagesOfAnErasedPersonAreCancelled: as soon as the erasure is begun, before any message is looked for, and those of others are not.
func TestOpenMessagesOfAnErasedPersonAreCancelled(t *testing.T) {
	rows, toMemory, workToMemory, workToShop, _ := linkedPerson(t)
	for _, id := range []string{toMemory, workToMemory, workToShop} {
		err := rows.InTx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.MoveTurn(t.Context(), pipeline.Move{ID: id, From: []string{exchange.StateAnswered}, To: exchange.StateRunning, At: time.Now()})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	type cancelled struct{ turn, stage string }
	stopped := make(chan cancelled, 10)
	erasures := erasuresOf(rows)
	erasures.cancel = func(ctx context.Context, id, _ string) (exchange.TurnRecord, error) {
		open, err := rows.OpenErasures(ctx, "")
		if err != nil || len(open) != 1 {
			t.Errorf("%d erasures, %v", len(open), err)
			return exchange.TurnRecord{}, err
		}
		stopped <- cancelled{id, open[0].Receipt.Stage}
		return exchange.TurnRecord{}, nil
	}

	ctx, end := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- erasures.RunStops(ctx, begun, func(err error) { t.Error(err) }) }()
	names := store.PersonNames{Principals: []string{annMail}, Linked: []store.LinkedName{{Principal: annWork, Agent: "memory"}}}
	if _, err := rows.BeginErasure(t.Context(), names, nil, uuid.NewString()); err != nil {
		t.Fatal(err)
	}
	begun <- struct{}{}

	want := map[string]bool{toMemory: true, workToMemory: true}
	for range 2 {
		one := await.Receive(t, stopped, "an open message to be cancelled")
		if !want[one.turn] || one.stage != store.EraseFind {
			t.Errorf("cancelled %+v, want one of %v in stage %s", one, want, store.EraseFind)
		}
		delete(want, one.turn)
	}
	end()
	if err := await.Receive(t, ended, "the end of the work"); err != nil {
		t.Error(err)
	}
}
