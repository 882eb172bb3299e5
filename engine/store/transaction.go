package store

import (
	"context"
	"slices"
	"strings"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/internal/fault"
)

// What rows are read with.
type (
	row     = database.Row
	querier = database.Querier
)

// Tx is one running transaction. It is valid inside the function that got it and not safe for several goroutines.
type Tx struct {
	*transaction

	turnTx
	replyTx
	deliveryTx
	demandTx
	callTx
	documentTx
	jobTx
	backEndTx
	resultTx
	noticeTx
	takeoverTx
	readTx

	personTx
	listTx
	quotaTx
	auditTx

	erasureTx
	retentionTx
	eraseTx
	searchTx
}

// newTx puts the topics on one transaction of an engine.
func newTx(running database.Session, dialect *dialect, clock *storeClock) *Tx {
	t := &transaction{storeClock: clock, sql: running, dialect: dialect}
	return &Tx{
		t, turnTx{t}, replyTx{t}, deliveryTx{t}, demandTx{t}, callTx{t}, documentTx{t}, jobTx{t}, backEndTx{t}, resultTx{t}, noticeTx{t}, takeoverTx{t}, readTx{t},
		personTx{t}, listTx{t}, quotaTx{t}, auditTx{t}, erasureTx{t}, retentionTx{t}, eraseTx{t}, searchTx{t},
	}
}

// transaction is what all topics of a Tx share.
type transaction struct {
	*storeClock

	sql     database.Session
	dialect *dialect
	wakes   []database.Wake
	tallied []tallied // for the tallies of notices, with the commit
	indexes bool      // the worker of the search index has something to do after the commit
}

// Topics of the same transaction, for the steps of one that are another's.
func (t *transaction) turns() turnTx      { return turnTx{t} }
func (t *transaction) replies() replyTx   { return replyTx{t} }
func (t *transaction) quotas() quotaTx    { return quotaTx{t} }
func (t *transaction) uploads() uploadTx  { return uploadTx{t} }
func (t *transaction) notices() noticeTx  { return noticeTx{t} }
func (t *transaction) jobs() jobTx        { return jobTx{t} }
func (t *transaction) erasure() erasureTx { return erasureTx{t} }
func (t *transaction) search() searchTx   { return searchTx{t} }

var (
	_ pipeline.Tx = (*Tx)(nil)
	_ delivery.Tx = (*Tx)(nil)
)

func (t *transaction) wake(channel, payload string) {
	w := database.Wake{Channel: channel, Payload: payload}
	if !slices.Contains(t.wakes, w) {
		t.wakes = append(t.wakes, w)
	}
}

// first scans the first row and reports whether there was one.
func first(ctx context.Context, from querier, query string, arguments []any, destinations ...any) (bool, error) {
	found := false
	err := from.Each(ctx, query, arguments, func(r row) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(destinations...)
	})
	return found, err
}

// column returns the only column of a query, in the order of its rows.
func column[T string | int64](ctx context.Context, from querier, query string, arguments []any) (values []T, err error) {
	err = from.Each(ctx, query, arguments, func(r row) error {
		var value T
		err := r.Scan(&value)
		values = append(values, value)
		return err
	})
	return values, err
}

func notFound(what string) error { return fault.New(fault.NotFound, "no such "+what) }

// dialect is the little of the SQL text that differs between the databases. {lock shared} in a text means: the row
// must not change before our commit, while others may rely on it too; {skip locked}: do not wait for rows that
// another node is picking; {hold partition}: a condition that locks the
// partition of the job until our commit; {now}: the clock of the database in microseconds, the same in one statement.
type dialect struct {
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
	holdTask     string // a condition that holds the task of a new turn; empty = not needed
	follows      string // whether a new turn may follow others of its task
	blocked      string // the partition of a job that ended, where others may wait for it; else empty
	insertTurn   string
	insertWords  string
	matchWords   string
	matchQuery   func(query searchQuery, window string) string                 // what matchWords takes
	testWords    func(query searchQuery, s *selection)                         // compares a row with the query, without an index
	wordRow      func(words searchWords, rowid int64, sizes windowSizes) []any // what insertWords takes
	counts       bool                                                          // it costs no round trip to hear how many rows changed

	endJob, buryJob, removeWaiting, removeJobs, selectBlocked, hastenBacklog string

	holdPartitions string // empty = not needed
}

// dialects by the kind of the database.
var dialects = map[string]*dialect{database.SQLite: sqliteDialect, database.Postgres: postgresDialect}

// SQLite needs no row locks: it has one writer. Its clock is that of the process, so that the times in statements and those
// in the program are of one clock.
var sqliteDialect = newDialect(dialect{
	now: database.SQLiteNow, counts: true, follows: followsInTask,
	blocked:     `CASE WHEN EXISTS (SELECT 1 FROM jobs b WHERE b.partition_key = jobs.partition_key AND b.partition_key <> '' AND b.state <> 'dead' AND b.state = 'blocked') THEN partition_key ELSE '' END`,
	insertWords: sqliteInsertWords, matchWords: sqliteMatchWords, matchQuery: searchQuery.sqlite, testWords: searchQuery.sqliteTest, wordRow: searchWords.sqlite,
}, "", "", "")

// The time of the statement is one value for the whole of it, so that indexes can be asked with it.
var postgresDialect = newDialect(dialect{
	now:         "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)",
	claimShares: claimShares,
	follows:     inTask,
	blocked:     "partition_key", // it took its view of the rows before it waited for the lock of the partition
	holdTask:    ` AND pg_advisory_xact_lock(hashtextextended(CAST($12 AS TEXT) || CAST($13 AS TEXT), 0)) IS NOT NULL`,
	holdTurn:    `SELECT id FROM turns WHERE id = $1 FOR NO KEY UPDATE`,
	insertWords: postgresInsertWords, matchWords: postgresMatchWords, matchQuery: searchQuery.postgres, testWords: searchQuery.postgresTest, wordRow: searchWords.postgres,
	holdPartitions: holdPartitions,
}, " FOR SHARE", " FOR UPDATE SKIP LOCKED", andHoldPartition)

func newDialect(d dialect, lockShared, skipLocked, holdPartition string) *dialect {
	words := strings.NewReplacer("{lock shared}", lockShared, "{skip locked}", skipLocked, "{hold partition}", holdPartition, "{now}", d.now, "{blocked}", d.blocked)
	d.insertJob, d.insertLeased = words.Replace(insertJob), words.Replace(insertLeased)
	d.insertTurn = strings.NewReplacer("{hold task}", d.holdTask, "{follows}", d.follows).Replace(insertTurn)
	d.returnJob, d.releaseJob = words.Replace(returnJob), words.Replace(releaseJob)
	d.endJob, d.buryJob, d.removeWaiting, d.removeJobs = words.Replace(endJob), words.Replace(buryJob), words.Replace(removeWaiting), words.Replace(removeJobs)
	d.selectBlocked, d.hastenBacklog = words.Replace(selectBlocked), words.Replace(hastenBacklog)
	d.promoteJob, d.takeExpired, d.comeDue = words.Replace(promoteJob), words.Replace(takeExpired), words.Replace(comeDue)
	d.claimShare, d.claimShares = words.Replace(claimShare), words.Replace(d.claimShares)
	d.nextDue = words.Replace(nextDue)
	d.countReady = words.Replace(countReady)
	return &d
}
