package safehttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/telemetry"
)

var (
	// outcome: ok (any status), refused, timeout, busy, error
	requests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_outgoing_requests_total", Help: "Outgoing HTTP requests by outcome.",
	}, []string{"outcome"})
	requestSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_outgoing_header_seconds", Help: "Time from sending a request to the header of its response.",
		Buckets: telemetry.NetworkSeconds,
	})
	refusedDials = promauto.NewCounter(prometheus.CounterOpts{
		Name: "inbox_outgoing_refused_dials_total", Help: "Addresses refused after name resolution.",
	})
)

// Errors of the client beside ErrRefused.
var (
	ErrTooLarge = errors.New("response body is over the limit")
	ErrTimeout  = errors.New("the peer did not answer in time")
	ErrBusy     = errors.New("too many requests to this host are under way")
)

// Options are the limits of a client; zero values take the defaults.
type Options struct {
	AllowPrivate bool // federation.allow_private: private addresses, plain http, any port, IP addresses as hosts
	// MetadataAddresses are single addresses of metadata services at which services that the operator configured may be (Trusting).
	MetadataAddresses []netip.Prefix

	Resolver  *Resolver // nil = that of the operating system
	UserAgent string    // set where a request has none

	MaxBytes       int64         // of a response body, after decompression; 1 MiB
	MaxHeaderBytes int64         // of a response header; 32 KiB
	ConnectTimeout time.Duration // 5 s
	TLSTimeout     time.Duration // 5 s
	HeaderTimeout  time.Duration // until the response header has arrived; 10 s
	Timeout        time.Duration // the whole request with redirects and body; also the longest wait for a free slot; 15 s

	MaxConcurrent int // requests under way; 32
	MaxPerHost    int // requests under way to one host:port, and idle connections kept to it; 4

	RootCAs *x509.CertPool // nil = those of the operating system
}

func (o Options) withDefaults() Options {
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<20)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, 32<<10)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	o.TLSTimeout = cmp.Or(o.TLSTimeout, 5*time.Second)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.MaxConcurrent = cmp.Or(o.MaxConcurrent, 32)
	o.MaxPerHost = cmp.Or(o.MaxPerHost, 4)
	o.UserAgent = cmp.Or(o.UserAgent, "inbox")
	if o.Resolver == nil {
		o.Resolver = NewResolver("")
	}
	return o
}

// Client sends HTTP requests under the address policy. It is safe for concurrent use.
type Client struct {
	options       Options
	trusted       map[string]bool
	allowed       map[string]bool        // host:port pairs that may be private
	refuses       func(host string) bool // nil = none
	open, guarded *net.Dialer
	private       *net.Dialer // for addresses that need not be public
	slots         *slots
	http          *http.Client
}

// New makes a client.
func New(options Options) *Client {
	c := &Client{options: options.withDefaults()}
	c.open = c.options.dialer(checking(c.options.checkTrusted))
	c.guarded = c.options.dialer(checkDial)
	c.private = c.options.dialer(checking(CheckMetadata))
	c.slots = newSlots(c.options.MaxConcurrent, c.options.MaxPerHost)
	c.connect()
	return c
}

// connect makes a transport for the client alone: an idle connection must never serve a client with another policy.
func (c *Client) connect() {
	c.http = &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy from the environment would dial in our place, past the policy
			DialContext:            c.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: c.options.RootCAs, ClientSessionCache: tls.NewLRUClientSessionCache(256)},
			TLSHandshakeTimeout:    c.options.TLSTimeout,
			MaxResponseHeaderBytes: c.options.MaxHeaderBytes,
			MaxIdleConns:           256,
			MaxIdleConnsPerHost:    c.options.MaxPerHost,
			IdleConnTimeout:        90 * time.Second,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Trusting returns a copy that also allows exactly these host:port pairs, which the operator wrote: every address but those of metadata
// services, plain http, no limit of concurrency, and where the context has a deadline no other limit of time.
func (c *Client) Trusting(hostports ...string) *Client {
	trusting := *c
	trusting.trusted = maps.Clone(c.trusted)
	if trusting.trusted == nil {
		trusting.trusted = make(map[string]bool, len(hostports))
	}

	for _, hostport := range hostports {
		trusting.trusted[strings.ToLower(hostport)] = true
	}

	trusting.connect()
	return &trusting
}

// Allowing returns a copy that also sends to exactly these host:port pairs where they are private, by plain http, too: what
// AllowPrivate does for all. Metadata services stay closed, and the limits of time and concurrency hold.
func (c *Client) Allowing(hostports ...string) *Client {
	allowing := *c
	allowing.allowed = maps.Clone(c.allowed)
	if allowing.allowed == nil {
		allowing.allowed = make(map[string]bool, len(hostports))
	}

	for _, hostport := range hostports {
		allowing.allowed[strings.ToLower(hostport)] = true
	}

	allowing.connect()
	return &allowing
}

