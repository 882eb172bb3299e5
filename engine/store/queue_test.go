package store_test

import (
	"context"
	"io"
	"testing"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

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
