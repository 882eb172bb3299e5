package delivery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Again puts a dead, waiting or cancelled delivery back to work at once, with its attempts counted anew. The wire id
// stays, so that a receiver that had it already recognises it. Conflict when it is delivered or being sent.
func (s *Service) Again(ctx context.Context, id string) error {
	return s.again(ctx, id, time.Time{}, StateDead, StateCancelled)
}

// again does it from one of the states. The zero time means at once.
func (s *Service) again(ctx context.Context, id string, at time.Time, from ...string) error {
	record, reply, err := s.options.Store.Delivery(ctx, id)
	if err != nil {
		return err
	}
	return s.options.Store.InTx(ctx, func(tx Tx) error {
		moved, err := tx.MoveDelivery(ctx, Move{
			ID: id, From: from, To: StatePending, Reason: "retried by the operator", At: time.Now(),
			Event: event(exchange.EventDeliveryRetry, eventBody{Destination: record.Address, Reason: "retried by the operator"}),
		})
		if err != nil {
			return err
		}
		if !moved {
			return fault.Newf(fault.Conflict, "delivery %s is %s; only dead or cancelled deliveries can be retried", id, record.State)
		}

		job := record.job(newID(), reply.Message.ThreadID)
		job.RunAt = at
		return tx.Enqueue(ctx, job)
	})
}

// Bounds of one call of RetryDead.
const (
	deadPage   = 100
	MaxRetries = 10_000
)

// RetryDead sends the dead deliveries again that the filter selects, the oldest first, a few a second. With dryRun it changes
// nothing. What nothing can come of is left and named with the reason. Each is a transaction of its own from the state dead: called
// again, after a crash too, it finds those that are left. At most MaxRetries deliveries, or the limit of the filter; More tells that there are others.
func (s *Service) RetryDead(ctx context.Context, filter exchange.RetryFilter, dryRun bool) (exchange.RetriedWork, error) {
	result := exchange.RetriedWork{Work: []exchange.Retried{}}
	dead, more, err := s.dead(ctx, filter)
	if err != nil {
		return result, err
	}

	result.More = more
	for start := time.Now(); len(dead) > 0; dead = dead[1:] {
		one, err := s.retryDead(ctx, dead[0], start.Add(time.Duration(result.Retried)*time.Second/exchange.RetryRate), dryRun)
		switch {
		case fault.Is(err, fault.NotFound), fault.Is(err, fault.Conflict): // meanwhile
			continue
		case err != nil:
			return result, err
		case one.Skipped != "":
			result.Skipped++
		default:
			result.Retried++
		}
		result.Work = append(result.Work, one)
	}
	return result, nil
}

func (s *Service) dead(ctx context.Context, filter exchange.RetryFilter) (found []string, more bool, err error) {
	page := Filter{State: StateDead, Agent: filter.Agent, Channel: filter.Channel, ChangedSince: filter.Since, Limit: deadPage + 1}
	most := filter.AtMost(MaxRetries)
	for len(found) <= most {
		records, err := s.options.Store.Deliveries(ctx, page)
		if err != nil {
			return nil, false, err
		}

		records, page.Before = exchange.NextPage(records, deadPage, func(record Record) string { return record.ID })
		for i := range records {
			found = append(found, records[i].ID)
		}
		if page.Before == "" && len(found) <= most {
			slices.Sort(found) // UUIDv7
			return found, false, nil
		}
	}

	found = found[:most] // the newest
	slices.Sort(found)
	return found, true, nil
}

func (s *Service) retryDead(ctx context.Context, id string, at time.Time, dryRun bool) (one exchange.Retried, err error) {
	record, reply, err := s.options.Store.Delivery(ctx, id)
	if err != nil {
		return one, err
	}

	one = exchange.Retried{
		ID: id, TurnID: record.TurnID, Agent: record.Agent, Channel: record.Channel, What: record.Address, FailedAt: record.UpdatedAt, Failure: record.Reason,
	}
	if one.Skipped = obsolete(record, reply); one.Skipped == "" {
		one.Skipped = s.refused(record, reply)
	}
	if record.State != StateDead {
		return one, fault.New(fault.Conflict, "the delivery is not dead any more")
	}
	if one.Skipped != "" || dryRun {
		return one, nil
	}
	return one, s.again(ctx, id, at, StateDead)
}

