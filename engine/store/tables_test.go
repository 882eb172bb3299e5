package store

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// kept are the tables of which no row is ever deleted, and why that is right.
var kept = map[string]string{
	"turns":          "a row recognises the repeat of its message; erasure empties it",
	"replies":        "a row recognises its native id in what peers send later; erasure empties it",
	"deliveries":     "a row says what became of an answer, also when a bounce comes a week later; erasure empties it",
	"demands":        "a row says who agreed to what; erasure empties it",
	"dispatches":     "a row belongs to its turn; erasure empties it",
	"tokens":         "a revoked token is on record; the operator makes them, so there are few",
	"list_version":   "one row",
	"bridge_clients": "one row for each bridge that the operator let in",
	"back_ends":      "one row for each agent",
}

// TestEveryTableEnds: a new table is emptied by a sweep, by erasure or by what made its rows, or it is said here why not.
func TestEveryTableEnds(t *testing.T) {
	var sources strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}

	s, err := Open(t.Context(), Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	tables := 0
	const list = `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version'`
	err = s.engine.reader().each(t.Context(), list, nil, func(r row) error {
		var table string
		if err := r.Scan(&table); err != nil {
			return err
		}
		tables++
		deletes := regexp.MustCompile(`(?i)DELETE FROM ` + table + `\b`).MatchString(sources.String())
		reason, named := kept[table]
		switch {
		case !deletes && !named:
			t.Errorf("%s: nothing deletes its rows; let a sweep or erasure do it, or say in kept why they stay", table)
		case deletes && named:
			t.Errorf("%s: its rows are deleted; kept says %q", table, reason)
		}
		return nil
	})
	if err != nil || tables == 0 {
		t.Fatalf("%d tables, %v", tables, err)
	}
}
