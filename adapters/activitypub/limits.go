package activitypub

import (
	"context"
	"net/http"
	"time"

	"inbox/internal/admission"
	"inbox/internal/fault"
)

// Requests for keys that could not be had, in failureLife: the ids of keys are a sender's to invent, and so is the host in them. Who
// invents them pays, and not the host. A key that does not exist costs three requests, one in each way to ask.
const (
	maxSourceFailures = 60                    // of one client network about one host
	maxWideFailures   = 3 * maxSourceFailures // of its /24 or /48
	maxHostFailures   = 600                   // of all networks about one host; beyond it each network has one
)

// failures counts by who caused them and about whom.
type failures struct {
	pairs, wide, hosts *counter
}

func newFailures() *failures {
	return &failures{
		pairs: newCounter(maxSourceFailures, failureLife, maxCachedFailures), wide: newCounter(maxWideFailures, failureLife, maxCachedFailures),
		hosts: newCounter(maxHostFailures, failureLife, maxCachedHosts),
	}
}

func (f *failures) add(source admission.Source, host string, now time.Time) {
	f.pairs.count(source.String()+" "+host, now)
	f.wide.count(source.Wide()+" "+host, now)
	f.hosts.count(host, now)
}

// wait is how long a network has to wait before another key of the host is fetched for it; zero = not at all. A network that
// caused no failure is never refused because of others.
func (f *failures) wait(source admission.Source, host string, now time.Time) time.Duration {
	own := source.String() + " " + host
	wait := max(f.pairs.exceeded(own, now), f.wide.exceeded(source.Wide()+" "+host, now))
	if f.pairs.any(own, now) {
		wait = max(wait, f.hosts.exceeded(host, now))
	}
	return wait
}

type sourceKey struct{}

// sourced carries the networks of a client to what is fetched for it.
func (v *verifier) sourced(r *http.Request) context.Context {
	return context.WithValue(r.Context(), sourceKey{}, admission.SourceOf(v.options.ClientAddress(r)))
}

// sourceOf is the zero Source for what this server does by itself.
func sourceOf(ctx context.Context) admission.Source {
	source, _ := ctx.Value(sourceKey{}).(admission.Source)
	return source
}

// tryLater answers a sender who may be honest, and whose key cannot be had just now because of others.
func tryLater(after time.Duration) error {
	return &fault.Fault{Kind: fault.Unavailable, Public: "too many unknown senders at once: try again later", RetryAfter: after}
}

// Requests that were refused are counted by the network address that they came from, and an address with too many of
// them is put off: guessing, forging and flooding cost the sender more than us. Accepted requests cost nothing here; how
// much a proven sender may ask is the pipeline's matter.

const refusalPeriod = 5 * time.Minute

// checkFlood refuses a request from an address whose requests were refused too often.
func (v *verifier) checkFlood(r *http.Request) error {
	key, counts := v.clientOf(r)
	if !counts {
		return nil
	}
	if wait := v.refusals.exceeded(key, v.now()); wait > 0 {
		return &fault.Fault{Kind: fault.RateLimited, Public: "too many refused requests from your address", RetryAfter: wait}
	}
	return nil
}

func (v *verifier) countRefusal(r *http.Request, err error) {
	switch fault.Of(err).Kind {
	case fault.Malformed, fault.Unauthenticated, fault.Forbidden, fault.TooLarge, fault.Unsupported:
		if key, counts := v.clientOf(r); counts {
			v.refusals.count(key, v.now())
		}
	}
}

// clientOf returns the network that a request came from: one IPv4 address, or the /64 that one IPv6 customer has. Loopback
// and private addresses do not count: they are a proxy that does not tell for whom it asks.
func (v *verifier) clientOf(r *http.Request) (key string, counts bool) {
	if v.options.MaxRefusals < 0 {
		return "", false
	}

	address := v.options.ClientAddress(r)
	if !address.IsValid() || address.IsLoopback() || address.IsPrivate() || address.IsLinkLocalUnicast() {
		return "", false
	}
	if address.Is4() {
		return address.String(), true
	}

	network, err := address.Prefix(64)
	return network.String(), err == nil
}
