package database

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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"modernc.org/sqlite"
)

// File is the name of the SQLite database in the data directory.
const File = "inbox.db"

// Result codes of SQLite (sqlite.org/rescode.html) that say "not now" rather than "wrong statement".
var sqliteUnavailable = map[int]bool{
	5: true, 6: true, // BUSY, LOCKED
	8: true, 10: true, 13: true, 14: true, // READONLY, IOERR, FULL, CANTOPEN
	7: true, 9: true, // NOMEM, INTERRUPT
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

// SQLiteNow is the SQL of that time.
const SQLiteNow = sqliteClock + "()"

var registerClock = sync.OnceValue(func() error {
	return sqlite.RegisterDeterministicScalarFunction(sqliteClock, 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMicro(), nil
	})
})

func openSQLite(ctx context.Context, options Options) (Engine, error) {
	if err := registerClock(); err != nil {
		return nil, unusable("the clock of the database cannot be set up; this is a fault of the program", err)
	}
	path := filepath.Join(options.DataDir, File)
	if err := os.MkdirAll(options.DataDir, 0o700); err != nil {
		return nil, unusableSQLite(path, err)
	}

	lock, err := lockSchema(ctx, options.DataDir, options.Logger)
	if err != nil {
		return nil, unusableSQLite(path, err)
	}
	defer func() { _ = lock.Leave() }() // closing the file releases it

	if err := keepPrivate(path, options.Logger); err != nil {
		return nil, unusableSQLite(path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, unusableSQLite(path, err)
	}
	fresh := info.Size() == 0 && !options.AsFound
	e, err := openSQLiteFile(ctx, path, "wal_autocheckpoint(16000)", options, func(writes *sql.DB) error {
		if fresh {
			if _, err := writes.ExecContext(ctx, markOverwritten); err != nil {
				return err
			}
		}
		return migrateOrKeep(ctx, writes, sqliteSchema, options)
	})
	if err != nil {
		return nil, unusableSQLite(path, err)
	}
	return e, nil
}

// openSQLiteFile opens a file, makes its schema with prepare, and starts its writer and its checkpointer.
func openSQLiteFile(ctx context.Context, path, checkpoints string, options Options, prepare func(writes *sql.DB) error) (*sqliteEngine, error) {
	writes, err := openPool(ctx, sqliteURL(path, checkpoints, "secure_delete(ON)", fmt.Sprintf("journal_size_limit(%d)", logLimit)), 1)
	if err != nil {
		return nil, err
	}
	if err := prepare(writes); err != nil {
		return nil, errors.Join(err, writes.Close())
	}
	reads, err := openPool(ctx, sqliteURL(path, "query_only(ON)"), options.Readers+1) // one of them watches the file
	if err != nil {
		return nil, errors.Join(err, writes.Close())
	}

	w, err := newWriter(ctx, writes)
	if err != nil {
		return nil, errors.Join(err, reads.Close(), writes.Close())
	}

	c := startCheckpointer(reads, w, path, options.Logger)
	e := &sqliteEngine{
		statements: statements{pool: reads, outage: &outage{logger: options.Logger, remedy: sqliteRemedy}},
		writer:     w, checkpointer: c, writes: writes, reads: reads, path: path, logger: options.Logger,
	}
	w.committed = func(statements int) {
		e.groups.Add(1)
		c.wrote(statements)
	}

	go w.loop()
	return e, nil
}

// Files returns the files of a SQLite database in a directory, the search index last. The logs and their indexes are there while it is open.
func Files(directory string) []string {
	return append(filesOf(filepath.Join(directory, File)), filesOf(filepath.Join(directory, WordsFile))...)
}

func filesOf(path string) []string { return []string{path, path + "-wal", path + "-shm"} }

// keepPrivate makes the database's files readable for this user alone: the database is made here and not by SQLite, which
// goes by the umask and returns the other two the mode of the first. A user who may write to files of another one cannot
// change their mode; that is logged, and is all.
func keepPrivate(path string, log logger) error {
	files := filesOf(path)
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
			log.Warn("others on this machine may read the database: let its owner change that",
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
	case sqliteDamaged(err):
		return damagedStore(operation, err)
	case errors.As(err, &failure) && !sqliteUnavailable[failure.Code()&0xff]:
		return operationError{operation + " (SQLite " + strconv.Itoa(failure.Code()) + ")", err}
	case failure != nil, errors.Is(err, sql.ErrConnDone), errors.Is(err, driver.ErrBadConn):
		return Unavailable(operation, err)
	}
	return err
}

func (e *sqliteEngine) Transact(ctx context.Context, work func(Session) error) error {
	return e.outage.note(e.writer.run(ctx, work))
}

func (e *sqliteEngine) Reader() Querier { return &e.statements }

// HasSchema implements Engine.
func (e *sqliteEngine) HasSchema(ctx context.Context) (bool, error) {
	return sqliteSchema.exists(ctx, e.Reader())
}

func (e *sqliteEngine) Kind() string    { return SQLite }
func (e *sqliteEngine) Announce([]Wake) {}

func (e *sqliteEngine) Ping(ctx context.Context) error {
	if err := e.reads.PingContext(ctx); err != nil {
		return Unavailable("ping", err)
	}
	return nil
}

// Close lets the writer finish what it has taken, then closes the connections; the last one folds the write-ahead
// log into the file.
func (e *sqliteEngine) Close() error {
	e.writer.stop()
	e.checkpointer.stop()
	return errors.Join(e.close(), e.reads.Close(), e.writes.Close())
}

// lookEvery is how soon a server notices what a command on the same file committed.
const lookEvery = 100 * time.Millisecond

// fileWatch is what one connection knows of the file. SQLite has no notifications between processes, but every
// connection can ask, without reading the file, whether another one committed (PRAGMA data_version); the writer of this
// process is another one too.
type fileWatch struct {
	connection *sql.Conn
	commits    func() int64 // of this process
	data, own  int64
	lists      int64
}

// Listen passes on what other processes on this host commit: the operator's commands. While this process commits all the
// time too, no one knows whose a change is; then only the lists are looked at, and other work is found by its poll.
func (e *sqliteEngine) Listen(ctx context.Context, notify func(channel, payload string)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := e.watch(ctx, notify, func() { pause = firstPause })
		if ctx.Err() != nil || errors.Is(err, errClosed) {
			return nil //nolint:nilerr // it was told to end
		}

		e.logger.Warn("watching the database for commands broke; their changes are found by polling until it is there again", "error", err)
		select {
		case <-time.After(pause):
		case <-e.writer.stopping:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// watch looks at the file until ctx or the connection ends.
func (e *sqliteEngine) watch(ctx context.Context, notify func(channel, payload string), connected func()) error {
	connection, err := e.reads.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }() // it goes back to the pool

	watch := fileWatch{connection: connection, commits: e.groups.Load}
	if _, _, err := watch.look(ctx); err != nil {
		return err
	}

	connected()
	notifyAll(notify) // something may have been missed before
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.writer.stopping:
			return errClosed
		case <-ticker.C:
		}

		lists, others, err := watch.look(ctx)
		switch {
		case err != nil:
			return err
		case others:
			notifyAll(notify)
		case lists:
			notify(ChannelLists, "")
			notify(ChannelTokens, "")
		}
	}
}

