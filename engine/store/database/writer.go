package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
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

// writer runs the transactions of all callers on the one connection that may write. It runs as many as are waiting in one
// database transaction and answers them after the common commit: one fsync for all of them. What a caller is told follows from
// the state of the transaction after each statement: SQLite ends it when the disk is full, a read or write fails, or memory is short.
type writer struct {
	session  *writerSession
	queue    chan *submission
	pauses   chan *pause
	stopping chan struct{} // closed by stop: no new submissions
	stopOnce sync.Once
	finished chan struct{} // closed when the loop has ended

	committed func(statements int) // told of every group that was committed
	careful   int                  // groups that still get savepoints
	locked    bool                 // another process held the write lock when the last group wanted it
}

// carefulGroups is how many groups get savepoints after one whose rows had to be rolled back: failures come in
// swarms, and a sender may provoke them.
const carefulGroups = 100

var (
	// errHalfDone reports that one caller's work failed after it had changed rows, so that the group was rolled back.
	errHalfDone = errors.New("half done")
	// errUndone reports that a transaction was rolled back, by SQLite itself or because its commit failed, and that nothing of it is stored.
	errUndone = errors.New("the transaction was rolled back")
)

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

	session, err := newWriterSession(connection)
	if err != nil {
		return nil, errors.Join(sqliteFault("open writer", err), connection.Close())
	}

	return &writer{
		session:  session,
		queue:    make(chan *submission, maxQueued),
		pauses:   make(chan *pause),
		stopping: make(chan struct{}),
		finished: make(chan struct{}),
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
// When the transaction is lost, each caller gets one of its own: the cause may be the work of one of them.
func (w *writer) transact(group []*submission) {
	group = slices.DeleteFunc(group, func(e *submission) bool { return !e.taken.CompareAndSwap(false, true) }) // the caller has left
	if len(group) == 0 {
		return
	}

	failure := w.together(group)
	if errors.Is(failure, errHalfDone) && len(group) > 1 {
		failure = w.together(group)
	}
	if errors.Is(failure, errUndone) && len(group) > 1 {
		for i := range group {
			_ = w.together(group[i : i+1]) // the caller has the error
		}
	}

	w.careful = max(0, w.careful-1)
	groupSize.Observe(float64(len(group)))
	w.committed(w.session.statements)
	for _, e := range group {
		close(e.done)
	}
}

// together runs a group in one transaction and says what became of it. Each caller gets the error of its work, or that of the
// transaction: what its work read may have been undone with it.
func (w *writer) together(group []*submission) error {
	err := w.session.begin()
	w.expectLock(err)
	if err != nil {
		return failAll(group, err)
	}

	for _, e := range group {
		if w.careful > 0 {
			e.err = w.session.savepoint(e.work)
		} else {
			e.err = w.session.plain(e.work)
		}

		switch {
		case w.session.undone:
			w.session.rollback()
			lost := Unavailable("write", errUndone)
			e.err = cmp.Or(e.err, lost)
			return lost
		case w.careful == 0 && e.err != nil && w.session.changed:
			w.session.rollback()
			w.careful = carefulGroups
			return errHalfDone
		}
	}

	if err := w.session.commit(); err != nil {
		return failAll(group, err)
	}
	return nil
}

func failAll(group []*submission, failure error) error {
	for _, e := range group {
		e.err = failure
	}
	return failure
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
	prepared   map[string]*statement
	changed    bool // the current caller's work may have changed rows
	open       bool // a transaction is open
	statements int  // of callers since the transaction began
	undone     bool // SQLite rolled back the transaction in which the callers' work runs, or it must be
}

// newWriterSession has SQLite report every rollback: the driver does not export sqlite3_get_autocommit. The hook runs inside the
// statement that causes the rollback.
func newWriterSession(connection *sql.Conn) (*writerSession, error) {
	s := &writerSession{connection: connection, prepared: make(map[string]*statement)}
	return s, s.onRollback(func() { s.open, s.undone = false, s.undone || s.open })
}

func (s *writerSession) onRollback(hook func()) error {
	return s.connection.Raw(func(driver any) error {
		driver.(sqlite.HookRegisterer).RegisterRollbackHook(hook)
		return nil
	})
}

func (s *writerSession) statement(query string) (*statement, error) {
	if known := s.prepared[query]; known != nil {
		return known, nil
	}
	if len(s.prepared) >= maxStatements {
		s.forget()
	}

	text := newPositional(query)
	prepared, err := s.connection.PrepareContext(context.Background(), text.text)
	if err != nil {
		return nil, sqliteFault("prepare", err)
	}

	s.prepared[query] = &statement{prepared, text}
	return s.prepared[query], nil
}

// forget drops all statements; a workload with so many texts does not gain from them.
func (s *writerSession) forget() {
	for query, statement := range s.prepared {
		_ = statement.Close()
		delete(s.prepared, query)
	}
}

// execute executes a statement that is not a caller's.
func (s *writerSession) execute(query string) error {
	statement, err := s.statement(query)
	if err == nil {
		_, err = statement.ExecContext(context.Background())
	}
	return sqliteFault("write", err)
}

func (s *writerSession) Do(ctx context.Context, query string, arguments ...any) error {
	_, err := s.Change(ctx, query, arguments...)
	return err
}

func (s *writerSession) Change(_ context.Context, query string, arguments ...any) (int64, error) {
	statement, arguments, err := s.ofTransaction(query, arguments)
	if err != nil {
		return 0, err
	}

	result, err := statement.ExecContext(context.Background(), arguments...)
	if err != nil {
		s.changed = true // not every statement that fails undoes itself
		return 0, sqliteFault("write", err)
	}

	rows, err := result.RowsAffected()
	s.changed = s.changed || rows > 0 || err != nil
	return rows, err
}

func (s *writerSession) Each(_ context.Context, query string, arguments []any, scan func(Row) error) error {
	statement, arguments, err := s.ofTransaction(query, arguments)
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

// ofTransaction returns a caller's statement and the arguments for its parameters. After SQLite has rolled the transaction back there is
// none: the statement would commit by itself.
func (s *writerSession) ofTransaction(query string, given []any) (found *statement, arguments []any, err error) {
	if s.undone {
		return nil, nil, Unavailable("write", errUndone)
	}
	writeCount.Inc()
	s.statements++
	if found, err = s.statement(query); err != nil {
		return nil, nil, err
	}
	arguments, err = found.arguments(given)
	return found, arguments, err
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

// savepoint runs one caller's work so that its failure undoes its own changes alone. If they cannot be undone, the whole
// transaction must be.
func (s *writerSession) savepoint(work func(Session) error) error {
	if err := s.execute("SAVEPOINT caller"); err != nil {
		return err
	}

	failure := guarded(work, s)
	if s.undone {
		return failure
	}

	var err error
	if failure != nil {
		err = s.execute("ROLLBACK TO caller")
	}
	if err == nil {
		err = s.execute("RELEASE caller")
	}
	if err == nil {
		return failure
	}

	s.undone = true
	return errors.Join(failure, err)
}

// begin starts a transaction. One that could not be rolled back before is rolled back first.
func (s *writerSession) begin() error {
	s.rollback()
	s.statements = 0
	err := s.execute("BEGIN IMMEDIATE")
	s.open = s.open || err == nil
	return err
}

// commit ends the transaction. A failed one is rolled back, so that the next one can begin.
func (s *writerSession) commit() error {
	err := s.execute("COMMIT")
	if err == nil {
		s.open = false
		return nil
	}

	s.rollback()
	if mayBeStored(err) {
		return unknown("commit", err)
	}
	return Unavailable("commit", fmt.Errorf("%w: %w", errUndone, err))
}

// mayBeStored reports whether a transaction whose COMMIT failed may be found after a crash, although SQLite rolled it back: its last
// frame is in the write-ahead log unless writing it failed, and stays there until the next commit replaces it. So it is when the
// log cannot be synced.
func mayBeStored(err error) bool {
	failure, is := errors.AsType[*sqlite.Error](err)
	if !is {
		return true
	}

	switch failure.Code() & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CONSTRAINT:
		return false
	}
	return failure.Code() != sqlite3.SQLITE_IOERR_WRITE
}

// rollback ends the transaction without its changes, unless SQLite has ended it.
func (s *writerSession) rollback() {
	if s.open {
		_ = s.execute("ROLLBACK") // if it fails, the transaction stays open until the next one begins
	}
	s.undone = false
}

func (s *writerSession) close() {
	s.forget()
	_ = s.onRollback(nil)
	_ = s.connection.Close()
}
