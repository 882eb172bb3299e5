package delivery

import (
	"context"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Bounced writes what a report says about a delivery that had left to its timeline. A delivery that came back for its only
// recipient is dead; with further ones it stays as it is, because the others have it. fault.NotFound when there is no such
// delivery. The same report again changes nothing but the timeline.
func (s *Service) Bounced(ctx context.Context, bounce exchange.Bounce) error {
	record, _, err := s.options.Store.Delivery(ctx, bounce.DeliveryID)
	if err != nil {
		return err
	}
	switch bounce.Event {
	case exchange.EventDeliveryBounced, exchange.EventDeliveryDelayed, exchange.EventDeliveryComplaint:
	default:
		return fault.New(fault.Malformed, "a report must have bounced, be delayed or be a complaint")
	}
	move := Move{
		ID: record.ID, From: []string{record.State}, To: record.State, Reason: record.Reason, Attempt: record.Attempt,
		NextAt: record.NextAt, At: time.Now(),
		Event: event(bounce.Event, eventBody{Destination: bounce.Recipient, Reason: bounce.Reason}),
	}
	if bounce.Event == exchange.EventDeliveryBounced && !strings.Contains(record.Address, ",") && slices.Contains(returned, record.State) {
		attempts.WithLabelValues(record.Via, "bounced").Inc()
		move.From, move.To, move.Reason = returned, StateDead, bounce.Reason
	}
	return s.options.Store.InTx(ctx, func(tx Tx) error {
		_, err := tx.MoveDelivery(ctx, move)
		return err
	})
}

// returned are the states that a bounce ends: what is still to be sent may yet arrive.
var returned = []string{StateDelivered}
