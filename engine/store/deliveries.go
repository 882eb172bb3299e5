package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/fault"
)

// deliveryStore finds deliveries and what is known of their destinations.
type deliveryStore struct{ *shared }

// deliveryTx changes both in a transaction.
type deliveryTx struct{ *transaction }

const deliveryColumns = `d.id, d.turn_id, d.reply_id, d.agent, d.channel, d.native_id, d.destination, d.address, d.data,
	d.state, d.reason, d.attempt, d.next_at, d.created_at, d.updated_at, d.action, d.revision, d.bulk, d.returned, d.done, d.trace`

const insertDelivery = `INSERT INTO deliveries (id, turn_id, reply_id, agent, channel, native_id, destination, address,
	data, state, reason, attempt, next_at, created_at, updated_at, action, revision, bulk, trace)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`

// maxDestinationBytes bounds a destination key: a host with a port, or a domain (RFC 1035, section 2.3.4).
const maxDestinationBytes = 512

// InsertDelivery stores a reply's way to one destination.
func (t deliveryTx) InsertDelivery(ctx context.Context, d delivery.Record) error {
	if err := requireStorable("destination", d.Key, "native_id", d.NativeID); err != nil {
		return err
	}
	if len(d.Key) > maxDestinationBytes {
		return fault.InField("destination", "is longer than 512 bytes")
	}

	return t.sql.Do(ctx, insertDelivery, d.ID, d.TurnID, d.ReplyID, d.Agent, d.Channel, d.NativeID, d.Key, cleaned(d.Address),
		cleaned(string(d.Data)), d.State, cleaned(d.Reason), int64(d.Attempt), micros(d.NextAt), micros(d.CreatedAt),
		micros(d.UpdatedAt), d.Action, int64(d.Revision), flag(d.Bulk), d.Trace)
}

