package pipeline

import (
	"context"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// WithHistory is withHistory for tests that need a real store.
func (s *Service) WithHistory(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (normalized.Message, *int, error) {
	return s.withHistory(ctx, agent, turn)
}

// HistoryOf writes exchanges as turns of a history, untrimmed.
func HistoryOf(agent agents.Entry, exchanges []Exchange) []normalized.HistoricalMessage {
	return turns(agent, exchanges)
}
