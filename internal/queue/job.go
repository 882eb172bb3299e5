// Package queue runs durable jobs: kinds with their own concurrency and schedule, partitions that run one job at a
// time in order, leases with heartbeat and fencing, retries with full jitter, dead letters with a reason. It keeps
// its rows through a small Store interface and has never heard of a message.
package queue

import (
	"context"
	"errors"
	"time"
)

// NewJob is a job to be stored. It becomes visible to workers when the caller's transaction commits.
type NewJob struct {
	ID        string // UUIDv7; order inside a partition is the order of ids
	Kind      string
	Partition string // one running job per partition, in order of ids; empty = no order
	Payload   string
	RunAt     time.Time // zero = now
}

// Job is a claimed job.
type Job struct {
	ID        string
	Kind      string
	Partition string
	Payload   string
	Attempt   int // from 1; a snooze does not count
	Lease     Lease
	LastError string
	CreatedAt time.Time
}

// Lease is the right to settle a job: it ends when another worker takes the job over and the fence moves.
type Lease struct {
	JobID string
	Fence int64
}

// OutcomeKind says how a run of a job ended.
type OutcomeKind int

// The outcomes.
const (
	Done   OutcomeKind = iota // the row is removed
	Retry                     // run again at Outcome.At, the attempt counts
	Snooze                    // run again at Outcome.At, the attempt does not count
	Dead                      // kept as a dead letter with Outcome.Reason; no longer blocks its partition
)

// Outcome ends one run of a job.
type Outcome struct {
	Kind   OutcomeKind
	At     time.Time // Retry, Snooze
	Reason string    // Retry, Dead: for the operator
}

// ErrLeaseLost says that the job was taken over or removed: whatever the run did must be rolled back.
var ErrLeaseLost = errors.New("job lease lost: another worker took the job over")

// ErrSettled is returned by a Handler that settled the job in its own transaction.
var ErrSettled = errors.New("job settled by its handler")

// Claim asks for runnable jobs of one kind.
type Claim struct {
	Owner string // this worker process
	Kind  string
	Limit int
	Now   time.Time
	Until time.Time // end of the lease
}

// Store keeps the rows. A job may be stored as leased already, for a Seat. Claim gives jobs that are due, are the first live job of their partition, and are not
// leased (or whose lease ended before Now); it sets owner, lease end and attempt and moves the fence. Extend
// prolongs leases and returns those still held. Settle ends a run; it returns ErrLeaseLost when the fence moved.
type Store interface {
	Claim(ctx context.Context, claim Claim) ([]Job, error)
	Extend(ctx context.Context, leases []Lease, until time.Time) ([]Lease, error)
	Settle(ctx context.Context, lease Lease, outcome Outcome) error
	// NextDue gives the earliest time at which a waiting job of the kind may run or an expired lease may be taken;
	// the zero time when there is none.
	NextDue(ctx context.Context, kind string) (time.Time, error)
}

// Handler runs one job. nil = Done; RetryAfter, SnoozeFor and GiveUp choose another outcome; ErrSettled = the
// handler did it in its own transaction; any other error = Retry on the kind's schedule, Dead when that is used up.
// ctx ends when the lease is lost or the queue stops.
type Handler func(ctx context.Context, job Job) error
