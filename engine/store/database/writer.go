package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var groupSize = promauto.NewHistogram(prometheus.HistogramOpts{
	Name: "inbox_store_group_size", Help: "Transactions that shared one commit of SQLite.",
	Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
})

const (
	// maxGroup bounds the callers' transactions that share one commit.
	maxGroup = 128
	// lockPatience is how long a transaction waits for another process that holds the write lock, such as a shell of SQLite.
	lockPatience = 10 * time.Second
	// shortPatience is how long the next ones wait, until one gets the lock: to accept a message takes several transactions, and a
	// peer that hears "try again later" at once is better off than one that waits for each of them.
	shortPatience = 250 * time.Millisecond
	// maxQueued bounds the callers that wait in the queue; the rest wait until it has room. It is less than
	// maxGroup, so that stopping takes the whole queue at once.
	maxQueued = 32
)

// writer runs the transactions of all callers on the one connection that may write. It takes as many as are
// waiting into one database transaction, each in a savepoint, and answers them after the common commit: one fsync
// for all of them.
type writer struct {
	connection *sql.Conn
	session    *writerSession
	queue      chan *submission
	pauses     chan *pause
	stopping   chan struct{} // closed by stop: no new submissions
	stopOnce   sync.Once
	finished   chan struct{} // closed when the loop has ended

	committed func(transactions int) // told of every group
	careful   int                    // groups that still get savepoints
	locked    bool                   // another process held the write lock when the last group wanted it
}

// carefulGroups is how many groups get savepoints after one whose rows had to be rolled back: failures come in
// swarms, and a sender may provoke them.
const carefulGroups = 100

// errHalfDone reports that one caller's work failed after it had changed rows, so that all must be rolled back.
var errHalfDone = errors.New("half done")

// submission is one caller's transaction on its way through the writer.
type submission struct {
	work  func(Session) error
	taken atomic.Bool // by the writer or by the caller that gave up
	err   error
	done  chan struct{}
}

// pause is work on the connection between two transactions.
type pause struct {
	work func(*writerSession) error
	done chan error
}

func newWriter(ctx context.Context, pool *sql.DB) (*writer, error) {
	connection, err := pool.Conn(ctx)
	if err != nil {
		return nil, sqliteFault("open writer", err)
	}

	return &writer{
		connection: connection,
		session:    &writerSession{connection: connection, prepared: make(map[string]*sql.Stmt)},
		queue:      make(chan *submission, maxQueued),
		pauses:     make(chan *pause),
		stopping:   make(chan struct{}),
		finished:   make(chan struct{}),
	}, nil
}

// run has the work done. When ctx ends before the writer took it, nothing was done; afterwards run waits for the
// outcome, because work may be using the caller's variables.
func (w *writer) run(ctx context.Context, work func(Session) error) error {
	if ctx.Err() != nil {
		return Unavailable("wait for the writer", ctx.Err())
	}
	e := &submission{work: work, done: make(chan struct{})}
	select {
	case w.queue <- e:
	case <-w.stopping:
		return Unavailable("write", errClosed)
	case <-ctx.Done():
		return Unavailable("wait for the writer", ctx.Err())
	}

	cause := errClosed
	select {
	case <-e.done:
		return e.err
	case <-w.finished:
	case <-ctx.Done():
		cause = ctx.Err()
	}

	if e.taken.CompareAndSwap(false, true) {
		return Unavailable("wait for the writer", cause)
	}
	<-e.done
	return e.err
}

