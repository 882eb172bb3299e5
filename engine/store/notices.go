package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"inbox/engine/notice"
	"inbox/exchange"
	"inbox/internal/fault"
)

// noticeStore shows what the operator is told of.
type noticeStore struct{ *shared }

// noticeTx changes it in a transaction.
type noticeTx struct{ *transaction }

// Notifier returns the view that the room of notices declared.
func (s *Store) Notifier() notice.Store { return noticeView{s.noticeStore} }

type noticeView struct{ noticeStore }

// InTx runs work in one transaction; see Store.InTx.
func (v noticeView) InTx(ctx context.Context, work func(notice.Tx) error) error {
	return v.noticeStore.InTx(ctx, func(tx *Tx) error { return work(tx) })
}

// tallied is an event of the running transaction that its tally gets.
type tallied struct {
	kind, subject string
	example       exchange.NoticeExample
}

// maxSubject bounds what names a tally, in bytes.
const maxSubject = 200

// count adds an event to its tally with the commit: at its end the row is held for the shortest time, and the rows of several tallies are
// taken in one order by all.
func (t *transaction) count(kind, subject string, example exchange.NoticeExample) {
	if example.At.IsZero() {
		example.At = t.now()
	}
	example.At, example.Note = example.At.UTC().Truncate(time.Millisecond), notice.Excerpt(cleaned(example.Note), notice.MaxNote)
	t.tallied = append(t.tallied, tallied{kind, short(cmp.Or(subject, "-"), maxSubject), example})
}

// CountNotice adds an event to its tally; see notice.Tx.
func (t noticeTx) CountNotice(kind, subject string, example exchange.NoticeExample) {
	t.count(kind, subject, example)
}

// A window begins with the first event after the one before. The three newest examples move on by one.
const addToTally = `INSERT INTO notice_tallies (kind, subject, total, digested, previous, window_from, window_count, window_before, last_at, newest, second, third)
	VALUES ($1, $2, $3, 0, 0, $4, $3, 0, $4, $5, '', '')
	ON CONFLICT (kind, subject) DO UPDATE SET
		total = notice_tallies.total + excluded.total,
		window_before = CASE WHEN excluded.last_at - notice_tallies.window_from >= $6 THEN notice_tallies.window_count ELSE notice_tallies.window_before END,
		window_count = excluded.total + CASE WHEN excluded.last_at - notice_tallies.window_from >= $6 THEN 0 ELSE notice_tallies.window_count END,
		window_from = CASE WHEN excluded.last_at - notice_tallies.window_from >= $6 THEN excluded.last_at ELSE notice_tallies.window_from END,
		last_at = CASE WHEN excluded.last_at > notice_tallies.last_at THEN excluded.last_at ELSE notice_tallies.last_at END,
		third = notice_tallies.second, second = notice_tallies.newest, newest = excluded.newest`

// maxExamples is how many events of a tally are kept.
const maxExamples = 3

// writeCounts adds what work counted to the tallies.
func (t *transaction) writeCounts(ctx context.Context) error {
	slices.SortStableFunc(t.tallied, func(a, b tallied) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.subject, b.subject))
	})

	for from := 0; from < len(t.tallied); {
		one, to := t.tallied[from], from+1
		for to < len(t.tallied) && t.tallied[to].kind == one.kind && t.tallied[to].subject == one.subject {
			to++
		}

		amount := int64(to - from)
		last := t.tallied[max(from, to-maxExamples):to]
		for i, shown := range last {
			example, err := json.Marshal(shown.example)
			if err != nil {
				return fmt.Errorf("encode example: %w", err)
			}
			added := int64(1)
			if i == 0 {
				added = amount - int64(len(last)) + 1
			}
			if err := t.sql.Do(ctx, addToTally, one.kind, one.subject, added, t.now().UnixMicro(), string(example), exchange.NoticeWindow.Microseconds()); err != nil {
				return err
			}
		}
		from = to
	}
	return nil
}

