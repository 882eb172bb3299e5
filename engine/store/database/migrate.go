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
	"strings"
	"time"

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

// migrateOrKeep is migrate, or only the refusal of a newer schema.
func migrateOrKeep(ctx context.Context, pool *sql.DB, words *schema, keep bool, log logger) error {
	if !keep {
		return migrate(ctx, pool, words, log)
	}
	known, err := KnownSchema()
	if err != nil {
		return err
	}
	return refuseNewer(ctx, pool, words, known)
}

// KnownSchema returns the version of the schema that this program makes.
func KnownSchema() (int64, error) {
	steps, err := migrationSteps()
	if err != nil || len(steps) == 0 {
		return 0, err
	}
	return steps[len(steps)-1].version, nil
}

// migrationStep is one file of package migrations.
type migrationStep struct {
	version int64
	name    string
}

// migrationSteps returns all files in the order of their numbers.
func migrationSteps() ([]migrationStep, error) {
	names, err := fs.Glob(migrations.Files, "*.sql") // in the order of their names, which begin with five digits
	if err != nil {
		return nil, err
	}
	steps := make([]migrationStep, len(names))
	for i, name := range names {
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s has no number: %w", name, err)
		}
		steps[i] = migrationStep{version, name}
	}
	return steps, nil
}

const (
	// migrationLock is the advisory lock that nodes of one PostgreSQL database take turns by: that of goose, which earlier versions used.
	migrationLock = 4097083626
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

// MigrateTo applies the migrations up to a version that a database of a kind does not have, each in a transaction with the row that notes it. Table and
// rows are those of goose.
func MigrateTo(ctx context.Context, pool *sql.DB, kind string, version int64) error {
	words := sqliteSchema
	if kind == Postgres {
		words = postgresSchema
	}
	return words.migrateTo(ctx, pool, version, slog.Default())
}

func (s *schema) migrateTo(ctx context.Context, pool *sql.DB, version int64, log logger) (err error) {
	steps, err := migrationSteps()
	if err != nil {
		return err
	}
	connection, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hideBadConnection(connection.Close())) }()

	if s == postgresSchema {
		if err := lockMigrations(ctx, connection, log); err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
			defer cancel()
			if _, failure := connection.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, int64(migrationLock)); err == nil {
				err = failure
			}
		}()
	}

	applied, err := appliedMigrations(ctx, connection, s)
	if err != nil {
		return err
	}
	newest := int64(0)
	for one := range applied {
		newest = max(newest, one)
	}

	for _, step := range steps {
		switch {
		case applied[step.version] || step.version > version:
			continue
		case step.version < newest:
			return fmt.Errorf("the database has migration %d and lacks %s, which comes before it; restore a backup", newest, step.name)
		}
		if err := applyMigration(ctx, connection, s, step); err != nil {
			return fmt.Errorf("migration %s: %w", step.name, err)
		}
	}
	return nil
}

// lockMigrations polls, because a statement that waits would keep what other nodes want to change.
func lockMigrations(ctx context.Context, connection *sql.Conn, log logger) error {
	name := "the advisory lock " + strconv.Itoa(migrationLock)
	return awaitLock(ctx, log, name, func() (locked bool, err error) {
		err = connection.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, int64(migrationLock)).Scan(&locked)
		return locked, err
	})
}

// appliedMigrations returns the versions that the database has, and makes the table of them where it is missing.
func appliedMigrations(ctx context.Context, connection *sql.Conn, words *schema) (applied map[int64]bool, err error) {
	var found bool
	if err := connection.QueryRowContext(ctx, words.hasVersions).Scan(&found); err != nil {
		return nil, err
	}
	if !found {
		err := inMigration(ctx, connection, func(tx *sql.Tx) error {
			if err := tx.QueryRowContext(ctx, words.hasVersions).Scan(&found); err != nil || found {
				return err // made meanwhile
			}
			if _, err := tx.ExecContext(ctx, words.makeVersions); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, insertVersion, int64(0), true)
			return err
		})
		if err != nil {
			return nil, err
		}
	}

	rows, err := connection.QueryContext(ctx, `SELECT version_id FROM goose_db_version`)
	if err != nil {
		return nil, err
	}
	applied = map[int64]bool{}
	scanned, err := scanAll(rows, func(r Row) error {
		var version int64
		err := r.Scan(&version)
		applied[version] = true
		return err
	})
	return applied, errors.Join(scanned, err)
}

const (
	insertVersion = `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, $2)`
	hasVersion    = `SELECT COUNT(*) > 0 FROM goose_db_version WHERE version_id = $1`
)

// applyMigration applies a migration unless the database has it by now. On SQLite its transaction has the write lock from the start, so
// this also keeps processes apart that have no common lock: those of earlier versions, and all where the system has no file locks.
func applyMigration(ctx context.Context, connection *sql.Conn, words *schema, step migrationStep) error {
	text, err := fs.ReadFile(migrations.For(words.kind), step.name)
	if err != nil {
		return err
	}
	return inMigration(ctx, connection, func(tx *sql.Tx) error {
		var applied bool
		if err := tx.QueryRowContext(ctx, hasVersion, step.version).Scan(&applied); err != nil || applied {
			return err
		}
		if _, err := tx.ExecContext(ctx, words.ddl(string(text))); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, insertVersion, step.version, true)
		return err
	})
}

func inMigration(ctx context.Context, connection *sql.Conn, work func(*sql.Tx) error) error {
	tx, err := connection.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// refuseNewer reads the version without making the table of versions.
func refuseNewer(ctx context.Context, pool *sql.DB, words *schema, known int64) error {
	var found bool
	if err := pool.QueryRowContext(ctx, words.hasVersions).Scan(&found); err != nil || !found {
		return err
	}

	var version sql.NullInt64
	if err := pool.QueryRowContext(ctx, `SELECT MAX(version_id) FROM goose_db_version`).Scan(&version); err != nil {
		return err
	}
	if version.Int64 > known {
		return &NewerSchema{Found: version.Int64, Known: known}
	}

	return nil
}

// exists reports whether the table of schema versions is there.
func (s *schema) exists(ctx context.Context, from Querier) (there bool, err error) {
	err = from.Each(ctx, s.hasVersions, nil, func(r Row) error { return r.Scan(&there) })
	return there, err
}

// ddl writes a migration in the form that a database takes: SQLite does not know the collation "C", which is how it
// compares anyway, and reads JSON from text without a cast.
func (s *schema) ddl(text string) string {
	if s != sqliteSchema {
		return text
	}
	return strings.NewReplacer(` COLLATE "C"`, "", "::json", "").Replace(text)
}

// schema is the little of the SQL about the schema that differs between the databases.
type schema struct {
	kind         string // in the blocks of migrations
	makeVersions string // makes the table of schema versions
	hasVersions  string // reports whether the table of schema versions is there
	columns      string // lists table, column and type of everything that is copied
	references   string // lists tables with those that they refer to
}

// The tables of schema versions are as goose makes them.
const (
	sqliteVersions = `CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now')))`
	postgresVersions = `CREATE TABLE goose_db_version (id integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, version_id bigint NOT NULL,
		is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now())`
)

var sqliteSchema = &schema{
	kind: SQLite, makeVersions: sqliteVersions, hasVersions: `SELECT COUNT(*) > 0 FROM sqlite_master WHERE name = 'goose_db_version'`,
	columns: sqliteColumns, references: sqliteReferences,
}

var postgresSchema = &schema{
	kind: Postgres, makeVersions: postgresVersions, hasVersions: `SELECT to_regclass('goose_db_version') IS NOT NULL`,
	columns: postgresColumns, references: postgresReferences,
}
