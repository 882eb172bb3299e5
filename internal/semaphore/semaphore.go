// Package semaphore bounds how many callers work at once, for each key such as a host.
package semaphore

import (
	"context"
	"sync"
)

// Keyed bounds the callers at once for each key. A key takes memory only while it is in use. The zero value is ready; it is
// safe for concurrent use.
type Keyed struct {
	mutex sync.Mutex
	slots map[string]*slots
}

// slots are those of one key.
type slots struct {
	taken chan struct{}
	users int // callers that wait or work
}

// Acquire waits for one of limit slots of the key and returns the function that frees it, to be called once. When ctx ends
// first its error is the cause. While a key is in use its limit stays that of its first caller.
func (k *Keyed) Acquire(ctx context.Context, key string, limit int) (release func(), err error) {
	s := k.join(key, limit)
	select {
	case s.taken <- struct{}{}:
	case <-ctx.Done():
		k.leave(key, s)
		return nil, context.Cause(ctx)
	}

	return func() {
		<-s.taken
		k.leave(key, s)
	}, nil
}

// InUse returns how many keys are in use.
func (k *Keyed) InUse() int {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return len(k.slots)
}

func (k *Keyed) join(key string, limit int) *slots {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	if k.slots == nil {
		k.slots = map[string]*slots{}
	}
	s := k.slots[key]
	if s == nil {
		s = &slots{taken: make(chan struct{}, limit)}
		k.slots[key] = s
	}
	s.users++
	return s
}

func (k *Keyed) leave(key string, s *slots) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	if s.users--; s.users == 0 {
		delete(k.slots, key)
	}
}
