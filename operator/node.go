package operator

import "context"

// Reloaded says what a server took over when it read its configuration again, by the keys of the file.
type Reloaded struct {
	File string `json:"file"`
	// Changed are the keys in which the file differs from what the server ran with, and that hold now.
	Changed []string `json:"changed"`
	// UnchangedUntilRestart are those that keep their old values until the server starts again.
	UnchangedUntilRestart []string `json:"unchanged_until_restart"`
}

// Node is the running server that an operator asks, for what the database alone cannot do.
type Node interface {
	// Reload reads the configuration of this node again. fault.Malformed for a bad one, which changes nothing.
	Reload(ctx context.Context) (Reloaded, error)
	// Stop lets this node end as for SIGTERM: it is not ready any more, serves on for a moment, then ends what it has begun and is gone. It
	// returns before that.
	Stop(ctx context.Context) error
	// RotateActorKey makes a new key for the account of an agent in the fediverse, and returns its id; the name may be the domain.
	RotateActorKey(ctx context.Context, name string) (string, error)
	// MoveAgent tells the followers of an agent that it is another account now, and returns that account's id.
	MoveAgent(ctx context.Context, agent, target string) (string, error)
	// UnmoveAgent lets the agent be here again.
	UnmoveAgent(ctx context.Context, agent string) error
}
