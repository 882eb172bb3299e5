package pipeline

import (
	"context"
	"encoding/json"
	"time"

	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/queue"
	"inbox/normalized"
	"inbox/policypart"
)

// JobKind is the queue kind of turns; the payload is the turn id, the partition the agent's thread.
const JobKind = "turn"

// Original is the native form of a message, stored once under its digest.
type Original struct {
	Digest    string // lower-case hex SHA-256
	MediaType string
	Body      []byte // nil when the bytes are in the blob store already
}

// Move is a conditional change of a turn's state. Every move writes the row "turn.<to>" to the timeline.
type Move struct {
	ID      string
	From    []string // the update happens only from one of these states
	To      string
	Reason  string
	Attempt int // 0 = unchanged
	At      time.Time
	// Unchanged is when the row has to have been written last, so that nothing was edited meanwhile; zero = whenever.
	Unchanged time.Time
	Before    []exchange.Event // rows of the timeline in front of that of the move; no deltas
	GivenUp   bool             // the turn has ended with a question to its asker, who wants no more of it
}

// Tx is what the pipeline does inside one transaction.
type Tx interface {
	// InsertTurn stores the turn, its original and the first timeline row "turn.<state>". When the natural key
	// (recipient, received_via, principal, message id) is taken it stores nothing and returns the row that is there.
	InsertTurn(ctx context.Context, turn exchange.TurnRecord, original Original) (stored exchange.TurnRecord, inserted bool, err error)
	MoveTurn(ctx context.Context, move Move) (bool, error)
	InsertReply(ctx context.Context, reply exchange.Reply, nativeID string) error
	// AnswerTurn is MoveTurn to an end and InsertReply of the turn's answer in one; not moved, nothing is stored.
	AnswerTurn(ctx context.Context, move Move, reply exchange.Reply, nativeID string) (moved bool, err error)
	InsertDelivery(ctx context.Context, record delivery.Record) error
	AppendEvents(ctx context.Context, turnID string, events []exchange.Event) error
	Enqueue(ctx context.Context, job queue.NewJob) error
	// EnqueueLeased stores a job as one that its owner runs already; nothing else of its partition may live.
	EnqueueLeased(ctx context.Context, job queue.NewJob, owner string, lease time.Duration) error
	Trust
	SettleJob(ctx context.Context, lease queue.Lease, outcome queue.Outcome) error
	SentTx
	DispatchTx
	AckTx
	ToolTx
	ListTx
	UnansweredTx
	DocumentTx
	TaskTx
	BackEndTx
	RetryTx
	ResultTx
	TakeoverTx
	// SettleNotice writes what became of a notice's way to the operator.
	SettleNotice(ctx context.Context, way exchange.NoticeWay) error
}

// TaskTx is what a transaction does about runs of tasks.
type TaskTx interface {
	// InsertTaskRun stores a run with its turn unless its id is taken, and reports whether it did.
	InsertTaskRun(ctx context.Context, run exchange.TaskRun) (inserted bool, err error)
}

// Trust is what a transaction does about demands, people and the record of decisions.
type Trust interface {
	InsertDemand(ctx context.Context, issuance policypart.Issuance) error
	// SettleDemand changes status, resolution, notes and turn of a demand that is in one of the statuses, and whose notes are still those that
	// were read; nil = whatever they are.
	SettleDemand(ctx context.Context, issuance policypart.Issuance, from []string, read json.RawMessage) (bool, error)
	// DropDemands closes the open demands of a turn that no asker waits for any more. The turn's row is held by then, so that no run
	// parks it meanwhile.
	DropDemands(ctx context.Context, turnID string, at time.Time) error
	// ResumeTurn lets a waiting turn be accepted again, with what it waited for.
	ResumeTurn(ctx context.Context, turnID string, resolution *policypart.Resolution, trace *normalized.Response, at time.Time) (bool, error)
	// PutLink stores a link that both sides agreed to.
	PutLink(ctx context.Context, link exchange.PersonLink) error
	Audit(ctx context.Context, record exchange.AuditRecord) error
}

// Store is what the pipeline needs of the database. The function given to InTx must not wait for anything but the
// transaction itself: on SQLite it runs inside the one writer, together with other callers' work.
type Store interface {
	InTx(ctx context.Context, work func(Tx) error) error
	// EndLinks ends the links that the filter selects, and returns them.
	EndLinks(ctx context.Context, filter exchange.LinkFilter, end exchange.LinkEnd) ([]exchange.PersonLink, error)
	Reader
}

// Reader is what the pipeline reads outside transactions.
type Reader interface {
	// Turn returns one turn with its response; fault.NotFound when there is none.
	Turn(ctx context.Context, id string) (exchange.TurnRecord, error)
	// FirstTurn returns the first turn of an agent's thread with its response.
	FirstTurn(ctx context.Context, agent, threadID string) (turn exchange.TurnRecord, found bool, err error)
	// AnsweredWith returns the id of the agent's turn that was answered with a reply of the native id.
	AnsweredWith(ctx context.Context, agent, nativeID string) (turnID string, found bool, err error)
	ThreadReader
	SentReader
	// Demand returns one demand; fault.NotFound when there is none.
	Demand(ctx context.Context, id string) (policypart.Issuance, error)
	// Approvals lists demands that someone else than their asker decides, newest first.
	Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]policypart.Issuance, error)
	// DemandOfTurn returns the newest demand of a turn.
	DemandOfTurn(ctx context.Context, turnID string) (policypart.Issuance, bool, error)
	// Events returns at most limit timeline rows of a turn with a higher seq than after, in order.
	Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error)
	DispatchReader
	ToolReader
	TakeoverReader
	// BackEnds lists the newest outage of each agent that had one.
	BackEnds(ctx context.Context) ([]BackEnd, error)
	// Earlier lists some of the messages that the sender of a turn wrote to its agent before it and that wait for a run, or have one,
	// those that wait longest first. Of those with more attempts than the turn it lists the ones that go within the time given.
	Earlier(ctx context.Context, turn exchange.TurnRecord, within time.Duration) ([]Earlier, error)
	// Sent reports whether a reply of a turn has deliveries.
	Sent(ctx context.Context, turnID, replyID string) (bool, error)
	// Turns lists turns, newest update first.
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
}
