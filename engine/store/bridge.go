package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// Bridge keeps the clients of bridges and what waits for them: contract.Store on the database. Every change wakes
// ChannelBridge with the client's id.
type Bridge struct {
	db  *shared
	now func() time.Time
}

// Bridge returns the view of the bridge protocol. now is the clock of the leases; nil = that of the database.
func (d *shared) Bridge(now func() time.Time) *Bridge { return &Bridge{d, now} }

// instant is the present as a statement writes it.
func (b *Bridge) instant() string {
	if b.now == nil {
		return b.db.dialect.now
	}
	return strconv.FormatInt(micros(b.now()), 10)
}

const putBridgeClient = `INSERT INTO bridge_clients (id, updated_at, secret, client) VALUES ($1, $2, $3, $4)
	ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at, client = excluded.client,
	secret = CASE WHEN excluded.secret = '' THEN bridge_clients.secret ELSE excluded.secret END`

// PutClient implements contract.Store. The secret of a client that is there already stays.
func (b *Bridge) PutClient(ctx context.Context, client contract.Client) error {
	return b.Register(ctx, client, "")
}

// Register keeps a client with the sealed secret that signs what is sent to its callback; empty = the one that it has.
func (b *Bridge) Register(ctx context.Context, client contract.Client, secret string) error {
	if err := requireStorable("client_id", client.ID, "callback_url", client.CallbackURL); err != nil {
		return err
	}
	encoded, err := value.Encode(client.Value())
	if err != nil {
		return fault.Wrap(fault.Malformed, "The client is not JSON.", err)
	}

	return b.db.InTx(ctx, func(tx *Tx) error {
		return tx.sql.Do(ctx, putBridgeClient, client.ID, b.db.nowMicros(), secret, cleaned(string(encoded)))
	})
}

// Client implements contract.Store.
func (b *Bridge) Client(ctx context.Context, id string) (contract.Client, bool, error) {
	client, _, found, err := bridgeClient(ctx, b.db.engine.Reader(), id)
	return client, found, err
}

// ClientSecret returns a client with its sealed secret.
func (b *Bridge) ClientSecret(ctx context.Context, id string) (client contract.Client, secret string, found bool, err error) {
	return bridgeClient(ctx, b.db.engine.Reader(), id)
}

func bridgeClient(ctx context.Context, from querier, id string) (client contract.Client, secret string, found bool, err error) {
	if !storable(id) {
		return client, "", false, nil
	}
	var text string
	found, err = first(ctx, from, `SELECT client, secret FROM bridge_clients WHERE id = $1`, []any{id}, &text, &secret)
	if err != nil || !found {
		return client, "", false, err
	}

	given, err := value.Decode([]byte(text), value.Limits{Depth: 128})
	if err == nil {
		client, err = contract.NormalizeClient(value.Assoc(given))
	}
	if err != nil {
		return client, "", false, fmt.Errorf("decode bridge client %s: %w", id, err)
	}

	return client, secret, true, nil
}

const countBridgeItems = `SELECT COUNT(*) FROM (SELECT id FROM bridge_items WHERE client_id = $1 AND acked_at = 0 LIMIT $2 + 0) AS waiting`

// An acknowledged item is none any more: any item may have its id again, at the end of the queue.
const enqueueBridgeItem = `INSERT INTO bridge_items (id, client_id, position, session_id, status, leased_until, acked_at, item)
	VALUES ($1, $2, $3, $4, $5, 0, 0, $6) ON CONFLICT (id) DO UPDATE SET
	position = CASE WHEN bridge_items.acked_at > 0 THEN excluded.position ELSE bridge_items.position END,
	client_id = excluded.client_id, session_id = excluded.session_id, status = excluded.status, leased_until = 0, acked_at = 0,
	item = excluded.item WHERE bridge_items.client_id = excluded.client_id OR bridge_items.acked_at > 0`

const offerBridgeItem = `INSERT INTO bridge_items (id, client_id, position, session_id, status, leased_until, acked_at, item)
	VALUES ($1, $2, $3, $4, $5, 0, 0, $6) ON CONFLICT (id) DO NOTHING`

// Enqueue implements contract.Store.
func (b *Bridge) Enqueue(ctx context.Context, item contract.Item) error {
	return b.put(ctx, item, enqueueBridgeItem, contract.ErrForeign)
}

// Offer keeps an item unless its id was ever queued: for answers, which must not come back after they were acknowledged. It
// finds room in a full queue, too: that is looked after when a question is taken (Room), and no answer is lost for it.
func (b *Bridge) Offer(ctx context.Context, item contract.Item) error {
	return b.put(ctx, item, offerBridgeItem, nil)
}

// Room returns contract.ErrFull when as many items wait for a client as a queue holds.
func (b *Bridge) Room(ctx context.Context, client string) error {
	return roomOf(ctx, b.db.engine.Reader(), client)
}

