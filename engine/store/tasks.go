package store

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/exchange"
	"inbox/internal/fault"
)

// taskKey is the id of a run in the table, where notes about the control of other runs stand as well: no name that a caller
// chooses is one of theirs.
func taskKey(runID string) string { return "task:" + runID }

// maxTaskStart bounds what is kept of the begin of a run, in bytes.
const maxTaskStart = 64 << 10

const insertTaskRun = `INSERT INTO task_runs (id, created_at, updated_at, run, owner, turn_id) VALUES ($1, $2, $3, $4, $5, $6)
	ON CONFLICT (id) DO NOTHING`

// InsertTaskRun stores a run with its turn unless its id is taken, and reports whether it did. fault.Malformed for an id of more than
// 512 bytes, or one that cannot be stored; fault.TooLarge for a begin over 64 KiB.
func (t callTx) InsertTaskRun(ctx context.Context, run exchange.TaskRun) (inserted bool, err error) {
	key := taskKey(run.ID)
	if run.ID == "" || len(key) > maxToolKey {
		return false, fault.InField("run_id", fmt.Sprintf("must have 1 to %d bytes", maxToolKey-len(taskKey(""))))
	}
	if err := requireStorable("run_id", key, "owner", run.Owner, "metadata", string(run.Started)); err != nil {
		return false, err
	}
	if len(run.Started) > maxTaskStart {
		return false, fault.New(fault.TooLarge, "what the run is begun with is over 64 KiB")
	}

	now := nowMicros()
	changed, err := t.change(ctx, insertTaskRun, key, now, now, string(run.Started), run.Owner, run.TurnID)
	return changed > 0, err
}

const (
	taskRunColumns   = `id, created_at, run, owner, turn_id`
	selectTaskRunRow = `SELECT ` + taskRunColumns + ` FROM task_runs WHERE id = $1 AND turn_id <> ''`
)

// TaskRun returns a run by its id and reports whether there is one.
func (s callStore) TaskRun(ctx context.Context, id string) (run exchange.TaskRun, found bool, err error) {
	if !storable(id) {
		return run, false, nil
	}
	err = s.engine.reader().each(ctx, selectTaskRunRow, []any{taskKey(id)}, func(r row) error {
		run, err = scanTaskRun(r)
		found = err == nil
		return err
	})
	return run, found, err
}

// TaskRuns lists runs, newest first.
func (s callStore) TaskRuns(ctx context.Context, filter exchange.TaskRunFilter) ([]exchange.TaskRun, error) {
	query, arguments := taskRunQuery(filter)
	runs := []exchange.TaskRun{}
	err := s.engine.reader().each(ctx, query, arguments, func(r row) error {
		run, err := scanTaskRun(r)
		runs = append(runs, run)
		return err
	})
	return runs, err
}

func taskRunQuery(filter exchange.TaskRunFilter) (query string, arguments []any) {
	var chosen selection
	chosen.add("turn_id <> ''")
	chosen.addWhen(filter.Owner != "", "owner = ?", cleaned(filter.Owner))
	chosen.addWhen(filter.Before != "", "turn_id < ?", cleaned(filter.Before))
	return `SELECT ` + taskRunColumns + ` FROM task_runs` + chosen.sql() + chosen.page("turn_id DESC", filter.Limit), chosen.arguments
}

func scanTaskRun(r row) (run exchange.TaskRun, err error) {
	var key, started string
	var created int64
	err = r.Scan(&key, &created, &started, &run.Owner, &run.TurnID)
	run.ID, run.CreatedAt, run.Started = key[min(len(taskKey("")), len(key)):], instant(created), json.RawMessage(started)
	return run, err
}
