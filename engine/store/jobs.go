package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/engine/notice"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// jobStore shows the queue to operators.
type jobStore struct{ *shared }

// jobTx changes jobs in a transaction.
type jobTx struct{ *transaction }

// States of a job's row.
const (
	jobReady     = "ready"     // due, and nothing of its partition precedes it
	jobScheduled = "scheduled" // its time has not come
	jobBlocked   = "blocked"   // an earlier job of its partition lives
	jobRunning   = "running"   // leased
	jobDead      = "dead"
)

// {now} in a text is the clock of the database in microseconds: that of one server where several nodes share it. It is the
// only clock that leases and due times are compared with.

// insertJob makes a job blocked when an earlier job of its partition lives. It holds that job's row: the settlement
// that is to wake this one then waits for this commit and sees it. So the first job of a partition is never blocked.
const insertJob = `INSERT INTO jobs (id, kind, partition_of, partition_key, state, attempt, run_at, lease_owner, lease_until,
		fence, created_at, updated_at, reason, payload, group_of, claim_rank, member_key, guest)
		SELECT $1, $2, $3, $4, COALESCE((SELECT 'blocked' FROM jobs e WHERE e.partition_key = $4
			AND e.partition_key <> '' AND e.state <> 'dead' AND e.id < $1
			ORDER BY e.id LIMIT 1{lock shared}), $5), 0, {now} + $6, '', 0, 0, $7, $7, '', $8, $9, $10, $11, $12`

// Enqueue stores a job; it becomes visible with the commit.
func (t jobTx) Enqueue(ctx context.Context, job queue.NewJob) error {
	if err := requireStorable("kind", job.Kind, "partition", job.Partition, "payload", job.Payload, "group", job.Group); err != nil {
		return err
	}
	share, state, wait := job.Share(), jobReady, t.until(job.RunAt)
	if wait > 0 {
		state = jobScheduled
	}

	t.wake(ChannelJob, job.Kind)
	return t.sql.Do(ctx, t.dialect.insertJob, job.ID, job.Kind, job.Partition, partitionKey(job.Kind, job.Partition),
		state, wait, t.nowMicros(), job.Payload, share.Group, int64(share.Rank), share.Member, flag(job.Guest))
}

// until is how far an instant by this node's clock is away, in microseconds; zero for no instant.
func (t jobTx) until(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return t.stored(at).Sub(t.now()).Microseconds()
}

const insertLeased = `INSERT INTO jobs (id, kind, partition_of, partition_key, state, attempt, run_at, lease_owner, lease_until,
		fence, created_at, updated_at, reason, payload, group_of, claim_rank, member_key, guest)
		VALUES ($1, $2, $3, $4, 'running', 1, {now}, $5, {now} + $6, 1, $7, $7, '', $8, $9, $10, $11, $12)`

// EnqueueLeased stores a job as one that its owner runs for the length of a lease, with attempt and fence 1. Nothing else
// of its partition may live.
func (t jobTx) EnqueueLeased(ctx context.Context, job queue.NewJob, owner string, lease time.Duration) error {
	if err := requireStorable("kind", job.Kind, "partition", job.Partition, "payload", job.Payload, "group", job.Group); err != nil {
		return err
	}
	share := job.Share()
	return t.sql.Do(ctx, t.dialect.insertLeased, job.ID, job.Kind, job.Partition, partitionKey(job.Kind, job.Partition),
		owner, lease.Microseconds(), t.nowMicros(), job.Payload, share.Group, int64(share.Rank), share.Member, flag(job.Guest))
}

func partitionKey(kind, partition string) string {
	if partition == "" {
		return ""
	}
	return hashKey(kind, partition)
}

// SettleJob ends one run of a job; queue.ErrLeaseLost when the job was taken over or removed.
func (t jobTx) SettleJob(ctx context.Context, lease queue.Lease, outcome queue.Outcome) error {
	switch outcome.Kind {
	case queue.Done:
		_, err := t.finish(ctx, t.dialect.endJob, lease.JobID, lease.Fence)
		return err

	case queue.Dead:
		kind, err := t.finish(ctx, t.dialect.buryJob, lease.JobID, lease.Fence, cleaned(outcome.Reason), t.nowMicros())
		if err == nil && kind != notice.JobKind {
			t.count(exchange.NoticeJob, kind, exchange.NoticeExample{ID: lease.JobID, Note: outcome.Reason})
		}
		return err

	case queue.Released:
		return t.putBack(ctx, t.dialect.releaseJob, lease.JobID, lease.Fence, t.nowMicros())
	}

	state, wait, counts := jobReady, t.until(outcome.At), flag(outcome.Kind != queue.Snooze)
	if wait > 0 {
		state = jobScheduled
	}

	return t.putBack(ctx, t.dialect.returnJob, lease.JobID, lease.Fence, state, flag(outcome.At.IsZero()), wait,
		cleaned(outcome.Reason), counts, t.nowMicros())
}

