package tool

import (
	"context"
	"time"
)

// Resolution is what somebody decided about a pending action.
type Resolution struct {
	ActionID string
	Decision string         // StateAccepted or StateRejected
	Remember bool           // the caller may answer the same question so from now on
	Resolver string         // who decided; authenticated by the caller
	Payload  map[string]any // for the handler, an edited text for example
	Metadata map[string]any // kept with the action
}

// PendingFilter selects pending actions. Empty members select all.
type PendingFilter struct {
	Statuses []string // nil: only StatePending
	Kind     string
	Agent    string
	Creator  string
	Resolver string
	Limit    int // less than 1: 100; at most 1,000
	Offset   int
}

// PendingSummary counts actions of all states that a filter selects.
type PendingSummary struct {
	Total    int
	ByStatus map[string]int
	ByKind   map[string]int
}

// Object is the summary as JSON.
func (s PendingSummary) Object() map[string]any {
	return map[string]any{"total": s.Total, "by_status": counts(s.ByStatus), "by_kind": counts(s.ByKind)}
}

func counts(numbers map[string]int) map[string]any {
	values := make(map[string]any, len(numbers))
	for name, number := range numbers {
		values[name] = number
	}
	return values
}

// PendingStore keeps pending actions and what was decided (agent runtime contract, section 4.10). Each method is atomic;
// errors are faults. package tooltest holds its conformance suite.
type PendingStore interface {
	// Store keeps a new action. The same action again changes nothing; another one with its id is fault.Conflict.
	Store(ctx context.Context, action PendingAction) error
	// Get gives an action, a final one only if includeResolved is set, or fault.NotFound.
	Get(ctx context.Context, id string, includeResolved bool) (PendingAction, error)
	// List gives the selected actions, the oldest first.
	List(ctx context.Context, filter PendingFilter) ([]PendingAction, error)
	// Summary counts the selected actions, whatever their state, limit and offset.
	Summary(ctx context.Context, filter PendingFilter) (PendingSummary, error)
	// RecordResolution makes a pending action accepted or rejected. It gives false and changes nothing if the action is
	// final or its time is over at the moment: that is how one of two deciders wins.
	RecordResolution(ctx context.Context, resolution Resolution, moment time.Time) (bool, error)
	// RecordResult adds what came of an accepted action, once.
	RecordResult(ctx context.Context, id string, result any, failure string) error
	// Expire makes pending actions whose time is over at the moment expired, and gives their number.
	Expire(ctx context.Context, moment time.Time) (int, error)
	// Delete makes a pending action deleted; the row stays. It gives false if the action is final or unknown.
	Delete(ctx context.Context, id, resolver string, moment time.Time) (bool, error)
}
