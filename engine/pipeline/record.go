package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
	"inbox/policypart"
)

// markAfter is how long a run may take before its turn is written as running. A quicker answer brings the row along
// in its own transaction, which saves a commit; a crash before it leaves an accepted turn whose job comes back.
const markAfter = 50 * time.Millisecond

// runRecord is one run of a turn. It writes the row "turn.running", once, and the agent's steps with whatever else the run writes.
type runRecord struct {
	store   Store
	turn    exchange.TurnRecord     // as the run began with it
	stop    context.CancelCauseFunc // ends the run: errNotRunning or errEdited
	leave   func()                  // afterwards only the row decides about the run: nothing else stops it
	agent   agents.Entry            // with which the run began
	known   bool                    // there was one
	move    Move
	again   bool              // an earlier run streamed perhaps: what it sent is void
	probe   time.Time         // not zero: the run asks whether the agent's back end is back, alone until then
	handed  exchange.Takeover // the newest takeover of the conversation, which has ended; empty = none, or nothing to tell of it
	timer   *time.Timer
	once    sync.Once
	written bool
	err     error
	steps   steps
	result  runResult
	blobs   Blobs       // for a large result
	lease   func() bool // whether the job's lease holds; nil = it is not known
	stopper atomic.Pointer[agents.Interrupt]
	writing sync.Mutex  // an agent may save its note from any of its goroutines
	noted   atomic.Bool // the agent has a note
}

// begin numbers the run and sees to its record. The turn has to be as it was read: what begins here ends with errNotRunning or
// errEdited as its cause when it is not. The error is the outcome of the job; without one the caller ends the record.
func (s *runner) begin(ctx context.Context, job queue.Job, turn *exchange.TurnRecord) (context.Context, *runRecord, error) {
	again := turn.State == exchange.StateRunning || turn.Attempt > 0 || job.Attempt > 1
	turn.Attempt = max(turn.Attempt+1, job.Attempt)
	m := &runRecord{store: s.options.Store, blobs: s.options.Blobs, again: again, turn: *turn, lease: job.Held, move: beginRun.Move(turn.ID, exchange.StateRunning, "", time.Now())}
	m.move.Attempt, m.move.Unchanged = turn.Attempt, turn.UpdatedAt
	if again {
		moved, err := m.write(ctx)
		if err != nil {
			return ctx, nil, queue.RetryAfter(time.Second, err)
		}
		if !moved {
			return ctx, nil, queue.RetryAfter(time.Millisecond, errChanged) // the row is read again
		}
	}

	s.logStep(ctx, beginning, *turn, "")
	ctx, m.stop = context.WithCancelCause(ctx)
	m.leave = s.broker.running(m)
	if !again {
		m.timer = time.AfterFunc(markAfter, func() { m.mark(ctx) })
	}
	return ctx, m, nil
}

// interrupt notes why the run is to stop. The newest reason counts.
func (m *runRecord) interrupt(source, reason string) {
	m.stopper.Store(&agents.Interrupt{Source: source, Reason: reason})
}

// interrupted implements agents.Turn.Interrupt.
func (m *runRecord) interrupted() *agents.Interrupt { return m.stopper.Load() }

// held implements agents.Turn.Lease. A run whose lease is over ends: another node may have its turn, and the heartbeat that
// finds out may be as late as the run.
func (m *runRecord) held(lease queue.Lease) func() (string, bool) {
	token := lease.JobID + "/" + strconv.FormatInt(lease.Fence, 10)
	return func() (string, bool) {
		if m.lease == nil || m.lease() {
			return token, true
		}
		m.stop(queue.ErrLeaseLost)
		return token, false
	}
}

// end frees what the run holds.
func (m *runRecord) end() {
	m.leave()
	m.stop(nil)
	if m.timer != nil {
		m.timer.Stop()
	}
}

