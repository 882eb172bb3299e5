package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// A mark is a document that says of a database that it must not be served.
const (
	MarkNamespace = "database"
	MarkLoading   = "unfinished" // its rows are not complete: what is at work with it
)

const (
	insertMark = `INSERT INTO documents (namespace, key, encoding, value, expires_at) VALUES ($1, $2, 'utf8', $3, 0)`
	updateMark = `UPDATE documents SET value = $3 WHERE namespace = $1 AND key = $2`
)

// Loader fills a new database with the rows of another one.
type Loader struct {
	Tables []Table // each behind those that it refers to

	words  *schema
	pool   *sql.DB
	native *pgxpool.Pool // below pool; nil = SQLite
	name   string        // of the file; empty = PostgreSQL
	failed func(operation string, err error) error
}

// loadingPragmas make the file of a database that no server uses yet: a process that dies leaves it whole, a loss of power may not, and
// it is made anew then.
// The cache is larger than a server's, because rows come in no order of the indexes.
var loadingPragmas = []string{
	"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(OFF)", "foreign_keys(OFF)", "temp_store(MEMORY)", "cache_size(-65536)", "wal_autocheckpoint(16000)",
}

// NewLoader makes a database with the schema of a version and with the mark of who is at work. What is in its place is removed: the
// caller has made sure that it may be (store.Look). NewerSchema where this program does not know the version.
func NewLoader(ctx context.Context, options Options, version int64, mark string) (_ *Loader, err error) {
	known, err := KnownSchema()
	if err != nil {
		return nil, err
	}
	if version > known {
		return nil, &NewerSchema{Found: version, Known: known}
	}

	l := &Loader{words: sqliteSchema, failed: sqliteFault}
	if options.URL == "sqlite" {
		err = l.openFile(ctx, options)
	} else {
		err = l.openSchema(ctx, options)
	}
	if err != nil {
		return nil, err
	}
	if err := l.prepare(ctx, version, mark); err != nil {
		return nil, errors.Join(l.failed("make the database", err), l.closePool())
	}
	return l, nil
}

func (l *Loader) openFile(ctx context.Context, options Options) error {
	if err := registerClock(); err != nil {
		return err
	}
	l.name = filepath.Join(options.DataDir, File)
	for _, path := range Files(options.DataDir) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := keepPrivate(l.name, options.Logger); err != nil {
		return err
	}

	values := url.Values{"_pragma": loadingPragmas}
	pool, err := openPool(ctx, "file:"+(&url.URL{Path: l.name}).EscapedPath()+"?"+values.Encode(), 1)
	if err != nil {
		return err
	}
	if _, err := pool.ExecContext(ctx, markOverwritten); err != nil {
		return errors.Join(err, pool.Close())
	}
	l.pool = pool
	return nil
}

func (l *Loader) openSchema(ctx context.Context, options Options) error {
	config, schema, err := readURL(options.URL)
	if err != nil {
		return err
	}
	l.words, l.failed = postgresSchema, postgresFault
	if l.native, err = openPostgresPool(config, 2, nil); err != nil {
		return err
	}
	l.pool = stdlib.OpenDBFromPool(l.native)
	if err := makeSchema(ctx, l.native, schema); err != nil {
		return errors.Join(unusable(unusablePostgres(config.ConnConfig, err), err), l.closePool())
	}

	var names []string
	err = pairs(ctx, l.pool, `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`, 1,
		func(row []string) error { names = append(names, row[0]); return nil })
	if err == nil && len(names) > 0 {
		_, err = l.pool.ExecContext(ctx, `DROP TABLE `+quotedAll(names)+` CASCADE`)
	}
	if err != nil {
		return errors.Join(unusable(unusablePostgres(config.ConnConfig, err), err), l.closePool())
	}
	return nil
}

// prepare makes the schema, without the rows that migrations put there, and puts the mark.
func (l *Loader) prepare(ctx context.Context, version int64, mark string) error {
	err := MigrateTo(ctx, l.pool, l.words.kind, version)
	if err != nil {
		return err
	}
	if l.Tables, err = tablesOf(ctx, l.pool, l.words); err != nil {
		return err
	}

	for _, table := range slices.Backward(l.Tables) {
		if _, err := l.pool.ExecContext(ctx, `DELETE FROM `+quoted(table.Name)); err != nil { //nolint:gosec // names of the schema, quoted
			return err
		}
	}
	_, err = l.pool.ExecContext(ctx, insertMark, MarkNamespace, MarkLoading, mark)
	return err
}

// Mark replaces the mark.
func (l *Loader) Mark(ctx context.Context, mark string) error {
	_, err := l.pool.ExecContext(ctx, updateMark, MarkNamespace, MarkLoading, mark)
	return l.failed("mark the database", err)
}

const (
	// loadRows is how many rows one transaction of SQLite takes.
	loadRows = 10_000
	// rowsAtOnce and bytesAtOnce bound what one statement of it takes.
	rowsAtOnce  = 32
	bytesAtOnce = 1 << 20
)