// aboutNotice reports whether a turn carries a notice: what becomes of those is counted nowhere.
func (t *transaction) aboutNotice(ctx context.Context, turnID string) (bool, error) {
	var id string
	return first(ctx, t.sql, `SELECT id FROM notice_ways WHERE turn_id = $1 LIMIT 1`, []any{turnID}, &id)
}

const selectTallies = `SELECT kind, subject, total, total - digested, last_at, newest, second, third, window_from, window_count, window_before
	FROM notice_tallies ORDER BY kind, subject`

// NoticeTallies returns all tallies.
func (s noticeStore) NoticeTallies(ctx context.Context) ([]exchange.NoticeTally, error) {
	var list []exchange.NoticeTally
	err := s.engine.Reader().Each(ctx, selectTallies, nil, func(r row) error {
		tally, err := scanTally(r)
		list = append(list, tally)
		return err
	})
	return list, err
}

func scanTally(r row) (tally exchange.NoticeTally, err error) {
	var last, window int64
	var shown [maxExamples]string
	err = r.Scan(&tally.Kind, &tally.Subject, &tally.Total, &tally.Count, &last, &shown[0], &shown[1], &shown[2], &window, &tally.WindowCount, &tally.WindowBefore)
	if err != nil {
		return tally, err
	}
	tally.LastAt, tally.WindowFrom, tally.Examples = instant(last), instant(window), []exchange.NoticeExample{}
	for _, text := range shown {
		var one exchange.NoticeExample
		if text != "" && json.Unmarshal([]byte(text), &one) == nil {
			tally.Examples = append(tally.Examples, one)
		}
	}
	return tally, nil
}

const takeTallies = `UPDATE notice_tallies SET previous = digested, digested = total WHERE total > digested
	RETURNING kind, subject, total, digested - previous, last_at, newest, second, third, window_from, window_count, window_before`

