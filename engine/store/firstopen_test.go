package store_test

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
)

// TestFirstOpensAtOnce: a command beside the first start of a server finds the whole schema, whichever of them makes it. Nine of twelve
// commands failed inside a migration.
func TestFirstOpensAtOnce(t *testing.T) {
	t.Parallel()
	const rounds, openers = 4, 4
	for kind, address := range map[string]func(*testing.T) string{
		"sqlite": func(*testing.T) string { return "sqlite" }, "postgres": func(t *testing.T) string { return storetest.EmptyPostgres(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for range rounds {
				url, directory := address(t), t.TempDir()
				opened := make([]io.Closer, openers)
				var group sync.WaitGroup
				for i := range openers {
					group.Go(func() {
						s, err := store.Open(t.Context(), store.Options{URL: url, DataDir: directory, Logger: slog.New(slog.DiscardHandler)})
						if err != nil {
							t.Errorf("opener %d: %v", i, err)
							return
						}
						opened[i] = s
						if err := s.Probe(context.WithoutCancel(t.Context())); err != nil {
							t.Errorf("opener %d writes: %v", i, err)
						}
					})
				}

				await.Done(t, group.Wait, "all openers")
				for _, one := range opened {
					if one == nil {
						continue
					}
					if err := one.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}
