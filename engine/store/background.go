package store

import (
	"context"
	"time"

	"inbox/engine/store/database"
	"inbox/internal/clock"
)

// background is the gate of all work on the database that no message waits for: the search index, retention, erasure, sweeps and
// statistics. One piece of it runs at a time in this process, and the gate stays closed behind it for as long as it took. However many
// kinds have something to do, messages have the writer for at least half of the time, and wait for one piece at most. Those who wait for
// the gate pass in the order in which they came, so no kind keeps another from its turn.
type background struct{ gate chan struct{} }

func newBackground() *background { return &background{gate: make(chan struct{}, 1)} }

// maxRest bounds the pause behind one piece: one that took long because the disk hung should not stop the others for as long again.
const maxRest = time.Second

// do runs one piece of work, which should take a few milliseconds and must not call do. The work may be done when the error is that of ctx.
func (b *background) do(ctx context.Context, piece func() error) error {
	select {
	case b.gate <- struct{}{}:
	case <-ctx.Done():
		return database.Unavailable("wait for other work in the background", ctx.Err())
	}
	defer func() { <-b.gate }()

	begun := time.Now()
	if err := piece(); err != nil {
		return err
	}
	if err := clock.Sleep(ctx, min(time.Since(begun), maxRest)); err != nil {
		return database.Unavailable("rest after work in the background", err)
	}
	return nil
}

// inBackground runs a transaction that no message waits for; see InTx and background.
func (d *shared) inBackground(ctx context.Context, work func(*Tx) error) error {
	return d.background.do(ctx, func() error { return d.InTx(ctx, work) })
}
