package admission

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ErrFull is the error of Enter: no slot became free within the patience. Nothing is wrong with the caller's request, and
// another attempt makes sense.
var ErrFull = errors.New("too much is being done for unknown senders at once")

// SemaphoreOptions are the bounds of work in progress; every one is required.
type SemaphoreOptions struct {
	Total     int           // at one time
	PerSource int           // of them from one client network; three times as many from its /24 or /48
	PerHost   int           // of them about one host
	PerPair   int           // of them from one client network about one host
	Patience  time.Duration // how long a caller waits for a slot
	Waiting   int           // callers that wait, in all; of one network a sixteenth
}

// Semaphore bounds work that strangers cause, such as fetching the keys that they name. A caller that finds no slot waits;
// slots become free in fair order: the caller whose network holds fewest is next, and among those the first that came.
// It is safe for concurrent use.
type Semaphore struct {
	options SemaphoreOptions

	mu      sync.Mutex
	used    int
	sources map[netip.Prefix]int
	hosts   map[string]int
	pairs   map[pair]int
	waiting []*waiter
	waits   map[netip.Prefix]int // callers that wait, by the narrowest network
}

type pair struct {
	source netip.Prefix
	host   string
}

type waiter struct {
	source Source
	host   string
	turn   chan struct{} // closed when the slot is the caller's
}

// NewSemaphore makes a semaphore of which nothing is taken.
func NewSemaphore(options SemaphoreOptions) *Semaphore {
	return &Semaphore{
		options: options, sources: map[netip.Prefix]int{}, hosts: map[string]int{}, pairs: map[pair]int{}, waits: map[netip.Prefix]int{},
	}
}

// Enter takes a slot and returns the function that frees it. Its error is ErrFull. The zero Source is bound by the
// total and by the host alone.
func (p *Semaphore) Enter(ctx context.Context, source Source, host string) (leave func(), err error) {
	p.mu.Lock()
	leave = sync.OnceFunc(func() { p.leave(source, host) })
	if p.fits(source, host) {
		p.take(source, host)
		p.mu.Unlock()
		return leave, nil
	}
	if len(p.waiting) >= p.options.Waiting || source.Known() && p.waits[source[0]] >= max(1, p.options.Waiting/16) {
		p.mu.Unlock()
		return nil, ErrFull
	}

	w := &waiter{source: source, host: host, turn: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.waits[source[0]]++
	p.mu.Unlock()

	patience := time.NewTimer(p.options.Patience)
	defer patience.Stop()

	select {
	case <-w.turn:
		return leave, nil
	case <-patience.C:
	case <-ctx.Done():
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if i := slices.Index(p.waiting, w); i >= 0 {
		p.remove(i)
		return nil, ErrFull
	}

	return leave, nil // the slot came with the end of the patience
}

// fits reports whether one more slot may be taken. The lock is held.
func (p *Semaphore) fits(source Source, host string) bool {
	if p.used >= p.options.Total || p.hosts[host] >= p.options.PerHost {
		return false
	}
	if !source.Known() {
		return true
	}
	if p.pairs[pair{source[0], host}] >= p.options.PerPair {
		return false
	}

	for i, network := range source {
		if p.sources[network] >= allowance(p.options.PerSource, i) {
			return false
		}
	}

	return true
}

func (p *Semaphore) take(source Source, host string) {
	p.used++
	p.hosts[host]++
	if !source.Known() {
		return
	}
	p.pairs[pair{source[0], host}]++
	for _, network := range source {
		p.sources[network]++
	}
}

func (p *Semaphore) leave(source Source, host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	less(p.hosts, host)

	if source.Known() {
		less(p.pairs, pair{source[0], host})
		for _, network := range source {
			less(p.sources, network)
		}
	}

	for p.next() {
		continue
	}
}

// next grants a slot to the caller whose network holds fewest; false = to none. The lock is held.
func (p *Semaphore) next() bool {
	chosen := -1
	for i, w := range p.waiting {
		if p.fits(w.source, w.host) && (chosen < 0 || p.sources[w.source[0]] < p.sources[p.waiting[chosen].source[0]]) {
			chosen = i
		}
	}

	if chosen < 0 {
		return false
	}

	w := p.waiting[chosen]
	p.remove(chosen)
	p.take(w.source, w.host)
	close(w.turn)
	return true
}

// remove takes a caller out of those that wait. The lock is held.
func (p *Semaphore) remove(i int) {
	less(p.waits, p.waiting[i].source[0])
	p.waiting = slices.Delete(p.waiting, i, i+1)
}

// less counts down and forgets what reached zero.
func less[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}
