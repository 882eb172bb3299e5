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

	// Group and Member name whose slots the job takes: kinds with many askers divide their slots among the groups, and
	// within a group over its members. A group is a short name, such as an agent's; KindOptions.Limit is asked with it.
	// Both empty = the kind knows no shares.
	Group, Member string
	Guest         bool // the member proved nothing: it comes behind those of its group who did
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
	Share     Share
	RunAt     time.Time // when the job was due; later than CreatedAt when it was stored for later, repeated or snoozed. Zero = at once
	Reserved  bool      // it was stored as leased to this process, and has not waited in the store
	run       *run      // that works on it; nil in a store
	Version   int64     // of the untouched row that the job works on, as the claim found it; 0 = the store knows none, or it was touched
}

// Held reports whether the job's lease holds as far as this process knows: a worker that was stopped for longer than a lease finds out
// here before its next heartbeat. It reads no row.
func (j Job) Held() bool { return j.run == nil || time.Now().Before(j.run.leaseEnd()) }

// Lease is the right to settle a job: it ends when another worker takes the job over and the fence moves.
type Lease struct {
	JobID string
	Fence int64
}

// OutcomeKind says how a run of a job ended.
type OutcomeKind int

// The outcomes.
const (
	Done     OutcomeKind = iota // the row is removed
	Retry                       // run again at Outcome.At, the attempt counts
	Snooze                      // run again at Outcome.At, the attempt does not count; no At = at once, in its old place of the share
	Dead                        // kept as a dead letter with Outcome.Reason; no longer blocks its partition
	Released                    // run again at once in RankResumed, the attempt does not count: the process stops
)

// Outcome ends one run of a job.
type Outcome struct {
	Kind   OutcomeKind
	At     time.Time // Retry, Snooze
	Reason string    // Retry, Dead: for the operator; Snooze: likewise, empty = the one before stays
}

// ErrLeaseLost reports that the job was taken over or removed: whatever the run did must be rolled back.
var ErrLeaseLost = errors.New("job lease lost: another worker took the job over")

// ErrUnwanted is the cause with which the context of a run ends whose work is not wanted any more: what it was to do was
// cancelled, or another job does it. The job is Done unless its handler settles it or chooses another outcome.
var ErrUnwanted = errors.New("the work of the job is not wanted any more")

// ErrSettled is returned by a Handler that settled the job in its own transaction.
var ErrSettled = errors.New("job settled by its handler")

// Take asks for the first jobs of a share.
type Take struct {
	Share Share
	Count int
}

// Claim asks for ready jobs of one kind.
type Claim struct {
	Owner string // this worker process
	Kind  string
	Lease time.Duration // from now on
	Takes []Take
}

// Store keeps the rows. Its clock is the only one that leases and due times are held against: that of the database where
// several nodes share it. Callers pass instants by their own clock, and the store keeps how far they are away.
//
// A job is ready when it is due and nothing of its partition lives before it. A job may be stored as leased already, for
// a Reservation. Settle ends a run; it returns ErrLeaseLost when the fence moved. Extend prolongs leases and returns those still
// held, and those of them whose work is not wanted any more. Beside an error it returns what it knows.
type Store interface {
	// Shares returns the shares of a kind with ready jobs that come after the given one, in their order. Its cost grows with
	// the number of shares that it returns, not with the number of jobs.
	Shares(ctx context.Context, kind string, after Share, limit int) ([]Share, error)
	// Groups returns the groups with ready jobs after the given one, in byte order, at the same cost.
	Groups(ctx context.Context, kind, after string, limit int) ([]string, error)
	// Claim returns at most so many jobs of each share as asked for, those first that have been due longest. It sets owner,
	// lease and attempt and moves the fence. What another node is claiming at this moment is left out.
	Claim(ctx context.Context, claim Claim) ([]Job, error)
	// Revive makes jobs ready whose time has come or whose lease ended; the latter in RankResumed. It does a bounded part
	// of them and reports whether more are left.
	Revive(ctx context.Context, kind string) (more bool, err error)
	Extend(ctx context.Context, leases []Lease, lease time.Duration) (held, unwanted []Lease, err error)
	Settle(ctx context.Context, lease Lease, outcome Outcome) error
	// NextDue returns how long it is until Revive may find something, zero or less when it may now; found is false when
	// nothing waits for its time.
	NextDue(ctx context.Context, kind string) (wait time.Duration, found bool, err error)
}

// Handler runs one job. nil = Done; RetryAfter, SnoozeFor and GiveUp choose another outcome; ErrSettled = the
// handler did it in its own transaction; any other error = Retry on the kind's schedule, Dead when that is used up.
// ctx ends when the lease is lost, the work is not wanted any more (ErrUnwanted) or the queue stops.
type Handler func(ctx context.Context, job Job) error
