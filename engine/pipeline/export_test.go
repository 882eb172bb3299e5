package pipeline

import (
	"context"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// WithHistory is withHistory for tests that need a real store.
func (s *Service) WithHistory(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (normalized.Message, *int, error) {
	told, err := s.history.withHistory(ctx, agent, turn)
	return told.message, told.breakpoint, err
}

// HistoryOf writes exchanges as turns of a history, untrimmed.
func HistoryOf(agent agents.Entry, exchanges []Exchange) []normalized.HistoricalMessage {
	return turns(agent, exchanges, new(ancestry))
}

// Acknowledge makes the acknowledgement of a turn now.
func (s *Service) Acknowledge(ctx context.Context, turn exchange.TurnRecord) {
	agent, _ := s.runner.options.Agents.Lookup(turn.Agent)
	s.acknowledge(ctx, agent, turn)
}

// AckAfter is ackAfter for the agent of the turn.
func (s *Service) AckAfter(turn exchange.TurnRecord) time.Duration {
	agent, _ := s.runner.options.Agents.Lookup(turn.Agent)
	return s.ackAfter(agent, turn)
}

// CauseOf is causeOf.
var CauseOf = causeOf
