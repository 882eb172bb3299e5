package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
)

// File is the name of the SQLite database in the data directory.
const File = "inbox.db"

// Result codes of SQLite (sqlite.org/rescode.html) that say "not now" rather than "wrong statement".
var sqliteUnavailable = map[int]bool{
	5: true, 6: true, // BUSY, LOCKED
	8: true, 10: true, 13: true, 14: true, // READONLY, IOERR, FULL, CANTOPEN
	7: true, 9: true, 11: true, 26: true, // NOMEM, INTERRUPT, CORRUPT, NOTADB
}

// sqliteEngine is one file with one writing connection and a few that read.
type sqliteEngine struct {
	statements

	writer       *writer
	checkpointer *checkpointer
	writes       *sql.DB
	reads        *sql.DB
	path         string
	groups       atomic.Int64 // of transactions that this process committed
	logger       logger
}

// pragmas of every connection. synchronous=FULL syncs the write-ahead log on each commit: an acknowledged message
// survives the loss of power. _txlock=immediate keeps a reading transaction from failing when it starts to write.
var sqlitePragmas = []string{
	fmt.Sprintf("busy_timeout(%d)", lockPatience.Milliseconds()), "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)", "temp_store(MEMORY)",
}

func sqliteURL(path string, extra ...string) string {
	values := url.Values{"_txlock": {"immediate"}, "_pragma": append(extra, sqlitePragmas...)}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + values.Encode()
}

// sqliteClock is the function of our connections that returns the time in microseconds. SQLite computes a deterministic
// function without arguments once for a statement, so that an index can be asked with it.
const sqliteClock = "inbox_now"

var registerClock = sync.OnceValue(func() error {
	return sqlite.RegisterDeterministicScalarFunction(sqliteClock, 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return nowMicros(), nil
	})
})

func openSQLite(ctx context.Context, options Options) (engine, error) {
	if err := registerClock(); err != nil {
		return nil, unusable("the clock of the database cannot be set up; this is a fault of the program", err)
	}
	path := filepath.Join(options.DataDir, File)
	public := "the database " + path + " cannot be used; check data_dir, its permissions and the free space"
	if err := os.MkdirAll(options.DataDir, 0o700); err != nil {
		return nil, unusable(public, err)
	}
	if err := keepPrivate(options); err != nil {
		return nil, unusable(public, err)
	}
	writes, err := openPool(ctx, sqliteURL(path, "wal_autocheckpoint(16000)"), 1)
	if err != nil {
		return nil, unusable(public, err)
	}
	if err := migrate(ctx, writes, sqliteDialect); err != nil {
		return nil, errors.Join(unusable(public, err), writes.Close())
	}
	reads, err := openPool(ctx, sqliteURL(path, "query_only(ON)"), options.Readers+1) // one of them watches the file
	if err != nil {
		return nil, errors.Join(unusable(public, err), writes.Close())
	}
	w, err := newWriter(ctx, writes)
	if err != nil {
		return nil, errors.Join(unusable(public, err), reads.Close(), writes.Close())
	}
	c := startCheckpointer(reads, w, options.Logger)
	e := &sqliteEngine{
		statements: statements{pool: reads, failed: sqliteFault},
		writer:     w, checkpointer: c, writes: writes, reads: reads, path: path, logger: options.Logger,
	}
	w.committed = func(transactions int) {
		e.groups.Add(1)
		c.wrote(transactions)
	}
	go w.loop()
	return e, nil
}

// Files returns the files of a SQLite database in a directory: the log and its index are there while it is open.
func Files(directory string) []string {
	path := filepath.Join(directory, File)
	return []string{path, path + "-wal", path + "-shm"}
}

// keepPrivate makes the database's files readable for this user alone: the database is made here and not by SQLite, which
// goes by the umask and returns the other two the mode of the first. A user who may write to files of another one cannot
// change their mode; that is told and no more.
func keepPrivate(options Options) error {
	files := Files(options.DataDir)
	file, err := os.OpenFile(files[0], os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&^0o600 == 0 {
			continue // the other two need not be there
		}
		if err := os.Chmod(path, 0o600); err != nil {
			options.Logger.Warn("others on this machine may read the database: let its owner change that",
				"file", path, "mode", info.Mode().Perm().String(), "error", err)
		}
	}
	return nil
}

func openPool(ctx context.Context, dsn string, size int) (*sql.DB, error) {
	pool, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(size)
	pool.SetMaxIdleConns(size)
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return pool, nil
}

// sqliteFault classes an error of the driver; what did not come from the driver stays as it is.
func sqliteFault(operation string, err error) error {
	var failure *sqlite.Error
	switch {
	case errors.As(err, &failure) && !sqliteUnavailable[failure.Code()&0xff]:
		return operationError{operation + " (SQLite " + strconv.Itoa(failure.Code()) + ")", err}
	case failure != nil, errors.Is(err, sql.ErrConnDone), errors.Is(err, driver.ErrBadConn):
		return unavailable(operation, err)
	}
	return err
}

func (e *sqliteEngine) transact(ctx context.Context, work func(*Tx) error) error {
	return e.writer.run(ctx, work)
}

func (e *sqliteEngine) reader() querier   { return &e.statements }
func (e *sqliteEngine) dialect() *dialect { return sqliteDialect }
func (e *sqliteEngine) announce([]wake)   {}

func (e *sqliteEngine) ping(ctx context.Context) error {
	if err := e.reads.PingContext(ctx); err != nil {
		return unavailable("ping", err)
	}
	return nil
}

// close lets the writer finish what it has taken, then closes the connections; the last one folds the write-ahead
// log into the file.
func (e *sqliteEngine) close() error {
	e.writer.stop()
	e.checkpointer.stop()
	return errors.Join(e.statements.close(), e.reads.Close(), e.writes.Close())
}
