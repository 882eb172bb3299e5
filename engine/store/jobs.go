package store

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/internal/queue"
)

// States of a job's row.
const (
	jobReady   = "ready"   // may be claimed when due
	jobBlocked = "blocked" // an earlier job of its partition lives
	jobRunning = "running" // leased
	jobDead    = "dead"
)

// insertJob makes a job blocked when an earlier job of its partition lives. It holds that job's row: the settlement
// that is to wake this one then waits for this commit and sees it. So the first job of a partition is never blocked.
const insertJob = `INSERT INTO jobs (id, kind, partition_of, partition_key, state, attempt, run_at, lease_owner, lease_until,
		fence, created_at, updated_at, reason, payload)
		SELECT $1, $2, $3, $4, COALESCE((SELECT 'blocked' FROM jobs e WHERE e.partition_key = $4
			AND e.partition_key <> '' AND e.state <> 'dead' AND e.id < $1
			ORDER BY e.id LIMIT 1{lock shared}), 'ready'), 0, $5, '', 0, 0, $6, $6, '', $7`

// Enqueue stores a job; it becomes visible with the commit.
func (t *Tx) Enqueue(ctx context.Context, job queue.NewJob) error {
	if err := requireStorable("kind", job.Kind, "partition", job.Partition, "payload", job.Payload); err != nil {
		return err
	}
	created := nowMicros()
	runAt := micros(job.RunAt)
	if runAt == 0 {
		runAt = created
	}
	t.wake(ChannelJob, job.Kind)
	return t.do(ctx, t.dialect.insertJob, job.ID, job.Kind, job.Partition, partitionKey(job.Kind, job.Partition),
		runAt, created, job.Payload)
}

const insertLeased = `INSERT INTO jobs (id, kind, partition_of, partition_key, state, attempt, run_at, lease_owner, lease_until,
		fence, created_at, updated_at, reason, payload)
		VALUES ($1, $2, $3, $4, 'running', 1, $5, $6, $7, 1, $5, $5, '', $8)`

// EnqueueLeased stores a job as one that its owner runs, with attempt and fence 1. Nothing else of its partition may live.
func (t *Tx) EnqueueLeased(ctx context.Context, job queue.NewJob, owner string, until time.Time) error {
	if err := requireStorable("kind", job.Kind, "partition", job.Partition, "payload", job.Payload); err != nil {
		return err
	}
	return t.do(ctx, insertLeased, job.ID, job.Kind, job.Partition, partitionKey(job.Kind, job.Partition),
		nowMicros(), owner, micros(until), job.Payload)
}

func partitionKey(kind, partition string) string {
	if partition == "" {
		return ""
	}
	return hashKey(kind, partition)
}

// SettleJob ends one run of a job; queue.ErrLeaseLost when the job was taken over or removed.
func (t *Tx) SettleJob(ctx context.Context, lease queue.Lease, outcome queue.Outcome) error {
	switch outcome.Kind {
	case queue.Done:
		return t.settle(ctx, true, `DELETE FROM jobs WHERE id = $1 AND fence = $2 AND state = 'running'
			RETURNING kind, partition_key`, lease.JobID, lease.Fence)
	case queue.Dead:
		return t.settle(ctx, true, `UPDATE jobs SET state = 'dead', reason = $3, updated_at = $4, lease_owner = '',
			lease_until = 0 WHERE id = $1 AND fence = $2 AND state = 'running' RETURNING kind, partition_key`,
			lease.JobID, lease.Fence, cleaned(outcome.Reason), nowMicros())
	case queue.Snooze:
		return t.settle(ctx, false, `UPDATE jobs SET state = 'ready', attempt = attempt - 1, run_at = $3,
			updated_at = $4, lease_owner = '', lease_until = 0
			WHERE id = $1 AND fence = $2 AND state = 'running' RETURNING kind, partition_key`,
			lease.JobID, lease.Fence, micros(outcome.At), nowMicros())
	}
	return t.settle(ctx, false, `UPDATE jobs SET state = 'ready', reason = $3, run_at = $4, updated_at = $5,
		lease_owner = '', lease_until = 0 WHERE id = $1 AND fence = $2 AND state = 'running' RETURNING kind, partition_key`,
		lease.JobID, lease.Fence, cleaned(outcome.Reason), micros(outcome.At), nowMicros())
}

// settle changes the job's row and lets the next of its partition come forward when this one left the queue.
func (t *Tx) settle(ctx context.Context, left bool, query string, arguments ...any) error {
	var kind, partition string
	found, err := first(ctx, t, query, arguments, &kind, &partition)
	if err != nil {
		return err
	}
	if !found {
		return queue.ErrLeaseLost
	}
	if !left {
		t.wake(ChannelJob, kind)
		return nil
	}
	return t.promote(ctx, kind, partition)
}

const promoteJob = `UPDATE jobs SET state = 'ready' WHERE state = 'blocked' AND id = (SELECT id FROM jobs
	WHERE partition_key = $1 AND partition_key <> '' AND state <> 'dead' ORDER BY id LIMIT 1)`

// promote makes the first job of a partition claimable after another one left.
func (t *Tx) promote(ctx context.Context, kind, partition string) error {
	if partition == "" {
		return nil
	}
	if !t.dialect.counts {
		t.wake(ChannelJob, kind)
		return t.do(ctx, promoteJob, partition)
	}
	promoted, err := t.change(ctx, promoteJob, partition)
	if promoted > 0 {
		t.wake(ChannelJob, kind)
	}
	return err
}

