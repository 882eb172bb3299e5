package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

const deliveryColumns = `d.id, d.turn_id, d.reply_id, d.agent, d.channel, d.native_id, d.destination, d.address, d.data,
	d.state, d.reason, d.attempt, d.next_at, d.created_at, d.updated_at, d.action, d.revision, d.bulk, d.returned`

const insertDelivery = `INSERT INTO deliveries (id, turn_id, reply_id, agent, channel, native_id, destination, address,
	data, state, reason, attempt, next_at, created_at, updated_at, action, revision, bulk)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)`

// maxDestinationBytes bounds a destination key: a host with a port, or a domain (RFC 1035, section 2.3.4).
const maxDestinationBytes = 512

// InsertDelivery stores a reply's way to one destination.
func (t *Tx) InsertDelivery(ctx context.Context, d delivery.Record) error {
	if err := requireStorable("destination", d.Key, "native_id", d.NativeID); err != nil {
		return err
	}
	if len(d.Key) > maxDestinationBytes {
		return fault.InField("destination", "is longer than 512 bytes")
	}

	return t.do(ctx, insertDelivery, d.ID, d.TurnID, d.ReplyID, d.Agent, d.Channel, d.NativeID, d.Key, cleaned(d.Address),
		cleaned(string(d.Data)), d.State, cleaned(d.Reason), int64(d.Attempt), micros(d.NextAt), micros(d.CreatedAt),
		micros(d.UpdatedAt), d.Action, int64(d.Revision), flag(d.Bulk))
}

// MoveDelivery changes a delivery's state when it is in one of the states of move.From, and writes move.Event to the
// turn's timeline. It reports whether it did.
func (t *Tx) MoveDelivery(ctx context.Context, move delivery.Move) (bool, error) {
	query := `UPDATE deliveries SET state = $1, reason = $2, attempt = $3,
		next_at = $4, updated_at = $5 WHERE id = $6 AND state IN (` + placeholders(7, len(move.From)) + `) RETURNING turn_id, returned`
	arguments := []any{
		move.To, cleaned(move.Reason), int64(move.Attempt), micros(move.NextAt), micros(move.At), move.ID,
	}
	for _, state := range move.From {
		arguments = append(arguments, state)
	}

	var turnID, returned string
	found, err := first(ctx, t, query, arguments, &turnID, &returned)
	if err == nil && found && len(move.Returned) > 0 {
		err = t.addReturned(ctx, move, returned)
	}
	if err != nil || !found || move.Event.Kind == "" {
		return found, err
	}

	event := move.Event
	if event.At.IsZero() {
		event.At = move.At
	}

	return true, t.AppendEvents(ctx, turnID, []exchange.Event{event})
}

// addReturned adds recipients to those who do not have a delivery; its row is held by this transaction.
func (t *Tx) addReturned(ctx context.Context, move delivery.Move, stored string) error {
	all := map[string]string{}
	if stored != "" {
		if err := json.Unmarshal([]byte(stored), &all); err != nil {
			return fmt.Errorf("decode recipients of delivery %s: %w", move.ID, err)
		}
	}

	for recipient, reason := range move.Returned {
		all[cleaned(recipient)] = cleaned(reason)
	}

	body, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode recipients of delivery %s: %w", move.ID, err)
	}

	return t.do(ctx, `UPDATE deliveries SET returned = $1 WHERE id = $2`, string(body), move.ID)
}

const selectDelivery = `SELECT ` + replyColumns + `, ` + deliveryColumns + ` FROM deliveries d
	JOIN replies r ON r.id = d.reply_id JOIN turns t ON t.id = r.turn_id WHERE d.id = $1`

// Delivery returns a delivery and the reply that it carries; fault.NotFound when there is none.
func (s *Store) Delivery(ctx context.Context, id string) (delivery.Record, exchange.Reply, error) {
	var record deliveryRow
	var reply exchange.Reply
	found := false
	err := s.engine.reader().each(ctx, selectDelivery, []any{id}, func(r row) (err error) {
		found = true
		var nativeID string
		reply, err = scanReply(r, &nativeID, record.columns()...)
		return err
	})
	if err == nil && !found {
		err = notFound("delivery")
	}

	return record.finish(), reply, err
}

// Deliveries lists deliveries, newest first.
func (s *Store) Deliveries(ctx context.Context, filter delivery.Filter) ([]delivery.Record, error) {
	var chosen selection
	chosen.addWhen(filter.TurnID != "", "d.turn_id = ?", filter.TurnID)
	chosen.addWhen(filter.State != "", "d.state = ?", filter.State)
	chosen.addWhen(filter.Key != "", "d.destination = ?", filter.Key)
	chosen.addWhen(filter.Before != "", "d.id < ?", filter.Before)
	query := `SELECT ` + deliveryColumns + ` FROM deliveries d` + chosen.sql() + chosen.page("d.id DESC", filter.Limit)
	var records []delivery.Record
	err := s.engine.reader().each(ctx, query, chosen.arguments, func(r row) error {
		var record deliveryRow
		if err := r.Scan(record.columns()...); err != nil {
			return err
		}
		records = append(records, record.finish())
		return nil
	})
	return records, err
}

