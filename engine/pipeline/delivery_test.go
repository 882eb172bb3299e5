package pipeline_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
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

// behind answers two messages of one thread, of which the first stays on its way until the returned function is called. The delivery of
// the second waits behind it.
func (e *engine) behind(t *testing.T) (first, second delivery.Record, release func()) {
	t.Helper()
	gate, begun := make(chan struct{}), make(chan struct{})
	var blocked bool
	e.peer.set(func(exchange.Delivery) error {
		if !blocked {
			blocked = true
			close(begun)
			hold(t.Context(), gate)
		}
		return nil
	})
	one := e.receive(t, from("ana", "m1", "thread"))
	await.Receive(t, begun, "the first attempt")
	two := e.receive(t, from("ana", "m2", "thread"))
	e.settled(t, two.TurnID)
	return e.deliveryOf(t, one.TurnID), e.deliveryOf(t, two.TurnID), sync.OnceFunc(func() { close(gate) })
}

func (e *engine) deliveryOf(t *testing.T, turnID string) delivery.Record {
	t.Helper()
	records, err := e.store.Deliveries(t.Context(), delivery.Filter{TurnID: turnID, Limit: 10})
	if err != nil || len(records) != 1 {
		t.Fatalf("deliveries of turn %s: %+v, %v", turnID, records, err)
	}
	return records[0]
}

func TestNoAttemptBeginsOfACancelledDelivery(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		first, second, release := e.behind(t)
		defer release()

		if err := e.delivery.Cancel(t.Context(), first.ID); !fault.Is(err, fault.Conflict) {
			t.Errorf("an attempt under way is cancelled: %v", err)
		}
		if err := e.delivery.Cancel(t.Context(), second.ID); err != nil {
			t.Fatal(err)
		}
		e.receive(t, from("ana", "m3", "thread"))
		release()

		if a, b := e.peer.next(t), e.peer.next(t); a.ID != first.ID || b.ID == second.ID {
			t.Errorf("%s and %s arrived, want the first (%s) and the third", a.ID, b.ID, first.ID)
		}
		if after := e.deliveryOf(t, second.TurnID); after.State != delivery.StateCancelled {
			t.Errorf("the second delivery is %s", after.State)
		}

		if err := e.delivery.Again(t.Context(), second.ID); err != nil {
			t.Fatal(err)
		}
		if again := e.peer.next(t); again.ID != second.ID {
			t.Errorf("%s arrived, want the second", again.ID)
		}
		e.waitState(t, second.TurnID, delivery.StateDelivered)
	})
}

func TestAnswerThatIsEditedBeforeItsAttemptLeavesInItsNewWords(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		_, second, release := e.behind(t)
		defer release()

		if err := e.delivery.Edit(t.Context(), second.ReplyID, "operator:test", "better", ""); err != nil {
			t.Fatal(err)
		}
		release()

		e.peer.next(t)
		if d := e.peer.next(t); d.ID != second.ID || d.Reply.Response.Parts[0].Content != "better" {
			t.Errorf("delivery %s says %+v", d.ID, d.Reply.Response.Parts)
		}
	})
}

func TestAnswerThatIsWithdrawnBeforeItsAttemptStays(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		first, second, release := e.behind(t)
		defer release()

		if err := e.delivery.Delete(t.Context(), second.ReplyID, "operator:test"); err != nil {
			t.Fatal(err)
		}
		e.waitState(t, second.TurnID, delivery.StateCancelled)
		e.receive(t, from("ana", "m3", "thread"))
		release()

		if a, b := e.peer.next(t), e.peer.next(t); a.ID != first.ID || b.Reply.ID == second.ReplyID {
			t.Errorf("%s and %s arrived, want the first (%s) and the third", a.ID, b.ID, first.ID)
		}
	})
}

func TestRetriedDeliveryKnowsWhoNeedsNoFurtherAttempt(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		e.peer.done = []string{"a@peer.test", "b@peer.test"}
		e.peer.set(func(exchange.Delivery) error { return fault.GiveUp("taken for 2 of 3; c@peer.test: 550 no", nil) })
		receipt := e.receive(t, message("m1"))
		dead := e.waitState(t, receipt.TurnID, delivery.StateDead)

		e.peer.set(nil)
		if err := e.delivery.Again(t.Context(), dead.ID); err != nil {
			t.Fatal(err)
		}
		d := e.peer.next(t)
		if diff := cmp.Diff(e.peer.done, d.Done); diff != "" || !d.Repeated {
			t.Errorf("repeated %v, done %s", d.Repeated, diff)
		}
	})
}

// TestOneAskersAnswersStopNoOneElse: an inbox that many share fails at the answers to one of them, perhaps because of what they quote.
func TestOneAskersAnswersStopNoOneElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startOutage(t, "sqlite", &backEnd{}, agents.Settings{}, nil)
		mail := r.peers[normalized.ViaEmail]
		mail.address = "the inbox of all"
		mail.set(func(d exchange.Delivery) error {
			if strings.Contains(d.Reply.Message.Sender.Principal(), "mallory") {
				return fault.RetryIn(0, "500", exchange.WithReach(errors.New("500"), exchange.ReachSession))
			}
			return nil
		})
		for i := range 10 {
			r.receive(t, by(normalized.ViaEmail, "mallory", fmt.Sprint("m", i), fmt.Sprint("m", i)))
		}
		pass(time.Minute)
		r.receive(t, by(normalized.ViaEmail, "ana", "a", "a"))
		pass(time.Second)
		if mail.count() != 1 {
			t.Errorf("%d answers arrived, want that to ana", mail.count())
		}
		r.stop()
	})
}
