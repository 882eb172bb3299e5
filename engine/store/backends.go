package store

import (
	"context"
	"strings"
	"time"

	"inbox/engine/notice"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/queue"
)

// backEndStore lists the outages of agents' back ends.
type backEndStore struct{ *shared }

// backEndTx keeps the breakers of back ends in a transaction.
type backEndTx struct{ *transaction }

// An outage that begins again soon after its end is the same one: its row opens again, and it is not reported as new.
const openBackEnd = `INSERT INTO back_ends (agent, since, opened, probe_at, closed_at, reason, updated_at, suspected)
	VALUES ($1, $2, 1, $3, 0, $4, $5, $7)
	ON CONFLICT (agent) DO UPDATE SET since = excluded.since, opened = 1, probe_at = excluded.probe_at, closed_at = 0,
		reason = excluded.reason, updated_at = excluded.updated_at, suspected = excluded.suspected
	WHERE back_ends.closed_at > 0 AND back_ends.closed_at <= $6`

// $6 is the time until which the caller held the probe: it is over, so that the next one need not wait for it.
const reopenBackEnd = `UPDATE back_ends SET opened = opened + 1, closed_at = 0, probe_at = $2, reason = $3, updated_at = $4,
	suspected = CASE WHEN closed_at > 0 OR suspected > $5 THEN $5 ELSE suspected END
	WHERE agent = $1 AND (probe_at < $2 OR closed_at > 0 OR probe_at = $6 OR suspected > $5)`

// OpenBackEnd opens the breaker of an agent's back end, or notes a probe that failed; see pipeline.BackEndTx.
func (t backEndTx) OpenBackEnd(ctx context.Context, outage pipeline.BackEnd, same time.Time) (began bool, err error) {
	now := t.nowMicros()
	reason := short(outage.Reason, maxAuditDetail)
	inserted, err := t.sql.Change(ctx, openBackEnd, outage.Agent, micros(outage.Since), micros(outage.ProbeAt), reason, now, micros(same), flag(outage.Suspected))
	if err != nil {
		return false, err
	}

	lasts := exchange.NoticeCondition{Kind: exchange.NoticeBackEnd, Subject: outage.Agent, Reason: notice.Excerpt(outage.Reason, maxAuditDetail), Since: outage.Since, SeenAt: time.UnixMicro(now)}
	if err := t.notices().BeginCondition(ctx, lasts); err != nil || inserted > 0 {
		return inserted > 0, err
	}

	return false, t.sql.Do(ctx, reopenBackEnd, outage.Agent, micros(outage.ProbeAt), reason, now, flag(outage.Suspected), micros(outage.Held))
}

// TakeProbe lets one caller among all nodes ask; see pipeline.BackEndTx.
func (t backEndTx) TakeProbe(ctx context.Context, agent string, now, until time.Time) (bool, error) {
	taken, err := t.sql.Change(ctx, `UPDATE back_ends SET probe_at = $3, updated_at = $2
		WHERE agent = $1 AND closed_at = 0 AND probe_at <= $2`, agent, micros(now), micros(until))
	return taken > 0, err
}

// CloseBackEnd ends an outage and reports whether it was open.
func (t backEndTx) CloseBackEnd(ctx context.Context, agent string, now time.Time) (bool, error) {
	closed, err := t.sql.Change(ctx, `UPDATE back_ends SET closed_at = $2, updated_at = $2 WHERE agent = $1 AND closed_at = 0`,
		agent, micros(now))
	if err == nil && closed > 0 {
		err = t.notices().EndCondition(ctx, exchange.NoticeBackEnd, agent, now)
	}
	return closed > 0, err
}

// MoveProbe lets the next run ask at once; see pipeline.BackEndTx.
func (t backEndTx) MoveProbe(ctx context.Context, agent string, read, now time.Time) (bool, error) {
	moved, err := t.sql.Change(ctx, `UPDATE back_ends SET probe_at = $3, updated_at = $3 WHERE agent = $1 AND closed_at = 0 AND probe_at = $2`,
		agent, micros(read), micros(now))
	return moved > 0, err
}

// The turns of an agent are those of the group with its name, and of groups whose names begin with it and a space; "!" is the next character.
const (
	waitingTurns = `FROM jobs WHERE state = 'scheduled' AND kind = $1 AND (group_of = $2 OR group_of >= $3 AND group_of < $4)`

	// Turns that are to run soon keep their time.
	hastenFirst = `UPDATE jobs SET run_at = {now} + CAST($5 AS BIGINT) WHERE state = 'scheduled' AND run_at > {now} + CAST($5 AS BIGINT)
		AND id = (SELECT id ` + waitingTurns + ` ORDER BY payload LIMIT 1)`
	hasTurns = `SELECT 1 FROM jobs WHERE state IN ('scheduled', 'ready', 'running') AND kind = $1 AND (group_of = $2 OR group_of >= $3 AND group_of < $4) LIMIT 1`

	// Each turn gets a place of its own by its age, so that they do not run all at once. One with an earlier place keeps it.
	hastenBacklog = `UPDATE jobs SET run_at = {now} + place.number * CAST($5 AS BIGINT)
		FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY payload) - 1 AS number FROM (
			SELECT id, payload ` + waitingTurns + ` ORDER BY payload LIMIT $6 + 0{skip locked}) AS oldest) AS place
		WHERE jobs.id = place.id AND jobs.state = 'scheduled' AND jobs.run_at > {now} + place.number * CAST($5 AS BIGINT)`
)

