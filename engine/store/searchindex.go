package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/clock"
)

// searchTx says in a transaction whose words changed.
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
	// indexedAtOnce and wordsAtOnce bound one transaction of the worker: on SQLite all others wait for it.
	indexedAtOnce = 50
	wordsAtOnce   = 8_000
	// gatherTime is how long the worker waits for more after the first change.
	gatherTime = 100 * time.Millisecond
	// lookForWords is how soon it finds what other nodes left, and what a crash did.
	lookForWords = time.Second
)

const insertPending = `INSERT INTO search_pending (id, turn_id, answer) VALUES ($1, $2, $3)`

// came lets the worker index a turn that was stored. A turn is stored once, so its id is that of the row too.
func (t searchTx) came(ctx context.Context, turnID string) error {
	t.words = true
	return t.sql.Do(ctx, insertPending, turnID, turnID, int64(0))
}

// answered lets it index the answer of a turn in place of the one before.
func (t searchTx) answered(ctx context.Context, turnID string) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	t.words = true
	return t.sql.Do(ctx, insertPending, id.String(), turnID, int64(1))
}

// UnindexTurn removes what a turn says from the search index, in this transaction and before its text is changed or erased: from
// the commit on it is not found by it. What it says afterwards is indexed again, which is nothing of a text that was erased. A turn
// whose row is deleted leaves no trace in the index. The turn is held until the commit, so that a worker that reads it now does
// not write what is removed here.
func (t searchTx) UnindexTurn(ctx context.Context, turnID string) error {
	if err := t.holdTurn(ctx, turnID); err != nil {
		return err
	}
	if err := t.removeWords(ctx, turnID); err != nil {
		return err
	}
	return t.answered(ctx, turnID)
}

const selectNumber = `SELECT number FROM arrivals WHERE turn_id = $1`

const deleteWords = `DELETE FROM search_words WHERE rowid = $1`

func (t searchTx) removeWords(ctx context.Context, turnID string) error {
	var number int64
	found, err := first(ctx, t.sql, selectNumber, []any{turnID}, &number)
	if err != nil || !found {
		return err
	}
	if err := t.sql.Do(ctx, deleteWords, 2*number); err != nil {
		return err
	}
	return t.sql.Do(ctx, deleteWords, 2*number+1)
}

// wakeIndex tells the worker of this node that there is something to do.
func (d *shared) wakeIndex() {
	select {
	case d.words <- struct{}{}:
	default:
	}
}

// rebuild lets all turns be indexed anew, for a database that was restored or moved: what is there already stays, what is missing is
// added in the background, the newest first. It changes one row and the numbers of turns that have none.
func (t searchTx) rebuild(ctx context.Context) error {
	var number int64
	var before string
	if _, err := first(ctx, t.sql, lockSearchState, nil, &number, &before); err != nil {
		return err
	}
	if err := t.sql.Do(ctx, `INSERT INTO arrivals (number, turn_id) SELECT CAST($1 AS BIGINT) + ROW_NUMBER() OVER (ORDER BY t.id), t.id
		FROM turns t WHERE NOT EXISTS (SELECT 1 FROM arrivals a WHERE a.turn_id = t.id)`, number); err != nil {
		return err
	}

	for _, statement := range []string{forgetMailNumbers, `DELETE FROM mail_words`} { // mail is numbered anew
		if err := t.sql.Do(ctx, statement); err != nil {
			return err
		}
	}

	t.words = true
	return t.sql.Do(ctx, `UPDATE search_state SET number = (SELECT COALESCE(MAX(number), 0) FROM arrivals), rebuild_before = $1 WHERE one = 1`, lastID)
}

// IndexWords keeps the search index until ctx ends: on any number of nodes, of which one at a time writes. A crash loses nothing,
// because what waits is a row that goes with the transaction that wrote the index.
func (s searchStore) IndexWords(ctx context.Context) error {
	ticker := time.NewTicker(lookForWords)
	defer ticker.Stop()

	for ctx.Err() == nil {
		if err := s.indexAll(ctx); err != nil && ctx.Err() == nil {
			s.options.Logger.WarnContext(ctx, "messages wait for the search index; it is tried again", "error", err)
		}

		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-s.words:
			_ = clock.Sleep(ctx, gatherTime) // an end is seen above
		}
	}
	return nil
}

// indexAll indexes until nothing is left. What is indexed anew has half of the time: then the others work.
func (s searchStore) indexAll(ctx context.Context) error {
	for {
		waiting, rebuilding, err := s.waiting(ctx)
		if err != nil || !waiting && !rebuilding {
			return err
		}

		begun := time.Now()
		if err := s.indexSome(ctx); err != nil {
			return err
		}
		if !waiting {
			if err := clock.Sleep(ctx, time.Since(begun)); err != nil {
				return err
			}
		}
	}
}

