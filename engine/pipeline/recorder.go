package pipeline

import (
	"context"
	"sync"
	"time"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/normalized"
)

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
			end := maxDeltaText
			for end > maxDeltaText-utf8.UTFMax && !utf8.RuneStart(delta.Text[end]) {
				end--
			}
			list = append(list, normalized.Delta{Kind: delta.Kind, Text: delta.Text[:end]})
			delta.Text = delta.Text[end:]
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