// notifyAll notifies with empty payloads: anything may have happened.
func notifyAll(notify func(channel, payload string)) {
	for _, channel := range []string{ChannelJob, ChannelTurn, ChannelLists, ChannelTokens, ChannelBridge} {
		notify(channel, "")
	}
}

// look reports whether the lists changed since the last look, and whether another process alone committed.
func (w *fileWatch) look(ctx context.Context) (lists, others bool, err error) {
	own := w.commits()
	var data int64
	if err := w.connection.QueryRowContext(ctx, "PRAGMA data_version").Scan(&data); err != nil {
		return false, false, err
	}

	if data == w.data {
		w.own = own
		return false, false, nil
	}

	others = own == w.own && w.commits() == own
	w.data, w.own = data, own
	before := w.lists
	if err := w.connection.QueryRowContext(ctx, "SELECT version FROM list_version WHERE one = 1").Scan(&w.lists); err != nil {
		return false, false, err
	}

	return w.lists != before, others, nil
}

// checkpointer moves pages from SQLite's write-ahead log into the database beside the writer. Left to itself the
// writer does so in one of its commits, and every caller waits for tens of milliseconds.
//
// The log begins anew only when nothing in it is left to move, which never happens while the writer goes on: the log
// grows up to the writer's own limit, and each commit pays for a file that grows. So when little is left the writer
// itself moves the rest between two commits.
type checkpointer struct {
	beside func(context.Context) error // moves what it can, on a connection of its own
	finish func(context.Context) error // moves the rest between two of the writer's transactions
	cut    func(context.Context) error // empties the log, unless a reader of an old state holds it
	log    *logWatch
	logger logger
	writes atomic.Int64
	due    chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

const (
	// checkpointWrites is the number of statements after which a checkpoint is due at once: those of some 400 messages. More of them move
	// fewer pages in all, fewer make each sync short: with 1000 messages the slowest hundredth of 10 KiB mails waited a quarter longer.
	// Transactions are no measure, because one of retention or of the search index has as many statements as 50 messages.
	checkpointWrites = 2400
	checkpointEvery  = time.Second
	// fewWrites is the number of statements whose pages the writer moves in a few milliseconds: those of 64 messages.
	fewWrites = 6 * 64
	// maxPasses bounds how often the rest is moved beside the writer until it is that little.
	maxPasses = 4
)

// logLimit is the size to which SQLite cuts the write-ahead log when it begins anew. What a server writes between two checkpoints is less, so
// that only a log that a long reader made larger is cut.
const logLimit = 32 << 20

// LogWarning is the size of the write-ahead log from which something keeps it from beginning anew.
const LogWarning = 4 * logLimit

var logBytes = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "inbox_store_wal_bytes", Help: "Bytes of SQLite's write-ahead logs, as seen a second ago. One that grows for minutes has a reader of an old state that does not end.",
})

