package pipeline

import (
	"context"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// expireEvery is how often a node looks for requests whose time is over.
const expireEvery = time.Second

// byClock is who ends a request whose time is over, for the timeline.
const byClock = "the clock"

// ExpireTools ends requests whose time is over, until ctx is done. Any number of nodes may run it: each request ends
// once, by a conditional update.
func (s *Service) ExpireTools(ctx context.Context) error {
	ticker := time.NewTicker(expireEvery)
	defer ticker.Stop()
	lifecycle := s.ToolRequests("", byClock)
	for {
		if _, err := lifecycle.Expire(ctx, time.Now(), nil, nil); err != nil && ctx.Err() == nil {
			s.options.Logger.WarnContext(ctx, "tool requests whose time is over cannot be ended", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// AckKind is the queue kind of acknowledgements of turns that wait for a tool; the payload is the turn id.
const AckKind = "acknowledge"

// scheduleAck lets the asker of a turn that waits for a tool hear of it when the turn is old enough.
func (s *Service) scheduleAck(ctx context.Context, tx Tx, agent agents.Entry, turn exchange.TurnRecord) error {
	after := s.ackAfter(agent, turn)
	if after == 0 {
		return nil
	}
	return tx.Enqueue(ctx, queue.NewJob{ID: newID(), Kind: AckKind, Payload: turn.ID, RunAt: turn.AcceptedAt.Add(after)})
}

// RunAck acknowledges a turn that still waits for a tool. One that runs sees to it itself.
func (s *Service) RunAck(ctx context.Context, job queue.Job) error {
	turn, err := s.options.Store.Turn(ctx, job.Payload)
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return queue.RetryAfter(time.Second, err)
	}
	agent, known := s.options.Agents.Lookup(turn.Agent)
	if known && exchange.GoesOnByItself(turn) && s.ackAfter(agent, turn) > 0 {
		s.acknowledge(ctx, agent, turn)
	}
	return nil
}
