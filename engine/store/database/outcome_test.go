package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"inbox/internal/await"
	"inbox/internal/fault"
)

// ledger is a SQLite database in which each transaction stores two rows with the name of its caller.
type ledger struct {
	*testing.T

	engine *sqliteEngine
	names  int
	begin  func() // is called when a group waits; nil = nothing is
}

func openLedger(t *testing.T, directory string) *ledger {
	t.Helper()
	opened, err := openSQLite(t.Context(), testOptions(directory))
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{T: t, engine: opened.(*sqliteEngine)}
	t.Cleanup(func() {
		if err := l.engine.Close(); err != nil {
			t.Error(err)
		}
	})

	l.execute(`CREATE TABLE first_half (name TEXT, bytes BLOB)`, `CREATE TABLE second_half (name TEXT, bytes BLOB)`)
	return l
}

// execute executes statements of the writer between two transactions.
func (l *ledger) execute(statements ...string) {
	l.Helper()
	err := l.engine.writer.between(l.Context(), func(s *writerSession) (err error) {
		for _, statement := range statements {
			err = errors.Join(err, s.execute(statement))
		}
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
}

// store is a transaction that stores the two rows of a name, with as many bytes in each, and reads between them.
func store(ctx context.Context, s Session, name string, bytes int) error {
	if err := s.Do(ctx, `INSERT INTO first_half VALUES ($1, zeroblob($2))`, name, int64(bytes)); err != nil {
		return err
	}
	if err := s.Each(ctx, `SELECT COUNT(*) FROM first_half`, nil, func(Row) error { return nil }); err != nil {
		return err
	}
	_, err := s.Change(ctx, `INSERT INTO second_half VALUES ($1, zeroblob($2))`, name, int64(bytes))
	return err
}

// together has the transactions run in one group, and returns the error of each.
func (l *ledger) together(works ...func(Session) error) []error {
	l.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	results := make([]error, len(works))
	var group sync.WaitGroup
	group.Go(func() {
		_ = l.engine.Transact(l.Context(), func(Session) error {
			select {
			case <-entered: // the transaction is repeated
			default:
				close(entered)
			}
			<-leave
			return nil
		})
	})

	await.Receive(l.T, entered, "the writer")
	for i, work := range works {
		group.Go(func() { results[i] = l.engine.Transact(l.Context(), work) })
	}
	await.Until(l.T, "all callers to wait", func() bool { return len(l.engine.writer.queue) == len(works) })
	if l.begin != nil {
		l.begin()
	}
	close(leave)
	await.Done(l.T, group.Wait, "the answers to all callers")
	return results
}

// stored returns how many of its two rows a name has.
func (l *ledger) stored(name string) (rows int64) {
	l.Helper()
	err := l.engine.Reader().Each(l.Context(), `SELECT (SELECT COUNT(*) FROM first_half WHERE name = $1) + (SELECT COUNT(*) FROM second_half WHERE name = $1)`,
		[]any{name}, func(r Row) error { return r.Scan(&rows) })
	if err != nil {
		l.Fatal(err)
	}
	return rows
}

// agree checks that what a caller was told is what is stored.
func (l *ledger) agree(name string, told error) {
	l.Helper()
	rows := l.stored(name)
	switch outcome := fault.OutcomeOf(told); {
	case outcome == fault.Done && rows != 2, outcome == fault.NotDone && rows != 0, rows == 1:
		l.Errorf("%s was told %q (%v); %d of its 2 rows are stored", name, outcome, told, rows)
	}
}

// errRefused is the end of work that changes its mind.
var errRefused = errors.New("refused")

// run has callers of these sizes store their rows together while accesses to the disk fail, checks that each was told what is stored,
// and returns the errors. The work of a negative size refuses to be stored in the end.
func (l *ledger) run(fail func(diskFault), fault diskFault, sizes ...int) []error {
	l.Helper()
	names, works := make([]string, len(sizes)), make([]func(Session) error, len(sizes))
	for i, size := range sizes {
		l.names++
		names[i] = fmt.Sprintf("caller %d, with %d bytes", l.names, size)
		works[i] = func(s Session) error {
			if size < 0 {
				return errors.Join(store(l.Context(), s, names[i], -size), errRefused)
			}
			return store(l.Context(), s, names[i], size)
		}
	}

	l.begin = func() { fail(fault) }
	told := l.together(works...)
	l.begin = nil
	fail(nil)
	for i, name := range names {
		l.agree(name, told[i])
	}
	return told
}

// cautious has the writer give each caller of the next groups a savepoint.
func (l *ledger) cautious() {
	l.Helper()
	if told := l.run(healthy, nil, -1, 1); !errors.Is(told[0], errRefused) || told[1] != nil {
		l.Fatalf("told %v", told)
	}
}

// modes are the ways in which the writer runs a group.
var modes = map[string]func(*ledger){"without savepoints": func(*ledger) {}, "with savepoints": (*ledger).cautious}

// TestFullDatabaseFailsOnlyWhatDoesNotFit: SQLite rolls the whole transaction back when the database is full. The callers after the
// one that did not fit were told "failed", and were stored by the RELEASE of a savepoint without a transaction.
func TestFullDatabaseFailsOnlyWhatDoesNotFit(t *testing.T) {
	for name, prepare := range modes {
		t.Run(name, func(t *testing.T) {
			l := openLedger(t, t.TempDir())
			prepare(l)
			l.limit(100)
			for _, position := range []int{0, 1, 3} {
				sizes := []int{10, 10, 10, 10}
				sizes[position] = 1 << 20
				for i, err := range l.run(healthy, nil, sizes...) {
					if (err != nil) != (i == position) {
						t.Errorf("caller %d was told %v when caller %d was too large", i, err, position)
					}
					if err != nil && !fault.Is(err, fault.Unavailable) {
						t.Errorf("the error is %v; want one of the database", err)
					}
				}
			}
		})
	}
}

// limit leaves the database room for some more pages.
func (l *ledger) limit(pages int64) {
	l.Helper()
	var used int64
	if err := l.engine.Each(l.Context(), "PRAGMA page_count", nil, func(r Row) error { return r.Scan(&used) }); err != nil {
		l.Fatal(err)
	}
	l.execute(fmt.Sprintf("PRAGMA max_page_count = %d", used+pages))
}

// TestThirtyTwoWritersFillADatabase: a caller gets an error if and only if nothing of its transaction is stored, before the database is full and after.
func TestThirtyTwoWritersFillADatabase(t *testing.T) {
	for name, prepare := range modes {
		t.Run(name, func(t *testing.T) {
			l := openLedger(t, t.TempDir())
			prepare(l)
			l.limit(200)
			var lock sync.Mutex
			told := map[string]error{}
			var group sync.WaitGroup
			for writer := range 32 {
				group.Go(func() {
					for i := range 30 {
						name := fmt.Sprintf("writer %d, %d", writer, i)
						err := l.engine.Transact(t.Context(), func(s Session) error { return store(t.Context(), s, name, 100*(writer%8)*(i%5)) })
						lock.Lock()
						told[name] = err
						lock.Unlock()
					}
				})
			}

			await.Done(t, group.Wait, "the answers to all callers")
			done := 0
			for name, err := range told {
				l.agree(name, err)
				if err == nil {
					done++
				}
			}
			if done == 0 || done == len(told) {
				t.Errorf("%d of %d transactions were done; the database was to become full", done, len(told))
			}
		})
	}
}

// healthy is for disks that do not fail.
func healthy(diskFault) {}

// TestEachAccessFails has one access to a file after the other fail, once or from then on, while callers share a transaction whose
// pages do not fit into memory: statements in the middle of it read and write files, and its commit does.
func TestEachAccessFails(t *testing.T) {
	for name, code := range map[string]int32{
		"write FULL": sqlite3.SQLITE_FULL, "write IOERR": sqlite3.SQLITE_IOERR_WRITE, "write NOMEM": sqlite3.SQLITE_NOMEM,
		"read IOERR": sqlite3.SQLITE_IOERR_READ, "read NOMEM": sqlite3.SQLITE_IOERR_NOMEM, "sync IOERR": sqlite3.SQLITE_IOERR_FSYNC,
	} {
		for mode, prepare := range modes {
			for _, lasting := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s, lasting %t", name, mode, lasting), func(t *testing.T) {
					directory, fail := failingDisk(t)
					l := openLedger(t, directory)
					l.engine.checkpointer.stop() // the writer's accesses are counted
					l.execute("PRAGMA cache_size = 5", "PRAGMA wal_autocheckpoint = 0")
					prepare(l)
					access, _, _ := strings.Cut(name, " ")
					if access != "sync" {
						l.execute("PRAGMA synchronous = OFF") // hundreds of commits
					}
					if failures := l.failEach(fail, access, code, lasting); lasting && access != "read" && failures == 0 { // pages may be in memory
						t.Error("no caller was told of a failure")
					}
					if told := l.run(fail, nil, 10, 10); errors.Join(told...) != nil {
						t.Errorf("after the disk recovered: %v", told)
					}
				})
			}
		}
	}
}

