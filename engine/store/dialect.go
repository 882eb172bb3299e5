package store

import (
	"strings"

	"github.com/pressly/goose/v3"
)

// dialect is the little of the SQL text that differs between the databases. {lock shared} in a text means: the row
// must not change before our commit, while others may rely on it too; {skip locked}: do not wait for rows that
// another node is picking.
type dialect struct {
	migrations goose.Dialect
	insertJob  string
	claimJobs  string
	holdTurn   string // empty = not needed
	holdPeople string // empty = not needed
	counts     bool   // it costs no round trip to hear how many rows changed
}

// SQLite needs no row locks: it has one writer.
var sqliteDialect = newDialect(goose.DialectSQLite3, "", "", "", "")

var postgresDialect = newDialect(goose.DialectPostgres, " FOR SHARE", " FOR UPDATE SKIP LOCKED",
	`SELECT id FROM turns WHERE id = $1 FOR NO KEY UPDATE`,
	`LOCK TABLE person_identities IN SHARE ROW EXCLUSIVE MODE`)

func newDialect(migrations goose.Dialect, lockShared, skipLocked, holdTurn, holdPeople string) *dialect {
	return &dialect{
		migrations: migrations,
		insertJob:  strings.Replace(insertJob, "{lock shared}", lockShared, 1),
		claimJobs:  strings.Replace(claimJobs, "{skip locked}", skipLocked, 1),
		holdTurn:   holdTurn,
		holdPeople: holdPeople,
		counts:     migrations == goose.DialectSQLite3,
	}
}
