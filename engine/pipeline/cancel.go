package pipeline

import (
	"context"
	"errors"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// GiveUp notes on a turn that has ended, with a question to its asker, that they want no more of it: the claim is what the
// adapter writes about it, and with it the turn's row is new again in lists and whoever watches it is told. Conflict when
// the turn has not ended, and when another claim has its place; then nothing is written.
func (s *Service) GiveUp(ctx context.Context, turnID string, claim exchange.Claim, reason string, at time.Time) error {
	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	if !exchange.Terminal(turn.State) {
		return fault.Newf(fault.Conflict, "the turn is %s", turn.State)
	}
	taken := false
	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		instead, err := tx.Claim(ctx, claim)
		if taken = instead != nil; err != nil || taken {
			return err
		}
		_, err = tx.MoveTurn(ctx, Move{ID: turnID, From: []string{turn.State}, To: turn.State, Reason: reason, At: at, GivenUp: true})
		return err
	})
	switch {
	case err != nil:
		return unavailable("give turn up", err)
	case taken:
		return fault.New(fault.Conflict, "the turn goes on already, or was given up before")
	}
	return nil
}

// Cancel ends a turn that has no answer yet; a running agent is stopped. Conflict when the turn ended already,
// NotFound when there is none. The cancelled turn is returned.
func (s *Service) Cancel(ctx context.Context, turnID, reason string) (exchange.TurnRecord, error) {
	drop, err := s.dropDemand(ctx, turnID)
	if err != nil {
		return exchange.TurnRecord{}, unavailable("cancel turn", err)
	}
	moved := false
	err = s.options.Store.InTx(ctx, func(tx Tx) (err error) {
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
		return drop(tx)
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
	s.broker.cancel(turnID)
	s.broker.finished(turn)
	return turn, nil
}
