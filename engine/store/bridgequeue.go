package store

import (
	"context"
	"fmt"
	"time"

	"inbox/adapters/bridge/contract"
)

// selectBridgeItems reads what waits for a client; chosen narrows it, the last argument is the limit.
func selectBridgeItems(client string, query contract.Query, leasable bool, now time.Time) (text string, arguments []any) {
	arguments = []any{client}
	text = `SELECT id, status, item FROM bridge_items WHERE client_id = $1 AND acked_at = 0`
	if leasable {
		arguments = append(arguments, micros(now))
		text += ` AND leased_until <= $2`
	}
	if len(query.Sessions) > 0 {
		text += ` AND session_id IN (` + placeholders(len(arguments)+1, len(query.Sessions)) + `)`
		for _, session := range query.Sessions {
			arguments = append(arguments, cleaned(session))
		}
	}
	arguments = append(arguments, int64(query.Limit))
	return text + fmt.Sprintf(` ORDER BY position LIMIT $%d + 0`, len(arguments)), arguments
}

func readBridgeItems(ctx context.Context, from querier, text string, arguments []any) (items []contract.Item, err error) {
	items = []contract.Item{}
	err = from.each(ctx, text, arguments, func(r row) error {
		var id, status, body string
		if err := r.Scan(&id, &status, &body); err != nil {
			return err
		}
		item, err := contract.ReadItem([]byte(body))
		if err != nil {
			return fmt.Errorf("decode queue item %s: %w", id, err)
		}
		item.Status = contract.Status(status)
		items = append(items, item)
		return nil
	})
	return items, err
}

// Pending implements contract.Store.
func (b *Bridge) Pending(ctx context.Context, client string, query contract.Query) ([]contract.Item, error) {
	if !storable(client) {
		return nil, nil
	}
	text, arguments := selectBridgeItems(client, query, false, time.Time{})
	return readBridgeItems(ctx, b.store.engine.reader(), text, arguments)
}

// Lease implements contract.Store. Of two workers that read the same row at once the second finds it changed.
func (b *Bridge) Lease(ctx context.Context, client string, query contract.Query, duration time.Duration) (leased []contract.Item, err error) {
	if !storable(client) {
		return nil, nil
	}
	err = b.store.InTx(ctx, func(tx *Tx) error {
		leased = nil
		now := b.now()
		text, arguments := selectBridgeItems(client, query, true, now)
		items, err := readBridgeItems(ctx, tx, text, arguments)
		if err != nil {
			return err
		}
		for _, item := range items {
			taken, err := tx.change(ctx, `UPDATE bridge_items SET leased_until = $1 WHERE id = $2 AND client_id = $3 AND acked_at = 0 AND leased_until <= $4`,
				micros(now.Add(duration)), item.ID, client, micros(now))
			if err != nil {
				return err
			}
			if taken > 0 {
				leased = append(leased, item)
			}
		}
		return nil
	})
	return leased, err
}

// Item returns one item of a client that was not acknowledged.
func (b *Bridge) Item(ctx context.Context, client, id string) (item contract.Item, found bool, err error) {
	if !storable(client) || !storable(id) {
		return item, false, nil
	}
	items, err := readBridgeItems(ctx, b.store.engine.reader(),
		`SELECT id, status, item FROM bridge_items WHERE id = $1 AND client_id = $2 AND acked_at = 0`, []any{id, client})
	if err != nil || len(items) == 0 {
		return item, false, err
	}
	return items[0], true, nil
}

// Attempted implements contract.Store.
func (b *Bridge) Attempted(ctx context.Context, client, id string, status contract.Status) (kept bool, err error) {
	if !storable(client) || !storable(id) {
		return false, nil
	}
	err = b.store.InTx(ctx, func(tx *Tx) error {
		changed, err := tx.change(ctx, `UPDATE bridge_items SET status = $1 WHERE id = $2 AND client_id = $3 AND acked_at = 0`,
			string(status), id, client)
		kept = changed > 0
		return err
	})
	return kept, err
}

const ackBridgeItem = `UPDATE bridge_items SET acked_at = $1, item = '', session_id = '' WHERE id = $2 AND client_id = $3 AND acked_at = 0`

// Ack implements contract.Store.
func (b *Bridge) Ack(ctx context.Context, client string, ids []string) (removed int, err error) {
	if !storable(client) || len(ids) == 0 {
		return 0, nil
	}
	err = b.store.InTx(ctx, func(tx *Tx) error {
		removed = 0
		for _, id := range ids {
			if !storable(id) {
				continue
			}
			changed, err := tx.change(ctx, ackBridgeItem, max(nowMicros(), 1), id, client)
			if err != nil {
				return err
			}
			removed += int(changed)
		}
		if removed > 0 {
			tx.wake(ChannelBridge, client)
		}
		return nil
	})
	return removed, err
}

// ackedAge is how long an acknowledged item is remembered: longer than any delivery is tried.
const ackedAge = 30 * 24 * time.Hour

const sweepBridgeItems = `DELETE FROM bridge_items WHERE id IN (SELECT id FROM bridge_items WHERE acked_at > 0 AND acked_at <= $1 LIMIT $2 + 0)`