// failEach has each access of a kind fail in turn, and returns how often a caller was told of it.
func (l *ledger) failEach(fail func(diskFault), access string, code int32, lasting bool) (failures int) {
	l.Helper()
	for nth := int64(1); nth < 2000; nth++ {
		var count atomic.Int64
		told := l.run(fail, func(given, _ string) int32 {
			if given != access {
				return sqlite3.SQLITE_OK
			}
			if n := count.Add(1); n == nth || lasting && n > nth {
				return code
			}
			return sqlite3.SQLITE_OK
		}, 10, 20_000, -8_000, 6_000)
		if fault.Is(errors.Join(told...), fault.Unavailable) {
			failures++
		}
		if count.Load() < nth {
			return failures
		}
		l.execute(`DELETE FROM first_half`, `DELETE FROM second_half`)
	}
	l.Fatal("the accesses do not end")
	return 0
}

// TestNothingIsStoredAfterTheTransactionIsGone: work that ignores the error of a statement does not store what follows it.
func TestNothingIsStoredAfterTheTransactionIsGone(t *testing.T) {
	for name, prepare := range modes {
		t.Run(name, func(t *testing.T) {
			l := openLedger(t, t.TempDir())
			prepare(l)
			l.limit(100)
			told := l.together(
				func(s Session) error { return store(t.Context(), s, "first", 10) },
				func(s Session) error {
					_ = s.Do(t.Context(), `INSERT INTO first_half VALUES ('large', zeroblob(1000000))`)
					return store(t.Context(), s, "second", 10)
				},
				func(s Session) error {
					_ = s.Do(t.Context(), `INSERT INTO first_half VALUES ('large', zeroblob(1000000))`)
					_ = store(t.Context(), s, "third", 10)
					return nil
				},
			)
			for i, name := range []string{"first", "second", "third"} {
				l.agree(name, told[i])
			}
			if told[0] != nil || told[1] == nil || told[2] == nil {
				t.Errorf("told %v; want an error for each whose transaction was rolled back", told)
			}
		})
	}
}

