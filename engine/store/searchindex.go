package store

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/engine/store/database"
	"inbox/internal/clock"
)

// searchTx says in a transaction whose words changed. The rows that it writes are an outbox: the worker of the index reads them later.
type searchTx struct{ *transaction }

var (
	searchPending = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_search_pending", Help: "Changes of messages that wait for the search index, counted up to 10,000.",
	})
	searchLag = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_search_lag_seconds", Help: "How long the oldest change of a message has waited for the search index.",
	})
	searchRebuilding = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_search_rebuilding", Help: "1 while all messages are indexed again, after an upgrade or a restore.",
	})
)

const (
	// indexedAtOnce and wordsAtOnce bound one transaction of the worker.
	indexedAtOnce = 200
	wordsAtOnce   = 20_000
	// gatherTime is how long the worker waits for more after the first change.
	gatherTime = 100 * time.Millisecond
	// lookForWords is how soon it finds what other nodes left, and what a crash did.
	lookForWords = time.Second
	// lookForUnplaced is how often it looks for turns that ended without an answer, of which no row tells it. Lists have them, and read each.
	lookForUnplaced = 10 * time.Second
	// unansweredFor is after which time a turn is indexed without its answer. Most are answered before, and are then indexed once.
	unansweredFor = time.Minute
)

// indexer is what the worker of the index and those who wait for it share.
type indexer struct {
	due  chan struct{} // has a signal when something waits for the index
	pass sync.Mutex    // held for one pass
}

// wake tells the worker of this node that there is something to do.
func (i *indexer) wake() {
	select {
	case i.due <- struct{}{}:
	default:
	}
}

// Kinds of rows that wait for the index.
const (
	pendingNumber = 0 // a turn came and has no number
	pendingWords  = 1 // the words of a turn are other ones than those of the index
)

const insertPending = `INSERT INTO search_pending (id, turn_id, answer) VALUES ($1, $2, $3)`

// came lets the worker give a number to a turn that was stored. A turn is stored once, so its id is that of the row too.
func (t searchTx) came(ctx context.Context, turnID string) error {
	t.indexes = true
	return t.sql.Do(ctx, insertPending, turnID, turnID, int64(pendingNumber))
}

// changed lets it write the words of a turn: those that it has when the worker reads it, and none if it is gone.
func (t searchTx) changed(ctx context.Context, turnID string) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	t.indexes = true
	return t.sql.Do(ctx, insertPending, id.String(), turnID, int64(pendingWords))
}

// displaced takes a turn that has left its end from its place in lists. The caller also says that it changed: a worker may be about to write
// the place that the turn had.
func (t searchTx) displaced(ctx context.Context, turnID string) error {
	return t.sql.Do(ctx, `UPDATE arrivals SET place = '' WHERE turn_id = $1`, turnID)
}

// forgotten takes a turn that is removed from lists, with its sender. Its number stays until the worker has removed its words; the caller says
// that it changed.
func (t searchTx) forgotten(ctx context.Context, turnID string) error {
	return t.sql.Do(ctx, `UPDATE arrivals SET place = '', sender = '', sender_domain = '', principal = '' WHERE turn_id = $1`, turnID)
}

// mailGone lets it remove the words of a mail that is deleted. 0 is a mail that has no words there.
func (t searchTx) mailGone(ctx context.Context, number int64) error {
	if number == 0 {
		return nil
	}
	t.indexes = true
	return t.sql.Do(ctx, insertMailGone, number)
}

// openWords opens the search index, and empties it if it is not that of this database.
func (s *Store) openWords(ctx context.Context) (err error) {
	if s.words, err = database.OpenWords(ctx, s.engine, s.options.Database()); err != nil || s.words == s.engine {
		return err
	}

	err = s.search().own(ctx)
	if err != nil {
		err = errors.Join(err, s.words.Close())
	}
	return err
}

const selectStamp = `SELECT stamp FROM search_state WHERE one = 1`