const (
	selectOldestPending = `SELECT id FROM search_pending ORDER BY id LIMIT 1`
	countPending        = `SELECT COUNT(*) FROM (SELECT 1 FROM search_pending LIMIT 10000) AS counted`
	selectSearchState   = `SELECT number, rebuild_before FROM search_state WHERE one = 1`
	// Workers wait for each other here, so that numbers are committed in their order.
	lockSearchState = `UPDATE search_state SET number = number WHERE one = 1 RETURNING number, rebuild_before`
)

// waiting reports what there is to do, for the metrics too.
func (s searchStore) waiting(ctx context.Context) (changes, rebuild bool, err error) {
	var oldest, before string
	var count, number int64
	from := s.engine.Reader()
	if changes, err = first(ctx, from, selectOldestPending, nil, &oldest); err != nil {
		return false, false, err
	}
	lag := 0.0
	if changes {
		if _, err := first(ctx, from, countPending, nil, &count); err != nil {
			return false, false, err
		}
		if id, err := uuid.Parse(oldest); err == nil {
			seconds, nanos := id.Time().UnixTime()
			lag = max(0, s.now().Sub(time.Unix(seconds, nanos)).Seconds())
		}
	}
	if _, err := first(ctx, from, selectSearchState, nil, &number, &before); err != nil {
		return false, false, err
	}
	mail, err := first(ctx, from, selectMailWaits, nil, &oldest)
	if err != nil {
		return false, false, err
	}

	searchPending.Set(float64(count))
	searchLag.Set(lag)
	searchRebuilding.Set(float64(flag(before != "")))
	return changes || mail, before != "", nil
}

const (
	selectPending = `SELECT id, turn_id, answer FROM search_pending ORDER BY id LIMIT $1 + 0`
	selectRebuilt = `SELECT id FROM turns WHERE id < $1 ORDER BY id DESC LIMIT $2 + 0`
)

var (
	selectIndexed = `SELECT t.id, t.message, COALESCE(r.response, ''), COALESCE(a.number, 0)` + turnsWithReplies +
		`LEFT JOIN arrivals a ON a.turn_id = t.id WHERE t.id IN (` + placeholders(1, indexedAtOnce) + `)`
	selectThere   = `SELECT id FROM turns WHERE id IN (` + placeholders(1, indexedAtOnce) + `)`
	selectWritten = `SELECT rowid FROM search_words WHERE rowid IN (` + placeholders(1, 2*indexedAtOnce) + `)`
)

// indexed is a turn that is to be indexed.
type indexed struct {
	id       string
	pending  []string // rows that are done with it
	answered bool     // its answer is another one than that of the index

	number           int64
	question, answer searchWords
}

// indexSome indexes some turns in one transaction.
func (s searchStore) indexSome(ctx context.Context) error {
	return s.InTx(ctx, func(tx *Tx) error { return tx.indexSome(ctx, s.tuning.windows) })
}

func (t searchTx) indexSome(ctx context.Context, windows windowSizes) error {
	var number int64
	var rebuild string
	if _, err := first(ctx, t.sql, lockSearchState, nil, &number, &rebuild); err != nil {
		return err
	}

	chosen, err := t.changed(ctx)
	if err != nil {
		return err
	}
	if len(chosen) == 0 && rebuild != "" {
		if chosen, err = t.rebuilt(ctx, rebuild); err != nil {
			return err
		}
		if rebuild = ""; len(chosen) == indexedAtOnce {
			rebuild = chosen[len(chosen)-1].id
		}
	}
	if len(chosen) > 0 {
		if number, err = t.index(ctx, chosen, number, windows); err != nil {
			return err
		}
	}
	if err := t.indexMail(ctx, windows); err != nil {
		return err
	}
	return t.sql.Do(ctx, `UPDATE search_state SET number = $1, rebuild_before = $2 WHERE one = 1`, number, rebuild)
}

// changed are turns whose words changed, each once, in the order of the first change.
func (t searchTx) changed(ctx context.Context) (chosen []*indexed, err error) {
	known := map[string]*indexed{}
	err = t.sql.Each(ctx, selectPending, []any{int64(indexedAtOnce)}, func(r row) error {
		var id, turnID string
		var answer int64
		if err := r.Scan(&id, &turnID, &answer); err != nil {
			return err
		}

		one := known[turnID]
		if one == nil {
			one = &indexed{id: turnID}
			known[turnID], chosen = one, append(chosen, one)
		}
		one.pending, one.answered = append(one.pending, id), one.answered || answer == 1
		return nil
	})
	return chosen, err
}

func (t searchTx) rebuilt(ctx context.Context, before string) (chosen []*indexed, err error) {
	err = t.sql.Each(ctx, selectRebuilt, []any{before, int64(indexedAtOnce)}, func(r row) error {
		one := &indexed{}
		err := r.Scan(&one.id)
		chosen = append(chosen, one)
		return err
	})
	return chosen, err
}

