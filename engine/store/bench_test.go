package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
	"inbox/normalized"
)

// BenchmarkAccept stores what one accepted message is: turn, original of 2 KiB, first timeline row and job.
func BenchmarkAccept(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres"} {
		for _, callers := range []int{1, 8, 32, 128} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				s := open(b, databases[name](b))
				each(b, callers, func(n int64) error { return accept(b.Context(), s, sample(n)) })
			})
		}
	}
}

// BenchmarkAcceptBesideTheIndex is BenchmarkAccept of 32 callers, without and with the worker that writes words into the search index meanwhile.
func BenchmarkAcceptBesideTheIndex(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres"} {
		for _, indexed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/indexed=%t", name, indexed), func(b *testing.B) {
				s := open(b, databases[name](b))
				ctx, stop := context.WithCancel(b.Context())
				var worker sync.WaitGroup
				if indexed {
					s.IndexUnanswered()
					worker.Go(func() { _ = s.IndexWords(ctx) })
				}
				each(b, 32, func(n int64) error { return accept(b.Context(), s, sample(n)) })
				stop()
				worker.Wait()
			})
		}
	}
}

// each runs b.N calls of do from several goroutines.
func each(b *testing.B, callers int, do func(n int64) error) {
	b.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	b.ResetTimer()
	spent := processorTime()

	for range callers {
		group.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := do(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}

	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
	b.ReportMetric(float64((processorTime()-spent).Microseconds())/float64(b.N), "cpu-µs/op")
}

// processorTime is what this process has used: the figure to compare on a machine that others use too.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func sample(n int64) exchange.TurnRecord {
	id := fmt.Sprintf("https://peer.example/users/alice/statuses/%d", n)
	subject := fmt.Sprintf("https://peer.example/users/alice%d", n%50)
	thread := fmt.Sprintf("https://peer.example/contexts/%d", n/4)
	return exchange.TurnRecord{
		ID: newID(), Agent: "echo", Principal: "peer.example " + subject, ThreadID: thread, State: exchange.StateAccepted,
		AcceptedAt: time.Now(), Route: json.RawMessage(`{"inbox":"https://peer.example/inbox"}`),
		Message: normalized.Message{
			ID: id, ThreadID: thread, Recipient: "@echo@inbox.example", ReceivedVia: normalized.ViaActivityPub,
			ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: "application/activity+json"},
			Sender: normalized.Sender{
				Address: identity.Stated("@alice@peer.example"), AuthMethod: normalized.AuthActivityPubSignature, Verified: true,
				Identities: []identity.Evidence{{
					Subject: subject, Issuer: "peer.example", Method: identity.MethodActivityPubSignature,
					Assurance: identity.AssuranceDomain, Audience: identity.Audience{"@echo@inbox.example"},
					IssuedAt: identity.Now(), Proof: identity.Proof{Type: identity.ProofTransport, VerifiedBy: "inbox.example"},
				}},
			},
			Parts:                 []normalized.Part{normalized.Markdown("Hello echo, " + strings.Repeat("how are you today? ", 10))},
			RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}},
		},
	}
}

func accept(ctx context.Context, s *store.Store, turn exchange.TurnRecord) error {
	original := pipeline.Original{
		Digest: turn.ID, MediaType: "application/activity+json", Body: []byte(strings.Repeat(turn.Message.ID, 2048/len(turn.Message.ID))),
	}

	return s.Pipeline().InTx(ctx, func(tx pipeline.Tx) error {
		_, inserted, err := tx.InsertTurn(ctx, turn, original)
		if err != nil || !inserted {
			return err
		}
		return tx.Enqueue(ctx, queue.NewJob{ID: turn.ID, Kind: pipeline.JobKind, Partition: turn.ThreadID, Payload: turn.ID})
	})
}

// BenchmarkJobs claims and settles jobs of many partitions in batches of 32, while as many more wait.
func BenchmarkJobs(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres"} {
		for _, partitions := range []int{1, 1000, 1 << 30} {
			b.Run(fmt.Sprintf("%s/partitions=%d", name, partitions), func(b *testing.B) {
				s := open(b, databases[name](b))
				enqueue(b, s, b.N, partitions)
				claimAll(b, s)
			})
		}
	}
}

func enqueue(b *testing.B, s *store.Store, jobs, partitions int) {
	b.Helper()
	for begin := 0; begin < jobs; begin += 500 {
		err := s.InTx(b.Context(), func(tx *store.Tx) error {
			for n := begin; n < min(jobs, begin+500); n++ {
				job := queue.NewJob{ID: newID(), Kind: "bench", Partition: fmt.Sprint(n % partitions), Payload: "payload"}
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

func claimAll(b *testing.B, s *store.Store) {
	b.Helper()
	left := b.N
	b.ResetTimer()
	for left > 0 {
		jobs, err := queuetest.Claim(b.Context(), s.Queue(), "bench", "bench", 32, time.Minute)
		if err != nil {
			b.Fatal(err)
		}

		left -= len(jobs)
		var group sync.WaitGroup
		for _, job := range jobs {
			group.Go(func() {
				if err := s.Queue().Settle(b.Context(), job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
					b.Error(err)
				}
			})
		}

		group.Wait()
	}

	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkClaimBesideABacklog claims and settles one job of another sender while one sender has many jobs ready.
func BenchmarkClaimBesideABacklog(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres"} {
		for _, backlog := range []int{0, 200_000} {
			b.Run(fmt.Sprintf("%s/backlog=%d", name, backlog), func(b *testing.B) {
				s := open(b, databases[name](b))
				flood(b, s, backlog)
				share := queue.NewJob{Group: "agent", Member: "quiet"}.Share()
				for b.Loop() {
					one := queue.NewJob{ID: newID(), Kind: "bench", Payload: "payload", Group: "agent", Member: "quiet"}
					if err := s.InTx(b.Context(), func(tx *store.Tx) error { return tx.Enqueue(b.Context(), one) }); err != nil {
						b.Fatal(err)
					}

					jobs := claimFrom(b.Context(), b, s, share)
					if err := s.Queue().Settle(b.Context(), jobs[0].Lease, queue.Outcome{Kind: queue.Done}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func claimFrom(ctx context.Context, b *testing.B, s *store.Store, share queue.Share) []queue.Job {
	b.Helper()
	shares, err := s.Queue().Shares(ctx, "bench", queue.Share{Rank: -1}, 64)
	if err != nil || len(shares) == 0 || len(shares) > 2 {
		b.Fatalf("lanes %v, %v", shares, err)
	}

	jobs, err := s.Queue().Claim(ctx, queue.Claim{Owner: "bench", Kind: "bench", Lease: time.Minute, Takes: []queue.Take{{Share: share, Count: 1}}})
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