// own compares the stamps of both files. After a crash between them they differ, and the words are written once more.
func (s searchStore) own(ctx context.Context) error {
	var ours string
	if _, err := first(ctx, s.engine.Reader(), selectStamp, nil, &ours); err != nil {
		return err
	}
	theirs, err := database.WordsStamp(ctx, s.words)
	if err != nil || ours == theirs && ours != "" {
		return err
	}

	stamp := rand.Text()
	if err := database.ClearWords(ctx, s.words, stamp); err != nil {
		return err
	}
	return s.InTx(ctx, func(tx *Tx) error {
		for _, statement := range []string{`DROP TABLE IF EXISTS search_words`, `DROP TABLE IF EXISTS mail_words`} { // of before search.db
			if err := tx.sql.Do(ctx, statement); err != nil {
				return err
			}
		}
		if err := tx.rebuild(ctx); err != nil {
			return err
		}
		return tx.sql.Do(ctx, `UPDATE search_state SET stamp = $1 WHERE one = 1`, stamp)
	})
}

// rebuild lets all turns be indexed again, for a database that was restored or moved, in the background and the newest first. It changes
// one row and the numbers of turns that have none.
func (t searchTx) rebuild(ctx context.Context) error {
	var number int64
	var before string
	if _, err := first(ctx, t.sql, lockSearchState, nil, &number, &before); err != nil {
		return err
	}

	for _, statement := range []string{
		insertArrivals, updatePlaces + ` WHERE arrivals.place = '' AND t.id = arrivals.turn_id AND ` + endedTurns, // a backup of a release before has no places
		forgetMailNumbers, `DELETE FROM mail_gone`, // mail is numbered again
	} {
		if err := t.sql.Do(ctx, statement); err != nil {
			return err
		}
	}

	t.indexes = true
	if err := t.sql.Do(ctx, `UPDATE search_state SET number = (SELECT COALESCE(MAX(number), 0) FROM arrivals),
		rebuild_before = CASE WHEN EXISTS (SELECT 1 FROM turns) THEN $1 ELSE '' END WHERE one = 1`, lastID); err != nil {
		return err
	}
	return t.sql.Do(ctx, `UPDATE search_state SET late = number WHERE one = 1`)
}

// IndexWords keeps the search index until ctx ends, on any number of nodes. A crash loses nothing, because what waits is a row that goes
// after the words were committed.
func (s searchStore) IndexWords(ctx context.Context) error {
	ticker := time.NewTicker(lookForWords)
	defer ticker.Stop()

	if err := s.removeLeftMail(ctx); err != nil && ctx.Err() == nil {
		s.options.Logger.WarnContext(ctx, "words of deleted mail may remain in the search index until the next start", "error", err)
	}
	unplaced := time.NewTicker(lookForUnplaced)
	defer unplaced.Stop()
	for look := true; ctx.Err() == nil; {
		if err := s.indexAll(ctx); err != nil && ctx.Err() == nil {
			s.options.Logger.WarnContext(ctx, "messages wait for the search index; it is tried again", "error", err)
		}
		if look {
			if err := s.placeLeft(ctx); err != nil && ctx.Err() == nil {
				s.options.Logger.WarnContext(ctx, "lists of messages may be slow until messages without a place are looked for again", "error", err)
			}
		}
		look = false

		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-unplaced.C:
			look = true
		case <-s.indexer.due:
			_ = clock.Sleep(ctx, gatherTime) // an end is seen above
		}
	}
	return nil
}

// indexAll indexes until nothing is left.
func (s searchStore) indexAll(ctx context.Context) error {
	for {
		waits, err := s.waits(ctx)
		if err != nil || !waits {
			return err
		}

		if err := s.background.do(ctx, func() error { return s.indexSome(ctx) }); err != nil {
			return err
		}
	}
}

// forgetWords returns when nothing that was removed before the call is in the index. It does the work of the worker itself, which may not run.
func (s searchStore) forgetWords(ctx context.Context) error {
	now, err := uuid.NewV7()
	if err != nil {
		return err
	}
	for {
		var oldest string
		waits, err := first(ctx, s.engine.Reader(), selectOldestPending, nil, &oldest)
		if err != nil {
			return err
		}
		var number int64
		gone, err := first(ctx, s.engine.Reader(), selectMailGone, []any{int64(1)}, &number)
		if err != nil || !gone && (!waits || oldest > now.String()) {
			return err
		}
		if err := s.indexSome(ctx); err != nil {
			return err
		}
	}
}

