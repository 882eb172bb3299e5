package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"inbox/internal/clock"
	"inbox/internal/disk"
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

// OlderSchema is the error of a database that an earlier version of this program made and may still serve. It is returned only to processes that
// do not upgrade the schema.
type OlderSchema struct{ Found, Known int64 } // versions of the schema

// Error names both versions and what to do.
func (e *OlderSchema) Error() string {
	return fmt.Sprintf("the schema of the database has version %d, and this program needs %d; restart the server with this program, or upgrade "+
		"the schema now: inbox migrate (a program from before the upgrade cannot start after it)", e.Found, e.Known)
}

// migrate applies what is missing. A database that is newer is not touched; NewerSchema.
func migrate(ctx context.Context, pool *sql.DB, words *schema, log logger) error {
	known, err := KnownSchema()
	if err != nil {
		return err
	}

	if err := refuseNewer(ctx, pool, words, known); err != nil {
		return err
	}
	if err := words.migrateTo(ctx, pool, known, log); err != nil {
		return err
	}

	return refuseNewer(ctx, pool, words, known) // another node may have been at it
}

// migrateOrKeep is migrate, or only the refusal of a newer schema or of one of another version, as the options say.
func migrateOrKeep(ctx context.Context, pool *sql.DB, words *schema, options Options) error {
	if !options.AsFound && !options.NoUpgrade {
		return migrate(ctx, pool, words, options.Logger)
	}
	known, err := KnownSchema()
	if err != nil {
		return err
	}
	if options.AsFound {
		return refuseNewer(ctx, pool, words, known)
	}

	version, err := words.version(ctx, pool)
	if err == nil && version > 0 && version < known {
		err = &OlderSchema{Found: version, Known: known}
	}
	if err != nil {
		return err
	}
	return migrate(ctx, pool, words, options.Logger)
}

// KnownSchema returns the version of the schema that this program makes: the number of the last file of package migrations.
func KnownSchema() (int64, error) {
	names, err := fs.Glob(migrations.Files, "*.sql") // sorted, and each begins with five digits
	if err != nil || len(names) == 0 {
		return 0, err
	}
	return goose.NumericComponent(names[len(names)-1])
}

const (
	// migrationPatience is how long a process waits for another one that migrates.
	migrationPatience = 2 * time.Minute
	// migrationPoll is the interval between two attempts to get the lock.
	migrationPoll = 100 * time.Millisecond
	// migrationQuiet is how long a process waits for the lock before it logs that it does.
	migrationQuiet = time.Second
)

// schemaLock is the lock file beside a SQLite database. A process holds it while it opens the file and migrates it.
const schemaLock = File + ".schema.lock"

// lockSchema takes the schema lock of a SQLite database in a directory. On a system without file locks it is not Sole, and only the
// transactions of the migrations keep processes apart.
func lockSchema(ctx context.Context, directory string, log logger) (lock *disk.Lock, err error) {
	path := filepath.Join(directory, schemaLock)
	err = awaitLock(ctx, log, path, func() (taken bool, err error) {
		lock, err = disk.TakeFile(path)
		if errors.Is(err, disk.ErrTaken) {
			return false, nil
		}
		return true, err
	})
	return lock, err
}

// awaitLock tries to take a lock until try does, for migrationPatience at most. It logs what it waits for.
func awaitLock(ctx context.Context, log logger, name string, try func() (taken bool, err error)) error {
	for begun, told := time.Now(), false; ; {
		if taken, err := try(); taken || err != nil {
			return err
		}

		switch waited := time.Since(begun); {
		case waited > migrationPatience:
			return fmt.Errorf("another process has held %s for over %s: it opens or migrates the database; wait until it is done, or end it, and start again", name, migrationPatience)
		case waited > migrationQuiet && !told:
			told = true
			log.Warn("waiting for another process that opens or migrates the database", "lock", name, "at_most", migrationPatience.String())
		}
		if err := clock.Sleep(ctx, migrationPoll); err != nil {
			return err
		}
	}
}

