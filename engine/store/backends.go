package store

import (
	"context"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
)

// An outage that begins again soon after its end is the same one: its row opens again, and it is not reported as new.
const openBackEnd = `INSERT INTO back_ends (agent, since, opened, probe_at, closed_at, reason, updated_at)
	VALUES ($1, $2, 1, $3, 0, $4, $5)
	ON CONFLICT (agent) DO UPDATE SET since = excluded.since, opened = 1, probe_at = excluded.probe_at, closed_at = 0,
		reason = excluded.reason, updated_at = excluded.updated_at
	WHERE back_ends.closed_at > 0 AND back_ends.closed_at <= $6`

const reopenBackEnd = `UPDATE back_ends SET opened = opened + 1, closed_at = 0, probe_at = $2, reason = $3, updated_at = $4
	WHERE agent = $1 AND (probe_at < $2 OR closed_at > 0)`

// OpenBackEnd opens the breaker of an agent's back end, or notes a probe that failed; see pipeline.BackEndTx.
func (t *Tx) OpenBackEnd(ctx context.Context, outage pipeline.BackEnd, same time.Time) (began bool, err error) {
	now := nowMicros()
	reason := short(outage.Reason, maxAuditDetail)
	inserted, err := t.change(ctx, openBackEnd, outage.Agent, micros(outage.Since), micros(outage.ProbeAt), reason, now, micros(same))
	if err != nil || inserted > 0 {
		return inserted > 0, err
	}

	return false, t.do(ctx, reopenBackEnd, outage.Agent, micros(outage.ProbeAt), reason, now)
}

// TakeProbe lets one caller among all nodes ask; see pipeline.BackEndTx.
func (t *Tx) TakeProbe(ctx context.Context, agent string, now, until time.Time) (bool, error) {
	taken, err := t.change(ctx, `UPDATE back_ends SET probe_at = $3, updated_at = $2
		WHERE agent = $1 AND closed_at = 0 AND probe_at <= $2`, agent, micros(now), micros(until))
	return taken > 0, err
}

// CloseBackEnd ends an outage and reports whether it was open.
func (t *Tx) CloseBackEnd(ctx context.Context, agent string, now time.Time) (bool, error) {
	closed, err := t.change(ctx, `UPDATE back_ends SET closed_at = $2, updated_at = $2 WHERE agent = $1 AND closed_at = 0`,
		agent, micros(now))
	return closed > 0, err
}

// BackEnds lists the newest outage of each agent that had one.
func (s *Store) BackEnds(ctx context.Context) ([]pipeline.BackEnd, error) {
	var list []pipeline.BackEnd
	err := s.engine.reader().each(ctx, `SELECT agent, since, opened, probe_at, closed_at, reason FROM back_ends ORDER BY agent`, nil, func(r row) error {
		var one pipeline.BackEnd
		var since, probe, closed int64
		err := r.Scan(&one.Agent, &since, &one.Opened, &probe, &closed, &one.Reason)
		one.Since, one.ProbeAt, one.ClosedAt = instant(since), instant(probe), instant(closed)
		list = append(list, one)
		return err
	})
	return list, err
}

// The apology becomes a notice that came before the answer, so that the turn may have an answer again. The number is that
// of no run: the attempt is moved past it.
const demoteReply = `UPDATE replies SET notice = $2 WHERE turn_id = $1 AND notice = 0`

// RepeatTurn lets a failed turn be accepted again; see pipeline.RetryTx.
func (t *Tx) RepeatTurn(ctx context.Context, turn exchange.TurnRecord, reason string, at time.Time) (bool, error) {
	attempt := turn.Attempt + 1
	move := pipeline.Retried.Move(turn.ID, exchange.StateAccepted, reason, at)
	move.Attempt, move.Unchanged = attempt, turn.UpdatedAt
	moved, err := t.MoveTurn(ctx, move)
	if err != nil || !moved {
		return false, err
	}

	if err := t.do(ctx, demoteReply, turn.ID, int64(attempt)); err != nil {
		return false, err
	}

	return true, t.do(ctx, `UPDATE turns SET reply_id = '', outcome = '', history_turns = CASE WHEN history_turns = 0 THEN 0 ELSE 1 END WHERE id = $1`, turn.ID)
}

// Sent reports whether a reply of a turn has deliveries, so that it reaches its asker as a message of its own.
func (s *Store) Sent(ctx context.Context, turnID, replyID string) (bool, error) {
	var id string
	return first(ctx, s.engine.reader(), `SELECT id FROM deliveries WHERE turn_id = $1 AND reply_id = $2 LIMIT 1`, []any{turnID, replyID}, &id)
}
