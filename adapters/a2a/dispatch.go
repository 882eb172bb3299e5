package a2a

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

var calls = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_calls_total",
	Help: "Calls of our agents to agents elsewhere, by outcome (completed, input_required, failed, retry, given_up).",
}, []string{"outcome"})

// Client sends what leaves this server; *safehttp.Client is one. A blocking send takes as long as the other agent works,
// usually up to a minute. A client with shorter time limits works, too: the message is then sent again with the same id,
// for the task at once.
type Client interface {
	Do(request *http.Request) (*http.Response, error)
	Get(ctx context.Context, address string, options safehttp.GetOptions) (*http.Response, error)
}

// Signer makes signed attestations in the name of this server.
type Signer interface {
	Sign(ctx context.Context, evidence identity.Evidence) (identity.Evidence, error)
}

// CallerOptions configure a Caller. Client, Signer and Domain are required.
type CallerOptions struct {
	Client Client
	Signer Signer
	Domain string                     // ours: the issuer of the evidence
	Tokens func(domain string) string // the bearer token that we show to agents of a domain; empty = none; may be nil
	// Assert signs who calls, for one request to the agent named by audience where no token is configured; may be nil.
	Assert    func(ctx context.Context, agent, audience string) (string, error)
	Blobs     Blobs         // optional: without it files that are not in the message itself are left out
	AllowHTTP bool          // development: domains with a port are asked over plain http
	TimeLimit time.Duration // of one call with all its polls; default 5 min
}

const (
	defaultCallLimit = 5 * time.Minute
	firstPoll        = 500 * time.Millisecond
	maxPoll          = 10 * time.Second
	maxCallBytes     = 1 << 20 // of one response on the wire
)

// Caller calls agents of other servers on behalf of ours. It is safe for concurrent use.
type Caller struct {
	codec
	options CallerOptions
	issuer  string
	peers   *peerCache
}

// NewCaller makes a Caller; the error says which option is missing.
func NewCaller(options CallerOptions) (*Caller, error) {
	if options.Client == nil || options.Signer == nil {
		return nil, errors.New("a2a: a caller needs Client and Signer")
	}
	issuer, err := identity.CanonicalIssuer(options.Domain)
	if err != nil {
		return nil, err
	}
	options.TimeLimit = cmp.Or(options.TimeLimit, defaultCallLimit)
	return &Caller{codec: codec{blobs: options.Blobs}, options: options, issuer: issuer, peers: newPeerCache()}, nil
}

// Call sends one message to the agent d.To and waits for the end of its task, until ctx or TimeLimit. A refusal, a
// failure and a demand of the other agent are responses: failed with the code dispatch:refused, or input_required with
// the demand as policy part, never completed. Errors are *fault.Fault, classed by RetryIn and GiveUp; a repeat has the
// same message id, so that the other side recognises it.
func (c *Caller) Call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error) {
	ctx, cancel := context.WithTimeout(log.AttachLogger(ctx, quiet), c.options.TimeLimit)
	defer cancel()
	response, err := c.call(ctx, d)
	calls.WithLabelValues(callOutcome(response, err)).Inc()
	return response, err
}

func callOutcome(response normalized.Response, err error) string {
	switch {
	case err == nil:
		return response.Outcome()
	case fault.Of(err).Permanent:
		return "given_up"
	}
	return "retry"
}

func (c *Caller) call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error) {
	to, err := identity.ParseAddress(d.To)
	if err != nil {
		return normalized.Response{}, fault.GiveUp("want an address @agent@domain", err)
	}
	found, err := c.resolve(ctx, to)
	if err != nil {
		return normalized.Response{}, err
	}
	message, err := c.message(ctx, d, found.address)
	if err != nil {
		return normalized.Response{}, err
	}
	w := c.wire(to.Domain, found, d.Agent)
	result, err := w.send(ctx, message, false)
	if w.oldVersion(err) {
		found.version = a2av0.Version
		c.peers.put(to.String(), found)
		w = c.wire(to.Domain, found, d.Agent)
		result, err = w.send(ctx, message, false)
	}
	if errors.Is(err, safehttp.ErrTimeout) && ctx.Err() == nil {
		if message, err = c.message(ctx, d, found.address); err == nil { // evidence is good for one use
			result, err = w.send(ctx, message, true)
		}
	}
	if err != nil {
		c.peers.drop(to.String()) // it may have moved
		return w.refusal(to, err)
	}
	return c.outcome(ctx, w, to, result)
}

// message is what goes over the wire. A message without anything that can be sent is not sent.
func (c *Caller) message(ctx context.Context, d exchange.Dispatch, to string) (*a2a.Message, error) {
	parts, err := c.renderParts(ctx, c.sendable(d.Parts), true)
	switch {
	case err != nil:
		return nil, fault.RetryIn(0, "a file of the message cannot be read", err)
	case len(parts) == 0:
		return nil, fault.GiveUp("the message has nothing that can be sent to an agent", nil)
	}
	evidence, err := c.vouch(ctx, d, to)
	if err != nil {
		return nil, fault.RetryIn(0, "the evidence for the other agent cannot be signed", err)
	}
	return &a2a.Message{
		ID: d.ID, ContextID: d.ThreadID, Role: a2a.MessageRoleUser, Parts: parts,
		Extensions: []string{identity.EvidenceExtension},
		Metadata:   map[string]any{mentionableKey: map[string]any{"agent_chain": d.Chain, evidenceKey: evidence}},
	}, nil
}

// sendable leaves out files that only the blob store has when there is none.
func (c *Caller) sendable(parts []normalized.Part) []normalized.Part {
	if c.blobs != nil {
		return parts
	}
	var list []normalized.Part
	for _, part := range parts {
		if ref := part.BytesRef; ref == nil || ref.Kind == normalized.BytesInline || ref.URL != "" {
			list = append(list, part)
		}
	}
	return list
}
