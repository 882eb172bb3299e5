package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"inbox/internal/fault"
)

const (
	// refusalRun is how many messages in a row the store must have refused: one may meet a page that the others do not.
	refusalRun = 3
	// refusalQuiet is how long after the last refusal the run is over, unless pages are damaged: the store may work again and no message comes.
	refusalQuiet = 10 * time.Second
)

// refusals counts the messages in a row that our own store refused. Only a message that is stored ends the count: a row that was written
// elsewhere shows nothing about messages.
type refusals struct {
	mu      sync.Mutex
	count   int
	last    time.Time
	damaged error // the last refusal for damaged pages in the run; nil = none
}

// note takes the result of an acceptance.
func (r *refusals) note(outcome string, err error, now time.Time) {
	refused := errors.Is(err, fault.ErrStore) && !errors.Is(err, context.Canceled)
	stored := err == nil && outcome != outcomeDuplicate && outcome != outcomeRefused
	if !refused && !stored {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if stored {
		r.count, r.damaged = 0, nil
		return
	}
	r.count++
	r.last = now
	if errors.Is(err, fault.ErrDamaged) {
		r.damaged = err
	}
}

// check returns a fault while the store refuses messages.
func (r *refusals) check(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.count < refusalRun:
		return nil
	case r.damaged != nil:
		return fault.Wrap(fault.Unavailable, "the database is damaged, and messages are refused", r.damaged)
	case now.Sub(r.last) >= refusalQuiet:
		return nil
	}
	return fault.Newf(fault.Unavailable, "the database refused the last %d messages", r.count)
}

// StoreRefuses returns a fault while our own store refuses one message after the other. Damaged pages do not heal: after a refusal for them
// only a message that is stored, or a restart, ends it.
func (s *acceptor) StoreRefuses() error { return s.refused.check(time.Now()) }
