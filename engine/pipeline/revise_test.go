package pipeline_test

import (
	"testing"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/fault"
)

// changeable is the word of an adapter whose answers can be changed.
type changeable struct{}

func (changeable) Revisable(exchange.Reply, string) error { return nil }
func (changeable) PostsOf(exchange.Reply) int             { return 1 }

func TestAnswerIsEditedAndTakenBack(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		receipt := e.receive(t, message("m1"))
		first := e.peer.next(t)
		e.waitState(t, receipt.TurnID, delivery.StateDelivered)
		if err := e.delivery.Edit(t.Context(), first.Reply.ID, "operator:test", "better", ""); err != nil {
			t.Fatal(err)
		}
		update := e.peer.next(t)
		if update.Action != exchange.ActionUpdate || update.Reply.Revision != 1 || update.Reply.Response.Parts[0].Content != "better" ||
			string(update.Destination.Data) != string(first.Destination.Data) {
			t.Errorf("update %+v", update)
		}
		if err := e.delivery.Delete(t.Context(), first.Reply.ID, "operator:test"); err != nil {
			t.Fatal(err)
		}
		if gone := e.peer.next(t); gone.Action != exchange.ActionDelete || len(gone.Reply.Response.Parts) != 0 {
			t.Errorf("deletion %+v", gone)
		}
		if turn, err := e.store.Turn(t.Context(), receipt.TurnID); err != nil || len(turn.Response.Parts) != 0 {
			t.Errorf("the turn still has the answer: %+v, %v", turn.Response, err)
		}
		if err := e.delivery.Delete(t.Context(), first.Reply.ID, "operator:test"); !fault.Is(err, fault.Conflict) {
			t.Errorf("taken back twice: %v", err)
		}
		if err := e.delivery.Edit(t.Context(), first.Reply.ID, "operator:test", "again", ""); !fault.Is(err, fault.Conflict) {
			t.Errorf("edited afterwards: %v", err)
		}
	})
}
