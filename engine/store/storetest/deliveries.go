package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
)

var deliveryCases = map[string]func(*testing.T, *probe){
	"come back with their reply": deliveryRoundTrip,
	"moves":                      deliveryMoves,
	"lists":                      deliveryLists,
	"recipients who have none":   deliveryReturned,
	"destinations have limits":   deliveryLimits,
}

// deliver stores a delivery of a new turn's reply.
func (p *probe) deliver(key string) (delivery.Record, exchange.Reply) {
	p.Helper()
	turn := p.message(newID())
	p.insert(turn)
	reply := p.answer(turn, "note")
	record := delivery.Record{
		ID: newID(), TurnID: turn.ID, ReplyID: reply.ID, Agent: "echo", Channel: turn.Channel, NativeID: "note",
		Key: key, Address: "https://" + key + "/inbox", Data: json.RawMessage(`{"inbox":1}`), State: delivery.StatePending,
		CreatedAt: p.now, UpdatedAt: p.now,
	}

	p.tx(func(tx pipeline.Tx) error { return tx.InsertDelivery(p.Context(), record) })
	return record, reply
}

func deliveryRoundTrip(t *testing.T, p *probe) {
	record, reply := p.deliver("peer.example")
	got, carried, err := p.Delivery.Delivery(t.Context(), record.ID)
	p.ok(err)
	p.same(record, got)
	p.same(reply, carried)

	if string(got.Data) != string(record.Data) {
		t.Errorf("data %s", got.Data)
	}

	_, _, err = p.Delivery.Delivery(t.Context(), newID())
	p.missing(err)
}

func deliveryMoves(t *testing.T, p *probe) {
	record, _ := p.deliver("peer.example")
	move := func(want bool, m delivery.Move) {
		t.Helper()
		m.ID, m.At = record.ID, p.now
		p.ok(p.Delivery.InTx(t.Context(), func(tx delivery.Tx) error {
			moved, err := tx.MoveDelivery(t.Context(), m)
			if moved != want {
				t.Errorf("%+v: moved %v", m, moved)
			}
			return err
		}))
	}

	move(true, delivery.Move{From: []string{"pending", "retry"}, To: "sending", Attempt: 1})
	at := p.now.Add(time.Minute)
	move(true, delivery.Move{
		From: []string{"sending"}, To: "retry", Reason: "503\x00", Attempt: 1, NextAt: at,
		Event: exchange.Event{Kind: exchange.EventDeliveryRetry, Body: json.RawMessage(`{"reason":"503"}`)},
	})

	got, _, err := p.Delivery.Delivery(t.Context(), record.ID)
	p.ok(err)

	if got.State != "retry" || got.Attempt != 1 || got.Reason != "503\uFFFD" || !got.NextAt.Equal(at) {
		t.Errorf("delivery %+v", got)
	}

	move(false, delivery.Move{From: []string{"pending"}, To: "cancelled", Event: exchange.Event{Kind: exchange.EventDeliveryCanceled}})
	p.same([]string{"1 turn.accepted ", `2 delivery.retry {"reason":"503"}`}, p.timeline(record.TurnID))
}

func deliveryReturned(t *testing.T, p *probe) {
	record, _ := p.deliver("peer.example")
	for i, recipient := range []string{"ann@peer.example", "bob\x00@peer.example", "ann@peer.example"} {
		p.ok(p.Delivery.InTx(t.Context(), func(tx delivery.Tx) error {
			_, err := tx.MoveDelivery(t.Context(), delivery.Move{
				ID: record.ID, From: []string{"pending"}, To: "pending", At: p.now, Returned: map[string]string{recipient: fmt.Sprint("reason ", i)},
			})
			return err
		}))
	}

	got, _, err := p.Delivery.Delivery(t.Context(), record.ID)
	p.ok(err)
	p.same(map[string]string{"ann@peer.example": "reason 2", "bob\uFFFD@peer.example": "reason 1"}, got.Returned)
	listed, err := p.Records.Deliveries(t.Context(), delivery.Filter{TurnID: record.TurnID})
	p.ok(err)
	p.same(got.Returned, listed[0].Returned)
	p.same([]string{"1 turn.accepted "}, p.timeline(record.TurnID))
}

func deliveryLists(t *testing.T, p *probe) {
	var records []delivery.Record
	for i := range 4 {
		record, _ := p.deliver(fmt.Sprintf("host%d.example", i%2))
		records = append(records, record)
	}

	p.ok(p.Delivery.InTx(t.Context(), func(tx delivery.Tx) error {
		_, err := tx.MoveDelivery(t.Context(), delivery.Move{ID: records[1].ID, From: []string{"pending"}, To: "dead", At: p.now})
		return err
	}))

	check := func(filter delivery.Filter, want ...int) {
		t.Helper()
		listed, err := p.Records.Deliveries(t.Context(), filter)
		p.ok(err)
		got, expected := []string{}, []string{}
		for _, record := range listed {
			got = append(got, record.ID)
		}

		for _, i := range want {
			expected = append(expected, records[i].ID)
		}

		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", filter, diff)
		}
	}

	check(delivery.Filter{}, 3, 2, 1, 0)
	check(delivery.Filter{State: "dead"}, 1)
	check(delivery.Filter{Key: "host0.example"}, 2, 0)
	check(delivery.Filter{TurnID: records[3].TurnID}, 3)
	check(delivery.Filter{Before: records[2].ID, Limit: 1}, 1)
}

func deliveryLimits(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	reply := p.answer(turn, "")
	for _, key := range []string{strings.Repeat("a", 600), "a\x00b"} {
		err := p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
			return tx.InsertDelivery(t.Context(), delivery.Record{ID: newID(), TurnID: turn.ID, ReplyID: reply.ID, Key: key})
		})
		if !fault.Is(err, fault.Malformed) {
			t.Errorf("key of %d bytes: %v", len(key), err)
		}
	}
}
