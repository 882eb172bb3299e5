package database

import (
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"inbox/internal/fault"
)

// TestLockOfAnotherProcess: the first transaction waits long for the lock of another process and the next ones do not, until
// one has got it. Each step of a message that was being accepted waited as long, so that peers hung for a minute.
func TestLockOfAnotherProcess(t *testing.T) {
	directory := t.TempDir()
	opened, err := openSQLite(t.Context(), testOptions(directory))
	if err != nil {
		t.Fatal(err)
	}

	e := opened.(*sqliteEngine)
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()

	patience := func() (wait time.Duration) {
		t.Helper()
		var milliseconds int64
		err := e.writer.between(t.Context(), func(s *writerSession) error {
			return s.connection.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&milliseconds)
		})
		if err != nil {
			t.Fatal(err)
		}

		return time.Duration(milliseconds) * time.Millisecond
	}

	nothing := func(Session) error { return nil }
	if err := e.Transact(t.Context(), nothing); err != nil || patience() != lockPatience {
		t.Fatalf("before: %v, patience %v", err, patience())
	}

	other, err := sql.Open("sqlite", sqliteURL(filepath.Join(directory, File)))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	holder, err := other.Begin() // immediate, by sqliteURL
	if err != nil {
		t.Fatal(err)
	}

	err = e.writer.between(t.Context(), func(s *writerSession) error { return s.wait(time.Millisecond) }) // the test need not wait
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := e.Transact(t.Context(), nothing); !fault.Is(err, fault.Unavailable) || patience() != shortPatience {
			t.Fatalf("while it is locked: %v, patience %v", err, patience())
		}
	}

	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := e.Transact(t.Context(), nothing); err != nil || patience() != lockPatience {
		t.Errorf("afterwards: %v, patience %v", err, patience())
	}
}

// TestFailuresOfTheDatabaseAreNamed: callers tell them from failures of peers.
func TestFailuresOfTheDatabaseAreNamed(t *testing.T) {
	if err := Unavailable("write", errClosed); !errors.Is(err, fault.ErrStore) || !errors.Is(err, errClosed) {
		t.Errorf("%v", err)
	}
	if err := error(operationError{"write", errClosed}); errors.Is(err, fault.ErrStore) {
		t.Errorf("%v", err)
	}
}

// testOptions are those of a file in a directory.
func testOptions(directory string) Options {
	return Options{URL: "sqlite", DataDir: directory, Readers: 4, Logger: slog.New(slog.DiscardHandler)}
}