// TakeTallies returns what no digest has told yet; see notice.Tx.
func (t noticeTx) TakeTallies(ctx context.Context) (list []exchange.NoticeTally, err error) {
	err = t.sql.Each(ctx, takeTallies, nil, func(r row) error {
		tally, err := scanTally(r)
		list = append(list, tally)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, t.sql.Do(ctx, `UPDATE notice_tallies SET newest = '', second = '', third = '' WHERE total = digested AND newest <> ''`)
}

const beginCondition = `INSERT INTO notice_conditions (kind, subject, state, reason, since, seen_at, ended_at, told_at, last_told, base)
	VALUES ($1, $2, 'open', $3, $4, $5, 0, 0, 0, $6)
	ON CONFLICT (kind, subject) DO UPDATE SET
		since = CASE WHEN notice_conditions.state = 'closed' THEN excluded.since ELSE notice_conditions.since END,
		told_at = CASE WHEN notice_conditions.state = 'closed' THEN 0 ELSE notice_conditions.told_at END,
		base = CASE WHEN notice_conditions.state = 'closed' THEN excluded.base ELSE notice_conditions.base END,
		state = 'open', ended_at = 0, reason = excluded.reason, seen_at = excluded.seen_at`

// BeginCondition notes that something lasts; see notice.Tx.
func (t noticeTx) BeginCondition(ctx context.Context, c exchange.NoticeCondition) error {
	return t.sql.Do(ctx, beginCondition, c.Kind, short(c.Subject, maxSubject), cleaned(c.Reason), micros(c.Since), micros(c.SeenAt), c.Base)
}

// EndCondition ends an episode that is open.
func (t noticeTx) EndCondition(ctx context.Context, kind, subject string, at time.Time) error {
	return t.sql.Do(ctx, `UPDATE notice_conditions SET state = 'ended', ended_at = $3 WHERE kind = $1 AND subject = $2 AND state = 'open'`,
		kind, short(subject, maxSubject), micros(at))
}

const moveCondition = `UPDATE notice_conditions SET state = $1, ended_at = $2, told_at = $3, last_told = $4
	WHERE kind = $5 AND subject = $6 AND state = $7 AND since = $8 AND told_at = $9 AND ended_at = $10`

// MoveCondition changes an episode that is as it was read; see notice.Tx.
func (t noticeTx) MoveCondition(ctx context.Context, from, to exchange.NoticeCondition) (bool, error) {
	moved, err := t.sql.Change(ctx, moveCondition, to.State, micros(to.EndedAt), micros(to.ToldAt), micros(to.LastTold),
		from.Kind, from.Subject, from.State, micros(from.Since), micros(from.ToldAt), micros(from.EndedAt))
	return moved > 0, err
}

// NoticeConditions returns the newest episodes.
func (s noticeStore) NoticeConditions(ctx context.Context) ([]exchange.NoticeCondition, error) {
	var list []exchange.NoticeCondition
	err := s.engine.Reader().Each(ctx, `SELECT kind, subject, state, reason, since, seen_at, ended_at, told_at, last_told, base
		FROM notice_conditions ORDER BY kind, subject`, nil, func(r row) error {
		var c exchange.NoticeCondition
		var since, seen, ended, told, last int64
		err := r.Scan(&c.Kind, &c.Subject, &c.State, &c.Reason, &since, &seen, &ended, &told, &last, &c.Base)
		c.Since, c.SeenAt, c.EndedAt, c.ToldAt, c.LastTold = instant(since), instant(seen), instant(ended), instant(told), instant(last)
		list = append(list, c)
		return err
	})
	return list, err
}

const allowNotice = `UPDATE notice_state SET hour_count = 1 + CASE WHEN $1 - hour_from >= $2 THEN 0 ELSE hour_count END,
	hour_from = CASE WHEN $1 - hour_from >= $2 THEN $1 ELSE hour_from END
	WHERE id = 1 AND (hour_count < $3 OR $1 - hour_from >= $2)`

// AllowNotice counts a message; see notice.Tx.
func (t noticeTx) AllowNotice(ctx context.Context, now time.Time, most int) (bool, error) {
	allowed, err := t.sql.Change(ctx, allowNotice, micros(now), time.Hour.Microseconds(), int64(most))
	return allowed > 0, err
}

// LastDigest returns when the last digest was made; zero = none was yet.
func (s noticeStore) LastDigest(ctx context.Context) (time.Time, error) {
	var at int64
	_, err := first(ctx, s.engine.Reader(), `SELECT digest_at FROM notice_state WHERE id = 1`, nil, &at)
	return instant(at), err
}

// BeginDigest notes that a digest is made; see notice.Tx.
func (t noticeTx) BeginDigest(ctx context.Context, last, now time.Time) (bool, error) {
	begun, err := t.sql.Change(ctx, `UPDATE notice_state SET digest_at = $2 WHERE id = 1 AND digest_at = $1`, micros(last), micros(now))
	return begun > 0, err
}

// InsertNotice stores a notice with its ways.
func (t noticeTx) InsertNotice(ctx context.Context, n exchange.Notice) error {
	err := t.sql.Do(ctx, `INSERT INTO notices (id, kind, subject, phase, title, text, body, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		n.ID, n.Kind, cleaned(n.Subject), n.Phase, cleaned(n.Title), cleaned(n.Text), cleaned(n.Body), micros(n.CreatedAt))
	if err != nil {
		return err
	}
	for _, way := range n.Ways {
		err := t.sql.Do(ctx, `INSERT INTO notice_ways (id, notice_id, address, state, reason, turn_id, updated_at) VALUES ($1, $2, $3, $4, '', '', $5)`,
			way.ID, n.ID, cleaned(way.Address), way.State, micros(way.UpdatedAt))
		if err != nil {
			return err
		}
	}
	return nil
}

// SettleNotice writes what became of a way.
func (t noticeTx) SettleNotice(ctx context.Context, way exchange.NoticeWay) error {
	return t.sql.Do(ctx, `UPDATE notice_ways SET state = $2, reason = $3, turn_id = $4, updated_at = $5 WHERE id = $1`,
		way.ID, way.State, cleaned(way.Reason), way.TurnID, micros(way.UpdatedAt))
}

// A mail or a post has the state of its delivery.
const wayColumns = `w.id, w.notice_id, w.address, COALESCE(d.state, w.state), COALESCE(d.reason, w.reason), w.turn_id, COALESCE(d.updated_at, w.updated_at)`

const waysOf = ` FROM notice_ways w LEFT JOIN deliveries d ON d.turn_id = w.turn_id AND w.turn_id <> '' `

func scanWay(r row, more ...any) (way exchange.NoticeWay, err error) {
	var updated int64
	err = r.Scan(append([]any{&way.ID, &way.NoticeID, &way.Address, &way.State, &way.Reason, &way.TurnID, &updated}, more...)...)
	way.UpdatedAt = instant(updated)
	return way, err
}

const noticeColumns = `n.id, n.kind, n.subject, n.phase, n.title, n.text, n.body, n.created_at`

// NoticeWay returns a way, with the state of its own row, and its notice; fault.NotFound when there is none.
func (s noticeStore) NoticeWay(ctx context.Context, id string) (n exchange.Notice, way exchange.NoticeWay, err error) {
	found := false
	var created int64
	err = s.engine.Reader().Each(ctx, `SELECT w.id, w.notice_id, w.address, w.state, w.reason, w.turn_id, w.updated_at, `+noticeColumns+`
		FROM notice_ways w JOIN notices n ON n.id = w.notice_id WHERE w.id = $1`, []any{id}, func(r row) (err error) {
		found = true
		way, err = scanWay(r, &n.ID, &n.Kind, &n.Subject, &n.Phase, &n.Title, &n.Text, &n.Body, &created)
		return err
	})
	if err == nil && !found {
		err = notFound("notice")
	}
	n.CreatedAt = instant(created)
	return n, way, err
}

// Notice returns one notice with its ways; fault.NotFound when there is none.
func (s noticeStore) Notice(ctx context.Context, id string) (exchange.Notice, error) {
	list, err := s.notices(ctx, `n.id = $1`, cleaned(id))
	switch {
	case err != nil:
		return exchange.Notice{}, err
	case len(list) == 0:
		return exchange.Notice{}, fault.New(fault.NotFound, "there is no such notice")
	}
	return list[0], nil
}

// Notices lists what was told, newest first, at most 500. Before is the id of the last one of the page before.
func (s noticeStore) Notices(ctx context.Context, before string, limit int) ([]exchange.Notice, error) {
	if before == "" {
		before = lastID
	}
	return s.notices(ctx, `n.id IN (SELECT id FROM notices WHERE id < $1 ORDER BY id DESC LIMIT $2 + 0)`, cleaned(before), pageSize(limit))
}

func (s noticeStore) notices(ctx context.Context, which string, arguments ...any) (list []exchange.Notice, err error) {
	err = s.engine.Reader().Each(ctx, `SELECT `+noticeColumns+` FROM notices n WHERE `+which+` ORDER BY n.id DESC`, arguments, func(r row) error {
		n := exchange.Notice{Ways: []exchange.NoticeWay{}}
		var created int64
		err := r.Scan(&n.ID, &n.Kind, &n.Subject, &n.Phase, &n.Title, &n.Text, &n.Body, &created)
		n.CreatedAt = instant(created)
		list = append(list, n)
		return err
	})
	if err != nil || len(list) == 0 {
		return list, err
	}

	places := map[string]int{}
	for i := range list {
		places[list[i].ID] = i
	}
	query := `SELECT ` + wayColumns + waysOf + `JOIN notices n ON n.id = w.notice_id WHERE ` + which + ` ORDER BY w.id`
	err = s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		way, err := scanWay(r)
		if place, is := places[way.NoticeID]; is && err == nil {
			list[place].Ways = append(list[place].Ways, way)
		}
		return err
	})
	return list, err
}

// noticeAge is how long it is on record what was told.
const noticeAge = 90 * 24 * time.Hour

// A node that is gone had names of its own.
const sweepNoticeConditions = `DELETE FROM notice_conditions WHERE (kind, subject) IN (SELECT kind, subject FROM notice_conditions
	WHERE state = '` + exchange.ConditionClosed + `' AND ended_at <= $1 LIMIT $2 + 0)`
