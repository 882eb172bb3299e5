package pipeline

import (
	"context"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// RetryTx is what a transaction does about turns that are run again for the operator.
type RetryTx interface {
	// RepeatTurn lets a failed turn be accepted again, if its row is still as it was read, and reports whether it did. What was
	// said about the failure becomes a notice before the answer, so that the turn may have an answer.
	RepeatTurn(ctx context.Context, turn exchange.TurnRecord, reason string, at time.Time) (bool, error)
}

// Bounds of one call of RetryFailed.
const (
	repeatPage = 100
	MaxRepeats = 10_000
)

// repeatRate is how many turns a second are run again.
const repeatRate = 5

// Retry runs a failed turn again. Its sender gets a further reply in the thread, where the failure was told as a message; a
// failure that the sender fetched as the end of a task stays, because the task has ended. NotFound when there is no such
// turn, Conflict when it has not failed or cannot be answered any more.
func (s *Service) Retry(ctx context.Context, turnID, by string) error {
	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	switch turn.State {
	case exchange.StateFailed:
	case exchange.StateAccepted, exchange.StateRunning:
		return fault.New(fault.Conflict, "the message waits for its run already")
	default:
		return fault.Newf(fault.Conflict, "the message has not failed, it is %s", turn.State)
	}
	return s.repeatTurn(ctx, turn, by, time.Now())
}

func (s *Service) repeatTurn(ctx context.Context, turn exchange.TurnRecord, by string, at time.Time) error {
	if open, err := s.canRepeat(ctx, turn); err != nil || !open {
		return orConflict(err, "its sender has fetched the failure as the end of the task; the sender has to ask again")
	}
	now, moved := time.Now(), false
	err := s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		if moved, err = tx.RepeatTurn(ctx, turn, "retried by "+by, now); err != nil || !moved {
			return err
		}
		if err := tx.Audit(ctx, exchange.AuditRecord{
			At: now, Code: "turn:retried", TurnID: turn.ID, Agent: turn.Agent, Principal: turn.Principal, Detail: "by " + by,
		}); err != nil {
			return err
		}
		next := resumedJob(turn) // runs behind what arrived in the thread meanwhile
		next.RunAt = at
		return tx.Enqueue(ctx, next)
	})
	if err != nil {
		return unavailable("retry message", err)
	}
	if !moved {
		return fault.New(fault.Conflict, "the message was retried or changed meanwhile")
	}
	s.broker.notify(turn.ID)
	return nil
}

func orConflict(err error, public string) error {
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, public)
}

// canRepeat reports whether an answer can still reach the sender: nothing was said yet, or what was said left as a message of
// its own.
func (s *Service) canRepeat(ctx context.Context, turn exchange.TurnRecord) (bool, error) {
	if turn.Reference == "" || turn.ReplyID == "" || strings.HasPrefix(turn.Reason, notPlanned) {
		return true, nil
	}
	sent, err := s.options.Store.Sent(ctx, turn.ID, turn.ReplyID)
	if err != nil {
		return false, unavailable("read deliveries", err)
	}
	return sent, nil
}

// RetryFailed runs all failed turns again that the filter selects, the oldest first in each thread, a few a second. With
// dryRun it changes nothing. Those that cannot be answered any more are left out and named with the reason. Called twice, it
// finds nothing the second time. At most MaxRepeats turns; More tells that there are others.
func (s *Service) RetryFailed(ctx context.Context, filter exchange.RetryFilter, by string, dryRun bool) (exchange.RetryResult, error) {
	result := exchange.RetryResult{Turns: []exchange.RetriedTurn{}}
	turns, more, err := s.failedTurns(ctx, filter)
	if err != nil {
		return result, err
	}
	result.More = more
	start, count := time.Now(), 0
	for _, id := range turns {
		turn, err := s.options.Store.Turn(ctx, id)
		if fault.Is(err, fault.NotFound) || err == nil && turn.State != exchange.StateFailed { // meanwhile
			continue
		}
		if err != nil {
			return result, err
		}
		one := exchange.RetriedTurn{ID: turn.ID, Agent: turn.Agent, Sender: turn.Message.Sender.Address, FailedAt: turn.UpdatedAt, Failure: turn.Reason}
		if dryRun {
			var open bool
			if open, err = s.canRepeat(ctx, turn); err == nil && !open {
				err = orConflict(nil, "its sender has fetched the failure as the end of the task; the sender has to ask again")
			}
		} else {
			err = s.repeatTurn(ctx, turn, by, start.Add(time.Duration(count)*time.Second/repeatRate))
		}
		switch {
		case fault.Is(err, fault.Conflict):
			one.Skipped = fault.Of(err).Public
			result.Skipped++
		case err != nil:
			return result, err
		default:
			count++
			result.Retried++
		}
		result.Turns = append(result.Turns, one)
	}
	return result, nil
}

// failedTurns returns the ids of what a filter selects, in order of arrival.
func (s *Service) failedTurns(ctx context.Context, filter exchange.RetryFilter) (found []string, more bool, err error) {
	page := exchange.TurnFilter{Agent: filter.Agent, States: []string{exchange.StateFailed}, UpdatedAfter: filter.Since, Limit: repeatPage + 1}
	for len(found) < MaxRepeats {
		turns, err := s.options.Store.Turns(ctx, page)
		if err != nil {
			return nil, false, err
		}
		turns, page.Before = exchange.NextPage(turns, repeatPage, exchange.TurnCursor)
		for _, turn := range turns {
			found = append(found, turn.ID)
		}
		if page.Before == "" {
			slices.Sort(found) // UUIDv7
			return found, false, nil
		}
	}
	slices.Sort(found)
	return found, true, nil
}
