package task

import (
	"context"
	"maps"

	"inbox/agents/runtime/value"
)

// handler executes a task and gives its outcome.
type handler func(input, target map[string]any) (any, error)

// memory is an Executions in memory, whose runs have ended when they are begun, unless they stay open.
type memory struct {
	handler func(input, target map[string]any) handler
	open    bool // runs stay as they are begun, until they are stopped
	runs    map[string]map[string]any
}

func (m *memory) Begin(_ context.Context, begin Begin) (map[string]any, error) {
	id := value.Text(begin.Run["run_id"])
	if m.runs[id] != nil {
		return nil, nil
	}
	if m.runs == nil {
		m.runs = map[string]map[string]any{}
	}

	if m.open {
		m.runs[id] = begin.Run
		return maps.Clone(begin.Run), nil
	}
	handle := m.handler(begin.Input, begin.Target)
	if handle == nil {
		return nil, NoHandler()
	}
	outcome, failure := handle(begin.Input, begin.Target)
	run, err := Result(begin.Run, outcome, failure)
	m.runs[id] = run
	return value.Clone(run), err
}

func (m *memory) Find(_ context.Context, runID string) (map[string]any, error) {
	return value.Clone(m.runs[runID]), nil
}

func (m *memory) Stop(_ context.Context, runID string) (map[string]any, bool, error) {
	run := m.runs[runID]
	if run["status"] != StatusQueued {
		return value.Clone(run), false, nil
	}
	run["status"] = StatusCancelled
	return value.Clone(run), true, nil
}