// returnJob lets a job run again. Its reason stays if the run gave none.
const returnJob = `UPDATE jobs SET state = $3, run_at = CASE WHEN $4 = 1 THEN run_at ELSE {now} + $5 END,
	reason = CASE WHEN $6 <> '' OR $7 = 1 THEN $6 ELSE reason END, attempt = attempt - 1 + $7, claim_rank = 1 + guest,
	updated_at = $8, lease_owner = '', lease_until = 0
	WHERE id = $1 AND fence = $2 AND state = 'running' RETURNING kind, partition_key`

const releaseJob = `UPDATE jobs SET state = 'ready', attempt = attempt - 1, claim_rank = 0, updated_at = $3,
	lease_owner = '', lease_until = 0 WHERE id = $1 AND fence = $2 AND state = 'running' RETURNING kind, partition_key`

// Leaving a partition. Whether a job has a living predecessor depends on other rows, so the transactions in which jobs of one partition
// leave, by removal or as dead letters, run one after the other: {hold partition} locks the partition until the commit, before the row is
// changed. The promotion is a statement of its own, because only a later snapshot sees what the holder before committed. SQLite has one writer.
//
// A transaction that leaves several partitions locks them in order of kind and partition.
const (
	endJob = `DELETE FROM jobs WHERE id = $1 AND fence = $2 AND state = 'running'{hold partition} RETURNING kind, {blocked}`

	buryJob = `UPDATE jobs SET state = 'dead', reason = $3, updated_at = $4, lease_owner = '', lease_until = 0
		WHERE id = $1 AND fence = $2 AND state = 'running'{hold partition} RETURNING kind, partition_key`

	removeWaiting = `DELETE FROM jobs WHERE id = $1 AND state <> 'running'{hold partition} RETURNING kind, partition_key`

	removeJobs = `DELETE FROM jobs WHERE partition_key = $1 AND partition_key <> '' AND payload = $2
		AND state <> 'dead' AND state <> 'running'{hold partition}`

	promoteJob = `UPDATE jobs SET state = CASE WHEN run_at > {now} THEN 'scheduled' ELSE 'ready' END WHERE state = 'blocked' AND id = (SELECT id FROM jobs
		WHERE partition_key = $1 AND partition_key <> '' AND state <> 'dead' ORDER BY id LIMIT 1)`
)

// The lock is taken by a condition on the row, so that settling a job costs no further statement. PostgreSQL evaluates conditions in order of
// their cost; one that was evaluated for another row would only lock a partition more. Each schema has its own locks.
const (
	lockPartition    = `pg_advisory_xact_lock(hashtextextended(partition_key, CAST(CAST('jobs' AS REGCLASS) AS BIGINT)))`
	andHoldPartition = ` AND (partition_key = '' OR ` + lockPartition + ` IS NOT NULL)`
	holdPartitions   = `SELECT ` + lockPartition + ` FROM (SELECT partition_key FROM jobs WHERE id = ANY($1::text[]) AND partition_key <> ''
		ORDER BY kind, partition_of) AS held`
)

// leave executes a statement by which one job leaves its partition, and promotes the next one.
func (t jobTx) leave(ctx context.Context, query string, arguments ...any) (kind string, found bool, err error) {
	var partition string
	found, err = first(ctx, t.sql, query, arguments, &kind, &partition)
	if err != nil || !found {
		return kind, found, err
	}
	return kind, true, t.promote(ctx, kind, partition)
}

// finish ends the last run of a job.
func (t jobTx) finish(ctx context.Context, query string, arguments ...any) (kind string, err error) {
	kind, found, err := t.leave(ctx, query, arguments...)
	if err == nil && !found {
		err = queue.ErrLeaseLost
	}
	return kind, err
}

// putBack ends a run of a job that stays in the queue.
func (t jobTx) putBack(ctx context.Context, query string, arguments ...any) error {
	var kind, partition string
	found, err := first(ctx, t.sql, query, arguments, &kind, &partition)
	if err == nil && !found {
		err = queue.ErrLeaseLost
	}
	if err != nil {
		return err
	}

	t.wake(ChannelJob, kind)
	return nil
}

