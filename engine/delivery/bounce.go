package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// Bounced writes a report about a delivery that had left to the delivery and its timeline, and tells the agent where it
// listens. A recipient from whom it came back does not have it; a delivery that no recipient has is dead. fault.NotFound
// when there is no such delivery, fault.Unavailable when its attempt is not over yet. The same report again changes nothing
// but the timeline.
func (s *Service) Bounced(ctx context.Context, bounce exchange.Bounce) error {
	record, reply, err := s.attempted(ctx, bounce.DeliveryID)
	if err != nil {
		return err
	}

	move := Move{
		ID: record.ID, From: []string{record.State}, To: record.State, Reason: record.Reason, Attempt: record.Attempt,
		NextAt: record.NextAt, At: time.Now(),
		Event: event(bounce.Event, eventBody{Destination: bounce.Recipient, Reason: bounce.Reason}),
	}

	news := true
	switch bounce.Event {
	case exchange.EventDeliveryBounced:
		_, known := record.Returned[bounce.Recipient]
		news = !known && slices.Contains(returned, record.State)
		attempts.WithLabelValues(record.Channel, "bounced").Inc()
		move.Returned = map[string]string{bounce.Recipient: bounce.Reason}
		if news && len(recipients(record)) > 1 {
			move.Reason = cut(bounce.Recipient + ": " + bounce.Reason + "; " + record.Reason)
		}
	case exchange.EventDeliveryComplaint:
	case exchange.EventDeliveryDelayed:
		news = false
	default:
		return fault.New(fault.Malformed, "a report must have bounced, be delayed or be a complaint")
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		switch moved, err := tx.MoveDelivery(ctx, move); {
		case err != nil:
			return err
		case !moved:
			return errUnderWay // it changed since it was read
		case !news:
			return nil
		}
		return s.tell(ctx, tx, record, reply, bounce.Event, bounce.Recipient, bounce.Reason)
	})
	if err != nil || bounce.Event != exchange.EventDeliveryBounced {
		return err
	}

	return s.endReturned(ctx, bounce)
}

// Reports come back faster than the attempt is written down when the server that took the mail stands next to us. They
// apply only to a delivery that has left, so they wait for that; when it takes longer they must come again.
const (
	attemptPatience = 10 * time.Second
	attemptPause    = 50 * time.Millisecond // between two looks
)

var errUnderWay = fault.New(fault.Unavailable, "the delivery that this report is about is under way; report again later")

// attempted returns a delivery whose attempt is over.
func (s *Service) attempted(ctx context.Context, id string) (Record, exchange.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptPatience)
	defer cancel()
	ticker := time.NewTicker(attemptPause)
	defer ticker.Stop()
	for {
		record, reply, err := s.options.Store.Delivery(ctx, id)
		if err != nil || record.State != StatePending && record.State != StateSending {
			return record, reply, err
		}
		select {
		case <-ctx.Done():
			return record, reply, errUnderWay
		case <-ticker.C:
		}
	}
}

// endReturned ends a delivery that came back from all of its recipients. Reports of several may come at once: it looks at what
// was written.
func (s *Service) endReturned(ctx context.Context, bounce exchange.Bounce) error {
	record, _, err := s.options.Store.Delivery(ctx, bounce.DeliveryID)
	if err != nil || !slices.Contains(returned, record.State) {
		return err
	}

	for _, recipient := range recipients(record) {
		if _, gone := record.Returned[recipient]; !gone {
			return nil
		}
	}

	return s.options.Store.InTx(ctx, func(tx Tx) error {
		_, err := tx.MoveDelivery(ctx, Move{
			ID: record.ID, From: returned, To: StateDead, Reason: bounce.Reason, Attempt: record.Attempt, At: time.Now(),
		})
		return err
	})
}

// recipients returns the addresses of a delivery, in lower case, as reports name them.
func recipients(record Record) []string {
	list := strings.Split(strings.ToLower(record.Address), ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

func cut(reason string) string {
	const limit = 512
	if len(reason) > limit {
		reason = strings.ToValidUTF8(reason[:limit], "")
	}
	return reason
}

// returned are the states that a bounce ends: what is still to be sent may yet arrive.
var returned = []string{StateDelivered}

// tell lets the agent hear what became of its answer, where it listens. It is stored with what it tells of.
func (s *Service) tell(ctx context.Context, tx Tx, record Record, reply exchange.Reply, kind, recipient, reason string) error {
	if s.options.Listens == nil || !s.options.Listens(record.Agent) {
		return nil
	}

	told := exchange.AgentEvent{
		ID: newID(), Kind: kind, Agent: record.Agent, TurnID: record.TurnID, MessageID: reply.Message.ID, ThreadID: reply.Message.ThreadID,
		Recipient: recipient, Reason: reason, At: time.Now().UTC().Truncate(time.Millisecond),
	}

	body, err := json.Marshal(told)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return tx.Enqueue(ctx, queue.NewJob{ID: told.ID, Kind: exchange.AgentEventKind, Payload: string(body)})
}
