package storage

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/engine/store"
	"inbox/engine/store/database"
)

// TestMarkedDatabasesAreRefused: no server and no command opens what a restore has left that did not end, or what was moved away.
func TestMarkedDatabasesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, options store.Options)
		want    string
	}{
		"loading": {func(t *testing.T, options store.Options) {
			version, err := database.KnownSchema()
			if err != nil {
				t.Fatal(err)
			}
			loader, err := database.NewLoader(t.Context(), options.Database(), version, "restore of backup 1")
			if err != nil {
				t.Fatal(err)
			}
			if err := loader.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, "the restore of backup 1 did not end"},
		"file": {func(t *testing.T, options store.Options) {
			if err := os.WriteFile(filepath.Join(options.DataDir, store.UnfinishedFile), []byte("backup 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "run inbox restore again"},
		"moved": {func(t *testing.T, options store.Options) {
			opened, err := store.Open(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			if err := opened.MarkMoved(t.Context(), "postgres://db.example/inbox"); err != nil {
				t.Fatal(err)
			}
			if err := opened.Close(); err != nil {
				t.Fatal(err)
			}
		}, "was moved to postgres://db.example/inbox"},
	} {
		t.Run(name, func(t *testing.T) {
			options := Options{DataDir: t.TempDir(), DatabaseURL: "sqlite", NewIdentity: true, Logger: slog.New(slog.DiscardHandler)}
			c.prepare(t, options.Store(nil))
			opened, err := Open(t.Context(), options, nil)
			if err == nil {
				_ = opened.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}
