package pipeline

import (
	"context"
	"iter"
	"strings"
	"time"

	"inbox/exchange"
)

const (
	pollEvery = time.Second // safety net behind the wake-ups
	eventPage = 200
)

// Wait blocks until the turn ended or waits for somebody (consent, the operator), and returns it with its response.
// The end of ctx is its error; NotFound when there is no such turn.
func (s *Service) Wait(ctx context.Context, turnID string) (exchange.TurnRecord, error) {
	if entry, ok := s.broker.expectation(turnID); ok {
		select {
		case <-entry.done:
			return entry.turn, nil
		case <-ctx.Done():
			return exchange.TurnRecord{}, ctx.Err()
		case <-time.After(pollEvery): // another node may run it
		}
	}
	changes, stop := s.broker.watch(turnID)
	defer stop()
	var known *reading
	for {
		found, err := s.turn(ctx, turnID, known)
		if err != nil {
			return exchange.TurnRecord{}, err
		}
		if settled(found.turn) {
			return found.turn, nil
		}
		known = found
		if err := waitChange(ctx, changes); err != nil {
			return found.turn, err
		}
	}
}

// Follow yields the events of a turn after the seq, first the stored ones, then live, and ends after the terminal
// one. A reader that is slow holds up nobody: it reads rows. Nobody may change the bodies of events: they are shared.
func (s *Service) Follow(ctx context.Context, turnID string, after int64) iter.Seq2[exchange.Event, error] {
	return func(yield func(exchange.Event, error) bool) {
		changes, stop := s.broker.watch(turnID)
		defer stop()
		var known *reading
		for {
			found, err := s.page(ctx, turnID, after, known)
			if err != nil {
				yield(exchange.Event{}, err)
				return
			}
			known = found
			for _, event := range found.events {
				after = event.Seq
				if !yield(event, nil) || ends(event) {
					return
				}
			}
			if len(found.events) == eventPage {
				continue
			}
			if err := waitChange(ctx, changes); err != nil {
				yield(exchange.Event{}, err)
				return
			}
		}
	}
}

// settled reports whether nobody needs to wait for the turn any longer. One that waits for other agents goes on by itself.
func settled(turn exchange.TurnRecord) bool {
	return exchange.Settled(turn.State) && !exchange.GoesOnByItself(turn)
}

func ends(event exchange.Event) bool {
	state, ok := strings.CutPrefix(event.Kind, "turn.")
	return ok && exchange.Terminal(state)
}

func waitChange(ctx context.Context, changes <-chan struct{}) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-changes:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Changed is told by the store after each commit of this process that touched the turn: waiting readers wake up.
func (s *Service) Changed(turnID string) { s.broker.notify(turnID) }

// ChangedElsewhere is told when another node touched the turn: readers wake up, callers that wait for its end get
// it, and a run that was cancelled there stops here.
func (s *Service) ChangedElsewhere(ctx context.Context, turnID string) {
	s.broker.notify(turnID)
	_, expected := s.broker.expectation(turnID)
	if !expected && !s.broker.isRunning(turnID) {
		return
	}
	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil || !settled(turn) {
		return
	}
	if turn.State == exchange.StateCancelled {
		s.broker.cancel(turnID)
	}
	if expected {
		s.broker.finished(turn)
	}
}
