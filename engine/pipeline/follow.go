package pipeline

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"inbox/agents"
	"inbox/exchange"
)

const (
	pollEvery = time.Second // safety net behind the wake-ups
	eventPage = 200
)

// watcher serves those who wait for a turn.
type watcher struct{ *core }

// Wait blocks until the turn ended or waits for someone (consent, the operator), and returns it with its response.
// The end of ctx is its error; NotFound when there is no such turn.
func (s *watcher) Wait(ctx context.Context, turnID string) (exchange.TurnRecord, error) {
	if entry, ok := s.broker.await(turnID); ok {
		select {
		case <-entry.done:
			return *entry.end, nil
		case <-ctx.Done():
			return exchange.TurnRecord{}, ctx.Err()
		case <-time.After(pollEvery): // another node may run it
		}
	}

	changes, stop := s.broker.watch(turnID)
	defer stop()
	var known *reading
	for {
		found, err := s.turn(ctx, turnID, known)
		if err != nil {
			return exchange.TurnRecord{}, err
		}
		if settled(found.turn) {
			return found.turn, nil
		}

		known = found
		if err := waitChange(ctx, changes); err != nil {
			return found.turn, err
		}
	}
}

// Follow yields the events of a turn after the seq, first the stored ones, then live, and ends after the terminal
// one. A slow reader holds up no other one: it reads rows. No caller may change the bodies of events: they are shared.
func (s *watcher) Follow(ctx context.Context, turnID string, after int64) iter.Seq2[exchange.Event, error] {
	return func(yield func(exchange.Event, error) bool) {
		changes, stop := s.broker.watch(turnID)
		defer stop()
		var known *reading
		for {
			found, err := s.page(ctx, turnID, after, known)
			if err != nil {
				yield(exchange.Event{}, err)
				return
			}

			known = found
			for _, event := range found.events {
				after = event.Seq
				if !yield(event, nil) || ends(event) {
					return
				}
			}

			if len(found.events) == eventPage {
				continue
			}
			if err := waitChange(ctx, changes); err != nil {
				yield(exchange.Event{}, err)
				return
			}
		}
	}
}

// settled reports whether no caller needs to wait for the turn any longer. One that waits for other agents goes on by itself.
func settled(turn exchange.TurnRecord) bool {
	return exchange.Settled(turn.State) && !exchange.GoesOnByItself(turn)
}

func ends(event exchange.Event) bool {
	state, ok := strings.CutPrefix(event.Kind, "turn.")
	return ok && exchange.Terminal(state)
}

func waitChange(ctx context.Context, changes <-chan struct{}) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-changes:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Changed is told by the store after each commit of this process that touched the turn: waiting readers wake up.
func (s *watcher) Changed(turnID string) { s.broker.notify(turnID) }

// ChangedElsewhere is told when another node touched the turn: readers wake up, callers that wait for its end get it, and a run
// here stops that is not the turn's any more. An empty id means that anything may have happened. It does not wait for that, and
// nothing depends on it: the heartbeat of the queue finds such runs later.
func (s *watcher) ChangedElsewhere(turnID string) {
	s.broker.notify(turnID)
	for _, id := range s.broker.concerned(turnID) {
		if s.broker.beginLook(id) {
			go s.look(id)
		}
	}
}

// look reads the row of a turn that has a run or a caller in this process, again when it changed meanwhile.
func (s *watcher) look(turnID string) {
	for again := true; again; again = s.broker.endLook(turnID) {
		ctx, cancel := context.WithTimeout(context.Background(), readingTime)
		turn, err := s.options.Store.Turn(ctx, turnID)
		cancel()
		s.broker.overtake(turnID, turn, err)
		if err == nil && settled(turn) {
			s.broker.finished(turn)
		}
	}
}

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

// reading is one query whose outcome is shared. No one changes what is in it.
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

// page reads events of a turn that someone watches.
func (s *watcher) page(ctx context.Context, turnID string, after int64, not *reading) (*reading, error) {
	return s.broker.shared(ctx, turnID, place(after), not, func(ctx context.Context, r *reading) {
		r.events, r.err = s.options.Store.Events(ctx, turnID, after, eventPage)
	})
}

// turn reads a turn that someone watches.
func (s *watcher) turn(ctx context.Context, turnID string, not *reading) (*reading, error) {
	return s.broker.shared(ctx, turnID, theTurn, not, func(ctx context.Context, r *reading) {
		r.turn, r.err = s.options.Store.Turn(ctx, turnID)
	})
}

// maxExpected bounds the turns that were accepted here and are remembered until their end; beyond it the rows are
// read. maxRemembered bounds the original of a message that is remembered with its turn, and maxBacklog the bytes of all that wait for a slot:
// an original and rememberedTurn each.
const (
	maxExpected    = 4096
	maxRemembered  = 16 << 10
	maxBacklog     = 8 << 20
	rememberedTurn = 2 << 10 // about what the record of a turn takes beside the text
)

