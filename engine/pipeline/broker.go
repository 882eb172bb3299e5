package pipeline

import (
	"context"
	"sync"

	"inbox/exchange"
)

// maxExpected bounds the turns that were accepted here and are remembered until their end; beyond it the rows are
// read. maxRemembered bounds the original of a message that is remembered with its turn.
const (
	maxExpected   = 4096
	maxRemembered = 16 << 10
)

// broker tells waiting callers of this process that something happened to a turn. It holds no truth: whoever misses a
// wake-up finds the row by the slow poll.
type broker struct {
	mu       sync.Mutex
	watchers map[string]*audience
	expected map[string]*expectation
	cancels  map[string]*running
}

// running is a run of this process.
type running struct {
	turn  exchange.TurnRecord
	stop  context.CancelFunc
	again bool // its message was edited: it begins anew
}

// expectation carries a turn that was accepted here to its run, and its end to the caller that waits, without a query.
type expectation struct {
	accepted *exchange.TurnRecord // nil for large messages
	fresh    bool                 // nothing precedes it in its thread
	done     chan struct{}
	turn     exchange.TurnRecord // set before done is closed
}

func newBroker() *broker {
	return &broker{
		watchers: map[string]*audience{}, expected: map[string]*expectation{}, cancels: map[string]*running{},
	}
}

// expect announces a turn before it is stored, so that its end cannot be missed.
func (h *broker) expect(turn exchange.TurnRecord, size int, fresh bool) {
	entry := &expectation{done: make(chan struct{}), fresh: fresh}
	if size <= maxRemembered {
		entry.accepted = &turn
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.expected) < maxExpected {
		h.expected[turn.ID] = entry
	}
}

func (h *broker) forget(turnID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.expected, turnID)
}

func (h *broker) expectation(turnID string) (*expectation, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry, ok := h.expected[turnID]
	return entry, ok
}

// finished hands the end of a turn to whoever waits.
func (h *broker) finished(turn exchange.TurnRecord) {
	h.mu.Lock()
	if entry, ok := h.expected[turn.ID]; ok {
		entry.turn = turn
		close(entry.done)
		delete(h.expected, turn.ID)
	}
	h.mu.Unlock()
	h.notify(turn.ID)
}

// watch returns a channel that gets a value after each change of the turn.
func (h *broker) watch(turnID string) (changes <-chan struct{}, stop func()) {
	channel := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	listening := h.watchers[turnID]
	if listening == nil {
		listening = &audience{channels: map[chan struct{}]bool{}, read: map[place]*reading{}}
		h.watchers[turnID] = listening
	}
	listening.channels[channel] = true
	return channel, func() { h.unwatch(turnID, channel) }
}

func (h *broker) unwatch(turnID string, channel chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	listening := h.watchers[turnID]
	if delete(listening.channels, channel); len(listening.channels) == 0 {
		delete(h.watchers, turnID)
	}
}

func (h *broker) notify(turnID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	listening := h.watchers[turnID]
	if listening == nil {
		return
	}
	listening.changes++
	for channel := range listening.channels {
		select {
		case channel <- struct{}{}:
		default:
		}
	}
}

// running remembers how to stop a run of this process; the returned function forgets it and reports whether the run has to
// begin anew.
func (h *broker) running(turn exchange.TurnRecord, cancel context.CancelFunc) (done func() (again bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	turnID := turn.ID
	entry := &running{turn: turn, stop: cancel}
	h.cancels[turnID] = entry
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.cancels[turnID] == entry {
			delete(h.cancels, turnID)
		}
		return entry.again
	}
}

// restart stops a run of this process that works on words which are not there any more.
func (h *broker) restart(turnID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if entry, ok := h.cancels[turnID]; ok {
		entry.again = true
		entry.stop()
	}
}

// isRunning reports whether a run of the turn is in this process.
func (h *broker) isRunning(turnID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.cancels[turnID]
	return ok
}

func (h *broker) cancel(turnID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if entry, ok := h.cancels[turnID]; ok {
		entry.stop()
	}
}

// runningTurns returns the turns whose runs are in this process.
func (h *broker) runningTurns() []exchange.TurnRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	turns := make([]exchange.TurnRecord, 0, len(h.cancels))
	for _, run := range h.cancels {
		turns = append(turns, run.turn)
	}
	return turns
}
