package store_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/queue"
)

// lockedBuffer takes a log from several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	told chan struct{}
}

func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	select {
	case b.told <- struct{}{}:
	default:
	}

	return b.text.Write(line)
}

// TestNodeWithAWrongClockRunsNothingTwice: one of two nodes is an hour ahead or behind, and neither takes what the other
// one runs, nor keeps back what is due.
func TestNodeWithAWrongClockRunsNothingTwice(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			url := storetest.Postgres(t)
			log := &lockedBuffer{told: make(chan struct{}, 1)}
			right := openWith(t, store.Options{URL: url})
			clock := func() time.Time { return time.Now().Add(wrong) }
			skewed := openWith(t, store.Options{URL: url, Now: clock, Logger: slog.New(slog.NewTextHandler(log, nil))})

			const jobs = 60
			var mu sync.Mutex
			runs := map[string]int{}
			ended := make(chan string, 10*jobs)
			var group sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for _, node := range []*store.Store{right, skewed} {
				q := queue.New(node.Queue(), queue.Options{Lease: 3 * time.Second, Poll: 100 * time.Millisecond})
				q.Handle("work", queue.KindOptions{Concurrency: 8}, func(ctx context.Context, job queue.Job) error {
					mu.Lock()
					runs[job.Payload]++
					mu.Unlock()

					select {
					case <-time.After(200 * time.Millisecond): // as long as other claims need to come by
					case <-ctx.Done():
						return ctx.Err()
					}

					ended <- job.Payload
					return nil
				})

				group.Go(func() {
					if err := q.Run(ctx); err != nil {
						t.Errorf("run: %v", err)
					}
				})
			}

			for n := range jobs {
				node, now := right, time.Now()
				if n%2 == 0 {
					node, now = skewed, clock()
				}

				job := queue.NewJob{ID: newID(), Kind: "work", Payload: fmt.Sprint(n)}
				if n%3 == 0 {
					job.RunAt = now.Add(500 * time.Millisecond)
				}
				if err := node.InTx(t.Context(), func(tx *store.Tx) error { return tx.Enqueue(t.Context(), job) }); err != nil {
					t.Fatal(err)
				}
			}

			timeout := time.After(2 * time.Minute)
			for n := range jobs {
				select {
				case <-ended:
				case <-timeout:
					t.Fatalf("%d of %d jobs ended within two minutes", n, jobs)
				}
			}

			stop()
			await.Done(t, group.Wait, "the end of both queues")
			for payload, count := range runs {
				if count != 1 {
					t.Errorf("job %s ran %d times", payload, count)
				}
			}

			offset, err := skewed.ClockOffset(t.Context())
			if err != nil || (offset-wrong).Abs() > time.Minute {
				t.Errorf("offset %v, %v; want %v", offset, err, wrong)
			}

			await.Receive(t, log.told, "the log of the clock")
			log.mu.Lock()
			defer log.mu.Unlock()

			if !strings.Contains(log.text.String(), "clock of this node differs") {
				t.Errorf("the log says %q", log.text.String())
			}
		})
	}
}
