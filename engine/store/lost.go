package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/engine/delivery"
	"inbox/engine/notice"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// Label work: turn, dispatch, delivery, notice.
var lostJobs = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_jobs_lost_total", Help: "Messages, calls, deliveries and notices that waited for a job and had none, by what they are. It must stay 0.",
}, []string{"work"})

// rowsWithJob are the rows of a table for which a job has to be in the queue as long as they are in a state. A row whose job is a dead letter has
// one: the operator sees it.
type rowsWithJob struct {
	work string
	part string // counts rows with ids after $1, at most $2, and returns the last id; those that need no job are among them
	lost string // id and time of change of rows that need a job, with ids of part after $1 up to $2, which no job has as its own id
	hold string // holds the row $1 until the commit if it needs a job and was changed last at $2
	job  func(ctx context.Context, s *Store, id string) (queue.NewJob, error)
}

const (
	noJobOf  = ` AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = `
	idsOf    = `SELECT COUNT(*), COALESCE(MAX(id), '') FROM (SELECT id FROM `
	ofPart   = ` AND t.id > $1 AND t.id <= $2`
	needsRun = `t.state IN ('` + exchange.StateAccepted + `', '` + exchange.StateRunning + `')`
)

var allRowsWithJob = []rowsWithJob{
	{
		"turn", idsOf + `turns t WHERE ` + openStates + inPart,
		`SELECT t.id, t.updated_at FROM turns t WHERE ` + openStates + ` AND ` + needsRun + ofPart + noJobOf + `t.id)`,
		`UPDATE turns AS t SET updated_at = updated_at WHERE t.id = $1 AND t.updated_at = $2 AND ` + needsRun + ` RETURNING id`,
		func(ctx context.Context, s *Store, id string) (queue.NewJob, error) {
			turn, err := s.Turn(ctx, id)
			return pipeline.NextJob(turn), err
		},
	},
	{
		"dispatch", idsOf + `turns t WHERE ` + openStates + inPart,
		`SELECT d.id, d.updated_at FROM turns t JOIN dispatches d ON d.turn_id = t.id WHERE ` + openStates + ofPart + ` AND d.state = '` + exchange.DispatchPending + `'` + noJobOf + `d.id)`,
		`UPDATE dispatches SET updated_at = updated_at WHERE id = $1 AND updated_at = $2 AND state = '` + exchange.DispatchPending + `' RETURNING id`,
		func(ctx context.Context, s *Store, id string) (queue.NewJob, error) {
			call, err := s.Dispatch(ctx, id)
			return pipeline.DispatchJob(call), err
		},
	},
	deliveriesWithJob(delivery.StatePending),
	deliveriesWithJob(delivery.StateRetry),
	deliveriesWithJob(delivery.StateSending),
	{
		"notice", idsOf + `notice_ways t WHERE 1 = 1` + inPart,
		`SELECT t.id, t.updated_at FROM notice_ways t WHERE t.state = '` + exchange.NoticePending + `'` + ofPart + noJobOf + `t.id)`,
		`UPDATE notice_ways SET updated_at = updated_at WHERE id = $1 AND updated_at = $2 AND state = '` + exchange.NoticePending + `' RETURNING id`,
		func(_ context.Context, _ *Store, id string) (queue.NewJob, error) { return notice.WayJob(id) },
	},
}

func deliveriesWithJob(state string) rowsWithJob {
	where := `t.state = '` + state + `'`
	return rowsWithJob{
		"delivery", idsOf + `deliveries t WHERE ` + where + inPart,
		`SELECT t.id, t.updated_at FROM deliveries t WHERE ` + where + ofPart + noJobOf + `t.id)`,
		`UPDATE deliveries AS t SET updated_at = updated_at WHERE t.id = $1 AND t.updated_at = $2 AND ` + where + ` RETURNING id`,
		func(ctx context.Context, s *Store, id string) (queue.NewJob, error) {
			record, reply, err := s.Delivery(ctx, id)
			job := delivery.FirstJob(record, reply.Message.ThreadID)
			job.RunAt = record.NextAt
			return job, err
		},
	}
}

const (
	inPart = ` AND id > $1 ORDER BY id LIMIT $2 + 0) AS picked`

	// A job that is not the first one of its row has an id of its own. It is found in its partition, or, where it has none, by its state, for which
	// there are indexes. Dead letters are in no partition.
	selectJobInPartition = `SELECT id FROM jobs WHERE partition_key = $1 AND partition_key <> '' AND state <> 'dead' AND payload = $2 LIMIT 1`
	selectJobOfKind      = `SELECT id FROM (SELECT id, payload FROM jobs WHERE kind = $1 AND state = 'ready'
		UNION ALL SELECT id, payload FROM jobs WHERE kind = $1 AND state = 'scheduled'
		UNION ALL SELECT id, payload FROM jobs WHERE kind = $1 AND state = 'running') AS waiting WHERE payload = $2 LIMIT 1`
	selectDeadJob = `SELECT id FROM jobs WHERE state = 'dead' AND kind = $1 AND payload = $2 LIMIT 1`

	// attemptedBefore makes the first run of a job one that may repeat another: what became of the job that was lost is not known.
	attemptedBefore = `UPDATE jobs SET attempt = 1, reason = 'its row had no job' WHERE id = $1`
)

const (
	lostPage  = 1_000
	lostPages = 10    // of each table in one round
	maxLost   = 1_000 // rows without a job after which a round ends
)

// lostRow is a row without its job, as it was seen.
type lostRow struct {
	rows    *rowsWithJob
	id      string
	updated int64
}

// lostCheck is how far this process has looked for rows without their job.
type lostCheck struct {
	lock  sync.Mutex
	after map[*rowsWithJob]string
	seen  []lostRow // in the round before
}

