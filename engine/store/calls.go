package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// callStore finds what turns ask of others, dispatches to agents and requests to tools, and the runs of tasks.
type callStore struct{ *shared }

// callTx changes them in a transaction.
type callTx struct{ *transaction }

const insertDispatch = `INSERT INTO dispatches (id, turn_id, number, state, created_at, updated_at, call, response, earlier_thread)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING`

// InsertDispatch stores a call of one of our agents to another agent. A second one with the id is fault.Conflict; a text
// that PostgreSQL cannot keep is fault.Malformed.
func (t callTx) InsertDispatch(ctx context.Context, d exchange.Dispatch) error {
	err := requireStorable("id", d.ID, "turn_id", d.TurnID, "agent", d.Agent, "from", d.From, "to", d.To,
		"thread_id", d.ThreadID, "state", d.State)
	if err != nil {
		return err
	}

	response, err := encodeResponse(d.Response)
	if err != nil {
		return err
	}

	updated := d.UpdatedAt
	if updated.IsZero() {
		updated = d.CreatedAt
	}

	d.Response = nil
	call, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode dispatch: %w", err)
	}

	inserted, err := t.sql.Change(ctx, insertDispatch, d.ID, d.TurnID, int64(d.Number), d.State, micros(d.CreatedAt),
		micros(updated), cleaned(string(call)), response, earlierThread(d.ThreadID))
	if err == nil && inserted == 0 {
		err = fault.New(fault.Conflict, "the dispatch exists already")
	}

	return err
}

func encodeResponse(response *normalized.Response) (string, error) {
	if response == nil {
		return "", nil
	}
	body, err := json.Marshal(response)
	if err != nil {
		return "", fmt.Errorf("encode response: %w", err)
	}

	return cleaned(string(body)), nil
}

const finishDispatch = `UPDATE dispatches SET state = '` + exchange.DispatchDone + `', response = $1, updated_at = $2
	WHERE id = $3 AND state = '` + exchange.DispatchPending + `'`

// FinishDispatch stores the answer to a call that is pending. It reports whether it did.
func (t callTx) FinishDispatch(ctx context.Context, id string, response normalized.Response, at time.Time) (bool, error) {
	body, err := encodeResponse(&response)
	if err != nil {
		return false, err
	}
	changed, err := t.sql.Change(ctx, finishDispatch, body, t.microsOrNow(at), cleaned(id))
	return changed > 0, err
}

const (
	selectDispatch   = `SELECT id, turn_id, number, state, created_at, updated_at, call, response FROM dispatches `
	dispatchByID     = selectDispatch + `WHERE id = $1`
	dispatchesOfTurn = selectDispatch + `WHERE turn_id = $1 ORDER BY number, id`
)

// Dispatches returns the calls of a turn in the order of their numbers.
func (t callTx) Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error) {
	return dispatchesFrom(ctx, t.sql, dispatchesOfTurn, turnID)
}

// Dispatches returns the calls of a turn in the order of their numbers.
func (s callStore) Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error) {
	return dispatchesFrom(ctx, s.engine.Reader(), dispatchesOfTurn, turnID)
}

// Dispatch returns one call; fault.NotFound when there is none.
func (s callStore) Dispatch(ctx context.Context, id string) (exchange.Dispatch, error) {
	found, err := dispatchesFrom(ctx, s.engine.Reader(), dispatchByID, id)
	if err != nil {
		return exchange.Dispatch{}, err
	}
	if len(found) == 0 {
		return exchange.Dispatch{}, notFound("dispatch")
	}
	return found[0], nil
}

func dispatchesFrom(ctx context.Context, from querier, query, key string) ([]exchange.Dispatch, error) {
	var dispatches []exchange.Dispatch
	err := from.Each(ctx, query, []any{cleaned(key)}, func(r row) error {
		d, err := scanDispatch(r)
		dispatches = append(dispatches, d)
		return err
	})
	return dispatches, err
}

// scanDispatch lets the columns win over the document: they hold what changed since.
func scanDispatch(r row) (exchange.Dispatch, error) {
	var d, c exchange.Dispatch
	var created, updated int64
	var call, response string
	if err := r.Scan(&c.ID, &c.TurnID, &c.Number, &c.State, &created, &updated, &call, &response); err != nil {
		return d, err
	}
	if err := json.Unmarshal([]byte(call), &d); err != nil {
		return d, fmt.Errorf("decode dispatch %s: %w", c.ID, err)
	}

	d.ID, d.TurnID, d.Number, d.State = c.ID, c.TurnID, c.Number, c.State
	d.CreatedAt, d.UpdatedAt = instant(created), instant(updated)
	if response == "" {
		return d, nil
	}

	d.Response = new(normalized.Response)
	if err := json.Unmarshal([]byte(response), d.Response); err != nil {
		return d, fmt.Errorf("decode response of dispatch %s: %w", d.ID, err)
	}

	return d, nil
}

