package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// listStore keeps the operator's lists and the mail addresses that are suppressed.
type listStore struct{ *shared }

// listTx changes lists in a transaction.
type listTx struct{ *transaction }

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
func (t listTx) PutListEntries(ctx context.Context, entries ...exchange.ListEntry) error {
	version, err := t.nextListVersion(ctx)
	if err != nil {
		return err
	}

	for _, e := range entries {
		if err := requireStorable("target", e.Target, "agent", e.Agent, "kind", e.Kind, "list", e.List); err != nil {
			return err
		}

		if err := t.sql.Do(ctx, putListEntry, e.ID, e.List, e.Kind, e.Target, e.Agent, e.Effect, cleaned(e.Reason), cleaned(e.Source),
			t.microsOrNow(e.CreatedAt), entryKey(e), version); err != nil {
			return err
		}
	}

	return nil
}

// RemoveListEntry takes an entry out, named by list, kind, target and agent, and reports whether it was in force.
func (t listTx) RemoveListEntry(ctx context.Context, e exchange.ListEntry) (bool, error) {
	version, err := t.nextListVersion(ctx)
	if err != nil {
		return false, err
	}
	var id string
	return first(ctx, t.sql, removeListEntry, []any{t.nowMicros(), version, entryKey(e)}, &id)
}

func entryKey(e exchange.ListEntry) string { return hashKey(e.List, e.Kind, e.Target, e.Agent) }

// nextListVersion holds the row until the commit: a reader that has seen a version has seen everything before it.
func (t listTx) nextListVersion(ctx context.Context) (version int64, err error) {
	t.wake(ChannelLists, "")
	_, err = first(ctx, t.sql, `UPDATE list_version SET version = version + 1 WHERE one = 1 RETURNING version`, nil, &version)
	return version, err
}

// PutListEntries writes entries in a transaction of its own; see Tx.PutListEntries.
func (s listStore) PutListEntries(ctx context.Context, entries ...exchange.ListEntry) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.PutListEntries(ctx, entries...) })
}

// RemoveListEntry removes an entry in a transaction of its own; see Tx.RemoveListEntry.
func (s listStore) RemoveListEntry(ctx context.Context, entry exchange.ListEntry) (removed bool, err error) {
	err = s.InTx(ctx, func(tx *Tx) (err error) {
		removed, err = tx.RemoveListEntry(ctx, entry)
		return err
	})
	return removed, err
}

