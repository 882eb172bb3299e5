package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// busy occupies the writer until release is called.
func busy(t *testing.T, s *store.Store) (release func()) {
	t.Helper()
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.InTx(context.WithoutCancel(t.Context()), func(*store.Tx) error {
			close(entered)
			<-leave
			return nil
		})
	}()

	letGo := sync.OnceFunc(func() { close(leave) })
	t.Cleanup(letGo) // before the store ends, which waits for its writer
	await.Receive(t, entered, "the writer")
	return func() {
		t.Helper()
		letGo()
		if err := await.Receive(t, done, "the end of the writer's work"); err != nil {
			t.Error(err)
		}
	}
}

func TestCallerLeavesTheQueue(t *testing.T) {
	s := open(t, "sqlite")
	release := busy(t, s)
	for range 100 { // more than there are places to wait
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		err := s.InTx(ctx, func(*store.Tx) error { t.Error("ran after its caller had left"); return nil })
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !fault.Is(err, fault.Unavailable) {
			t.Fatalf("got %v", err)
		}
	}

	release()
	if err := accept(t.Context(), s, sample(1)); err != nil {
		t.Error(err)
	}
}

func TestCallerWaitsForWorkThatHasBegun(t *testing.T) {
	s := open(t, "sqlite")
	ctx, cancel := context.WithCancel(t.Context())
	err := s.InTx(ctx, func(tx *store.Tx) error {
		cancel()
		return tx.Enqueue(ctx, queue.NewJob{ID: newID(), Kind: "x"})
	})
	if err != nil {
		t.Fatal(err)
	}

	if jobs, err := s.Jobs(t.Context(), store.JobFilter{}); err != nil || len(jobs) != 1 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

func TestCloseFinishesWhatIsQueued(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			address, directory := url(t), t.TempDir()
			s, err := store.Open(t.Context(), store.Options{URL: address, DataDir: directory, Connections: 4})
			if err != nil {
				t.Fatal(err)
			}

			results := make(chan error, 20)
			for i := range cap(results) {
				go func() { results <- accept(t.Context(), s, sample(int64(i))) }()
			}

			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Errorf("close: %v", err)
			}
			stored := 0
			for range cap(results) {
				switch err := await.Receive(t, results, "the answers to all callers"); {
				case err == nil:
					stored++
				case !fault.Is(err, fault.Unavailable):
					t.Errorf("at close: %v", err)
				}
			}

			if err := accept(t.Context(), s, sample(99)); !fault.Is(err, fault.Unavailable) {
				t.Errorf("after close: %v", err)
			}
			again := openWith(t, store.Options{URL: address, DataDir: directory})
			if jobs, err := again.Jobs(t.Context(), store.JobFilter{}); err != nil || len(jobs) != stored {
				t.Errorf("%d jobs for %d acknowledged messages, %v", len(jobs), stored, err)
			}
		})
	}
}