// mark writes the row of a run that takes long. Where the write fails the answer brings the row along; a run that is not the turn's any
// more ends.
func (m *runRecord) mark(ctx context.Context) {
	if moved, err := m.write(ctx); err == nil && !moved {
		m.look(ctx)
	}
}

// look ends the run unless it is still the turn's. A row that cannot be read now is compared at the end of the run.
func (m *runRecord) look(ctx context.Context) {
	row, err := m.store.Turn(ctx, m.turn.ID)
	m.compare(row, err)
}

// compare ends the run unless the row, which was read with the error, is the one with which it began. A run whose conversation an operator
// has taken over goes on: what it brings becomes a draft.
func (m *runRecord) compare(row exchange.TurnRecord, err error) {
	at := row.UpdatedAt.UnixMicro()
	switch {
	case err != nil && !fault.Is(err, fault.NotFound):
	case err == nil && waitsForOperator(row):
		m.interrupt(agents.InterruptTakeover, reasonTakenOver)
	case err != nil || !takesRuns(row):
		m.interrupt(agents.InterruptCancel, cmp.Or(row.Reason, "the turn has ended"))
		m.stop(errNotRunning)
	case at != m.turn.UpdatedAt.UnixMicro() && at != m.move.At.UnixMicro():
		m.stop(errEdited)
	}
}

// takesRuns reports whether the turn is one that an agent runs, or is to run.
func takesRuns(turn exchange.TurnRecord) bool {
	return turn.State == exchange.StateAccepted || turn.State == exchange.StateRunning
}

// write writes the row now, unless it is there. It reports whether the turn was as the run began with it.
func (m *runRecord) write(ctx context.Context) (moved bool, err error) {
	moved = true
	m.once.Do(func() {
		m.err = m.store.InTx(ctx, func(tx Tx) (err error) {
			moved, err = m.in(ctx, tx)
			return err
		})
		m.written = m.err == nil
	})
	return moved, m.err
}

// in writes the row inside a transaction of the caller.
func (m *runRecord) in(ctx context.Context, tx Tx) (moved bool, err error) {
	moved, err = tx.MoveTurn(ctx, m.move)
	if err != nil || !moved || !m.again {
		return moved, err
	}
	return true, tx.AppendEvents(ctx, m.move.ID, []exchange.Event{{Kind: exchange.EventRestarted, At: m.move.At}})
}

// unchanged is when the turn was written last if it is still as the run has it. Missing: the row "turn.running" is not there.
func (m *runRecord) unchanged(missing bool) time.Time {
	if missing {
		return m.turn.UpdatedAt
	}
	return m.move.At
}

// event is the row for a caller that writes the turn itself.
func (m *runRecord) event() exchange.Event {
	return exchange.Event{Kind: "turn." + exchange.StateRunning, Body: fmt.Appendf(nil, `{"attempt":%d}`, m.move.Attempt), At: m.move.At}
}

// keepResult implements agents.Turn.KeepResult.
func (m *runRecord) keepResult(document []byte) { m.result.keep(m.move.ID, m.move.Attempt, document) }

// flushResult is flush with the conversation result of the run, if it gave one.
func (m *runRecord) flushResult(ctx context.Context, more func(Tx) error) error {
	result, number := m.result.ready(ctx, m.blobs)
	err := m.flush(ctx, func(tx Tx) error {
		if err := putResult(ctx, tx, result); err != nil || more == nil {
			return err
		}
		return more(tx)
	})
	if err == nil {
		m.result.wrote(number)
	}
	return err
}

// flush writes the row if it is not there, the agent's steps and more in one transaction. The result of the run is not among them: a
// piece of an answer that leaves early is no end of the run. Steps that may be stored are written again with the next flush.
func (m *runRecord) flush(ctx context.Context, more func(Tx) error) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	missing, noted := m.missing(), m.steps.noted()
	moved := true
	err := m.store.InTx(ctx, func(tx Tx) (err error) {
		if missing {
			if moved, err = m.in(ctx, tx); err != nil {
				return err
			}
		}
		if err := appendLate(ctx, tx, m.move.ID, noted); err != nil || more == nil {
			return err
		}
		return more(tx)
	})
	if err == nil {
		m.written = true
		m.steps.wrote(len(noted))
	}
	if err == nil && !moved {
		m.look(ctx)
	}

	return err
}