// LookForLost does one round of the search for rows whose job is gone, and returns how many it queued again. There are none while all that
// removes jobs also ends what they were for. A row is queued if it had no job in two rounds and did not change between them: a transaction
// under way, and a run whose job was just removed, have ended by then. The next round goes on where this one ended, so its cost is bounded.
func (s *Store) LookForLost(ctx context.Context) (queued int, err error) {
	c := &s.lost
	c.lock.Lock()
	defer c.lock.Unlock()

	seen := c.seen
	c.seen = nil
	var failures []error
	for _, one := range seen {
		again, err := s.queueAgain(ctx, one)
		if fault.Is(err, fault.Unavailable) {
			return queued, err
		}
		if failures = append(failures, err); again {
			queued++
		}
	}

	return queued, errors.Join(append(failures, c.look(ctx, s))...)
}

// CountLost counts the rows without their job that did not change since the instant, among the first 10,000 of each table. A server that runs
// queues them within two rounds.
func (s *Store) CountLost(ctx context.Context, since time.Time) (count int, err error) {
	c := lostCheck{after: map[*rowsWithJob]string{}}
	err = c.look(ctx, s)
	for _, one := range c.seen {
		if one.updated < micros(since) {
			count++
		}
	}
	return count, err
}

// look reads the next part of every table. A row that cannot be read does not keep the others.
func (c *lostCheck) look(ctx context.Context, s *Store) error {
	var failures []error
	for i := range allRowsWithJob {
		err := c.lookIn(ctx, s, &allRowsWithJob[i])
		if failures = append(failures, err); fault.Is(err, fault.Unavailable) {
			break
		}
	}
	return errors.Join(failures...)
}

func (c *lostCheck) lookIn(ctx context.Context, s *Store, rows *rowsWithJob) error {
	var failures []error
	for page := 0; page < lostPages && len(c.seen) < maxLost; page++ {
		begun := time.Now()
		after := c.after[rows]
		var read int64
		var last string
		if _, err := first(ctx, s.engine.Reader(), rows.part, []any{after, int64(lostPage)}, &read, &last); err != nil {
			return errors.Join(append(failures, err)...)
		}

		var without []lostRow
		err := s.engine.Reader().Each(ctx, rows.lost, []any{after, last}, func(r row) error {
			one := lostRow{rows: rows}
			err := r.Scan(&one.id, &one.updated)
			without = append(without, one)
			return err
		})
		if err != nil {
			return errors.Join(append(failures, err)...)
		}

		for _, one := range without {
			lost, err := s.isLost(ctx, one)
			if fault.Is(err, fault.Unavailable) {
				return errors.Join(append(failures, err)...)
			}
			if failures = append(failures, err); lost {
				c.seen = append(c.seen, one)
			}
		}

		if read < lostPage {
			delete(c.after, rows)
			return errors.Join(failures...)
		}
		c.after[rows] = last
		if err := rest(ctx, begun); err != nil {
			return errors.Join(append(failures, err)...)
		}
	}
	return errors.Join(failures...)
}

// isLost reports whether a row that has no job of its own id has none at all.
func (s *Store) isLost(ctx context.Context, one lostRow) (bool, error) {
	job, err := one.rows.job(ctx, s, one.id)
	if err != nil {
		return false, unlessNotFound(err)
	}
	has, err := hasJob(ctx, s.engine.Reader(), job)
	return err == nil && !has, err
}

// hasJob reports whether there is a job for the same as the given one, whatever its id is.
func hasJob(ctx context.Context, from querier, job queue.NewJob) (bool, error) {
	query, key := selectJobInPartition, partitionKey(job.Kind, job.Partition)
	if key == "" {
		query, key = selectJobOfKind, job.Kind
	}
	var id string
	found, err := first(ctx, from, query, []any{key, job.Payload}, &id)
	if err != nil || found {
		return found, err
	}
	return first(ctx, from, selectDeadJob, []any{job.Kind, job.Payload}, &id)
}

// queueAgain stores a job for a row that has none, and reports whether it did. The transaction holds the row: whatever moves it, ends it or
// stores its next job changes the row too.
func (s *Store) queueAgain(ctx context.Context, one lostRow) (queued bool, err error) {
	job, err := one.rows.job(ctx, s, one.id)
	if err != nil {
		return false, unlessNotFound(err)
	}
	next, err := uuid.NewV7()
	if err != nil {
		return false, err
	}

	err = s.InTx(ctx, func(tx *Tx) error {
		queued = false
		var id string
		if held, err := first(ctx, tx.sql, one.rows.hold, []any{one.id, one.updated}, &id); err != nil || !held {
			return err
		}
		if own, err := first(ctx, tx.sql, `SELECT id FROM jobs WHERE id = $1`, []any{one.id}, &id); err != nil || own {
			return err
		}
		if other, err := hasJob(ctx, tx.sql, job); err != nil || other {
			return err
		}

		job.ID, queued = next.String(), true
		if err := tx.Enqueue(ctx, job); err != nil {
			return err
		}
		return tx.sql.Do(ctx, attemptedBefore, job.ID)
	})
	if err == nil && queued {
		lostJobs.WithLabelValues(one.rows.work).Inc()
		s.options.Logger.ErrorContext(ctx, "a row that waited for a job had none and is queued again: look at it with inbox find, and report what removed the job",
			"work", one.rows.work, "id", one.id, "job", job.ID)
	}
	return queued && err == nil, err
}

func unlessNotFound(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// countLostFromZero shows the metric before there is anything to count, so that an alert sees the first one.
func countLostFromZero() {
	for _, rows := range allRowsWithJob {
		lostJobs.WithLabelValues(rows.work)
	}
}
