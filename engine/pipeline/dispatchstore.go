package pipeline

import (
	"context"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

// DispatchTx is what agents that ask other agents need inside a transaction.
type DispatchTx interface {
	// Pace tells how a thread with another agent goes. Until the transaction ends nobody else is told about the thread.
	Pace(ctx context.Context, agent, principal, threadID string, since time.Time) (Pace, error)
	InsertDispatch(ctx context.Context, d exchange.Dispatch) error
	// FinishDispatch stores the answer to a pending call. It reports whether the call was pending.
	FinishDispatch(ctx context.Context, id string, response normalized.Response, at time.Time) (bool, error)
	// Dispatches returns the calls of a turn in the order of their numbers.
	Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error)
}

// DispatchReader is what is read about calls outside transactions.
type DispatchReader interface {
	// Dispatch returns one call to another agent; fault.NotFound when there is none.
	Dispatch(ctx context.Context, id string) (exchange.Dispatch, error)
	// Dispatches returns the calls of a turn in the order of their numbers.
	Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error)
}