// logWatch measures the write-ahead log for the metric, and reports when it grows beyond LogWarning.
type logWatch struct {
	path   string
	logger logger
	bytes  int64
	told   bool
}

func (l *logWatch) look() {
	before := l.bytes
	l.bytes = logSize(l.path)
	logBytes.Add(float64(l.bytes - before)) // of all databases of this process

	switch large := l.bytes > LogWarning; {
	case large && !l.told:
		l.told = true
		l.logger.Warn("the write-ahead log of the database grows, because a reader does not end: a backup, or a program that has the file open", "file", l.path, "bytes", l.bytes)
	case l.told && l.bytes <= logLimit:
		l.told = false
		l.logger.Warn("the write-ahead log of the database is small again", "file", l.path, "bytes", l.bytes)
	}
}

func (l *logWatch) end() { logBytes.Sub(float64(l.bytes)) }

// logSize is 0 where there is no log.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// LogSize returns the bytes of the write-ahead log of a SQLite database in a directory; 0 where there is none.
func LogSize(directory string) int64 { return logSize(Files(directory)[1]) }

// PASSIVE waits for no one. What it leaves, the next one or the writer's own limit takes.
const checkpoint = "PRAGMA wal_checkpoint(PASSIVE)"

func startCheckpointer(pool *sql.DB, w *writer, path string, log logger) *checkpointer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &checkpointer{
		beside: func(ctx context.Context) error {
			_, err := pool.ExecContext(ctx, checkpoint)
			return err
		},
		finish: func(ctx context.Context) error {
			return w.between(ctx, func(s *writerSession) error { return s.execute(checkpoint) })
		},
		cut: func(ctx context.Context) error {
			_, err := w.truncateLog(ctx, pool)
			return err
		},
		log: &logWatch{path: path + "-wal", logger: log}, logger: log, due: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}

	go c.loop(ctx)
	return c
}

// wrote counts statements whose transactions were committed.
func (c *checkpointer) wrote(statements int) {
	if c.writes.Add(int64(statements)) < checkpointWrites {
		return
	}

	select {
	case c.due <- struct{}{}:
	default:
	}
}

func (c *checkpointer) loop(ctx context.Context) {
	defer close(c.done)
	defer c.log.end()
	ticker := time.NewTicker(checkpointEvery)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-c.due:
		case <-ticker.C:
			c.log.look()
		}

		var err error
		switch idle := c.writes.Swap(0) == 0; {
		case !idle:
			err = c.empty(ctx)
		case c.log.bytes > logLimit: // no commit comes that would cut it
			err = c.cut(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.logger.Warn("checkpoint of the write-ahead log", "error", err)
		}
	}
}

// empty moves what the log holds. Each pass takes less time than the one before, and less is written meanwhile.
func (c *checkpointer) empty(ctx context.Context) error {
	for range maxPasses {
		if err := c.beside(ctx); err != nil {
			return err
		}

		switch meanwhile := c.writes.Swap(0); {
		case meanwhile == 0:
			return nil
		case meanwhile <= fewWrites:
			return c.finish(ctx)
		}
	}
	return nil
}

func (c *checkpointer) stop() {
	c.cancel()
	<-c.done
}

// Size returns the bytes of the file and of its log, and those of pages that hold nothing.
func (e *sqliteEngine) Size(ctx context.Context) (total, free int64, err error) {
	var pages, size, unused int64
	for pragma, into := range map[string]*int64{"page_count": &pages, "page_size": &size, "freelist_count": &unused} {
		if err := e.Each(ctx, "PRAGMA "+pragma, nil, func(r Row) error { return r.Scan(into) }); err != nil {
			return 0, 0, err
		}
	}
	total = pages * size
	return total + logSize(e.path+"-wal"), unused * size, nil
}
