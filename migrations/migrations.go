// Package migrations holds the database schema as goose SQL files, one directory for SQLite and PostgreSQL alike.
// The files are portable: ids and JSON are TEXT, instants are BIGINT unix microseconds (0 = never), flags are
// BOOLEAN. It runs nothing; engine/store/database applies the files when it opens a database.
package migrations

import (
	"embed"
	"io"
	"io/fs"
	"strings"
)

// Files are the migrations in order of their numbers. Key columns are marked COLLATE "C", so that PostgreSQL
// orders and compares them by bytes whatever the locale of the database; SQLite does so always. What one database alone has, such as its
// full-text search, stands between the lines "-- +only sqlite" or "-- +only postgres" and "-- +end"; see For.
//
//go:embed *.sql
var Files embed.FS

// Names of the databases for For.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// For returns the migrations as a database takes them: without what is only for another one and, for SQLite, without the collation "C", which it
// does not know, and the cast ::json, which it does not need.
func For(database string) fs.FS { return filtered{Files, database} }

type filtered struct {
	fs.FS
	database string
}

// Open opens a migration.
func (f filtered) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".sql") {
		return file, err
	}

	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return readable{file, strings.NewReader(f.keep(string(text)))}, nil
}

func (f filtered) keep(text string) string {
	var kept strings.Builder
	other := false
	for line := range strings.Lines(text) {
		switch marked, is := strings.CutPrefix(strings.TrimSpace(line), "-- +only "); {
		case is:
			other = marked != f.database
		case strings.TrimSpace(line) == "-- +end":
			other = false
		case !other:
			kept.WriteString(line)
		}
	}
	if f.database == SQLite {
		return strings.NewReplacer(` COLLATE "C"`, "", "::json", "").Replace(kept.String())
	}
	return kept.String()
}

type readable struct {
	fs.File
	text *strings.Reader
}

// Read reads what is left.
func (r readable) Read(buffer []byte) (int, error) { return r.text.Read(buffer) }