// Close lets deliveries go to a destination again that was paused or given up, and those that wait for the end of the pause at once;
// other nodes notice within seconds. fault.NotFound when nothing is known against the destination.
func (s *Service) Close(ctx context.Context, channel, key string) error {
	list, err := s.options.Store.Conditions(ctx, maxConditions)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(one Condition) bool { return one.Channel == channel && one.Key == key }) {
		return fault.Newf(fault.NotFound, "nothing is known against %s by %s", key, channel)
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.ClearCondition(ctx, channel, key); err != nil {
			return err
		}
		for _, kind := range []string{JobKind, BulkKind} {
			if err := tx.HastenJobs(ctx, kind, conditionKey(channel, key)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	s.conditions.forget(channel, key)
	s.breakers.success(conditionKey(channel, key))
	s.recipients.forget(conditionKey(channel, key) + " ")
	return nil
}

// Cancel stops a delivery that has not been made: no attempt begins afterwards. Conflict when it is delivered, or when an attempt is
// under way.
func (s *Service) Cancel(ctx context.Context, id string) error {
	record, reply, err := s.options.Store.Delivery(ctx, id)
	if err != nil {
		return err
	}
	const reason = "cancelled by the operator"
	stopped, err := s.stop(ctx, record, reply, reason)
	if err != nil || stopped {
		return err
	}

	return s.options.Store.InTx(ctx, func(tx Tx) error { // a dead delivery has no job
		moved, err := tx.MoveDelivery(ctx, cancelled(record, reason, StateDead))
		if err == nil && !moved {
			return fault.Newf(fault.Conflict, "delivery %s is %s and cannot be cancelled", id, cmp.Or(busy(record.State), record.State))
		}
		return err
	})
}

// errAttempting ends the transaction of stop where an attempt has begun.
var errAttempting = errors.New("an attempt of the delivery is under way")

// stop cancels a delivery that waits for an attempt, and reports whether it did. It removes the job in the same transaction: a job that
// is not there to be removed runs, and nothing calls its attempt back.
func (s *Service) stop(ctx context.Context, record Record, reply exchange.Reply, reason string) (stopped bool, err error) {
	err = s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		stopped, err = tx.MoveDelivery(ctx, cancelled(record, reason, StatePending, StateRetry))
		if err != nil || !stopped {
			return err
		}
		stopped, err = tx.RemoveJob(ctx, record.kind(), Partition(record.Key, record.Agent, reply.Message.ThreadID), record.ID)
		if err == nil && !stopped {
			return errAttempting
		}
		return err
	})
	if errors.Is(err, errAttempting) {
		return false, nil
	}
	return stopped && err == nil, err
}

func cancelled(record Record, reason string, from ...string) Move {
	return Move{
		ID: record.ID, From: from, To: StateCancelled, Reason: reason, Attempt: record.Attempt, At: time.Now(),
		Event: event(exchange.EventDeliveryCanceled, eventBody{Destination: record.Address, Reason: reason}),
	}
}

// busy names the state of a delivery whose row still says that it waits, while its attempt is under way.
func busy(state string) string {
	if state == StatePending || state == StateRetry {
		return StateSending
	}
	return ""
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

const withdrawPage = 500

// WithdrawRefused cancels the deliveries that wait and must not be made any more, with the reason, and returns how many. What
// begins meanwhile is asked about again before its attempt.
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

	done, err = s.stop(ctx, record, reply, reason)
	if done {
		attempts.WithLabelValues(record.Channel, "withdrawn").Inc()
	}

	return done, err
}
