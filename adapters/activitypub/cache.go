package activitypub

import (
	"container/list"
	"sync"
	"time"
)

// cache keeps values for a time and at most so many of them; the one unused for longest goes first. A cache without
// both bounds is a leak that strangers can fill (Fedify CVE-2026-69132).
type cache[V any] struct{ entries }

func newCache[V any](limit int) *cache[V] {
	return &cache[V]{entries{limit: limit, byKey: make(map[string]*list.Element), order: list.New()}}
}

func (c *cache[V]) get(key string, now time.Time) (value V, found bool) {
	kept, found := c.find(key, now)
	value, _ = kept.(V)
	return value, found
}

func (c *cache[V]) put(key string, value V, expires time.Time) { c.keep(key, value, expires) }

// entries is a cache of values of any type, so that the program has its code once.
type entries struct {
	mu    sync.Mutex
	limit int
	byKey map[string]*list.Element
	order *list.List // of *cached, front = most recently used
}

type cached struct {
	key     string
	value   any
	expires time.Time
}

func (e *entries) find(key string, now time.Time) (value any, found bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	element, found := e.byKey[key]
	if !found {
		return nil, false
	}

	entry := element.Value.(*cached)
	if !now.Before(entry.expires) {
		e.remove(element)
		return nil, false
	}

	e.order.MoveToFront(element)
	return entry.value, true
}

func (e *entries) keep(key string, value any, expires time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if element, found := e.byKey[key]; found {
		e.remove(element)
	}

	e.byKey[key] = e.order.PushFront(&cached{key, value, expires})
	if e.order.Len() > e.limit {
		e.remove(e.order.Back())
	}
}

func (e *entries) drop(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if element, found := e.byKey[key]; found {
		e.remove(element)
	}
}

func (e *entries) remove(element *list.Element) {
	delete(e.byKey, element.Value.(*cached).key)
	e.order.Remove(element)
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
