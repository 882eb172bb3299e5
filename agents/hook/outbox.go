package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"inbox/agents/runtime/value"
	"inbox/identity"
	"inbox/internal/clock"
)

// Bounds of the events of one run that its observer does not have yet. What comes beyond them is lost; the sequence has a gap.
const (
	MaxWaiting      = 1000
	MaxWaitingBytes = 256 << 10
	maxPayload      = 8 << 10 // of one event
	maxBatch        = 100     // events in one request
)

// Pauses of an outbox whose observer does not answer; they double.
const (
	shortestPause = 200 * time.Millisecond
	longestPause  = 10 * time.Second
)

// State is what a run must remember of its outbox.
type State struct {
	Sequence int64   `json:"sequence"`
	Waiting  []Event `json:"waiting,omitempty"`
}

// Outbox takes the events of one run and brings them to its observer, in order. An event has no number and is not sent before the state
// with it was kept (Keep, Kept): one that comes again after a crash is therefore the same, and one that no one remembers was never
// sent. Add and Keep never wait for the observer. Add, Keep, Kept and Close are for one goroutine.
type Outbox struct {
	hook      *Hook
	run       Run
	principal Principal

	fresh []Event // without a number

	mu       sync.Mutex
	sequence int64
	waiting  []Event // numbered
	bytes    int     // of their payloads
	kept     int     // how many of them may be sent
	problem  error   // of the last request

	started bool
	stop    context.CancelFunc
	bell    chan struct{}
	closing chan struct{}
	ended   chan struct{}
}

// NewOutbox makes the outbox of a run.
func (h *Hook) NewOutbox(run Run, principal Principal) *Outbox {
	return &Outbox{
		hook: h, run: run, principal: principal,
		bell: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Resume takes up what an earlier attempt of the run kept. It comes before the first Keep.
func (o *Outbox) Resume(state State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sequence, o.waiting, o.kept = state.Sequence, state.Waiting, len(state.Waiting)
	for i := range o.waiting {
		o.bytes += len(o.waiting[i].Payload)
	}
}

// Add takes an event. A payload over 8 KiB is replaced by what names the call.
func (o *Outbox) Add(kind string, payload map[string]any) {
	content, err := value.Encode(payload)
	if err != nil || len(content) > maxPayload {
		content, _ = value.Encode(map[string]any{
			"omitted_bytes": len(content), "turn": payload["turn"], "tool_name": payload["tool_name"], "tool_call_id": payload["tool_call_id"],
		})
	}
	o.fresh = append(o.fresh, Event{Attempt: o.run.Attempt, At: identity.Now(), Type: kind, Payload: json.RawMessage(content)})
}

// Fresh reports whether there are events that were never kept.
func (o *Outbox) Fresh() bool { return len(o.fresh) > 0 }

// Keep numbers what was added and returns the state to remember; Kept follows when it is remembered.
func (o *Outbox) Keep() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, event := range o.fresh {
		o.sequence++
		if len(o.waiting) >= MaxWaiting || o.bytes+len(event.Payload) > MaxWaitingBytes {
			continue
		}
		event.Sequence, event.ID = o.sequence, fmt.Sprintf("%s:%d", o.run.ID, o.sequence)
		o.waiting, o.bytes = append(o.waiting, event), o.bytes+len(event.Payload)
	}

	o.fresh = nil
	return State{Sequence: o.sequence, Waiting: append([]Event(nil), o.waiting...)}
}

// Kept lets everything be sent that was numbered.
func (o *Outbox) Kept() {
	o.mu.Lock()
	o.kept = len(o.waiting)
	due := o.kept > 0
	o.mu.Unlock()

	if !due {
		return
	}

	if !o.started {
		o.started = true
		ctx, stop := context.WithCancel(context.Background())
		o.stop = stop
		go o.send(ctx)
	}
	select {
	case o.bell <- struct{}{}:
	default: // it is awake already
	}
}

// Close waits until everything that may be sent was sent, but not longer than the context and Options.Timeout allow. It returns how
// many events the observer does not have, and why.
func (o *Outbox) Close(ctx context.Context) (undelivered int, err error) {
	if o.started {
		limited, cancel := context.WithTimeout(ctx, o.hook.options.Timeout)
		defer cancel()
		close(o.closing)
		select {
		case <-o.ended:
		case <-limited.Done():
		}
		o.stop()
		<-o.ended
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting), o.problem
}

// send runs until the outbox is closed and empty, or stopped.
func (o *Outbox) send(ctx context.Context) {
	defer close(o.ended)
	pause := shortestPause
	for {
		batch := o.next()
		if len(batch) == 0 {
			select {
			case <-o.bell:
				continue
			case <-o.closing:
				if len(o.next()) > 0 {
					continue
				}
				return
			case <-ctx.Done():
				return
			}
		}

		err := o.hook.Tell(ctx, Events{
			Hook: KindEvents, ID: fmt.Sprintf("%s:%d-%d", o.run.ID, batch[0].Sequence, batch[len(batch)-1].Sequence),
			SentAt: identity.Now(), Run: o.run, Principal: o.principal, Events: batch,
		})
		if err != nil && ctx.Err() != nil {
			o.interrupted()
			return
		}
		if o.told(len(batch), err) {
			pause = shortestPause
			continue
		}
		if clock.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, longestPause)
	}
}

func (o *Outbox) next() []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting[:min(o.kept, maxBatch):min(o.kept, maxBatch)]
}

// interrupted notes that Close ended the last request. What the observer answered before says more than that.
func (o *Outbox) interrupted() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.problem == nil {
		o.problem = errors.New("the hook did not answer before the run ended")
	}
}

// told notes how a request ended and reports whether the next one may follow at once.
func (o *Outbox) told(count int, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.problem = err
	if err != nil {
		return false
	}

	for _, event := range o.waiting[:count] {
		o.bytes -= len(event.Payload)
	}
	o.waiting, o.kept = append([]Event(nil), o.waiting[count:]...), o.kept-count
	return true
}