const (
	selectOldestPending = `SELECT id FROM search_pending ORDER BY id LIMIT 1`
	countPending        = `SELECT COUNT(*) FROM (SELECT 1 FROM search_pending LIMIT 10000) AS counted`
	selectSearchState   = `SELECT number, rebuild_before, late FROM search_state WHERE one = 1`
	// Workers wait for each other here, so that numbers are committed in their order.
	lockSearchState = `UPDATE search_state SET number = number WHERE one = 1 RETURNING number, rebuild_before`
)

// waits reports whether there is something to do, for the metrics too.
func (s searchStore) waits(ctx context.Context) (bool, error) {
	var oldest, before string
	var count, number, late int64
	from := s.engine.Reader()
	changes, err := first(ctx, from, selectOldestPending, nil, &oldest)
	if err != nil {
		return false, err
	}
	lag := 0.0
	if changes {
		if _, err := first(ctx, from, countPending, nil, &count); err != nil {
			return false, err
		}
		if id, err := uuid.Parse(oldest); err == nil {
			seconds, nanos := id.Time().UnixTime()
			lag = max(0, s.now().Sub(time.Unix(seconds, nanos)).Seconds())
		}
	}
	if _, err := first(ctx, from, selectSearchState, nil, &number, &before, &late); err != nil {
		return false, err
	}

	searchPending.Set(float64(count))
	searchLag.Set(lag)
	searchRebuilding.Set(float64(flag(before != "")))
	if changes || before != "" {
		return true, nil
	}
	for query, arguments := range map[string][]any{selectMailWaits: nil, selectMailGone: {int64(1)}} {
		found := false
		err := from.Each(ctx, query, arguments, func(row) error { found = true; return nil })
		if err != nil || found {
			return found, err
		}
	}
	last, _, err := s.unanswered(ctx, late)
	return last > late, err
}

// indexSome does one pass: it numbers turns that came, and writes and removes words.
func (s searchStore) indexSome(ctx context.Context) error {
	s.indexer.pass.Lock()
	defer s.indexer.pass.Unlock()

	if err := s.enqueue(ctx); err != nil {
		return err
	}

	if s.words == s.engine {
		return s.InTx(ctx, func(tx *Tx) error {
			var number int64
			var before string
			if _, err := first(ctx, tx.sql, lockSearchState, nil, &number, &before); err != nil {
				return err
			}
			work, err := gatherWords(ctx, tx.sql)
			if err != nil {
				return err
			}
			s.reportDamage(ctx, work)
			if err := work.write(ctx, tx.sql, s.dialect, s.tuning.windows); err != nil {
				return err
			}
			return tx.settle(ctx, work)
		})
	}

	// Turns are read after the transaction has the lock of the file, so that another process cannot write words that are older than those here.
	var work *indexWork
	err := s.words.Transact(ctx, func(index database.Session) (err error) {
		if work, err = gatherWords(ctx, s.engine.Reader()); err != nil {
			return err
		}
		return work.write(ctx, index, s.dialect, s.tuning.windows)
	})
	if err != nil || work.empty() {
		return err
	}
	s.reportDamage(ctx, work)
	return s.InTx(ctx, func(tx *Tx) error { return tx.settle(ctx, work) })
}

// reportDamage logs which turns are not found by their words because their rows cannot be read. They keep no other turn out of the index.
func (s searchStore) reportDamage(ctx context.Context, work *indexWork) {
	for _, one := range slices.Concat(work.turns, work.rebuilt) {
		if one.damage != nil {
			s.options.Logger.WarnContext(ctx, "a stored message cannot be read and is not in the search index; restore it from a backup", "turn", one.id, "error", one.damage)
		}
	}
}

