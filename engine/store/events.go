package store

import (
	"context"
	"encoding/json"

	"inbox/exchange"
)

const appendEvent = `INSERT INTO events (turn_id, seq, kind, body, at)
	SELECT $1, COALESCE(MAX(seq), 0) + 1, $2, $3, $4 FROM events WHERE turn_id = $1`

// appendDelta writes none to a turn that has ended: an agent on another node may speak for a moment after its run was stopped,
// and what was said in it was perhaps deleted by then.
const appendDelta = appendEvent + ` HAVING EXISTS (SELECT 1 FROM turns
	WHERE id = $1 AND state NOT IN ('answered', 'refused', 'failed', 'silent', 'cancelled'))`

// appendEvent writes the next row of a timeline. The caller holds the turn's row, so that no other transaction
// counts at the same time.
func (t *Tx) appendEvent(ctx context.Context, turnID, kind, body string, at int64) error {
	if kind == exchange.EventDelta {
		return t.do(ctx, appendDelta, turnID, kind, body, at)
	}
	return t.do(ctx, appendEvent, turnID, kind, body, at)
}

// holdTurn takes the turn's row until the commit. On SQLite the one writer holds everything already.
func (t *Tx) holdTurn(ctx context.Context, turnID string) error {
	if t.dialect.holdTurn == "" {
		return nil
	}
	return t.do(ctx, t.dialect.holdTurn, turnID)
}

// AppendEvents writes rows to the end of a turn's timeline, in order; deltas only as long as the turn has not ended.
// Seq and TurnID of the events are not read.
func (t *Tx) AppendEvents(ctx context.Context, turnID string, events []exchange.Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := t.holdTurn(ctx, turnID); err != nil {
		return err
	}
	for _, event := range events {
		at := micros(event.At)
		if at == 0 {
			at = nowMicros()
		}
		if err := t.appendEvent(ctx, turnID, event.Kind, cleaned(string(event.Body)), at); err != nil {
			return err
		}
	}
	t.wake(ChannelTurn, turnID)
	return nil
}

// A bare parameter behind LIMIT makes SQLite (3.53) parse and plan the statement anew at every call, because its value
// may change the plan; an expression does not. All statements of this room therefore say "LIMIT $n + 0".
const selectEvents = `SELECT seq, kind, body, at FROM events WHERE turn_id = $1 AND seq > $2 ORDER BY seq LIMIT $3 + 0`

// Events returns at most limit timeline rows of a turn with a higher seq than after, in order.
func (s *Store) Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error) {
	var events []exchange.Event
	err := s.engine.reader().each(ctx, selectEvents, []any{turnID, after, int64(limit)}, func(r row) error {
		event := exchange.Event{TurnID: turnID}
		var body string
		var at int64
		if err := r.Scan(&event.Seq, &event.Kind, &body, &at); err != nil {
			return err
		}
		event.At, event.Body = instant(at), rawJSON(body)
		events = append(events, event)
		return nil
	})
	return events, err
}

func rawJSON(stored string) json.RawMessage {
	if stored == "" {
		return nil
	}
	return json.RawMessage(stored)
}
