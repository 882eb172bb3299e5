package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// maxStatements bounds a cache of prepared statements. Queries with a variable list of values have several texts.
const maxStatements = 256

// maxWait bounds one read and, on PostgreSQL, one transaction: a network that swallows packets would hold its caller
// for a quarter of an hour.
const maxWait = 30 * time.Second

// statements reads through a pool with statements prepared once.
type statements struct {
	pool   *sql.DB
	failed func(operation string, err error) error
	lost   func(error) bool // the query failed with its connection and may be asked again; nil = never

	lock     sync.RWMutex
	prepared map[string]*sql.Stmt
}

func (s *statements) each(ctx context.Context, query string, arguments []any, scan func(row) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	rows, err := s.query(ctx, query, arguments)
	if err != nil && ctx.Err() == nil && s.lost != nil && s.lost(err) {
		rows, err = s.query(ctx, query, arguments)
	}
	if err != nil {
		return s.read(ctx, err)
	}
	scanned, err := scanAll(rows, scan)
	if scanned != nil {
		return scanned
	}
	return s.read(ctx, err)
}

func (s *statements) read(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return unavailable("read", errors.Join(ctx.Err(), err))
	}
	return s.failed("read", err)
}

func (s *statements) query(ctx context.Context, query string, arguments []any) (*sql.Rows, error) {
	statement, err := s.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	if statement == nil {
		return s.pool.QueryContext(ctx, query, arguments...)
	}
	return statement.QueryContext(ctx, arguments...)
}

// prepare returns nil when the cache is full of other texts.
func (s *statements) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	s.lock.RLock()
	statement, full := s.prepared[query], len(s.prepared) >= maxStatements
	s.lock.RUnlock()
	if statement != nil || full {
		return statement, nil
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if statement := s.prepared[query]; statement != nil {
		return statement, nil
	}
	statement, err := s.pool.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if s.prepared == nil {
		s.prepared = make(map[string]*sql.Stmt)
	}
	s.prepared[query] = statement
	return statement, nil
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
func scanAll(rows *sql.Rows, scan func(row) error) (scanned, err error) {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}
