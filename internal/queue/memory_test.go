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
	read    int // shares that were returned
	claims  int
}

type memoryRow struct {
	queue.Job
	runAt, until         time.Time
	rank                 int // of its share, but for RankResumed
	waits, running, dead bool
	unwanted             bool // whatever it was to do is not wanted any more
}

func TestMemory(t *testing.T) {
	queuetest.Run(t, func(*testing.T) queuetest.Bench {
		m := &memory{}
		return queuetest.Bench{
			Store: m,
			Enqueue: func(_ context.Context, jobs ...queue.NewJob) error {
				m.add(jobs...)
				return nil
			},
			Pass: func(_ context.Context, d time.Duration) error {
				m.lock.Lock()
				defer m.lock.Unlock()
				for _, row := range m.rows {
					row.runAt, row.until = row.runAt.Add(-d), row.until.Add(-d)
				}
				return nil
			},
		}
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
		m.rows = append(m.rows, &memoryRow{
			runAt: job.RunAt, waits: job.RunAt.After(time.Now()), rank: job.Share().Rank,
			Job: queue.Job{
				ID: job.ID, Kind: job.Kind, Partition: job.Partition, Payload: job.Payload, CreatedAt: time.Now(),
				Lease: queue.Lease{JobID: job.ID}, Share: job.Share(),
			},
		})
	}
}

func (m *memory) Shares(_ context.Context, kind string, after queue.Share, limit int) (shares []queue.Share, err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claims++
	for _, row := range m.rows {
		if row.Kind == kind && m.ready(row) && row.Share.Compare(after) > 0 {
			shares = append(shares, row.Share)
		}
	}
	slices.SortFunc(shares, queue.Share.Compare)
	shares = slices.Compact(shares)
	shares = shares[:min(limit, len(shares))]
	m.read += len(shares)
	return shares, m.failing
}

func (m *memory) Groups(ctx context.Context, kind, after string, limit int) (groups []string, err error) {
	shares, err := m.Shares(ctx, kind, queue.Share{Group: after, Rank: queue.RankGuest + 1}, 1<<20)
	for _, share := range shares {
		groups = append(groups, share.Group)
	}
	groups = slices.Compact(groups)
	return groups[:min(limit, len(groups))], err
}

func (m *memory) Revive(_ context.Context, kind string) (more bool, err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.failing != nil {
		return false, m.failing
	}
	now := time.Now()
	for _, row := range m.rows {
		switch {
		case row.Kind != kind:
		case row.running && !row.until.After(now):
			row.running, row.runAt, row.LastError, row.Share.Rank = false, row.until, "lease lost", queue.RankResumed
		case row.waits && !row.runAt.After(now):
			row.waits = false
		}
	}
	return false, nil
}

func (m *memory) Claim(_ context.Context, claim queue.Claim) ([]queue.Job, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.failing != nil {
		return nil, m.failing
	}
	slices.SortStableFunc(m.rows, func(a, b *memoryRow) int {
		return (10*a.runAt.Compare(b.runAt) + strings.Compare(a.ID, b.ID))
	})
	var jobs []queue.Job
	for _, take := range claim.Takes {
		for _, row := range m.rows {
			if take.Count == 0 || row.Kind != claim.Kind || row.Share != take.Share || !m.ready(row) {
				continue
			}
			take.Count--
			row.running, row.until = true, time.Now().Add(claim.Lease)
			row.Attempt++
			row.Lease.Fence++
			jobs = append(jobs, row.Job)
		}
	}
	return jobs, nil
}

func (m *memory) ready(row *memoryRow) bool { return !row.waits && m.runnable(row) }

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

func (m *memory) Extend(_ context.Context, leases []queue.Lease, length time.Duration) (held, unwanted []queue.Lease, err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, lease := range leases {
		if row := m.held(lease); row != nil && m.failing == nil {
			row.until = time.Now().Add(length)
			held = append(held, lease)
			if row.unwanted {
				unwanted = append(unwanted, lease)
			}
		}
	}
	return held, unwanted, m.failing
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
	row.running, row.LastError, row.Share.Rank = false, outcome.Reason, row.rank
	if !outcome.At.IsZero() {
		row.runAt, row.waits = outcome.At, outcome.At.After(time.Now())
	}
	switch outcome.Kind {
	case queue.Released:
		row.Share.Rank = queue.RankResumed
		row.Attempt--
	case queue.Done:
		m.rows = slices.DeleteFunc(m.rows, func(e *memoryRow) bool { return e == row })
	case queue.Dead:
		row.dead = true
	case queue.Snooze:
		row.Attempt--
	}
	return nil
}

func (m *memory) NextDue(_ context.Context, kind string) (wait time.Duration, found bool, err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, row := range m.rows {
		at := row.runAt
		if row.running {
			at = row.until
		}
		if left := time.Until(at); row.Kind == kind && (row.running || row.waits) && !row.dead && (!found || left < wait) {
			wait, found = left, true
		}
	}
	return wait, found, m.failing
}

func (m *memory) fail(err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.failing = err
}

// drop says that the jobs are not wanted any more.
func (m *memory) drop() {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, row := range m.rows {
		row.unwanted = true
	}
}

// steal returns a job's lease to another owner.
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
