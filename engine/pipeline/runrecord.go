package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/internal/queue"
)

// markAfter is how long a run may take before its turn is written as running. A quicker answer brings the row along
// in its own transaction, which saves a commit; a crash before it leaves an accepted turn whose job comes back.
const markAfter = 50 * time.Millisecond

// runRecord writes the row "turn.running" of one run, once, and the agent's steps with whatever else the run writes.
type runRecord struct {
	store   Store
	move    Move
	again   bool // an earlier run streamed perhaps: what it sent is void
	probe   bool // the run asks whether the agent's back end is back
	timer   *time.Timer
	once    sync.Once
	written bool
	err     error
	steps   steps
	writing sync.Mutex // an agent may save its note from any of its goroutines
}

// begin numbers the run and sees to its record.
func (s *Service) begin(ctx context.Context, job queue.Job, turn *exchange.TurnRecord) (*runRecord, error) {
	again := turn.State == exchange.StateRunning || turn.Attempt > 0 || job.Attempt > 1
	turn.Attempt = max(turn.Attempt+1, job.Attempt)
	m := &runRecord{store: s.options.Store, again: again, move: beginRun.Move(turn.ID, exchange.StateRunning, "", time.Now())}
	m.move.Attempt = turn.Attempt
	if again {
		return m, m.write(ctx)
	}
	m.timer = time.AfterFunc(markAfter, func() { _ = m.write(ctx) }) // failed: the answer brings the row along
	return m, nil
}

// write writes the row now, unless it is there.
func (m *runRecord) write(ctx context.Context) error {
	m.once.Do(func() {
		m.err = m.store.InTx(ctx, func(tx Tx) error { return m.in(ctx, tx) })
		m.written = m.err == nil
	})
	return m.err
}

// in writes the row inside a transaction of the caller.
func (m *runRecord) in(ctx context.Context, tx Tx) error {
	moved, err := tx.MoveTurn(ctx, m.move)
	if err != nil || !moved || !m.again {
		return err
	}
	return tx.AppendEvents(ctx, m.move.ID, []exchange.Event{{Kind: exchange.EventRestarted, At: m.move.At}})
}

// event is the row for a caller that writes the turn itself.
func (m *runRecord) event() exchange.Event {
	return exchange.Event{Kind: "turn." + exchange.StateRunning, Body: fmt.Appendf(nil, `{"attempt":%d}`, m.move.Attempt), At: m.move.At}
}

// flush writes the row if it is not there, the agent's steps and more in one transaction.
func (m *runRecord) flush(ctx context.Context, more func(Tx) error) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	missing, noted := m.missing(), m.steps.noted()
	err := m.store.InTx(ctx, func(tx Tx) error {
		if missing {
			if err := m.in(ctx, tx); err != nil {
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
	return err
}

// late returns the rows that the end of the run has to bring along, and whether "turn.running" is among them. Afterwards nobody
// else writes them.
func (m *runRecord) late() (events []exchange.Event, missing bool) {
	m.writing.Lock()
	defer m.writing.Unlock()
	if missing = m.missing(); missing {
		events = append(events, m.event())
	}
	return append(events, m.steps.noted()...), missing
}

func appendLate(ctx context.Context, tx Tx, turnID string, events []exchange.Event) error {
	if len(events) == 0 {
		return nil
	}
	return tx.AppendEvents(ctx, turnID, events)
}

// missing reports whether the row still has to be written with the answer. Afterwards nobody else writes it.
func (m *runRecord) missing() bool {
	if m.timer != nil {
		m.timer.Stop()
	}
	m.once.Do(func() {}) // waits for a write under way, or forbids a later one
	return !m.written
}
