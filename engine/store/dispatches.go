package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

const insertDispatch = `INSERT INTO dispatches (id, turn_id, number, state, created_at, updated_at, call, response)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING`

// InsertDispatch stores a call of one of our agents to another agent. A second one with the id is fault.Conflict; a text
// that PostgreSQL cannot keep is fault.Malformed.
func (t *Tx) InsertDispatch(ctx context.Context, d exchange.Dispatch) error {
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
	inserted, err := t.change(ctx, insertDispatch, d.ID, d.TurnID, int64(d.Number), d.State, micros(d.CreatedAt),
		micros(updated), cleaned(string(call)), response)
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
func (t *Tx) FinishDispatch(ctx context.Context, id string, response normalized.Response, at time.Time) (bool, error) {
	body, err := encodeResponse(&response)
	if err != nil {
		return false, err
	}
	changed, err := t.change(ctx, finishDispatch, body, microsOrNow(at), cleaned(id))
	return changed > 0, err
}

const (
	selectDispatch   = `SELECT id, turn_id, number, state, created_at, updated_at, call, response FROM dispatches `
	dispatchByID     = selectDispatch + `WHERE id = $1`
	dispatchesOfTurn = selectDispatch + `WHERE turn_id = $1 ORDER BY number, id`
)

// Dispatches returns the calls of a turn in the order of their numbers.
func (t *Tx) Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error) {
	return dispatchesFrom(ctx, t, dispatchesOfTurn, turnID)
}

// Dispatches returns the calls of a turn in the order of their numbers.
func (s *Store) Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error) {
	return dispatchesFrom(ctx, s.engine.reader(), dispatchesOfTurn, turnID)
}

// Dispatch returns one call; fault.NotFound when there is none.
func (s *Store) Dispatch(ctx context.Context, id string) (exchange.Dispatch, error) {
	found, err := dispatchesFrom(ctx, s.engine.reader(), dispatchByID, id)
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
	err := from.each(ctx, query, []any{cleaned(key)}, func(r row) error {
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
