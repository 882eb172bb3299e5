package database

import (
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"inbox/internal/fault"
)

// Damage is the first failure that showed that stored pages are not what was written. It stays until the process ends: pages do not heal.
type Damage struct {
	At  time.Time
	Err error
}

// What an operator does about a damaged database.
const (
	sqliteRemedy = "stop the server, keep a copy of inbox.db and inbox.db-wal, and restore the newest backup with inbox restore; " +
		"docs/troubleshooting.md#the-database-is-damaged has the steps"
	postgresRemedy = "look into the log of PostgreSQL, reindex if it names an index, otherwise restore a backup; " +
		"docs/troubleshooting.md#the-database-is-damaged has the steps"
)

// damagedStore makes the fault of a database whose pages are damaged.
func damagedStore(operation string, cause error) error {
	f := Unavailable(operation, cause).(*fault.Fault) //nolint:errorlint,forcetypeassert // made here
	f.Cause = damaged{down{operationError{operation, cause}}}
	return f
}

// damaged is a failure that is repeated until an operator acts.
type damaged struct{ down }

// Is reports whether target is fault.ErrStore or fault.ErrDamaged.
func (d damaged) Is(target error) bool { return target == fault.ErrDamaged || d.down.Is(target) }

// sqliteDamaged reports whether SQLite found pages that cannot be: CORRUPT, or NOTADB where the first page is one of them.
func sqliteDamaged(err error) bool {
	failure, is := errors.AsType[*sqlite.Error](err)
	if !is {
		return false
	}
	code := failure.Code() & 0xff
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// postgresDamaged reports whether PostgreSQL found damage: data_corrupted or index_corrupted.
func postgresDamaged(failure *pgconn.PgError) bool {
	return failure.Code == "XX001" || failure.Code == "XX002"
}

// unusableSQLite makes the fault of a file that cannot be opened, and says what to do.
func unusableSQLite(path string, cause error) error {
	if sqliteDamaged(cause) {
		return unusable("the database "+path+" is damaged: "+sqliteRemedy, damagedStore("open "+strconv.Quote(path), cause))
	}
	return unusable("the database "+path+" cannot be used; check data_dir, its permissions and the free space", cause)
}
