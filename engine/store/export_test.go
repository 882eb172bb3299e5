package store

import (
	"context"
	"errors"
	"reflect"
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

// WantedServer says which kind of server a URL is taken to ask for: read-write, any or other.
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
