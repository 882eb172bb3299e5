package tool

import (
	"context"
	"slices"
	"sync"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/internal/fault"
)

const (
	defaultPendingLimit = 100
	maxPendingLimit     = 1000
)

// memoryPending holds actions in order of arrival. When it is full the oldest final one goes.
type memoryPending struct {
	mutex   sync.Mutex
	limit   int
	actions []*PendingAction
	byID    map[string]*PendingAction
	results map[string]bool
}

// NewPendingMemory keeps at most limit pending actions in memory (less than 1: 1,000). If all of them still wait, Store
// gives fault.Unavailable.
func NewPendingMemory(limit int) PendingStore {
	if limit < 1 {
		limit = 1000
	}
	return &memoryPending{limit: limit, byID: map[string]*PendingAction{}, results: map[string]bool{}}
}

func (m *memoryPending) Store(_ context.Context, action PendingAction) error {
	checked, err := ParsePending(action.Object())
	if err != nil {
		return fault.Wrap(fault.Malformed, "The pending action is not valid.", err)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if known := m.byID[checked.ActionID]; known != nil {
		if envelope.Equal(known.Object(), checked.Object()) {
			return nil
		}
		return fault.New(fault.Conflict, "Another pending action has this id.")
	}
	if len(m.actions) >= m.limit && !m.forgetOldest() {
		return fault.New(fault.Unavailable, "Too many actions wait for approval: decide some of them first.")
	}
	m.actions = append(m.actions, &checked)
	m.byID[checked.ActionID] = &checked
	return nil
}

func (m *memoryPending) forgetOldest() bool {
	for index, action := range m.actions {
		if action.Final() {
			delete(m.byID, action.ActionID)
			delete(m.results, action.ActionID)
			m.actions = slices.Delete(m.actions, index, index+1)
			return true
		}
	}
	return false
}

func (m *memoryPending) Get(_ context.Context, id string, includeResolved bool) (PendingAction, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	action := m.byID[id]
	if action == nil || (action.Final() && !includeResolved) {
		return PendingAction{}, fault.New(fault.NotFound, "No such pending action.")
	}
	return *action, nil
}

func (m *memoryPending) List(_ context.Context, filter PendingFilter) ([]PendingAction, error) {
	if filter.Statuses == nil {
		filter.Statuses = []string{StatePending}
	}
	if filter.Limit < 1 {
		filter.Limit = defaultPendingLimit
	}
	limit := min(filter.Limit, maxPendingLimit)
	found := m.selected(filter)
	start := min(max(filter.Offset, 0), len(found))
	return found[start:min(start+limit, len(found))], nil
}

func (m *memoryPending) selected(filter PendingFilter) []PendingAction {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	found := []PendingAction{}
	for _, action := range m.actions {
		if filter.selects(*action) {
			found = append(found, *action)
		}
	}
	return found
}

func (f PendingFilter) selects(action PendingAction) bool {
	same := func(wanted, value string) bool { return wanted == "" || wanted == value }
	return (f.Statuses == nil || slices.Contains(f.Statuses, action.Status)) && same(f.Kind, action.Kind) &&
		same(f.Agent, action.Agent) && same(f.Creator, action.Creator) && same(f.Resolver, action.Resolver)
}

func (m *memoryPending) Summary(_ context.Context, filter PendingFilter) (PendingSummary, error) {
	summary := PendingSummary{ByStatus: map[string]int{}, ByKind: map[string]int{}}
	for _, action := range m.selected(filter) {
		summary.Total++
		summary.ByStatus[action.Status]++
		summary.ByKind[action.Kind]++
	}
	return summary, nil
}

// update changes a pending action under the lock. It gives false if there is none.
func (m *memoryPending) update(id string, change func(*PendingAction) bool) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	action := m.byID[id]
	return action != nil && !action.Final() && change(action)
}

func (m *memoryPending) RecordResolution(_ context.Context, resolution Resolution, moment time.Time) (bool, error) {
	if err := resolution.Check(); err != nil {
		return false, err
	}
	return m.update(resolution.ActionID, func(action *PendingAction) bool { return action.Decide(resolution, moment) }), nil
}

func (m *memoryPending) RecordResult(_ context.Context, id string, result any, failure string) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	action := m.byID[id]
	if action == nil {
		return fault.New(fault.NotFound, "No such pending action.")
	}
	if (action.Status != StateAccepted && action.Status != StateRejected) || m.results[id] {
		return fault.New(fault.Conflict, "The result of this action cannot be recorded (again).")
	}
	m.results[id] = true
	action.ResolutionResult, action.ResolutionError = envelope.Clone(result), failure
	return nil
}

func (m *memoryPending) Expire(_ context.Context, moment time.Time) (int, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	expired := 0
	for _, action := range m.actions {
		if action.Expire(moment) {
			expired++
		}
	}
	return expired, nil
}

func (m *memoryPending) Delete(_ context.Context, id, resolver string, moment time.Time) (bool, error) {
	if envelope.Trim(resolver) == "" {
		return false, fault.InField("resolver", "Say who deletes the action.")
	}
	return m.update(id, func(action *PendingAction) bool { return action.Drop(resolver, moment) }), nil
}