// maxToolKey bounds what identifies a request, in bytes, so that every index entry fits.
const maxToolKey = 512

const insertToolRequest = `INSERT INTO tool_requests (id, agent, run_id, tool_name, status, created_at, due_at, updated_at, request, result)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) `

// InsertToolRequest stores a request unless its id is taken, and returns the status of the row that is there afterwards.
// Ids, names and agents that no index can hold are fault.Malformed.
func (t callTx) InsertToolRequest(ctx context.Context, r exchange.ToolRequest) (status string, err error) {
	arguments, err := t.toolRequestArguments(r)
	if err != nil {
		return "", err
	}

	inserted, err := t.sql.Change(ctx, insertToolRequest+`ON CONFLICT (id) DO NOTHING`, arguments...)
	if err != nil || inserted > 0 {
		return r.Status, err
	}

	_, err = first(ctx, t.sql, `SELECT status FROM tool_requests WHERE id = $1`, []any{r.ID}, &status)
	return status, err
}

func (t callTx) toolRequestArguments(r exchange.ToolRequest) ([]any, error) {
	for name, value := range map[string]string{"request_id": r.ID, "agent": r.Agent, "run_id": r.TurnID, "tool_name": r.ToolName} {
		if len(value) > maxToolKey {
			return nil, fault.InField(name, "is longer than 512 bytes")
		}
		if err := requireStorable(name, value); err != nil {
			return nil, err
		}
	}

	created := t.microsOrNow(r.CreatedAt)
	return []any{
		r.ID, r.Agent, r.TurnID, r.ToolName, r.Status, created, micros(r.TimeoutAt), created, cleaned(string(r.Request)), cleaned(string(r.Result)),
	}, nil
}

const endToolRequest = `UPDATE tool_requests SET status = $1, result = $2, updated_at = $3
	WHERE id = $4 AND status = '` + request.StatusPending + `'`

// EndToolRequest changes a pending request to a terminal status, with its result if there is one. It reports whether it did.
func (t callTx) EndToolRequest(ctx context.Context, id, status string, result json.RawMessage, at time.Time) (bool, error) {
	if !storable(id) {
		return false, nil
	}
	changed, err := t.sql.Change(ctx, endToolRequest, status, cleaned(string(result)), t.microsOrNow(at), id)
	return changed > 0, err
}

const pendingOfRun = `SELECT id FROM tool_requests WHERE run_id = $1 AND status = '` + request.StatusPending + `' ORDER BY created_at, id`

// PendingToolRequests returns the ids of the requests for which a turn waits.
func (t callTx) PendingToolRequests(ctx context.Context, turnID string) (ids []string, err error) {
	return column[string](ctx, t.sql, pendingOfRun, []any{turnID})
}

const (
	toolRequestColumns = `id, agent, run_id, tool_name, status, created_at, due_at, updated_at, request, result`
	toolRequestByID    = `SELECT ` + toolRequestColumns + ` FROM tool_requests WHERE id = $1`
)

// ToolRequest returns one request; fault.NotFound when there is none.
func (s callStore) ToolRequest(ctx context.Context, id string) (exchange.ToolRequest, error) {
	if !storable(id) {
		return exchange.ToolRequest{}, notFound("tool request")
	}
	found, err := s.toolRequests(ctx, toolRequestByID, []any{id})
	if err == nil && len(found) == 0 {
		err = notFound("tool request")
	}
	if err != nil {
		return exchange.ToolRequest{}, err
	}
	return found[0], nil
}

// ToolRequests lists requests, oldest first, at most 500; the pending ones unless filter.All. fault.Malformed for a cursor that is none.
func (s callStore) ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error) {
	query, arguments, err := selectToolRequests(filter)
	if err != nil {
		return nil, err
	}
	return s.toolRequests(ctx, query, arguments)
}

const countToolRequests = `SELECT COUNT(*) FROM (SELECT 1 FROM tool_requests WHERE status = '` + request.StatusPending + `' LIMIT $1 + 0) AS counted`

// CountToolRequests counts the requests that wait, no further than 10,000.
func (s callStore) CountToolRequests(ctx context.Context) (count int64, err error) {
	_, err = first(ctx, s.engine.Reader(), countToolRequests, []any{int64(maxCounted)}, &count)
	return count, err
}

