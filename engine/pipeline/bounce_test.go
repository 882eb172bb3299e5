package pipeline_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
)

// TestBouncesReachTheirRecipients: the delivery says who does not have it, the agent hears of each once, and what no one has is
// dead.
func TestBouncesReachTheirRecipients(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		e.peer.address = "Ann@peer.test, bob@peer.test"
		receipt := e.receive(t, message("m1"))
		e.peer.next(t)
		sent := e.waitState(t, receipt.TurnID, delivery.StateDelivered)
		service := delivery.New(delivery.Options{Store: e.store.Deliverer(), Listens: func(agent string) bool { return agent == "echo" }})
		report := func(event, recipient, reason string) delivery.Record {
			t.Helper()
			if err := service.Bounced(t.Context(), exchange.Bounce{DeliveryID: sent.ID, Recipient: recipient, Event: event, Reason: reason}); err != nil {
				t.Fatal(err)
			}
			record, _, err := e.store.Delivery(t.Context(), sent.ID)
			if err != nil {
				t.Fatal(err)
			}
			return record
		}
		if record := report(exchange.EventDeliveryDelayed, "bob@peer.test", "delayed"); record.State != delivery.StateDelivered || len(record.Returned) != 0 {
			t.Errorf("delayed: %+v", record)
		}
		record := report(exchange.EventDeliveryBounced, "bob@peer.test", "bounced: 5.1.1 nobody")
		if record.State != delivery.StateDelivered || record.Returned["bob@peer.test"] != "bounced: 5.1.1 nobody" || !strings.HasPrefix(record.Reason, "bob@peer.test: bounced") {
			t.Errorf("one of two: %+v", record)
		}
		report(exchange.EventDeliveryBounced, "bob@peer.test", "bounced: 5.1.1 nobody")
		report(exchange.EventDeliveryComplaint, "ann@peer.test", "reported as unwanted: abuse")
		record = report(exchange.EventDeliveryBounced, "ann@peer.test", "bounced: 5.2.2 full")
		if record.State != delivery.StateDead || record.Reason != "bounced: 5.2.2 full" || len(record.Returned) != 2 {
			t.Errorf("both: %+v", record)
		}
		if err := service.Bounced(t.Context(), exchange.Bounce{DeliveryID: "none", Event: exchange.EventDeliveryBounced}); !fault.Is(err, fault.NotFound) {
			t.Errorf("an unknown delivery: %v", err)
		}
		var heard []string
		jobs, err := e.store.Jobs(t.Context(), store.JobFilter{Kind: exchange.AgentEventKind})
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range jobs {
			var told exchange.AgentEvent
			if err := json.Unmarshal([]byte(job.Payload), &told); err != nil || told.ID != job.ID || told.TurnID != receipt.TurnID || told.MessageID != "m1@peer.test" || told.ThreadID == "" {
				t.Errorf("%s: %v", job.Payload, err)
			}
			heard = append([]string{told.Kind + " " + told.Recipient}, heard...)
		}
		want := "delivery.bounced bob@peer.test,delivery.complaint ann@peer.test,delivery.bounced ann@peer.test"
		if strings.Join(heard, ",") != want {
			t.Errorf("the agent hears %v", heard)
		}
	})
}

// looks tells of every look at a delivery.
type looks struct {
	delivery.Store
	taken chan struct{}
}

func (l looks) Delivery(ctx context.Context, id string) (delivery.Record, exchange.Reply, error) {
	record, reply, err := l.Store.Delivery(ctx, id)
	select {
	case l.taken <- struct{}{}:
	default:
	}
	return record, reply, err
}

// TestABounceMayBeFasterThanItsDelivery brings a report before the attempt is written down: it is not lost.
func TestABounceMayBeFasterThanItsDelivery(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		begun, goOn := make(chan string, 1), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(goOn) })
		defer letGo()
		e.peer.refuse = func(d exchange.Delivery) error {
			begun <- d.ID
			<-goOn
			return nil
		}
		receipt := e.receive(t, message("m1"))
		id := await.Receive(t, begun, "the attempt")
		watched := looks{Store: e.store.Deliverer(), taken: make(chan struct{})}
		reported := make(chan error, 1)
		go func() {
			service := delivery.New(delivery.Options{Store: watched})
			reported <- service.Bounced(context.WithoutCancel(t.Context()), exchange.Bounce{
				DeliveryID: id, Recipient: "@ana@peer.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 nobody",
			})
		}()
		await.Receive(t, watched.taken, "the look of the report at the delivery")
		letGo()
		if err := await.Receive(t, reported, "the end of the report"); err != nil {
			t.Fatal(err)
		}
		if record := e.waitState(t, receipt.TurnID, delivery.StateDead); record.Reason != "bounced: 5.1.1 nobody" {
			t.Errorf("%+v", record)
		}
	})
}

// TestRefusedRecipients: who was refused while others were taken stands in the delivery; what no one took is told.
func TestRefusedRecipients(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		e.peer.refused = map[string]string{"bob@peer.test": "550 5.1.1 nobody"}
		receipt := e.receive(t, message("m1"))
		e.peer.next(t)
		if record := e.waitState(t, receipt.TurnID, delivery.StateDelivered); record.Returned["bob@peer.test"] != "550 5.1.1 nobody" {
			t.Errorf("%+v", record)
		}
		e.peer.refuse = func(exchange.Delivery) error { return fault.GiveUp("550 no", nil) }
		receipt = e.receive(t, message("m2"))
		e.waitState(t, receipt.TurnID, delivery.StateDead)
		if jobs, err := e.store.Jobs(t.Context(), store.JobFilter{Kind: exchange.AgentEventKind}); err != nil || len(jobs) != 0 {
			t.Errorf("an agent that does not listen is told: %+v %v", jobs, err)
		}
	})
}

// TestBlocksWithdrawDeliveries: what waits for its time is cancelled at once with the reason, and its job leaves it alone.
func TestBlocksWithdrawDeliveries(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		e.peer.refuse = func(exchange.Delivery) error { return fault.RetryIn(time.Hour, "451 later", nil) }
		mine, others := e.receive(t, from("ana", "m1", "t1")), e.receive(t, from("bea", "m2", "t2"))
		e.waitState(t, mine.TurnID, delivery.StateRetry)
		e.waitState(t, others.TurnID, delivery.StateRetry)
		service := delivery.New(delivery.Options{Store: e.store.Deliverer(), Refused: func(_ delivery.Record, reply exchange.Reply) string {
			if reply.Message.Sender.Address.String() == "@ana@peer.test" {
				return "blocked by the operator: @ana@peer.test"
			}
			return ""
		}})
		if withdrawn, err := service.WithdrawRefused(t.Context()); err != nil || withdrawn != 1 {
			t.Fatalf("%d, %v", withdrawn, err)
		}
		record := e.waitState(t, mine.TurnID, delivery.StateCancelled)
		events, err := e.store.Events(t.Context(), mine.TurnID, 0, 100)
		last := events[len(events)-1]
		if err != nil || record.Reason != "blocked by the operator: @ana@peer.test" || last.Kind != exchange.EventDeliveryCanceled || !strings.Contains(string(last.Body), record.Reason) {
			t.Errorf("%+v, last %s %s, %v", record, last.Kind, last.Body, err)
		}
		e.waitState(t, others.TurnID, delivery.StateRetry)
		if withdrawn, err := service.WithdrawRefused(t.Context()); err != nil || withdrawn != 0 {
			t.Errorf("again: %d, %v", withdrawn, err)
		}
	})
}
