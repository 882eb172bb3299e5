package request

import (
	"context"
	"time"
)

// Store keeps requests. Records are normalized requests, terminal ones with their status and, when completed, the
// normalized result under "result". Completing and timing out are both TransitionPending, so that no store can offer
// them without the comparison (agent runtime contract, section 5).
//
// A durable store that resumes runs by itself schedules that in the transaction of TransitionPending: between a
// transition and the continuation the process may die, and replays do not continue anything.
type Store interface {
	// Create adds a pending request or replaces one of the same id.
	Create(ctx context.Context, request map[string]any) error

	// Get gives the record, nil when there is none. The caller may change what it gets.
	Get(ctx context.Context, requestID string) (map[string]any, error)

	// TransitionPending changes a pending request to a terminal status and keeps the result when there is one. It is
	// true for exactly one caller: the one that changed the record. An unknown or terminal request gives false.
	TransitionPending(ctx context.Context, requestID, status string, result map[string]any) (bool, error)

	// RecentPending lists pending requests, oldest first.
	RecentPending(ctx context.Context, query Query) ([]map[string]any, error)
}

// Query narrows a list of pending requests. The zero value lists all that the store gives at once.
type Query struct {
	RunID    string
	ToolName string
	Before   time.Time // created before; zero = no bound
	After    time.Time // created after; zero = no bound
	DueBy    time.Time // timeout_at is at or before; zero = with and without timeout
	Limit    int       // most entries; zero = the store's own limit
}