// between runs work between two transactions; the callers' transactions wait for it.
func (w *writer) between(ctx context.Context, work func(*writerSession) error) error {
	p := &pause{work: work, done: make(chan error, 1)}
	select {
	case w.pauses <- p:
		return <-p.done
	case <-w.finished:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop refuses new submissions, finishes those in the queue and releases the connection.
func (w *writer) stop() {
	w.stopOnce.Do(func() { close(w.stopping) })
	<-w.finished
}

func (w *writer) loop() {
	defer close(w.finished)
	defer w.session.close()

	group := make([]*submission, 0, maxGroup)
	for stopped := false; !stopped; {
		select {
		case e := <-w.queue:
			group = append(group[:0], e)
			runtime.Gosched() // lets callers that the last commit released join: a quarter fewer commits with 32

		case p := <-w.pauses:
			group = group[:0]
			p.done <- p.work(w.session)

		case <-w.stopping:
			group, stopped = group[:0], true
		}

		w.transact(w.collect(group))
	}
}

// collect adds what is waiting already; it never waits itself, because the commit before was pause enough.
func (w *writer) collect(group []*submission) []*submission {
	for len(group) < maxGroup {
		select {
		case e := <-w.queue:
			group = append(group, e)
		default:
			return group
		}
	}
	return group
}

// transact runs the group in one database transaction. Savepoints around each caller's work cost as much as a row,
// so the group first goes without: only when one fails half-way is everything rolled back and run again with them.
func (w *writer) transact(group []*submission) {
	if len(group) == 0 {
		return
	}

	for i, e := range group {
		if !e.taken.CompareAndSwap(false, true) {
			group[i] = nil // the caller has left
		}
	}

	failure := w.together(group)
	if errors.Is(failure, errHalfDone) {
		w.careful = carefulGroups
		failure = w.together(group)
	}

	w.careful = max(0, w.careful-1)
	groupSize.Observe(float64(len(group)))
	w.committed(len(group))
	for _, e := range group {
		if e == nil {
			continue
		}
		if e.err == nil {
			e.err = failure
		}

		close(e.done)
	}
}

func (w *writer) together(group []*submission) error {
	err := w.session.execute("BEGIN IMMEDIATE")
	w.expectLock(err)
	if err != nil {
		return err
	}

	for _, e := range group {
		switch {
		case e == nil:
		case w.careful > 0:
			e.err = w.session.savepoint(e.work)
		default:
			if e.err = w.session.plain(e.work); e.err != nil && w.session.changed {
				w.session.rollback()
				return errHalfDone
			}
		}
	}

	return w.session.commit()
}

// expectLock sets how long the next transaction waits for the write lock, after one that got it or did not.
func (w *writer) expectLock(outcome error) {
	var failure *sqlite.Error
	locked := errors.As(outcome, &failure) && failure.Code()&0xff == sqlite3.SQLITE_BUSY
	if locked == w.locked {
		return
	}

	wait := lockPatience
	if locked {
		wait = shortPatience
	}
	if err := w.session.wait(wait); err == nil {
		w.locked = locked
	}
}

// guarded keeps a panic of a caller's function from ending the writer or losing a connection.
func guarded(work func(Session) error, running Session) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic in a transaction: %v\n%s", reason, debug.Stack())
		}
	}()
	return work(running)
}

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
	_, err := s.Change(context.Background(), query)
	return err
}

func (s *writerSession) Do(ctx context.Context, query string, arguments ...any) error {
	_, err := s.Change(ctx, query, arguments...)
	return err
}

func (s *writerSession) Change(_ context.Context, query string, arguments ...any) (int64, error) {
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

func (s *writerSession) Each(_ context.Context, query string, arguments []any, scan func(Row) error) error {
	statement, err := s.statement(query)
	if err != nil {
		return err
	}

	rows, err := statement.QueryContext(context.Background(), arguments...)
	if err != nil {
		return sqliteFault("read", err)
	}

	scanned, err := scanAll(rows, func(r Row) error {
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
func (s *writerSession) plain(work func(Session) error) error {
	s.changed = false
	return guarded(work, s)
}

// savepoint runs one caller's work so that its failure undoes its own changes alone.
func (s *writerSession) savepoint(work func(Session) error) error {
	if err := s.execute("SAVEPOINT caller"); err != nil {
		return err
	}
	failure := guarded(work, s)
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
		return Unavailable("commit", err)
	}
	return nil
}

// rollback fails only when SQLite has ended the transaction itself.
func (s *writerSession) rollback() { _ = s.execute("ROLLBACK") }

func (s *writerSession) close() {
	s.forget()
	_ = s.connection.Close()
}
