package exchange

import (
	"context"
	"io"
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

// Threads finds a stored message by its own id or by the native id of its reply.
type Threads interface {
	FindMessage(ctx context.Context, agent, nativeID string) (ThreadEntry, bool, error)
}

// Files reads stored bytes by their digest, the lower-case hex SHA-256. Unknown ones are fault.NotFound.
type Files interface {
	Open(ctx context.Context, digest string) (io.ReadCloser, error)
}
