package dns

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
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

// Resolver asks each question once at a time and remembers answers for a short while. It always asks for absolute names, so that
// no search domain of the host can answer for a sender.
type Resolver struct {
	Source  Source // without the memory, for answers that are kept in another form
	txt     Answers[[]string]
	mx      Answers[[]*net.MX]
	ip      Answers[[]net.IPAddr]
	address Answers[[]string]
	silent  Answers[bool] // domains with a null MX
	names   Answers[bool] // whether they exist
}

// New returns a resolver that knows no answers yet.
func New(inner Source) *Resolver { return &Resolver{Source: inner} }

// LookupTXT returns the TXT records of a name.
func (r *Resolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return r.txt.Get(ctx, Absolute(name), r.Source.LookupTXT)
}

// LookupMX returns the mail servers of a name.
func (r *Resolver) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return r.mx.Get(ctx, Absolute(name), r.Source.LookupMX)
}

// LookupIPAddr returns the addresses of a host.
func (r *Resolver) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return r.ip.Get(ctx, Absolute(host), r.Source.LookupIPAddr)
}

// LookupAddr returns the names of an address.
func (r *Resolver) LookupAddr(ctx context.Context, address string) ([]string, error) {
	return r.address.Get(ctx, address, r.Source.LookupAddr)
}

// Exists reports whether there is the name at all (RFC 9989, section 3.2.13; RFC 8020). One without records of its own that
// has names below it does.
func (r *Resolver) Exists(ctx context.Context, domain string) (bool, error) {
	return r.names.Get(ctx, Absolute(domain), func(ctx context.Context, name string) (bool, error) {
		ctx, life := safehttp.WithLifetime(ctx)
		if _, err := r.Source.LookupMX(ctx, name); !NotFound(err) {
			return err == nil, err
		}
		if missing, seen := life.NoSuchName(); seen {
			return !missing, nil
		}
		return r.hasRecords(ctx, name), nil
	})
}

// NullMX reports whether a domain says that it takes no mail (RFC 7505, section 4.2).
func (r *Resolver) NullMX(ctx context.Context, domain string) (bool, error) {
	return r.silent.Get(ctx, Absolute(domain), func(ctx context.Context, name string) (bool, error) {
		servers, err := r.Source.LookupMX(ctx, name)
		return len(servers) == 1 && servers[0].Host == ".", err
	})
}

// hasRecords serves resolvers that do not tell an empty name from a missing one.
func (r *Resolver) hasRecords(ctx context.Context, domain string) bool {
	_, txt := r.LookupTXT(ctx, domain)
	_, ip := r.LookupIPAddr(ctx, domain)
	return !NotFound(txt) || !NotFound(ip)
}

// Absolute returns the name as it is asked for: in lower case, with the final dot.
func Absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

// NotFound reports whether an answer says that there is no such name or no such record.
func NotFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// Answers is a bounded cache with one flight per question. The zero value is ready.
type Answers[T any] struct{ answers }

// Get returns the remembered answer or asks. The question goes on when one asker leaves: others may wait for it.
func (l *Answers[T]) Get(ctx context.Context, name string, ask func(context.Context, string) (T, error)) (T, error) {
	found, err := l.get(ctx, name, func(ctx context.Context) (any, error) { return ask(ctx, name) })
	value, _ := found.(T)
	return value, err
}

// answers are those of one kind of question, with values of any type, so that the program has their code once.
type answers struct {
	mu      sync.Mutex
	byName  *simplelru.LRU[string, answer] // made with the first one
	flights singleflight.Group
}

type answer struct {
	value any
	err   error
	until time.Time
}

func (l *answers) get(ctx context.Context, name string, ask func(context.Context) (any, error)) (any, error) {
	if known, ok := l.known(name); ok {
		return known.value, known.err
	}

	flight := l.flights.DoChan(name, func() (any, error) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		asking, life := safehttp.WithLifetime(asking)
		value, err := ask(asking)
		return l.remember(name, value, err, lifeOf(err, life)), nil
	})

	select {
	case result := <-flight:
		got, _ := result.Val.(answer)
		return got.value, got.err
	case <-ctx.Done():
		return nil, &net.DNSError{Err: ctx.Err().Error(), Name: name, IsTimeout: true, IsTemporary: true}
	}
}

func (l *answers) known(name string) (answer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil {
		return answer{}, false
	}
	found, ok := l.byName.Get(name)
	return found, ok && time.Now().Before(found.until)
}

func (l *answers) remember(name string, value any, err error, life time.Duration) answer {
	got := answer{value: value, err: err, until: time.Now().Add(life)}
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.byName == nil {
		l.byName, _ = simplelru.NewLRU[string, answer](maxAnswers, nil)
	}
	l.byName.Add(name, got)
	return got
}

func lifeOf(err error, life *safehttp.Lifetime) time.Duration {
	switch {
	case err != nil && !NotFound(err):
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

// Source makes the DNS lookups of mail authentication; *net.Resolver has this shape.
type Source interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupAddr(ctx context.Context, address string) ([]string, error)
}

// Tags reads tag=value lists (RFC 6376, section 3.2); white space is of no meaning in the tags that we use. Of a tag that
// is duplicate the last counts.
func Tags(text string) map[string]string {
	tags := make(map[string]string, 12)
	for pair := range strings.SplitSeq(text, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			if value = strings.TrimSpace(value); strings.ContainsAny(value, " \t\r\n") {
				value = strings.Join(strings.Fields(value), "")
			}
			tags[strings.TrimSpace(name)] = value
		}
	}

	return tags
}

// RepeatsTag reports whether a tag is duplicate, which makes the list invalid (RFC 6376, section 3.2).
func RepeatsTag(text string) bool {
	seen := make(map[string]bool, 12)
	for pair := range strings.SplitSeq(text, ";") {
		if name, _, ok := strings.Cut(pair, "="); ok {
			if name = strings.TrimSpace(name); seen[name] {
				return true
			}
			seen[name] = true
		}
	}

	return false
}
