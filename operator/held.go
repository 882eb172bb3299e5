package operator

import (
	"context"

	"inbox/exchange"
)

// Held are the messages of senders who proved nothing, where the agent's setting lets them wait for the operator.
type Held struct {
	HeldDecisions

	Turns TurnList
}

// HeldDecisions decide about held messages.
type HeldDecisions interface {
	// Release lets the agent answer: fault.NotFound without such a turn, fault.Conflict when it is not held any more.
	Release(ctx context.Context, turnID string) error
	// Drop refuses the message; the reason is kept. Errors are those of Release.
	Drop(ctx context.Context, turnID, reason string) error
}

// TurnList lists messages.
type TurnList interface {
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
}

// List lists held messages, newest first. Before is "" or the cursor of exchange.TurnFilter; limit is 1 to 500.
func (h Held) List(ctx context.Context, agent, before string, limit int) ([]exchange.TurnRecord, error) {
	turns, err := h.Turns.Turns(ctx, exchange.TurnFilter{Agent: agent, States: []string{exchange.StateHeld}, Before: before, Limit: limit})
	return listed(turns), err
}
