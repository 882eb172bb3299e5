package store

import (
	"context"
	"time"

	"inbox/exchange"
)

// removedAge is how long a removed entry stays visible as such. A node that did not read the lists for so long could not
// reach the database either, and begins anew when it can.
const removedAge = 7 * 24 * time.Hour

const listColumns = `id, list, kind, target, agent, effect, reason, source, created_at`

// The id of an entry that is there already stays; one that was removed begins anew with its time.
const putListEntry = `INSERT INTO list_entries (` + listColumns + `, entry_key, removed_at, version)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11)
	ON CONFLICT (entry_key) DO UPDATE SET effect = excluded.effect, reason = excluded.reason, source = excluded.source,
	created_at = CASE WHEN list_entries.removed_at > 0 THEN excluded.created_at ELSE list_entries.created_at END,
	removed_at = 0, version = excluded.version`

const removeListEntry = `UPDATE list_entries SET removed_at = $1, version = $2 WHERE entry_key = $3 AND removed_at = 0 RETURNING id`

const sweepRemovedEntries = `DELETE FROM list_entries WHERE removed_at > 0 AND removed_at <= $1 AND id IN
	(SELECT id FROM list_entries WHERE removed_at > 0 ORDER BY removed_at LIMIT $2 + 0)`

// PutListEntries writes entries, over those with the same list, kind, target and agent. All of them become visible
// together; a caller with thousands writes them in portions.
func (t *Tx) PutListEntries(ctx context.Context, entries ...exchange.ListEntry) error {
	version, err := t.nextListVersion(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := requireStorable("target", e.Target, "agent", e.Agent, "kind", e.Kind, "list", e.List); err != nil {
			return err
		}
		if err := t.do(ctx, putListEntry, e.ID, e.List, e.Kind, e.Target, e.Agent, e.Effect, cleaned(e.Reason), cleaned(e.Source),
			microsOrNow(e.CreatedAt), entryKey(e), version); err != nil {
			return err
		}
	}
	return nil
}

// RemoveListEntry takes an entry out, named by list, kind, target and agent, and reports whether it was in force.
func (t *Tx) RemoveListEntry(ctx context.Context, e exchange.ListEntry) (bool, error) {
	version, err := t.nextListVersion(ctx)
	if err != nil {
		return false, err
	}
	var id string
	return first(ctx, t, removeListEntry, []any{nowMicros(), version, entryKey(e)}, &id)
}

func entryKey(e exchange.ListEntry) string { return hashKey(e.List, e.Kind, e.Target, e.Agent) }

// nextListVersion holds the row until the commit: a reader that has seen a version has seen everything before it.
func (t *Tx) nextListVersion(ctx context.Context) (version int64, err error) {
	t.wake(ChannelLists, "")
	_, err = first(ctx, t, `UPDATE list_version SET version = version + 1 WHERE one = 1 RETURNING version`, nil, &version)
	return version, err
}

// PutListEntries writes entries in a transaction of its own; see Tx.PutListEntries.
func (s *Store) PutListEntries(ctx context.Context, entries ...exchange.ListEntry) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.PutListEntries(ctx, entries...) })
}

// RemoveListEntry removes an entry in a transaction of its own; see Tx.RemoveListEntry.
func (s *Store) RemoveListEntry(ctx context.Context, entry exchange.ListEntry) (removed bool, err error) {
	err = s.InTx(ctx, func(tx *Tx) (err error) {
		removed, err = tx.RemoveListEntry(ctx, entry)
		return err
	})
	return removed, err
}

// ListEntries lists entries in force, newest first, at most 500.
func (s *Store) ListEntries(ctx context.Context, filter exchange.ListFilter) ([]exchange.ListEntry, error) {
	var chosen selection
	chosen.add("removed_at = 0")
	chosen.addWhen(filter.List != "", "list = ?", cleaned(filter.List))
	chosen.addWhen(filter.Kind != "", "kind = ?", cleaned(filter.Kind))
	chosen.addWhen(filter.Target != "", "target = ?", cleaned(filter.Target))
	chosen.addWhen(filter.Agent != "", "agent = ?", cleaned(filter.Agent))
	chosen.addWhen(filter.Before != "", "id < ?", cleaned(filter.Before))
	query := `SELECT ` + listColumns + ` FROM list_entries` + chosen.sql() + chosen.page("id DESC", filter.Limit)
	var entries []exchange.ListEntry
	err := s.engine.reader().each(ctx, query, chosen.arguments, func(r row) error {
		entry, err := scanListEntry(r)
		entries = append(entries, entry)
		return err
	})
	return entries, err
}

const selectListChanges = `SELECT ` + listColumns + `, version, removed_at FROM list_entries
	WHERE (version, id) > ($1, $2) ORDER BY version, id LIMIT $3 + 0`

// ListChanges returns entries as they are now that changed after the version, or in the version with an id after the given
// one, in that order.
func (s *Store) ListChanges(ctx context.Context, version int64, id string, limit int) ([]exchange.ListChange, error) {
	var changes []exchange.ListChange
	err := s.engine.reader().each(ctx, selectListChanges, []any{version, cleaned(id), pageSize(limit)}, func(r row) error {
		var change exchange.ListChange
		var removed int64
		entry, err := scanListEntry(r, &change.Version, &removed)
		change.Entry, change.Removed = entry, removed > 0
		changes = append(changes, change)
		return err
	})
	return changes, err
}

func scanListEntry(r row, more ...any) (exchange.ListEntry, error) {
	var e exchange.ListEntry
	var created int64
	err := r.Scan(append([]any{&e.ID, &e.List, &e.Kind, &e.Target, &e.Agent, &e.Effect, &e.Reason, &e.Source, &created}, more...)...)
	e.CreatedAt = instant(created)
	return e, err
}
