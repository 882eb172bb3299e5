package llm

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"time"

	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// The two wire formats that a provider may speak.
const (
	APIOpenAI    = "openai"    // chat completions, as many other services and local servers speak them
	APIAnthropic = "anthropic" // messages
)

// Defaults of Connection.
const (
	DefaultOpenAIURL        = "https://api.openai.com/v1"
	DefaultAnthropicURL     = "https://api.anthropic.com"
	DefaultTimeLimit        = 5 * time.Minute
	DefaultIdleLimit        = 2 * time.Minute
	DefaultMaxResponseBytes = 16 << 20
)

// Connection says where a model is and how to talk to it. API and Client are required.
type Connection struct {
	API     string           // APIOpenAI or APIAnthropic
	BaseURL string           // empty = the vendor's; chat/completions or v1/messages is added
	APIKey  string           // may be empty for a local server
	Client  *safehttp.Client // a copy is made that also trusts the host and port of BaseURL

	TimeLimit        time.Duration // of one call of the model; zero = DefaultTimeLimit
	IdleLimit        time.Duration // for a pause inside the answer; zero = DefaultIdleLimit
	MaxResponseBytes int64         // of one answer; zero = DefaultMaxResponseBytes
	Retry            Retry         // of what the provider refuses for now
}

// Connect makes the provider of a connection. It repeats what a provider refuses for now (429, 5xx) and what never
// reached it, see Retrying. Faults are fault.Malformed and name the setting.
func Connect(connection Connection) (Provider, error) {
	if connection.Client == nil {
		return nil, fault.InField("client", "is required")
	}
	if connection.TimeLimit < 0 || connection.IdleLimit < 0 || connection.MaxResponseBytes < 0 {
		return nil, fault.InField("time_limit", "limits must not be negative")
	}
	if connection.Retry.Attempts < 0 || connection.Retry.Base < 0 || connection.Retry.Max < 0 {
		return nil, fault.InField("retry", "bounds must not be negative")
	}
	if strings.ContainsFunc(connection.APIKey, func(char rune) bool { return char <= ' ' || char >= 0x7f }) {
		return nil, fault.InField("api_key", "must not have white space or control characters")
	}
	connection = connection.withDefaults()
	switch connection.API {
	case APIOpenAI:
		return connectOpenAI(connection)
	case APIAnthropic:
		return connectAnthropic(connection)
	}
	return nil, fault.InField("provider", `must be "openai" or "anthropic"`)
}

func (c Connection) withDefaults() Connection {
	if c.TimeLimit == 0 {
		c.TimeLimit = DefaultTimeLimit
	}
	if c.IdleLimit == 0 {
		c.IdleLimit = DefaultIdleLimit
	}
	if c.MaxResponseBytes == 0 {
		c.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if c.BaseURL == "" {
		c.BaseURL = map[string]string{APIOpenAI: DefaultOpenAIURL, APIAnthropic: DefaultAnthropicURL}[c.API]
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	return c
}

func (c Connection) endpoint(suffix string, header http.Header) (*endpoint, error) {
	address, hostPort, err := locate(c.BaseURL, suffix)
	if err != nil {
		return nil, err
	}
	return &endpoint{
		address: address, header: header, key: c.APIKey, time: c.TimeLimit, idle: c.IdleLimit,
		client: c.Client.Trusting(hostPort).Limit(c.MaxResponseBytes),
	}, nil
}

// stream runs one exchange as a sequence of deltas.
func (e *endpoint) stream(ctx context.Context, body any, answer codec) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		stopped := false
		err := e.ask(ctx, body, answer, func(delta Delta) error {
			if !yield(delta, nil) {
				stopped = true
				return errEnough
			}
			return nil
		})
		if err != nil && !stopped && !errors.Is(err, errEnough) {
			yield(Delta{}, err)
		}
	}
}