func jobsOfTurns(agent string, more ...any) []any {
	group := exchange.TurnGroup(agent, nil)
	return append([]any{pipeline.JobKind, group, group + " ", group + "!"}, more...)
}

// HastenFirst lets the oldest waiting turn of an agent run soon; see pipeline.BackEndTx.
func (t backEndTx) HastenFirst(ctx context.Context, agent string, wait time.Duration) (bool, error) {
	t.wake(ChannelJob, pipeline.JobKind)
	if err := t.sql.Do(ctx, atNow(t.transaction, hastenFirst), jobsOfTurns(agent, wait.Microseconds())...); err != nil {
		return false, err
	}
	var has int64
	return first(ctx, t.sql, hasTurns, jobsOfTurns(agent), &has)
}

// HastenBacklog gives waiting turns of an agent earlier places; see pipeline.BackEndTx.
func (t backEndTx) HastenBacklog(ctx context.Context, agent string, rate float64, most int) error {
	t.wake(ChannelJob, pipeline.JobKind)
	step := int64(float64(time.Second.Microseconds()) / rate)
	return t.sql.Do(ctx, t.dialect.hastenBacklog, jobsOfTurns(agent, step, int64(most))...)
}

// earlierTurns finds jobs in each state by an index of that state. A run that lasts long has been asked long ago.
const earlierTurns = ` FROM (
		SELECT id, payload, run_at FROM jobs WHERE state = 'scheduled' AND kind = $1 AND member_key = $2 AND payload < $4
		UNION ALL SELECT id, payload, run_at FROM jobs WHERE state = 'ready' AND kind = $1 AND group_of = $3 AND claim_rank IN (0, 1, 2)
			AND member_key = $2 AND payload < $4
		UNION ALL SELECT id, payload, {now} FROM jobs WHERE state = 'running' AND kind = $1 AND member_key = $2 AND payload < $4 AND updated_at > $10
	) j JOIN turns t ON t.id = j.payload
	WHERE t.agent = $5 AND t.principal = $6 AND t.network = $7 AND (t.attempt <= $8 OR j.run_at - {now} <= $9) `

const (
	selectEarlierTurns = `SELECT j.payload, j.run_at - {now}` + earlierTurns + `ORDER BY 2 DESC LIMIT 8`
	hastenEarlierTurn  = `UPDATE jobs SET run_at = {now} WHERE state = 'scheduled' AND id = (SELECT j.id` + earlierTurns + `ORDER BY j.payload LIMIT 1)`
)

// justAsked is how long ago a run began at most that is about to be asked.
const justAsked = 5 * time.Second

func earlierThan(now int64, turn exchange.TurnRecord, within time.Duration) []any {
	return []any{
		pipeline.JobKind, queue.NewJob{Member: turn.BroughtBy()}.Share().Member, exchange.TurnGroup(turn.Agent, exchange.Requires(turn.Route)), turn.ID,
		turn.Agent, turn.Principal, turn.Network, int64(turn.Attempt), within.Microseconds(), now - justAsked.Microseconds(),
	}
}

// Earlier lists messages of a sender that came before a turn; see pipeline.Reader.
func (s backEndStore) Earlier(ctx context.Context, turn exchange.TurnRecord, within time.Duration) ([]pipeline.Earlier, error) {
	var list []pipeline.Earlier
	query := strings.ReplaceAll(selectEarlierTurns, "{now}", s.dialect.now)
	err := s.engine.Reader().Each(ctx, query, earlierThan(s.nowMicros(), turn, within), func(r row) error {
		var one pipeline.Earlier
		var wait int64
		err := r.Scan(&one.TurnID, &wait)
		one.Wait = time.Duration(wait) * time.Microsecond
		list = append(list, one)
		return err
	})
	return list, err
}

// HastenEarlier lets the oldest of these messages go now; see pipeline.BackEndTx.
func (t backEndTx) HastenEarlier(ctx context.Context, turn exchange.TurnRecord, within time.Duration) error {
	t.wake(ChannelJob, pipeline.JobKind)
	return t.sql.Do(ctx, atNow(t.transaction, hastenEarlierTurn), earlierThan(t.nowMicros(), turn, within)...)
}

// BackEnds lists the newest outage of each agent that had one.
func (s backEndStore) BackEnds(ctx context.Context) ([]pipeline.BackEnd, error) {
	var list []pipeline.BackEnd
	err := s.engine.Reader().Each(ctx, `SELECT agent, since, opened, probe_at, closed_at, reason, suspected FROM back_ends ORDER BY agent`, nil, func(r row) error {
		var one pipeline.BackEnd
		var since, probe, closed, suspected int64
		err := r.Scan(&one.Agent, &since, &one.Opened, &probe, &closed, &one.Reason, &suspected)
		one.Suspected = suspected == 1
		one.Since, one.ProbeAt, one.ClosedAt = instant(since), instant(probe), instant(closed)
		list = append(list, one)
		return err
	})
	return list, err
}
