package task

import (
	"context"
	"maps"
	"time"

	"inbox/agents/runtime/value"
)

// handler executes a task and gives its outcome.
type handler func(input, target map[string]any) (any, error)

// memory is an Executions in memory, whose runs have ended when they are begun, unless they stay open.
type memory struct {
	handler func(input, target map[string]any) handler
	open    bool // runs stay as they are begun, until they are stopped

	// asRecorded keeps runs as the recorded runtime does: the time and the metadata of the start are lost with the result, the failure
	// of a handler is also the error of its run, and a run that is stopped is cancelling until its handler ends.
	asRecorded bool

	runs map[string]map[string]any
}

// claim stores a run unless its id is taken.
func (m *memory) claim(run map[string]any) bool {
	id := value.Text(run["run_id"])
	if m.runs[id] != nil {
		return false
	}
	if m.runs == nil {
		m.runs = map[string]map[string]any{}
	}
	m.runs[id] = value.Clone(run)
	return true
}

func (m *memory) Begin(_ context.Context, begin Begin) (map[string]any, error) {
	var handle handler
	if !m.open {
		if handle = m.handler(begin.Input, begin.Target); handle == nil {
			return nil, NoHandler()
		}
	}
	if !m.claim(begin.Run) {
		return nil, nil
	}
	if m.open {
		return maps.Clone(begin.Run), nil
	}

	outcome, failure := handle(begin.Input, begin.Target)
	begun := maps.Clone(begin.Run)
	if m.asRecorded {
		begun["started_at"], begun["metadata"] = "", map[string]any{}
		if failure == nil && !value.Container(outcome) {
			m.runs[value.Text(begun["run_id"])], _ = Result(begun, map[string]any{"status": StatusFailed}, nil)
			return nil, InvalidResult()
		}
	}

	run, err := Result(begun, outcome, failure)
	m.runs[value.Text(begun["run_id"])] = run
	if m.asRecorded && failure != nil {
		return nil, failure
	}
	return value.Clone(run), err
}

func (m *memory) Find(_ context.Context, runID string) (map[string]any, error) {
	return value.Clone(m.runs[runID]), nil
}

func (m *memory) Stop(_ context.Context, runID string) (map[string]any, bool, error) {
	run := m.runs[runID]
	if Terminal(value.Text(run["status"])) {
		return value.Clone(run), false, nil
	}
	run["status"], run["updated_at"] = StatusCancelled, Timestamp(time.Now())
	if m.asRecorded {
		run["status"] = StatusCancelling
	}
	return value.Clone(run), true, nil
}