// promote makes the first job of a partition claimable after another one left.
func (t jobTx) promote(ctx context.Context, kind, partition string) error {
	if partition == "" {
		return nil
	}

	if !t.dialect.counts {
		t.wake(ChannelJob, kind)
		return t.sql.Do(ctx, t.dialect.promoteJob, partition)
	}

	promoted, err := t.sql.Change(ctx, t.dialect.promoteJob, partition)
	if promoted > 0 {
		t.wake(ChannelJob, kind)
	}

	return err
}

// RemoveJob removes the jobs of a partition with the payload that do not run, dead ones excepted: nothing waits for
// those. A transaction that removes jobs of several partitions does so in order of kind and partition.
func (t jobTx) RemoveJob(ctx context.Context, kind, partition, payload string) (bool, error) {
	key := partitionKey(kind, partition)
	removed, err := t.sql.Change(ctx, t.dialect.removeJobs, key, payload)
	if err != nil || removed == 0 {
		return false, err
	}
	return true, t.promote(ctx, kind, key)
}

// removeWaiting removes jobs that do not run, so that the next of their partitions need not wait for their time, and returns how many it met.
func (t jobTx) removeWaiting(ctx context.Context, ids ...string) (removed int64, err error) {
	if len(ids) > 1 && t.dialect.holdPartitions != "" {
		if err := t.sql.Do(ctx, t.dialect.holdPartitions, ids); err != nil {
			return 0, err
		}
	}

	for _, id := range ids {
		_, found, err := t.leave(ctx, t.dialect.removeWaiting, id)
		if err != nil {
			return removed, err
		}
		removed += flag(found)
	}
	return removed, nil
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
const takeExpired = `UPDATE jobs SET state = 'ready', claim_rank = 0, run_at = lease_until, lease_owner = '', lease_until = 0,
	reason = 'the worker lost its lease: it was killed or cut off' WHERE kind = $1 AND state = 'running' AND lease_until < {now}`

// comeDue makes ready whose time has come, the longest due ones first. So many at once that no transaction is long.
const comeDue = `UPDATE jobs SET state = 'ready' WHERE id IN (SELECT j.id FROM jobs j WHERE j.kind = $1 AND j.state = 'scheduled'
	AND j.run_at <= {now} ORDER BY j.run_at LIMIT 500{skip locked})`

// maxDue is the limit of comeDue.
const maxDue = 500

const takeAll = `UPDATE jobs SET state = 'ready', claim_rank = 0, run_at = updated_at, lease_owner = '', lease_until = 0,
	reason = 'the worker lost its lease: it was killed or cut off' WHERE state = 'running'`

// FreeLeases returns every leased job to the queue at once, for a node that knows that no other one lives. What still
// runs with such a lease cannot settle it after the next claim, which moves the fence.
func (s jobStore) FreeLeases(ctx context.Context) error {
	return s.InTx(ctx, func(tx *Tx) error {
		tx.wake(ChannelJob, "")
		return tx.sql.Do(ctx, takeAll)
	})
}

// Shares and groups are walked along their index: each step asks for the first row behind the last one. The next member, the
// next rank and the next group are asked for one after the other: of a comparison of three columns at once SQLite uses the
// first alone, and walks through a share.
var selectShares = `WITH RECURSIVE lane (group_of, claim_rank, member_key, number) AS (
			SELECT j.group_of, j.claim_rank, j.member_key, 1 FROM jobs j WHERE j.id = ` + nextShare("$2", "$3", "$4") + `
		UNION ALL
			SELECT j.group_of, j.claim_rank, j.member_key, lane.number + 1 FROM lane JOIN jobs j ON j.id = ` +
	nextShare("lane.group_of", "lane.claim_rank", "lane.member_key") + ` WHERE lane.number < $5)
		SELECT group_of, claim_rank, member_key FROM lane`

// nextShare returns the first row of the share behind another one.
func nextShare(group, rank, member string) string {
	const from = `(SELECT n.id FROM jobs n WHERE n.kind = $1 AND n.state = 'ready' AND n.group_of `
	return `COALESCE(` + from + `= ` + group + ` AND n.claim_rank = ` + rank + ` AND n.member_key > ` + member + ` ORDER BY n.member_key LIMIT 1), ` +
		from + `= ` + group + ` AND n.claim_rank > ` + rank + ` ORDER BY n.claim_rank, n.member_key LIMIT 1), ` +
		from + `> ` + group + ` ORDER BY n.group_of, n.claim_rank, n.member_key LIMIT 1))`
}

const (
	selectGroups = `WITH RECURSIVE lane (group_of, number) AS (
			SELECT head.group_of, 1 FROM (SELECT j.group_of FROM jobs j WHERE j.kind = $1 AND j.state = 'ready' AND j.group_of > $2
				ORDER BY j.group_of LIMIT 1) AS head
		UNION ALL
			SELECT j.group_of, lane.number + 1 FROM lane JOIN jobs j ON j.id = (
				SELECT n.id FROM jobs n WHERE n.kind = $1 AND n.state = 'ready' AND n.group_of > lane.group_of
				ORDER BY n.group_of LIMIT 1) WHERE lane.number < $3)
		SELECT group_of FROM lane`
)

// claimShare takes the first jobs of one share, for a database that answers in no time.
const claimShare = `WITH picked AS MATERIALIZED (SELECT j.id FROM jobs j WHERE j.kind = $1 AND j.state = 'ready'
			AND j.group_of = $2 AND j.claim_rank = $3 AND j.member_key = $4 AND ` + runnable + `
			ORDER BY j.run_at, j.id LIMIT $5 + 0)
		UPDATE jobs SET state = 'running', attempt = attempt + 1, fence = fence + 1, lease_owner = $6, lease_until = {now} + $7,
		updated_at = $8 WHERE id IN (SELECT id FROM picked)
		RETURNING ` + claimedColumns

// claimShares does the same for several shares at once, for a database in which each statement is a round trip.
const claimShares = `WITH picked AS MATERIALIZED (SELECT chosen.id
			FROM unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[]) AS lane (group_of, claim_rank, member_key, number)
			CROSS JOIN LATERAL (SELECT j.id FROM jobs j WHERE j.kind = $1 AND j.state = 'ready'
				AND j.group_of = lane.group_of AND j.claim_rank = lane.claim_rank AND j.member_key = lane.member_key
				AND ` + runnable + ` ORDER BY j.run_at, j.id LIMIT lane.number FOR UPDATE SKIP LOCKED) AS chosen)
		UPDATE jobs SET state = 'running', attempt = attempt + 1, fence = fence + 1, lease_owner = $6, lease_until = {now} + $7,
		updated_at = $8 WHERE id IN (SELECT id FROM picked)
		RETURNING ` + claimedColumns

const claimedColumns = `id, kind, partition_of, payload, attempt, fence, reason, created_at, group_of, claim_rank, member_key, run_at, ` + subjectVersion

// subjectVersion is the version of the turn that a job runs, while nothing has moved the turn since it was accepted; else 0. A worker
// that remembers the turn learns in the claim whether its memory still holds.
const subjectVersion = `CASE WHEN kind = '` + pipeline.JobKind + `' THEN COALESCE((SELECT t.updated_at FROM turns t
	WHERE t.id = jobs.payload AND t.state = '` + exchange.StateAccepted + `'), 0) ELSE 0 END`

// queueView is the store as the queue sees it.
type queueView struct{ db *shared }

// Shares returns the shares of a kind with ready jobs behind the given one.
func (v queueView) Shares(ctx context.Context, kind string, after queue.Share, limit int) ([]queue.Share, error) {
	var shares []queue.Share
	arguments := []any{kind, after.Group, int64(after.Rank), after.Member, int64(limit)}
	err := v.db.engine.Reader().Each(ctx, selectShares, arguments, func(r row) error {
		var share queue.Share
		err := r.Scan(&share.Group, &share.Rank, &share.Member)
		shares = append(shares, share)
		return err
	})
	return shares, err
}

// Groups returns the groups of a kind with ready jobs behind the given one.
func (v queueView) Groups(ctx context.Context, kind, after string, limit int) ([]string, error) {
	return column[string](ctx, v.db.engine.Reader(), selectGroups, []any{kind, after, int64(limit)})
}

// Claim returns ready jobs of shares with a new lease, in order of their ids.
func (v queueView) Claim(ctx context.Context, claim queue.Claim) ([]queue.Job, error) {
	var jobs []queue.Job
	err := v.db.InTx(ctx, func(tx *Tx) error {
		jobs = jobs[:0]
		take := func(r row) error {
			job, err := scanJob(r)
			jobs = append(jobs, job)
			return err
		}
		if tx.dialect.claimShares != "" {
			return tx.claimShares(ctx, claim, take)
		}

		for _, one := range claim.Takes {
			arguments := []any{
				claim.Kind, one.Share.Group, int64(one.Share.Rank), one.Share.Member, int64(one.Count),
				claim.Owner, claim.Lease.Microseconds(), v.db.nowMicros(),
			}
			if err := tx.sql.Each(ctx, tx.dialect.claimShare, arguments, take); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	slices.SortFunc(jobs, func(a, b queue.Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs, nil
}

func (t jobTx) claimShares(ctx context.Context, claim queue.Claim, take func(row) error) error {
	var groups, members []string
	var ranks, counts []int64
	for _, one := range claim.Takes {
		groups, members = append(groups, one.Share.Group), append(members, one.Share.Member)
		ranks, counts = append(ranks, int64(one.Share.Rank)), append(counts, int64(one.Count))
	}

	arguments := []any{claim.Kind, groups, ranks, members, counts, claim.Owner, claim.Lease.Microseconds(), t.nowMicros()}
	return t.sql.Each(ctx, t.dialect.claimShares, arguments, take)
}

// Revive makes ready what is due and what expired. Other nodes are notified: they may have free workers.
func (v queueView) Revive(ctx context.Context, kind string) (more bool, err error) {
	if err := v.promoteStranded(ctx); err != nil {
		return false, err
	}

	err = v.db.InTx(ctx, func(tx *Tx) error {
		expired, err := tx.sql.Change(ctx, tx.dialect.takeExpired, kind)
		if err != nil {
			return err
		}

		due, err := tx.sql.Change(ctx, tx.dialect.comeDue, kind)
		if expired+due > 0 {
			tx.wake(ChannelJob, kind)
		}

		more = due >= maxDue
		return err
	})
	return more, err
}

var strandedJobs = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_jobs_stranded_total", Help: "Blocked jobs without an earlier job of their partition, which nothing else would have promoted. It must stay 0.",
})

const (
	// strandedEvery is the interval between two parts of the search for stranded jobs, and strandedPart how many jobs of any state a part reads.
	strandedEvery = time.Minute
	strandedPart  = 10_000

	selectPart     = `SELECT COUNT(*), COALESCE(MAX(id), '') FROM (SELECT id FROM jobs WHERE id > $1 ORDER BY id LIMIT $2 + 0) AS picked`
	selectStranded = `SELECT j.id FROM (SELECT DISTINCT partition_key FROM jobs WHERE id > $1 AND id <= $2 AND state = 'blocked') AS picked
		JOIN jobs j ON j.id = (SELECT e.id FROM jobs e WHERE e.partition_key = picked.partition_key AND e.partition_key <> '' AND e.state <> 'dead'
			ORDER BY e.id LIMIT 1) WHERE j.state = 'blocked'`
)

// strandedCheck is how far this process has looked for stranded jobs: blocked ones without an earlier job of their partition. Nothing else would
// promote those. There are none while all nodes lock the partitions that jobs leave.
type strandedCheck struct {
	lock  sync.Mutex
	next  time.Time
	after string // id of the last job that was read
}

// begin returns after which job the next part begins, when its time has come.
func (c *strandedCheck) begin() (after string, due bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if time.Now().Before(c.next) {
		return "", false
	}
	c.next = time.Now().Add(strandedEvery)
	return c.after, true
}

// end notes the last job of a part; empty = all were read.
func (c *strandedCheck) end(last string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.after = last
}

// promoteStranded reads the next part of the jobs when its time has come, and promotes the stranded ones among them.
func (v queueView) promoteStranded(ctx context.Context) error {
	after, due := v.db.stranded.begin()
	if !due {
		return nil
	}

	var read int64
	var last string
	_, err := first(ctx, v.db.engine.Reader(), selectPart, []any{after, int64(strandedPart)}, &read, &last)
	for _, id := range mustColumn(ctx, v.db.engine.Reader(), &err, selectStranded, after, last) {
		if err := v.promoteOne(ctx, id); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}

	if read < strandedPart {
		last = ""
	}
	v.db.stranded.end(last)
	return nil
}

func (v queueView) promoteOne(ctx context.Context, id string) error {
	promoted := false
	err := v.db.InTx(ctx, func(tx *Tx) (err error) {
		promoted, err = tx.promoteBlocked(ctx, id)
		return err
	})
	if err == nil && promoted {
		strandedJobs.Inc()
		v.db.options.Logger.ErrorContext(ctx, "promoted a blocked job that no earlier job of its partition preceded", "job", id)
	}
	return err
}

func scanJob(r row) (queue.Job, error) {
	var job queue.Job
	var created, due int64
	err := r.Scan(&job.ID, &job.Kind, &job.Partition, &job.Payload, &job.Attempt, &job.Lease.Fence, &job.LastError, &created,
		&job.Share.Group, &job.Share.Rank, &job.Share.Member, &due, &job.Version)
	job.Lease.JobID, job.CreatedAt, job.RunAt = job.ID, instant(created), instant(due)
	return job, err
}

// maxExtended bounds the leases of one statement.
const maxExtended = 128

// Extend prolongs leases and returns those that are still held, and those of them whose work is not wanted any more. A statement
// waits for each row that a transaction holds, so the statements do not wait for each other.
func (v queueView) Extend(ctx context.Context, leases []queue.Lease, length time.Duration) (held, unwanted []queue.Lease, err error) {
	var all sync.WaitGroup
	var lock sync.Mutex
	for chunk := range slices.Chunk(leases, maxExtended) {
		all.Go(func() {
			var kept, dropped []queue.Lease
			failed := v.db.InTx(ctx, func(tx *Tx) (err error) {
				kept, dropped, err = tx.extend(ctx, chunk, length)
				return err
			})

			lock.Lock()
			defer lock.Unlock()
			if err = errors.Join(err, failed); failed == nil {
				held, unwanted = append(held, kept...), append(unwanted, dropped...)
			}
		})
	}

	all.Wait()
	return held, unwanted, err
}

// unwanted is 1 for the job of a turn that needs no run any more: it has ended or is gone, or another job of it waits behind this
// one. A run whose conversation an operator has taken over goes on: what it brings becomes a draft. The row of the turn is the only
// truth, so that nothing that ends a turn can forget to tell.
const unwanted = `CASE WHEN kind = '` + pipeline.JobKind + `' AND (
	NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = jobs.payload AND (t.state IN ('` + exchange.StateAccepted + `', '` + exchange.StateRunning + `') OR ` + waitingOperator + `))
	OR EXISTS (SELECT 1 FROM jobs n WHERE n.partition_key = jobs.partition_key AND n.partition_key <> '' AND n.state <> 'dead'
		AND n.id > jobs.id AND n.payload = jobs.payload)) THEN 1 ELSE 0 END`

func (t jobTx) extend(ctx context.Context, leases []queue.Lease, length time.Duration) (held, dropped []queue.Lease, err error) {
	values := make([]string, len(leases))
	arguments := []any{length.Microseconds()}
	for i, lease := range leases {
		n := len(arguments)
		values[i] = "($" + strconv.Itoa(n+1) + ", CAST($" + strconv.Itoa(n+2) + " AS BIGINT))"
		arguments = append(arguments, lease.JobID, lease.Fence)
	}

	query := `UPDATE jobs SET lease_until = ` + t.dialect.now + ` + $1 WHERE state = 'running' AND (id, fence) IN (VALUES ` +
		strings.Join(values, ", ") + `) RETURNING id, fence, ` + unwanted
	err = t.sql.Each(ctx, query, arguments, func(r row) error {
		var lease queue.Lease
		var drop int64
		if err := r.Scan(&lease.JobID, &lease.Fence, &drop); err != nil {
			return err
		}

		held = append(held, lease)
		if drop == 1 {
			dropped = append(dropped, lease)
		}
		return nil
	})
	return held, dropped, err
}

// Settle ends one run of a job in a transaction of its own.
func (v queueView) Settle(ctx context.Context, lease queue.Lease, outcome queue.Outcome) error {
	return v.db.InTx(ctx, func(tx *Tx) error { return tx.SettleJob(ctx, lease, outcome) })
}

const nextDue = `SELECT MIN(due) - {now} FROM (
	SELECT MIN(run_at) AS due FROM jobs WHERE kind = $1 AND state = 'scheduled'
	UNION ALL
	SELECT MIN(lease_until) FROM jobs WHERE kind = $1 AND state = 'running') AS either`

const countReady = `SELECT COUNT(*), COALESCE({now} - MIN(run_at), 0) FROM (
	SELECT run_at FROM jobs WHERE kind = $1 AND state = 'ready' LIMIT $2 + 0) AS waiting`

// Ready implements queue.Counter.
func (v queueView) Ready(ctx context.Context, kind string, most int) (queue.Depth, error) {
	var depth queue.Depth
	var oldest int64
	_, err := first(ctx, v.db.engine.Reader(), v.db.dialect.countReady, []any{kind, int64(most)}, &depth.Ready, &oldest)
	depth.Oldest = time.Duration(oldest) * time.Microsecond
	return depth, err
}

// NextDue returns how long it is until Revive may find something.
func (v queueView) NextDue(ctx context.Context, kind string) (wait time.Duration, found bool, err error) {
	var due *int64
	_, err = first(ctx, v.db.engine.Reader(), v.db.dialect.nextDue, []any{kind}, &due)
	if err != nil || due == nil {
		return 0, false, err
	}
	return time.Duration(*due) * time.Microsecond, true, nil
}

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
	LeaseEnds time.Time `json:"lease_ends,omitzero"` // zero when not running
	Reason    string    `json:"reason,omitempty"`
	Group     string    `json:"group,omitempty"` // whose share of the workers it has, such as an agent
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"` // of a dead one: when it was given up
}

// JobFilter selects jobs, newest first. Empty fields do not restrict.
type JobFilter struct {
	Kind   string
	State  string
	Since  time.Time // only those whose row changed later
	Before string    // id of the last row of the page before
	Limit  int       // 1…500
}

// Jobs lists jobs, newest first.
func (s jobStore) Jobs(ctx context.Context, filter JobFilter) ([]JobRecord, error) {
	var chosen selection
	chosen.addWhen(filter.State == jobDead, "state = 'dead'") // written out, for the index of dead letters
	chosen.addWhen(filter.State != "" && filter.State != jobDead, "state = ?", filter.State)
	chosen.addWhen(filter.Kind != "", "kind = ?", filter.Kind)
	chosen.addWhen(!filter.Since.IsZero(), "updated_at > ?", micros(filter.Since))
	chosen.addWhen(filter.Before != "", "id < ?", filter.Before)
	return s.jobs(ctx, selectJobs+chosen.sql()+chosen.page("id DESC", filter.Limit), chosen.arguments)
}

const (
	selectJobs = `SELECT id, kind, partition_of, payload, state, attempt, run_at, lease_owner, lease_until, reason, group_of, created_at, updated_at
		FROM jobs`
	selectJob = selectJobs + ` WHERE id = $1`
)

func (s jobStore) jobs(ctx context.Context, query string, arguments []any) (jobs []JobRecord, err error) {
	err = s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var job JobRecord
		var run, lease, created, updated int64
		err := r.Scan(&job.ID, &job.Kind, &job.Partition, &job.Payload, &job.State, &job.Attempt, &run,
			&job.Owner, &lease, &job.Reason, &job.Group, &created, &updated)
		job.RunAt, job.LeaseEnds, job.CreatedAt, job.UpdatedAt = instant(run), instant(lease), instant(created), instant(updated)
		jobs = append(jobs, job)
		return err
	})
	return jobs, err
}

// Job returns one job; one that is done has no row.
func (s jobStore) Job(ctx context.Context, id string) (JobRecord, bool, error) {
	if !storable(id) {
		return JobRecord{}, false, nil
	}
	found, err := s.jobs(ctx, selectJob, []any{id})
	if err != nil || len(found) == 0 {
		return JobRecord{}, false, err
	}
	return found[0], true, nil
}

// TurnJob returns the job of a turn; found is false when it has none.
func (s jobStore) TurnJob(ctx context.Context, turn exchange.TurnRecord) (job JobRecord, found bool, err error) {
	partition := partitionKey(pipeline.JobKind, pipeline.Partition(turn.Agent, turn.ThreadID))
	jobs, err := s.jobs(ctx, selectJobs+` WHERE partition_key = $1 AND partition_key <> '' AND state <> 'dead' AND payload = $2 LIMIT 1`, []any{partition, turn.ID})
	if err != nil || len(jobs) == 0 {
		return job, false, err
	}
	return jobs[0], true, nil
}

const countDead = `SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE state = 'dead' LIMIT $1 + 0) AS counted`

// CountDeadJobs counts the dead letters of the queue, no further than 10,000.
func (s jobStore) CountDeadJobs(ctx context.Context) (count int64, err error) {
	_, err = first(ctx, s.engine.Reader(), countDead, []any{int64(maxCounted)}, &count)
	return count, err
}

// atNow writes the clock of the database into a text that runs too seldom to be prepared.
func atNow(t *transaction, text string) string {
	return strings.ReplaceAll(text, "{now}", t.dialect.now)
}

// reviveJob keeps the id, which is the job's place in its partition.
const reviveJob = `UPDATE jobs SET state = CASE WHEN CAST($2 AS BIGINT) > 0 THEN 'scheduled' ELSE 'ready' END, attempt = 0, claim_rank = 1 + guest,
	run_at = {now} + $2, updated_at = $3 WHERE id = $1 AND state = 'dead' RETURNING kind`

// ReviveJob lets a dead job run again after a wait, with its attempts counted anew. It reports whether the job was dead.
func (s jobStore) ReviveJob(ctx context.Context, id string, wait time.Duration) (revived bool, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		var kind string
		revived, err = first(ctx, tx.sql, atNow(tx.transaction, reviveJob), []any{id, max(wait.Microseconds(), 0), s.nowMicros()}, &kind)
		if err == nil && revived {
			tx.wake(ChannelJob, kind)
		}
		return err
	})
	return revived, err
}

