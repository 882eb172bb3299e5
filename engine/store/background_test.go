package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/fault"
)

// TestBackgroundWorkYields floods the gate with five kinds of work and asks for the writer's share of time that is left to messages.
func TestBackgroundWorkYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kinds, pieces, piece = 5, 20, 4 * time.Millisecond
		b := newBackground()
		var lock sync.Mutex
		running, order := 0, []int(nil)
		var flood sync.WaitGroup
		begun := time.Now()
		for kind := range kinds {
			flood.Go(func() {
				for range pieces {
					err := b.do(t.Context(), func() error {
						lock.Lock()
						running++
						if running > 1 {
							t.Error("two pieces run at a time")
						}
						order = append(order, kind)
						lock.Unlock()

						<-time.After(piece) // of the fake clock

						lock.Lock()
						running--
						lock.Unlock()
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		flood.Wait()

		if elapsed, work := time.Since(begun), kinds*pieces*piece; elapsed < 2*work {
			t.Errorf("%s of work took %s: messages had less than half of the time", work, elapsed)
		}
		last := map[int]int{}
		for i, kind := range order {
			if before, ran := last[kind]; ran && i-before > 2*kinds {
				t.Errorf("kind %d waited for %d pieces of others", kind, i-before-1)
			}
			last[kind] = i
		}
	})
}

// TestBackgroundWorkEnds asks that a piece that fails, or a caller that gives up, leaves the gate open to others.
func TestBackgroundWorkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackground()
		broken := errors.New("broken")
		if err := b.do(t.Context(), func() error { return broken }); !errors.Is(err, broken) {
			t.Fatalf("got %v; want the error of the piece", err)
		}

		hung := make(chan struct{})
		go func() { _ = b.do(t.Context(), func() error { <-hung; return nil }) }()
		synctest.Wait()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := b.do(ctx, func() error { return nil }); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("got %v behind a piece that hangs; want unavailable", err)
		}

		close(hung)
		if err := b.do(t.Context(), func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	})
}
