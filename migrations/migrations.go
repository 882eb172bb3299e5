// Package migrations holds the database schema as goose SQL files, one directory for SQLite and PostgreSQL alike.
// The files are portable: ids and JSON are TEXT, instants are BIGINT unix microseconds (0 = never), flags are
// BOOLEAN. It runs nothing; engine/store applies the files when it opens a database.
package migrations

import "embed"

// Files are the migrations in order of their numbers. Key columns are marked COLLATE "C", so that PostgreSQL
// orders and compares them by bytes whatever the locale of the database; SQLite does so always, and the reader
// of these files removes the mark for it, as it does with the cast ::json.
//
//go:embed *.sql
var Files embed.FS
