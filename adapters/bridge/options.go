package bridge

import (
	"context"
	"log/slog"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// Turns reads stored turns.
type Turns interface {
	Turn(ctx context.Context, id string) (exchange.TurnRecord, error)
	// TurnOf returns the newest turn of a principal whose message has the native id; fault.NotFound when there is none.
	TurnOf(ctx context.Context, principal, nativeID string) (exchange.TurnRecord, error)
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
	Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error)
	// ThreadResults lists the results of the runs of a thread, in their order, with their audits and without their documents.
	ThreadResults(ctx context.Context, agent, threadID string) ([]exchange.RunResult, error)
}

// Queue keeps clients and what waits for them.
type Queue interface {
	contract.Store
	// Offer keeps an item unless its id was ever queued. There is always room for it: Room was asked before its question
	// was taken.
	Offer(ctx context.Context, item contract.Item) error
	// Room reports whether the queue of a client takes more: contract.ErrFull.
	Room(ctx context.Context, client string) error
	// Item returns an item of a client that was not acknowledged.
	Item(ctx context.Context, client, id string) (contract.Item, bool, error)
	// Register is PutClient with the sealed secret of its callback; empty = the one that it has.
	Register(ctx context.Context, client contract.Client, secret string) error
	// ClientSecret returns a client with that secret.
	ClientSecret(ctx context.Context, id string) (client contract.Client, secret string, found bool, err error)
}

// Sessions keeps conversations. What belongs to another owner is not found.
type Sessions interface {
	CreateSession(ctx context.Context, session exchange.Session) (stored exchange.Session, created bool, err error)
	Session(ctx context.Context, owner, id string) (exchange.Session, bool, error)
	Sessions(ctx context.Context, filter exchange.SessionFilter) ([]exchange.Session, error)
	RenameSession(ctx context.Context, owner, id, title string) error
	TouchSession(ctx context.Context, owner, id string, at time.Time) error
	DeleteSession(ctx context.Context, owner, id string) error
	ChannelSession(ctx context.Context, key contract.SessionKey, fresh exchange.Session) (exchange.Session, error)
	ImportSession(ctx context.Context, session exchange.Session, messages []string) (stored exchange.Session, created bool, err error)
	Transcript(ctx context.Context, owner, id string) ([]string, error)
}

// RunNotes keeps notes about runs by their run_id.
type RunNotes interface {
	// Claim stores a new note and is true for exactly one caller of its run_id.
	Claim(ctx context.Context, note map[string]any) (bool, error)
	// Get returns a note, nil when there is none.
	Get(ctx context.Context, runID string) (map[string]any, error)
	// Update replaces a note by what change makes of it, with no other change in between, and returns the new one; nil when there
	// is none. change may run more than once and must not keep what it gets.
	Update(ctx context.Context, runID string, change func(note map[string]any) (map[string]any, error)) (map[string]any, error)
}

// Validator decides which signed evidence may be relied on, and what a connector that proved itself may vouch for.
type Validator interface {
	Validate(ctx context.Context, offered identity.Offered, recipient identity.Recipient) identity.Validation
	Covers(evidence identity.Evidence) bool
}

// Options configure an Adapter. All collaborators are required.
type Options struct {
	Domain string // the part after the last @ of our addresses

	Receiver  exchange.Receiver
	Directory exchange.Directory
	Turns     Turns
	Runs      exchange.Runs
	Tokens    exchange.Tokens
	Queue     Queue
	Sessions  Sessions
	SessionOf func(owner string) contract.Sessions // the map of outside conversations of an owner, for imports
	Notes     RunNotes                             // who asked to stop a run
	Sealer    exchange.Sealer
	Web       exchange.WebClient // for the callbacks of bridges, which their clients register
	Validator Validator
	Present   func(policypart.Part) policypart.Part // puts the asker's secret into the url of a demand

	// FileURL is where a file of an answer is read; empty = nowhere. Optional: no stored file is.
	FileURL func(reply exchange.Reply, part normalized.Part) string

	Connectors func() []Connector // of now; nil = none. The list does not change

	Policy              exchange.Policy // of deliveries; callbacks follow its schedule
	CallbackConcurrency int             // callbacks called at once

	WaitLimit    time.Duration // longest time that a request waits for an answer; default 50 s
	KeepAlive    time.Duration // comment lines on quiet streams; default 15 s
	WriteTimeout time.Duration // a reader that takes longer for one event is dropped; default 10 s
	Logger       *slog.Logger
}