// late returns the steps that the end of the run has to bring along, and whether the row "turn.running" is still to be written.
// Afterwards no other writer writes them.
func (m *runRecord) late() (events []exchange.Event, missing bool) {
	m.writing.Lock()
	defer m.writing.Unlock()
	return m.steps.noted(), m.missing()
}

// isMarked reports whether the row of the run is there although late called it missing: a write whose commit had no answer may be on disk.
func (m *runRecord) isMarked(ctx context.Context) bool {
	m.writing.Lock()
	defer m.writing.Unlock()
	if !m.missing() {
		return false
	}
	row, err := m.store.Turn(ctx, m.turn.ID)
	m.written = err == nil && row.State == exchange.StateRunning && row.UpdatedAt.UnixMicro() == m.move.At.UnixMicro()
	return m.written
}

func appendLate(ctx context.Context, tx Tx, turnID string, events []exchange.Event) error {
	if len(events) == 0 {
		return nil
	}
	return tx.AppendEvents(ctx, turnID, events)
}

// missing reports whether the row still has to be written with the answer. Afterwards no other writer writes it.
func (m *runRecord) missing() bool {
	if m.timer != nil {
		m.timer.Stop()
	}
	m.once.Do(func() {}) // waits for a write under way, or forbids a later one
	return !m.written
}

// Bounds of what one run may write about itself: agents of embedding programs write it, too.
const (
	maxSteps     = 500
	maxStepBytes = 8 << 10
)

// steps are rows of a run that wait for its next write.
type steps struct {
	mu    sync.Mutex
	rows  []exchange.Event
	count int // of the run
}

// note implements agents.Turn.Steps. What is over the bounds, or no JSON, is left out: a timeline must not end a run.
func (s *steps) note(kind string, body any) {
	encoded, err := json.Marshal(body)
	if err != nil || len(encoded) > maxStepBytes {
		encoded = json.RawMessage(`{"left_out":true}`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count++; s.count <= maxSteps {
		s.rows = append(s.rows, exchange.Event{Kind: kind, Body: encoded, At: time.Now()})
	}
}

func (s *steps) noted() []exchange.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rows)
}

func (s *steps) wrote(count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = s.rows[count:]
}

// flushEvery is how long deltas are gathered before they become rows: token by token would be one fsync a word.
const flushEvery = 100 * time.Millisecond

// recorder writes the deltas of a growing answer as events, text gathered. An answer that is complete before the
// first flush writes none: its response says it all. What an agent said before it fell silent is written by a timer.
type recorder struct {
	turnID string
	record *runRecord

	mu      sync.Mutex
	pending []normalized.Delta
	flushed time.Time
	timer   *time.Timer
	ended   bool
	err     error // of a flush by the timer
}

func newRecorder(turnID string, record *runRecord) *recorder {
	return &recorder{turnID: turnID, record: record, flushed: time.Now()}
}

func (r *recorder) add(ctx context.Context, delta normalized.Delta) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.err != nil {
		return r.err
	}

	r.gather(delta)
	wait := flushEvery - time.Since(r.flushed)
	if wait <= 0 {
		return r.flush(ctx)
	}

	if r.timer == nil {
		r.timer = time.AfterFunc(wait, func() { r.late(ctx) })
	}

	return nil
}

// late writes what nothing followed.
func (r *recorder) late(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	if !r.ended && r.err == nil && len(r.pending) > 0 && ctx.Err() == nil {
		r.err = r.flush(ctx)
	}
}

