package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Kinds of what ends. Each is about messages that have ended and what was made of them, but for audit and sessions.
const (
	RetainMessages   = "messages"   // words, files and native forms of questions and answers, and what was made of them
	RetainOriginals  = "originals"  // native forms
	RetainFiles      = "files"      // files in questions and answers
	RetainSteps      = "steps"      // timelines and results of runs
	RetainDemands    = "demands"    // demands that ended
	RetainDispatches = "dispatches" // calls of other agents that ended
	RetainTools      = "tools"      // calls of tools outside, and runs of tasks
	RetainAudit      = "audit"      // decisions about trust
	RetainSessions   = "sessions"   // conversations of chat and bridges
	RetainRecords    = "records"    // rows of messages that lost their words
)

// RetentionKinds lists them in the order in which they are applied.
func RetentionKinds() []string {
	return []string{
		RetainOriginals, RetainFiles, RetainSteps, RetainDemands, RetainDispatches, RetainTools, RetainMessages, RetainRecords,
		RetainAudit, RetainSessions,
	}
}

// Periods say by kind how long is kept; 0 or absent = for ever.
type Periods map[string]time.Duration

// Retention says how long is kept, by agent.
type Retention struct {
	Default Periods            // of agents that are not named, those that are gone among them
	Agents  map[string]Periods // by name in lower case; each whole
}

var retained = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_retention_removed_total", Help: "What reached the end of its time and was removed, by kind: messages, or rows of audit and sessions.",
}, []string{"kind"})

// retentionStore removes what has reached its end.
type retentionStore struct{ *shared }

// retentionTx does it for single turns.
type retentionTx struct{ *transaction }

const (
	// retainPage is how many messages one statement looks at, retainBatch how many one transaction changes: the writer is held for
	// some milliseconds.
	retainPage  = 200
	retainBatch = 25
	// retainAgain is when a message that has not ended is looked at again.
	retainAgain = 24 * time.Hour
)

// errMoved reports that another node has done the portion.
var errMoved = errors.New("another node has moved the cursor")

// group are the agents that keep a kind for the same time.
type group struct {
	name   string // of its cursor
	kind   string
	period time.Duration
	agents []string // sorted, in lower case
	others bool     // the group is all agents but these
}

func (g group) has(agent string) bool {
	return slices.Contains(g.agents, strings.ToLower(agent)) != g.others
}

// groups returns the agents of a kind by period. An agent that joins a group changes its name, so that its old messages are found.
func (r Retention) groups(kind string) (list []group) {
	byPeriod := map[time.Duration][]string{}
	var apart []string
	common := r.Default[kind]
	for agent, periods := range r.Agents {
		if period := periods[kind]; period != common {
			byPeriod[period], apart = append(byPeriod[period], agent), append(apart, agent)
		}
	}

	add := func(period time.Duration, agents []string, others bool) {
		slices.Sort(agents)
		if period > 0 {
			members := hashKey(append([]string{fmt.Sprint(others)}, agents...)...)
			list = append(list, group{fmt.Sprintf("%s/%s/%s", kind, period, members), kind, period, agents, others})
		}
	}
	add(common, apart, true)
	for _, period := range slices.Sorted(maps.Keys(byPeriod)) {
		add(period, byPeriod[period], false)
	}
	return list
}

// Retain removes what has reached its end at the instant, which is of this node's clock, until all is done or ctx ends. It works in small transactions with pauses
// between them, after a crash it goes on where it was, and several nodes do no harm to each other. It returns how many messages, or rows of
// audit and sessions, were changed by kind.
func (s retentionStore) Retain(ctx context.Context, rules Retention, now time.Time) (map[string]int64, error) {
	now = s.stored(now)
	removed := map[string]int64{}
	for _, kind := range RetentionKinds() {
		groups := rules.groups(kind)
		if err := s.dropCursors(ctx, kind, groups); err != nil {
			return removed, err
		}

		for _, g := range groups {
			count, err := s.retainGroup(ctx, g, now)
			removed[kind] += count
			retained.WithLabelValues(kind).Add(float64(count))
			if err != nil && !errors.Is(err, errMoved) {
				return removed, fmt.Errorf("remove %s: %w", kind, err)
			}
		}
	}

	for _, count := range removed {
		if count > 0 {
			return removed, s.search().forgetWords(ctx)
		}
	}
	return removed, nil
}