// TestFailedSyncOfACommitIsUnknown: SQLite rolls a transaction back when its log cannot be synced. A crash before the next commit
// brings the transaction back, because all of it is in the log.
func TestFailedSyncOfACommitIsUnknown(t *testing.T) {
	directory, fail := failingDisk(t)
	l := openLedger(t, directory)
	fail(func(access, path string) int32 {
		if access == "sync" && strings.HasSuffix(path, "-wal") {
			return sqlite3.SQLITE_IOERR_FSYNC
		}
		return sqlite3.SQLITE_OK
	})
	err := l.engine.Transact(t.Context(), func(s Session) error { return store(t.Context(), s, "lost", 10) })
	if fault.OutcomeOf(err) != fault.Unknown || !fault.Is(err, fault.Unavailable) || !errors.Is(err, fault.ErrStore) {
		t.Errorf("told %v, outcome %q", err, fault.OutcomeOf(err))
	}
	if rows := l.stored("lost"); rows != 0 {
		t.Errorf("%d rows are stored before the crash", rows)
	}

	crashed := t.TempDir()
	for _, path := range Files(directory)[:2] {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(crashed, filepath.Base(path)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fail(nil)
	opened, err := openSQLite(t.Context(), testOptions(crashed))
	if err != nil {
		t.Fatal(err)
	}
	after := &ledger{T: t, engine: opened.(*sqliteEngine)}
	if rows := after.stored("lost"); rows != 2 {
		t.Errorf("%d rows after the crash; if the transaction never returns, its outcome is not done", rows)
	}
	if err := after.engine.Close(); err != nil {
		t.Error(err)
	}
}
