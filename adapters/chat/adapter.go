// Package chat makes agents reachable by chat clients over HTTP: JSON-RPC chat (agent runtime contract, section 6.5),
// plain REST chat, an API in the form of OpenAI's, and a chat for web pages. A run is a turn of the engine and a session
// is a thread; nothing is kept here, streams are read from the rows of the turn's events, so that any node resumes them.
// Messages say received_via "a2a" (message contract, section 1). The package does not run agents, and the contract of the
// frames itself is in adapters/chat/contract.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
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

var requests = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_chat_requests_total",
	Help: "Requests at the chat edge, by surface (jsonrpc, rest, openai) and outcome (done, refused, failed).",
}, []string{"surface", "outcome"})

// handler answers a request; an error that it gives was not answered yet.
type handler func(w http.ResponseWriter, r *http.Request) error

// edge does what all endpoints have in common: CORS, count and errors.
func (a *Adapter) edge(surface string, serve handler) http.Handler {
	write := httpserver.WriteFault
	if surface == surfaceOpenAI {
		write = writeOpenAIError
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.allowOrigin(w, r)
		err := serve(w, r)
		requests.WithLabelValues(surface, outcomeOf(err)).Inc()
		if err == nil || r.Context().Err() != nil { // or nobody reads
			return
		}
		challenge(w.Header(), err)
		if surface == surfaceOpenAI && outcomeOf(err) == "failed" {
			a.log.ErrorContext(r.Context(), "a chat request failed", "error", err)
		}
		write(w, err)
	})
}

// challenge says how to authenticate (RFC 9110, section 11.6.1).
func challenge(header http.Header, err error) {
	if refused, is := errors.AsType[*unidentified](err); is {
		header["Www-Authenticate"] = refused.challenges
		return
	}
	if fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden) {
		header.Set("WWW-Authenticate", `Bearer realm="inbox"`)
	}
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "done"
	case fault.Of(err).Kind == fault.Internal, fault.Is(err, fault.Unavailable):
		return "failed"
	}
	return "refused"
}

// readBody takes the whole body: it is the original that is stored with the message. Pages of strangers can make a
// browser send other media types without asking us first (Fetch standard, CORS-safelisted request headers), so only JSON
// is read.
func (a *Adapter) readBody(r *http.Request, who caller) ([]byte, error) {
	return a.readBodyUpTo(r, who, contract.MaxInputBytes)
}

// maxGuestBytes bounds the request of a caller who proves nothing.
const maxGuestBytes = 256 << 10

func (a *Adapter) readBodyUpTo(r *http.Request, who caller, limit int64) ([]byte, error) {
	switch {
	case who.token != nil:
		httpserver.Proven(r)
	case who.guest() && !slices.ContainsFunc(a.options.Directory.Agents(), func(agent exchange.AgentProfile) bool { return a.options.Guests(agent.Name) }):
		callers.WithLabelValues("closed").Inc()
		return nil, fault.New(fault.Forbidden, "no agent here takes messages without a bearer token")
	case who.guest():
		limit = min(limit, maxGuestBytes)
	}
	if declared := r.Header.Get("Content-Type"); declared != "" {
		if mediaType, _, err := mime.ParseMediaType(declared); err != nil || mediaType != "application/json" {
			return nil, fault.New(fault.Unsupported, "Content-Type must be application/json")
		}
	} else if r.Header.Get("Origin") != "" {
		return nil, fault.New(fault.Unsupported, "Content-Type must be application/json")
	}
	body, err := httpserver.ReadBody(r, limit)
	if fault.Is(err, fault.TooLarge) {
		return nil, tooLarge(limit)
	}
	return body, err
}

func tooLarge(limit int64) error {
	if limit < 1<<20 {
		return fault.Newf(fault.TooLarge, "the request is over %d KiB, which is the most without a bearer token", limit>>10)
	}
	return fault.Newf(fault.TooLarge, "the request is over %d MiB", limit>>20)
}

const (
	maxAge         = "600" // seconds that browsers keep a preflight
	allowedHeaders = "Authorization, Content-Type, Last-Event-ID, " + sessionHeader
)

// allowOrigin lets pages of the configured origins read the answer. No cookie means anything here, so credentials in the
// sense of CORS are never allowed.
func (a *Adapter) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	switch {
	case slices.Contains(a.options.Origins, "*"):
		w.Header().Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(a.options.Origins, origin):
		w.Header().Set("Access-Control-Allow-Origin", origin)
	default:
		return false
	}
	w.Header().Set("Access-Control-Expose-Headers", "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id")
	return true
}

// withPreflight adds the answer to a browser's question before a request from elsewhere, once for each path.
func (a *Adapter) withPreflight(routes []httpserver.Route) []httpserver.Route {
	methods := map[string]string{}
	var patterns []string
	for _, route := range routes {
		if methods[route.Pattern] == "" {
			patterns = append(patterns, route.Pattern)
		} else {
			methods[route.Pattern] += ", "
		}
		methods[route.Pattern] += route.Method
	}
	for _, pattern := range patterns {
		routes = append(routes, httpserver.Route{Method: http.MethodOptions, Pattern: pattern, Handler: a.preflight(methods[pattern])})
	}
	return routes
}

func (a *Adapter) preflight(methods string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Replace(methods, http.MethodGet, "GET, HEAD", 1)+", OPTIONS")
		if a.allowOrigin(w, r) {
			w.Header().Set("Access-Control-Allow-Methods", methods)
			w.Header().Set("Access-Control-Allow-Headers", headersFor(r.Header.Get("Access-Control-Request-Headers")))
			w.Header().Set("Access-Control-Max-Age", maxAge)
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// headersFor allows what the page asks for: SDKs add headers of their own to each request, and none of them opens
// anything here.
func headersFor(asked string) string {
	if asked == "" || len(asked) > 1024 {
		return allowedHeaders
	}
	return asked
}

// ChannelName is the name of the channel.
const ChannelName = "chat"

// Module returns the channel as a node runs it.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{Name: ChannelName, ReceivedVia: normalized.ViaA2A, Channel: a, Routes: a.Routes()}
}

var (
	_ exchange.Historian = (*Adapter)(nil)
	_ exchange.Awaited   = (*Adapter)(nil)
)

// Plan has no destinations: the client fetches its answer.
func (*Adapter) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{}, nil
}

// Deliver is never asked, because Plan names no destination.
func (*Adapter) Deliver(context.Context, exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return exchange.DeliveryReceipt{}, fault.GiveUp("answers of a chat are fetched by the client", nil)
}

// Awaits reports that the asker looks at the page, or holds the request open.
func (*Adapter) Awaits(json.RawMessage) bool { return true }