func (s retentionStore) retainGroup(ctx context.Context, g group, now time.Time) (int64, error) {
	switch g.kind {
	case RetainAudit:
		return s.retainAudit(ctx, g, now)
	case RetainSessions:
		return s.retainSessions(ctx, g, now)
	}
	count, err := s.retainTurns(ctx, g, now)
	if err != nil {
		return count, err
	}
	late, err := s.retainLate(ctx, g, now)
	return count + late, err
}

// dropCursors forgets how far groups had come that are no more.
func (s retentionStore) dropCursors(ctx context.Context, kind string, groups []group) error {
	query := `SELECT name FROM retention_cursors WHERE name >= $1 AND name < $2`
	names, err := column[string](ctx, s.engine.Reader(), query, []any{kind + "/", kind + "0"})
	if err != nil {
		return err
	}

	for _, name := range names {
		if slices.ContainsFunc(groups, func(g group) bool { return g.name == name }) {
			continue
		}
		err := s.inBackground(ctx, func(tx *Tx) error {
			if err := tx.sql.Do(ctx, `DELETE FROM retention_later WHERE name = $1`, name); err != nil {
				return err
			}
			return tx.sql.Do(ctx, `DELETE FROM retention_cursors WHERE name = $1`, name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s retentionStore) cursor(ctx context.Context, name string) (after string, err error) {
	_, err = first(ctx, s.engine.Reader(), `SELECT after_id FROM retention_cursors WHERE name = $1`, []any{name}, &after)
	return after, err
}

// moveCursor lets the next portion begin later; errMoved when it does already.
func (t retentionTx) moveCursor(ctx context.Context, name, from, to string) error {
	if from == to {
		return nil
	}
	query, arguments := `UPDATE retention_cursors SET after_id = $1, updated_at = $2 WHERE name = $3 AND after_id = $4`, []any{to, t.nowMicros(), name, from}
	if from == "" {
		query, arguments = `INSERT INTO retention_cursors (name, after_id, updated_at) VALUES ($3, $1, $2)
			ON CONFLICT (name) DO UPDATE SET after_id = excluded.after_id, updated_at = excluded.updated_at WHERE retention_cursors.after_id = ''`, arguments[:3]
	}
	moved, err := t.sql.Change(ctx, query, arguments...)
	if err == nil && moved == 0 {
		err = errMoved
	}
	return err
}

// idBefore is above the id of everything that was made before the instant: ids are UUIDv7 (RFC 9562 section 5.7).
func idBefore(at time.Time) string {
	text := fmt.Sprintf("%012x", max(0, at.UnixMilli()))
	return text[:8] + "-" + text[8:]
}

// old is a message that is old enough by its id.
type old struct {
	id, agent, state string
	updated          int64
}

const selectOld = `SELECT id, agent, state, updated_at FROM turns WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3 + 0`

// retainTurns goes through the messages in the order of their arrival, each once.
func (s retentionStore) retainTurns(ctx context.Context, g group, now time.Time) (removed int64, err error) {
	end := idBefore(now.Add(-g.period))
	after, err := s.cursor(ctx, g.name)
	for err == nil {
		page := make([]old, 0, retainPage)
		err = s.engine.Reader().Each(ctx, selectOld, []any{after, end, int64(retainPage)}, func(r row) error {
			var one old
			err := r.Scan(&one.id, &one.agent, &one.state, &one.updated)
			page = append(page, one)
			return err
		})
		if err != nil || len(page) == 0 {
			return removed, err
		}

		for rest := page; len(rest) > 0 && err == nil; {
			portion := rest[:min(len(rest), retainBatch)]
			rest = rest[len(portion):]
			last := portion[len(portion)-1].id
			if !slices.ContainsFunc(portion, func(one old) bool { return g.has(one.agent) }) && len(rest) > 0 {
				continue // the next portion moves the cursor
			}

			var count int64
			err = s.inBackground(ctx, func(tx *Tx) (err error) {
				if err = tx.moveCursor(ctx, g.name, after, last); err != nil {
					return err
				}
				count, err = tx.retain(ctx, g, portion, now)
				return err
			})
			if err == nil {
				after, removed = last, removed+count
			}
		}
	}
	return removed, err
}

const (
	selectLate = `SELECT t.id, t.agent, t.state, t.updated_at FROM retention_later l JOIN turns t ON t.id = l.turn_id
		WHERE l.name = $1 AND l.due_at <= $2 ORDER BY l.due_at, l.turn_id LIMIT $3 + 0`
	putLater = `INSERT INTO retention_later (name, turn_id, due_at) VALUES ($1, $2, $3)
		ON CONFLICT (name, turn_id) DO UPDATE SET due_at = excluded.due_at`
)

// retainLate looks again at messages that were passed.
func (s retentionStore) retainLate(ctx context.Context, g group, now time.Time) (removed int64, err error) {
	for {
		portion := make([]old, 0, retainBatch)
		err = s.engine.Reader().Each(ctx, selectLate, []any{g.name, micros(now), int64(retainBatch)}, func(r row) error {
			var one old
			err := r.Scan(&one.id, &one.agent, &one.state, &one.updated)
			portion = append(portion, one)
			return err
		})
		if err != nil || len(portion) == 0 {
			return removed, err
		}

		var count int64
		err = s.inBackground(ctx, func(tx *Tx) (err error) {
			for _, one := range portion {
				if err := tx.sql.Do(ctx, `DELETE FROM retention_later WHERE name = $1 AND turn_id = $2`, g.name, one.id); err != nil {
					return err
				}
			}
			count, err = tx.retain(ctx, g, portion, now)
			return err
		})
		if err != nil {
			return removed, err
		}
		removed += count
	}
}

const selectEndState = `SELECT state, updated_at, CASE WHEN EXISTS (SELECT 1 FROM deliveries d
	WHERE d.turn_id = turns.id AND d.state IN ('pending', 'retry', 'sending')) THEN 1 ELSE 0 END FROM turns WHERE id = $1`

// retain does what the kind of the group says to those messages that have ended long enough ago, and passes the others.
func (t retentionTx) retain(ctx context.Context, g group, portion []old, now time.Time) (removed int64, err error) {
	for _, one := range portion {
		if !g.has(one.agent) {
			continue
		}
		if err := t.holdTurn(ctx, one.id); err != nil {
			return 0, err
		}

		var state string
		var updated, unfinished int64
		found, err := first(ctx, t.sql, selectEndState, []any{one.id}, &state, &updated, &unfinished)
		if err != nil {
			return 0, err
		}

		due := instant(updated).Add(g.period)
		switch {
		case !found:
			continue
		case !exchange.Terminal(state) || unfinished == 1:
			if !due.After(now) {
				due = now.Add(min(retainAgain, g.period))
			}
		case !due.After(now):
			changed, err := t.end(ctx, g.kind, one.id)
			if err != nil {
				return 0, fmt.Errorf("turn %s: %w", one.id, err)
			}
			if changed {
				removed++
			}
			continue
		}
		if err := t.sql.Do(ctx, putLater, g.name, one.id, micros(due)); err != nil {
			return 0, err
		}
	}
	return removed, nil
}

// end removes what a kind means of a turn that has ended, and reports whether there was anything.
func (t retentionTx) end(ctx context.Context, kind, turnID string) (bool, error) {
	switch kind {
	case RetainMessages:
		return t.endMessage(ctx, turnID)
	case RetainOriginals:
		return t.endOriginal(ctx, turnID)
	case RetainFiles:
		return t.endFiles(ctx, turnID)
	case RetainSteps:
		return t.endSteps(ctx, turnID)
	case RetainDemands:
		return t.endRows(ctx, endedDemands, turnID)
	case RetainDispatches:
		return t.endRows(ctx, endedDispatches, turnID)
	case RetainTools:
		requests, err := t.endRows(ctx, endedToolRequests, turnID)
		if err != nil {
			return false, err
		}
		runs, err := t.sql.Change(ctx, `DELETE FROM task_runs WHERE turn_id = $1 AND turn_id <> ''`, turnID)
		return requests || runs > 0, err
	}
	return t.endRecord(ctx, turnID)
}

const selectEmptied = `SELECT 1 FROM turns WHERE id = $1 AND route = '{}' AND history_turns = 0 AND original_digest = ''`

// endMessage is what deletion of a conversation does to its turns.
func (t retentionTx) endMessage(ctx context.Context, turnID string) (bool, error) {
	var one int64
	if empty, err := first(ctx, t.sql, selectEmptied, []any{turnID}, &one); err != nil || empty {
		return false, err
	}
	if _, err := t.endOriginal(ctx, turnID); err != nil {
		return false, err
	}
	return true, t.erasure().forgetWith(ctx, turnID, func(string) error { return nil })
}

// endOriginal lets go of the native form. Other messages may have the same bytes; whether they do is looked at for many at once.
func (t retentionTx) endOriginal(ctx context.Context, turnID string) (bool, error) {
	var digest string
	if _, err := first(ctx, t.sql, `SELECT original_digest FROM turns WHERE id = $1`, []any{turnID}, &digest); err != nil || digest == "" {
		return false, err
	}
	if err := t.sql.Do(ctx, `INSERT INTO retention_originals (digest) VALUES ($1) ON CONFLICT (digest) DO NOTHING`, digest); err != nil {
		return false, err
	}
	return true, t.sql.Do(ctx, `UPDATE turns SET original_digest = '' WHERE id = $1`, turnID)
}

// endFiles puts a line in the place of each file.
func (t retentionTx) endFiles(ctx context.Context, turnID string) (bool, error) {
	var stored string
	if _, err := first(ctx, t.sql, `SELECT message FROM turns WHERE id = $1`, []any{turnID}, &stored); err != nil {
		return false, err
	}
	var message normalized.Message
	if err := json.Unmarshal([]byte(stored), &message); err != nil {
		return false, fmt.Errorf("decode message: %w", err)
	}

	changed := false
	if digests := filesOf(message.Parts); len(digests) > 0 {
		changed = true
		message.Parts = withoutFiles(message.Parts)
		body, err := message.AppendJSON(nil)
		if err != nil {
			return false, fmt.Errorf("encode message: %w", err)
		}
		if err := t.discard(ctx, digests...); err != nil {
			return false, err
		}
		if err := t.sql.Do(ctx, `UPDATE turns SET message = $1 WHERE id = $2`, string(body), turnID); err != nil {
			return false, err
		}
	}

	brought, err := t.endBrought(ctx, turnID)
	if err != nil {
		return false, err
	}
	answers, err := t.endAnswerFiles(ctx, turnID)
	return changed || brought || answers, err
}

func (t retentionTx) endAnswerFiles(ctx context.Context, turnID string) (changed bool, err error) {
	kept := map[string]string{}
	err = t.sql.Each(ctx, `SELECT id, response FROM replies WHERE turn_id = $1`, []any{turnID}, func(r row) error {
		var id, response string
		err := r.Scan(&id, &response)
		kept[id] = response
		return err
	})
	if err != nil {
		return false, err
	}

	for _, id := range slices.Sorted(maps.Keys(kept)) {
		var response normalized.Response
		if err := json.Unmarshal([]byte(kept[id]), &response); err != nil {
			return false, fmt.Errorf("decode response %s: %w", id, err)
		}
		digests := filesOf(response.Parts)
		if len(digests) == 0 {
			continue
		}

		response.Parts = withoutFiles(response.Parts)
		body, err := json.Marshal(response)
		if err != nil {
			return false, fmt.Errorf("encode response %s: %w", id, err)
		}
		if err := t.discard(ctx, digests...); err != nil {
			return false, err
		}
		if err := t.sql.Do(ctx, `UPDATE replies SET response = $1 WHERE id = $2`, string(body), id); err != nil {
			return false, err
		}
		changed = true
	}
	return changed, nil
}

// withoutFiles keeps the names of files: later turns of the conversation may speak of them.
func withoutFiles(parts []normalized.Part) []normalized.Part {
	left := make([]normalized.Part, 0, len(parts))
	for _, part := range parts {
		if part.BytesRef != nil && part.BytesRef.Digest != "" {
			name := part.Name
			if name == "" {
				name = "without a name"
			}
			part = normalized.Text("(a file was here, " + name + "; it is not kept any more)")
		}
		left = append(left, part)
	}
	return left
}

// endSteps leaves the last row of a timeline, so that later ones go on counting, and the notes that a message was edited, both without
// their words.
func (t retentionTx) endSteps(ctx context.Context, turnID string) (bool, error) {
	if err := t.removeResults(ctx, turnID); err != nil {
		return false, err
	}
	emptied, err := t.sql.Change(ctx, `UPDATE events SET body = '' WHERE turn_id = $1 AND body <> ''`, turnID)
	if err != nil {
		return false, err
	}
	gone, err := t.sql.Change(ctx, `DELETE FROM events WHERE turn_id = $1 AND kind <> $2
		AND seq < (SELECT MAX(e.seq) FROM events e WHERE e.turn_id = $1)`, turnID, exchange.EventMessageEdited)
	return emptied+gone > 0, err
}

// endRows removes rows of a turn that have ended, with the files that they name.
func (t retentionTx) endRows(ctx context.Context, rows ended, turnID string) (bool, error) {
	var one int64
	which := rows.done
	there, err := first(ctx, t.sql, `SELECT 1 FROM `+rows.table+` WHERE `+rows.turn+` = $1 AND `+which+` LIMIT 1`, []any{turnID}, &one)
	if err != nil || !there {
		return false, err
	}
	return true, t.erasure().forgetRows(ctx, rows, which, turnID)
}

// endRecord removes the rows of a turn. Its words go first, should they still be there.
func (t retentionTx) endRecord(ctx context.Context, turnID string) (bool, error) {
	if _, err := t.endMessage(ctx, turnID); err != nil {
		return false, err
	}
	return true, t.erasure().removeTurn(ctx, turnID)
}

const selectOldAudit = `SELECT id, agent FROM audit WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3 + 0`

// retainAudit removes records of the group.
func (s retentionStore) retainAudit(ctx context.Context, g group, now time.Time) (removed int64, err error) {
	end := idBefore(now.Add(-g.period))
	after, err := s.cursor(ctx, g.name)
	for err == nil {
		var last string
		var ids []string
		err = s.engine.Reader().Each(ctx, selectOldAudit, []any{after, end, int64(retainPage)}, func(r row) error {
			var agent string
			err := r.Scan(&last, &agent)
			if g.has(agent) {
				ids = append(ids, last)
			}
			return err
		})
		if err != nil || last == "" {
			return removed, err
		}

		err = s.inBackground(ctx, func(tx *Tx) error {
			if err := tx.moveCursor(ctx, g.name, after, last); err != nil {
				return err
			}
			for _, id := range ids {
				if err := tx.sql.Do(ctx, `DELETE FROM audit WHERE id = $1`, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			after, removed = last, removed+int64(len(ids))
		}
	}
	return removed, err
}

const selectOldSessions = `SELECT owner_key, id, owner, agent FROM sessions WHERE updated_at < $1 AND (owner_key, id) > ($2, $3)
	ORDER BY owner_key, id LIMIT $4 + 0`

// retainSessions deletes conversations as their owner would. One with a message that has not ended waits.
func (s retentionStore) retainSessions(ctx context.Context, g group, now time.Time) (removed int64, err error) {
	for ownerKey, id := "", ""; ; {
		type session struct{ owner, id string }
		var page []session
		rows := 0
		err := s.engine.Reader().Each(ctx, selectOldSessions, []any{micros(now.Add(-g.period)), ownerKey, id, int64(retainPage)}, func(r row) error {
			var owner, agent string
			err := r.Scan(&ownerKey, &id, &owner, &agent)
			rows++
			if g.has(agent) {
				page = append(page, session{owner, id})
			}
			return err
		})
		if err != nil {
			return removed, err
		}

		for _, one := range page {
			deleted, err := s.endSession(ctx, one.owner, one.id)
			if err != nil {
				return removed, err
			}
			if deleted {
				removed++
			}
		}
		if rows < retainPage {
			return removed, nil
		}
	}
}

const selectOpenInThread = `SELECT 1 FROM turns t WHERE t.thread_key = $1 AND t.thread_id = $2 AND
	(t.state NOT IN ('answered', 'refused', 'failed', 'silent', 'cancelled')
	OR EXISTS (SELECT 1 FROM deliveries d WHERE d.turn_id = t.id AND d.state IN ('pending', 'retry', 'sending'))) LIMIT 1`

func (s retentionStore) endSession(ctx context.Context, owner, id string) (deleted bool, err error) {
	session, found, err := s.sessions().Session(ctx, owner, id)
	if err != nil || !found {
		return false, err
	}
	var one int64
	open, err := first(ctx, s.engine.Reader(), selectOpenInThread, []any{hashKey(session.Agent, session.ThreadID), session.ThreadID}, &one)
	if err != nil || open {
		return false, err
	}

	err = s.sessions().DeleteSession(ctx, owner, id)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}
	return err == nil, nil
}

const (
	selectLetGo  = `SELECT digest FROM retention_originals ORDER BY digest LIMIT $1 + 0`
	selectHolder = `SELECT id, original_digest FROM turns WHERE id > $1 ORDER BY id LIMIT $2 + 0`
	maxLetGo     = 100_000 // native forms that are looked for in one pass: some 10 MB
)

// DropOriginals deletes the native forms that messages let go in Retain and that no other message has. One pass over all messages answers it for
// all of them: an index of digests would cost every message something.
func (s retentionStore) DropOriginals(ctx context.Context) error {
	letGo := map[string]bool{}
	err := s.engine.Reader().Each(ctx, selectLetGo, []any{int64(maxLetGo)}, func(r row) error {
		var digest string
		err := r.Scan(&digest)
		letGo[digest] = true
		return err
	})
	if err != nil || len(letGo) == 0 {
		return err
	}

	needed := map[string]bool{}
	after := ""
	for more := true; more; {
		begun := time.Now()
		rows := 0
		err := s.engine.Reader().Each(ctx, selectHolder, []any{after, int64(10 * retainPage)}, func(r row) error {
			var digest string
			err := r.Scan(&after, &digest)
			if letGo[digest] {
				needed[digest] = true
			}
			rows++
			return err
		})
		if err != nil {
			return err
		}
		if more = rows == 10*retainPage; more {
			if err := rest(ctx, begun); err != nil {
				return err
			}
		}
	}

	// A message that came since the pass began may have the same bytes: ids are in the order of arrival, but for transactions that took
	// long and for clocks of nodes that differ.
	if margin := idBefore(s.now().Add(-lateArrival)); after > margin {
		after = margin
	}
	return s.dropLetGo(ctx, slices.Sorted(maps.Keys(letGo)), needed, after)
}

// lateArrival is how long after its id was made a message is stored at the latest.
const lateArrival = 2 * time.Minute

func (s retentionStore) dropLetGo(ctx context.Context, digests []string, needed map[string]bool, after string) error {
	for len(digests) > 0 {
		portion := digests[:min(len(digests), retainBatch)]
		digests = digests[len(portion):]
		err := s.inBackground(ctx, func(tx *Tx) error { return tx.dropLetGo(ctx, portion, needed, after) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (t retentionTx) dropLetGo(ctx context.Context, digests []string, needed map[string]bool, after string) error {
	arguments := []any{after}
	for _, digest := range digests {
		arguments = append(arguments, digest)
	}
	held := map[string]bool{}
	query := `SELECT DISTINCT original_digest FROM turns WHERE id > $1 AND original_digest IN (` + placeholders(2, len(digests)) + `)`
	err := t.sql.Each(ctx, query, arguments, func(r row) error {
		var digest string
		err := r.Scan(&digest)
		held[digest] = true
		return err
	})
	if err != nil {
		return err
	}

	for _, digest := range digests {
		if err := t.sql.Do(ctx, `DELETE FROM retention_originals WHERE digest = $1`, digest); err != nil {
			return err
		}
		if needed[digest] || held[digest] {
			continue
		}
		if err := t.erasure().removeOriginal(ctx, digest); err != nil {
			return err
		}
	}
	return nil
}
