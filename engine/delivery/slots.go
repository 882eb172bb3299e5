package delivery

import (
	"context"
	"sync"
	"time"
)

// slotWait is how long a worker waits for a busy destination before it takes other work instead: a quick host frees
// a slot within it, a slow one must not hold the workers.
const slotWait = 250 * time.Millisecond

// slots bound the deliveries at once to one key.
type slots struct {
	mu   sync.Mutex
	used map[string]*slot
}

type slot struct {
	tokens chan struct{}
	users  int
}

func newSlots() *slots { return &slots{used: map[string]*slot{}} }

// acquire takes one of the limit slots of the key, or reports false after slotWait or the end of ctx.
func (s *slots) acquire(ctx context.Context, key string, limit int) (release func(), ok bool) {
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

func (s *slots) join(key string, limit int) *slot {
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

func (s *slots) leave(key string, entry *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry.users--
	if entry.users == 0 {
		delete(s.used, key)
	}
}
