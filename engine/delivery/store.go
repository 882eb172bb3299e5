package delivery

import (
	"context"
	"encoding/json"
	"time"

	"inbox/exchange"
	"inbox/internal/queue"
)

// States of a delivery.
const (
	StatePending   = "pending"
	StateSending   = "sending"
	StateDelivered = "delivered"
	StateRetry     = "retry"
	StateDead      = "dead"
	StateCancelled = "cancelled"
)

// JobKind is the queue kind of deliveries; the payload is the delivery id.
const JobKind = "delivery"

// Record is the stored row of one reply to one destination.
type Record struct {
	ID        string          `json:"id"`
	TurnID    string          `json:"turn_id"`
	ReplyID   string          `json:"reply_id"`
	Agent     string          `json:"agent"`
	Via       string          `json:"via"` // the message's received_via: names the channel
	NativeID  string          `json:"native_id"`
	Key       string          `json:"key"`
	Address   string          `json:"address"`
	Data      json.RawMessage `json:"-"`
	State     string          `json:"state"`
	Reason    string          `json:"reason,omitempty"` // the last answer of the peer or the reason of the state
	Attempt   int             `json:"attempt"`
	NextAt    time.Time       `json:"next_at"` // meaningful in state retry
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

// Filter selects deliveries, newest first. Empty fields do not restrict.
type Filter struct {
	TurnID string
	State  string
	Key    string
	Before string // id of the last row of the page before
	Limit  int    // 1…500
}

// Move is a conditional change of a delivery's state. Every move writes a row to the turn's timeline.
type Move struct {
	ID      string
	From    []string // the update happens only from one of these states
	To      string
	Reason  string
	Attempt int
	NextAt  time.Time
	At      time.Time
	Event   exchange.Event // Kind and Body; the store fills TurnID and Seq; no row when Kind is empty
}

// Tx is what delivery does inside one transaction.
type Tx interface {
	MoveDelivery(ctx context.Context, move Move) (bool, error)
	SettleJob(ctx context.Context, lease queue.Lease, outcome queue.Outcome) error
	Enqueue(ctx context.Context, job queue.NewJob) error
}

// Store is what delivery needs of the database.
type Store interface {
	InTx(ctx context.Context, work func(Tx) error) error
	// Delivery gives the record and the reply it carries; fault.NotFound when there is none.
	Delivery(ctx context.Context, id string) (Record, exchange.Reply, error)
}
