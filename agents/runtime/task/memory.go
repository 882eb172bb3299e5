package task

import (
	"container/list"
	"context"
	"sync"
	"time"

	"inbox/agents/runtime/envelope"
)

// Defaults of NewMemory.
const (
	DefaultMaxRuns = 10_000
	DefaultRetain  = 24 * time.Hour
)

// Memory is a Runs for tests and for programs that may forget: a run is gone after the retention, or when too many
// newer ones came, and then its id may be claimed again. It is safe for concurrent use.
type Memory struct {
	maxRuns int
	retain  time.Duration

	mu    sync.Mutex
	runs  map[string]*list.Element
	order *list.List // of *keptRun, the one whose last change is the oldest first
}

type keptRun struct {
	id      string
	run     map[string]any
	changed time.Time
}

// NewMemory makes an empty store; zero or less takes the default.
func NewMemory(maxRuns int, retain time.Duration) *Memory {
	if maxRuns <= 0 {
		maxRuns = DefaultMaxRuns
	}
	if retain <= 0 {
		retain = DefaultRetain
	}
	return &Memory{maxRuns: maxRuns, retain: retain, runs: map[string]*list.Element{}, order: list.New()}
}

// Claim implements Runs.
func (m *Memory) Claim(_ context.Context, run map[string]any) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	id := envelope.Text(run["run_id"])
	if m.runs[id] != nil {
		return false, nil
	}
	if len(m.runs) >= m.maxRuns {
		m.remove(m.order.Front())
	}
	m.runs[id] = m.order.PushBack(&keptRun{id: id, run: envelope.Clone(run), changed: time.Now()})
	return true, nil
}

// Get implements Runs.
func (m *Memory) Get(_ context.Context, runID string) (map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	place := m.runs[runID]
	if place == nil {
		return nil, nil
	}
	return envelope.Clone(place.Value.(*keptRun).run), nil
}

// Update implements Runs.
func (m *Memory) Update(_ context.Context, runID string, change func(map[string]any) (map[string]any, error)) (map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	place := m.runs[runID]
	if place == nil {
		return nil, nil
	}
	kept := place.Value.(*keptRun)
	changed, err := change(envelope.Clone(kept.run))
	if err != nil {
		return nil, err
	}
	kept.run, kept.changed = envelope.Clone(changed), time.Now()
	m.order.MoveToBack(place)
	return changed, nil
}

func (m *Memory) forget() {
	limit := time.Now().Add(-m.retain)
	for oldest := m.order.Front(); oldest != nil && oldest.Value.(*keptRun).changed.Before(limit); oldest = m.order.Front() {
		m.remove(oldest)
	}
}

func (m *Memory) remove(place *list.Element) {
	delete(m.runs, place.Value.(*keptRun).id)
	m.order.Remove(place)
}