// runnable is true for a ready job j that nothing of its partition precedes. A job can be ready behind another one
// when ids were committed in another order than they were made. Each condition has its index: written as one with OR
// it walks through the whole partition.
const runnable = `(j.partition_key = '' OR (
	NOT EXISTS (SELECT 1 FROM jobs e WHERE e.partition_key = j.partition_key AND e.partition_key <> ''
		AND e.state <> 'dead' AND e.id < j.id)
	AND NOT EXISTS (SELECT 1 FROM jobs e WHERE e.partition_key = j.partition_key AND e.partition_key <> ''
		AND e.state = 'running')))`

// takeExpired returns jobs whose worker is gone to the queue; the fence moves with the next claim.
const takeExpired = `UPDATE jobs SET state = 'ready', run_at = lease_until, lease_owner = '', lease_until = 0,
	reason = 'the worker lost its lease: it was killed or cut off' WHERE kind = $1 AND state = 'running' AND lease_until < $2`

const takeAll = `UPDATE jobs SET state = 'ready', run_at = updated_at, lease_owner = '', lease_until = 0,
	reason = 'the worker lost its lease: it was killed or cut off' WHERE state = 'running'`

// FreeLeases returns every leased job to the queue at once, for a node that knows that no other one lives. What still
// runs with such a lease cannot settle it after the next claim, which moves the fence.
func (s *Store) FreeLeases(ctx context.Context) error {
	return s.InTx(ctx, func(tx *Tx) error {
		tx.wake(ChannelJob, "")
		return tx.do(ctx, takeAll)
	})
}

const claimJobs = `WITH picked AS MATERIALIZED (SELECT j.id FROM jobs j WHERE j.kind = $1 AND j.state = 'ready'
			AND j.run_at <= $2 AND ` + runnable + ` ORDER BY j.run_at, j.id LIMIT $3 + 0{skip locked})
		UPDATE jobs SET state = 'running', attempt = attempt + 1, fence = fence + 1, lease_owner = $4, lease_until = $5,
		updated_at = $2 WHERE id IN (SELECT id FROM picked)
		RETURNING id, kind, partition_of, payload, attempt, fence, reason, created_at`

// queueView is the store as the queue sees it.
type queueView struct{ store *Store }

// Claim gives runnable jobs of one kind with a new lease, in order of their due times.
func (v queueView) Claim(ctx context.Context, claim queue.Claim) ([]queue.Job, error) {
	var jobs []queue.Job
	err := v.store.InTx(ctx, func(tx *Tx) error {
		jobs = jobs[:0]
		if err := tx.do(ctx, takeExpired, claim.Kind, micros(claim.Now)); err != nil {
			return err
		}
		arguments := []any{claim.Kind, micros(claim.Now), int64(claim.Limit), claim.Owner, micros(claim.Until)}
		return tx.each(ctx, tx.dialect.claimJobs, arguments, func(r row) error {
			job, err := scanJob(r)
			jobs = append(jobs, job)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(jobs, func(a, b queue.Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs, nil
}

func scanJob(r row) (queue.Job, error) {
	var job queue.Job
	var created int64
	err := r.Scan(&job.ID, &job.Kind, &job.Partition, &job.Payload, &job.Attempt, &job.Lease.Fence, &job.LastError, &created)
	job.Lease.JobID, job.CreatedAt = job.ID, instant(created)
	return job, err
}

// maxExtended bounds the leases of one statement.
const maxExtended = 128

// Extend prolongs leases and gives those that are still held.
func (v queueView) Extend(ctx context.Context, leases []queue.Lease, until time.Time) ([]queue.Lease, error) {
	var held []queue.Lease
	for chunk := range slices.Chunk(leases, maxExtended) {
		var kept []queue.Lease
		err := v.store.InTx(ctx, func(tx *Tx) (err error) {
			kept, err = tx.extend(ctx, chunk, until)
			return err
		})
		if err != nil {
			return held, err
		}
		held = append(held, kept...)
	}
	return held, nil
}

func (t *Tx) extend(ctx context.Context, leases []queue.Lease, until time.Time) ([]queue.Lease, error) {
	values := make([]string, len(leases))
	arguments := []any{micros(until)}
	for i, lease := range leases {
		n := len(arguments)
		values[i] = "($" + strconv.Itoa(n+1) + ", CAST($" + strconv.Itoa(n+2) + " AS BIGINT))"
		arguments = append(arguments, lease.JobID, lease.Fence)
	}
	query := `UPDATE jobs SET lease_until = $1 WHERE state = 'running' AND (id, fence) IN (VALUES ` +
		strings.Join(values, ", ") + `) RETURNING id, fence`
	var held []queue.Lease
	err := t.each(ctx, query, arguments, func(r row) error {
		var lease queue.Lease
		err := r.Scan(&lease.JobID, &lease.Fence)
		held = append(held, lease)
		return err
	})
	return held, err
}

// Settle ends one run of a job in a transaction of its own.
func (v queueView) Settle(ctx context.Context, lease queue.Lease, outcome queue.Outcome) error {
	return v.store.InTx(ctx, func(tx *Tx) error { return tx.SettleJob(ctx, lease, outcome) })
}

const nextDue = `SELECT MIN(due) FROM (
	SELECT run_at AS due FROM (SELECT j.run_at FROM jobs j WHERE j.kind = $1 AND j.state = 'ready' AND ` + runnable + `
		ORDER BY j.run_at, j.id LIMIT 1) AS waiting
	UNION ALL
	SELECT MIN(lease_until) FROM jobs WHERE kind = $1 AND state = 'running') AS either`

// NextDue gives the earliest time at which a claim may find a job of the kind; the zero time when there is none.
func (v queueView) NextDue(ctx context.Context, kind string) (time.Time, error) {
	var due *int64
	_, err := first(ctx, v.store.engine.reader(), nextDue, []any{kind}, &due)
	if err != nil || due == nil {
		return time.Time{}, err
	}
	return instant(*due), nil
}
