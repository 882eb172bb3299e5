package request

import (
	"context"
	"fmt"
	"time"

	"inbox/agents/runtime/value"
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

	// Get returns the record, nil when there is none. The caller may change what it gets.
	Get(ctx context.Context, requestID string) (map[string]any, error)

	// TransitionPending changes a pending request to a terminal status and keeps the result when there is one. It is
	// true for exactly one caller: the one that changed the record. An unknown or terminal request returns false.
	TransitionPending(ctx context.Context, requestID, status string, result map[string]any) (bool, error)

	// RecentPending lists pending requests, oldest first.
	RecentPending(ctx context.Context, query Query) ([]map[string]any, error)
}

// Query narrows a list of pending requests. The zero value lists all that the store returns at once.
type Query struct {
	RunID    string
	ToolName string
	Before   time.Time // created before; zero = no bound
	After    time.Time // created after; zero = no bound
	DueBy    time.Time // timeout_at is at or before; zero = with and without timeout
	Limit    int       // most entries; zero = the store's own limit
}

// ReadQuery reads the fields of a list query: run_id, tool_name, before, after and limit. Blank and wrongly typed ones
// count as absent. It fails with CodeQuery when a bound is no time (agent runtime contract, section 5).
func ReadQuery(raw map[string]any) (Query, error) {
	runID, _ := value.NonBlank(raw["run_id"])
	toolName, _ := value.NonBlank(raw["tool_name"])
	query := Query{RunID: runID, ToolName: toolName}
	for name, bound := range map[string]*time.Time{"before": &query.Before, "after": &query.After} {
		written, ok := value.NonBlank(raw[name])
		if !ok {
			continue
		}
		at, ok := parseTime(written)
		if !ok {
			return Query{}, invalid(CodeQuery, name+" must be a time such as 2026-01-02T15:04:05Z")
		}
		*bound = at
	}

	if limit, ok := value.Integer(raw["limit"]); ok && limit > 0 {
		query.Limit = int(min(limit, 1<<31-1))
	}

	return query, nil
}

// MaxRecordBytes is how long a request or a result may be as JSON.
const MaxRecordBytes = 1 << 20

// rowLimits let a record in that was checked when it was written.
var rowLimits = value.Limits{Bytes: 4 * MaxRecordBytes, Depth: 128}

// FromRow makes the record of a Store out of what a durable one keeps: the request as it was made, its status now, and
// the result, empty without one.
func FromRow(document []byte, status string, result []byte) (map[string]any, error) {
	record, err := value.Decode(document, rowLimits)
	if err != nil {
		return nil, fmt.Errorf("read tool request: %w", err)
	}

	request := value.Assoc(record)
	request["status"] = status

	if len(result) == 0 {
		return request, nil
	}

	kept, err := value.Decode(result, rowLimits)
	if err != nil {
		return nil, fmt.Errorf("read result of tool request: %w", err)
	}

	request["result"] = kept
	return request, nil
}

// Outcome returns the result of a stored request as the waiting run gets it; false while it is pending. A request that
// timed out or was cancelled has a failed one (agent runtime contract, section 5).
func Outcome(stored map[string]any) (result map[string]any, ended bool, err error) {
	if Pending(stored) {
		return nil, false, nil
	}
	if result, err = storedResult(stored); err != nil || result != nil {
		return result, true, err
	}
	result, err = terminalResult(stored, textTimedOut, StatusTimeout)
	return result, true, err
}
