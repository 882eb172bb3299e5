package database

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errShared refuses a pooler between this node and PostgreSQL that does not keep sessions.
var errShared = errors.New("a pooler gives each transaction another session, which loses prepared statements, settings, LISTEN and locks: " +
	"set pool_mode = session for this database in PgBouncer, or connect without it")

// errSilent is the error of a server that accepts a connection and does not answer on it.
var errSilent = errors.New("it accepted the connection and did not answer: if PgBouncer is there and its pool is full, raise default_pool_size or lower " +
	"database.connections; otherwise check whether PostgreSQL hangs")

// noticeSilence makes a new connection end with errSilent if the server does not answer its first question in time.
func noticeSilence(config *pgconn.Config) {
	validate := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, connection *pgconn.PgConn) error {
		err := validate(ctx, connection)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errSilent
		}
		return err
	}
}

// refuseSharedSessions finds a pooler that does not give each connection a session of its own. It would fail later, when two connections
// use one session.
func refuseSharedSessions(ctx context.Context, pool *pgxpool.Pool, config *pgconn.Config) error {
	return pool.AcquireFunc(ctx, func(connection *pgxpool.Conn) error {
		first := connection.Conn().PgConn()
		process, err := valueOf(ctx, first, selectProcess)
		if err != nil || process == strconv.FormatUint(uint64(first.PID()), 10) {
			return err // PostgreSQL itself answers: a pooler gives its clients numbers of its own
		}
		return compareSessions(ctx, first, config)
	})
}

const selectProcess = "SELECT pg_backend_pid()"

// compareSessions looks whether another connection gets the session of the first, and whether the first keeps its own while the other one
// is in a transaction.
func compareSessions(ctx context.Context, first *pgconn.PgConn, config *pgconn.Config) (err error) {
	second, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Close(ctx)) }()

	mine, err := valueOf(ctx, first, selectProcess)
	if err != nil {
		return err
	}
	other, err := valueOf(ctx, second, selectProcess)
	if err != nil {
		return err
	}
	if mine == other {
		return errShared
	}

	if _, err := second.Exec(ctx, "BEGIN; "+selectProcess).ReadAll(); err != nil {
		return err
	}
	again, err := valueOf(ctx, first, selectProcess)
	if err == nil && again != mine {
		return errShared
	}
	return err
}
