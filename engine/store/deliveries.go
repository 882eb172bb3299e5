package store

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/fault"
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
		_ = json.Unmarshal([]byte(d.returned), &d.record.Returned) // we wrote it; a row that somebody changed by hand is shown without
	}
	d.record.NextAt, d.record.CreatedAt, d.record.UpdatedAt = instant(d.next), instant(d.created), instant(d.updated)
	return d.record
}
