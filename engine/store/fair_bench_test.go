package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

// BenchmarkClaimBesideABacklog claims and settles one job of another sender while one sender has many jobs ready.
func BenchmarkClaimBesideABacklog(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres"} {
		for _, backlog := range []int{0, 200_000} {
			b.Run(fmt.Sprintf("%s/backlog=%d", name, backlog), func(b *testing.B) {
				s := open(b, databases[name](b))
				flood(b, s, backlog)
				lane := queue.NewJob{Group: "agent", Member: "quiet"}.Lane()
				for b.Loop() {
					one := queue.NewJob{ID: newID(), Kind: "bench", Payload: "payload", Group: "agent", Member: "quiet"}
					if err := s.InTx(b.Context(), func(tx *store.Tx) error { return tx.Enqueue(b.Context(), one) }); err != nil {
						b.Fatal(err)
					}
					jobs := claimFrom(b.Context(), b, s, lane)
					if err := s.Queue().Settle(b.Context(), jobs[0].Lease, queue.Outcome{Kind: queue.Done}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func claimFrom(ctx context.Context, b *testing.B, s *store.Store, lane queue.Lane) []queue.Job {
	b.Helper()
	lanes, err := s.Queue().Lanes(ctx, "bench", queue.Lane{Rank: -1}, 64)
	if err != nil || len(lanes) == 0 || len(lanes) > 2 {
		b.Fatalf("lanes %v, %v", lanes, err)
	}
	jobs, err := s.Queue().Claim(ctx, queue.Claim{Owner: "bench", Kind: "bench", Lease: time.Minute, Takes: []queue.Take{{Lane: lane, Count: 1}}})
	if err != nil || len(jobs) != 1 {
		b.Fatalf("claimed %v, %v", jobs, err)
	}
	return jobs
}

func flood(b *testing.B, s *store.Store, jobs int) {
	b.Helper()
	for begin := 0; begin < jobs; begin += 5000 {
		err := s.InTx(b.Context(), func(tx *store.Tx) error {
			for range 5000 {
				job := queue.NewJob{ID: queuetest.NewID(), Kind: "bench", Payload: "payload", Group: "agent", Member: "loud"}
				if err := tx.Enqueue(b.Context(), job); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
