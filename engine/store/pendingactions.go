package store

import (
	"context"
	"fmt"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/internal/fault"
)

// PendingActions keeps actions that wait for somebody's agreement: tool.PendingStore on the database, for programs that
// decide by agents/tool. What the server's own agents wait for are demands.
type PendingActions struct{ store *Store }

// PendingActions gives the library's view of pending actions.
func (s *Store) PendingActions() *PendingActions { return &PendingActions{s} }

// maxAction bounds an action as JSON.
const maxAction = 1 << 20

const insertAction = `INSERT INTO pending_actions (id, kind, agent, creator, resolver, status, stored_at, due_at, updated_at, recorded, action)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10) ON CONFLICT (id) DO NOTHING`

// Store implements tool.PendingStore. An action over 1 MiB is fault.TooLarge.
func (p *PendingActions) Store(ctx context.Context, action tool.PendingAction) error {
	checked, err := tool.ParsePending(action.Object())
	if err != nil {
		return fault.Wrap(fault.Malformed, "The pending action is not valid.", err)
	}
	encoded, err := encodeAction(checked)
	if err != nil {
		return err
	}
	if err := requireStorable("action_id", checked.ActionID); err != nil {
		return err
	}
	if len(checked.ActionID) > maxToolKey {
		return fault.InField("action_id", "is longer than 512 bytes")
	}
	return p.store.InTx(ctx, func(tx *Tx) error {
		due, _ := tool.ParseTime(checked.ExpiresAt) // without one it waits for ever
		now := nowMicros()
		inserted, err := tx.change(ctx, insertAction, checked.ActionID, cleaned(checked.Kind), cleaned(checked.Agent), cleaned(checked.Creator),
			cleaned(checked.Resolver), checked.Status, now, micros(due), now, encoded)
		if err != nil || inserted > 0 {
			return err
		}
		known, _, err := actionFrom(ctx, tx, checked.ActionID)
		if err == nil && !envelope.Equal(known.Object(), checked.Object()) {
			err = fault.New(fault.Conflict, "Another pending action has this id.")
		}
		return err
	})
}

func encodeAction(action tool.PendingAction) (string, error) {
	encoded, err := envelope.Encode(action.Object())
	if err != nil {
		return "", fault.Wrap(fault.Malformed, "The pending action is no JSON.", err)
	}
	if len(encoded) > maxAction {
		return "", fault.New(fault.TooLarge, "The pending action is over 1 MiB.")
	}
	return cleaned(string(encoded)), nil
}

const selectAction = `SELECT action, recorded FROM pending_actions WHERE id = $1`

// actionFrom gives fault.NotFound without such an action.
func actionFrom(ctx context.Context, from querier, id string) (action tool.PendingAction, recorded bool, err error) {
	var text string
	var flag int64
	found, err := first(ctx, from, selectAction, []any{cleaned(id)}, &text, &flag)
	if err == nil && !found {
		err = fault.New(fault.NotFound, "No such pending action.")
	}
	if err != nil {
		return action, false, err
	}
	action, err = decodeAction(text)
	return action, flag > 0, err
}

func decodeAction(text string) (tool.PendingAction, error) {
	value, err := envelope.Decode([]byte(text), envelope.Limits{Bytes: 2 * maxAction, Depth: 128})
	if err != nil {
		return tool.PendingAction{}, fmt.Errorf("decode pending action: %w", err)
	}
	action, err := tool.ParsePending(value)
	if err != nil {
		return action, fmt.Errorf("decode pending action: %w", err)
	}
	return action, nil
}

// Get implements tool.PendingStore.
func (p *PendingActions) Get(ctx context.Context, id string, includeResolved bool) (tool.PendingAction, error) {
	action, _, err := actionFrom(ctx, p.store.engine.reader(), id)
	if err == nil && action.Final() && !includeResolved {
		return tool.PendingAction{}, fault.New(fault.NotFound, "No such pending action.")
	}
	return action, err
}

// Bounds of a list (agent runtime contract, section 4.10).
const (
	actionsPage    = 100
	maxActionsPage = 1000
)

// List implements tool.PendingStore.
func (p *PendingActions) List(ctx context.Context, filter tool.PendingFilter) ([]tool.PendingAction, error) {
	if filter.Statuses == nil {
		filter.Statuses = []string{tool.StatePending}
	}
	if filter.Limit < 1 {
		filter.Limit = actionsPage
	}
	chosen := selectActions(filter)
	chosen.arguments = append(chosen.arguments, int64(min(filter.Limit, maxActionsPage)), int64(max(filter.Offset, 0)))
	size := len(chosen.arguments)
	query := `SELECT action FROM pending_actions` + chosen.sql() + fmt.Sprintf(` ORDER BY stored_at, id LIMIT $%d + 0 OFFSET $%d + 0`, size-1, size)
	actions := []tool.PendingAction{}
	err := p.store.engine.reader().each(ctx, query, chosen.arguments, func(r row) error {
		var text string
		if err := r.Scan(&text); err != nil {
			return err
		}
		action, err := decodeAction(text)
		actions = append(actions, action)
		return err
	})
	return actions, err
}

