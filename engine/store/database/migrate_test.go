package database

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"inbox/internal/await"
)

// TestMigrationsWithoutALock: processes that have no common lock, as those of an earlier version, apply each migration once.
func TestMigrationsWithoutALock(t *testing.T) {
	if err := registerClock(); err != nil {
		t.Fatal(err)
	}
	known, err := KnownSchema()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		address := sqliteURL(filepath.Join(t.TempDir(), File))
		var group sync.WaitGroup
		for range 3 {
			pool, err := openPool(t.Context(), address, 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pool.Close() })
			group.Go(func() {
				if err := MigrateTo(t.Context(), pool, SQLite, known); err != nil {
					t.Error(err)
				}
			})
		}
		await.Done(t, group.Wait, "all migrations")
	}
}

// TestWaitForALockIsBounded: a process says what it waits for, once, and gives up with words that name it.
func TestWaitForALockIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger, tries := slog.New(slog.NewTextHandler(&log, nil)), 0
		err := awaitLock(t.Context(), logger, "inbox.db.schema.lock", func() (bool, error) { tries++; return false, nil })
		if err == nil || !strings.Contains(err.Error(), "inbox.db.schema.lock") || strings.Count(log.String(), "waiting for another process") != 1 {
			t.Errorf("after %d tries: %v\n%s", tries, err, log.String())
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := awaitLock(ctx, logger, "lock", func() (bool, error) { return false, nil }); err == nil {
			t.Error("a caller that left still waits")
		}
		if err := awaitLock(ctx, logger, "lock", func() (bool, error) { return true, nil }); err != nil {
			t.Error(err)
		}
	})
}

// TestMissingMigrationIsRefused: a database that lacks a migration before its newest one was changed by hand, and nothing is applied to it.
func TestMissingMigrationIsRefused(t *testing.T) {
	if err := registerClock(); err != nil {
		t.Fatal(err)
	}
	pool, err := openPool(t.Context(), sqliteURL(filepath.Join(t.TempDir(), File)), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	if err := MigrateTo(t.Context(), pool, SQLite, 44); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.ExecContext(t.Context(), `DELETE FROM goose_db_version WHERE version_id = 30`); err != nil {
		t.Fatal(err)
	}

	known, err := KnownSchema()
	if err != nil {
		t.Fatal(err)
	}
	err = MigrateTo(t.Context(), pool, SQLite, known)
	if err == nil || !strings.Contains(err.Error(), "restore a backup") || !strings.Contains(err.Error(), "30") {
		t.Errorf("got %v", err)
	}
	if version, err := sqliteSchema.version(t.Context(), pool); err != nil || version != 44 {
		t.Errorf("version %d, %v", version, err)
	}
}
