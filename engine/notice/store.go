package notice

import (
	"context"
	"time"

	"inbox/exchange"
	"inbox/internal/queue"
)

// Store is what this room needs of the database.
type Store interface {
	InTx(ctx context.Context, work func(Tx) error) error
	// NoticeTallies returns all tallies.
	NoticeTallies(ctx context.Context) ([]exchange.NoticeTally, error)
	// NoticeConditions returns the newest episode of everything that lasts or lasted.
	NoticeConditions(ctx context.Context) ([]exchange.NoticeCondition, error)
	// NoticeWay returns a way and its notice; fault.NotFound when there is none.
	NoticeWay(ctx context.Context, id string) (exchange.Notice, exchange.NoticeWay, error)
	// LastDigest returns when the last digest was made; zero = none was yet.
	LastDigest(ctx context.Context) (time.Time, error)
}

// Tx is what this room does inside one transaction.
type Tx interface {
	// BeginCondition notes that something lasts: a new episode where the one before is closed, else the same one.
	BeginCondition(ctx context.Context, condition exchange.NoticeCondition) error
	// EndCondition ends an episode that is open.
	EndCondition(ctx context.Context, kind, subject string, at time.Time) error
	// MoveCondition writes state, EndedAt, ToldAt and LastTold of an episode that is as it was read, and reports whether it was.
	MoveCondition(ctx context.Context, from, to exchange.NoticeCondition) (bool, error)
	// CountNotice adds an event to its tally with the commit.
	CountNotice(kind, subject string, example exchange.NoticeExample)
	// AllowNotice counts a message, and reports whether there were fewer than most in the hour. Callers come one after the other.
	AllowNotice(ctx context.Context, now time.Time, most int) (bool, error)
	// BeginDigest notes that a digest is made, unless another node has made it since the last one that the caller knows.
	BeginDigest(ctx context.Context, last, now time.Time) (bool, error)
	// TakeTallies returns what no digest has told yet; the next digest begins after it.
	TakeTallies(ctx context.Context) ([]exchange.NoticeTally, error)
	// InsertNotice stores a notice with its ways.
	InsertNotice(ctx context.Context, notice exchange.Notice) error
	// SettleNotice writes what became of a way.
	SettleNotice(ctx context.Context, way exchange.NoticeWay) error

	Enqueue(ctx context.Context, job queue.NewJob) error
	SettleJob(ctx context.Context, lease queue.Lease, outcome queue.Outcome) error
}
