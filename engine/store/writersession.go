package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// writerSession is the writer's connection with its prepared statements. Statements do not take the callers'
// contexts: an interrupt would hit the transaction that all of them share, and none of them waits for others.
type writerSession struct {
	connection *sql.Conn
	prepared   map[string]*sql.Stmt
	changed    bool // the current caller's work may have changed rows
}

func (s *writerSession) statement(query string) (*sql.Stmt, error) {
	if statement := s.prepared[query]; statement != nil {
		return statement, nil
	}
	if len(s.prepared) >= maxStatements {
		s.forget()
	}
	statement, err := s.connection.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, sqliteFault("prepare", err)
	}
	s.prepared[query] = statement
	return statement, nil
}

// forget drops all statements; a workload with so many texts does not gain from them.
func (s *writerSession) forget() {
	for query, statement := range s.prepared {
		_ = statement.Close()
		delete(s.prepared, query)
	}
}

func (s *writerSession) execute(query string) error {
	_, err := s.change(context.Background(), query)
	return err
}

func (s *writerSession) do(ctx context.Context, query string, arguments ...any) error {
	_, err := s.change(ctx, query, arguments...)
	return err
}

func (s *writerSession) change(_ context.Context, query string, arguments ...any) (int64, error) {
	statement, err := s.statement(query)
	if err != nil {
		return 0, err
	}
	result, err := statement.ExecContext(context.Background(), arguments...)
	if err != nil {
		s.changed = true // a statement undoes itself, but some errors end the transaction
		return 0, sqliteFault("write", err)
	}
	rows, err := result.RowsAffected()
	s.changed = s.changed || rows > 0 || err != nil
	return rows, err
}

func (s *writerSession) each(_ context.Context, query string, arguments []any, scan func(row) error) error {
	statement, err := s.statement(query)
	if err != nil {
		return err
	}
	rows, err := statement.QueryContext(context.Background(), arguments...)
	if err != nil {
		return sqliteFault("read", err)
	}
	scanned, err := scanAll(rows, func(r row) error {
		s.changed = true // it may be a RETURNING
		return scan(r)
	})
	if scanned != nil {
		return scanned
	}
	return sqliteFault("read", err)
}

// wait sets how long a transaction waits for the write lock.
func (s *writerSession) wait(limit time.Duration) error {
	_, err := s.connection.ExecContext(context.Background(), fmt.Sprintf("PRAGMA busy_timeout(%d)", limit.Milliseconds()))
	return err
}

// plain runs one caller's work directly in the transaction.
func (s *writerSession) plain(work func(*Tx) error) error {
	s.changed = false
	return guarded(work, &Tx{session: s, dialect: sqliteDialect})
}

// savepoint runs one caller's work so that its failure undoes its own changes alone.
func (s *writerSession) savepoint(work func(*Tx) error) error {
	if err := s.execute("SAVEPOINT caller"); err != nil {
		return err
	}
	failure := guarded(work, &Tx{session: s, dialect: sqliteDialect})
	if failure != nil {
		if err := s.execute("ROLLBACK TO caller"); err != nil {
			return errors.Join(failure, err)
		}
	}
	if err := s.execute("RELEASE caller"); err != nil {
		return errors.Join(failure, err)
	}
	return failure
}

// commit ends the transaction; after a failed commit it is rolled back, so that the next one can begin.
func (s *writerSession) commit() error {
	err := s.execute("COMMIT")
	if err != nil {
		s.rollback()
		return unavailable("commit", err)
	}
	return nil
}

// rollback fails only when SQLite has ended the transaction itself.
func (s *writerSession) rollback() { _ = s.execute("ROLLBACK") }

func (s *writerSession) close() {
	s.forget()
	_ = s.connection.Close()
}