// MoveDelivery changes a delivery's state when it is in one of the states of move.From, and writes move.Event to the
// turn's timeline. It reports whether it did.
func (t deliveryTx) MoveDelivery(ctx context.Context, move delivery.Move) (bool, error) {
	query := `UPDATE deliveries SET state = $1, reason = $2, attempt = $3,
		next_at = $4, updated_at = $5 WHERE id = $6 AND state IN (` + placeholders(7, len(move.From)) + `) RETURNING turn_id, returned, done, agent`
	arguments := []any{
		move.To, cleaned(move.Reason), int64(move.Attempt), micros(move.NextAt), micros(move.At), move.ID,
	}
	for _, state := range move.From {
		arguments = append(arguments, state)
	}

	var turnID, returned, done, agent string
	found, err := first(ctx, t.sql, query, arguments, &turnID, &returned, &done, &agent)
	if err == nil && found && len(move.Returned) > 0 {
		err = t.addReturned(ctx, move, returned)
	}
	if err == nil && found && len(move.Done) > 0 {
		err = t.addDone(ctx, move, done)
	}
	if err == nil && found {
		err = t.countDelivery(ctx, move, turnID, agent)
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

// countDelivery lets the operator hear of a delivery that was given up, and of a mail that came back. A notice of which that is true is
// in the log alone.
func (t deliveryTx) countDelivery(ctx context.Context, move delivery.Move, turnID, agent string) error {
	dead := move.To == delivery.StateDead && !slices.Contains(move.From, delivery.StateDead)
	bounced := move.Event.Kind == exchange.EventDeliveryBounced || move.Event.Kind == exchange.EventDeliveryComplaint
	if !dead && !bounced {
		return nil
	}
	if about, err := t.aboutNotice(ctx, turnID); err != nil || about {
		return err
	}

	if dead {
		t.count(exchange.NoticeDelivery, agent, exchange.NoticeExample{ID: turnID, Note: move.Reason})
	}
	if bounced {
		t.count(exchange.NoticeBounce, agent, exchange.NoticeExample{ID: turnID, Note: move.Reason})
	}
	return nil
}

// addReturned adds recipients to those who do not have a delivery; its row is held by this transaction.
func (t deliveryTx) addReturned(ctx context.Context, move delivery.Move, stored string) error {
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

	return t.sql.Do(ctx, `UPDATE deliveries SET returned = $1 WHERE id = $2`, string(body), move.ID)
}

// addDone adds recipients to those who need no further attempt; its row is held by this transaction.
func (t deliveryTx) addDone(ctx context.Context, move delivery.Move, stored string) error {
	var all []string
	if stored != "" {
		if err := json.Unmarshal([]byte(stored), &all); err != nil {
			return fmt.Errorf("decode recipients of delivery %s: %w", move.ID, err)
		}
	}

	for _, recipient := range move.Done {
		if one := cleaned(recipient); !slices.Contains(all, one) {
			all = append(all, one)
		}
	}

	body, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode recipients of delivery %s: %w", move.ID, err)
	}

	return t.sql.Do(ctx, `UPDATE deliveries SET done = $1 WHERE id = $2`, string(body), move.ID)
}

const selectStanding = `SELECT d.state, r.revision, r.deleted_at FROM deliveries d JOIN replies r ON r.id = d.reply_id WHERE d.id = $1`

// Standing returns what decides whether the attempt of a delivery may begin; fault.NotFound when there is none.
func (s deliveryStore) Standing(ctx context.Context, id string) (delivery.Standing, error) {
	var standing delivery.Standing
	var revision, deleted int64
	found, err := first(ctx, s.engine.Reader(), selectStanding, []any{id}, &standing.State, &revision, &deleted)
	if err == nil && !found {
		err = notFound("delivery")
	}
	standing.Revision, standing.Deleted = int(revision), deleted != 0
	return standing, err
}

const selectDelivery = `SELECT ` + replyColumns + `, ` + deliveryColumns + ` FROM deliveries d
	JOIN replies r ON r.id = d.reply_id JOIN turns t ON t.id = r.turn_id WHERE d.id = $1`

// Delivery returns a delivery and the reply that it carries; fault.NotFound when there is none.
func (s deliveryStore) Delivery(ctx context.Context, id string) (delivery.Record, exchange.Reply, error) {
	var record deliveryRow
	var reply exchange.Reply
	found := false
	err := s.engine.Reader().Each(ctx, selectDelivery, []any{id}, func(r row) (err error) {
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
func (s deliveryStore) Deliveries(ctx context.Context, filter delivery.Filter) ([]delivery.Record, error) {
	var chosen selection
	chosen.addWhen(filter.TurnID != "", "d.turn_id = ?", filter.TurnID)
	chosen.addWhen(filter.State != "", "d.state = ?", filter.State)
	chosen.addWhen(!filter.ChangedSince.IsZero(), "d.updated_at > ?", micros(filter.ChangedSince))
	chosen.addWhen(filter.Key != "", "d.destination = ?", filter.Key)
	chosen.addWhen(filter.Agent != "", "d.agent = ?", cleaned(filter.Agent))
	chosen.addWhen(filter.Channel != "", "d.channel = ?", cleaned(filter.Channel))
	chosen.addWhen(!filter.Since.IsZero(), "d.id >= ?", firstID(filter.Since))
	chosen.addWhen(!filter.Until.IsZero(), "d.id < ?", firstID(filter.Until))
	chosen.addWhen(filter.Before != "", "d.id < ?", cleaned(filter.Before))
	query := `SELECT ` + deliveryColumns + ` FROM deliveries d` + chosen.sql() + chosen.page("d.id DESC", filter.Limit)
	return s.records(ctx, query, chosen.arguments...)
}

const countDeliveries = `SELECT COUNT(*) FROM (SELECT 1 FROM deliveries WHERE state = $1 LIMIT $2 + 0) AS counted`

// CountDeliveries counts the deliveries in a state, no further than 10,000.
func (s deliveryStore) CountDeliveries(ctx context.Context, state string) (count int64, err error) {
	_, err = first(ctx, s.engine.Reader(), countDeliveries, []any{state, int64(maxCounted)}, &count)
	return count, err
}

func (s deliveryStore) records(ctx context.Context, query string, arguments ...any) ([]delivery.Record, error) {
	var records []delivery.Record
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var record deliveryRow
		if err := r.Scan(record.columns()...); err != nil {
			return err
		}

		records = append(records, record.finish())
		return nil
	})
	return records, err
}

const selectSendings = `SELECT ` + deliveryColumns + ` FROM deliveries d
	WHERE d.turn_id = $1 AND d.id > $2 AND d.reply_id = $3 AND d.action = '' ORDER BY d.id LIMIT $4 + 0`

// Sendings returns the deliveries of a reply itself with ids after the given one, in order.
func (s deliveryStore) Sendings(ctx context.Context, reply exchange.Reply, after string, limit int) ([]delivery.Record, error) {
	return s.records(ctx, selectSendings, reply.TurnID, after, reply.ID, pageSize(limit))
}

// The ids of deliveries begin with their time, so that the recent ones are at the end of the table.
const selectRecent = `SELECT DISTINCT address FROM deliveries WHERE id >= $1 AND agent = $2 AND channel = $3 AND state = '` +
	delivery.StateDelivered + `' AND address > $4 ORDER BY address LIMIT $5 + 0`

// RecentAddresses returns the addresses that took something of the agent by a channel since the instant, in order after the
// given one.
func (s deliveryStore) RecentAddresses(ctx context.Context, channel, agent string, since time.Time, after string, limit int) ([]string, error) {
	arguments := []any{firstID(since), agent, channel, cleaned(after), pageSize(limit)}
	return column[string](ctx, s.engine.Reader(), selectRecent, arguments)
}

// Sent reports whether a reply of a turn has deliveries, so that it reaches its asker as a message of its own.
func (s deliveryStore) Sent(ctx context.Context, turnID, replyID string) (bool, error) {
	var id string
	return first(ctx, s.engine.Reader(), `SELECT id FROM deliveries WHERE turn_id = $1 AND reply_id = $2 LIMIT 1`, []any{turnID, replyID}, &id)
}

// deliveryRow is a delivery while it is being scanned.
type deliveryRow struct {
	record                 delivery.Record
	data, returned, done   string
	next, created, updated int64
	bulk                   int64
}

func (d *deliveryRow) columns() []any {
	r := &d.record
	return []any{
		&r.ID, &r.TurnID, &r.ReplyID, &r.Agent, &r.Channel, &r.NativeID, &r.Key, &r.Address, &d.data,
		&r.State, &r.Reason, &r.Attempt, &d.next, &d.created, &d.updated, &r.Action, &r.Revision, &d.bulk, &d.returned, &d.done, &r.Trace,
	}
}

func (d *deliveryRow) finish() delivery.Record {
	d.record.Data, d.record.Bulk = rawJSON(d.data), d.bulk == 1
	if d.returned != "" {
		_ = json.Unmarshal([]byte(d.returned), &d.record.Returned) // the store wrote it; a row that was changed by hand is shown without
	}
	if d.done != "" {
		_ = json.Unmarshal([]byte(d.done), &d.record.Done) // as above
	}
	d.record.NextAt, d.record.CreatedAt, d.record.UpdatedAt = instant(d.next), instant(d.created), instant(d.updated)
	return d.record
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
func (t deliveryTx) WorsenCondition(ctx context.Context, failure delivery.Condition, deadAfter int) error {
	now := t.microsOrNow(failure.UpdatedAt)
	var dead int64
	_, err := first(ctx, t.sql, worsenCondition+` RETURNING dead_at`, []any{
		failure.Channel, failure.Key, micros(failure.PausedUntil), int64(failure.Opened),
		failure.FailedDay, int64(deadAfter), cleaned(failure.Reason), now,
	}, &dead)
	if err == nil && dead == now { // by this failure
		t.count(exchange.NoticeDestination, failure.Channel, exchange.NoticeExample{ID: failure.Key, Note: failure.Key + ": " + failure.Reason})
	}
	return err
}

// ClearCondition forgets what is known of a destination.
func (t deliveryTx) ClearCondition(ctx context.Context, channel, key string) error {
	return t.sql.Do(ctx, `DELETE FROM destinations WHERE channel = $1 AND destination = $2`, channel, key)
}

const selectConditions = `SELECT channel, destination, paused_until, opened, failing_days, failed_day, dead_at, reason, updated_at
	FROM destinations ORDER BY updated_at DESC LIMIT $1 + 0`

// Conditions returns the destinations that fail, the last changed first.
func (s deliveryStore) Conditions(ctx context.Context, limit int) ([]delivery.Condition, error) {
	var list []delivery.Condition
	err := s.engine.Reader().Each(ctx, selectConditions, []any{int64(limit)}, func(r row) error {
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
