package database

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
)

// What a message costs here. docs/performance.md has the counts per message, and a test holds them.
var (
	statementCount = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_store_statements_total", Help: "SQL statements, by whether they ran in a transaction (write) or beside one (read).",
	}, []string{"access"})
	readCount  = statementCount.WithLabelValues("read")
	writeCount = statementCount.WithLabelValues("write")

	roundTrips = promauto.NewCounter(prometheus.CounterOpts{
		Name: "inbox_store_round_trips_total", Help: "Times that a transaction waited for an answer of PostgreSQL.",
	})
)

// Row is the current row of a result.
type Row interface {
	Scan(destinations ...any) error
}

// Querier reads.
type Querier interface {
	// Each calls scan for every row in order, until scan returns an error.
	Each(ctx context.Context, query string, arguments []any, scan func(Row) error) error
}

// Session is one running transaction of an engine.
type Session interface {
	Querier
	// Do changes rows when no caller needs to know how many. An engine may send it together with a later statement:
	// its error then comes back from that one or from the commit.
	Do(ctx context.Context, query string, arguments ...any) error
	// Change changes rows and returns how many.
	Change(ctx context.Context, query string, arguments ...any) (int64, error)
}

// Wake is a notification to be sent after the commit.
type Wake struct{ Channel, Payload string }

// maxStatements bounds a cache of prepared statements. Queries with a variable list of values have several texts.
const maxStatements = 256

// maxWait bounds one read and, on PostgreSQL, one transaction: a network that swallows packets would hold its caller
// for a quarter of an hour.
const maxWait = 30 * time.Second

// statements reads SQLite through a pool of database/sql, with statements prepared once.
type statements struct {
	pool   *sql.DB
	outage *outage

	lock     sync.RWMutex
	prepared map[string]*statement
}

// statement is prepared, and executed with one argument for each parameter.
type statement struct {
	*sql.Stmt
	positional
}

func (s *statements) Each(ctx context.Context, query string, arguments []any, scan func(Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()

	rows, err := s.query(ctx, query, arguments)
	if err != nil {
		return s.outage.note(readFault(ctx, sqliteFault, err))
	}

	scanned, err := scanAll(rows, scan)
	if scanned != nil {
		return scanned
	}

	return s.outage.note(readFault(ctx, sqliteFault, err))
}

// Damage returns the first damage that this process met; nil = none.
func (s *statements) Damage() *Damage { return s.outage.damage.Load() }

// readFault classes the error of a read, which is that of its context once that has ended.
func readFault(ctx context.Context, failed func(operation string, err error) error, err error) error {
	if err != nil && ctx.Err() != nil {
		return Unavailable("read", errors.Join(ctx.Err(), err))
	}
	return failed("read", err)
}

func (s *statements) query(ctx context.Context, query string, arguments []any) (*sql.Rows, error) {
	readCount.Inc()
	statement, err := s.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	if statement == nil {
		return s.pool.QueryContext(ctx, query, arguments...)
	}
	if arguments, err = statement.arguments(arguments); err != nil {
		return nil, err
	}
	return statement.QueryContext(ctx, arguments...)
}

// prepare returns nil when the cache is full of other texts.
func (s *statements) prepare(ctx context.Context, query string) (*statement, error) {
	s.lock.RLock()
	known, full := s.prepared[query], len(s.prepared) >= maxStatements
	s.lock.RUnlock()
	if known != nil || full {
		return known, nil
	}

	s.lock.Lock()
	defer s.lock.Unlock()

	if known := s.prepared[query]; known != nil {
		return known, nil
	}
	text := newPositional(query)
	prepared, err := s.pool.PrepareContext(ctx, text.text)
	if err != nil {
		return nil, err
	}

	if s.prepared == nil {
		s.prepared = make(map[string]*statement)
	}
	s.prepared[query] = &statement{prepared, text}
	return s.prepared[query], nil
}

func (s *statements) close() error {
	s.lock.Lock()
	defer s.lock.Unlock()

	var failures error
	for _, statement := range s.prepared {
		failures = errors.Join(failures, statement.Close())
	}

	s.prepared = nil
	return failures
}

// scanAll returns the error of scan apart from that of the database.
func scanAll(rows *sql.Rows, scan func(Row) error) (scanned, err error) {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err, nil
		}
	}

	return nil, rows.Err()
}

// errClosed is the cause of every refusal after Close.
var errClosed = errors.New("store is closed")

// Unavailable makes the fault of a database that did not do its work.
func Unavailable(operation string, cause error) error {
	return &fault.Fault{
		Kind:       fault.Unavailable,
		Public:     "the message store is not available at the moment; try again later",
		RetryAfter: 5 * time.Second,
		Cause:      down{operationError{operation, cause}},
	}
}

// unknown makes the fault of a commit whose outcome the database did not report.
func unknown(operation string, cause error) error {
	return &fault.Fault{
		Kind:       fault.Unavailable,
		Public:     "the message store did not report whether it stored the change; check before you repeat it",
		RetryAfter: 5 * time.Second,
		Cause:      uncertain{down{operationError{operation, cause}}},
	}
}

// uncertain is a failure after which the change may be stored.
type uncertain struct{ down }

// Is reports whether target is fault.ErrStore or fault.ErrUnknown.
func (u uncertain) Is(target error) bool { return target == fault.ErrUnknown || u.down.Is(target) }

// down is a failure after which the same work may succeed.
type down struct{ operationError }

// Is reports whether target is fault.ErrStore.
func (down) Is(target error) bool { return target == fault.ErrStore }

// unusable makes the fault of a database that cannot be opened; public names where it is and what to change.
func unusable(public string, cause error) error { return fault.Wrap(fault.Unavailable, public, cause) }

// operationError adds the operation; fmt.Errorf costs more than a row on the hot path of a full disk.
type operationError struct {
	operation string
	cause     error
}

func (e operationError) Error() string { return e.operation + ": " + e.cause.Error() }
func (e operationError) Unwrap() error { return e.cause }
