package database

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/internal/await"
)

// TestLogShrinks: a log that a long reader made large is small again when the reader has left, with and without further writes. It kept its
// size until the server ended.
func TestLogShrinks(t *testing.T) {
	for name, writes := range map[string]bool{"while others write": true, "while no one writes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := testOptions(t.TempDir())
			e, err := openSQLite(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			rows := 0
			write := func() {
				t.Helper()
				rows++
				err := e.Transact(t.Context(), func(running Session) error {
					return running.Do(t.Context(), insertMark, "n", fmt.Sprint(rows), strings.Repeat("x", 1<<20))
				})
				if err != nil {
					t.Fatal(err)
				}
			}

			reader, err := sql.Open("sqlite", sqliteURL(filepath.Join(options.DataDir, File)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = reader.Close() })
			old, err := reader.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, statement := range []string{"BEGIN DEFERRED", "SELECT COUNT(*) FROM documents"} {
				if _, err := old.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			for LogSize(options.DataDir) <= 2*logLimit {
				write()
			}
			if _, err := old.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}

			await.Until(t, "a small log", func() bool {
				if writes {
					write()
				}
				return LogSize(options.DataDir) <= logLimit
			})
		})
	}
}

// TestLargeLogIsReported: once when it grows beyond the bound, and once when it is small again.
func TestLargeLogIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var out bytes.Buffer
	watch := logWatch{path: path, logger: slog.New(slog.NewTextHandler(&out, nil))}
	for _, step := range []struct{ bytes, lines int64 }{{0, 0}, {LogWarning, 0}, {LogWarning + 1, 1}, {2 * LogWarning, 1}, {LogWarning, 1}, {logLimit, 2}, {0, 2}} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, step.bytes)); err != nil {
			t.Fatal(err)
		}
		watch.look()
		if lines := int64(strings.Count(out.String(), "\n")); lines != step.lines || watch.bytes != step.bytes {
			t.Errorf("with %d bytes: %d lines, want %d; measured %d", step.bytes, lines, step.lines, watch.bytes)
		}
	}
}