const (
	selectCame = `SELECT turn_id FROM search_pending WHERE answer = 0 ORDER BY id LIMIT $1 + 0`
	// The next words are those of turns that have a number.
	selectUnnumbered = `SELECT p.turn_id FROM (SELECT turn_id FROM search_pending WHERE answer = 1 ORDER BY id LIMIT $1 + 0) AS p
		WHERE NOT EXISTS (SELECT 1 FROM arrivals a WHERE a.turn_id = p.turn_id)`
	selectLateTurns = `SELECT a.number, a.turn_id, t.reply_id, t.accepted_at FROM arrivals a JOIN turns t ON t.id = a.turn_id
		WHERE a.number > $1 ORDER BY a.number LIMIT $2 + 0`
	selectRebuilt = `SELECT id FROM turns WHERE id < $1 ORDER BY id DESC LIMIT $2 + 0`
)

// enqueue numbers turns that came, and says of turns without an answer that they wait.
func (s searchStore) enqueue(ctx context.Context) error {
	came, err := unnumbered(ctx, s.engine.Reader())
	if err != nil {
		return err
	}
	var number, late int64
	var before string
	if _, err := first(ctx, s.engine.Reader(), selectSearchState, nil, &number, &before, &late); err != nil {
		return err
	}
	last, unanswered, err := s.unanswered(ctx, late)
	if err != nil || len(came) == 0 && last == late {
		return err
	}
	return s.InTx(ctx, func(tx *Tx) error { return tx.enqueue(ctx, late, last, unanswered) })
}

// unanswered returns turns behind a number that have had no answer for a minute, and the number of the last turn that is so old.
func (s searchStore) unanswered(ctx context.Context, late int64) (last int64, ids []string, err error) {
	last, old := late, micros(s.now().Add(-s.tuning.unanswered))
	young := false
	err = s.engine.Reader().Each(ctx, selectLateTurns, []any{late, int64(indexedAtOnce)}, func(r row) error {
		var id, reply string
		var number, at int64
		if err := r.Scan(&number, &id, &reply, &at); err != nil {
			return err
		}
		if young = young || at > old; young {
			return nil
		}
		if last = number; reply == "" {
			ids = append(ids, id)
		}
		return nil
	})
	return last, ids, err
}

// unnumbered returns turns that need a number.
func unnumbered(ctx context.Context, from querier) ([]string, error) {
	came, err := column[string](ctx, from, selectCame, []any{int64(indexedAtOnce)})
	if err != nil || len(came) == indexedAtOnce {
		return came, err
	}
	others, err := column[string](ctx, from, selectUnnumbered, []any{int64(indexedAtOnce - len(came))})
	for _, id := range others {
		if !slices.Contains(came, id) {
			came = append(came, id)
		}
	}
	return came, err
}

var (
	numberTurns    = newListQuery(insertArrivals + ` AND t.id IN ({list})`)
	placeTurns     = newListQuery(updatePlaces + ` WHERE t.id IN ({list}) AND arrivals.turn_id = t.id AND arrivals.place <> ` + placeNow)
	selectNumbered = newListQuery(`SELECT turn_id, number FROM arrivals WHERE turn_id IN ({list})`)
	deletePending  = newListQuery(`DELETE FROM search_pending WHERE id IN ({list})`)
)