// deliveryRow is a delivery while it is being scanned.
type deliveryRow struct {
	record                 delivery.Record
	data, returned         string
	next, created, updated int64
	bulk                   int64
}

func (d *deliveryRow) columns() []any {
	r := &d.record
	return []any{
		&r.ID, &r.TurnID, &r.ReplyID, &r.Agent, &r.Channel, &r.NativeID, &r.Key, &r.Address, &d.data,
		&r.State, &r.Reason, &r.Attempt, &d.next, &d.created, &d.updated, &r.Action, &r.Revision, &d.bulk, &d.returned,
	}
}

func (d *deliveryRow) finish() delivery.Record {
	d.record.Data, d.record.Bulk = rawJSON(d.data), d.bulk == 1
	if d.returned != "" {
		_ = json.Unmarshal([]byte(d.returned), &d.record.Returned) // the store wrote it; a row that was changed by hand is shown without
	}
	d.record.NextAt, d.record.CreatedAt, d.record.UpdatedAt = instant(d.next), instant(d.created), instant(d.updated)
	return d.record
}

// maxSent bounds the agents whose copy of one message a change reaches.
const maxSent = 100

const selectSent = `SELECT t.id, t.state, t.message, t.route, t.history_turns, COALESCE(r.response, ''),
	CASE WHEN EXISTS (SELECT 1 FROM events e WHERE e.turn_id = t.id AND e.kind = '` + exchange.EventMessageEdited + `') THEN 1 ELSE 0 END
	FROM turns t LEFT JOIN replies r ON r.id = t.reply_id
	WHERE t.native_key = $1 AND t.native_id = $2 AND t.principal = $3 AND (t.agent = $4 OR $4 = '') ORDER BY t.id LIMIT $5 + 0`

// SentMessages returns the messages with the native id that the principal sent to the agent, or to any agent when it is
// empty, at most 100.
func (s *Store) SentMessages(ctx context.Context, agent, nativeID, principal string) ([]pipeline.SentMessage, error) {
	if nativeID == "" || !storable(nativeID) || !storable(principal) || !storable(agent) {
		return nil, nil
	}
	var found []pipeline.SentMessage
	arguments := []any{hashKey(nativeID), nativeID, principal, agent, int64(maxSent)}
	err := s.engine.reader().each(ctx, selectSent, arguments, func(r row) error {
		sent, err := scanSent(r)
		found = append(found, sent)
		return err
	})
	return found, err
}

func scanSent(r row) (sent pipeline.SentMessage, err error) {
	var message, route, response string
	var turns, edited int64
	if err := r.Scan(&sent.TurnID, &sent.State, &message, &route, &turns, &response, &edited); err != nil {
		return sent, err
	}

	sent.Edited, sent.Route = edited == 1, rawJSON(route)
	if sent.Withdrawn, err = withdrawn(turns, sent.State, response); err != nil {
		return sent, fmt.Errorf("decode response of turn %s: %w", sent.TurnID, err)
	}
	if err := json.Unmarshal([]byte(message), &sent.Message); err != nil {
		return sent, fmt.Errorf("decode message of turn %s: %w", sent.TurnID, err)
	}

	return sent, nil
}

// withdrawn reports whether the question is out of the history for good: one turn of an exchange with a visible answer is
// the answer, and nothing is left of one without, unless it waits for the operator.
func withdrawn(turns int64, state, response string) (bool, error) {
	if turns != 1 || response == "" {
		return turns == 0 && state != exchange.StateHeld, nil
	}
	var answer normalized.Response
	err := json.Unmarshal([]byte(response), &answer)
	return historyTurns(answer) == 2, err
}

// AmendTurn stores the message in place of the one that is there.
func (t *Tx) AmendTurn(ctx context.Context, turnID string, message normalized.Message, at time.Time) error {
	message.History = nil
	body, err := message.AppendJSON(nil)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}

	t.wake(ChannelTurn, turnID)
	return t.do(ctx, `UPDATE turns SET message = $1, updated_at = $2 WHERE id = $3`, cleaned(string(body)), micros(at), turnID)
}

// AmendRoute stores new notes on how to answer.
func (t *Tx) AmendRoute(ctx context.Context, turnID string, route json.RawMessage) error {
	return t.do(ctx, `UPDATE turns SET route = $1 WHERE id = $2`, cleaned(string(route)), turnID)
}

// Turns without an answer: what has a job, waits for a person, or waits for other agents.
const selectOpen = `SELECT t.id FROM jobs j JOIN turns t ON t.id = j.payload
		WHERE j.kind = $1 AND t.principal = $2 AND (t.agent = $3 OR $3 = '') AND t.state IN ($4, $5)
	UNION SELECT t.id FROM demands d JOIN turns t ON t.id = d.turn_id
		WHERE d.status IN ('issued', 'claimed') AND t.principal = $2 AND (t.agent = $3 OR $3 = '') AND t.state = $6
	UNION SELECT t.id FROM jobs j JOIN dispatches d ON d.id = j.payload JOIN turns t ON t.id = d.turn_id
		WHERE j.kind = $7 AND t.principal = $2 AND (t.agent = $3 OR $3 = '') AND t.state = $6`

