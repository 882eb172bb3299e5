package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// errBroken makes database/sql drop a connection.
var errBroken = driver.ErrBadConn

// errRolledBack is what a COMMIT of a failed transaction comes to.
var errRolledBack = errors.New("the database rolled the transaction back")

// postgresSession is one transaction. Statements whose result nobody needs wait for the next one that somebody
// does need and travel with it in one pipeline: an acceptance takes two round trips instead of six.
type postgresSession struct {
	connection *pgx.Conn
	pending    pgx.Batch
	begun      bool
}

func (s *postgresSession) do(_ context.Context, query string, arguments ...any) error {
	s.queue(query, arguments)
	return nil
}

func (s *postgresSession) change(ctx context.Context, query string, arguments ...any) (int64, error) {
	s.queue(query, arguments)
	var changed int64
	err := s.send(ctx, func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		changed = tag.RowsAffected()
		return err
	})
	return changed, postgresFault("write", err)
}

func (s *postgresSession) each(ctx context.Context, query string, arguments []any, scan func(row) error) error {
	s.queue(query, arguments)
	var scanned error
	err := s.send(ctx, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		for scanned == nil && rows.Next() {
			scanned = scan(rows)
		}
		rows.Close()
		return rows.Err()
	})
	return errors.Join(scanned, postgresFault("read", err))
}

func (s *postgresSession) queue(query string, arguments []any) {
	if !s.begun {
		s.begun = true
		s.pending.Queue("BEGIN")
	}
	s.pending.Queue(query, arguments...)
}

// send sends what is pending and returns the result of the last statement to last.
func (s *postgresSession) send(ctx context.Context, last func(pgx.BatchResults) error) (err error) {
	batch := s.pending
	s.pending = pgx.Batch{}
	results := s.connection.SendBatch(ctx, &batch)
	defer func() {
		if failure := results.Close(); err == nil {
			err = failure
		}
	}()
	for range batch.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return last(results)
}

func (s *postgresSession) commit(ctx context.Context) error {
	if !s.begun {
		return nil
	}
	s.pending.Queue("COMMIT")
	err := s.send(ctx, func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		if err == nil && tag.String() != "COMMIT" {
			return errRolledBack
		}
		return err
	})
	return postgresFault("commit", err)
}

// release leaves the connection without a transaction, or has it dropped.
func (s *postgresSession) release(result error) error {
	if s.connection.IsClosed() {
		return errBroken
	}
	if result == nil || s.connection.PgConn().TxStatus() == 'I' {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := s.connection.Exec(ctx, "ROLLBACK"); err != nil {
		return errBroken
	}
	return nil
}
