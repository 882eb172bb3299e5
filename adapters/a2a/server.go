// Package a2a makes agents reachable by the Agent2Agent protocol: JSON-RPC, HTTP+JSON and gRPC in the versions 1.0
// and 0.3, bearer tokens, agent cards. A task is all turns of one agent and one principal with the same reference; this
// package keeps no state of its own beside a token cache of a few seconds, everything is read from the engine's
// rows. Caller is the way out: it calls agents of other servers with signed evidence; the notifier tells webhooks. The package
// does not run agents and does not validate signed evidence.
package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/admission"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/queue"
	"inbox/normalized"
	"inbox/policypart"
)

// Turns reads stored turns, newest update first.
type Turns interface {
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
	CountTurns(ctx context.Context, filter exchange.TurnFilter) (int64, error)
	// Events returns at most limit rows of a turn's timeline with a higher seq than after, in order.
	Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error)
}

// Runs follows and stops turns while they run.
type Runs interface {
	exchange.Runs
	// GiveUp writes the claim and tells of a turn that ended with a question that its owner wants no more of it, or does
	// neither; fault.Conflict when another claim has its place.
	GiveUp(ctx context.Context, turnID string, claim exchange.Claim, reason string, at time.Time) error
}

// Claims is the shared table of small private documents. It decides who continues an interrupted task.
type Claims interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
	Delete(ctx context.Context, namespace, key string) error
}

// Validator decides which of the proofs that came with a message may be relied on. It never fails: what cannot be
// checked is rejected.
type Validator interface {
	Validate(ctx context.Context, offered identity.Offered, recipient identity.Recipient) identity.Validation
}

// Limits of a request and the defaults of Options.
const (
	maxBodyBytes         = 8 << 20 // of a request of a caller that signs for itself, and default for the others
	defaultBytesInFlight = 256 << 20
	defaultWaitLimit     = 50 * time.Second // proxies in front of us give up at 60 s
	defaultKeepAlive     = 15 * time.Second
	defaultWriteTimeout  = 10 * time.Second
)

// Options configure an Adapter. Domain, PublicURL and all collaborators are required.
type Options struct {
	Domain           string        // the part after the last @ of our addresses
	PublicURL        string        // scheme, host and optional path where HTTP is reached; every URL in a card begins with it
	DefaultAgent     func() string // the agent of /.well-known/agent-card.json, as of now; nil or empty = the first agent
	SupportedInbound []string      // ways by which agents are reached, for cards: "a2a", "activitypub", "email"; empty = a2a

	Receiver  exchange.Receiver
	Directory exchange.Directory
	Turns     Turns
	Runs      Runs
	Tokens    exchange.Tokens
	Claims    Claims
	Blobs     exchange.Blobs
	// Conversations finds the conversation that a client calls by a context; optional: exchange.ByName.
	Conversations exchange.Conversations

	Validator Validator                             // optional: nil = no evidence is relied on
	Present   func(policypart.Part) policypart.Part // optional: puts the asker's secret into the url of a demand; nil = only Confine

	Verifier Verifier                                       // optional: nil = only tokens of the operator are taken
	Peers    func(agent string, peer identity.Address) bool // optional: whether an agent takes what a peer signs for itself; asked before anything is fetched
	Issuers  func() []IssuerCard                            // whose access tokens are taken now, for cards and metadata; nil = no one's

	// CardKeys returns the signing keys published in jwks.json, several during a rotation. They sign agent cards; the first, the current key,
	// also signs webhook notifications. nil = nothing is signed.
	CardKeys func(ctx context.Context) ([]identity.SigningKey, error)

	// FileURL is where a file of an answer is read that is too large to be sent; empty = nowhere. Optional: no file is.
	FileURL func(reply exchange.Reply, part normalized.Part) string

	Push Push // optional: without it webhooks are not offered
	// Links are the discovery links of an agent at other protocols, for cards: its actor and its picture. Optional.
	Links       func(agent exchange.AgentProfile) []exchange.Link
	Operator    string        // optional: who operates the server, for cards; the domain
	Contact     string        // optional: their mail address
	OperatorURL string        // optional: a web page of theirs; PublicURL
	GRPCAddress func() string // optional: host:port where gRPC is reached, for cards; empty = it is not served

	Origins []string // of web pages elsewhere that may call agents from a browser; "*" = all

	WaitLimit time.Duration // longest wait of a blocking send before the working task is returned; default 50 s
	KeepAlive time.Duration // comment lines on quiet streams; default 15 s
	// GRPCPace returns how long the other end of a gRPC connection has to wait before its next request; optional, as that of
	// HTTP is the web server's own.
	GRPCPace func(client netip.Addr) time.Duration
	// GRPCClient tells the client behind a gRPC connection from remote, where a proxy says forwarded; optional: no client is
	// known.
	GRPCClient func(remote string, forwarded []string) netip.Addr

	// MaxRequestBytes is the largest request of a caller with a token of the operator or of an issuer; default 8 MiB. Callers that sign
	// for themselves have at most 8 MiB.
	MaxRequestBytes int64
	// Bodies counts the bytes of requests by gRPC that are in memory, as the web server counts its own; optional: one of 256 MiB.
	Bodies *admission.Bytes

	WebhookConcurrency int // webhooks called at once
	CallerConcurrency  int // requests of one caller under way at the same time, streams among them; default 2000

	WriteTimeout time.Duration // a reader of a stream that takes longer for one event is dropped; default 10 s
	Logger       *slog.Logger
}

