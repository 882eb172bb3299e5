package store

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"

	"inbox/migrations"
)

// NewerSchema is the error of a database that a newer version of this program has changed: what this one would write may
// break the rules of that one.
type NewerSchema struct{ Found, Known int64 } // versions of the schema

// Error names both versions and what to do.
func (e *NewerSchema) Error() string {
	return fmt.Sprintf("the schema of the database has version %d, and this program knows up to %d: a newer inbox was here; start that version, "+
		"or restore the backup from before the upgrade", e.Found, e.Known)
}

// migrate applies what is missing. The provider prints nothing and keeps no global state. A database that is newer is not
// touched; NewerSchema.
func migrate(ctx context.Context, database *sql.DB, words *dialect, options ...goose.ProviderOption) error {
	provider, err := migrator(database, words, append(options, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return err
	}

	known := int64(0)
	for _, source := range provider.ListSources() {
		known = max(known, source.Version)
	}

	if err := refuseNewer(ctx, database, words, known); err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return err
	}

	return refuseNewer(ctx, database, words, known) // another node may have been at it
}

// migrateOrKeep is migrate, or only the refusal of a newer schema.
func migrateOrKeep(ctx context.Context, database *sql.DB, words *dialect, keep bool, options ...goose.ProviderOption) error {
	if !keep {
		return migrate(ctx, database, words, options...)
	}
	known, err := KnownSchema()
	if err != nil {
		return err
	}
	return refuseNewer(ctx, database, words, known)
}

// KnownSchema returns the version of the schema that this program makes.
func KnownSchema() (known int64, err error) {
	names, err := fs.Glob(migrations.Files, "*.sql")
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		known = max(known, version)
	}
	return known, err
}

// refuseNewer reads the version without making the table of versions.
func refuseNewer(ctx context.Context, database *sql.DB, words *dialect, known int64) error {
	var found bool
	if err := database.QueryRowContext(ctx, words.hasVersions).Scan(&found); err != nil || !found {
		return err
	}

	var version sql.NullInt64
	if err := database.QueryRowContext(ctx, `SELECT MAX(version_id) FROM goose_db_version`).Scan(&version); err != nil {
		return err
	}
	if version.Int64 > known {
		return &NewerSchema{Found: version.Int64, Known: known}
	}

	return nil
}

func migrator(database *sql.DB, words *dialect, options ...goose.ProviderOption) (*goose.Provider, error) {
	return goose.NewProvider(words.migrations, database, ddl{migrations.For(words.name), words}, options...)
}

// ddl writes the migrations in the form that a database takes: SQLite does not know the collation "C", which is how it
// compares anyway, and reads JSON from text without a cast.
type ddl struct {
	fs.FS
	dialect *dialect
}

// Open opens a migration.
func (d ddl) Open(name string) (fs.File, error) {
	file, err := d.FS.Open(name)
	if err != nil || d.dialect != sqliteDialect || !strings.HasSuffix(name, ".sql") {
		return file, err
	}

	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}

	return ddlFile{file, strings.NewReader(strings.NewReplacer(` COLLATE "C"`, "", "::json", "").Replace(string(text)))}, nil
}

type ddlFile struct {
	fs.File
	text *strings.Reader
}

// Read reads the adapted text.
func (f ddlFile) Read(buffer []byte) (int, error) { return f.text.Read(buffer) }

// SchemaVersion returns the number of the last migration that the database has.
func (d *database) SchemaVersion(ctx context.Context) (int64, error) {
	var version int64
	_, err := first(ctx, d.engine.reader(), `SELECT MAX(version_id) FROM goose_db_version`, nil, &version)
	return version, err
}

// dialect is the little of the SQL text that differs between the databases. {lock shared} in a text means: the row
// must not change before our commit, while others may rely on it too; {skip locked}: do not wait for rows that
// another node is picking; {now}: the clock of the database in microseconds, the same in one statement.
type dialect struct {
	name         string // in the blocks of migrations
	migrations   goose.Dialect
	hasVersions  string // reports whether the table of schema versions is there
	now          string
	insertJob    string
	insertLeased string
	returnJob    string
	releaseJob   string
	promoteJob   string
	takeExpired  string
	comeDue      string
	claimShare   string
	claimShares  string // empty = claimShare for each share
	nextDue      string
	countReady   string
	holdTurn     string // empty = not needed
	holdPeople   string // empty = not needed
	columns      string // lists table, column and type of everything that is copied
	references   string // lists tables with those that they refer to
	holdWords    string // behind the read of what is to be indexed; empty = not needed
	insertWords  string
	matchWords   string
	matchQuery   func(query searchQuery, window string) string                 // what matchWords takes
	testWords    func(query searchQuery, s *selection)                         // compares a row with the query, without an index
	wordRow      func(words searchWords, rowid int64, sizes windowSizes) []any // what insertWords takes
	counts       bool                                                          // it costs no round trip to hear how many rows changed
}

// SQLite needs no row locks: it has one writer. Its clock is that of the process, so that the times in statements and those
// in the program are of one clock.
var sqliteDialect = newDialect(dialect{
	name: migrations.SQLite, migrations: goose.DialectSQLite3, hasVersions: `SELECT COUNT(*) > 0 FROM sqlite_master WHERE name = 'goose_db_version'`,
	now: sqliteClock + "()", counts: true, columns: sqliteColumns, references: sqliteReferences,
	insertWords: sqliteInsertWords, matchWords: sqliteMatchWords, matchQuery: searchQuery.sqlite, testWords: searchQuery.sqliteTest, wordRow: searchWords.sqlite,
}, "", "")

// The time of the statement is one value for the whole of it, so that indexes can be asked with it.
var postgresDialect = newDialect(dialect{
	name: migrations.Postgres, migrations: goose.DialectPostgres, hasVersions: `SELECT to_regclass('goose_db_version') IS NOT NULL`,
	columns: postgresColumns, references: postgresReferences,
	now:         "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)",
	claimShares: claimShares,
	holdTurn:    `SELECT id FROM turns WHERE id = $1 FOR NO KEY UPDATE`,
	holdPeople:  `LOCK TABLE person_identities IN SHARE ROW EXCLUSIVE MODE`,
	holdWords:   ` FOR SHARE OF t SKIP LOCKED`,
	insertWords: postgresInsertWords, matchWords: postgresMatchWords, matchQuery: searchQuery.postgres, testWords: searchQuery.postgresTest, wordRow: searchWords.postgres,
}, " FOR SHARE", " FOR UPDATE SKIP LOCKED")

func newDialect(d dialect, lockShared, skipLocked string) *dialect {
	words := strings.NewReplacer("{lock shared}", lockShared, "{skip locked}", skipLocked, "{now}", d.now)
	d.insertJob, d.insertLeased = words.Replace(insertJob), words.Replace(insertLeased)
	d.returnJob, d.releaseJob = words.Replace(returnJob), words.Replace(releaseJob)
	d.promoteJob, d.takeExpired, d.comeDue = words.Replace(promoteJob), words.Replace(takeExpired), words.Replace(comeDue)
	d.claimShare, d.claimShares = words.Replace(claimShare), words.Replace(d.claimShares)
	d.nextDue = words.Replace(nextDue)
	d.countReady = words.Replace(countReady)
	return &d
}