// index writes the words of turns and returns the last number. Turns that another transaction holds are left for the next time, so
// that no one waits for the other in a circle; where nothing waits for such a turn, it is said that it does.
func (t searchTx) index(ctx context.Context, chosen []*indexed, number int64, windows windowSizes) (int64, error) {
	read, there, err := t.readWords(ctx, chosen)
	if err != nil {
		return 0, err
	}

	slices.SortStableFunc(chosen, func(a, b *indexed) int { return cmp.Compare(a.id, b.id) })
	var ready []*indexed
	words := 0
	for _, one := range chosen {
		switch {
		case read[one.id] && (words < wordsAtOnce || len(ready) == 0):
			ready = append(ready, one)
			words += len(one.question.said) + len(one.answer.said)
		case !there[one.id]:
			if err := t.dropArrival(ctx, one); err != nil {
				return 0, err
			}
		case len(one.pending) == 0:
			if err := t.answered(ctx, one.id); err != nil {
				return 0, err
			}
		}
	}

	for _, one := range ready {
		if one.number > 0 {
			continue
		}
		number++
		one.number = number
		if err := t.sql.Do(ctx, `INSERT INTO arrivals (number, turn_id) VALUES ($1, $2)`, number, one.id); err != nil {
			return 0, err
		}
	}
	return number, t.writeWords(ctx, ready, windows)
}

// readWords reads turns, and reports which of them it got and which are there at all.
func (t searchTx) readWords(ctx context.Context, chosen []*indexed) (read, there map[string]bool, err error) {
	read, there = map[string]bool{}, map[string]bool{}
	known, ids := map[string]*indexed{}, make([]string, 0, len(chosen))
	for _, one := range chosen {
		known[one.id], ids = one, append(ids, one.id)
	}

	arguments := padded(ids, indexedAtOnce)
	err = t.sql.Each(ctx, selectIndexed+t.dialect.holdWords, arguments, func(r row) error {
		var id, message, response string
		var number int64
		err := r.Scan(&id, &message, &response, &number)
		if err != nil {
			return err
		}
		read[id] = true
		known[id].number = number
		known[id].question, known[id].answer, err = decodeWords(id, message, response)
		return err
	})
	if err != nil {
		return nil, nil, err
	}

	err = t.sql.Each(ctx, selectThere, arguments, func(r row) error {
		var id string
		err := r.Scan(&id)
		there[id] = true
		return err
	})
	return read, there, err
}

// dropArrival removes what is left of a turn whose row is gone.
func (t searchTx) dropArrival(ctx context.Context, gone *indexed) error {
	if err := t.removeWords(ctx, gone.id); err != nil {
		return err
	}
	if err := t.sql.Do(ctx, `DELETE FROM arrivals WHERE turn_id = $1`, gone.id); err != nil {
		return err
	}
	return t.settle(ctx, gone)
}

const deletePending = `DELETE FROM search_pending WHERE id = $1`

func (t searchTx) settle(ctx context.Context, done *indexed) error {
	for _, id := range done.pending {
		if err := t.sql.Do(ctx, deletePending, id); err != nil {
			return err
		}
	}
	return nil
}

// writeWords writes the rows that are not there. Those that are say what their turns say, because who changes a text removes them,
// but for answers.
func (t searchTx) writeWords(ctx context.Context, ready []*indexed, windows windowSizes) error {
	if len(ready) == 0 {
		return nil
	}
	rowids := make([]int64, 0, 2*len(ready))
	for _, one := range ready {
		rowids = append(rowids, 2*one.number, 2*one.number+1)
	}

	written := map[int64]bool{}
	err := t.sql.Each(ctx, selectWritten, padded(rowids, 2*indexedAtOnce), func(r row) error {
		var rowid int64
		err := r.Scan(&rowid)
		written[rowid] = true
		return err
	})
	if err != nil {
		return err
	}

	for _, one := range ready {
		question, answer := 2*one.number, 2*one.number+1
		if one.answered && written[answer] {
			if err := t.sql.Do(ctx, deleteWords, answer); err != nil {
				return err
			}
			written[answer] = false
		}
		for rowid, words := range map[int64]searchWords{question: one.question, answer: one.answer} {
			if words.empty() || written[rowid] {
				continue
			}
			if err := t.insertWords(ctx, turnTable, words, rowid, windows); err != nil {
				return err
			}
		}
		if err := t.settle(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (t searchTx) insertWords(ctx context.Context, table string, words searchWords, rowid int64, windows windowSizes) error {
	return t.sql.Do(ctx, strings.Replace(t.dialect.insertWords, "{words}", table, 1), t.dialect.wordRow(words, rowid, windows)...)
}
