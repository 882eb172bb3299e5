package task

import (
	"context"
	"sync"

	"inbox/agents/runtime/value"
)

// Memory is a Runs in memory, for tests that need no database. The suite holds it to the contract.
type Memory struct {
	mu   sync.Mutex
	runs map[string]map[string]any
}

func NewMemory() *Memory { return &Memory{runs: map[string]map[string]any{}} }

func (m *Memory) Claim(_ context.Context, run map[string]any) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := value.Text(run["run_id"])
	if m.runs[id] != nil {
		return false, nil
	}
	m.runs[id] = value.Clone(run)
	return true, nil
}

func (m *Memory) Get(_ context.Context, runID string) (map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return value.Clone(m.runs[runID]), nil
}

func (m *Memory) Update(_ context.Context, runID string, change func(map[string]any) (map[string]any, error)) (map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[runID] == nil {
		return nil, nil
	}
	changed, err := change(value.Clone(m.runs[runID]))
	if err != nil {
		return nil, err
	}
	m.runs[runID] = value.Clone(changed)
	return changed, nil
}
