// Package chat makes agents reachable by chat clients over HTTP: JSON-RPC chat (agent runtime contract, section 6.5),
// plain REST chat, an API in the form of OpenAI's, and a chat for web pages. A run is a turn of the engine and a session
// is a thread; nothing is kept here, streams are read from the rows of the turn's events, so that any node resumes them.
// Messages say received_via "a2a" (message contract, section 1). The package does not run agents, and the contract of the
// frames itself is in adapters/chat/contract.
package chat

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/httpserver"
	"inbox/normalized"
	"inbox/policypart"
)

// Receiver accepts one message durably. Errors are *fault.Fault.
type Receiver interface {
	Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error)
}

// Directory knows the agents; names are compared case-insensitively.
type Directory interface {
	Agent(name string) (exchange.AgentProfile, bool)
	Agents() []exchange.AgentProfile
}

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

// Runs follows turns while they run.
type Runs interface {
	// Wait blocks until the turn ended or waits for somebody; the end of ctx is its error.
	Wait(ctx context.Context, turnID string) (exchange.TurnRecord, error)
	// Follow yields the turn's events after a seq in order, live, and ends after the terminal one.
	Follow(ctx context.Context, turnID string, after int64) iter.Seq2[exchange.Event, error]
	// Cancel ends a turn that has no answer yet; Conflict when it ended already.
	Cancel(ctx context.Context, turnID, reason string) (exchange.TurnRecord, error)
}

// Tokens finds a bearer token by the lower-case hex SHA-256 of its text.
type Tokens interface {
	TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error)
}

// Blobs keeps the bytes of files that are too large for a message.
type Blobs interface {
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
}

// Defaults of Options.
const (
	defaultWaitLimit    = 2 * time.Minute
	defaultKeepAlive    = 15 * time.Second
	defaultWriteTimeout = 10 * time.Second
)

// Options configure an Adapter. Domain and all collaborators are required.
type Options struct {
	Domain    string // the part after the last @ of our addresses
	PublicURL string // where HTTP is reached: signed tokens are made out to it

	Receiver  Receiver
	Directory Directory
	Turns     Turns
	Runs      Runs
	Tokens    Tokens
	Blobs     Blobs
	Memory    Memory
	Issued    Issued // checks signed tokens; nil = none are taken

	// ToolKind says who executes a client tool of an agent, by any of its names; empty when it is none. With an empty name it
	// reports whether the agent has such tools, and ToolOfAsker if one of them is its asker's. nil = no agent has any.
	ToolKind func(agent, tool string) string
	Tools    ToolRequests // required with ToolKind

	// Guests reports whether an agent answers people who prove nothing; nil = no agent does.
	Guests func(agent string) bool
	// ShowsTools reports whether an agent's calls of tools are shown; nil = never.
	ShowsTools func(agent string) bool
	// Present puts the asker's secret into the url of a demand; nil = the part stays as it is.
	Present func(policypart.Part) policypart.Part

	// FileURL is where a file of an answer can be read; empty = nowhere. nil = no file can.
	FileURL func(reply exchange.Reply, part normalized.Part) string

	Origins []string // of web pages that may call from elsewhere; "*" = all

	WaitLimit    time.Duration // longest wait for an answer that is not streamed; default 2 min
	KeepAlive    time.Duration // comment lines on quiet streams; default 15 s
	WriteTimeout time.Duration // a reader of a stream that takes longer for one frame is dropped; default 10 s
	Logger       *slog.Logger
}

// Adapter is the chat edge of the server.
type Adapter struct {
	options Options
	base    string // PublicURL without a slash at the end
	tokens  *bearer.Cache
	log     *slog.Logger

	renderings renderings
}

// New makes an Adapter; the error says what is missing.
func New(options Options) (*Adapter, error) {
	if options.Domain == "" {
		return nil, errors.New("chat: Domain is empty")
	}
	if options.Receiver == nil || options.Directory == nil || options.Turns == nil || options.Runs == nil || options.Tokens == nil || options.Blobs == nil || options.Memory == nil {
		return nil, errors.New("chat: a collaborator is missing")
	}
	options.defaults()
	return &Adapter{options: options, base: strings.TrimSuffix(options.PublicURL, "/"), tokens: bearer.NewCache(options.Tokens), log: options.Logger}, nil
}

func (o *Options) defaults() {
	if o.Guests == nil {
		o.Guests = func(string) bool { return false }
	}
	if o.ToolKind == nil {
		o.ToolKind = func(string, string) string { return "" }
	}
	if o.FileURL == nil {
		o.FileURL = func(exchange.Reply, normalized.Part) string { return "" }
	}
	if o.ShowsTools == nil {
		o.ShowsTools = func(string) bool { return false }
	}
	if o.Present == nil {
		o.Present = func(part policypart.Part) policypart.Part { return part }
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

// Routes are the endpoints and the web chat.
func (a *Adapter) Routes() []httpserver.Route {
	return append(a.webRoutes(), a.withPreflight(append(a.openAIRoutes(), []httpserver.Route{
		{Method: http.MethodPost, Pattern: "/v1/agent/{agent}", Handler: a.edge("jsonrpc", a.serveRPC)},
		{Method: http.MethodPost, Pattern: "/v1/chat", Handler: a.edge("rest", a.serveChat)},
		{Method: http.MethodGet, Pattern: "/v1/chat", Handler: a.edge("rest", a.serveSession)},
		{Method: http.MethodDelete, Pattern: "/v1/chat", Handler: a.edge("rest", a.serveForget)},
		{Method: http.MethodPost, Pattern: "/v1/chat/stop", Handler: a.edge("rest", a.serveStop)},
	}...))...)
}
