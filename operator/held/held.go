// Package held decides about messages that wait for the operator because nothing proves their senders.
package held

import (
	"context"

	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/operator/lookup"
)

// Service lists held messages, releases, drops and restores them.
type Service struct {
	decisions Decisions
	list      Lister
	index     *lookup.Index
	listed    Listed
}

// Decisions change the state of held messages; *pipeline.Service does.
type Decisions interface {
	// Release lets the agent answer: fault.NotFound without such a turn, fault.Conflict when it is not held any more.
	Release(ctx context.Context, turnID string) error
	// Drop refuses the message; the reason is kept. Errors are those of Release.
	Drop(ctx context.Context, turnID, reason string) error
	// Restore puts a dropped message back on hold: fault.NotFound without such a turn, fault.Conflict when it was not dropped or its content is gone.
	Restore(ctx context.Context, turnID string) error
}

// Lister lists messages.
type Lister interface {
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
}

// Listed returns what the operator's lists say about the sender of a message, as the database has them. A nil one says nothing.
type Listed func(ctx context.Context, turnID string) (moderation.Verdict, error)

// New makes the service. Callers who have ids of turns only may pass a nil index.
func New(decisions Decisions, list Lister, index *lookup.Index, listed Listed) *Service {
	return &Service{decisions, list, index, listed}
}

// List lists held messages, newest first. Before is "" or the cursor of exchange.TurnFilter; limit is 1 to 500.
func (s *Service) List(ctx context.Context, agent, before string, limit int) ([]exchange.TurnRecord, error) {
	return s.turns(ctx, exchange.TurnFilter{Agent: agent, States: []string{exchange.StateHeld}, Before: before, Limit: limit})
}

// Dropped lists messages that were dropped from hold, by the operator or by a block, and can be restored: the newest first. Before and
// limit are as for List.
func (s *Service) Dropped(ctx context.Context, agent, before string, limit int) ([]exchange.TurnRecord, error) {
	return s.turns(ctx, exchange.TurnFilter{Agent: agent, States: []string{exchange.StateRefused}, Dropped: true, Before: before, Limit: limit})
}

func (s *Service) turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error) {
	found, err := s.list.Turns(ctx, filter)
	if found == nil {
		found = []exchange.TurnRecord{} // [] in JSON, not null
	}
	return found, err
}

// Release lets the agent answer a held message, by any of its ids. Errors are those of Decisions.
func (s *Service) Release(ctx context.Context, id string) error {
	turn, err := s.index.Turn(ctx, id)
	if err != nil {
		return err
	}
	return s.decisions.Release(ctx, turn)
}

// Drop refuses a held message, by any of its ids. Errors are those of Decisions.
func (s *Service) Drop(ctx context.Context, id, reason string) error {
	turn, err := s.index.Turn(ctx, id)
	if err != nil {
		return err
	}
	return s.decisions.Drop(ctx, turn, reason)
}

// Restore puts a dropped message back on hold, by any of its ids. It is a fault.Conflict while its sender is blocked; other errors are those of
// Decisions.
func (s *Service) Restore(ctx context.Context, id string) error {
	turn, err := s.index.Turn(ctx, id)
	if err != nil {
		return err
	}
	if err := s.refused(ctx, turn); err != nil {
		return err
	}
	if err := s.decisions.Restore(ctx, turn); err != nil {
		return err
	}
	blocked := s.refused(ctx, turn) // a block that was stored meanwhile may have looked for messages of its senders before this one was back
	if !fault.Is(blocked, fault.Conflict) {
		return nil // the message is held again, whatever kept the lists from being read
	}
	if err := s.decisions.Drop(ctx, turn, fault.Of(blocked).Public); err != nil && !fault.Is(err, fault.Conflict) { // a conflict: the block dropped it
		return err
	}
	return blocked
}

// refused is the fault.Conflict of a message whose sender is blocked.
func (s *Service) refused(ctx context.Context, turn string) error {
	if s.listed == nil {
		return nil
	}
	verdict, err := s.listed(ctx, turn)
	if err == nil && verdict.Refused() {
		err = fault.Newf(fault.Conflict, "its sender may not write (%s), so the message would be dropped again: change the list first", verdict.Reason)
	}
	return err
}