// ListEntries lists entries in force, newest first, at most 500.
func (s listStore) ListEntries(ctx context.Context, filter exchange.ListFilter) ([]exchange.ListEntry, error) {
	var chosen selection
	chosen.add("removed_at = 0")
	chosen.addWhen(filter.List != "", "list = ?", cleaned(filter.List))
	chosen.addWhen(filter.Kind != "", "kind = ?", cleaned(filter.Kind))
	chosen.addWhen(filter.Target != "", "target = ?", cleaned(filter.Target))
	chosen.addWhen(filter.Agent != "", "agent = ?", cleaned(filter.Agent))
	chosen.addWhen(filter.Before != "", "id < ?", cleaned(filter.Before))
	query := `SELECT ` + listColumns + ` FROM list_entries` + chosen.sql() + chosen.page("id DESC", filter.Limit)
	var entries []exchange.ListEntry
	err := s.engine.Reader().Each(ctx, query, chosen.arguments, func(r row) error {
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
func (s listStore) ListChanges(ctx context.Context, version int64, id string, limit int) ([]exchange.ListChange, error) {
	var changes []exchange.ListChange
	err := s.engine.Reader().Each(ctx, selectListChanges, []any{version, cleaned(id), pageSize(limit)}, func(r row) error {
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

const putFailure = `INSERT INTO mail_failures (address, delivery_id, failed_at) VALUES ($1, $2, $3)
	ON CONFLICT (address, delivery_id) DO NOTHING`

const countFailures = `SELECT COUNT(*) FROM mail_failures WHERE address = $1 AND failed_at > $2`

const putSuppression = `INSERT INTO mail_suppressions (address, kind, reason, delivery_id, created_at) VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (address) DO NOTHING`

const suppressionColumns = `address, kind, reason, delivery_id, created_at`

const sweepFailures = `DELETE FROM mail_failures WHERE failed_at <= $1 AND (address, delivery_id) IN
	(SELECT address, delivery_id FROM mail_failures ORDER BY failed_at LIMIT $2 + 0)`

// MailFailed counts a failure of an address, once for each delivery, or once a day if it is hearsay. It reports whether the address is suppressed now and was
// not before: after one hard failure, one complaint, or as many soft failures as exchange allows.
func (s listStore) MailFailed(ctx context.Context, failure exchange.MailFailure) (suppressed bool, err error) {
	if err := requireStorable("address", failure.Address, "delivery", failure.DeliveryID); err != nil {
		return false, err
	}

	err = s.InTx(ctx, func(tx *Tx) error {
		suppressed = false
		at := s.microsOrNow(failure.At)
		if failure.Kind == exchange.FailureSoft {
			counted := failure.DeliveryID
			if failure.Hearsay {
				counted = "on " + instant(at).Format(time.DateOnly)
			}
			if err := tx.sql.Do(ctx, putFailure, failure.Address, counted, at); err != nil {
				return err
			}
			var count int64
			since := at - exchange.SoftFailureWindow.Microseconds()
			if _, err := first(ctx, tx.sql, countFailures, []any{failure.Address, since}, &count); err != nil || count < exchange.MaxSoftFailures {
				return err
			}
		}

		changed, err := tx.sql.Change(ctx, putSuppression, failure.Address, failure.Kind, cleaned(failure.Reason), failure.DeliveryID, at)
		if suppressed = changed > 0; err != nil || !suppressed || failure.Kind != exchange.FailureHard {
			return err
		}
		// The next owner of the mailbox is another person.
		_, err = tx.endLinks(ctx, exchange.LinkFilter{Address: identity.ProvenAddress("@" + failure.Address)}, exchange.LinkEnd{Reason: "the mailbox is gone"})
		return err
	})

	return suppressed, err
}

// Suppressed returns those of the addresses that are suppressed; at most 500 are asked for.
func (s listStore) Suppressed(ctx context.Context, addresses []string) ([]exchange.Suppression, error) {
	if len(addresses) == 0 {
		return nil, nil
	}

	addresses = addresses[:min(len(addresses), 500)]
	arguments := make([]any, 0, len(addresses))
	for _, address := range addresses {
		arguments = append(arguments, cleaned(address))
	}

	query := `SELECT ` + suppressionColumns + ` FROM mail_suppressions WHERE address IN (` + placeholders(1, len(addresses)) + `) ORDER BY address`
	return s.suppressions(ctx, query, arguments)
}

// Suppressions lists suppressed addresses, in order of the address.
func (s listStore) Suppressions(ctx context.Context, filter exchange.SuppressionFilter) ([]exchange.Suppression, error) {
	var chosen selection
	chosen.addWhen(filter.Kind != "", "kind = ?", cleaned(filter.Kind))
	chosen.addWhen(filter.After != "", "address > ?", cleaned(filter.After))
	query := `SELECT ` + suppressionColumns + ` FROM mail_suppressions` + chosen.sql() + chosen.page("address", filter.Limit)
	return s.suppressions(ctx, query, chosen.arguments)
}

func (s listStore) suppressions(ctx context.Context, query string, arguments []any) ([]exchange.Suppression, error) {
	var found []exchange.Suppression
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var one exchange.Suppression
		var created int64
		err := r.Scan(&one.Address, &one.Kind, &one.Reason, &one.DeliveryID, &created)
		one.CreatedAt = instant(created)
		found = append(found, one)
		return err
	})
	return found, err
}

// Unsuppress lets mail go to an address again and forgets its failures. It reports whether the address was suppressed.
func (s listStore) Unsuppress(ctx context.Context, address string) (lifted bool, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		if err := tx.sql.Do(ctx, `DELETE FROM mail_failures WHERE address = $1`, cleaned(address)); err != nil {
			return err
		}
		changed, err := tx.sql.Change(ctx, `DELETE FROM mail_suppressions WHERE address = $1`, cleaned(address))
		lifted = changed > 0
		return err
	})
	return lifted, err
}

// wroteAfter are turns of messages that their sender proved, by a channel and after a moment.
const wroteAfter = `t.channel = $1 AND t.accepted_at > %s AND substr(t.principal, 1, 11) <> '` + normalized.Unproven + `'`

var (
	selectWrote = fmt.Sprintf(`SELECT 1 FROM arrivals a CROSS JOIN turns t WHERE a.sender = $2 AND a.place <> '' AND t.id = a.turn_id AND `+wroteAfter+`
		UNION ALL SELECT 1 FROM turns t WHERE t.sender = $2 AND `+openStates+` AND t.id >= $4 AND `+wroteAfter+`
		UNION ALL SELECT 1`+fromWaiting+` WHERE `+waitingTurn+` AND t.sender = $2 AND `+wroteAfter+`
		UNION ALL SELECT 1`+fromUnplaced+` WHERE `+unplacedTurn+` AND t.sender = $2 AND `+wroteAfter+` LIMIT 1`, "$3", "$3", "$3", "$3")

	// A turn that is open ends some time, and counts then. A deleted person has no turns.
	selectMetByMail = fmt.Sprintf(`SELECT s.address FROM mail_suppressions s WHERE (
		SELECT 1 FROM arrivals a CROSS JOIN turns t WHERE a.sender = '@' || s.address AND a.place <> '' AND t.id = a.turn_id AND `+wroteAfter+` LIMIT 1) = 1
		ORDER BY s.address LIMIT $2 + 0`, "s.created_at")
	// The same for turns that are in no place yet.
	selectMetWaiting = fmt.Sprintf(`SELECT s.address`+fromWaiting+` CROSS JOIN mail_suppressions s
		WHERE `+waitingTurn+` AND `+endedTurns+` AND s.address = substr(t.sender, 2) AND `+wroteAfter+` LIMIT $2 + 0`, "s.created_at")
	selectMetUnplaced = fmt.Sprintf(`SELECT s.address`+fromUnplaced+` CROSS JOIN mail_suppressions s
		WHERE `+unplacedTurn+` AND s.address = substr(t.sender, 2) AND `+wroteAfter+` LIMIT $2 + 0`, "s.created_at")
)

// Wrote reports whether a message of a channel came after a moment from an address that its sender proved.
func (s listStore) Wrote(ctx context.Context, channel, address string, after time.Time) (bool, error) {
	var one int64
	sender := short("@"+cleaned(address), maxSenderBytes)
	return first(ctx, s.engine.Reader(), selectWrote, []any{channel, sender, micros(after), firstID(after)}, &one)
}

// EndSuppressions ends the suppressions of addresses from which a proven message of the channel came since, and returns the addresses.
func (s listStore) EndSuppressions(ctx context.Context, channel string) (ended []string, err error) {
	for _, text := range []string{selectMetWaiting, selectMetUnplaced, selectMetByMail} {
		met, err := column[string](ctx, s.engine.Reader(), text, []any{channel, int64(maxEnded)})
		if err != nil {
			return nil, err
		}
		ended = append(ended, met...)
	}
	slices.Sort(ended)
	ended = slices.Compact(ended)
	for _, address := range ended {
		if _, err := s.Unsuppress(ctx, address); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// maxEnded bounds how many suppressions are ended at once.
const maxEnded = 500

// failureAge is how long failures are kept: as long as they count, and a day for clocks that differ.
const failureAge = exchange.SoftFailureWindow + 24*time.Hour