// IssuerCard is what callers are told about an issuer of access tokens.
type IssuerCard struct {
	Name      string // value of iss
	Discovery string // its OpenID Connect metadata; empty = not published
}

func (o *Options) check() error {
	switch {
	case o.Domain == "":
		return errors.New("a2a: Domain is empty")
	case o.Receiver == nil, o.Directory == nil, o.Turns == nil, o.Runs == nil, o.Tokens == nil, o.Claims == nil, o.Blobs == nil:
		return errors.New("a2a: a collaborator is missing")
	}

	u, err := url.Parse(o.PublicURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return errors.New("a2a: PublicURL must be an absolute http or https URL")
	}
	return nil
}

func (o *Options) defaults() {
	if o.Conversations == nil {
		o.Conversations = exchange.ByName{}
	}
	if o.DefaultAgent == nil {
		o.DefaultAgent = func() string { return "" }
	}
	if o.Issuers == nil {
		o.Issuers = func() []IssuerCard { return nil }
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
	if o.MaxRequestBytes <= 0 {
		o.MaxRequestBytes = maxBodyBytes
	}
	if o.Bodies == nil {
		o.Bodies = admission.NewBytes(defaultBytesInFlight, o.MaxRequestBytes)
	}
	if o.CallerConcurrency <= 0 {
		o.CallerConcurrency = defaultCallerConcurrency
	}
	if len(o.SupportedInbound) == 0 {
		o.SupportedInbound = []string{"a2a"}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.GRPCAddress == nil {
		o.GRPCAddress = func() string { return "" }
	}
}

// Adapter is the A2A edge of the server.
type Adapter struct {
	*tasks
	authenticator
	notifier *notifier
	limiter  *callerLimiter
	origins  *httpserver.Origins

	rpc1, rpc03, rest1, rest03 http.Handler // the SDK's bindings, one of each for all agents
}

// New makes an Adapter; its error names the option that is missing.
func New(options Options) (*Adapter, error) {
	if err := options.check(); err != nil {
		return nil, err
	}

	options.defaults()
	origin, err := url.Parse(options.PublicURL)
	if err != nil {
		return nil, err
	}

	if options.Present == nil {
		options.Present = func(part policypart.Part) policypart.Part { return part.Confine(origin) }
	}

	described := &cards{options: &options, base: strings.TrimSuffix(options.PublicURL, "/"), log: options.Logger}
	known := &tasks{codec: codec{blobs: options.Blobs}, options: &options, log: options.Logger}
	a := &Adapter{
		tasks: known, notifier: &notifier{known},
		authenticator: authenticator{cards: described, tokens: bearer.NewCache(options.Tokens)},
		limiter:       newCallerLimiter(options.CallerConcurrency),
		origins:       originsOf(options.Origins),
	}

	handler := &handler{Adapter: a}
	keepAlive := a2asrv.WithTransportKeepAlive(options.KeepAlive)
	a.rpc1 = a2asrv.NewJSONRPCHandler(handler, keepAlive)
	a.rpc03 = a2av0.NewJSONRPCHandler(handler, keepAlive)
	a.rest1 = a2asrv.NewRESTHandler(handler, keepAlive)
	a.rest03 = a2av0.NewRESTHandler(handler, keepAlive)
	return a, nil
}

// catalogType is a link set with the profile of RFC 9727, section 4.2.
const catalogType = `application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"`

// Routes are the endpoints and the cards. JSON-RPC answers with and without a slash at the end, because conformance
// clients post to "<interface url>/" and must not be redirected.
func (a *Adapter) Routes() []httpserver.Route {
	card, first := varied(a.cached(a.agentCard)), varied(a.cached(a.defaultCard))
	return []httpserver.Route{
		{Pattern: "/a2a/{agent}", Handler: a.edge(false, a.serveRPC)},
		{Pattern: "/a2a/{agent}/", Handler: a.edge(false, a.serveRPC)},
		{Pattern: "/a2a/{agent}/rest/*", Handler: a.edge(true, a.serveREST)},
		{Pattern: "/a2a/{agent}/v1/*", Handler: a.edge(true, a.serveREST03)},
		{Pattern: "/a2a/{agent}/.well-known/agent-card.json", Handler: card},
		{Pattern: "/a2a/{agent}/.well-known/agent.json", Handler: card},
		{Pattern: "/.well-known/api-catalog", Handler: a.cachedAs(catalogType, func(*http.Request) ([]byte, error) { return a.catalog() })},
		{Pattern: resourceMetadataPath + "/a2a/{agent}", Handler: a.cached(a.resourceMetadata)},
		{Pattern: "/.well-known/agent-card.json", Handler: first},
		{Pattern: "/.well-known/agent.json", Handler: first},
		{Pattern: "/.well-known/agent-card/{agent}", Handler: a.cached(a.mentionableCard)},
	}
}

// ChannelName is the name of the channel.
const ChannelName = "a2a"

// webhookSchedule is the waiting time between attempts to reach a webhook: about a day.
var webhookSchedule = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// Module returns the channel as a node runs it. The changes of watched turns are brought to webhooks, those of one webhook in
// order.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{
		Name: ChannelName, ReceivedVia: normalized.ViaA2A, Channel: a, Routes: a.Routes(), Links: a.Links,
		Jobs: []exchange.Job{{
			Kind: exchange.WatchKind,
			Options: queue.KindOptions{
				Concurrency: a.options.WebhookConcurrency, Schedule: webhookSchedule, MaxAttempts: len(webhookSchedule) + 1,
			},
			Handler: a.notifier.runNotification,
		}},
	}
}

var (
	_ exchange.Channel = (*Adapter)(nil)
	_ exchange.Awaited = (*Adapter)(nil)
)

// Plan has no destinations: the peer fetches its answer with the blocking call, the stream or GetTask.
func (a *Adapter) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{}, nil
}

// Deliver is never asked, because Plan names no destination.
func (a *Adapter) Deliver(context.Context, exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return exchange.DeliveryReceipt{}, fault.GiveUp("A2A answers are fetched by the peer", nil)
}

// Awaits reports whether the client of a question waits for the answer, instead of fetching the task later.
func (*Adapter) Awaits(kept json.RawMessage) bool {
	return routeOf(exchange.TurnRecord{Route: kept}).Awaited
}
