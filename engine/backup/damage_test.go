package backup_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // damages rows

	"inbox/engine/backup"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/fault"
)

// TestBackupOfADamagedDatabase: a backup that Verify refuses says so when it is written, and removes no earlier one. One whose rows cannot
// be read fails. The copy of a damaged row counted as a backup, and replaced a good one.
func TestBackupOfADamagedDatabase(t *testing.T) {
	p, directory := newPlace(t, "sqlite"), t.TempDir()
	s := p.open(t)
	p.fill(t, s, 3)
	good := p.write(t, s, directory, 1)
	if len(good.Problems) > 0 {
		t.Fatalf("before: %v", good.Problems)
	}

	file := filepath.Join(p.DataDir, store.File)
	pool, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.ExecContext(t.Context(), `UPDATE turns SET message = substr(message, 1, 40)`)
	if err := errors.Join(err, pool.Close()); err != nil {
		t.Fatal(err)
	}
	bad := p.write(t, s, directory, 1)
	if len(bad.Problems) == 0 || !strings.Contains(bad.Problems[0], "of turns") || len(bad.Removed) > 0 {
		t.Errorf("problems %v, removed %v", bad.Problems, bad.Removed)
	}
	if names, _, err := backup.Names(directory); err != nil || !slices.Contains(names, good.Name) {
		t.Errorf("there are %v, %v", names, err)
	}

	storetest.Damage(t, file, "turns")
	_, err = backup.Write(t.Context(), backup.Options{Directory: directory, Sources: []backup.Source{{Domain: "a.test", Store: s, Blobs: p.blobs}}})
	if !errors.Is(err, fault.ErrDamaged) {
		t.Errorf("with a damaged page: %v", err)
	}
}