// end waits for a write under way; afterwards nothing is written any more.
func (r *recorder) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// gather joins neighbouring texts.
func (r *recorder) gather(delta normalized.Delta) {
	if last := len(r.pending) - 1; last >= 0 && delta.Kind == normalized.DeltaText && r.pending[last].Kind == normalized.DeltaText {
		r.pending[last].Text += delta.Text
		return
	}
	r.pending = append(r.pending, delta)
}

// maxDeltaText bounds the text of one event in bytes: each follower decodes and writes whole events, and one that is slow
// holds what it works on.
const maxDeltaText = 8 << 10

// cutTexts cuts long texts where a character ends.
func cutTexts(deltas []normalized.Delta) []normalized.Delta {
	list := make([]normalized.Delta, 0, len(deltas))
	for _, delta := range deltas {
		for delta.Kind == normalized.DeltaText && len(delta.Text) > maxDeltaText {
			piece := clip.Bytes(delta.Text, maxDeltaText)
			list = append(list, normalized.Delta{Kind: delta.Kind, Text: piece})
			delta.Text = delta.Text[len(piece):]
		}
		list = append(list, delta)
	}
	return list
}

func (r *recorder) flush(ctx context.Context) error {
	events := make([]exchange.Event, 0, len(r.pending))
	for _, delta := range cutTexts(r.pending) {
		body, err := delta.AppendJSON(nil)
		if err != nil {
			return err
		}
		events = append(events, exchange.Event{Kind: exchange.EventDelta, Body: body, At: time.Now()})
	}

	err := r.record.flush(ctx, func(tx Tx) error { return tx.AppendEvents(ctx, r.turnID, events) })
	if err != nil {
		return err
	}

	r.pending, r.flushed = r.pending[:0], time.Now()
	return nil
}

// Documents keeps the notes of agents between the runs of a turn.
type Documents interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
}

// DocumentTx writes them.
type DocumentTx interface {
	// PutDocument writes a document, over an older one if there is one.
	PutDocument(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	// KeepDocument lets a document, if there is one, not end before a time.
	KeepDocument(ctx context.Context, namespace, key string, until time.Time) error
}

const (
	memoryNamespace = "agents.memory" // turn id → the agent's own note
	memoryLife      = 7 * 24 * time.Hour

	// waitingMemoryLife is the life of the note of a turn that waits. What it waits for may come in days, and the run that follows may wait for
	// its agent: as long as a grant counts, the run finds which calls were made.
	waitingMemoryLife = policypart.GrantLife + 24*time.Hour
)

// keepMemory keeps the note of a turn that begins to wait.
func keepMemory(ctx context.Context, tx DocumentTx, turnID string) error {
	return tx.KeepDocument(ctx, memoryNamespace, turnID, time.Now().Add(waitingMemoryLife))
}

// memory is agents.Memory of one turn.
type memory struct {
	documents Documents
	record    *runRecord
	turnID    string
}

// memoryOf returns the note of a turn; nil when the server keeps none.
func (s *runner) memoryOf(turnID string, record *runRecord) agents.Memory {
	if s.options.Documents == nil {
		return nil
	}
	return memory{s.options.Documents, record, turnID}
}

// Load returns the note of an earlier run.
func (m memory) Load(ctx context.Context) ([]byte, error) {
	note, _, err := m.documents.Get(ctx, memoryNamespace, m.turnID)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "the agent's note cannot be read now", err)
	}
	m.record.noted.Store(len(note) > 0)
	return note, nil
}

// Save replaces the note. What the agent did until then is written with it, so that both survive or neither.
func (m memory) Save(ctx context.Context, note []byte) error {
	if len(note) > agents.MaxMemory {
		return fault.New(fault.TooLarge, "the agent's note is over 4 MiB")
	}

	err := m.record.flushResult(ctx, func(tx Tx) error {
		return tx.PutDocument(ctx, memoryNamespace, m.turnID, note, time.Now().Add(memoryLife))
	})
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the agent's note cannot be kept now", err)
	}
	m.record.noted.Store(true)
	return nil
}
