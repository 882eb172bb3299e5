package activitypub

import (
	"sync"
	"time"
)

// tally counts events by key in windows of fixed length. It is bounded like every cache.
type tally struct {
	limit  int
	period time.Duration
	mu     sync.Mutex
	counts *cache[counted]
}

type counted struct {
	events int
	until  time.Time
}

func newTally(limit int, period time.Duration, keys int) *tally {
	return &tally{limit: limit, period: period, counts: newCache[counted](keys)}
}

// take counts an event and gives 0, or, when the limit was reached before, the time until the window ends.
func (t *tally) take(key string, now time.Time) (wait time.Duration) {
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
func (t *tally) any(key string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, found := t.counts.get(key, now)
	return found
}

// exceeded gives the time until the window of a key ends that reached its limit, else 0. It counts nothing.
func (t *tally) exceeded(key string, now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if current, found := t.counts.get(key, now); found && current.events >= t.limit {
		return current.until.Sub(now)
	}
	return 0
}
