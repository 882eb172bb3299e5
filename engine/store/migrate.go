package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"inbox/internal/clock"
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
func migrate(ctx context.Context, database *sql.DB, words *dialect) error {
	known, err := KnownSchema()
	if err != nil {
		return err
	}

	if err := refuseNewer(ctx, database, words, known); err != nil {
		return err
	}
	if err := migrateTo(ctx, database, words, known); err != nil {
		return err
	}

	return refuseNewer(ctx, database, words, known) // another node may have been at it
}

// migrateOrKeep is migrate, or only the refusal of a newer schema.
func migrateOrKeep(ctx context.Context, database *sql.DB, words *dialect, keep bool) error {
	if !keep {
		return migrate(ctx, database, words)
	}
	known, err := KnownSchema()
	if err != nil {
		return err
	}
	return refuseNewer(ctx, database, words, known)
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
	// migrationPatience is how long a node waits for another one that migrates.
	migrationPatience = 2 * time.Minute
)

// migrateTo applies the migrations up to a version that the database does not have, each in a transaction with the row that notes it. Table and
// rows are those of goose.
func migrateTo(ctx context.Context, database *sql.DB, words *dialect, version int64) (err error) {
	steps, err := migrationSteps()
	if err != nil {
		return err
	}
	connection, err := database.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hideBadConnection(connection.Close())) }()

	if words == postgresDialect {
		if err := lockMigrations(ctx, connection); err != nil {
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

	applied, err := appliedMigrations(ctx, connection, words)
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
		if err := applyMigration(ctx, connection, words, step); err != nil {
			return fmt.Errorf("migration %s: %w", step.name, err)
		}
	}
	return nil
}

// lockMigrations asks again and again, because a statement that waits would keep what other nodes want to change.
func lockMigrations(ctx context.Context, connection *sql.Conn) error {
	for begun := time.Now(); ; {
		var locked bool
		if err := connection.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, int64(migrationLock)).Scan(&locked); err != nil || locked {
			return err
		}
		if time.Since(begun) > migrationPatience {
			return fmt.Errorf("another node has been migrating the database for over %s", migrationPatience)
		}
		if err := clock.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// appliedMigrations returns the versions that the database has, and makes the table of them where it is missing.
func appliedMigrations(ctx context.Context, connection *sql.Conn, words *dialect) (applied map[int64]bool, err error) {
	var found bool
	if err := connection.QueryRowContext(ctx, words.hasVersions).Scan(&found); err != nil {
		return nil, err
	}
	if !found {
		err := inMigration(ctx, connection, func(tx *sql.Tx) error {
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
	scanned, err := scanAll(rows, func(r row) error {
		var version int64
		err := r.Scan(&version)
		applied[version] = true
		return err
	})
	return applied, errors.Join(scanned, err)
}

const insertVersion = `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, $2)`

func applyMigration(ctx context.Context, connection *sql.Conn, words *dialect, step migrationStep) error {
	text, err := fs.ReadFile(migrations.For(words.name), step.name)
	if err != nil {
		return err
	}
	return inMigration(ctx, connection, func(tx *sql.Tx) error {
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

// ddl writes a migration in the form that a database takes: SQLite does not know the collation "C", which is how it
// compares anyway, and reads JSON from text without a cast.
func (d *dialect) ddl(text string) string {
	if d != sqliteDialect {
		return text
	}
	return strings.NewReplacer(` COLLATE "C"`, "", "::json", "").Replace(text)
}

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
	makeVersions string // makes the table of schema versions
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

// The tables of schema versions are as goose makes them.
const (
	sqliteVersions = `CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now')))`
	postgresVersions = `CREATE TABLE goose_db_version (id integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, version_id bigint NOT NULL,
		is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now())`
)

// SQLite needs no row locks: it has one writer. Its clock is that of the process, so that the times in statements and those
// in the program are of one clock.
var sqliteDialect = newDialect(dialect{
	name: migrations.SQLite, makeVersions: sqliteVersions, hasVersions: `SELECT COUNT(*) > 0 FROM sqlite_master WHERE name = 'goose_db_version'`,
	now: sqliteClock + "()", counts: true, columns: sqliteColumns, references: sqliteReferences,
	insertWords: sqliteInsertWords, matchWords: sqliteMatchWords, matchQuery: searchQuery.sqlite, testWords: searchQuery.sqliteTest, wordRow: searchWords.sqlite,
}, "", "")

// The time of the statement is one value for the whole of it, so that indexes can be asked with it.
var postgresDialect = newDialect(dialect{
	name: migrations.Postgres, makeVersions: postgresVersions, hasVersions: `SELECT to_regclass('goose_db_version') IS NOT NULL`,
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
