package store

import (
	"strings"

	"github.com/pressly/goose/v3"
)

// dialect is the little of the SQL text that differs between the databases. {lock shared} in a text means: the row
// must not change before our commit, while others may rely on it too; {skip locked}: do not wait for rows that
// another node is picking; {now}: the clock of the database in microseconds, the same in one statement.
type dialect struct {
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
	claimLane    string
	claimLanes   string // empty = claimLane for each lane
	nextDue      string
	holdTurn     string // empty = not needed
	holdPeople   string // empty = not needed
	counts       bool   // it costs no round trip to hear how many rows changed
}

// SQLite needs no row locks: it has one writer. Its clock is that of the process, so that the times in statements and those
// in the program are of one clock.
var sqliteDialect = newDialect(dialect{
	migrations: goose.DialectSQLite3, hasVersions: `SELECT COUNT(*) > 0 FROM sqlite_master WHERE name = 'goose_db_version'`,
	now: sqliteClock + "()", counts: true,
}, "", "")

// The time of the statement is one value for the whole of it, so that indexes can be asked with it.
var postgresDialect = newDialect(dialect{
	migrations: goose.DialectPostgres, hasVersions: `SELECT to_regclass('goose_db_version') IS NOT NULL`,
	now:        "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)",
	claimLanes: claimLanes,
	holdTurn:   `SELECT id FROM turns WHERE id = $1 FOR NO KEY UPDATE`,
	holdPeople: `LOCK TABLE person_identities IN SHARE ROW EXCLUSIVE MODE`,
}, " FOR SHARE", " FOR UPDATE SKIP LOCKED")

func newDialect(d dialect, lockShared, skipLocked string) *dialect {
	words := strings.NewReplacer("{lock shared}", lockShared, "{skip locked}", skipLocked, "{now}", d.now)
	d.insertJob, d.insertLeased = words.Replace(insertJob), words.Replace(insertLeased)
	d.returnJob, d.releaseJob = words.Replace(returnJob), words.Replace(releaseJob)
	d.promoteJob, d.takeExpired, d.comeDue = words.Replace(promoteJob), words.Replace(takeExpired), words.Replace(comeDue)
	d.claimLane, d.claimLanes = words.Replace(claimLane), words.Replace(d.claimLanes)
	d.nextDue = words.Replace(nextDue)
	return &d
}