// OpenTurns returns the ids of the principal's turns that run, are to run or wait for a person; empty agent = of any.
func (s *Store) OpenTurns(ctx context.Context, agent, principal string) (ids []string, err error) {
	if !storable(principal) || !storable(agent) {
		return nil, nil
	}
	arguments := []any{
		pipeline.JobKind, principal, agent, exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, pipeline.DispatchKind,
	}
	err = s.engine.reader().each(ctx, selectOpen, arguments, func(r row) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

const selectWithdrawn = `SELECT t.state, t.history_turns, COALESCE(r.response, '')
	FROM turns t LEFT JOIN replies r ON r.id = t.reply_id WHERE t.id = $1`

// WithdrawTurn takes the question of a turn out of the history and erases what it said; a visible answer stays. It reports
// whether the question was there.
func (t *Tx) WithdrawTurn(ctx context.Context, turnID string, at time.Time) (bool, error) {
	if err := t.holdTurn(ctx, turnID); err != nil {
		return false, err
	}
	var state, response string
	var turns int64
	found, err := first(ctx, t, selectWithdrawn, []any{turnID}, &state, &turns, &response)
	if err != nil || !found || turns == 0 {
		return false, err
	}

	if gone, err := withdrawn(turns, state, response); err != nil || gone {
		return false, err
	}
	t.wake(ChannelTurn, turnID)
	if err := t.do(ctx, `UPDATE turns SET history_turns = $1, updated_at = $2 WHERE id = $3`, turns-1, micros(at), turnID); err != nil {
		return false, err
	}

	return true, t.erase(ctx, turnID, response == "")
}

// A failure on another day than the last one counts. The later pause holds, and a destination that failed on enough
// days is given up for good: only ClearCondition brings it back.
const worsenCondition = `INSERT INTO destinations (channel, destination, paused_until, opened, failing_days, failed_day, dead_at,
		reason, updated_at) VALUES ($1, $2, $3, $4, 1, $5, CASE WHEN CAST($6 AS BIGINT) <= 1 THEN CAST($8 AS BIGINT) ELSE 0 END, $7, $8)
	ON CONFLICT (channel, destination) DO UPDATE SET
		paused_until = CASE WHEN excluded.paused_until > destinations.paused_until THEN excluded.paused_until ELSE destinations.paused_until END,
		opened = CASE WHEN excluded.opened > destinations.opened THEN excluded.opened ELSE destinations.opened END,
		failing_days = destinations.failing_days + CASE WHEN excluded.failed_day > destinations.failed_day THEN 1 ELSE 0 END,
		failed_day = CASE WHEN excluded.failed_day > destinations.failed_day THEN excluded.failed_day ELSE destinations.failed_day END,
		dead_at = CASE WHEN destinations.dead_at > 0 THEN destinations.dead_at
			WHEN destinations.failing_days + CASE WHEN excluded.failed_day > destinations.failed_day THEN 1 ELSE 0 END >= $6
			THEN excluded.updated_at ELSE 0 END,
		reason = excluded.reason, updated_at = excluded.updated_at`

// WorsenCondition notes a failure of a destination; see delivery.Tx.
func (t *Tx) WorsenCondition(ctx context.Context, failure delivery.Condition, deadAfter int) error {
	return t.do(ctx, worsenCondition, failure.Channel, failure.Key, micros(failure.PausedUntil), int64(failure.Opened),
		failure.FailedDay, int64(deadAfter), cleaned(failure.Reason), microsOrNow(failure.UpdatedAt))
}

// ClearCondition forgets what is known of a destination.
func (t *Tx) ClearCondition(ctx context.Context, channel, key string) error {
	return t.do(ctx, `DELETE FROM destinations WHERE channel = $1 AND destination = $2`, channel, key)
}

const selectConditions = `SELECT channel, destination, paused_until, opened, failing_days, failed_day, dead_at, reason, updated_at
	FROM destinations ORDER BY updated_at DESC LIMIT $1 + 0`

// Conditions returns the destinations that fail, the last changed first.
func (s *Store) Conditions(ctx context.Context, limit int) ([]delivery.Condition, error) {
	var list []delivery.Condition
	err := s.engine.reader().each(ctx, selectConditions, []any{int64(limit)}, func(r row) error {
		var c delivery.Condition
		var paused, dead, updated int64
		err := r.Scan(&c.Channel, &c.Key, &paused, &c.Opened, &c.FailingDays, &c.FailedDay, &dead, &c.Reason, &updated)
		c.PausedUntil, c.DeadAt, c.UpdatedAt = instant(paused), instant(dead), instant(updated)
		list = append(list, c)
		return err
	})
	return list, err
}

// conditionAge is how long a destination is remembered that no longer fails because nothing is sent there.
const conditionAge = 90 * 24 * time.Hour

const sweepConditions = `DELETE FROM destinations WHERE updated_at <= $1
	AND (channel, destination) IN (SELECT channel, destination FROM destinations WHERE updated_at <= $1 LIMIT $2 + 0)`