// broker tells waiting callers of this process that something happened to a turn. It holds no truth: a caller that misses a
// wake-up finds the row by the slow poll.
type broker struct {
	mu       sync.Mutex
	watchers map[string]*audience
	expected map[string]*expectation
	backlog  int                   // bytes of messages that wait for a slot and are remembered
	runs     map[string]*runRecord // of this process, while their agents work
	looks    map[string]bool       // turns whose rows are being read; true = they changed since that began
}

// expectation carries a turn that was accepted here to its run, and its end to the caller that waits, without a query.
type expectation struct {
	accepted *exchange.TurnRecord // nil for large messages
	fresh    bool                 // nothing precedes it in its thread
	size     int                  // counted in broker.backlog
	done     chan struct{}        // nil = no one waits
	end      *exchange.TurnRecord // set before done is closed
}

func newBroker() *broker {
	return &broker{
		watchers: map[string]*audience{}, expected: map[string]*expectation{}, runs: map[string]*runRecord{}, looks: map[string]bool{},
	}
}

// expect announces a turn before it is stored, so that its end cannot be missed. A turn that has a slot is remembered whatever waits.
func (h *broker) expect(turn exchange.TurnRecord, size int, fresh, hasSlot bool) {
	entry := &expectation{fresh: fresh}
	if !hasSlot {
		entry.size = size + rememberedTurn
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.expected) >= maxExpected {
		return
	}
	if size <= maxRemembered && h.backlog+entry.size <= maxBacklog {
		entry.accepted = &turn
		h.backlog += entry.size
	}
	h.expected[turn.ID] = entry
}

// remove forgets a turn; the lock is held.
func (h *broker) remove(turnID string) {
	if entry, ok := h.expected[turnID]; ok {
		delete(h.expected, turnID)
		if entry.accepted != nil {
			h.backlog -= entry.size
		}
	}
}

func (h *broker) forget(turnID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(turnID)
}

func (h *broker) expectation(turnID string) (*expectation, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry, ok := h.expected[turnID]
	return entry, ok
}

// await is expectation for a caller that waits for done. Most turns have none, and thousands may be expected.
func (h *broker) await(turnID string) (*expectation, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry, ok := h.expected[turnID]
	if ok && entry.done == nil {
		entry.done = make(chan struct{})
	}
	return entry, ok
}

// finished hands the end of a turn to the callers that wait.
func (h *broker) finished(turn exchange.TurnRecord) {
	h.mu.Lock()
	if entry, ok := h.expected[turn.ID]; ok {
		if entry.done != nil {
			end := turn
			entry.end = &end
			close(entry.done)
		}
		h.remove(turn.ID)
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

// running remembers a run of this process; leave forgets it.
func (h *broker) running(run *runRecord) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[run.turn.ID] = run
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.runs[run.turn.ID] == run {
			delete(h.runs, run.turn.ID)
		}
	}
}

// restart stops a run of this process that works on words which are not there any more.
func (h *broker) restart(turnID string) { h.stop(turnID, errEdited) }

// cancel stops a run of this process whose turn has ended.
func (h *broker) cancel(turnID, reason string) {
	h.interrupt(turnID, agents.InterruptCancel, reason)
	h.stop(turnID, errNotRunning)
}

// interrupt notes why a run of this process is to stop; its agent may finish what it is at.
func (h *broker) interrupt(turnID, source, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if run, ok := h.runs[turnID]; ok {
		run.interrupt(source, reason)
	}
}

func (h *broker) stop(turnID string, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if run, ok := h.runs[turnID]; ok {
		run.stop(cause)
	}
}

// overtake stops a run of this process that is not the turn's any more. The row was read with the error.
func (h *broker) overtake(turnID string, row exchange.TurnRecord, err error) {
	h.mu.Lock()
	run, ok := h.runs[turnID]
	h.mu.Unlock()
	if ok {
		run.compare(row, err)
	}
}

// concerned returns the turn if it has a run or a caller in this process. An empty id stands for every turn with a run; callers
// look for themselves now and then.
func (h *broker) concerned(turnID string) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if turnID == "" {
		return slices.Collect(maps.Keys(h.runs))
	}
	_, runs := h.runs[turnID]
	_, expected := h.expected[turnID]
	if runs || expected {
		ids = append(ids, turnID)
	}
	return ids
}

// beginLook reports whether the caller is to read the row of a turn. Otherwise the one who does reads it once more.
func (h *broker) beginLook(turnID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, looking := h.looks[turnID]
	h.looks[turnID] = looking
	return !looking
}

// endLook reports whether the row has to be read again.
func (h *broker) endLook(turnID string) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looks[turnID] {
		h.looks[turnID] = false
		return true
	}
	delete(h.looks, turnID)
	return false
}

// runningTurns returns the turns whose runs are in this process.
func (h *broker) runningTurns() []exchange.TurnRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	turns := make([]exchange.TurnRecord, 0, len(h.runs))
	for _, run := range h.runs {
		turns = append(turns, run.turn)
	}
	return turns
}