// enqueue does in one transaction what searchStore.enqueue found. Another node may have done a part of it.
func (t searchTx) enqueue(ctx context.Context, late, last int64, unanswered []string) error {
	var number int64
	var before string
	if _, err := first(ctx, t.sql, lockSearchState, nil, &number, &before); err != nil {
		return err
	}

	came, err := unnumbered(ctx, t.sql)
	if err != nil {
		return err
	}
	if number, err = t.number(ctx, came, number); err != nil {
		return err
	}

	// The number of late tells whether another node was faster.
	if moved, err := t.sql.Change(ctx, `UPDATE search_state SET number = $1, late = $2 WHERE one = 1 AND late = $3`, number, last, late); err != nil {
		return err
	} else if moved == 0 {
		unanswered = nil
		if err := t.sql.Do(ctx, `UPDATE search_state SET number = $1 WHERE one = 1`, number); err != nil {
			return err
		}
	}
	for _, id := range unanswered {
		if err := t.changed(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// insertArrivals and updatePlaces write what lists read: the sender of a turn, and its place if it has ended.
const (
	insertArrivals = `INSERT INTO arrivals (number, turn_id, place, sender, sender_domain, principal)
		SELECT (SELECT number FROM search_state WHERE one = 1) + ROW_NUMBER() OVER (ORDER BY t.id), t.id, ` + placeNow + `, t.sender, t.sender_domain, substr(t.principal, 1, 200)
		FROM turns t WHERE NOT EXISTS (SELECT 1 FROM arrivals a WHERE a.turn_id = t.id)`
	updatePlaces = `UPDATE arrivals SET place = ` + placeNow + `, sender = t.sender, sender_domain = t.sender_domain, principal = substr(t.principal, 1, 200) FROM turns t`
)

// number gives numbers to turns that came, and returns the last one. The caller has locked the state of the search, which has the number.
func (t searchTx) number(ctx context.Context, came []string, number int64) (int64, error) {
	if len(came) == 0 {
		return number, nil
	}
	query, arguments := with(numberTurns, came)
	numbered, err := t.sql.Change(ctx, query, arguments...)
	if err != nil {
		return 0, err
	}
	number += numbered
	query, arguments = with(deletePending, came)
	return number, t.sql.Do(ctx, query, arguments...) // rows of turns that came have the ids of the turns
}

// listQuery is a statement with a list of up to indexedAtOnce values. It has one text for a few and one for many: each stays prepared.
type listQuery struct{ few, many string }

const fewListed = 8

// newListQuery makes both of a text with {list}.
func newListQuery(text string) listQuery {
	return listQuery{strings.Replace(text, "{list}", placeholders(1, fewListed), 1), strings.Replace(text, "{list}", placeholders(1, indexedAtOnce), 1)}
}

// with returns the text for a list, which has a value, and its arguments.
func with[T any](statement listQuery, values []T) (query string, arguments []any) {
	if len(values) <= fewListed {
		return statement.few, padded(values, fewListed)
	}
	return statement.many, padded(values, indexedAtOnce)
}

func numbersOfTurns(ctx context.Context, from querier, ids []string) (map[string]int64, error) {
	known := map[string]int64{}
	query, arguments := with(selectNumbered, ids)
	err := from.Each(ctx, query, arguments, func(r row) error {
		var id string
		var number int64
		err := r.Scan(&id, &number)
		known[id] = number
		return err
	})
	return known, err
}

const selectPending = `SELECT id, turn_id FROM search_pending WHERE answer = 1 ORDER BY id LIMIT $1 + 0`

var (
	selectIndexed = newListQuery(`SELECT t.id, t.message, COALESCE(r.response, '')` + turnsWithReplies + ` WHERE t.id IN ({list})`)
	selectWritten = map[string]listQuery{
		turnTable: newListQuery(`SELECT rowid FROM search_words WHERE rowid IN ({list})`), mailTable: newListQuery(`SELECT rowid FROM mail_words WHERE rowid IN ({list})`),
	}
)

// indexed is a turn whose words are written or, when its row is gone, removed.
type indexed struct {
	id       string
	there    bool
	number   int64 // 0 = it never got one
	question searchWords
	answer   searchWords
	damage   error // its row cannot be read: it has no words
}

// indexWork is one pass of the worker.
type indexWork struct {
	pending []string // rows that are done with it
	turns   []*indexed
	mails   []waitingMail
	gone    []int64 // numbers of mails
	// before and next are how far all turns were indexed again before this pass and are after it; empty = they are not. The words of turns that
	// change meanwhile are written by a later pass, because they wait as rows.
	before, next string
	rebuilt      []*indexed // between them
	unnumbered   []string   // between them too, but without a number: they wait as rows from now on
}

func (w *indexWork) empty() bool {
	return len(w.pending)+len(w.mails)+len(w.gone) == 0 && w.before == ""
}

// gatherWords reads what waits, up to what one transaction takes.
func gatherWords(ctx context.Context, from querier) (*indexWork, error) {
	work := &indexWork{}
	pending := map[string][]string{} // turn → rows
	var order []string
	err := from.Each(ctx, selectPending, []any{int64(indexedAtOnce)}, func(r row) error {
		var id, turnID string
		if err := r.Scan(&id, &turnID); err != nil {
			return err
		}
		if pending[turnID] == nil {
			order = append(order, turnID)
		}
		pending[turnID] = append(pending[turnID], id)
		return nil
	})
	if err != nil {
		return nil, err
	}

	if len(order) > 0 {
		read, err := readWords(ctx, from, order)
		if err != nil {
			return nil, err
		}
		words := 0
		for _, id := range order {
			one := read[id]
			if one.there && one.number == 0 { // it gets one in the next pass
				continue
			}
			if words += len(one.question.said) + len(one.answer.said); words > wordsAtOnce && len(work.turns) > 0 {
				break
			}
			work.turns, work.pending = append(work.turns, one), append(work.pending, pending[id]...)
		}
	} else if err := work.again(ctx, from); err != nil {
		return nil, err
	}

	if work.gone, err = column[int64](ctx, from, selectMailGone, []any{int64(indexedAtOnce)}); err != nil {
		return nil, err
	}
	work.mails, err = waitingMails(ctx, from)
	return work, err
}

// again adds the newest turns that have not been indexed again, if all of them are to be. It takes no row and no statement of
// the writer of messages for each of them.
func (w *indexWork) again(ctx context.Context, from querier) error {
	var number, late int64
	if _, err := first(ctx, from, selectSearchState, nil, &number, &w.before, &late); err != nil || w.before == "" {
		return err
	}
	ids, err := column[string](ctx, from, selectRebuilt, []any{w.before, int64(indexedAtOnce)})
	if err != nil || len(ids) == 0 {
		return err
	}
	read, err := readWords(ctx, from, ids)
	if err != nil {
		return err
	}

	words := 0
	for _, id := range ids {
		one := read[id]
		if words += len(one.question.said) + len(one.answer.said); words > wordsAtOnce && w.next != "" {
			return nil
		}
		w.next = id
		switch {
		case one.number > 0:
			w.rebuilt = append(w.rebuilt, one)
		case one.there:
			w.unnumbered = append(w.unnumbered, id)
		}
	}
	if len(ids) < indexedAtOnce {
		w.next = ""
	}
	return nil
}

// readWords reads turns with their numbers.
func readWords(ctx context.Context, from querier, ids []string) (map[string]*indexed, error) {
	numbers, err := numbersOfTurns(ctx, from, ids)
	if err != nil {
		return nil, err
	}
	read := map[string]*indexed{}
	for _, id := range ids {
		read[id] = &indexed{id: id, number: numbers[id]}
	}

	query, arguments := with(selectIndexed, ids)
	err = from.Each(ctx, query, arguments, func(r row) error {
		var id, message, response string
		err := r.Scan(&id, &message, &response)
		if err != nil {
			return err
		}
		one := read[id]
		one.there = true
		one.question, one.answer, one.damage = decodeWords(id, message, response)
		return nil
	})
	return read, err
}

// write makes the rows of the index say what the turns say now.
func (w *indexWork) write(ctx context.Context, index database.Session, dialect *dialect, windows windowSizes) error {
	rows := map[int64]searchWords{}
	for _, one := range slices.Concat(w.turns, w.rebuilt) {
		if one.number > 0 {
			rows[2*one.number], rows[2*one.number+1] = one.question, one.answer
		}
	}
	if err := writeWords(ctx, index, dialect, turnTable, rows, windows); err != nil {
		return err
	}

	rows = map[int64]searchWords{}
	for _, number := range w.gone {
		rows[2*number] = searchWords{}
	}
	for _, one := range w.mails {
		rows[2*one.number] = one.words
	}
	return writeWords(ctx, index, dialect, mailTable, rows, windows)
}

// writeWords replaces rows of a table; those without words are removed.
func writeWords(ctx context.Context, index database.Session, dialect *dialect, table string, rows map[int64]searchWords, windows windowSizes) error {
	if len(rows) == 0 {
		return nil
	}
	remove, insert := strings.Replace(deleteWords, "{words}", table, 1), strings.Replace(dialect.insertWords, "{words}", table, 1)
	rowids := make([]int64, 0, len(rows))
	for rowid := range rows {
		rowids = append(rowids, rowid)
	}
	slices.Sort(rowids) // FTS5 writes to the disk whenever a row has a lower number than the one before

	for chunk := range slices.Chunk(rowids, indexedAtOnce) {
		query, arguments := with(selectWritten[table], chunk)
		written, err := column[int64](ctx, index, query, arguments)
		if err != nil {
			return err
		}
		for _, rowid := range written {
			if err := index.Do(ctx, remove, rowid); err != nil {
				return err
			}
		}
		for _, rowid := range chunk {
			if words := rows[rowid]; !words.empty() {
				if err := index.Do(ctx, insert, dialect.wordRow(words, rowid, windows)...); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const deleteWords = `DELETE FROM {words} WHERE rowid = $1`

// settle removes what waited for the index and is in it now. Turns are put in the places of their states of now: who changes one later says so
// in a row that is not among those here.
func (t searchTx) settle(ctx context.Context, work *indexWork) error {
	var there []string
	for _, one := range work.turns {
		if one.there {
			there = append(there, one.id)
		}
	}
	if err := t.place(ctx, there); err != nil {
		return err
	}
	for chunk := range slices.Chunk(work.pending, indexedAtOnce) {
		query, arguments := with(deletePending, chunk)
		if err := t.sql.Do(ctx, query, arguments...); err != nil {
			return err
		}
	}
	for _, one := range work.turns {
		if one.there {
			continue
		}
		if err := t.sql.Do(ctx, `DELETE FROM arrivals WHERE turn_id = $1`, one.id); err != nil {
			return err
		}
	}
	for _, id := range work.unnumbered {
		if err := t.changed(ctx, id); err != nil {
			return err
		}
	}
	if work.before != "" {
		if err := t.sql.Do(ctx, `UPDATE search_state SET rebuild_before = $1 WHERE one = 1 AND rebuild_before = $2`, work.next, work.before); err != nil {
			return err
		}
	}
	return t.settleMail(ctx, work)
}

// place puts turns in the places of their states.
func (t searchTx) place(ctx context.Context, turns []string) error {
	for chunk := range slices.Chunk(turns, indexedAtOnce) {
		query, arguments := with(placeTurns, chunk)
		if err := t.sql.Do(ctx, query, arguments...); err != nil {
			return err
		}
	}
	return nil
}

// Turns that ended without an answer are in no place, and no row says so. Nodes of the release before know of no places: they run turns again
// that have one.
const (
	selectUnplaced = `SELECT a.turn_id` + fromUnplaced + ` WHERE ` + unplacedTurn + ` ORDER BY a.turn_id DESC LIMIT $1 + 0`
	selectReopened = `SELECT t.id FROM turns t CROSS JOIN arrivals a WHERE ` + openStates + ` AND a.turn_id = t.id AND a.place <> '' ORDER BY t.id DESC LIMIT $1 + 0`
)

// placeLeft puts turns in their places of which nothing tells the worker.
func (s searchStore) placeLeft(ctx context.Context) error {
	for _, text := range []string{selectUnplaced, selectReopened} {
		for {
			left := 0
			err := s.background.do(ctx, func() error {
				turns, err := column[string](ctx, s.engine.Reader(), text, []any{int64(indexedAtOnce)})
				if left = len(turns); err != nil || left == 0 {
					return err
				}
				return s.InTx(ctx, func(tx *Tx) error {
					var number int64
					var before string
					if _, err := first(ctx, tx.sql, lockSearchState, nil, &number, &before); err != nil { // two workers would lock the rows in different orders
						return err
					}
					return tx.search().place(ctx, turns)
				})
			})
			if err != nil {
				return err
			}
			if left < indexedAtOnce {
				break
			}
		}
	}
	return nil
}
