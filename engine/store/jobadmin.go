package store

import (
	"context"
	"time"

	"inbox/internal/fault"
)

// JobRecord is a job's row as the operator sees it.
type JobRecord struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Partition string    `json:"partition,omitempty"`
	Payload   string    `json:"payload"`
	State     string    `json:"state"` // ready, scheduled, blocked, running, dead
	Attempt   int       `json:"attempt"`
	RunAt     time.Time `json:"run_at"`
	Owner     string    `json:"owner,omitempty"`
	LeaseEnds time.Time `json:"lease_ends"` // zero when not running
	Reason    string    `json:"reason,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// JobFilter selects jobs, newest first. Empty fields do not restrict.
type JobFilter struct {
	Kind   string
	State  string
	Before string // id of the last row of the page before
	Limit  int    // 1…500
}

// Jobs lists jobs, newest first.
func (s *Store) Jobs(ctx context.Context, filter JobFilter) ([]JobRecord, error) {
	var chosen selection
	chosen.addWhen(filter.State == jobDead, "state = 'dead'") // written out, for the index of dead letters
	chosen.addWhen(filter.State != "" && filter.State != jobDead, "state = ?", filter.State)
	chosen.addWhen(filter.Kind != "", "kind = ?", filter.Kind)
	chosen.addWhen(filter.Before != "", "id < ?", filter.Before)
	query := `SELECT id, kind, partition_of, payload, state, attempt, run_at, lease_owner, lease_until, reason, created_at
		FROM jobs` + chosen.sql() + chosen.page("id DESC", filter.Limit)
	var jobs []JobRecord
	err := s.engine.reader().each(ctx, query, chosen.arguments, func(r row) error {
		var job JobRecord
		var run, lease, created int64
		err := r.Scan(&job.ID, &job.Kind, &job.Partition, &job.Payload, &job.State, &job.Attempt, &run,
			&job.Owner, &lease, &job.Reason, &created)
		job.RunAt, job.LeaseEnds, job.CreatedAt = instant(run), instant(lease), instant(created)
		jobs = append(jobs, job)
		return err
	})
	return jobs, err
}

// RetryJob returns a dead or waiting job a new life now, with its attempts counted anew; fault.NotFound when there is
// no such job, fault.Conflict when it is running.
func (s *Store) RetryJob(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		var kind string
		found, err := first(ctx, tx, `UPDATE jobs SET state = CASE WHEN state IN ('dead', 'scheduled') THEN 'ready' ELSE state END,
			attempt = 0, run_at = `+tx.dialect.now+`, updated_at = $1 WHERE id = $2 AND state <> 'running' RETURNING kind`,
			[]any{nowMicros(), id}, &kind)
		if err == nil && found {
			tx.wake(ChannelJob, kind)
		}
		if err != nil || found {
			return err
		}
		return tx.jobRefusal(ctx, id)
	})
}

// CancelJob removes a job that is not running; fault.NotFound when there is no such job, fault.Conflict when it runs.
func (s *Store) CancelJob(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		var kind, partition string
		found, err := first(ctx, tx, `DELETE FROM jobs WHERE id = $1 AND state <> 'running' RETURNING kind, partition_key`,
			[]any{id}, &kind, &partition)
		if err != nil {
			return err
		}
		if !found {
			return tx.jobRefusal(ctx, id)
		}
		return tx.promote(ctx, kind, partition)
	})
}

func (t *Tx) jobRefusal(ctx context.Context, id string) error {
	var state string
	found, err := first(ctx, t, `SELECT state FROM jobs WHERE id = $1`, []any{id}, &state)
	switch {
	case err != nil:
		return err
	case !found:
		return notFound("job")
	}
	return fault.New(fault.Conflict, "the job is running")
}
