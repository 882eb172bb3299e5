package delivery

import (
	"context"
	"sync"
	"time"

	"inbox/internal/bounded"
)

// slotWait is how long a worker waits for a busy destination before it takes other work instead: a quick host frees
// a slot within it, a slow one must not hold the workers.
const slotWait = 250 * time.Millisecond

// keyedSemaphore bounds the deliveries at once to one key.
type keyedSemaphore struct {
	mu   sync.Mutex
	used map[string]*slot
}

type slot struct {
	tokens chan struct{}
	users  int
}

func newKeyedSemaphore() *keyedSemaphore { return &keyedSemaphore{used: map[string]*slot{}} }

// acquire takes one of the limit slots of the key, or reports false after slotWait or the end of ctx.
func (s *keyedSemaphore) acquire(ctx context.Context, key string, limit int) (release func(), ok bool) {
	entry := s.join(key, limit)
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case entry.tokens <- struct{}{}:
		return func() { <-entry.tokens; s.leave(key, entry) }, true
	case <-timer.C:
	case <-ctx.Done():
	}
	s.leave(key, entry)
	return nil, false
}

func (s *keyedSemaphore) join(key string, limit int) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, ok := s.used[key]
	if !ok {
		entry = &slot{tokens: make(chan struct{}, limit)}
		s.used[key] = entry
	}
	entry.users++
	return entry
}

func (s *keyedSemaphore) leave(key string, entry *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry.users--
	if entry.users == 0 {
		delete(s.used, key)
	}
}

// rateLimiter spaces the attempts to one key: so many in a second, and as many at once when it was quiet before.
type rateLimiter struct {
	mu   sync.Mutex
	next map[string]time.Time // when the allowance of the key is whole again
}

func newRateLimiter() *rateLimiter { return &rateLimiter{next: map[string]time.Time{}} }

// take reserves an attempt and says how long to wait for it. A wait of more than patience reserves nothing.
func (p *rateLimiter) take(key string, perSecond float64, atOnce int, now time.Time, patience time.Duration) (wait time.Duration, ok bool) {
	if perSecond <= 0 {
		return 0, true
	}
	step := time.Duration(float64(time.Second) / perSecond)
	burst := max(time.Second-step, 0)
	if atOnce > 0 {
		burst = step * time.Duration(atOnce-1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.next) >= maxKeys {
		bounded.MakeRoom(p.next, func(whole time.Time) bool { return whole.Before(now) })
	}
	whole := p.next[key]
	if whole.Before(now) {
		whole = now
	}
	if wait = whole.Sub(now) - burst; wait > patience {
		return wait, false
	}
	p.next[key] = whole.Add(step)
	return max(wait, 0), true
}

// placeTime is how long an attempt keeps its place: whoever waits for a slow peer costs no processor, so the place goes
// to the next, and peers that are dead or slow delay nobody else.
const placeTime = time.Second

// semaphore bounds the attempts that work at once on this node. A nil semaphore bounds nothing.
type semaphore chan struct{}

// take waits for a place. The returned function gives it back; that happens by itself after placeTime.
func (p semaphore) take(ctx context.Context) (leave func(), err error) {
	if p == nil {
		return func() {}, nil
	}
	select {
	case p <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var once sync.Once
	release := func() { once.Do(func() { <-p }) }
	timer := time.AfterFunc(placeTime, release)
	return func() { timer.Stop(); release() }, nil
}
