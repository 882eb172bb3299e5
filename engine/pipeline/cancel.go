package pipeline

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// canceller changes turns that are there, for their sender or the operator.
type canceller struct {
	*core
}

// GiveUp notes on a turn that has ended, with a question to its asker, that they want no more of it: the claim is what the
// adapter writes about it, and with it the turn's row is new again in lists and its watchers are told. Conflict when
// the turn has not ended, and when another claim has its place; then nothing is written.
func (s *canceller) GiveUp(ctx context.Context, turnID string, claim exchange.Claim, reason string, at time.Time) error {
	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	if !exchange.Terminal(turn.State) {
		return fault.Newf(fault.Conflict, "the turn is %s", turn.State)
	}

	taken := false
	move := Move{ID: turnID, From: []string{turn.State}, To: turn.State, Reason: reason, At: at, GivenUp: true}
	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		instead, err := tx.Claim(ctx, claim)
		if taken = instead != nil; err != nil || taken {
			return err
		}
		moved, err := tx.MoveTurn(ctx, move)
		if err == nil && !moved {
			err = errChanged // the claim goes too
		}
		return err
	})
	switch {
	case errors.Is(err, errChanged):
		return fault.New(fault.Conflict, "the turn changed meanwhile")
	case err != nil:
		return unavailable("give turn up", err)
	case taken:
		return fault.New(fault.Conflict, "the turn goes on already, or was given up before")
	}

	return nil
}

// Cancel ends a turn that has no answer yet; a running agent is stopped. Conflict when the turn ended already,
// NotFound when there is none. The cancelled turn is returned.
func (s *canceller) Cancel(ctx context.Context, turnID, reason string) (exchange.TurnRecord, error) {
	moved := false
	err := s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		moved = false
		if err := tx.CancelAck(ctx, turnID, time.Now()); err != nil {
			return err
		}

		moved, err = tx.MoveTurn(ctx, cancelTurn.Move(turnID, exchange.StateCancelled, reason, time.Now()))
		if err != nil {
			return err
		}
		if !moved {
			return errNotRunning
		}
		if err := endToolRequests(ctx, tx, turnID, reason); err != nil {
			return err
		}

		return tx.DropDemands(ctx, turnID, time.Now())
	})
	if err != nil && !errors.Is(err, errNotRunning) {
		return exchange.TurnRecord{}, unavailable("cancel turn", err)
	}

	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil {
		return turn, err
	}
	if !moved {
		return turn, fault.Newf(fault.Conflict, "the turn is %s already", turn.State)
	}

	finished.WithLabelValues(turn.Agent, turn.State).Inc()
	s.logState(ctx, turn, turn.State, turn.Reason)
	s.broker.cancel(turnID, turn.Reason)
	s.broker.finished(turn)
	return turn, nil
}

// Release lets a held message in: its turn runs as if it had been accepted. NotFound when there is no such turn,
// Conflict when it is not held.
func (s *canceller) Release(ctx context.Context, turnID string) error {
	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	move := releaseHeld.Move(turn.ID, exchange.StateAccepted, "released by the operator", time.Now())
	return s.leaveHold(ctx, turn, move, func(tx Tx) error {
		return tx.Enqueue(ctx, job(turn))
	})
}

// Drop refuses a held message; its sender hears nothing. Errors as in Release.
func (s *canceller) Drop(ctx context.Context, turnID, reason string) error {
	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	return s.leaveHold(ctx, turn, dropHeld.Move(turn.ID, exchange.StateRefused, reason, time.Now()), func(Tx) error { return nil })
}

// restoreMargin keeps a message from being restored while its content is erased.
const restoreMargin = time.Minute

// errContentGone undoes the transaction that would put back on hold a message that was not dropped from there, or whose content is erased.
var errContentGone = errors.New("no content to restore")

// Restore puts a message back on hold that the operator or a block dropped from there, as long as its content is kept. NotFound when there
// is no such turn, Conflict when it was not dropped, its content is gone or its sender can have fetched the refusal as the end of a task.
func (s *canceller) Restore(ctx context.Context, turnID string) error {
	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	if turn.Reference != "" {
		return fault.New(fault.Conflict, "its sender can have fetched the refusal as the end of the task; the sender has to ask again")
	}

	now, moved := time.Now(), false
	move := restoreHeld.Move(turn.ID, exchange.StateHeld, "put back on hold by the operator", now)
	move.Unchanged = turn.UpdatedAt
	err = s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		if moved, err = tx.MoveTurn(ctx, move); err != nil || !moved {
			return err
		}
		kept, err := tx.Dropped(ctx, turn.ID, now.Add(restoreMargin))
		if err == nil && !kept {
			err = errContentGone
		}
		return err
	})
	switch {
	case errors.Is(err, errContentGone):
		return fault.New(fault.Conflict, "the message was not dropped from hold, or its content is erased already: limits.held_for after it arrived")
	case err != nil:
		return unavailable("restore message", err)
	case !moved:
		return fault.Newf(fault.Conflict, "the message was not dropped, it is %s", turn.State)
	}

	s.logState(ctx, turn, move.To, move.Reason)
	s.broker.notify(turn.ID)
	return nil
}

func (s *canceller) leaveHold(ctx context.Context, turn exchange.TurnRecord, move Move, then func(Tx) error) error {
	moved := false
	err := s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		if moved, err = tx.MoveTurn(ctx, move); err != nil || !moved {
			return err
		}
		return then(tx)
	})
	switch {
	case err != nil:
		return unavailable("leave hold", err)
	case !moved:
		return fault.Newf(fault.Conflict, "the message is not held, it is %s", turn.State)
	}

	s.logState(ctx, turn, move.To, move.Reason)
	s.broker.notify(turn.ID)
	return nil
}

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

// Retry runs a failed turn again. Its sender gets a further reply in the thread, where the failure was told as a message; a
// failure that the sender fetched as the end of a task stays, because the task has ended. NotFound when there is no such
// turn, Conflict when it has not failed or cannot be answered any more.
func (s *canceller) Retry(ctx context.Context, turnID, by string) error {
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

func (s *canceller) repeatTurn(ctx context.Context, turn exchange.TurnRecord, by string, at time.Time) error {
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

	s.logState(ctx, turn, exchange.StateAccepted, "retried by "+by)
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
func (s *canceller) canRepeat(ctx context.Context, turn exchange.TurnRecord) (bool, error) {
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
// finds nothing the second time. At most MaxRepeats turns, or the limit of the filter; More tells that there are others.
func (s *canceller) RetryFailed(ctx context.Context, filter exchange.RetryFilter, by string, dryRun bool) (exchange.RetryResult, error) {
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
			err = s.repeatTurn(ctx, turn, by, start.Add(time.Duration(count)*time.Second/exchange.RetryRate))
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
func (s *canceller) failedTurns(ctx context.Context, filter exchange.RetryFilter) (found []string, more bool, err error) {
	page := exchange.TurnFilter{Agent: filter.Agent, States: []string{exchange.StateFailed}, UpdatedAfter: filter.Since, Limit: repeatPage + 1}
	most := filter.AtMost(MaxRepeats)
	for len(found) <= most {
		turns, err := s.options.Store.Turns(ctx, page)
		if err != nil {
			return nil, false, err
		}

		turns, page.Before = exchange.NextPage(turns, repeatPage, exchange.TurnCursor)
		for _, turn := range turns {
			if filter.Channel == "" || turn.Channel == filter.Channel {
				found = append(found, turn.ID)
			}
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
