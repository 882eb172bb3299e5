package store

import (
	"context"
	"fmt"
	"time"

	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// TaskRuns keeps the runs of tasks: task.Runs on the database.
type TaskRuns struct{ store *Store }

// TaskRuns returns the runs of tasks.
func (s *Store) TaskRuns() *TaskRuns { return &TaskRuns{s} }

// maxTaskRun bounds a run as JSON.
const maxTaskRun = 4 << 20

// Claim implements task.Runs. A run over 4 MiB is fault.TooLarge, an id over 512 bytes fault.Malformed.
func (r *TaskRuns) Claim(ctx context.Context, run map[string]any) (claimed bool, err error) {
	id := value.Text(run["run_id"])
	if err := requireStorable("run_id", id); err != nil {
		return false, err
	}
	if id == "" || len(id) > maxToolKey {
		return false, fault.InField("run_id", "must have 1 to 512 bytes")
	}
	encoded, err := encodeTaskRun(run)
	if err != nil {
		return false, err
	}
	err = r.store.InTx(ctx, func(tx *Tx) error {
		now := nowMicros()
		inserted, err := tx.change(ctx, `INSERT INTO task_runs (id, created_at, updated_at, run) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO NOTHING`, id, now, now, encoded)
		claimed = inserted > 0
		return err
	})
	return claimed, err
}

func encodeTaskRun(run map[string]any) (string, error) {
	encoded, err := value.Encode(run)
	if err != nil {
		return "", fault.Wrap(fault.Malformed, "The run is no JSON.", err)
	}
	if len(encoded) > maxTaskRun {
		return "", fault.New(fault.TooLarge, "The run is over 4 MiB.")
	}
	return cleaned(string(encoded)), nil
}

const selectTaskRun = `SELECT run FROM task_runs WHERE id = $1`

// Get implements task.Runs.
func (r *TaskRuns) Get(ctx context.Context, runID string) (map[string]any, error) {
	return taskRunFrom(ctx, r.store.engine.reader(), runID)
}

func taskRunFrom(ctx context.Context, from querier, runID string) (map[string]any, error) {
	if !storable(runID) {
		return nil, nil
	}
	var text string
	found, err := first(ctx, from, selectTaskRun, []any{runID}, &text)
	if err != nil || !found {
		return nil, err
	}
	given, err := value.Decode([]byte(text), value.Limits{Bytes: 2 * maxTaskRun, Depth: 128})
	if err != nil {
		return nil, fmt.Errorf("decode task run %s: %w", runID, err)
	}
	return value.Assoc(given), nil
}

// Update implements task.Runs.
func (r *TaskRuns) Update(
	ctx context.Context, runID string, change func(run map[string]any) (map[string]any, error),
) (changed map[string]any, err error) {
	if !storable(runID) {
		return nil, nil
	}
	err = r.store.InTx(ctx, func(tx *Tx) error {
		changed = nil
		held, err := tx.change(ctx, `UPDATE task_runs SET updated_at = $1 WHERE id = $2`, micros(time.Now()), runID) // holds the row
		if err != nil || held == 0 {
			return err
		}
		run, err := taskRunFrom(ctx, tx, runID)
		if err != nil {
			return err
		}
		next, err := change(run)
		if err != nil {
			return err
		}
		encoded, err := encodeTaskRun(next)
		if err != nil {
			return err
		}
		changed = next
		return tx.do(ctx, `UPDATE task_runs SET run = $1 WHERE id = $2`, encoded, runID)
	})
	if err != nil {
		return nil, err
	}
	return changed, nil
}
