package activitypub

import (
	"context"
	"net/http"
	"time"

	"inbox/internal/admission"
	"inbox/internal/fault"
)

// Failures to fetch a key, in failureLife: the ids of keys are a sender's to invent, and so is the host in them. Who invents
// them pays, and not the host.
const (
	maxSourceFailures = 20                    // of one client network about one host
	maxWideFailures   = 3 * maxSourceFailures // of its /24 or /48
	maxHostFailures   = 200                   // of all networks about one host; beyond it each network has one
)

// failures counts by who caused them and about whom.
type failures struct {
	pairs, wide, hosts *tally
}

func newFailures() *failures {
	return &failures{
		pairs: newTally(maxSourceFailures, failureLife, maxCachedFailures), wide: newTally(maxWideFailures, failureLife, maxCachedFailures),
		hosts: newTally(maxHostFailures, failureLife, maxCachedHosts),
	}
}

func (f *failures) add(source admission.Source, host string, now time.Time) {
	f.pairs.take(source.String()+" "+host, now)
	f.wide.take(source.Wide()+" "+host, now)
	f.hosts.take(host, now)
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

// comeAgain answers a sender who may be honest, and whose key cannot be had just now because of others.
func comeAgain(after time.Duration) error {
	return &fault.Fault{Kind: fault.Unavailable, Public: "too many unknown senders at once: try again later", RetryAfter: after}
}
