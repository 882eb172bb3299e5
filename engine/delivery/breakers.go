package delivery

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	failureLimit   = 5                // failures inside failureWindow that no recipient can have caused open the breaker
	recipientLimit = 10               // or so many different recipients, each of whom may have caused one
	askingLimit    = 3                // so many different recipients for whom a pause was asked make it one of the destination
	failureWindow  = 10 * time.Minute //
	probeTime      = time.Minute      // a probe that reported nothing in this time was cut off; another may go
	yieldTime      = time.Minute      // after a pause, recipients who may have caused it leave the probe to others for so long
	maxKeys        = 10_000           // remembered destinations, and recipients; beyond it those are forgotten that were not tried for longest
)

var pauses = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute}

// breakers pause destinations that keep failing, so that one dead host does not eat the workers. Failures are counted
// in memory; an open breaker of a destination is a Condition too, so that other nodes and a restart know it.
type breakers struct {
	mu   sync.Mutex
	keys *simplelru.LRU[string, *breaker]
}

type breaker struct {
	failures []failedOnce
	opened   int // how often it opened in a row; zero = it is closed, or holds a pause that the peer asked for
	until    time.Time
	probing  time.Time // when the one attempt after a pause began; zero = none
	blamed   []string  // recipients who may have caused the pause
}

// failedOnce is a failure that counts. Those that a recipient may have caused count once for each recipient.
type failedOnce struct {
	at     time.Time
	blamed string        // the recipient; empty = the destination
	asked  time.Duration // the pause that the peer asked for
}

func newBreakers() *breakers {
	keys, _ := simplelru.NewLRU[string, *breaker](maxKeys, nil)
	return &breakers{keys: keys}
}

// pause returns how long to wait before the next attempt for a recipient behind the key; zero = go. After a pause one probe goes through,
// which is first offered to recipients who had no part in it.
func (b *breakers) pause(key, recipient string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, ok := b.keys.Get(key)
	if !ok {
		return 0
	}

	until := state.until
	if recipient != "" && slices.Contains(state.blamed, recipient) {
		until = until.Add(yieldTime)
	}
	switch {
	case now.Before(until):
		return until.Sub(now)
	case state.opened == 0:
		return 0
	case now.Sub(state.probing) < probeTime:
		return time.Second
	}

	state.probing = now
	return 0
}

// leave tells that an attempt which pause let go was not made: it was no probe.
func (b *breakers) leave(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state, ok := b.keys.Get(key); ok {
		state.probing = time.Time{}
	}
}

// failing reports whether attempts failed lately.
func (b *breakers) failing(key string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, ok := b.keys.Get(key)
	if !ok {
		return false
	}
	state.failures = recent(state.failures, now)
	return state.opened > 0 || len(state.failures) > 0
}

// adopt takes over what another node, or this one before it stopped, knew of a key.
func (b *breakers) adopt(key string, opened int, until time.Time) {
	if opened == 0 {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if state := b.of(key); opened > state.opened {
		state.opened, state.until, state.failures = opened, until, nil
	}
}

func (b *breakers) success(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys.Remove(key)
}

// forget is success for all keys that begin with a text.
func (b *breakers) forget(beginning string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range b.keys.Keys() {
		if strings.HasPrefix(key, beginning) {
			b.keys.Remove(key)
		}
	}
}

// failure counts; limit bounds the pause, so that a short retry schedule is not outlasted by the breaker. It returns until when nothing
// goes to the key, and how often in a row the breaker opened; both are zero while it is closed.
func (b *breakers) failure(key string, failed failedOnce, limit time.Duration) (until time.Time, opened int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.of(key)
	state.failures = slices.DeleteFunc(recent(state.failures, failed.at), func(f failedOnce) bool { return f.blamed != "" && f.blamed == failed.blamed })
	state.failures = append(state.failures, failed)

	if asked := state.asked(failed); asked > 0 {
		state.until = later(state.until, failed.at.Add(asked))
	}
	if !state.opens(failed) {
		return state.until, state.opened
	}

	state.until = later(state.until, failed.at.Add(min(pauses[min(state.opened, len(pauses)-1)], limit)))
	state.opened++
	state.probing = time.Time{}
	state.blamed = nil
	for _, one := range state.failures {
		if one.blamed != "" {
			state.blamed = append(state.blamed, one.blamed)
		}
	}
	state.failures = nil
	return state.until, state.opened
}

// asked is the pause that the destination asks for: what it says for one recipient is no pause of the others.
func (s *breaker) asked(failed failedOnce) time.Duration {
	asking, shortest := 0, failed.asked
	for _, one := range s.failures {
		if one.asked > 0 {
			asking, shortest = asking+1, min(shortest, one.asked)
		}
	}
	switch {
	case failed.blamed == "":
		return failed.asked
	case asking >= askingLimit:
		return shortest
	}
	return 0
}

func (s *breaker) opens(failed failedOnce) bool {
	if !s.probing.IsZero() {
		return true
	}
	recipients := 0
	for _, one := range s.failures {
		if one.blamed != "" {
			recipients++
		}
	}
	return failed.blamed == "" && len(s.failures)-recipients >= failureLimit || recipients >= recipientLimit
}

// of returns what is known of a key, which is made where there is nothing. The caller holds the lock.
func (b *breakers) of(key string) *breaker {
	state, ok := b.keys.Get(key)
	if !ok {
		state = &breaker{}
		b.keys.Add(key, state)
	}
	return state
}

func recent(failures []failedOnce, now time.Time) []failedOnce {
	return slices.DeleteFunc(failures, func(f failedOnce) bool { return now.Sub(f.at) >= failureWindow })
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