// Refusing returns a copy that sends nothing to the hosts (with their port, if there is one) that the function names, beside
// those that the original refuses; redirects are asked about, too. Trusted addresses are not. It shares connections with
// the original.
func (c *Client) Refusing(refuses func(host string) bool) *Client {
	refusing, before := *c, c.refuses
	refusing.refuses = func(host string) bool { return before != nil && before(host) || refuses(host) }
	return &refusing
}

// Limit returns a copy whose response bodies may have up to maxBytes. It shares connections with the original.
func (c *Client) Limit(maxBytes int64) *Client {
	limited := *c
	limited.options.MaxBytes = maxBytes
	return &limited
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do sends one request and follows no redirect. The total time covers reading the body; the body is capped after
// decompression (reading past the cap returns ErrTooLarge) and must be closed. Errors: ErrRefused, ErrTimeout, ErrBusy
// and those of net/http.
func (c *Client) Do(request *http.Request) (*http.Response, error) {
	response, err := c.do(request, c.options.MaxBytes)
	requests.WithLabelValues(outcome(err)).Inc()
	return response, err
}

func (c *Client) do(request *http.Request, maxBytes int64) (*http.Response, error) {
	if err := c.CheckURL(request.URL); err != nil {
		return nil, err
	}

	release, err := c.enter(request)
	if err != nil {
		return nil, err
	}

	ctx, cancel := c.bound(request)
	done := func() { cancel(nil); release() }
	response, err := c.send(ctx, cancel, request)
	if err != nil {
		done()
		return nil, explain(ctx, err)
	}

	response.Body = newBody(ctx, response.Body, maxBytes, done)
	return response, nil
}

// enter takes the slots of the request; the operator's own services are not limited here.
func (c *Client) enter(request *http.Request) (release func(), err error) {
	if c.trusts(request.URL) {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeoutCause(request.Context(), c.options.Timeout, ErrBusy)
	defer cancel()
	return c.slots.enter(ctx, hostPort(request.URL))
}

// bound returns the context that covers the request and its body.
func (c *Client) bound(request *http.Request) (context.Context, context.CancelCauseFunc) {
	ctx := request.Context()
	if _, ok := ctx.Deadline(); ok && c.trusts(request.URL) {
		return context.WithCancelCause(ctx)
	}
	limited, stop := context.WithTimeoutCause(ctx, c.options.Timeout, ErrTimeout)
	ctx, cancel := context.WithCancelCause(limited)
	return ctx, func(cause error) { cancel(cause); stop() }
}

func (c *Client) send(ctx context.Context, cancel context.CancelCauseFunc, request *http.Request) (*http.Response, error) {
	var made connection
	request = request.Clone(made.trace(ctx))
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", c.options.UserAgent)
	}

	if !c.trusts(request.URL) {
		timer := time.AfterFunc(c.options.HeaderTimeout, func() { cancel(ErrTimeout) })
		defer timer.Stop()
	}

	traced, span := telemetry.StartBelow(request.Context(), request.Method, telemetry.KindClient,
		telemetry.Attribute("http.request.method", request.Method), telemetry.Attribute("server.address", request.URL.Host))
	if span != nil && request.Header.Get(telemetry.TraceparentHeader) != "" { // the caller wants the receiver to know
		request = request.WithContext(traced)
		telemetry.Inject(traced, request.Header)
	}

	started := time.Now()
	response, err := c.http.Do(request) //nolint:gosec // G704: the address policy of this package is what gosec asks for
	requestSeconds.Observe(time.Since(started).Seconds())
	endSpan(span, response, err)
	return response, made.explain(err)
}

// endSpan ends the span of an exchange when the header of its response is here.
func endSpan(span *telemetry.Span, response *http.Response, err error) {
	switch {
	case span == nil:
	case err != nil:
		span.End(outcome(err))
	case response.StatusCode >= http.StatusBadRequest:
		span.Set(telemetry.Attribute("http.response.status_code", response.StatusCode))
		span.End("status " + strconv.Itoa(response.StatusCode))
	default:
		span.Set(telemetry.Attribute("http.response.status_code", response.StatusCode))
		span.End("")
	}
}

// explain puts the reason of an ended context in front of net/http's "context canceled".
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrTimeout) && !errors.Is(err, ErrTimeout) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrBusy):
		return "busy"
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "error"
}
