package requesttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
)

// Memory is a request.Store in memory, for tests that need no database. The suite holds it to the contract.
type Memory struct {
	mu   sync.Mutex
	rows []*row // by creation
}

type row struct {
	request map[string]any
	created time.Time
}

// Create implements request.Store.
func (m *Memory) Create(_ context.Context, made map[string]any) error {
	if err := small(made, request.CodeRequest); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = slices.DeleteFunc(m.rows, func(kept *row) bool { return kept.request["request_id"] == made["request_id"] })
	m.rows = append(m.rows, &row{value.Clone(made), time.Now()})
	return nil
}

// Get implements request.Store.
func (m *Memory) Get(_ context.Context, requestID string) (map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kept := m.find(requestID); kept != nil {
		return value.Clone(kept.request), nil
	}
	return nil, nil
}

// TransitionPending implements request.Store.
func (m *Memory) TransitionPending(_ context.Context, requestID, status string, result map[string]any) (bool, error) {
	if err := small(result, request.CodeResult); err != nil {
		return false, err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.find(requestID)
	if kept == nil || !request.Pending(kept.request) {
		return false, nil
	}

	kept.request["status"] = status
	if result != nil {
		kept.request["result"] = value.Clone(result)
	}

	return true, nil
}

// RecentPending implements request.Store.
func (m *Memory) RecentPending(_ context.Context, query request.Query) ([]map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := []map[string]any{}
	for _, kept := range m.rows {
		if query.Limit > 0 && len(found) == query.Limit {
			break
		}
		if request.Pending(kept.request) && matches(query, kept) {
			found = append(found, value.Clone(kept.request))
		}
	}
	return found, nil
}

func matches(query request.Query, kept *row) bool {
	switch {
	case query.RunID != "" && kept.request["run_id"] != query.RunID,
		query.ToolName != "" && kept.request["tool_name"] != query.ToolName,
		!query.Before.IsZero() && !kept.created.Before(query.Before),
		!query.After.IsZero() && !kept.created.After(query.After):
		return false
	case query.DueBy.IsZero():
		return true
	}

	due, timed := request.TimeoutAt(kept.request)
	return timed && !due.After(query.DueBy)
}

func (m *Memory) find(requestID string) *row {
	for _, kept := range m.rows {
		if kept.request["request_id"] == requestID {
			return kept
		}
	}
	return nil
}

// small refuses what a durable store would refuse.
func small(given map[string]any, code string) error {
	encoded, err := value.Encode(given)
	if err != nil {
		return &request.Error{Code: code, Reason: "is not JSON: " + err.Error()}
	}
	if len(encoded) > request.MaxRecordBytes {
		return &request.Error{Code: code, Reason: fmt.Sprintf("has %d bytes as JSON; the limit is %d", len(encoded), request.MaxRecordBytes)}
	}
	return nil
}
