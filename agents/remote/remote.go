// Package remote is the agent that lives elsewhere and speaks A2A: it passes each turn on to the agent that a card
// describes and reads the answer back, whole or as it grows. It keeps one conversation there for each thread here and
// recognises its own repeats. It is a client only; it neither discovers agents by address nor takes webhooks, and it
// retries no turn by itself: it reports whether a retry may help. The operator's side is in docs/agents/remote.md.
package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/telemetry"
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

// Vouching is what Options.Sign attests: the turn's sender, for Audience and no one else.
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

// New checks the options and fills in the defaults; it asks no other server yet. Its faults are fault.Malformed and name the
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

// Reach reports whether the host of the card takes connections.
func (a *Agent) Reach(ctx context.Context) error {
	return upstream.Dial(ctx, a.cards, hostPort(a.card))
}

// Probe reports why the host of the card does not work: it asks for the card.
func (a *Agent) Probe(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.card.String(), http.NoBody)
	if err != nil {
		return err
	}
	return upstream.Probe(a.cards, request)
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

const (
	namespace = "agents.remote"
	turnLife  = 7 * 24 * time.Hour // a turn is repeated within minutes, but a server may stand still for days
)

// thread is what is known there about a thread here.
type thread struct {
	Context string `json:"context,omitempty"`
	Open    *open  `json:"open,omitempty"` // the task that waits for the next message of the thread
}

// open is a task that asked for something.
type open struct {
	Task      string `json:"task"`
	Principal string `json:"principal"`       // who was asked: no one else's message answers
	Asked     string `json:"asked"`           // names the question
	Login     bool   `json:"login,omitempty"` // it may go on by itself once the person has logged in there
	State     string `json:"state,omitempty"` // the secret by which a demand there is resolved; it never leaves for anyone else
}

// progress is how far a message came, for the attempt after a crash.
type progress struct {
	Task    string `json:"task"`
	Context string `json:"context,omitempty"`
	Asked   string `json:"asked,omitempty"` // the question that stood before the message was sent to a waiting task

	Looks int       `json:"looks,omitempty"` // at a task that waits for a login
	Since time.Time `json:"since,omitzero"`  // of the first of them
	Told  string    `json:"told,omitempty"`  // the question that our asker was told
}

// threadKey names the conversation of one of our agents with the other, which remembers it: one for each person of a conversation, so that
// no one hears from it what was not meant for them. A new card_url begins anew.
func (a *Agent) threadKey(turn agents.Turn) string {
	return "thread:" + digest(turn.Agent, a.card.String(), turn.Message.ThreadID, turn.Message.Sender.Principal())
}

func (a *Agent) turnKey(turn agents.Turn, messageID string) string {
	return "turn:" + digest(turn.Agent, a.card.String(), messageID)
}

func digest(names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return hex.EncodeToString(sum[:])
}

// load reads a value. One that cannot be read any more counts as absent.
func (a *Agent) load(ctx context.Context, key string, into any) error {
	value, found, err := a.options.State.Get(ctx, namespace, key)
	if err != nil {
		return notKept(fmt.Errorf("read state: %w", err))
	}
	if found {
		_ = json.Unmarshal(value, into)
	}
	return nil
}

func (a *Agent) keep(ctx context.Context, key string, value any, life time.Duration) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return notKept(err)
	}
	if err := a.options.State.Put(ctx, namespace, key, encoded, time.Now().Add(life)); err != nil {
		return notKept(fmt.Errorf("write state: %w", err))
	}
	return nil
}

// messageID is the same in every attempt, so that the other side recognises a repeat. A turn that was taken up again with
// a decision says something new.
func messageID(turn agents.Turn) string {
	resolution := turn.Message.PolicyResolution
	if resolution == nil {
		return turn.ID
	}
	encoded, err := json.Marshal(resolution)
	if err != nil {
		return turn.ID + "-resolved"
	}
	return turn.ID + "-" + digest(string(encoded))[:16]
}

var (
	// outcome: completed, input_required, failed, retry, given_up, stopped
	exchanges = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_remote_exchanges_total", Help: "Turns passed on to A2A agents elsewhere by outcome.",
	}, []string{"outcome"})
	exchangeSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_remote_seconds", Help: "Time from passing a turn on to the end of its answer.",
		Buckets: telemetry.NetworkSeconds,
	})
	// how: resubscribed, polled, repeated, followed
	recoveries = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_remote_recoveries_total", Help: "Answers that were cut off or could not be streamed, by how they were got.",
	}, []string{"how"})
	// outcome: valid, forged, unknown (no key of the card's origin)
	cardSignatures = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_remote_card_signatures_total", Help: "Signed cards of A2A agents elsewhere by outcome.",
	}, []string{"outcome"})
)

func observe(started time.Time, response normalized.Response, err error) {
	exchangeSeconds.Observe(time.Since(started).Seconds())
	exchanges.WithLabelValues(outcome(response, err)).Inc()
}

func outcome(response normalized.Response, err error) string {
	switch {
	case err == nil:
		return response.Outcome()
	case errors.Is(err, errStopped):
		return "stopped"
	case fault.Of(err).Permanent:
		return "given_up"
	}
	return "retry"
}
