package pipeline

import (
	"context"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Release lets a held message in: its turn runs as if it had been accepted. NotFound when there is no such turn,
// Conflict when it is not held.
func (s *Service) Release(ctx context.Context, turnID string) error {
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
func (s *Service) Drop(ctx context.Context, turnID, reason string) error {
	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	return s.leaveHold(ctx, turn, dropHeld.Move(turn.ID, exchange.StateRefused, reason, time.Now()), func(Tx) error { return nil })
}

func (s *Service) leaveHold(ctx context.Context, turn exchange.TurnRecord, move Move, then func(Tx) error) error {
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
	s.broker.notify(turn.ID)
	return nil
}
