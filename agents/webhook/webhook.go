// Package webhook is the agent that lives behind an HTTP address: it posts the message with a signature and reads
// the answer, whole or as a stream. It keeps no state and retries nothing by itself; it only reports whether a retry
// may help. The wire format is described in docs/agents/webhook.md.
package webhook

import (
	"context"
	"iter"
	"net/http"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// Defaults of Options.
const (
	DefaultTimeLimit        = 60 * time.Second
	DefaultIdleLimit        = 30 * time.Second
	DefaultMaxResponseBytes = 8 << 20
)

// Options configure an Agent. URL, Secret and Client are required.
type Options struct {
	URL              string           // http or https, without user, password and fragment
	Secret           string           // key of the HMAC-SHA256 signature over the body
	PreviousSecret   string           // the key before it, until every program has the new one; empty = none
	Client           *safehttp.Client // the agent makes itself a copy that also trusts the host and port of URL
	TimeLimit        time.Duration    // for the whole exchange; zero = DefaultTimeLimit
	IdleLimit        time.Duration    // for a pause inside the answer; zero = DefaultIdleLimit
	MaxResponseBytes int64            // of the whole answer; zero = DefaultMaxResponseBytes

	Events bool // it is told what became of its answers; see Hear

	Limits normalized.Limits // of the answer's content; zero = normalized.DefaultLimits
}

// Agent asks one webhook. It is safe for concurrent use.
type Agent struct {
	options     Options
	destination string // host and port of URL
}

// New checks the options and fills in the defaults. Its faults are fault.Malformed and name the setting.
func New(options Options) (*Agent, error) {
	destination, err := upstream.Destination(options.URL, "https://agent.example.org/inbox", "the signature already proves who calls")
	if err != nil {
		return nil, err
	}
	if options.Secret == "" {
		return nil, fault.InField("secret", "is required: the agent checks with it that a request comes from this server")
	}
	if options.PreviousSecret == options.Secret {
		return nil, fault.InField("previous_secret", "must be another one than secret")
	}
	if options.Client == nil {
		return nil, fault.InField("client", "is required")
	}
	if options.TimeLimit < 0 || options.IdleLimit < 0 || options.MaxResponseBytes < 0 {
		return nil, fault.InField("time_limit", "limits must not be negative")
	}

	options = options.withDefaults()
	options.Client = options.Client.Trusting(destination).Limit(options.MaxResponseBytes)
	return &Agent{options, destination}, nil
}

// Reach reports whether the webhook takes connections.
func (a *Agent) Reach(ctx context.Context) error {
	return upstream.Dial(ctx, a.options.Client, a.destination)
}

// Probe reports why the webhook does not work, by a request without a message (OPTIONS).
func (a *Agent) Probe(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodOptions, a.options.URL, http.NoBody)
	if err != nil {
		return err
	}
	return upstream.Probe(a.options.Client, request)
}

// Close drops idle connections to the webhook.
func (a *Agent) Close() { a.options.Client.Close() }

func (o Options) withDefaults() Options {
	if o.TimeLimit == 0 {
		o.TimeLimit = DefaultTimeLimit
	}
	if o.IdleLimit == 0 {
		o.IdleLimit = DefaultIdleLimit
	}
	if o.MaxResponseBytes == 0 {
		o.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if o.Limits == (normalized.Limits{}) {
		o.Limits = normalized.DefaultLimits()
	}
	return o
}

// Handle posts the turn and yields the answer. Errors are faults: with Permanent another attempt cannot succeed,
// without it a retry may, after RetryAfter when the agent named a time. The end of ctx is returned as its own error.
func (a *Agent) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		started := time.Now()
		stopped := false
		err := a.exchange(ctx, turn, func(delta normalized.Delta) bool {
			stopped = stopped || !yield(delta, nil)
			return !stopped
		})

		observe(started, err)
		if err != nil && !stopped {
			yield(normalized.Delta{}, err)
		}
	}
}
