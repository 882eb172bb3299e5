package chat

import (
	"context"
	"log/slog"
	"time"

	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// Turns reads stored turns and their events.
type Turns interface {
	Turn(ctx context.Context, id string) (exchange.TurnRecord, error)
	// Turns lists newest update first.
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
	Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error)
}

// Memory forgets what was said.
type Memory interface {
	// ForgetThread removes the texts of the turns of a thread that have ended; again after a crash.
	ForgetThread(ctx context.Context, agent, threadID string) (turns int, err error)
	// DeleteSession removes a session with its texts; fault.NotFound without it.
	DeleteSession(ctx context.Context, owner, id string) error
}

// Options configure an Adapter. Domain and all collaborators are required.
type Options struct {
	Domain    string // the part after the last @ of our addresses
	PublicURL string // where HTTP is reached: signed tokens are made out to it

	Receiver  exchange.Receiver
	Directory exchange.Directory
	Turns     Turns
	Runs      exchange.Runs
	Tokens    exchange.Tokens
	Memory    Memory
	// Conversations finds the conversation that a client calls by a session; optional: exchange.ByName.
	Conversations exchange.Conversations

	Issued Issued // checks signed tokens; nil = none are taken

	// ToolKind returns who executes a client tool of an agent, by its canonical name ("client/look_up"); empty when it is none. With
	// an empty name it reports whether the agent has such tools, and ToolOfAsker if one of them is its asker's. nil = no agent has any.
	ToolKind func(agent, tool string) string
	Tools    ToolRequests // required with ToolKind

	// Formats reports whether an agent can hold its answers to a kind of exchange.Format; nil = no agent can.
	Formats func(agent, kind string) bool

	// Guests reports whether an agent answers people who prove nothing; nil = no agent does.
	Guests func(agent string) bool
	Secret []byte // from which the sessions of guests are made, the same on all nodes; required with Guests
	// Opening is what a chat with an agent begins with; nil = nothing of its own.
	Opening func(agent string) Opening
	// Present puts the asker's secret into the url of a demand; nil = the part stays as it is.
	Present func(policypart.Part) policypart.Part

	// FileURL is where a file of an answer can be read; empty = nowhere. nil = no file can.
	FileURL func(reply exchange.Reply, part normalized.Part) string

	Limits normalized.Limits // of a message; zero = DefaultLimits

	MaxRequestBytes int64        // of a request with files; the HTTP server takes no larger one; default 10 MiB
	GuestBytes      func() int64 // the largest message of a guest, files included; 0 = MaxRequestBytes alone bounds it; nil = 5 MiB

	Spool string // directory in which large requests of guests wait; empty = that of the operating system

	Origins []string // of web pages that may call from elsewhere; "*" = all

	WaitLimit    time.Duration // longest wait for an answer that is not streamed; default 2 min
	KeepAlive    time.Duration // comment lines on quiet streams; default 15 s
	WriteTimeout time.Duration // a reader of a stream that takes longer for one frame is dropped; default 10 s
	Logger       *slog.Logger
}

// Defaults of Options.
const (
	defaultRequestBytes = 10 << 20
	defaultGuestBytes   = 5 << 20
	defaultWaitLimit    = 2 * time.Minute
	defaultKeepAlive    = 15 * time.Second
	defaultWriteTimeout = 10 * time.Second
)

func (o *Options) defaults() {
	if o.Conversations == nil {
		o.Conversations = exchange.ByName{}
	}
	if o.Guests == nil {
		o.Guests = func(string) bool { return false }
	}
	if o.Opening == nil {
		o.Opening = func(string) Opening { return Opening{} }
	}
	if o.Formats == nil {
		o.Formats = func(string, string) bool { return false }
	}
	if o.ToolKind == nil {
		o.ToolKind = func(string, string) string { return "" }
	}
	if o.FileURL == nil {
		o.FileURL = func(exchange.Reply, normalized.Part) string { return "" }
	}
	if o.Present == nil {
		o.Present = func(part policypart.Part) policypart.Part { return part }
	}
	if o.MaxRequestBytes <= 0 {
		o.MaxRequestBytes = defaultRequestBytes
	}
	if o.GuestBytes == nil {
		o.GuestBytes = func() int64 { return defaultGuestBytes }
	}
	if o.WaitLimit <= 0 {
		o.WaitLimit = defaultWaitLimit
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = defaultKeepAlive
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = defaultWriteTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}
