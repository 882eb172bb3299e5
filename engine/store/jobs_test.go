package store_test

import (
	"context"
	"io"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

func TestJobsByTheOperator(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			s := open(t, url(t))
			ids := []string{newID(), newID(), newID()}
			if err := s.InTx(t.Context(), func(tx *store.Tx) error {
				for _, id := range ids {
					if err := tx.Enqueue(t.Context(), queue.NewJob{ID: id, Kind: "work", Partition: "p", Payload: "x"}); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}

			expectStates(t, s, "blocked", "blocked", "ready")
			job := claimOne(t, s)
			for _, refused := range []error{s.RetryJob(t.Context(), job.ID), s.CancelJob(t.Context(), job.ID)} {
				if !fault.Is(refused, fault.Conflict) {
					t.Errorf("of a running job: %v", refused)
				}
			}

			if err := s.CancelJob(t.Context(), ids[1]); err != nil {
				t.Error(err)
			}
			if err := s.Queue().Settle(t.Context(), job.Lease, queue.Outcome{Kind: queue.Dead, Reason: "no\x00host"}); err != nil {
				t.Fatal(err)
			}

			expectStates(t, s, "ready", "dead")
			dead, err := s.Jobs(t.Context(), store.JobFilter{State: "dead", Kind: "work", Before: ids[2], Limit: 5})
			if err != nil || len(dead) != 1 || dead[0].Reason != "no\uFFFDhost" || dead[0].Attempt != 1 {
				t.Errorf("dead letters %+v, %v", dead, err)
			}
			if err := s.RetryJob(t.Context(), ids[0]); err != nil {
				t.Error(err)
			}

			if again := claimOne(t, s); again.ID != ids[0] || again.Attempt != 1 {
				t.Errorf("claimed %+v", again)
			}

			for _, missing := range []error{s.RetryJob(t.Context(), newID()), s.CancelJob(t.Context(), newID())} {
				if !fault.Is(missing, fault.NotFound) {
					t.Errorf("of no job: %v", missing)
				}
			}
		})
	}
}

// TestCancelledHeadLetsTheNextGo removes the first job of a partition before it ran.
func TestCancelledHeadLetsTheNextGo(t *testing.T) {
	s := open(t, "sqlite")
	ids := []string{newID(), newID()}
	for _, id := range ids {
		if err := s.InTx(t.Context(), func(tx *store.Tx) error {
			return tx.Enqueue(t.Context(), queue.NewJob{ID: id, Kind: "work", Partition: "p"})
		}); err != nil {
			t.Fatal(err)
		}
	}

	if err := s.CancelJob(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	if job := claimOne(t, s); job.ID != ids[1] {
		t.Errorf("claimed %+v", job)
	}
}

func expectStates(t *testing.T, s *store.Store, want ...string) {
	t.Helper()
	jobs, err := s.Jobs(t.Context(), store.JobFilter{})
	if err != nil || len(jobs) != len(want) {
		t.Fatalf("jobs %+v, %v", jobs, err)
	}

	for i, job := range jobs {
		if job.State != want[i] {
			t.Errorf("job %d is %s, want %s", i, job.State, want[i])
		}
	}
}

func claimOne(t *testing.T, s *store.Store) queue.Job {
	t.Helper()
	jobs, err := queuetest.Claim(t.Context(), s.Queue(), "o", "work", 9, time.Minute)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("claimed %+v, %v", jobs, err)
	}
	return jobs[0]
}

// databases are the engines that every suite runs on.
var databases = map[string]func(testing.TB) string{
	"sqlite":   func(testing.TB) string { return "sqlite" },
	"postgres": storetest.Postgres,
}

func open(t testing.TB, url string) *store.Store {
	t.Helper()
	return openWith(t, store.Options{URL: url})
}

func openWith(t testing.TB, options store.Options) *store.Store {
	t.Helper()
	if options.DataDir == "" {
		options.DataDir = storetest.Directory(t, func(directory string) (io.Closer, error) {
			return store.Open(t.Context(), store.Options{DataDir: directory})
		})
	}

	options.Connections = 8
	s, err := store.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestQueue(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			queuetest.Run(t, func(t *testing.T) queuetest.Bench {
				s := open(t, url(t))
				return queuetest.Bench{Store: s.Queue(), Pass: s.Pass, Enqueue: func(ctx context.Context, jobs ...queue.NewJob) error {
					return s.InTx(ctx, func(tx *store.Tx) error {
						for _, job := range jobs {
							if err := tx.Enqueue(ctx, job); err != nil {
								return err
							}
						}
						return nil
					})
				}}
			})
		})
	}
}
