package pipeline_test

import (
	"errors"
	"testing"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
)

// waitState follows the turn until its only delivery is in the state.
func (e *engine) waitState(t *testing.T, turnID, kind string) (record delivery.Record) {
	t.Helper()
	await.Until(t, "the delivery is "+kind, func() bool {
		records, err := e.store.Deliveries(t.Context(), delivery.Filter{TurnID: turnID, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(records) != 1 {
			return false
		}
		record = records[0]
		return record.State == kind
	})
	return record
}

func TestDeliveryIsRepeatedUnderTheSameID(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		var ids []string
		e.peer.refuse = func(d exchange.Delivery) error {
			ids = append(ids, d.NativeID)
			if d.Attempt == 1 {
				return errors.New("451 come again")
			}
			return nil
		}
		receipt := e.receive(t, message("m1"))
		d := e.peer.next(t)
		record := e.waitState(t, receipt.TurnID, delivery.StateDelivered)
		if d.Attempt != 2 || len(ids) != 2 || ids[0] != ids[1] || record.Reason != "250 kept" || record.Attempt != 2 {
			t.Fatalf("attempt %d, ids %v, record %+v", d.Attempt, ids, record)
		}
	})
}

func TestDeadDeliveryIsRetriedByTheOperator(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		broken := true
		e.peer.refuse = func(exchange.Delivery) error {
			if broken {
				return fault.GiveUp("550 no such user", nil)
			}
			return nil
		}
		receipt := e.receive(t, message("m1"))
		dead := e.waitState(t, receipt.TurnID, delivery.StateDead)
		if dead.Reason != "550 no such user" {
			t.Fatalf("reason %q", dead.Reason)
		}
		e.peer.mu.Lock()
		broken = false
		e.peer.mu.Unlock()
		if err := e.delivery.Again(t.Context(), dead.ID); err != nil {
			t.Fatal(err)
		}
		if d := e.peer.next(t); d.NativeID != dead.NativeID {
			t.Fatalf("the repeat has another id: %s, %s", d.NativeID, dead.NativeID)
		}
		e.waitState(t, receipt.TurnID, delivery.StateDelivered)
		if err := e.delivery.Again(t.Context(), dead.ID); !fault.Is(err, fault.Conflict) {
			t.Fatalf("retry of a delivered one: %v", err)
		}
	})
}

func TestUsedUpScheduleIsADeadLetter(t *testing.T) {
	e := start(t, "sqlite", repeats, agents.Settings{})
	e.peer.refuse = func(exchange.Delivery) error { return errors.New("452 full") }
	receipt := e.receive(t, message("m1"))
	if dead := e.waitState(t, receipt.TurnID, delivery.StateDead); dead.Attempt != 3 || dead.Reason != "452 full" {
		t.Fatalf("%+v", dead)
	}
}
