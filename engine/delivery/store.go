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

// States are all states of a delivery.
func States() []string {
	return []string{StatePending, StateSending, StateDelivered, StateRetry, StateDead, StateCancelled}
}

// Queue kinds of deliveries; the payload is the delivery id. Deliveries to many, such as followers, have a kind of their
// own: the reply to the asker does not wait behind them.
const (
	JobKind  = "delivery"
	BulkKind = "delivery.bulk"
)

// Record is the stored row of one reply to one destination.
type Record struct {
	ID       string          `json:"id"`
	TurnID   string          `json:"turn_id"`
	ReplyID  string          `json:"reply_id"`
	Agent    string          `json:"agent"`
	Channel  string          `json:"channel"` // by which it leaves
	NativeID string          `json:"native_id"`
	Key      string          `json:"key"`
	Address  string          `json:"address"`
	Data     json.RawMessage `json:"-"`
	Action   string          `json:"action,omitempty"`   // exchange.ActionSend, ActionUpdate or ActionDelete
	Revision int             `json:"revision,omitempty"` // of the reply, that an update is about
	Bulk     bool            `json:"bulk,omitempty"`     // to followers
	Trace    string          `json:"-"`                  // traceparent of the run that made it; empty = none
	State    string          `json:"state"`
	Reason   string          `json:"reason,omitempty"` // the last answer of the peer or the reason of the state
	Attempt  int             `json:"attempt"`
	NextAt   time.Time       `json:"next_at,omitzero"` // of the next attempt, in state retry
	// Returned are those of several recipients who do not have it, and why.
	Returned map[string]string `json:"returned,omitempty"`
	// Done are those of several recipients who need no further attempt: they have it, or were refused for good.
	Done      []string  `json:"done,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`

	recipient string // who pays for what they cause (recipientOf); it is not stored
}

// kind is the queue kind of the record's job.
func (r Record) kind() string {
	if r.Bulk {
		return BulkKind
	}
	return JobKind
}

// job is the record's first job. Agents share the attempts, and the destinations of an agent those of the agent. threadID is that of the reply's message.
func (r Record) job(id, threadID string) queue.NewJob {
	return queue.NewJob{
		ID: id, Kind: r.kind(), Payload: r.ID, Partition: Partition(r.Key, r.Agent, threadID),
		Group: r.Agent, Member: conditionKey(r.Channel, r.Key),
	}
}

// FirstJob is the job that makes the first attempt of a delivery; its id is the delivery's.
func FirstJob(record Record, threadID string) queue.NewJob { return record.job(record.ID, threadID) }

// Filter selects deliveries, newest first. Empty fields do not restrict.
type Filter struct {
	TurnID string
	State  string
	Key    string
	Agent  string
	// Channel is by which they leave.
	Channel string
	Since   time.Time // made at the instant or later, to a millisecond
	Until   time.Time // made before it
	// ChangedSince selects those whose row changed later.
	ChangedSince time.Time
	Before       string // id of the last row of the page before
	Limit        int    // 1…500
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
	// Returned are further recipients who do not have it; nil = none.
	Returned map[string]string
	// Done are further recipients who need no other attempt; nil = none.
	Done  []string
	Event exchange.Event // Kind and Body; the store fills TurnID and Seq; no row when Kind is empty
}

// Standing is what others may change of a delivery that waits for its attempt.
type Standing struct {
	State    string
	Revision int  // of the reply
	Deleted  bool // the reply was withdrawn
}

// Condition is what is known of a destination that fails. All nodes share it; a destination that takes deliveries has
// none.
type Condition struct {
	Channel     string    `json:"channel"`
	Key         string    `json:"key"`
	PausedUntil time.Time `json:"paused_until,omitzero"` // zero = not paused
	Opened      int       `json:"opened"`                // how often its breaker opened in a row
	FailingDays int       `json:"failing_days"`          // different days with failures and no success between
	FailedDay   int64     `json:"-"`                     // the last of them, in days since 1970
	DeadAt      time.Time `json:"dead_at,omitzero"`      // zero = it is tried
	Reason      string    `json:"reason"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// Tx is what delivery does inside one transaction.
type Tx interface {
	MoveDelivery(ctx context.Context, move Move) (bool, error)
	InsertDelivery(ctx context.Context, record Record) error
	SettleJob(ctx context.Context, lease queue.Lease, outcome queue.Outcome) error
	Enqueue(ctx context.Context, job queue.NewJob) error
	// RemoveJob removes the jobs of a kind and partition with the payload that do not run, and reports whether there were
	// any. A transaction that calls it for several partitions does so in order of kind and partition: it locks them.
	RemoveJob(ctx context.Context, kind, partition, payload string) (bool, error)
	// WorsenCondition notes a failure: a day that is another than the last one counts, and the later pause holds. A
	// destination with deadAfter failing days is given up.
	WorsenCondition(ctx context.Context, failure Condition, deadAfter int) error
	// ClearCondition forgets what is known of a destination.
	ClearCondition(ctx context.Context, channel, key string) error
	// HastenJobs lets the jobs of a kind that wait for their time run now, of one member of a group (queue.NewJob.Member).
	HastenJobs(ctx context.Context, kind, member string) error
	// ReviseReply stores the response, revision and times of a reply whose revision is still the given one and that was
	// not deleted, and reports whether it did. A deleted reply leaves the history, and its streamed pieces go.
	ReviseReply(ctx context.Context, reply exchange.Reply, from int, event exchange.Event) (bool, error)
}

// Store is what delivery needs of the database.
type Store interface {
	InTx(ctx context.Context, work func(Tx) error) error
	// Delivery returns the record and the reply it carries; fault.NotFound when there is none.
	Delivery(ctx context.Context, id string) (Record, exchange.Reply, error)
	// Standing returns what decides whether the attempt of a delivery may begin; fault.NotFound when there is no such delivery.
	Standing(ctx context.Context, id string) (Standing, error)
	// Deliveries lists deliveries, newest first.
	Deliveries(ctx context.Context, filter Filter) ([]Record, error)
	// Reply returns a reply and its native id; fault.NotFound when there is none.
	Reply(ctx context.Context, id string) (exchange.Reply, string, error)
	// Sendings returns the deliveries of a reply with ActionSend and ids after the given one, in order.
	Sendings(ctx context.Context, reply exchange.Reply, after string, limit int) ([]Record, error)
	// Conditions returns the destinations that fail, the last changed first.
	Conditions(ctx context.Context, limit int) ([]Condition, error)
}
