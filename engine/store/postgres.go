package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
)

var repeated = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_store_repeats_total", Help: "Transactions that PostgreSQL asked to run again: deadlocks and lost races.",
})

// maxAttempts bounds how often a transaction runs when PostgreSQL asks to run it again.
const maxAttempts = 8

// postgresEngine is a pool of equal connections. Transactions use pgx itself, for its pipelines.
type postgresEngine struct {
	statements
	config      *pgx.ConnConfig
	connections int
	announcer   *announcer
	logger      logger
}

func openPostgres(ctx context.Context, options Options) (engine, error) {
	config, err := postgresConfig(options.URL)
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, "database_url is not a PostgreSQL URL", err)
	}
	pool := openPostgresPool(config, options.Connections, connectionLife)
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err == nil {
		err = migrate(ctx, pool, postgresDialect, goose.WithSessionLocker(locker))
	}
	if err != nil {
		return nil, errors.Join(unusable(unusablePostgres(config, err), err), pool.Close())
	}
	e := &postgresEngine{
		statements: statements{pool: pool, failed: postgresFault}, config: config, connections: options.Connections,
		logger: options.Logger,
	}
	e.lost = e.lostRead
	e.announcer = startAnnouncer(pool, options.Logger)
	return e, nil
}

func (e *postgresEngine) transact(ctx context.Context, work func(*Tx) error) error {
	again := true
	for attempt := 1; ; attempt++ {
		lost, err := e.once(ctx, work)
		if lost && again && ctx.Err() == nil {
			again = false
			continue
		}
		if err == nil || attempt == maxAttempts || !repeatable(err) {
			return err
		}
		repeated.Inc()
		select {
		case <-time.After(rand.N(time.Duration(attempt) * 5 * time.Millisecond)):
		case <-ctx.Done():
			return err
		}
	}
}

// renew closes the idle connections: where one was lost, a restarted server or a firewall has ended the others too, and
// each would cost somebody a failure.
func (e *postgresEngine) renew() {
	e.pool.SetMaxIdleConns(0)
	e.pool.SetMaxIdleConns(e.connections)
}

// lostRead reports whether a query failed with its connection, so that another one may answer it.
func (e *postgresEngine) lostRead(err error) bool {
	var failure *pgconn.PgError
	if errors.As(err, &failure) && !unfit(failure) {
		return false
	}
	e.renew()
	return true
}

// once runs work in one transaction of one connection. Lost = the connection broke before the commit was asked for, so
// that nothing was done.
func (e *postgresEngine) once(ctx context.Context, work func(*Tx) error) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	connection, err := e.pool.Conn(ctx)
	if err != nil {
		return false, unavailable("connect", err)
	}
	defer connection.Close()
	var result error
	err = connection.Raw(func(driverConnection any) error {
		session := &postgresSession{connection: driverConnection.(*stdlib.Conn).Conn()}
		result = guarded(work, &Tx{session: session, dialect: postgresDialect})
		before := result != nil
		if !before {
			result = session.commit(ctx)
		}
		if session.connection.IsClosed() && ctx.Err() == nil {
			lost = before || readOnly(result) // of a read-only transaction nothing is kept, whatever was asked for
			e.renew()
		}
		return session.release(result)
	})
	return lost, errors.Join(result, hideBadConnection(err))
}

func (e *postgresEngine) reader() querier       { return &e.statements }
func (e *postgresEngine) dialect() *dialect     { return postgresDialect }
func (e *postgresEngine) announce(wakes []wake) { e.announcer.add(wakes) }

func (e *postgresEngine) ping(ctx context.Context) error {
	if err := e.pool.PingContext(ctx); err != nil {
		return unavailable("ping", err)
	}
	return nil
}

func (e *postgresEngine) close() error {
	e.announcer.stop()
	return errors.Join(e.statements.close(), e.pool.Close())
}

// repeatable reports whether the same transaction may succeed now: a serialization failure, a deadlock, or one of the
// unique indexes that decide races between nodes.
func repeatable(err error) bool {
	var failure *pgconn.PgError
	if !errors.As(err, &failure) {
		return false
	}
	switch failure.Code {
	case "40001", "40P01":
		return true
	case "23505":
		return failure.ConstraintName == "jobs_running" || failure.ConstraintName == "events_pkey"
	}
	return false
}

// postgresFault classes an error: what the statement itself got wrong stays as it is, everything else says that
// the database cannot serve now (PostgreSQL manual, appendix A: classes 08, 25, 40, 53, 55, 57, 58, XX).
func postgresFault(operation string, err error) error {
	if err == nil || fault.Is(err, fault.Unavailable) {
		return err
	}
	var failure *pgconn.PgError
	if !errors.As(err, &failure) {
		return unavailable(operation, err)
	}
	for _, class := range []string{"08", "25", "40", "53", "55", "57", "58", "XX"} {
		if strings.HasPrefix(failure.Code, class) {
			return unavailable(operation, err)
		}
	}
	if repeatable(err) {
		return unavailable(operation, err)
	}
	return operationError{operation, err}
}

func hideBadConnection(err error) error {
	if errors.Is(err, errBroken) {
		return nil
	}
	return err
}