func selectActions(filter tool.PendingFilter) *selection {
	var chosen selection
	if filter.Statuses != nil {
		values := make([]any, len(filter.Statuses))
		for i, status := range filter.Statuses {
			values[i] = cleaned(status)
		}
		chosen.arguments = values
		chosen.where = append(chosen.where, "status IN ("+orNothing(placeholders(1, len(values)))+")")
	}
	for _, field := range []struct{ column, value string }{
		{"kind", filter.Kind}, {"agent", filter.Agent}, {"creator", filter.Creator}, {"resolver", filter.Resolver},
	} {
		chosen.addWhen(field.value != "", field.column+" = ?", cleaned(field.value))
	}
	return &chosen
}

// orNothing keeps an empty list of values valid SQL: no action has such a status.
func orNothing(list string) string {
	if list == "" {
		return "''"
	}
	return list
}

// Summary implements tool.PendingStore.
func (p *PendingActions) Summary(ctx context.Context, filter tool.PendingFilter) (tool.PendingSummary, error) {
	summary := tool.PendingSummary{ByStatus: map[string]int{}, ByKind: map[string]int{}}
	chosen := selectActions(filter)
	query := `SELECT status, kind, COUNT(*) FROM pending_actions` + chosen.sql() + ` GROUP BY status, kind`
	err := p.store.engine.reader().each(ctx, query, chosen.arguments, func(r row) error {
		var status, kind string
		var count int
		if err := r.Scan(&status, &kind, &count); err != nil {
			return err
		}
		summary.Total += count
		summary.ByStatus[status] += count
		summary.ByKind[kind] += count
		return nil
	})
	return summary, err
}

// holdAction takes the row until the commit, so that of two that change it the second sees what the first did.
const holdAction = `UPDATE pending_actions SET updated_at = $1 WHERE id = $2`

const updateAction = `UPDATE pending_actions SET status = $1, resolver = $2, recorded = $3, action = $4, updated_at = $5 WHERE id = $6`

// update lets change see the action alone; false = there is none, or change made nothing of it.
func (p *PendingActions) update(ctx context.Context, id string, change func(action *tool.PendingAction, recorded *bool) (bool, error)) (done bool, err error) {
	id = cleaned(id)
	err = p.store.InTx(ctx, func(tx *Tx) error {
		done = false
		held, err := tx.change(ctx, holdAction, nowMicros(), id)
		if err != nil || held == 0 {
			return err
		}
		action, recorded, err := actionFrom(ctx, tx, id)
		if err != nil {
			return err
		}
		changed, err := change(&action, &recorded)
		if err != nil || !changed {
			return err
		}
		encoded, err := encodeAction(action)
		if err != nil {
			return err
		}
		done = true
		return tx.do(ctx, updateAction, action.Status, cleaned(action.Resolver), flag(recorded), encoded, nowMicros(), id)
	})
	return done, err
}

// RecordResolution implements tool.PendingStore.
func (p *PendingActions) RecordResolution(ctx context.Context, resolution tool.Resolution, moment time.Time) (bool, error) {
	if err := resolution.Check(); err != nil {
		return false, err
	}
	return p.update(ctx, resolution.ActionID, func(action *tool.PendingAction, _ *bool) (bool, error) {
		return action.Decide(resolution, moment), nil
	})
}

// RecordResult implements tool.PendingStore.
func (p *PendingActions) RecordResult(ctx context.Context, id string, result any, failure string) error {
	done, err := p.update(ctx, id, func(action *tool.PendingAction, recorded *bool) (bool, error) {
		if *recorded || action.Status != tool.StateAccepted && action.Status != tool.StateRejected {
			return false, fault.New(fault.Conflict, "The result of this action cannot be recorded (again).")
		}
		*recorded = true
		action.ResolutionResult, action.ResolutionError = envelope.Plain(envelope.Clone(result)), failure
		return true, nil
	})
	if err == nil && !done {
		err = fault.New(fault.NotFound, "No such pending action.")
	}
	return err
}

const dueActions = `SELECT id FROM pending_actions WHERE status = '` + tool.StatePending + `' AND due_at > 0 AND due_at <= $1
	ORDER BY due_at, id LIMIT $2 + 0`

// Expire implements tool.PendingStore.
func (p *PendingActions) Expire(ctx context.Context, moment time.Time) (int, error) {
	expired := 0
	for {
		ids, err := p.due(ctx, moment)
		if err != nil {
			return expired, err
		}
		ended := 0
		for _, id := range ids {
			done, err := p.update(ctx, id, func(action *tool.PendingAction, _ *bool) (bool, error) { return action.Expire(moment), nil })
			if err != nil {
				return expired, err
			}
			if done {
				ended++
			}
		}
		if expired += ended; len(ids) < maxPage || ended == 0 {
			return expired, nil
		}
	}
}

func (p *PendingActions) due(ctx context.Context, moment time.Time) (ids []string, err error) {
	err = p.store.engine.reader().each(ctx, dueActions, []any{micros(moment), int64(maxPage)}, func(r row) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// Delete implements tool.PendingStore.
func (p *PendingActions) Delete(ctx context.Context, id, resolver string, moment time.Time) (bool, error) {
	if envelope.Trim(resolver) == "" {
		return false, fault.InField("resolver", "Say who deletes the action.")
	}
	return p.update(ctx, id, func(action *tool.PendingAction, _ *bool) (bool, error) { return action.Drop(resolver, moment), nil })
}