// Load puts rows into a table until next returns false or an error, which is then its own, and returns how many they were. The values are
// those of Snapshot.Each.
func (l *Loader) Load(ctx context.Context, table Table, next func() (values []any, more bool, err error)) (rows int64, err error) {
	if l.name == "" {
		return l.copyRows(ctx, table, next)
	}

	for more := true; more; {
		var loaded int64
		if loaded, more, err = l.insertRows(ctx, table, next); err != nil {
			return rows, err
		}
		rows += loaded
	}
	return rows, nil
}

func (l *Loader) insertRows(ctx context.Context, table Table, next func() ([]any, bool, error)) (rows int64, more bool, err error) {
	tx, err := l.pool.BeginTx(ctx, nil)
	if err != nil {
		return 0, false, l.failed("load rows", err)
	}
	defer func() { _ = tx.Rollback() }() // of no effect after the commit

	var batch insertBatch
	defer func() { batch.close() }()
	if batch, err = newInsertBatch(ctx, tx, table); err != nil {
		return 0, false, l.failed("load rows", err)
	}
	for more = true; more && rows < loadRows; {
		values, there, err := next()
		if err != nil {
			return 0, false, err
		}
		if more = there; !more {
			break
		}
		if err := batch.add(ctx, values); err != nil {
			return 0, false, l.failed("load rows", err)
		}
		rows++
	}
	if err := batch.flush(ctx); err != nil {
		return 0, false, l.failed("load rows", err)
	}
	return rows, more, l.failed("load rows", tx.Commit())
}

// insertBatch gathers rows of a table for statements that insert many.
type insertBatch struct {
	width     int
	one, many *sql.Stmt
	values    []any
	bytes     int
}

func newInsertBatch(ctx context.Context, tx *sql.Tx, table Table) (b insertBatch, err error) {
	b.width = len(table.Columns)
	row := "(" + strings.Repeat("?, ", b.width-1) + "?)"
	insert := `INSERT INTO ` + quoted(table.Name) + ` (` + quotedAll(table.columnNames()) + `) VALUES `
	if b.one, err = tx.PrepareContext(ctx, insert+row); err != nil {
		return b, err
	}
	b.many, err = tx.PrepareContext(ctx, insert+strings.Repeat(row+", ", rowsAtOnce-1)+row)
	return b, err
}

func (b *insertBatch) add(ctx context.Context, values []any) error {
	b.values = append(b.values, values...)
	for _, value := range values {
		if text, is := value.(string); is {
			b.bytes += len(text)
		}
	}
	if len(b.values) < rowsAtOnce*b.width && b.bytes < bytesAtOnce {
		return nil
	}
	return b.flush(ctx)
}

// flush inserts what was gathered: in one statement where it is full, else row by row.
func (b *insertBatch) flush(ctx context.Context) (err error) {
	if len(b.values) == rowsAtOnce*b.width {
		_, err = b.many.ExecContext(ctx, b.values...)
	} else {
		for row := range slices.Chunk(b.values, b.width) {
			if err == nil {
				_, err = b.one.ExecContext(ctx, row...)
			}
		}
	}
	b.values, b.bytes = b.values[:0], 0
	return err
}

func (b *insertBatch) close() {
	for _, statement := range []*sql.Stmt{b.one, b.many} {
		if statement != nil {
			_ = statement.Close() // the transaction has its errors
		}
	}
}

func (l *Loader) copyRows(ctx context.Context, table Table, next func() ([]any, bool, error)) (rows int64, err error) {
	var source error
	rows, err = l.native.CopyFrom(ctx, pgx.Identifier{table.Name}, table.columnNames(), pgx.CopyFromFunc(func() (row []any, err error) {
		row, more, err := next()
		if source = err; !more {
			row = nil // the end
		}
		return row, err
	}))
	if source != nil {
		return 0, source
	}
	return rows, l.failed("load rows of "+table.Name, err)
}

// Close makes everything durable that was loaded. The mark stays; the store removes it.
func (l *Loader) Close(ctx context.Context) error {
	statements := []string{"ANALYZE"}
	if l.name != "" {
		statements = []string{"PRAGMA synchronous = FULL", "PRAGMA wal_checkpoint(TRUNCATE)"}
	}
	var err error
	for _, statement := range statements {
		if err == nil {
			_, err = l.pool.ExecContext(ctx, statement)
		}
	}
	return errors.Join(l.failed("close the database", err), l.closePool(), l.syncFile())
}

func (l *Loader) closePool() error { return closePools(l.pool, l.native) }

// closePools closes a pool of database/sql, and the one of PostgreSQL below it; nil = SQLite.
func closePools(pool *sql.DB, native *pgxpool.Pool) error {
	err := pool.Close()
	if native != nil {
		native.Close()
	}
	return err
}

// syncFile waits until the disk has the file: pages that were written before synchronous was on are among it.
func (l *Loader) syncFile() error {
	if l.name == "" {
		return nil
	}
	for _, path := range []string{l.name, filepath.Dir(l.name)} {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			return fmt.Errorf("sync %s: %w", path, err)
		}
	}
	return nil
}

// Abandon closes a database that stays unfinished.
func (l *Loader) Abandon() { _ = l.closePool() }
