package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/exchange"
	"inbox/internal/queue"
)

// tell lets the agent hear what became of its answer, where it listens. It is stored with what it tells of.
func (s *Service) tell(ctx context.Context, tx Tx, record Record, reply exchange.Reply, kind, recipient, reason string) error {
	if s.options.Listens == nil || !s.options.Listens(record.Agent) {
		return nil
	}
	told := exchange.AgentEvent{
		ID: newID(), Kind: kind, Agent: record.Agent, TurnID: record.TurnID, MessageID: reply.Message.ID, ThreadID: reply.Message.ThreadID,
		Recipient: recipient, Reason: reason, At: time.Now().UTC().Truncate(time.Millisecond),
	}
	body, err := json.Marshal(told)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return tx.Enqueue(ctx, queue.NewJob{ID: told.ID, Kind: exchange.AgentEventKind, Payload: string(body)})
}
