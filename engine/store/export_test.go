package store

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Pass makes all jobs older: what was due in d is due now, and leases end so much earlier.
func (s *Store) Pass(ctx context.Context, d time.Duration) error {
	return s.InTx(ctx, func(tx *Tx) error {
		return tx.do(ctx, `UPDATE jobs SET run_at = run_at - $1, lease_until = lease_until - $1`, d.Microseconds())
	})
}

// Execute executes a statement in a transaction of its own.
func (s *Store) Execute(ctx context.Context, statement string, arguments ...any) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.do(ctx, statement, arguments...) })
}

// ProbeSpace is the namespace of what Probe writes.
const ProbeSpace = probeSpace

// Processes asks a database several times for the process that answers, through a pool of one connection.
func Processes(ctx context.Context, url string, life time.Duration, times int) (processes []int, err error) {
	config, err := postgresConfig(url)
	if err != nil {
		return nil, err
	}

	pool := openPostgresPool(config, 1, life)
	defer func() { err = errors.Join(err, pool.Close()) }()

	for range times {
		var process int
		if err := pool.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&process); err != nil {
			return nil, err
		}
		processes = append(processes, process)
	}
	return processes, nil
}

// WantedServer returns the kind of server that a URL is taken to ask for: read-write, any or other.
func WantedServer(url string) (string, error) {
	config, err := postgresConfig(url)
	if err != nil {
		return "", err
	}

	pointer := func(check pgconn.ValidateConnectFunc) uintptr { return reflect.ValueOf(check).Pointer() }
	switch {
	case config.ValidateConnect == nil:
		return "any", nil
	case pointer(config.ValidateConnect) == pointer(pgconn.ValidateConnectTargetSessionAttrsReadWrite):
		return "read-write", nil
	}
	return "other", nil
}

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
	if s.engine.dialect() == postgresDialect {
		query = `SELECT column_name, data_type FROM information_schema.columns WHERE table_name = $1`
	}

	columns = map[string]string{}
	err = s.engine.reader().each(ctx, query, []any{table}, func(r row) error {
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
	err = s.engine.reader().each(ctx, query, nil, func(r row) error {
		var name string
		err := r.Scan(&name)
		tables = append(tables, name)
		return err
	})
	return tables, err
}
