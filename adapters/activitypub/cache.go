package activitypub

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache keeps values for a time and at most so many of them; the one unused for longest goes first. A cache without
// both bounds is a leak that strangers can fill (Fedify CVE-2026-69132).
type cache[V any] struct {
	mu    sync.Mutex
	byKey *simplelru.LRU[string, cached[V]]
}

type cached[V any] struct {
	value   V
	expires time.Time
}

// newCache makes a cache of at most limit values, which is above 0.
func newCache[V any](limit int) *cache[V] {
	byKey, _ := simplelru.NewLRU[string, cached[V]](limit, nil)
	return &cache[V]{byKey: byKey}
}

func (c *cache[V]) get(key string, now time.Time) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, found := c.byKey.Get(key)
	if found && !now.Before(entry.expires) {
		c.byKey.Remove(key)
		return value, false
	}
	return entry.value, found
}

func (c *cache[V]) put(key string, value V, expires time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey.Add(key, cached[V]{value, expires})
}

func (c *cache[V]) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey.Remove(key)
}

// counter counts events by key in windows of fixed length. It is bounded like every cache.
type counter struct {
	limit  int
	period time.Duration
	mu     sync.Mutex
	counts *cache[counted]
}

type counted struct {
	events int
	until  time.Time
}

func newCounter(limit int, period time.Duration, keys int) *counter {
	return &counter{limit: limit, period: period, counts: newCache[counted](keys)}
}

// count counts an event and returns 0, or, when the limit was reached before, the time until the window ends.
func (t *counter) count(key string, now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	current, found := t.counts.get(key, now)
	if !found {
		current.until = now.Add(t.period)
	}

	if current.events >= t.limit {
		return current.until.Sub(now)
	}
	current.events++
	t.counts.put(key, current, current.until)
	return 0
}

// any reports whether something was counted for a key in its window.
func (t *counter) any(key string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, found := t.counts.get(key, now)
	return found
}

// exceeded returns the time until the window of a key ends that reached its limit, else 0. It counts nothing.
func (t *counter) exceeded(key string, now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if current, found := t.counts.get(key, now); found && current.events >= t.limit {
		return current.until.Sub(now)
	}
	return 0
}
