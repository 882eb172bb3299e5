package email

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"inbox/internal/safehttp"
)

// How long answers are believed: as long as their records say, within bounds. The lower ones keep a hostile domain from
// making every mail cost lookups, the upper ones let what an operator repairs work soon.
const (
	minFoundLife    = 10 * time.Second
	maxFoundLife    = time.Hour
	minNotFoundLife = 5 * time.Second
	maxNotFoundLife = 5 * time.Minute
	troubleLife     = 2 * time.Second

	// Where the time to live of an answer is not known.
	foundLife    = 60 * time.Second
	notFoundLife = 15 * time.Second

	lookupTimeout = 15 * time.Second
	maxAnswers    = 10_000 // per record type
)

// cachedResolver is a Resolver that asks each question once at a time and remembers answers for a short while. It
// always asks for absolute names, so that no search domain of the host can answer for a sender.
type cachedResolver struct {
	inner   Resolver
	txt     lookups[[]string]
	mx      lookups[[]*net.MX]
	ip      lookups[[]net.IPAddr]
	address lookups[[]string]
	keys    lookups[*keyRecord]
	silent  lookups[bool] // domains with a null MX
	names   lookups[bool] // whether they exist
}

func newCachedResolver(inner Resolver) *cachedResolver { return &cachedResolver{inner: inner} }

// LookupTXT gives the TXT records of a name.
func (r *cachedResolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return r.txt.get(ctx, absolute(name), r.inner.LookupTXT)
}

// LookupMX gives the mail servers of a name.
func (r *cachedResolver) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return r.mx.get(ctx, absolute(name), r.inner.LookupMX)
}

// LookupIPAddr gives the addresses of a host.
func (r *cachedResolver) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return r.ip.get(ctx, absolute(host), r.inner.LookupIPAddr)
}

// LookupAddr gives the names of an address.
func (r *cachedResolver) LookupAddr(ctx context.Context, address string) ([]string, error) {
	return r.address.get(ctx, address, r.inner.LookupAddr)
}

// exists says whether there is the name at all (RFC 9989, section 3.2.13; RFC 8020). One without records of its own that
// has names below it does.
func (r *cachedResolver) exists(ctx context.Context, domain string) (bool, error) {
	return r.names.get(ctx, absolute(domain), func(ctx context.Context, name string) (bool, error) {
		ctx, life := safehttp.WithLifetime(ctx)
		if _, err := r.inner.LookupMX(ctx, name); !notFound(err) {
			return err == nil, err
		}
		if missing, seen := life.NoSuchName(); seen {
			return !missing, nil
		}
		return r.hasRecords(ctx, name), nil
	})
}

// hasRecords serves resolvers that do not tell an empty name from a missing one.
func (r *cachedResolver) hasRecords(ctx context.Context, domain string) bool {
	_, txt := r.LookupTXT(ctx, domain)
	_, ip := r.LookupIPAddr(ctx, domain)
	return !notFound(txt) || !notFound(ip)
}

func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

func notFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// lookups is a bounded cache with one flight per question. The zero value is ready.
type lookups[T any] struct {
	mu      sync.Mutex
	answers map[string]dnsAnswer[T]
	flights singleflight.Group
}

type dnsAnswer[T any] struct {
	value T
	err   error
	until time.Time
}

// get gives the remembered answer or asks. The question goes on when one asker leaves: others may wait for it.
func (l *lookups[T]) get(ctx context.Context, name string, ask func(context.Context, string) (T, error)) (T, error) {
	if known, ok := l.known(name); ok {
		return known.value, known.err
	}
	flight := l.flights.DoChan(name, func() (any, error) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		asking, life := safehttp.WithLifetime(asking)
		value, err := ask(asking, name)
		return l.remember(name, value, err, lifeOf(err, life)), nil
	})
	select {
	case result := <-flight:
		got, _ := result.Val.(dnsAnswer[T])
		return got.value, got.err
	case <-ctx.Done():
		var none T
		return none, &net.DNSError{Err: ctx.Err().Error(), Name: name, IsTimeout: true, IsTemporary: true}
	}
}

func (l *lookups[T]) known(name string) (dnsAnswer[T], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.answers[name]
	return found, ok && time.Now().Before(found.until)
}

func (l *lookups[T]) remember(name string, value T, err error, life time.Duration) dnsAnswer[T] {
	got := dnsAnswer[T]{value: value, err: err, until: time.Now().Add(life)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers == nil {
		l.answers = map[string]dnsAnswer[T]{}
	}
	if len(l.answers) >= maxAnswers {
		now := time.Now()
		makeRoom(l.answers, func(a dnsAnswer[T]) bool { return now.After(a.until) })
	}
	l.answers[name] = got
	return got
}

func lifeOf(err error, life *safehttp.Lifetime) time.Duration {
	switch {
	case err != nil && !notFound(err):
		return troubleLife
	case err != nil:
		if said, known := life.NotFound(); known {
			return min(max(said, minNotFoundLife), maxNotFoundLife)
		}
		return notFoundLife
	}
	if said, known := life.Found(); known {
		return min(max(said, minFoundLife), maxFoundLife)
	}
	return foundLife
}
