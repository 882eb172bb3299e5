package database

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"inbox/internal/fault"
)

// TestDamageOfPostgres: what PostgreSQL says of damaged pages is damage; a full disk, a missing file and a server that ends are not.
func TestDamageOfPostgres(t *testing.T) {
	for code, damaged := range map[string]bool{
		"XX001": true, "XX002": true, "XX000": false, "58P01": false, "58030": false, "53100": false, "25006": false, "57P01": false,
	} {
		err := postgresFault("write", &pgconn.PgError{Code: code})
		if errors.Is(err, fault.ErrDamaged) != damaged || !errors.Is(err, fault.ErrStore) || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v, damaged %v", code, err, errors.Is(err, fault.ErrDamaged))
		}
	}
	if err := postgresFault("write", &pgconn.PgError{Code: "23505"}); errors.Is(err, fault.ErrStore) {
		t.Errorf("a wrong statement: %v", err)
	}
}

// TestFileThatIsNoDatabase: a file whose first page is damaged is not opened, and the sentence says what to do.
func TestFileThatIsNoDatabase(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, File), []byte(strings.Repeat("no database ", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	options := testOptions(directory)
	options.Logger = slog.New(slog.DiscardHandler)
	_, err := openSQLite(t.Context(), options)
	if !errors.Is(err, fault.ErrDamaged) || !strings.Contains(err.Error(), "inbox restore") || strings.Contains(err.Error(), "permissions") {
		t.Errorf("got %v", err)
	}
}
