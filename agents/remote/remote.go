// Package remote is the agent that lives elsewhere and speaks A2A: it passes each turn on to the agent that a card
// describes and reads the answer back, whole or as it grows. It keeps one conversation there for each thread here and
// recognises its own repeats. It is a client only; it neither discovers agents by address nor takes webhooks, and it
// retries no turn by itself: it reports whether a retry may help. The operator's side is in docs/agents/remote.md.
package remote

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"net/url"
	"time"

	"github.com/a2aproject/a2a-go/v2/log"

	"inbox/agents"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// Defaults of Options.
const (
	DefaultTimeLimit        = 4*time.Minute + 30*time.Second
	DefaultIdleLimit        = 60 * time.Second
	DefaultMaxResponseBytes = 8 << 20
	DefaultMaxFileBytes     = 4 << 20
	DefaultPollInterval     = 500 * time.Millisecond
	DefaultThreadLife       = 90 * 24 * time.Hour
)

// State keeps which conversation and which task there belong to a thread here. A value outlives the process, and is gone
// after expires. All nodes see the same values.
type State interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
}

// Blobs keeps files that are too large for a message, under their lower-case hex SHA-256.
type Blobs interface {
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
	Open(ctx context.Context, digest string) (io.ReadCloser, error)
}

// ClientCredentials is the OAuth 2 grant of that name (RFC 6749, section 4.4).
type ClientCredentials struct {
	TokenURL     string
	ClientID     string
	ClientSecret string
	Scopes       []string
}

// Options configure an Agent. CardURL, Client and State are required.
type Options struct {
	// CardURL is the address of the agent card; of an address without it the well-known path is taken.
	CardURL string
	// Client is the way out; the agent makes itself copies that also trust the host of CardURL, the endpoint on that
	// host, EndpointHosts and the token address.
	Client *safehttp.Client
	State  State

	Token       string             // bearer token; empty = none
	Credentials *ClientCredentials // instead of Token
	// Assert signs which of our agents asks, for one request to the agent named by audience. It is shown where neither Token
	// nor Credentials are given and the card asks for authentication; nil = never.
	Assert func(ctx context.Context, agent, audience string) (string, error)

	EndpointHosts []string // further host:port pairs where the card may lead and where the credentials may be shown

	Blobs   Blobs                                                        // optional: without it larger files are named and left out
	FileURL func(digest, name string) string                             // optional: an address of a stored file that is over MaxFileBytes
	BaseURL *url.URL                                                     // ours: where the address of a demand may lead; nil = nowhere
	Limits  normalized.Limits                                            // of the answer's content; zero = normalized.DefaultLimits
	Sign    func(context.Context, Vouching) ([]identity.Evidence, error) // optional: who asks, signed for the other agent

	TimeLimit        time.Duration // for one run of a turn with all its requests; zero = DefaultTimeLimit
	IdleLimit        time.Duration // for a pause inside a response; zero = DefaultIdleLimit
	PollInterval     time.Duration // first pause between two looks at a task, doubling up to 20 times; zero = DefaultPollInterval
	ThreadLife       time.Duration // after which a silent conversation begins anew; zero = DefaultThreadLife
	MaxResponseBytes int64         // of one response, a stream being one; zero = DefaultMaxResponseBytes
	MaxFileBytes     int64         // of one file that is sent inside a message; zero = DefaultMaxFileBytes
}

// Vouching is what Options.Sign attests: the turn's sender, for Audience and nobody else.
type Vouching struct {
	Turn     agents.Turn
	Audience string // address of the other agent where its card has one, else the address of the card
}

// Agent asks one agent elsewhere. It is safe for concurrent use.
type Agent struct {
	options     Options
	card        *url.URL
	cards       *safehttp.Client
	credentials *credentials
	peers       peers
}

// New checks the options and fills in the defaults; it asks nobody yet. Its faults are fault.Malformed and name the
// setting.
func New(options Options) (*Agent, error) {
	card, err := cardAddress(options.CardURL)
	if err != nil {
		return nil, err
	}
	switch {
	case options.Client == nil:
		return nil, fault.InField("client", "is required")
	case options.State == nil:
		return nil, fault.InField("state", "is required")
	case options.TimeLimit < 0 || options.IdleLimit < 0 || options.PollInterval < 0 || options.ThreadLife < 0:
		return nil, fault.InField("time_limit", "limits must not be negative")
	case options.MaxResponseBytes < 0 || options.MaxFileBytes < 0:
		return nil, fault.InField("max_bytes", "limits must not be negative")
	}
	options = options.withDefaults()
	credentials, err := newCredentials(options)
	if err != nil {
		return nil, err
	}
	return &Agent{
		options: options, card: card, cards: options.Client.Trusting(hostPort(card)), credentials: credentials,
		peers: newPeers(),
	}, nil
}

// Close drops idle connections.
func (a *Agent) Close() {
	a.cards.Close()
	a.credentials.close()
	a.peers.close()
}

func (o Options) withDefaults() Options {
	o.TimeLimit = cmp.Or(o.TimeLimit, DefaultTimeLimit)
	o.IdleLimit = cmp.Or(o.IdleLimit, DefaultIdleLimit)
	o.PollInterval = cmp.Or(o.PollInterval, DefaultPollInterval)
	o.ThreadLife = cmp.Or(o.ThreadLife, DefaultThreadLife)
	o.MaxResponseBytes = cmp.Or(o.MaxResponseBytes, DefaultMaxResponseBytes)
	o.MaxFileBytes = cmp.Or(o.MaxFileBytes, DefaultMaxFileBytes)
	if o.Limits == (normalized.Limits{}) {
		o.Limits = normalized.DefaultLimits()
	}
	return o
}

// Handle passes the turn on and yields the answer: deltas while it grows, then the whole, which replaces them. Errors
// are faults: with Permanent another attempt cannot succeed, without it a retry may, after RetryAfter when the agent
// named a time. The end of ctx is returned as its own error. When ctx ended because the turn was cancelled or took too
// long, the task there is cancelled, too; when the server stops, the next attempt goes on with it.
func (a *Agent) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		started := time.Now()
		x := newExchange(a, turn, func(delta normalized.Delta) bool { return yield(delta, nil) })
		response, err := x.run(log.AttachLogger(ctx, quiet))
		observe(started, response, err)
		switch {
		case errors.Is(err, errStopped):
		case err != nil:
			yield(normalized.Delta{}, err)
		default:
			yield(normalized.Delta{Kind: normalized.DeltaResponse, Response: &response}, nil)
		}
	}
}