// MigrateTo applies the migrations up to a version that a database of a kind does not have, each in a transaction with the row that notes it.
func MigrateTo(ctx context.Context, pool *sql.DB, kind string, version int64) error {
	words := sqliteSchema
	if kind == Postgres {
		words = postgresSchema
	}
	return words.migrateTo(ctx, pool, version, slog.Default())
}

// migrateTo repeats what failed while the schema moved: on SQLite, processes that have no common lock, such as those of earlier versions and
// all where the system has no file locks, apply the same migration, and all but one of them fail.
func (s *schema) migrateTo(ctx context.Context, pool *sql.DB, version int64, log logger) error {
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger())}
	if s == postgresSchema {
		options = append(options, goose.WithSessionLocker(advisoryLock{log}))
	}

	for {
		before, err := s.version(ctx, pool)
		if err != nil {
			return err
		}
		provider, err := goose.NewProvider(s.dialect, pool, migrations.For(s.kind), options...)
		if err != nil {
			return err
		}
		_, failure := provider.UpTo(ctx, version)
		if failure == nil {
			return nil
		}
		if after, err := s.version(ctx, pool); err != nil || after <= before {
			return fmt.Errorf("migrate the database; restore a backup if it was changed by hand: %w", failure)
		}
	}
}

// advisoryLock keeps other nodes of a PostgreSQL database from migrating it. It implements lock.SessionLocker of goose, whose own
// implementation does not log what it waits for. It polls because a waiting statement holds a snapshot, and CREATE INDEX CONCURRENTLY waits for that.
type advisoryLock struct{ log logger }

// SessionLock takes the lock.
func (l advisoryLock) SessionLock(ctx context.Context, connection *sql.Conn) error {
	name := "the advisory lock " + strconv.FormatInt(lock.DefaultLockID, 10)
	return awaitLock(ctx, l.log, name, func() (locked bool, err error) {
		err = connection.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, lock.DefaultLockID).Scan(&locked)
		return locked, err
	})
}

// SessionUnlock releases it.
func (advisoryLock) SessionUnlock(ctx context.Context, connection *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	_, err := connection.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, lock.DefaultLockID)
	return err
}

// version is that of the newest migration that a database has; 0 = none. It does not make the table of versions.
func (s *schema) version(ctx context.Context, pool *sql.DB) (int64, error) {
	var found bool
	if err := pool.QueryRowContext(ctx, s.hasVersions).Scan(&found); err != nil || !found {
		return 0, err
	}
	var version sql.NullInt64
	err := pool.QueryRowContext(ctx, `SELECT MAX(version_id) FROM goose_db_version`).Scan(&version)
	return version.Int64, err
}

func refuseNewer(ctx context.Context, pool *sql.DB, words *schema, known int64) error {
	version, err := words.version(ctx, pool)
	if err == nil && version > known {
		err = &NewerSchema{Found: version, Known: known}
	}
	return err
}

// exists reports whether the table of schema versions is there.
func (s *schema) exists(ctx context.Context, from Querier) (there bool, err error) {
	err = from.Each(ctx, s.hasVersions, nil, func(r Row) error { return r.Scan(&there) })
	return there, err
}

// schema is the little of the SQL about the schema that differs between the databases.
type schema struct {
	kind        string // in the blocks of migrations
	dialect     goose.Dialect
	hasVersions string // reports whether the table of schema versions is there
	columns     string // lists table, column and type of everything that is copied
	references  string // lists tables with those that they refer to
}

var sqliteSchema = &schema{
	kind: SQLite, dialect: goose.DialectSQLite3, hasVersions: `SELECT COUNT(*) > 0 FROM sqlite_master WHERE name = 'goose_db_version'`,
	columns: sqliteColumns, references: sqliteReferences,
}

var postgresSchema = &schema{
	kind: Postgres, dialect: goose.DialectPostgres, hasVersions: `SELECT to_regclass('goose_db_version') IS NOT NULL`,
	columns: postgresColumns, references: postgresReferences,
}
