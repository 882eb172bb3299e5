package store

import (
	"context"
	"strings"
	"time"

	"inbox/engine/store/database"
)

// Pass makes all jobs older: what was due in d is due now, and leases end so much earlier.
func (s *Store) Pass(ctx context.Context, d time.Duration) error {
	return s.InTx(ctx, func(tx *Tx) error {
		return tx.sql.Do(ctx, `UPDATE jobs SET run_at = run_at - $1, lease_until = lease_until - $1`, d.Microseconds())
	})
}

// Execute executes a statement in a transaction of its own.
func (s *Store) Execute(ctx context.Context, statement string, arguments ...any) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.sql.Do(ctx, statement, arguments...) })
}

// RemoveWaiting removes jobs that do not run.
func (t *Tx) RemoveWaiting(ctx context.Context, ids ...string) error {
	_, err := t.removeWaiting(ctx, ids...)
	return err
}

// NoteErasure stores an erasure of one message that is at the stage.
func (t *Tx) NoteErasure(ctx context.Context, id, stage, turnID string) error {
	if err := t.sql.Do(ctx, `INSERT INTO erasures (id, stage, requested_by, requested_at, ended_at, after_id, person, receipt)
		VALUES ($1, $2, '', 0, 0, '', '', '{"counts":{}}')`, id, stage); err != nil {
		return err
	}
	return t.sql.Do(ctx, `INSERT INTO erasure_turns (erasure_id, turn_id) VALUES ($1, $2)`, id, turnID)
}

// ProbeSpace is the namespace of what Probe writes.
const ProbeSpace = probeSpace

// ReferringTexts are the columns in which references to contents are looked for, by their table.
func ReferringTexts() map[string][]string {
	texts := map[string][]string{}
	for _, source := range referrings {
		texts[source.table] = source.texts
	}
	return texts
}

// Columns returns the columns of a table with their types, in lower case.
func (s *Store) Columns(ctx context.Context, table string) (columns map[string]string, err error) {
	query := `SELECT name, type FROM pragma_table_info($1)`
	if s.engine.Kind() == database.Postgres {
		query = `SELECT column_name, data_type FROM information_schema.columns WHERE table_name = $1`
	}

	columns = map[string]string{}
	err = s.engine.Reader().Each(ctx, query, []any{table}, func(r row) error {
		var name, kind string
		err := r.Scan(&name, &kind)
		columns[name] = strings.ToLower(kind)
		return err
	})
	return columns, err
}

// Tables returns the tables of a SQLite database.
func (s *Store) Tables(ctx context.Context) (tables []string, err error) {
	const query = `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%' AND name NOT LIKE 'search_words%' AND name NOT LIKE 'mail_words%'`
	return column[string](ctx, s.engine.Reader(), query, nil)
}

// sqliteURL opens a database file beside a store, as other programs do.
func sqliteURL(path string) string {
	return "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(ON)"
}

// Discard notes contents that may not be needed any more.
func (t *Tx) Discard(ctx context.Context, digests ...string) error { return t.discard(ctx, digests...) }

// Sweep removes what has ended, as the background sweep does.
func (s *Store) Sweep(ctx context.Context) error { return s.sweepOnce(ctx, auditRows) }

// IndexUnanswered lets turns be indexed without waiting for their answers.
func (s *Store) IndexUnanswered() { s.tuning.unanswered = 0 }
