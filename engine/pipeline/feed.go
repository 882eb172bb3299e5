package pipeline

import (
	"context"
	"time"

	"inbox/exchange"
)

// Followers of one turn mostly stand at the same place of its log and wake up together: a thousand of them would read the
// same rows a thousand times, and the other readers of the database would wait. They share what one of them read.
const (
	maxShared   = 8                // readings of one turn that are kept; who is further behind reads for itself
	readingTime = 30 * time.Second // the store's own limit is shorter
)

// audience is who waits for changes of one turn, with what was read of it. It is guarded by broker.mu and ends with the last
// of them.
type audience struct {
	channels map[chan struct{}]bool
	changes  uint64 // announced so far
	read     map[place]*reading
}

// place is a seq behind which events are read, or the row of the turn itself.
type place int64

const theTurn place = -1

// reading is one query whose outcome is shared. Nobody changes what is in it.
type reading struct {
	changes uint64        // of the audience when it began: it has seen them all
	done    chan struct{} // closed when the rest is there
	events  []exchange.Event
	turn    exchange.TurnRecord
	err     error
}

// shared returns a reading that has seen every announced change. Not is the one that the caller had at this place: who
// looks again for fear that an announcement was lost gets another. The caller must be watching the turn.
func (h *broker) shared(ctx context.Context, turnID string, at place, not *reading, read func(context.Context, *reading)) (*reading, error) {
	h.mu.Lock()
	listening := h.watchers[turnID]
	found := listening.read[at]
	if found != nil && found != not && found.changes == listening.changes {
		h.mu.Unlock()
		select {
		case <-found.done:
			return found, found.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	found = &reading{changes: listening.changes, done: make(chan struct{})}
	if len(listening.read) >= maxShared {
		clear(listening.read)
	}
	listening.read[at] = found
	h.mu.Unlock()
	h.perform(ctx, listening, at, found, read)
	return found, found.err
}

// perform reads for all, also when the one who began leaves meanwhile. A failure is not kept.
func (h *broker) perform(ctx context.Context, listening *audience, at place, found *reading, read func(context.Context, *reading)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readingTime)
	defer cancel()
	defer close(found.done)
	read(ctx, found)
	if found.err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if listening.read[at] == found {
		delete(listening.read, at)
	}
}

// page reads events of a turn that somebody watches.
func (s *Service) page(ctx context.Context, turnID string, after int64, not *reading) (*reading, error) {
	return s.broker.shared(ctx, turnID, place(after), not, func(ctx context.Context, r *reading) {
		r.events, r.err = s.options.Store.Events(ctx, turnID, after, eventPage)
	})
}

// turn reads a turn that somebody watches.
func (s *Service) turn(ctx context.Context, turnID string, not *reading) (*reading, error) {
	return s.broker.shared(ctx, turnID, theTurn, not, func(ctx context.Context, r *reading) {
		r.turn, r.err = s.options.Store.Turn(ctx, turnID)
	})
}
