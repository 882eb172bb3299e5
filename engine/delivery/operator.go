package delivery

import (
	"context"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Again puts a dead, waiting or cancelled delivery back to work at once, with its attempts counted anew. The wire id
// stays, so that a receiver that had it already recognises it. Conflict when it is delivered or being sent.
func (s *Service) Again(ctx context.Context, id string) error {
	record, reply, err := s.options.Store.Delivery(ctx, id)
	if err != nil {
		return err
	}
	return s.options.Store.InTx(ctx, func(tx Tx) error {
		moved, err := tx.MoveDelivery(ctx, Move{
			ID: id, From: []string{StateDead, StateCancelled}, To: StatePending, Reason: "retried by the operator", At: time.Now(),
			Event: event(exchange.EventDeliveryRetry, eventBody{Destination: record.Address, Reason: "retried by the operator"}),
		})
		if err != nil {
			return err
		}
		if !moved {
			return fault.Newf(fault.Conflict, "delivery %s is %s; only dead or cancelled deliveries can be retried", id, record.State)
		}
		return tx.Enqueue(ctx, record.job(newID(), reply.Message.ThreadID))
	})
}

// Cancel stops a delivery that has not been made. Conflict when it is delivered already.
func (s *Service) Cancel(ctx context.Context, id string) error {
	record, _, err := s.options.Store.Delivery(ctx, id)
	if err != nil {
		return err
	}
	return s.options.Store.InTx(ctx, func(tx Tx) error {
		moved, err := tx.MoveDelivery(ctx, Move{
			ID: id, From: []string{StatePending, StateRetry, StateDead}, To: StateCancelled, Reason: "cancelled by the operator",
			Attempt: record.Attempt, At: time.Now(),
			Event: event(exchange.EventDeliveryCanceled, eventBody{Destination: record.Address, Reason: "cancelled by the operator"}),
		})
		if err == nil && !moved {
			return fault.Newf(fault.Conflict, "delivery %s is %s and cannot be cancelled", id, record.State)
		}
		return err
	})
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

const withdrawPage = 500

// WithdrawRefused cancels the deliveries that wait and must not be made any more, with the reason, and returns how many. What
// begins meanwhile is asked about again before its attempt. Their jobs find them cancelled when their time comes.
func (s *Service) WithdrawRefused(ctx context.Context) (withdrawn int, err error) {
	for _, state := range []string{StateRetry, StatePending} {
		filter := Filter{State: state, Limit: withdrawPage}
		for {
			page, err := s.options.Store.Deliveries(ctx, filter)
			if err != nil {
				return withdrawn, err
			}

			for _, record := range page {
				done, err := s.withdraw(ctx, record)
				if err != nil {
					return withdrawn, err
				}
				if done {
					withdrawn++
				}
			}

			if len(page) < withdrawPage {
				break
			}

			filter.Before = page[len(page)-1].ID
		}
	}
	return withdrawn, nil
}

func (s *Service) withdraw(ctx context.Context, record Record) (done bool, err error) {
	_, reply, err := s.options.Store.Delivery(ctx, record.ID)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	reason := s.refused(record, reply)
	if reason == "" {
		return false, nil
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		done, err = tx.MoveDelivery(ctx, Move{
			ID: record.ID, From: []string{StatePending, StateRetry}, To: StateCancelled, Reason: reason, Attempt: record.Attempt, At: time.Now(),
			Event: event(exchange.EventDeliveryCanceled, eventBody{Destination: record.Address, Reason: reason}),
		})
		return err
	})

	if done {
		attempts.WithLabelValues(record.Channel, "withdrawn").Inc()
	}

	return done, err
}