func selectToolRequests(f exchange.ToolRequestFilter) (query string, arguments []any, err error) {
	var chosen selection
	order := "created_at, id"
	chosen.addWhen(!f.All, "status = '"+request.StatusPending+"'")
	chosen.addWhen(f.TurnID != "", "run_id = ?", cleaned(f.TurnID))
	chosen.addWhen(f.Agent != "", "agent = ?", cleaned(f.Agent))
	chosen.addWhen(f.ToolName != "", "tool_name = ?", cleaned(f.ToolName))
	chosen.addWhen(!f.CreatedBefore.IsZero(), "created_at < ?", micros(f.CreatedBefore))
	chosen.addWhen(!f.CreatedAfter.IsZero(), "created_at > ?", micros(f.CreatedAfter))
	if f.Before != "" {
		created, id, err := readCursor(f.Before)
		if err != nil {
			return "", nil, err
		}
		chosen.add("(created_at, id) > (?, ?)", created, id)
	}
	if !f.DueBy.IsZero() {
		chosen.add("due_at > 0 AND due_at <= ?", micros(f.DueBy))
		order = "due_at, id"
	}

	query = `SELECT ` + toolRequestColumns + ` FROM tool_requests` + chosen.sql() + chosen.page(order, f.Limit)
	return query, chosen.arguments, nil
}

func (s callStore) toolRequests(ctx context.Context, query string, arguments []any) ([]exchange.ToolRequest, error) {
	var found []exchange.ToolRequest
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var one exchange.ToolRequest
		var created, due, updated int64
		var document, result string
		if err := r.Scan(&one.ID, &one.Agent, &one.TurnID, &one.ToolName, &one.Status, &created, &due, &updated, &document, &result); err != nil {
			return err
		}

		one.CreatedAt, one.TimeoutAt, one.UpdatedAt = instant(created), instant(due), instant(updated)
		one.Request, one.Result = rawJSON(document), rawJSON(result)
		found = append(found, one)
		return nil
	})
	return found, err
}

// RunNotes keeps notes about the control of runs, such as who asked one to stop, by their run_id. They end thirty days after the
// last change.
type RunNotes struct{ db *shared }

// RunNotes returns the notes about runs.
func (d *shared) RunNotes() *RunNotes { return &RunNotes{d} }

// maxTaskRun bounds a run as JSON.
const maxTaskRun = 4 << 20

// Claim stores a new note and is true for exactly one caller of its run_id. A note over 4 MiB is fault.TooLarge, an id over 512 bytes fault.Malformed.
func (r *RunNotes) Claim(ctx context.Context, run map[string]any) (claimed bool, err error) {
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

	err = r.db.InTx(ctx, func(tx *Tx) error {
		now := r.db.nowMicros()
		inserted, err := tx.sql.Change(ctx, `INSERT INTO task_runs (id, created_at, updated_at, run) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO NOTHING`, id, now, now, encoded)
		claimed = inserted > 0
		return err
	})
	return claimed, err
}

func encodeTaskRun(run map[string]any) (string, error) {
	encoded, err := value.Encode(run)
	if err != nil {
		return "", fault.Wrap(fault.Malformed, "The run is not JSON.", err)
	}
	if len(encoded) > maxTaskRun {
		return "", fault.New(fault.TooLarge, "The run is over 4 MiB.")
	}

	return cleaned(string(encoded)), nil
}

const selectTaskRun = `SELECT run FROM task_runs WHERE id = $1`

// Get returns a note, nil when there is none. The caller may change what it gets.
func (r *RunNotes) Get(ctx context.Context, runID string) (map[string]any, error) {
	return taskRunFrom(ctx, r.db.engine.Reader(), runID)
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

// Update replaces a note by what change makes of it, with no other change in between, and returns the new one; nil when there is
// none. change may run more than once and must not keep what it gets.
func (r *RunNotes) Update(
	ctx context.Context, runID string, change func(run map[string]any) (map[string]any, error),
) (changed map[string]any, err error) {
	if !storable(runID) {
		return nil, nil
	}

	err = r.db.InTx(ctx, func(tx *Tx) error {
		changed = nil
		held, err := tx.sql.Change(ctx, `UPDATE task_runs SET updated_at = $1 WHERE id = $2`, micros(r.db.now()), runID) // holds the row
		if err != nil || held == 0 {
			return err
		}

		run, err := taskRunFrom(ctx, tx.sql, runID)
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
		return tx.sql.Do(ctx, `UPDATE task_runs SET run = $1 WHERE id = $2`, encoded, runID)
	})
	if err != nil {
		return nil, err
	}

	return changed, nil
}

// taskKey is the id of a run in the table, where notes about the control of other runs stand as well: no name that a caller
// chooses is one of theirs.
func taskKey(runID string) string { return "task:" + runID }

// maxTaskStart bounds what is kept of the start of a run, in bytes.
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

	now := t.nowMicros()
	changed, err := t.sql.Change(ctx, insertTaskRun, key, now, now, string(run.Started), run.Owner, run.TurnID)
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
	err = s.engine.Reader().Each(ctx, selectTaskRunRow, []any{taskKey(id)}, func(r row) error {
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
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
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