// put writes the item, and the job that brings it to the callback where its client has one. refused is the error of an item
// that changed nothing; without one the item is an answer, which has its room.
func (b *Bridge) put(ctx context.Context, item contract.Item, statement string, refused error) error {
	if err := requireStorable("queue_id", item.ID, "client_id", item.ClientID, "session_id", item.SessionID); err != nil {
		return err
	}
	encoded, err := value.Encode(item.Value())
	if err != nil {
		return fault.Wrap(fault.Malformed, "The item is not JSON.", err)
	}

	return b.db.InTx(ctx, func(tx *Tx) error {
		if refused != nil {
			if err := roomFor(ctx, tx, item); err != nil {
				return err
			}
		}

		changed, err := tx.sql.Change(ctx, statement, item.ID, item.ClientID, newPosition(), item.SessionID, string(item.Status), cleaned(string(encoded)))
		if err != nil {
			return err
		}
		if changed == 0 {
			return refused
		}

		tx.wake(ChannelBridge, item.ClientID)
		return callBridge(ctx, tx, item)
	})
}

// roomFor refuses an item for a queue that no client empties; one that is in it already has its place.
func roomFor(ctx context.Context, tx *Tx, item contract.Item) error {
	full := roomOf(ctx, tx.sql, item.ClientID)
	if !errors.Is(full, contract.ErrFull) {
		return full
	}

	var known int64
	if _, err := first(ctx, tx.sql, `SELECT COUNT(*) FROM bridge_items WHERE id = $1 AND acked_at = 0`, []any{item.ID}, &known); err != nil {
		return err
	}
	if known == 0 {
		return full
	}

	return nil
}

func roomOf(ctx context.Context, from querier, client string) error {
	var waiting int64
	_, err := first(ctx, from, countBridgeItems, []any{cleaned(client), int64(contract.DefaultMaxItems)}, &waiting)
	if err == nil && waiting >= contract.DefaultMaxItems {
		err = contract.ErrFull
	}
	return err
}

func newPosition() string { return uuid.Must(uuid.NewV7()).String() }

// callBridge makes the job that tells the client's callback of an item. Those of one session are told in order.
func callBridge(ctx context.Context, tx *Tx, item contract.Item) error {
	client, _, found, err := bridgeClient(ctx, tx.sql, item.ClientID)
	if err != nil || !found || client.CallbackURL == "" {
		return err
	}

	payload, err := json.Marshal(exchange.BridgeCallback{Client: item.ClientID, Item: item.ID})
	if err != nil {
		return fmt.Errorf("encode callback job: %w", err)
	}

	return tx.Enqueue(ctx, queue.NewJob{
		ID: newPosition(), Kind: exchange.BridgeCallbackKind, Partition: item.ClientID + " " + item.SessionID, Payload: string(payload),
	})
}

// selectBridgeItems reads what waits for a client; with a present only what is not leased. The last argument is the limit.
func selectBridgeItems(client string, query contract.Query, now string) (text string, arguments []any) {
	arguments = []any{client}
	text = `SELECT id, status, item FROM bridge_items WHERE client_id = $1 AND acked_at = 0`
	if now != "" {
		text += ` AND leased_until <= ` + now
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
	err = from.Each(ctx, text, arguments, func(r row) error {
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
	text, arguments := selectBridgeItems(client, query, "")
	return readBridgeItems(ctx, b.db.engine.Reader(), text, arguments)
}

// Lease implements contract.Store. Of two workers that read the same row at once the second finds it changed.
func (b *Bridge) Lease(ctx context.Context, client string, query contract.Query, duration time.Duration) (leased []contract.Item, err error) {
	if !storable(client) {
		return nil, nil
	}

	err = b.db.InTx(ctx, func(tx *Tx) error {
		leased = nil
		now := b.instant()
		text, arguments := selectBridgeItems(client, query, now)
		items, err := readBridgeItems(ctx, tx.sql, text, arguments)
		if err != nil {
			return err
		}

		for _, item := range items {
			taken, err := tx.sql.Change(ctx, `UPDATE bridge_items SET leased_until = `+now+` + $1
				WHERE id = $2 AND client_id = $3 AND acked_at = 0 AND leased_until <= `+now, duration.Microseconds(), item.ID, client)
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
	items, err := readBridgeItems(ctx, b.db.engine.Reader(),
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

	err = b.db.InTx(ctx, func(tx *Tx) error {
		changed, err := tx.sql.Change(ctx, `UPDATE bridge_items SET status = $1 WHERE id = $2 AND client_id = $3 AND acked_at = 0`,
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

	err = b.db.InTx(ctx, func(tx *Tx) error {
		removed = 0
		for _, id := range ids {
			if !storable(id) {
				continue
			}
			changed, err := tx.sql.Change(ctx, ackBridgeItem, max(b.db.nowMicros(), 1), id, client)
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
