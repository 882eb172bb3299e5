package storetest

import (
	"testing"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

var ackCases = map[string]func(*testing.T, *probe){
	"once, and no answer":            oneAck,
	"only while nothing was said":    ackStates,
	"cancelled with the job":         ackCancelled,
	"cancelled on the wire":          ackOnTheWire,
	"delivered ones stay":            ackDelivered,
	"not listed among the replies":   ackNotListed,
	"two at once are one":            acksAtOnce,
	"cancelling nothing is no event": cancelNoAck,
}

// acknowledge stores an acknowledgement with one delivery and its job.
func (p *probe) acknowledge(turn exchange.TurnRecord) (delivery.Record, bool) {
	p.Helper()
	reply := p.reply(turn)
	reply.Notice = exchange.NoticeAck
	record := delivery.Record{
		ID: newID(), TurnID: turn.ID, ReplyID: reply.ID, Agent: "echo", Channel: turn.Channel, NativeID: "ack " + reply.ID,
		Key: "peer.example", Address: "alice@peer.example", State: delivery.StatePending, CreatedAt: p.now, UpdatedAt: p.now,
	}

	var inserted bool
	p.tx(func(tx pipeline.Tx) (err error) {
		if inserted, err = tx.InsertAck(p.Context(), reply, record.NativeID); err != nil || !inserted {
			return err
		}
		if err := tx.InsertDelivery(p.Context(), record); err != nil {
			return err
		}
		return tx.Enqueue(p.Context(), queue.NewJob{ID: record.ID, Kind: delivery.JobKind, Partition: "peer", Payload: record.ID})
	})

	return record, inserted
}

func (p *probe) cancelAck(turn exchange.TurnRecord) {
	p.Helper()
	p.tx(func(tx pipeline.Tx) error { return tx.CancelAck(p.Context(), turn.ID, p.now) })
}

func (p *probe) deliveryState(id string) string {
	p.Helper()
	record, _, err := p.Delivery.Delivery(p.Context(), id)
	p.ok(err)
	return record.State
}

func (p *probe) moveTurn(turn exchange.TurnRecord, to string) {
	p.Helper()
	p.tx(func(tx pipeline.Tx) error {
		_, err := tx.MoveTurn(p.Context(), pipeline.Move{ID: turn.ID, From: []string{exchange.StateAccepted}, To: to, At: p.now})
		return err
	})
}

func (p *probe) claimDeliveries() []queue.Job {
	p.Helper()
	jobs, err := queuetest.Claim(p.Context(), p.Queue, "node", delivery.JobKind, 10, time.Hour)
	p.ok(err)
	return jobs
}

func oneAck(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	record, inserted := p.acknowledge(turn)
	if !inserted {
		t.Fatal("the acknowledgement was not stored")
	}

	if _, again := p.acknowledge(turn); again {
		t.Error("a second acknowledgement was stored")
	}

	stored := p.turn(turn.ID)
	if stored.ReplyID != "" || stored.Response != nil || stored.State != exchange.StateAccepted {
		t.Errorf("the acknowledgement became the answer: %+v", stored)
	}

	_, carried, err := p.Delivery.Delivery(t.Context(), record.ID)
	p.ok(err)

	if carried.Notice != exchange.NoticeAck {
		t.Errorf("notice %d", carried.Notice)
	}

	history, err := p.Pipeline.ThreadExcerpt(t.Context(), pipeline.ThreadQuery{Agent: "echo", ThreadID: turn.ThreadID, Principals: []string{alice}, Before: newID(), Tail: 10})
	if err != nil || history.Total != 1 {
		t.Errorf("history of %d, %v; want the question alone", history.Total, err)
	}

	answer := p.answer(turn, "note 1")
	if got := p.turn(turn.ID).ReplyID; got != answer.ID {
		t.Errorf("reply %s, want the answer", got)
	}

	entry, found, err := p.continued("echo", record.NativeID)
	if err != nil || !found || entry.TurnID != turn.ID {
		t.Errorf("under its own id: %+v, %v, %v", entry, found, err)
	}

	p.same([]string{"1 turn.accepted ", "2 acknowledged "}, p.timeline(turn.ID))
}

func ackStates(t *testing.T, p *probe) {
	for _, state := range []string{
		exchange.StateWaiting, exchange.StateAnswered, exchange.StateRefused, exchange.StateFailed, exchange.StateSilent,
		exchange.StateHeld, exchange.StateCancelled,
	} {
		turn := p.message(state)
		p.insert(turn)
		p.moveTurn(turn, state)
		if _, inserted := p.acknowledge(turn); inserted {
			t.Errorf("a turn that is %s was acknowledged", state)
		}
	}

	running, told := p.message("running"), p.message("told")
	p.insert(running, told)
	p.moveTurn(running, exchange.StateRunning)

	if _, inserted := p.acknowledge(running); !inserted {
		t.Error("a running turn was not acknowledged")
	}

	p.answer(told, "demand")
	if _, inserted := p.acknowledge(told); inserted {
		t.Error("a turn whose demand was met was acknowledged")
	}
}

func ackCancelled(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	record, _ := p.acknowledge(turn)
	next := queue.NewJob{ID: newID(), Kind: delivery.JobKind, Partition: "peer", Payload: "answer"}
	p.tx(func(tx pipeline.Tx) error {
		if err := tx.CancelAck(t.Context(), turn.ID, p.now); err != nil {
			return err
		}
		return tx.Enqueue(t.Context(), next)
	})

	if state := p.deliveryState(record.ID); state != delivery.StateCancelled {
		t.Errorf("the delivery is %s", state)
	}
	if jobs := p.claimDeliveries(); len(jobs) != 1 || jobs[0].ID != next.ID {
		t.Errorf("jobs %+v; want the answer at once", jobs)
	}

	p.same([]string{
		"1 turn.accepted ", "2 acknowledged ",
		`3 delivery.cancelled {"destination":"alice@peer.example","reason":"something newer about the message came first"}`,
	}, p.timeline(turn.ID))
}

// ackOnTheWire: the job of an attempt under way stays, so that nothing of the thread overtakes it.
func ackOnTheWire(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	record, _ := p.acknowledge(turn)
	claimed := p.claimDeliveries()
	if len(claimed) != 1 || claimed[0].Payload != record.ID {
		t.Fatalf("jobs %+v", claimed)
	}

	p.cancelAck(turn)
	next := queue.NewJob{ID: newID(), Kind: delivery.JobKind, Partition: "peer", Payload: "answer"}
	p.tx(func(tx pipeline.Tx) error { return tx.Enqueue(t.Context(), next) })

	if state := p.deliveryState(record.ID); state != delivery.StateCancelled {
		t.Errorf("the delivery is %s", state)
	}
	if jobs := p.claimDeliveries(); len(jobs) != 0 {
		t.Errorf("jobs %+v overtake the attempt", jobs)
	}

	p.tx(func(tx pipeline.Tx) error {
		return tx.SettleJob(t.Context(), claimed[0].Lease, queue.Outcome{Kind: queue.Done})
	})

	if jobs := p.claimDeliveries(); len(jobs) != 1 || jobs[0].ID != next.ID {
		t.Errorf("jobs %+v; want the answer", jobs)
	}
}

func ackDelivered(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	record, _ := p.acknowledge(turn)
	p.ok(p.Delivery.InTx(t.Context(), func(tx delivery.Tx) error {
		_, err := tx.MoveDelivery(t.Context(), delivery.Move{ID: record.ID, From: []string{delivery.StatePending}, To: delivery.StateDelivered, At: p.now})
		return err
	}))

	p.cancelAck(turn)
	if state := p.deliveryState(record.ID); state != delivery.StateDelivered {
		t.Errorf("the delivery is %s", state)
	}
}

func ackNotListed(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	p.acknowledge(turn)
	if replies, err := p.Records.Replies(t.Context(), "echo", "", 10); err != nil || len(replies) != 0 {
		t.Errorf("replies %+v, %v", replies, err)
	}
	if count, err := p.Records.LocalPosts(t.Context()); err != nil || count != 0 {
		t.Errorf("local posts %d, %v", count, err)
	}
}

func acksAtOnce(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	const nodes = 8
	stored := make(chan bool, nodes)
	for i := range nodes {
		reply := p.reply(turn)
		go func() {
			var inserted bool
			err := p.Pipeline.InTx(p.Context(), func(tx pipeline.Tx) (err error) {
				inserted, err = tx.InsertAck(p.Context(), reply, "")
				return err
			})
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			}
			stored <- inserted
		}()
	}

	count := 0
	for range nodes {
		if <-stored {
			count++
		}
	}

	if count != 1 {
		t.Errorf("%d acknowledgements; want 1", count)
	}
}

func cancelNoAck(t *testing.T, p *probe) {
	record, reply := p.deliver("peer.example")
	p.tx(func(tx pipeline.Tx) error { return tx.CancelAck(t.Context(), reply.TurnID, p.now) })
	if state := p.deliveryState(record.ID); state != delivery.StatePending {
		t.Errorf("the delivery of the answer is %s", state)
	}
	p.same([]string{"1 turn.accepted "}, p.timeline(reply.TurnID))
}
