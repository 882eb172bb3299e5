package pipeline

import (
	"context"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

// flushEvery is how long deltas are gathered before they become rows: token by token would be one fsync a word.
const flushEvery = 100 * time.Millisecond

// recorder writes the deltas of a growing answer as events, text gathered. An answer that is complete before the
// first flush writes none: its response says it all.
type recorder struct {
	turnID  string
	mark    *mark
	pending []normalized.Delta
	flushed time.Time
}

func newRecorder(turnID string, mark *mark) *recorder {
	return &recorder{turnID: turnID, mark: mark, flushed: time.Now()}
}

func (r *recorder) add(ctx context.Context, delta normalized.Delta) error {
	r.gather(delta)
	if time.Since(r.flushed) < flushEvery {
		return nil
	}
	return r.flush(ctx)
}

// gather joins neighbouring texts.
func (r *recorder) gather(delta normalized.Delta) {
	if last := len(r.pending) - 1; last >= 0 && delta.Kind == normalized.DeltaText && r.pending[last].Kind == normalized.DeltaText {
		r.pending[last].Text += delta.Text
		return
	}
	r.pending = append(r.pending, delta)
}

func (r *recorder) flush(ctx context.Context) error {
	events := make([]exchange.Event, 0, len(r.pending))
	for _, delta := range r.pending {
		body, err := delta.AppendJSON(nil)
		if err != nil {
			return err
		}
		events = append(events, exchange.Event{Kind: exchange.EventDelta, Body: body, At: time.Now()})
	}
	err := r.mark.flush(ctx, func(tx Tx) error { return tx.AppendEvents(ctx, r.turnID, events) })
	if err != nil {
		return err
	}
	r.pending, r.flushed = r.pending[:0], time.Now()
	return nil
}
