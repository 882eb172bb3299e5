package delivery

import (
	"sync"
	"time"

	"inbox/internal/bounded"
)

const (
	failureLimit  = 5                // failures inside failureWindow open the breaker
	failureWindow = 10 * time.Minute //
	probeTime     = time.Minute      // a probe that reported nothing in this time was cut off; another may go
	maxKeys       = 10000            // remembered destinations; beyond it the idle ones are forgotten
)

var pauses = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute}

// breakers pause destinations that keep failing, so that one dead host does not eat the workers. Failures are counted
// in memory; an open breaker is a Condition too, so that other nodes and a restart know it.
type breakers struct {
	mu   sync.Mutex
	keys map[string]*breaker
}

type breaker struct {
	failures []time.Time
	opened   int // how often it opened in a row
	until    time.Time
	probing  time.Time // when the one attempt after a pause began; zero = none
}

func newBreakers() *breakers { return &breakers{keys: map[string]*breaker{}} }

// pause says how long to wait before the next attempt to the key; zero = go. After a pause one probe goes through.
func (b *breakers) pause(key string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, ok := b.keys[key]
	if !ok || state.opened == 0 {
		return 0
	}
	if wait := state.until.Sub(now); wait > 0 {
		return wait
	}
	if now.Sub(state.probing) < probeTime {
		return time.Second
	}
	state.probing = now
	return 0
}

// adopt takes over what another node, or this one before it stopped, knew of a key.
func (b *breakers) adopt(key string, opened int, until, now time.Time) {
	if opened == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	state, ok := b.keys[key]
	if !ok {
		b.makeRoom(now)
		state = &breaker{}
		b.keys[key] = state
	}
	if opened > state.opened {
		state.opened, state.until, state.failures = opened, until, nil
	}
}

func (b *breakers) success(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.keys, key)
}

// failure counts; limit bounds the pause, so that a short retry schedule is not outlasted by the breaker. It gives until
// when and for how often in a row the breaker is open; both are zero while it is closed.
func (b *breakers) failure(key string, now time.Time, limit time.Duration) (until time.Time, opened int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, ok := b.keys[key]
	if !ok {
		b.makeRoom(now)
		state = &breaker{}
		b.keys[key] = state
	}
	state.failures = append(recent(state.failures, now), now)
	if state.probing.IsZero() && len(state.failures) < failureLimit {
		return state.until, state.opened
	}
	state.until = now.Add(min(pauses[min(state.opened, len(pauses)-1)], limit))
	state.opened++
	state.probing = time.Time{}
	state.failures = nil
	return state.until, state.opened
}

func recent(times []time.Time, now time.Time) []time.Time {
	kept := times[:0]
	for _, t := range times {
		if now.Sub(t) < failureWindow {
			kept = append(kept, t)
		}
	}
	return kept
}

// makeRoom forgets closed breakers, and when none is closed arbitrary ones.
func (b *breakers) makeRoom(now time.Time) {
	if len(b.keys) >= maxKeys {
		bounded.MakeRoom(b.keys, func(one *breaker) bool { return now.After(one.until) && len(recent(one.failures, now)) == 0 })
	}
}
