package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

// memory is a queue.Store for the tests of the loops, where time is synctest's. It passes the same suite as the
// databases.
type memory struct {
	lock    sync.Mutex
	rows    []*memoryRow
	failing error
	claims  int
}

type memoryRow struct {
	queue.Job
	runAt, until  time.Time
	running, dead bool
}

func TestMemory(t *testing.T) {
	queuetest.Run(t, func(*testing.T) queuetest.Bench {
		m := &memory{}
		return queuetest.Bench{Store: m, Enqueue: func(_ context.Context, jobs ...queue.NewJob) error {
			m.add(jobs...)
			return nil
		}}
	})
}

func (m *memory) add(jobs ...queue.NewJob) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, job := range jobs {
		if job.ID == "" {
			job.ID = queuetest.NewID()
		}
		if job.RunAt.IsZero() {
			job.RunAt = time.Now()
		}
		m.rows = append(m.rows, &memoryRow{runAt: job.RunAt, Job: queue.Job{
			ID: job.ID, Kind: job.Kind, Partition: job.Partition, Payload: job.Payload, CreatedAt: time.Now(),
			Lease: queue.Lease{JobID: job.ID},
		}})
	}
}

func (m *memory) Claim(_ context.Context, claim queue.Claim) ([]queue.Job, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claims++
	if m.failing != nil {
		return nil, m.failing
	}
	for _, row := range m.rows {
		if row.running && row.until.Before(claim.Now) {
			row.running, row.runAt, row.LastError = false, row.until, "lease lost"
		}
	}
	slices.SortStableFunc(m.rows, func(a, b *memoryRow) int {
		return (10*a.runAt.Compare(b.runAt) + strings.Compare(a.ID, b.ID))
	})
	var jobs []queue.Job
	for _, row := range m.rows {
		if len(jobs) == claim.Limit || row.Kind != claim.Kind || row.runAt.After(claim.Now) || !m.runnable(row) {
			continue
		}
		row.running, row.until = true, claim.Until
		row.Attempt++
		row.Lease.Fence++
		jobs = append(jobs, row.Job)
	}
	return jobs, nil
}

func (m *memory) runnable(row *memoryRow) bool {
	if row.running || row.dead {
		return false
	}
	return row.Partition == "" || !slices.ContainsFunc(m.rows, func(e *memoryRow) bool {
		return e.Kind == row.Kind && e.Partition == row.Partition && !e.dead && (e.ID < row.ID || e.running)
	})
}

func (m *memory) held(lease queue.Lease) *memoryRow {
	for _, row := range m.rows {
		if row.Lease == lease && row.running {
			return row
		}
	}
	return nil
}

func (m *memory) Extend(_ context.Context, leases []queue.Lease, until time.Time) (held []queue.Lease, err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, lease := range leases {
		if row := m.held(lease); row != nil && m.failing == nil {
			row.until = until
			held = append(held, lease)
		}
	}
	return held, m.failing
}

func (m *memory) Settle(_ context.Context, lease queue.Lease, outcome queue.Outcome) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.failing != nil {
		return m.failing
	}
	row := m.held(lease)
	if row == nil {
		return queue.ErrLeaseLost
	}
	row.running, row.runAt, row.LastError = false, outcome.At, outcome.Reason
	switch outcome.Kind {
	case queue.Done:
		m.rows = slices.DeleteFunc(m.rows, func(e *memoryRow) bool { return e == row })
	case queue.Dead:
		row.dead = true
	case queue.Snooze:
		row.Attempt--
	}
	return nil
}

func (m *memory) NextDue(_ context.Context, kind string) (due time.Time, err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, row := range m.rows {
		at := row.runAt
		if row.running {
			at = row.until
		}
		if row.Kind == kind && !row.dead && (row.running || m.runnable(row)) && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due, m.failing
}

func (m *memory) fail(err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.failing = err
}

// steal gives a job's lease to somebody else.
func (m *memory) steal() {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, row := range m.rows {
		row.Lease.Fence++
	}
}

func (m *memory) only(t *testing.T) memoryRow {
	t.Helper()
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(m.rows) != 1 {
		t.Fatalf("%d rows", len(m.rows))
	}
	return *m.rows[0]
}

func (m *memory) claimed() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.claims
}

func (m *memory) empty() bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.rows) == 0
}

var errDown = errors.New("store down")
