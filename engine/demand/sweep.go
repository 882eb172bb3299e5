package demand

import (
	"context"
	"time"

	"inbox/internal/fault"
	"inbox/policypart"
)

// sweepBatch and sweepRounds bound what one look ends.
const (
	sweepBatch  = 100
	sweepRounds = 100
)

// Run ends demands that nobody answered in time, until ctx is done. Any number of nodes may run it: each demand ends
// once, by a conditional update.
func (s *Service) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.options.Sweep)
	defer ticker.Stop()
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.options.Logger.WarnContext(ctx, "expired demands cannot be ended", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// sweep ends what is due now. A batch of which nothing could be ended is left for the next time.
func (s *Service) sweep(ctx context.Context) error {
	for range sweepRounds {
		due, err := s.options.Store.DueDemands(ctx, s.now(), sweepBatch)
		if err != nil {
			return err
		}
		done := 0
		for _, issuance := range due {
			if err := s.end(ctx, issuance); err != nil {
				s.options.Logger.WarnContext(ctx, "expired demand cannot be ended", "demand", issuance.ID, "error", err)
				continue
			}
			done++
		}
		if len(due) < sweepBatch || done == 0 {
			return ctx.Err()
		}
	}
	return nil
}

// end tells the asker once that the time is over. When the turn does not wait any more (cancelled, or taken up by a new
// message) only the row changes; when another node was faster nothing does.
func (s *Service) end(ctx context.Context, issuance policypart.Issuance) error {
	ending := s.expire(issuance)
	err := s.turns.Settle(ctx, ending)
	if fault.Is(err, fault.Conflict) {
		ending.Issuance.Status, ending.Response, ending.State = policypart.StatusDropped, nil, ""
		return unlessConflict(s.turns.Settle(ctx, ending))
	}
	if err == nil {
		demands.WithLabelValues(issuance.Kind, policypart.OutcomeExpired).Inc()
	}
	return err
}

// unlessConflict takes another node's success for our own.
func unlessConflict(err error) error {
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
