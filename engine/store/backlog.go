package store

import (
	"context"
	"time"
)

// MaxBacklog is how many of the oldest rows a look at what waits reads; what is newer is not counted.
const MaxBacklog = 10_000

// WaitingJobs is what waits of one kind of work.
type WaitingJobs struct {
	Kind    string    `json:"kind"`
	Waiting int64     `json:"waiting"`      // due, and not begun
	Later   int64     `json:"later"`        // not due yet: tried again later, or behind another one
	Running int64     `json:"running"`      // begun
	Oldest  time.Time `json:"oldest"`       // when the oldest of them all was made
	Due     time.Time `json:"due,omitzero"` // since when the first of Waiting could have begun
}

const selectBacklog = `SELECT kind, SUM(CASE WHEN state = 'ready' AND run_at <= $1 THEN 1 ELSE 0 END), SUM(CASE WHEN state = 'running' THEN 1 ELSE 0 END),
	COUNT(*), MIN(created_at), COALESCE(MIN(CASE WHEN state = 'ready' AND run_at <= $1 THEN run_at END), 0)
	FROM (SELECT kind, state, run_at, created_at FROM jobs WHERE state <> 'dead' ORDER BY id LIMIT $2 + 0) AS oldest GROUP BY kind ORDER BY kind`

// Backlog returns what waits of each kind of work, among the MaxBacklog oldest jobs, and how many of those there are.
func (s jobStore) Backlog(ctx context.Context, at time.Time) (kinds []WaitingJobs, looked int64, err error) {
	err = s.engine.reader().each(ctx, selectBacklog, []any{micros(at), int64(MaxBacklog)}, func(r row) error {
		var one WaitingJobs
		var all, oldest, due int64
		if err := r.Scan(&one.Kind, &one.Waiting, &one.Running, &all, &oldest, &due); err != nil {
			return err
		}
		one.Later, one.Oldest, one.Due = all-one.Waiting-one.Running, instant(oldest), instant(due)
		kinds, looked = append(kinds, one), looked+all
		return nil
	})
	return kinds, looked, err
}

// SlowPeer is a destination to which deliveries are under way.
type SlowPeer struct {
	Channel     string    `json:"channel"`
	Destination string    `json:"destination"`
	Deliveries  int64     `json:"deliveries"` // that were not made
	Attempts    int64     `json:"attempts"`   // of the one that was tried most often
	Oldest      time.Time `json:"oldest"`     // since when the oldest waits
	Next        time.Time `json:"next"`       // when one of them is tried next
}

const selectSlowPeers = `SELECT channel, destination, COUNT(*), MAX(attempt), MIN(created_at), MIN(next_at) FROM
	(SELECT channel, destination, attempt, created_at, next_at FROM deliveries WHERE state IN ('pending', 'sending', 'retry') ORDER BY id LIMIT $1 + 0) AS waiting
	GROUP BY channel, destination ORDER BY MIN(created_at), channel, destination LIMIT $2 + 0`

// SlowPeers returns the destinations whose deliveries wait longest, among the MaxBacklog oldest deliveries.
func (s deliveryStore) SlowPeers(ctx context.Context, limit int) (peers []SlowPeer, err error) {
	err = s.engine.reader().each(ctx, selectSlowPeers, []any{int64(MaxBacklog), int64(limit)}, func(r row) error {
		var one SlowPeer
		var oldest, next int64
		err := r.Scan(&one.Channel, &one.Destination, &one.Deliveries, &one.Attempts, &oldest, &next)
		one.Oldest, one.Next = instant(oldest), instant(next)
		peers = append(peers, one)
		return err
	})
	return peers, err
}
