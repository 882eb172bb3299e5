package store

import (
	"context"
	"time"

	"inbox/engine/delivery"
)

// A failure on another day than the last one counts. The later pause holds, and a destination that failed on enough
// days is given up for good: only ClearCondition brings it back.
const worsenCondition = `INSERT INTO destinations (channel, destination, paused_until, opened, failing_days, failed_day, dead_at,
		reason, updated_at) VALUES ($1, $2, $3, $4, 1, $5, CASE WHEN CAST($6 AS BIGINT) <= 1 THEN CAST($8 AS BIGINT) ELSE 0 END, $7, $8)
	ON CONFLICT (channel, destination) DO UPDATE SET
		paused_until = CASE WHEN excluded.paused_until > destinations.paused_until THEN excluded.paused_until ELSE destinations.paused_until END,
		opened = CASE WHEN excluded.opened > destinations.opened THEN excluded.opened ELSE destinations.opened END,
		failing_days = destinations.failing_days + CASE WHEN excluded.failed_day > destinations.failed_day THEN 1 ELSE 0 END,
		failed_day = CASE WHEN excluded.failed_day > destinations.failed_day THEN excluded.failed_day ELSE destinations.failed_day END,
		dead_at = CASE WHEN destinations.dead_at > 0 THEN destinations.dead_at
			WHEN destinations.failing_days + CASE WHEN excluded.failed_day > destinations.failed_day THEN 1 ELSE 0 END >= $6
			THEN excluded.updated_at ELSE 0 END,
		reason = excluded.reason, updated_at = excluded.updated_at`

// WorsenCondition notes a failure of a destination; see delivery.Tx.
func (t *Tx) WorsenCondition(ctx context.Context, failure delivery.Condition, deadAfter int) error {
	return t.do(ctx, worsenCondition, failure.Channel, failure.Key, micros(failure.PausedUntil), int64(failure.Opened),
		failure.FailedDay, int64(deadAfter), cleaned(failure.Reason), microsOrNow(failure.UpdatedAt))
}

// ClearCondition forgets what is known of a destination.
func (t *Tx) ClearCondition(ctx context.Context, channel, key string) error {
	return t.do(ctx, `DELETE FROM destinations WHERE channel = $1 AND destination = $2`, channel, key)
}

const selectConditions = `SELECT channel, destination, paused_until, opened, failing_days, failed_day, dead_at, reason, updated_at
	FROM destinations ORDER BY updated_at DESC LIMIT $1 + 0`

// Conditions returns the destinations that fail, the last changed first.
func (s *Store) Conditions(ctx context.Context, limit int) ([]delivery.Condition, error) {
	var list []delivery.Condition
	err := s.engine.reader().each(ctx, selectConditions, []any{int64(limit)}, func(r row) error {
		var c delivery.Condition
		var paused, dead, updated int64
		err := r.Scan(&c.Channel, &c.Key, &paused, &c.Opened, &c.FailingDays, &c.FailedDay, &dead, &c.Reason, &updated)
		c.PausedUntil, c.DeadAt, c.UpdatedAt = instant(paused), instant(dead), instant(updated)
		list = append(list, c)
		return err
	})
	return list, err
}

// conditionAge is how long a destination is remembered that fails no more because nothing is sent there.
const conditionAge = 90 * 24 * time.Hour

const sweepConditions = `DELETE FROM destinations WHERE updated_at <= $1
	AND (channel, destination) IN (SELECT channel, destination FROM destinations WHERE updated_at <= $1 LIMIT $2 + 0)`
