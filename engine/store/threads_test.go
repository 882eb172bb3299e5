package store

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestThreadPlans: what is between the ends of a long thread is counted in an index, never read from the table.
func TestThreadPlans(t *testing.T) {
	directory := t.TempDir()
	s, err := Open(t.Context(), Options{DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	database, err := sql.Open("sqlite", sqliteURL(filepath.Join(directory, File)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := database.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, step := range plan(t, database, selectSent) {
		if strings.HasPrefix(step, "SCAN") {
			t.Errorf("sent: %s", step)
		}
	}
	for owners, texts := range threadTexts {
		for name, text := range map[string]string{"newest": texts.newest, "oldest": texts.oldest, "total": texts.total} {
			for _, step := range plan(t, database, text) {
				if strings.HasPrefix(step, "SCAN turns") || strings.HasPrefix(step, "SCAN t") && !strings.Contains(step, "hit") ||
					name == "total" && strings.Contains(step, "SEARCH turns") && !strings.Contains(step, "COVERING") {
					t.Errorf("%s of %d owners: %s", name, owners, step)
				}
			}
		}
	}
}

func TestFirstID(t *testing.T) {
	if got := firstID(time.Time{}); got != "" {
		t.Errorf("%q", got)
	}
	before := time.Now()
	id := uuid.Must(uuid.NewV7()).String()
	if from := firstID(before); id < from || len(from) != 13 {
		t.Errorf("%s is before %s", id, from)
	}
	if from := firstID(before.Add(time.Minute)); id >= from {
		t.Errorf("%s is not before %s", id, from)
	}
	if got := firstID(time.Unix(-5, 0)); got != "00000000-0000" {
		t.Errorf("%q", got)
	}
}
