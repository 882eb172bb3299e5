package delivery

import (
	"context"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

const withdrawPage = 500

// WithdrawRefused cancels the deliveries that wait and must not be made any more, with the reason, and says how many. What
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