const hastenJobs = `UPDATE jobs SET run_at = {now} WHERE kind = $1 AND state = 'scheduled' AND member_key = $2`

// HastenJobs lets the jobs of a kind that wait for their time run now, of one member of a group (queue.NewJob.Member).
func (t jobTx) HastenJobs(ctx context.Context, kind, member string) error {
	t.wake(ChannelJob, kind)
	return t.sql.Do(ctx, atNow(t.transaction, hastenJobs), kind, queue.NewJob{Member: member}.Share().Member)
}

const (
	retryJob = `UPDATE jobs SET state = 'ready', attempt = 0, run_at = {now}, updated_at = $1 WHERE id = $2 AND state NOT IN ('running', 'blocked') RETURNING kind`

	selectBlocked     = `SELECT kind, partition_key FROM jobs WHERE id = $1 AND state = 'blocked'{hold partition}`
	selectPredecessor = `SELECT e.id, e.state FROM jobs j JOIN jobs e ON e.partition_key = j.partition_key AND e.partition_key <> '' AND e.state <> 'dead' AND e.id < j.id
		WHERE j.id = $1 AND j.state = 'blocked' ORDER BY e.id LIMIT 1`
)

// RetryJob makes a dead or waiting job ready now, with its attempts counted anew; fault.NotFound when there is
// no such job, fault.Conflict when it is running or an earlier job of its partition precedes it.
func (s jobStore) RetryJob(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		var kind string
		found, err := first(ctx, tx.sql, atNow(tx.transaction, retryJob), []any{tx.nowMicros(), id}, &kind)
		if err == nil && found {
			tx.wake(ChannelJob, kind)
		}
		if err != nil || found {
			return err
		}

		return tx.retryBlocked(ctx, id)
	})
}

