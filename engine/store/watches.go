package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// watchStore keeps webhooks on tasks.
type watchStore struct{ *shared }

const putWatch = `INSERT INTO watches (id, agent, principal, reference, name, owner_key, reference_key, name_key, created_at, data)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
	ON CONFLICT (owner_key, reference_key, name_key) DO UPDATE SET data = excluded.data`

const countWatches = `SELECT COUNT(*), COALESCE(SUM(CASE WHEN reference_key = $2 THEN 1 ELSE 0 END), 0) FROM watches
	WHERE owner_key = $1 AND NOT (reference_key = $2 AND name_key = $3)`

const watchTurns = `UPDATE turns SET watched = 1 WHERE owner_key = $1 AND reference_key = $2 AND watched = 0`

// PutWatch stores a watch, or new data for the one with its name; the turns that there are become watched. Fault.Conflict
// where MaxWatches or MaxWatchesOfSender are reached.
func (s watchStore) PutWatch(ctx context.Context, watch exchange.Watch) error {
	if err := requireStorable("name", watch.Name, "reference", watch.Reference, "agent", watch.Agent, "principal", watch.Principal); err != nil {
		return err
	}
	owner, reference, name := hashKey(watch.Agent, watch.Principal), hashKey(watch.Reference), hashKey(watch.Name)

	return s.InTx(ctx, func(tx *Tx) error {
		var all, here int64
		if _, err := first(ctx, tx.sql, countWatches, []any{owner, reference, name}, &all, &here); err != nil {
			return err
		}

		if here >= exchange.MaxWatches || all >= exchange.MaxWatchesOfSender {
			return fault.New(fault.Conflict, fmt.Sprintf("there are too many webhooks: at most %d of a task and %d in all",
				exchange.MaxWatches, exchange.MaxWatchesOfSender))
		}

		err := tx.sql.Do(ctx, putWatch, watch.ID, watch.Agent, cleaned(watch.Principal), watch.Reference, watch.Name,
			owner, reference, name, micros(watch.CreatedAt), string(watch.Data))
		if err != nil {
			return err
		}

		return tx.sql.Do(ctx, watchTurns, owner, reference)
	})
}

const watchColumns = `id, agent, principal, reference, name, created_at, data`

// Watches returns the watches of a reference, oldest first.
func (s watchStore) Watches(ctx context.Context, agent, principal, reference string) ([]exchange.Watch, error) {
	if !storable(reference) {
		return nil, nil
	}
	var list []exchange.Watch
	err := s.engine.Reader().Each(ctx, `SELECT `+watchColumns+` FROM watches WHERE owner_key = $1 AND reference_key = $2 ORDER BY id`,
		[]any{hashKey(agent, principal), hashKey(reference)}, func(r row) error {
			watch, err := scanWatch(r)
			list = append(list, watch)
			return err
		})
	return list, err
}

// Watch returns one watch.
func (s watchStore) Watch(ctx context.Context, id string) (watch exchange.Watch, found bool, err error) {
	if !storable(id) {
		return watch, false, nil
	}

	err = s.engine.Reader().Each(ctx, `SELECT `+watchColumns+` FROM watches WHERE id = $1`, []any{id}, func(r row) error {
		watch, err = scanWatch(r)
		found = err == nil
		return err
	})
	return watch, found, err
}

func scanWatch(r row) (watch exchange.Watch, err error) {
	var created int64
	var data string
	err = r.Scan(&watch.ID, &watch.Agent, &watch.Principal, &watch.Reference, &watch.Name, &created, &data)
	watch.CreatedAt, watch.Data = instant(created), json.RawMessage(data)
	return watch, err
}

// DeleteWatch removes a watch. One that is not there is no error.
func (s watchStore) DeleteWatch(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.sql.Do(ctx, `DELETE FROM watches WHERE id = $1`, id) })
}

//nolint:gosec // no credentials are in it
const sweepWatches = `DELETE FROM watches WHERE id IN (SELECT id FROM watches WHERE created_at <= $1 LIMIT $2 + 0)`

const watchesOfTurn = `SELECT w.id FROM watches w JOIN turns t ON t.owner_key = w.owner_key AND t.reference_key = w.reference_key
	WHERE t.id = $1 ORDER BY w.id`

// tellWatches makes a job for each watch of a turn that moved. The jobs of one watch run in order.
func tellWatches(ctx context.Context, t *transaction, move pipeline.Move) error {
	watches, err := column[string](ctx, t.sql, watchesOfTurn, []any{move.ID})
	if err != nil {
		return err
	}

	for _, id := range watches {
		payload, err := json.Marshal(exchange.WatchJob{WatchID: id, TurnID: move.ID, State: move.To, At: move.At.UTC().Truncate(time.Microsecond)})
		if err != nil {
			return fmt.Errorf("encode watch job: %w", err)
		}

		err = t.jobs().Enqueue(ctx, queue.NewJob{
			ID: uuid.Must(uuid.NewV7()).String(), Kind: exchange.WatchKind, Partition: id, Payload: string(payload),
		})
		if err != nil {
			return err
		}
	}
	return nil
}
