package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"inbox/internal/fault"
)

// WordsFile is the name of the SQLite database of the search index in the data directory. It may be removed while the server is stopped: the
// server then writes it again in the background.
const WordsFile = "search.db"

// wordsVersion is the application_id of a file with the tables of words below.
const wordsVersion = 1

// wordsTables make the tables of words, empty. The tables of PostgreSQL are in the migrations.
var wordsTables = []string{
	`DROP TABLE IF EXISTS search_words`,
	`DROP TABLE IF EXISTS mail_words`,
	`DROP TABLE IF EXISTS stamp`,
	`CREATE VIRTUAL TABLE search_words USING fts5(said, subject, sender, tokenize = 'ascii', prefix = '2 3 4')`,
	`INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1)`, // a deleted row leaves nothing behind
	`CREATE VIRTUAL TABLE mail_words USING fts5(said, subject, sender, tokenize = 'ascii', prefix = '2 3 4')`,
	`INSERT INTO mail_words (mail_words, rank) VALUES ('secure-delete', 1)`,
	`CREATE TABLE stamp (value TEXT NOT NULL)`,
	`INSERT INTO stamp (value) VALUES ('')`,
	fmt.Sprintf(`PRAGMA application_id = %d`, wordsVersion), markOverwritten,
}

// OpenWords opens the database that has the tables of words. On SQLite that is a file of its own, so that its writer never holds up the one
// of messages. On PostgreSQL it is the same database, which is returned. A file that is damaged, or of another version, is written anew.
func OpenWords(ctx context.Context, beside Engine, options Options) (Engine, error) {
	if beside.Kind() != SQLite {
		return beside, nil
	}

	path := filepath.Join(options.DataDir, WordsFile)
	e, err := openWords(ctx, path, options)
	if err != nil && sqliteDamaged(err) {
		options.Logger.Warn("the search index is damaged and is written again", "file", path, "error", err)
		if err := removeFiles(path); err != nil {
			return nil, unusableSQLite(path, err)
		}
		e, err = openWords(ctx, path, options)
	}
	if err != nil {
		return nil, unusableSQLite(path, err)
	}
	return e, nil
}

func openWords(ctx context.Context, path string, options Options) (*sqliteEngine, error) {
	if err := keepPrivate(path, options.Logger); err != nil {
		return nil, err
	}
	return openSQLiteFile(ctx, path, "wal_autocheckpoint(4000)", options, func(writes *sql.DB) error { return makeWords(ctx, writes) })
}

func removeFiles(path string) error {
	for _, file := range filesOf(path) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// makeWords makes the tables unless they are there.
func makeWords(ctx context.Context, writes *sql.DB) error {
	tx, err := writes.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after the commit

	var version int64
	if err := tx.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&version); err != nil || version == wordsVersion {
		return err
	}
	for _, statement := range wordsTables {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// ClearWords empties the file of words and gives it a stamp, which says of which database it is.
func ClearWords(ctx context.Context, words Engine, stamp string) error {
	e, is := words.(*sqliteEngine)
	if !is {
		return fault.New(fault.Malformed, "only SQLite has a file of words")
	}
	return e.Transact(ctx, func(s Session) error {
		for _, statement := range wordsTables {
			if err := s.Do(ctx, statement); err != nil {
				return err
			}
		}
		return s.Do(ctx, `UPDATE stamp SET value = $1`, stamp)
	})
}

// WordsStamp returns the stamp of a file of words; empty = it was just made.
func WordsStamp(ctx context.Context, words Engine) (stamp string, err error) {
	err = words.Reader().Each(ctx, `SELECT value FROM stamp`, nil, func(r Row) error { return r.Scan(&stamp) })
	return stamp, err
}