// retryBlocked promotes a blocked job that has lost its predecessor; otherwise it says why the job cannot run.
func (t jobTx) retryBlocked(ctx context.Context, id string) error {
	promoted, err := t.promoteBlocked(ctx, id)
	if err != nil || promoted {
		return err
	}

	var earlier, state string
	found, err := first(ctx, t.sql, selectPredecessor, []any{id}, &earlier, &state)
	if err != nil {
		return err
	}
	if !found {
		return t.jobRefusal(ctx, id)
	}
	return fault.Newf(fault.Conflict, "the job runs after job %s of its partition, which is %s", earlier, state)
}

// promoteBlocked promotes a blocked job that is the first of its partition, and reports whether it was one.
func (t jobTx) promoteBlocked(ctx context.Context, id string) (bool, error) {
	var kind, partition, state string
	found, err := first(ctx, t.sql, t.dialect.selectBlocked, []any{id}, &kind, &partition)
	if err != nil || !found {
		return false, err
	}
	if err := t.promote(ctx, kind, partition); err != nil {
		return false, err
	}

	return first(ctx, t.sql, `SELECT state FROM jobs WHERE id = $1 AND state <> 'blocked'`, []any{id}, &state)
}

// CancelJob removes a job that is not running; fault.NotFound when there is no such job, fault.Conflict when it runs.
func (s jobStore) CancelJob(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		_, found, err := tx.leave(ctx, tx.dialect.removeWaiting, id)
		if err == nil && !found {
			err = tx.jobRefusal(ctx, id)
		}
		return err
	})
}

func (t jobTx) jobRefusal(ctx context.Context, id string) error {
	var state string
	found, err := first(ctx, t.sql, `SELECT state FROM jobs WHERE id = $1`, []any{id}, &state)
	switch {
	case err != nil:
		return err
	case !found:
		return notFound("job")
	}

	return fault.New(fault.Conflict, "the job is running")
}

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
	err = s.engine.Reader().Each(ctx, selectBacklog, []any{micros(at), int64(MaxBacklog)}, func(r row) error {
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
	err = s.engine.Reader().Each(ctx, selectSlowPeers, []any{int64(MaxBacklog), int64(limit)}, func(r row) error {
		var one SlowPeer
		var oldest, next int64
		err := r.Scan(&one.Channel, &one.Destination, &one.Deliveries, &one.Attempts, &oldest, &next)
		one.Oldest, one.Next = instant(oldest), instant(next)
		peers = append(peers, one)
		return err
	})
	return peers, err
}
