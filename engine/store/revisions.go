package store

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/engine/delivery"
	"inbox/exchange"
)

const reviseReply = `UPDATE replies SET response = $1, posts = $2, revision = $3, edited_at = $4, deleted_at = $5
	WHERE id = $6 AND revision = $7 AND deleted_at = 0`

// leaveHistory takes an answer out of the history; the question stays when it is there.
const leaveHistory = `UPDATE turns SET history_turns = history_turns - 1, updated_at = $1
	WHERE id = $2 AND reply_id = $3 AND history_turns > 0`

// ReviseReply stores an edited or deleted reply; see delivery.Tx.
func (t *Tx) ReviseReply(ctx context.Context, reply exchange.Reply, from int, event exchange.Event) (bool, error) {
	response, err := json.Marshal(reply.Response)
	if err != nil {
		return false, fmt.Errorf("encode response: %w", err)
	}
	changed, err := t.change(ctx, reviseReply, cleaned(string(response)), int64(reply.Posts), int64(reply.Revision),
		micros(reply.EditedAt), micros(reply.DeletedAt), reply.ID, int64(from))
	if err != nil || changed == 0 {
		return false, err
	}
	if err := t.amendOutcome(ctx, reply.TurnID, reply.ID, &reply.Response); err != nil {
		return false, err
	}
	// The event comes first: its number must be higher than those of the pieces that go.
	if err := t.AppendEvents(ctx, reply.TurnID, []exchange.Event{event}); err != nil || reply.DeletedAt.IsZero() {
		return err == nil, err
	}
	if err := t.do(ctx, leaveHistory, micros(reply.DeletedAt), reply.TurnID, reply.ID); err != nil {
		return false, err
	}
	return true, t.do(ctx, removeDeltas, reply.TurnID)
}

const removeDeltas = `DELETE FROM events WHERE turn_id = $1 AND kind = '` + exchange.EventDelta + `'`

const selectSendings = `SELECT ` + deliveryColumns + ` FROM deliveries d
	WHERE d.turn_id = $1 AND d.id > $2 AND d.reply_id = $3 AND d.action = '' ORDER BY d.id LIMIT $4 + 0`

// Sendings returns the deliveries of a reply itself with ids after the given one, in order.
func (s *Store) Sendings(ctx context.Context, reply exchange.Reply, after string, limit int) ([]delivery.Record, error) {
	var records []delivery.Record
	arguments := []any{reply.TurnID, after, reply.ID, pageSize(limit)}
	err := s.engine.reader().each(ctx, selectSendings, arguments, func(r row) error {
		var record deliveryRow
		if err := r.Scan(record.columns()...); err != nil {
			return err
		}
		records = append(records, record.finish())
		return nil
	})
	return records, err
}

const removeJobs = `DELETE FROM jobs WHERE partition_key = $1 AND partition_key <> '' AND payload = $2
	AND state <> 'dead' AND state <> 'running'`

// RemoveJob removes the jobs of a partition with the payload that do not run, dead ones excepted: nothing waits for
// those.
func (t *Tx) RemoveJob(ctx context.Context, kind, partition, payload string) (bool, error) {
	key := partitionKey(kind, partition)
	removed, err := t.change(ctx, removeJobs, key, payload)
	if err != nil || removed == 0 {
		return false, err
	}
	return true, t.promote(ctx, kind, key)
}
