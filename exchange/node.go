package exchange

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
)

// The interfaces below are what several rooms need of the node that they belong to, declared once. What one room needs alone stands beside
// its Options.

// Receiver takes one message durably: when it returns without an error the message is stored with fsync and will be answered.
// Errors are *fault.Fault.
type Receiver interface {
	Receive(ctx context.Context, in Inbound) (Receipt, error)
}

// Directory finds the agents of the node; names are compared case-insensitively.
type Directory interface {
	Agent(name string) (AgentProfile, bool)
	Agents() []AgentProfile
}

// Tokens finds a bearer token of the operator by the lower-case hex SHA-256 of its text; revoked ones too.
type Tokens interface {
	TokenByHash(ctx context.Context, hash string) (Token, bool, error)
}

// Threads finds the conversation that a message continues. Ids of messages travel in plain sight, so that knowing one opens nothing:
// only messages count that the party wrote or that were meant for it, see Audience.
type Threads interface {
	// ContinuedMessage finds a message of the agent on the channel by its own id or by that of its answer. Ids are tried in order.
	ContinuedMessage(ctx context.Context, agent, channel, principal string, nativeIDs []string) (ThreadEntry, bool, error)
	// RepliedMessage finds the message of the agent on the channel that was answered with the id, whichever sender it had. It is for counting only: who
	// knows the id may see nothing of the message.
	RepliedMessage(ctx context.Context, agent, channel, nativeID string) (ThreadEntry, bool, error)
	// SentMessage finds the message with the id that the principal sent to the agent.
	SentMessage(ctx context.Context, agent, principal, nativeID string) (ThreadEntry, bool, error)
}

// Runs follows and stops turns while they run.
type Runs interface {
	// Wait blocks until the turn ended or waits for another party; the end of ctx is its error.
	Wait(ctx context.Context, turnID string) (TurnRecord, error)
	// Cancel ends a turn without answer; fault.Conflict when it ended already.
	Cancel(ctx context.Context, turnID, reason string) (TurnRecord, error)
	// Follow yields the turn's events after a seq in order, live, and ends after the terminal one.
	Follow(ctx context.Context, turnID string, after int64) iter.Seq2[Event, error]
}

// Files reads stored bytes by their digest, the lower-case hex SHA-256. Unknown ones are fault.NotFound.
type Files interface {
	Open(ctx context.Context, digest string) (io.ReadCloser, error)
}

// Blobs keeps the bytes of files that are too large for a message.
type Blobs interface {
	Files
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
}

// Upload is a file that a program hands in for an answer of its agent.
type Upload struct {
	ID    string // UUIDv7
	Agent string
	Size  int64 // bytes
}

// Sealer keeps secrets of peers unreadable in the database.
type Sealer interface {
	Seal(ctx context.Context, secret []byte, purpose string) (string, error)
	Open(ctx context.Context, sealed, purpose string) ([]byte, error)
}

// WebClient sends requests under the outgoing address policy (internal/safehttp): it checks addresses after resolving
// and when it connects, and follows no redirects.
type WebClient interface {
	Do(request *http.Request) (*http.Response, error)
	// CheckTarget refuses an address that could not be requested now; a name is looked up.
	CheckTarget(ctx context.Context, u *url.URL) error
}
