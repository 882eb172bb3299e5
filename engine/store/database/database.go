// Package database is what the tables of the store stand on: SQLite or PostgreSQL with the schema of this version, transactions, reads, and
// the notifications of commits. Of the tables it knows only what the kind of the database makes it know: which are copied, which had something
// of a person. What rows mean is the store's.
package database

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"inbox/internal/fault"
	"inbox/migrations"
)

// Kinds of databases.
const (
	SQLite   = migrations.SQLite
	Postgres = migrations.Postgres
)

// Channels of notifications.
const (
	ChannelJob  = "job"  // payload: kind of a job that may be runnable now; empty = any kind
	ChannelTurn = "turn" // payload: id of a turn with new timeline rows; empty = any turn

	ChannelLists = "lists" // no payload: the operator's lists or a sender's stop word changed, or an erasure was begun

	ChannelTokens = "tokens" // no payload: a token was revoked or removed; its transaction gives the lists a new version

	ChannelBridge = "bridge" // payload: id of a bridge's client whose queue changed; empty = any client's
)

// Options are what Open needs. URL is required, and Connections or Readers, Logger.
type Options struct {
	URL                string // "sqlite", or "postgres://…" as PostgreSQL's own tools read it
	DataDir            string // holds the SQLite file, and is created when missing; keeps PostgreSQL's newest timeline, where there is one
	Connections        int    // bounds the PostgreSQL connections of this node; one more is kept by Listen
	Readers            int    // how many SQLite connections read beside the writer
	RequireSynchronous bool   // nothing is committed while PostgreSQL would not wait for a synchronous standby
	AsFound            bool   // the schema is left as it is, also an older one
	NoUpgrade          bool   // an older schema is refused (OlderSchema); an empty database gets the newest one
	Logger             *slog.Logger
}

// Engine is one open database. It is safe for use by many goroutines.
type Engine interface {
	Kind() string // SQLite or Postgres
	// Transact runs work in one transaction; work may run again when the database asks for it. Errors of work come back as they are; those of
	// the database are fault.Unavailable.
	Transact(ctx context.Context, work func(Session) error) error
	Reader() Querier
	// Ping reports whether the database answers; its error is fault.Unavailable.
	Ping(ctx context.Context) error
	// Announce tells other nodes what was committed; it does not wait for them.
	Announce(wakes []Wake)
	// Listen passes the notifications of other nodes on until ctx ends. It connects again after a failure and then notifies with empty payloads.
	Listen(ctx context.Context, notify func(channel, payload string)) error
	// ForgetFree overwrites what was removed and stands on in free places, and returns what it could not reach.
	ForgetFree(ctx context.Context) (remains []string, err error)
	// Replaced is called after texts were replaced that must not stand on.
	Replaced(ctx context.Context)
	// Size returns the bytes of the database, and how many of them hold nothing; 0 where that is not known.
	Size(ctx context.Context) (total, free int64, err error)
	// Damage returns the first damage that this process met; nil = none.
	Damage() *Damage
	// Examine reads all pages and returns what is wrong with them; false where the database has no such check.
	Examine(ctx context.Context) (problems []string, able bool, err error)
	// HasSchema reports whether any migration was applied.
	HasSchema(ctx context.Context) (bool, error)
	// Snapshot opens a view of the whole database at one moment, which is said to be at. Writers are not held up.
	Snapshot(ctx context.Context, at time.Time) (*Snapshot, error)
	// Close waits for transactions that have begun, and refuses new ones.
	Close() error
}

// Open connects and applies the migrations, or refuses a newer schema (NewerSchema) and, with NoUpgrade, an older one (OlderSchema). The error of a database that cannot be used is
// fault.Unavailable and names what to change.
func Open(ctx context.Context, options Options) (Engine, error) {
	switch {
	case options.URL == "sqlite":
		return openSQLite(ctx, options)
	case strings.HasPrefix(options.URL, "postgres://"), strings.HasPrefix(options.URL, "postgresql://"):
		return openPostgres(ctx, options)
	}

	return nil, fault.New(fault.Malformed, `database_url must be "sqlite" or begin with "postgres://"`)
}
